# plugin/cuda: own kernels for the CPU (tests), and libweft_cuda.so where nvcc is.
set(cuda_dir ${CMAKE_SOURCE_DIR}/plugin/cuda)
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${cuda_dir}/kernels/*.cu)
file(GLOB cuda_ops CONFIGURE_DEPENDS ${cuda_dir}/ops/*.c)

# What kernels and the host code that chooses them are made of, as one number (library.c).
file(GLOB cuda_headers CONFIGURE_DEPENDS ${cuda_dir}/*.h)
set(cuda_sources ${cuda_kernels} ${cuda_ops} ${cuda_headers})
set(cuda_kernels_id ${CMAKE_BINARY_DIR}/cuda/kernels_id.c)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
add_custom_command(OUTPUT ${cuda_kernels_id} COMMAND ${CMAKE_SOURCE_DIR}/tools/kernels_id.sh ${cuda_kernels_id} ${cuda_sources}
    DEPENDS ${CMAKE_SOURCE_DIR}/tools/kernels_id.sh ${cuda_sources} VERBATIM)

# ---- kernels on the CPU: the same .cu files as C++, and the host code that starts them ----------

include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT WEFT_FUZZ)
    enable_language(CXX)
    set(CMAKE_CXX_STANDARD 17)
    # bodies and fibers: also in the driver that tests use instead of NVIDIA's (tests/cuda/stub)
    add_library(cuda_emu_kernels OBJECT EXCLUDE_FROM_ALL ${cuda_dir}/emu/emu.cpp ${cuda_dir}/emu/wgmma.cpp ${cuda_kernels})
    set_target_properties(cuda_emu_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_include_directories(cuda_emu_kernels PUBLIC ${cuda_dir})
    set(kernel_level 2)
    if(WEFT_SANITIZE) # optimizing them takes three times as long as all tests of them save by it
        set(kernel_level 0)
    endif()
    set_source_files_properties(${cuda_kernels} PROPERTIES LANGUAGE CXX
        COMPILE_OPTIONS "-xc++;-O${kernel_level};-ffp-contract=off;-Wno-conversion;-Wno-sign-conversion")
    add_library(weft_cuda_emu STATIC EXCLUDE_FROM_ALL ${cuda_ops} ${cuda_dir}/table.c ${cuda_dir}/library.c
        ${cuda_dir}/pace.c ${cuda_dir}/pinned.c ${cuda_dir}/tune.c ${cuda_kernels_id}
        ${cuda_dir}/emu/launch.cpp $<TARGET_OBJECTS:cuda_emu_kernels>)
    target_include_directories(weft_cuda_emu PUBLIC ${cuda_dir})
    target_link_libraries(weft_cuda_emu PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
endif()

# ---- the plugin ---------------------------------------------------------------------------------

find_program(WEFT_NVCC nvcc HINTS /usr/local/cuda/bin)
if(WEFT_NVCC AND NOT WEFT_SANITIZE AND NOT WEFT_FUZZ)
    execute_process(COMMAND ${WEFT_NVCC} --version OUTPUT_VARIABLE nvcc_says)
    string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" nvcc_release "${nvcc_says}")
    math(EXPR cuda_version "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
    set(cuda_arch -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a
        -gencode=arch=compute_80,code=compute_80)
    # Half of the time of compiling a kernel file alone is NVIDIA's headers.  So several are compiled as one unit: headers first,
    # which their guards leave out later, then each file in a namespace of its own.  Every fifth file goes into the same unit,
    # for units of some length each.  Kernels are extern "C", and their code is that of files compiled alone.
    set(n_cuda_units 5)
    set(cuda_units "")
    list(LENGTH cuda_kernels n_cuda_kernels)
    math(EXPR last_unit "${n_cuda_units} - 1")
    math(EXPR last_kernel "${n_cuda_kernels} - 1")
    foreach(u RANGE ${last_unit})
        set(unit_code "")
        set(unit_uses "")
        foreach(k RANGE ${u} ${last_kernel} ${n_cuda_units})
            list(GET cuda_kernels ${k} f)
            get_filename_component(name ${f} NAME_WE)
            file(STRINGS ${f} uses REGEX "^#include \"")
            set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${f})
            list(APPEND unit_uses ${uses})
            string(APPEND unit_code "namespace of_${name} {\n#include \"${f}\"\n}\n")
        endforeach()
        list(REMOVE_DUPLICATES unit_uses)
        list(JOIN unit_uses "\n" unit_uses)
        set(unit ${CMAKE_BINARY_DIR}/cuda/unit_${u}.cu)
        file(CONFIGURE OUTPUT ${unit} CONTENT "${unit_uses}\n${unit_code}" @ONLY)
        list(APPEND cuda_units ${unit})
    endforeach()
    set(cuda_fatbins "")
    set(fatbin_code "#include \"gpu.h\"\n")
    set(fatbin_list "")
    foreach(f ${cuda_units})
        get_filename_component(name ${f} NAME_WE)
        set(made ${CMAKE_BINARY_DIR}/cuda/${name}.fatbin)
        add_custom_command(OUTPUT ${made}
            COMMAND ${WEFT_NVCC} -fatbin ${cuda_arch} -std=c++17 -O3 -Werror all-warnings -Xptxas -warn-spills
                -I${cuda_dir} -I${CMAKE_SOURCE_DIR}/include -MD -MF ${made}.d -o ${made} ${f}
            DEPFILE ${made}.d DEPENDS ${f} VERBATIM)
        list(APPEND cuda_fatbins ${made})
        string(APPEND fatbin_code "__asm__(\".section .rodata\\n.balign 64\\nfatbin_${name}:\\n"
            ".incbin \\\"${made}\\\"\\n.previous\\n\");\n"
            "extern const char fatbin_${name}[] __attribute__((visibility(\"hidden\")));\n")
        string(APPEND fatbin_list "fatbin_${name}, ")
    endforeach()
    add_custom_target(cuda_fatbins ALL DEPENDS ${cuda_fatbins})
    string(APPEND fatbin_code "const void *const weft_cuda_fatbin[] = {${fatbin_list}};\n"
        "const int weft_cuda_n_fatbin = (int)WEFT_COUNT(weft_cuda_fatbin);\n")
    # Tables of pinned algorithms, as text.
    file(GLOB pinned_tables CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/data/cuda/*.tsv)
    set(pinned_names "")
    set(pinned_texts "")
    set(n_pinned 0)
    foreach(f ${pinned_tables})
        get_filename_component(name ${f} NAME_WLE)
        string(APPEND fatbin_code "__asm__(\".section .rodata\\npinned_${n_pinned}:\\n"
            ".incbin \\\"${f}\\\"\\n.byte 0\\n.previous\\n\");\n"
            "extern const char pinned_${n_pinned}[] __attribute__((visibility(\"hidden\")));\n")
        string(APPEND pinned_names "\"${name}\", ")
        string(APPEND pinned_texts "pinned_${n_pinned}, ")
        math(EXPR n_pinned "${n_pinned} + 1")
    endforeach()
    string(APPEND fatbin_code "const char *const weft_cuda_pinned_name[] = {${pinned_names}\"\"};\n"
        "const char *const weft_cuda_pinned_text[] = {${pinned_texts}\"\"};\n"
        "const int weft_cuda_n_pinned = ${n_pinned};\n")
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/cuda/fatbins.c CONTENT "${fatbin_code}" @ONLY)
    set_source_files_properties(${CMAKE_BINARY_DIR}/cuda/fatbins.c PROPERTIES OBJECT_DEPENDS "${cuda_fatbins};${pinned_tables}")

    # It links nothing of ours and nothing of NVIDIA's: a function that host.def lacks is an error here.
    file(GLOB cuda_host CONFIGURE_DEPENDS ${cuda_dir}/*.c)
    add_library(weft_cuda MODULE ${cuda_host} ${cuda_ops} ${cuda_kernels_id} ${CMAKE_BINARY_DIR}/cuda/fatbins.c)
    target_include_directories(weft_cuda PRIVATE ${cuda_dir})
    target_compile_definitions(weft_cuda PRIVATE WEFT_CUDA_BUILD_VERSION=${cuda_version})
    target_compile_options(weft_cuda PRIVATE -fvisibility=hidden)
    target_link_options(weft_cuda PRIVATE -Wl,-z,defs)
    target_link_libraries(weft_cuda PRIVATE Threads::Threads m ${CMAKE_DL_LIBS})
    install(TARGETS weft_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
else()
    message(STATUS "nvcc is not in PATH: libweft_cuda.so is left out")
endif()
