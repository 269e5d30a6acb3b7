# Each tests/**/test_<name>.c is one program test_<name> (test_<folder>_<name> where two folders
# have a file of one name).  It runs in the root of the source tree.  From tests/support/*.c each
# takes what it uses; tests under tests/cli also see the command's files.
file(GLOB_RECURSE test_src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/test_*.c)
file(GLOB support_src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.c)

# Sanitizers own malloc, so counting allocations goes through their hooks there; and resident memory
# and times mean little, which a test can ask for (#if not needed: WEFT_TEST_SANITIZED is 0 or 1).
set(sanitized 0)
if(WEFT_SANITIZE)
    set(sanitized 1)
    list(FILTER support_src EXCLUDE REGEX "/count_alloc_glibc\\.c$")
else()
    list(FILTER support_src EXCLUDE REGEX "/count_alloc_san\\.c$")
endif()

if(NOT WEFT_UCX_INCLUDE)
    list(FILTER test_src EXCLUDE REGEX "/comm/test_ucx\\.c$")
endif()

if(NOT WEFT_CURL_INCLUDE)
    list(FILTER test_src EXCLUDE REGEX "/register/test_etcd\\.c$")
endif()

# Kernels of the plugin on the CPU (weft_cuda_emu) need a C++ compiler.
if(NOT TARGET weft_cuda_emu)
    list(FILTER test_src EXCLUDE REGEX "/cuda/test_")
endif()

# Tests of the plugin run on a driver of ours (tests/cuda/stub); without nvcc there is no plugin.
if(NOT TARGET weft_cuda)
    list(FILTER test_src EXCLUDE REGEX "/cuda/test_cuda_")
    message(STATUS "tests/cuda/test_cuda_*: left out, as there is no plugin")
endif()

set(all_names "")
foreach(f ${test_src})
    get_filename_component(name ${f} NAME_WE)
    if(name IN_LIST all_names)
        list(APPEND twice ${name})
    endif()
    list(APPEND all_names ${name})
endforeach()

if(support_src)
    add_library(weft_test STATIC ${support_src})
    target_include_directories(weft_test PRIVATE tests)
    target_compile_definitions(weft_test PRIVATE WEFT_TEST_SANITIZED=${sanitized})
    target_link_libraries(weft_test weft_static PkgConfig::CMOCKA)
endif()

# What takes time is in the library.  Sanitized, half of a test's compile time is optimization.
set(test_level 1)
if(WEFT_SANITIZE)
    set(test_level 0)
endif()
foreach(f ${test_src})
    get_filename_component(name ${f} NAME_WE)
    get_filename_component(dir ${f} DIRECTORY)
    get_filename_component(folder ${dir} NAME)
    if(name IN_LIST twice)
        string(REGEX REPLACE "^test_" "test_${folder}_" name ${name})
    endif()
    add_executable(${name} ${f})
    target_include_directories(${name} PRIVATE tests ${dir})
    target_compile_options(${name} PRIVATE -O${test_level})
    if(support_src)
        target_link_libraries(${name} weft_test)
    endif()
    if(TARGET checked_kernels AND folder MATCHES "^(kernel|exec|device)$")
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:checked_kernels>)
    endif()
    if(folder STREQUAL "cli")
        target_sources(${name} PRIVATE ${cli_obj})
    endif()
    if(folder STREQUAL "cuda" AND NOT name MATCHES "^test_cuda_")
        target_link_libraries(${name} weft_cuda_emu)
    endif()
    target_link_libraries(${name} weft_static PkgConfig::CMOCKA)
    if(WEFT_LLD AND NOT WEFT_SANITIZE) # sanitized trees link all programs with it
        target_link_options(${name} PRIVATE -fuse-ld=lld)
    endif()
    target_compile_definitions(${name} PRIVATE
        WEFT_TEST_COMMAND="${CMAKE_BINARY_DIR}/weft"
        WEFT_TEST_SANITIZED=${sanitized})
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600)
    if(TARGET weft)
        add_dependencies(${name} weft)
    endif()
endforeach()

# tests/**/bench_<name>.c: a program that times something; built, never run by ctest.
file(GLOB_RECURSE bench_src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/bench_*.c)
foreach(f ${bench_src})
    get_filename_component(name ${f} NAME_WE)
    add_executable(${name} ${f})
    target_include_directories(${name} PRIVATE tests)
    target_link_libraries(${name} weft_test weft_static)
