/* Kernels for tests: one call by itself, and devices that run a test's own kernels. */
#ifndef WEFT_TEST_KERNELS_H
#define WEFT_TEST_KERNELS_H

#include "device/device.h"
#include "kernel/kernel.h"

/* The CPU's kernel, once, in the guard device's memory: c's views are host memory, which has the
 * results afterwards.  s NULL: all 0.  Fails the test if the kernel writes outside. */
weft_status test_kernel_once(const weft_kernel_call *c, weft_pool *pool,
                             const weft_step_scalars *s);

/* The CPU under another name with a kernel of its own for every operator: base's function chosen
 * by choose (NULL: none).  Once for each name. */
weft_device *test_device_with(const char *name, weft_kernel (*choose)(weft_op op));

#endif
