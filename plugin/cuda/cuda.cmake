# plugin/cuda: own kernels for the CPU (tests), and libweft_cuda.so where nvcc is.
set(cuda_dir ${CMAKE_SOURCE_DIR}/plugin/cuda)
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${cuda_dir}/kernels/*.cu)
file(GLOB cuda_ops CONFIGURE_DEPENDS ${cuda_dir}/ops/*.c)

# ---- kernels on the CPU: the same .cu files as C++, and the host code that starts them ----------

include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT WEFT_FUZZ)
    enable_language(CXX)
    set(CMAKE_CXX_STANDARD 17)
    file(GLOB emu_src CONFIGURE_DEPENDS ${cuda_dir}/emu/*.cpp)
    add_library(weft_cuda_emu STATIC EXCLUDE_FROM_ALL ${cuda_ops} ${cuda_dir}/table.c ${emu_src} ${cuda_kernels})
    set_source_files_properties(${cuda_kernels} PROPERTIES LANGUAGE CXX
        COMPILE_OPTIONS "-xc++;-O2;-ffp-contract=off;-Wno-conversion;-Wno-sign-conversion")
    target_include_directories(weft_cuda_emu PUBLIC ${cuda_dir})
endif()

# ---- the plugin ---------------------------------------------------------------------------------

find_program(WEFT_NVCC nvcc HINTS /usr/local/cuda/bin)
if(WEFT_NVCC AND NOT WEFT_SANITIZE AND NOT WEFT_FUZZ)
    set(cuda_arch -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a
        -gencode=arch=compute_80,code=compute_80)
    set(cuda_fatbins "")
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
    foreach(f ${cuda_kernels})
        get_filename_component(name ${f} NAME_WE)
        set(made ${CMAKE_BINARY_DIR}/cuda/${name}.fatbin)
        add_custom_command(OUTPUT ${made}
            COMMAND ${WEFT_NVCC} -fatbin ${cuda_arch} -std=c++17 -O3 -Werror all-warnings -Xptxas -warn-spills
                -I${cuda_dir} -I${CMAKE_SOURCE_DIR}/include -MD -MF ${made}.d -o ${made} ${f}
            DEPFILE ${made}.d DEPENDS ${f} VERBATIM)
        list(APPEND cuda_fatbins ${made})
    endforeach()
    add_custom_target(cuda_fatbins ALL DEPENDS ${cuda_fatbins})
endif()