endforeach()

# Programs of bench/ that need nothing but the library: built with everything else, so that they follow it.
if(NOT WEFT_SANITIZE)
    set(bench_plan_speed_src bench/plan/speed.c)
    set(bench_unfolded_src bench/plan/unfolded.c)
    set(bench_replan_src bench/plan/replan.c)
    set(bench_rediscover_src bench/plan/rediscover.c bench/plan/tables.c)
    set(bench_predict_speed_src bench/predict/speed.c)
    set(bench_comm_tcp_src bench/micro/comm_tcp.c)
    foreach(name bench_plan_speed bench_unfolded bench_replan bench_rediscover bench_predict_speed bench_comm_tcp)
        add_executable(${name} ${${name}_src})
        target_include_directories(${name} PRIVATE bench/plan)
        target_link_libraries(${name} weft_static)
    endforeach()
endif()

# tests/eco/eco_<name>.py: the command against other tools' readers and writers.  77: a Python package is
# not there.
set(sanitized 0)
if(WEFT_SANITIZE)
    set(sanitized 1)
endif()
file(GLOB eco_src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/eco/eco_*.py)
foreach(f ${eco_src})
    get_filename_component(name ${f} NAME_WE)
    string(REGEX REPLACE "^eco_" "" short ${name})
    add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/eco/run.sh ${short}
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT
        "WEFT=${CMAKE_BINARY_DIR}/weft;WEFT_TEST_SANITIZED=${sanitized}")
endforeach()
set_tests_properties(eco_many PROPERTIES TIMEOUT 1800) # make long: 2,000 views

