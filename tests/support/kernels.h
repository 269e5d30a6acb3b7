/* Kernels for tests: one call by itself, and devices that run a test's own kernels. */
#ifndef WEFT_TEST_KERNELS_H
#define WEFT_TEST_KERNELS_H

#include "device/device.h"
#include "kernel/kernel.h"

/* A call that is prepared, with its scratch.  Scalars may be changed between runs. */
typedef struct test_kernel {
    const weft_kernel *kernel;
    weft_kernel_call   call;
    weft_kernel_ctx    ctx;
    weft_step_scalars  scalars;
    weft_arena        *arena;
    size_t             scratch_bytes;
} test_kernel;

/* The views of c must outlive k, and k stays where it is: prepared calls may hold its address.
 * kernel NULL: the CPU's. */
void        test_kernel_open(test_kernel *k, const weft_kernel *kernel,
                             const weft_kernel_call *c, weft_pool *pool);
weft_status test_kernel_run(
    test_kernel *k); /* fails the test if it writes past its scratch */
void test_kernel_close(test_kernel *k);
/* The CPU's kernel, once. */
weft_status test_kernel_once(const weft_kernel_call *c, weft_pool *pool,
                             const weft_step_scalars *s);

/* The CPU under another name with a kernel of its own for every operator: base's function chosen
 * by choose (NULL: none).  Once for each name. */
weft_device *test_device_with(const char *name, weft_kernel (*choose)(weft_op op));

#endif
