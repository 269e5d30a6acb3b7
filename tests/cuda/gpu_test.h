/* Tests of the plugin: on a driver of ours that computes (tests/cuda/stub), or with WEFT_TEST_GPU=1
 * on the own driver and GPU of the machine (tools/gpu_run.sh). */
#ifndef TEST_CUDA_GPU_TEST_H
#define TEST_CUDA_GPU_TEST_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool test_gpu_is_real(void)
{
    const char *x = getenv("WEFT_TEST_GPU");
    return x && !strcmp(x, "1");
}

/* Once, before the plugin is opened: it asks for libcuda.so.1 and gets what is loaded under that
 * name. */
static inline bool test_gpu_start(void)
{
    setenv("WEFT_PLUGINS", WEFT_TEST_PLUGINS, 0);
    if (test_gpu_is_real()) return true;
    setenv("WEFT_CUDA_LIBS", "none", 1);
    if (dlopen(WEFT_TEST_STUB_GPU "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) return true;
    fprintf(stderr, "%s\n", dlerror());
    return false;
}

#endif