# Two minutes of tools/campaign.py: one of faults on one host, one of those of several.
add_test(NAME eco_campaign_hosts COMMAND ${CMAKE_SOURCE_DIR}/tests/eco/run.sh campaign
         WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(eco_campaign_hosts PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT
    "WEFT=${CMAKE_BINARY_DIR}/weft;WEFT_TEST_SANITIZED=${sanitized};WEFT_CAMPAIGN_BLOCK=hosts")

# Of the recorded jobs every third once more, where host code that touches device memory dies
# (src/runtime/device/guard.c): it takes seven times as long there.
set(guard_jobs 3)
if(WEFT_SANITIZE)
    set(guard_jobs 8)
endif()
add_test(NAME eco_recorded_guard COMMAND ${CMAKE_SOURCE_DIR}/tests/eco/run.sh recorded
         WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(eco_recorded_guard PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT
    "WEFT=${CMAKE_BINARY_DIR}/weft;WEFT_TEST_SANITIZED=${sanitized};WEFT_DEVICE=guard;WEFT_TEST_JOBS=${guard_jobs}")

# tools/random_plans.py: random plans, run by processes; make random-plans draws a thousand.
set(lots 30)
if(WEFT_SANITIZE)
    set(lots 5)
endif()
add_test(NAME random_plans COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/random_plans.py
         --weft ${CMAKE_BINARY_DIR}/weft --plans ${lots} --seed 3 --jobs 2)
set_tests_properties(random_plans PROPERTIES TIMEOUT 600)

# tests/hosts/<name>.sh WEFT: jobs on several hosts, or what looks like them.  77: this machine does not let us.
file(GLOB host_src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/hosts/*.sh)
foreach(f ${host_src})
    get_filename_component(name ${f} NAME_WE)
    add_test(NAME hosts_${name} COMMAND ${f} ${CMAKE_BINARY_DIR}/weft
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(hosts_${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
endforeach()
add_test(NAME hosts_survive_standby COMMAND ${CMAKE_SOURCE_DIR}/tests/hosts/survive.sh ${CMAKE_BINARY_DIR}/weft
         "pp=2 copies=2" WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(hosts_survive_standby PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)

# ctest runs with four slots a core and three more (Makefile, tools/test.sh).  A test takes four of them: as many run at
# once as there are cores.  One that mostly waits takes one, one that waits half of its time takes two, one that waits for
# a third of it (a chain of short processes) three: they run beside those.  Of those that compare sleeping with the clock
# no two run side by side.
#
# Tests that take four begin before those that wait, which fill the slots that are left; the longest of each first.
set(on_time test_sim test_emu test_idle test_overlap hosts_wire)
set(half test_mover eco_views eco_ahead eco_elastic eco_hosts eco_learn eco_hosts_seen eco_slots eco_many eco_nccl eco_failpoints eco_fail_call test_cuda_fail test_overlap test_comm_rows test_shm
    hosts_survive hosts_survive_standby hosts_nccl)
set(third test_golden test_plans eco_cuda eco_experts eco_kill eco_nccl eco_print_plan eco_recorded eco_recorded_guard
    eco_resume random_plans test_ckpt_crash)
set(waiting test_slow_save test_net test_call hosts_netns test_hosts test_gather eco_files test_rdzv test_run
    test_net_check eco_detect eco_restart eco_status eco_events test_launch test_io test_io_replace hosts_slurm hosts_slurm_agents
    hosts_register eco_rdzv eco_slow_link test_etcd eco_cuda_hosts eco_cuda_views eco_cuda_mixed eco_cuda_scale test_session)
if(WEFT_SANITIZE) # its times are not compared there
    list(REMOVE_ITEM on_time test_overlap)
    list(REMOVE_ITEM half test_overlap)
    list(PREPEND waiting test_overlap)
endif()
list(PREPEND waiting test_comm test_emu)
set(minutes eco_campaign eco_campaign_hosts)
list(APPEND waiting test_idle eco_ranks hosts_wire test_sim)
set(longest_first eco_scale eco_same test_cuda_ops test_cuda_comm test_cuda_matrix test_rows_step test_cuda_families test_golden test_split test_plans eco_cuda test_cli_plan
    test_planner_rows test_decide test_workspace eco_transformers eco_resume test_generation test_kernel
    test_library_rows test_planner_reduction test_context eco_recorded_guard test_rank_memory eco_print_plan test_cuda_ops
    test_shard_gradients test_plan_for test_print test_ckpt_crash test_rows_bound test_pipeline random_plans
    test_overlap_bits test_search test_report test_trains test_reference test_planner_networks
    test_rows_whole test_data_parallel test_compile_once eco_replay eco_updates eco_offload)
get_property(all_tests DIRECTORY PROPERTY TESTS)
foreach(name ${all_tests})
    set_tests_properties(${name} PROPERTIES PROCESSORS 4 COST 40)
endforeach()
set(cost 100)
foreach(name ${longest_first})
    if(name IN_LIST all_tests)
        set_tests_properties(${name} PROPERTIES COST ${cost})
    endif()
    math(EXPR cost "${cost} - 1")
endforeach()
foreach(name ${third})
    if(name IN_LIST all_tests)
        set_tests_properties(${name} PROPERTIES PROCESSORS 3)
    endif()
endforeach()
foreach(name ${half})
    if(name IN_LIST all_tests)
        set_tests_properties(${name} PROPERTIES PROCESSORS 2 COST 200)
    endif()
endforeach()
set(cost 39)
foreach(name ${waiting})
    if(name IN_LIST all_tests)
        set_tests_properties(${name} PROPERTIES PROCESSORS 1 COST ${cost})
    endif()
    math(EXPR cost "${cost} - 1")
endforeach()
foreach(name ${minutes}) # they wait, and take longest
    set_tests_properties(${name} PROPERTIES PROCESSORS 1 COST 300)
endforeach()
foreach(name ${on_time})
    if(name IN_LIST all_tests)
        set_tests_properties(${name} PROPERTIES RESOURCE_LOCK clock)
    endif()
endforeach()
# Two clusters of it count their jobs alike, and so choose the same port.
set_tests_properties(hosts_slurm hosts_slurm_agents PROPERTIES RESOURCE_LOCK slurm)
# What another process of the machine can make fail by taking the cores for a while: tools/test.sh runs it once more.
foreach(name ${on_time} ${waiting} ${half} ${minutes} eco_trace test_measure test_compile test_agree test_signals eco_hosts eco_slots eco_many eco_updates eco_scale eco_rdzv
             eco_restart eco_ahead eco_replay eco_control hosts_survive hosts_survive_standby hosts_register)
    if(name IN_LIST all_tests)
        set_tests_properties(${name} PROPERTIES LABELS clock)
    endif()
endforeach()

# Sanitized, these are left to make asan (label long, which tools/test.sh leaves out): whole jobs, by code that other
# sanitized tests run.  Plans and their text: test_cli_plan, test_golden, test_print.  Jobs under plans: test_plans, test_split,
# eco_recorded.  The guard device: test_guard, test_kernel.  Kills during a save: test_ckpt_crash, eco_checkpoint.  Lost ranks
# and hosts, views, registers: eco_views, eco_scale, eco_hosts, eco_rdzv, eco_restart.  Fast estimates against
# programs and searches against each other: test_search, test_replan, test_print, test_cli_plan, test_report, test_golden.
# Resuming under other plans: test_generation, eco_checkpoint.
if(WEFT_SANITIZE)
    foreach(name eco_print_plan eco_hosts_seen random_plans eco_same eco_experts eco_recorded_guard eco_kill eco_campaign eco_campaign_hosts eco_replay eco_ahead eco_elastic
                 hosts_slurm hosts_slurm_agents hosts_register hosts_survive hosts_survive_standby
                 eco_resume test_decide test_workspace test_planner_reduction test_planner_rows test_rows_whole test_rows_step test_rows_bound test_sim_exchange)
        if(TEST ${name})
            set_tests_properties(${name} PROPERTIES LABELS long)
        endif()
    endforeach()
endif()

# Small files by the thousand, written and removed again: in memory, as a disk's file system takes most of the time for
# finding free inodes.
if(EXISTS /dev/shm)
    set_property(TEST test_ckpt_powercut test_ckpt_crash APPEND PROPERTY ENVIRONMENT TMPDIR=/dev/shm)
endif()

# tests/probe/stub: NVIDIA's libraries without a device, with stated times, for test_gpu.  In folders of their own, under the
# names that are asked for; the old ones lack a symbol.
foreach(stub cuda cuda_old blas blas_old nccl nvml)
    string(REPLACE "_old" "" source ${stub})
    add_library(stub_${stub} SHARED tests/probe/stub/${source}.c)
    target_include_directories(stub_${stub} PRIVATE tests/probe)
    set_target_properties(stub_${stub} PROPERTIES OUTPUT_NAME cuda SOVERSION 1
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/stub_${stub})
    if(stub MATCHES blas)
        set_target_properties(stub_${stub} PROPERTIES OUTPUT_NAME cublasLt SOVERSION 13)
        target_link_libraries(stub_${stub} stub_cuda)
    endif()
    if(stub STREQUAL nccl)
        set_target_properties(stub_${stub} PROPERTIES OUTPUT_NAME nccl SOVERSION 2)
        target_link_libraries(stub_${stub} stub_cuda)
    endif()
    if(stub STREQUAL nvml)
        set_target_properties(stub_${stub} PROPERTIES OUTPUT_NAME nvidia-ml)
    endif()
    if(stub MATCHES old)
        target_compile_definitions(stub_${stub} PRIVATE STUB_OLD)
    endif()
    add_dependencies(test_gpu stub_${stub})
endforeach()

# tests/cuda/stub/blas.c, dnn.c: a cublasLt and a cuDNN that compute on the CPU; nccl.c: an NCCL between processes.
if(TARGET weft_cuda_emu)
    foreach(stub blas dnn nccl)
        add_library(cuda_stub_${stub} SHARED tests/cuda/stub/${stub}.c)
        target_include_directories(cuda_stub_${stub} PRIVATE ${cuda_dir} tests/cuda)
        target_link_libraries(cuda_stub_${stub} m ${CMAKE_DL_LIBS})
        set_target_properties(cuda_stub_${stub} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/cuda_stub)
    endforeach()
    set_target_properties(cuda_stub_blas PROPERTIES OUTPUT_NAME cublasLt SOVERSION 13)
    set_target_properties(cuda_stub_dnn PROPERTIES OUTPUT_NAME cudnn SOVERSION 9)
    set_target_properties(cuda_stub_nccl PROPERTIES OUTPUT_NAME nccl SOVERSION 2)
    target_compile_options(cuda_stub_nccl PRIVATE -fvisibility=hidden)
    foreach(name ${all_tests})
        if(name MATCHES "^test_(cuda_.*|product|fp8_matmul|sdpa|library|library_rows)$")
            target_compile_definitions(${name} PRIVATE WEFT_TEST_CUDA_STUB="${CMAKE_BINARY_DIR}/cuda_stub")
            set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "WEFT_CUDA_LIBS=${CMAKE_BINARY_DIR}/cuda_stub")
            add_dependencies(${name} cuda_stub_blas cuda_stub_dnn cuda_stub_nccl)
        endif()
    endforeach()
endif()

# tests/cuda/stub/driver*.cpp: libcuda.so.1 without a GPU, which computes.
if(TARGET weft_cuda)
    add_library(stub_gpu SHARED tests/cuda/stub/driver.cpp tests/cuda/stub/driver_memory.cpp
        tests/cuda/stub/driver_stream.cpp $<TARGET_OBJECTS:cuda_emu_kernels>)
    target_include_directories(stub_gpu PRIVATE ${cuda_dir} tests/cuda)
    target_compile_options(stub_gpu PRIVATE -fvisibility=hidden)
    set_target_properties(stub_gpu PROPERTIES OUTPUT_NAME cuda SOVERSION 1
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/stub_gpu)
    add_library(stub_gpu_nvml SHARED tests/cuda/stub/nvml.c)
    set_target_properties(stub_gpu_nvml PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/stub_gpu)
    add_dependencies(stub_gpu stub_gpu_nvml)
    foreach(name ${all_tests})
        if(name MATCHES "^test_cuda_")
            target_compile_definitions(${name} PRIVATE WEFT_TEST_PLUGINS="${CMAKE_BINARY_DIR}"
                WEFT_TEST_STUB_GPU="${CMAKE_BINARY_DIR}/stub_gpu")
            add_dependencies(${name} stub_gpu weft_cuda)
        endif()
    endforeach()
endif()

# tests/plugin/stub/other.c: plugins that are not of this build, for test_plugin.
foreach(kind build abi symbol bytes)
    add_library(other_${kind} MODULE tests/plugin/stub/other.c)
    target_include_directories(other_${kind} PRIVATE ${CMAKE_SOURCE_DIR}/include
        $<TARGET_PROPERTY:weft_static,INTERFACE_INCLUDE_DIRECTORIES>)
    set_target_properties(other_${kind} PROPERTIES OUTPUT_NAME weft_cuda
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/other_build/${kind})
    add_dependencies(test_plugin other_${kind})
endforeach()
target_compile_definitions(other_abi PRIVATE STUB_ABI)
target_compile_definitions(other_bytes PRIVATE STUB_BYTES)
target_compile_definitions(other_symbol PRIVATE STUB_NO_SYMBOL)
target_compile_definitions(test_plugin PRIVATE WEFT_TEST_OTHER_BUILD="${CMAKE_BINARY_DIR}/other_build")

# tests/cuda/stub/loader.c: a driver that pretends to load kernels, for test_sdpa_plan.
if(TARGET test_sdpa_plan)
    add_library(cuda_stub_loader SHARED tests/cuda/stub/loader.c)
    set_target_properties(cuda_stub_loader PROPERTIES OUTPUT_NAME cuda SOVERSION 1
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/cuda_loader)
    target_compile_definitions(test_sdpa_plan PRIVATE
        WEFT_TEST_LOADER="${CMAKE_BINARY_DIR}/cuda_loader/libcuda.so.1")
    add_dependencies(test_sdpa_plan cuda_stub_loader)
endif()

# tests/fault/slow_sync.c: a slow device, preloaded by test_slow_save.
add_library(slow_sync MODULE tests/fault/slow_sync.c)
target_compile_definitions(test_slow_save PRIVATE WEFT_TEST_SLOW_SYNC="$<TARGET_FILE:slow_sync>")
add_dependencies(test_slow_save slow_sync)

# tests/fault/hang_kernel.c: an instruction that does not end, preloaded by tests/eco/eco_detect.py.
add_library(hang_kernel MODULE tests/fault/hang_kernel.c)
add_dependencies(weft_test hang_kernel)

# tests/fault/fail_call.c: a call that prepares for another view and fails, preloaded by tests/eco/eco_fail_call.py.
add_library(fail_call MODULE tests/fault/fail_call.c)
add_dependencies(weft_test fail_call)

# tests/session/test_again.c brings wrong numbers to the commit point.
target_link_options(test_again PRIVATE
    -Wl,--wrap=weft_session__commit -Wl,--wrap=weft_runner_get_reads)

# tests/flow/test_compile_once.c counts calls of these; tests/fault/count_opens.c is preloaded.
target_link_options(test_compile_once PRIVATE
    -Wl,--wrap=weft_model_source_open -Wl,--wrap=weft_model_load -Wl,--wrap=weft_model_build
    -Wl,--wrap=weft_graph_make_training)
add_library(count_opens MODULE tests/fault/count_opens.c)
target_compile_definitions(test_compile_once PRIVATE
    WEFT_TEST_COUNT_OPENS="$<TARGET_FILE:count_opens>")
add_dependencies(test_compile_once count_opens)
