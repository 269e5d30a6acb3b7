/* One kernel call in a device's memory.
 *
 *     device_call c;
 *     WEFT_TRY(device_call_open(&c, device, NULL, &call, pool));   views of call: host memory
 *     WEFT_TRY(device_call_run(&c, &scalars));                     as often as needed
 *     device_call_close(&c);
 *
 * The call's operands, results, scratch and step scalars are placed in one block of space DEVICE.
 * Views that overlap in host memory overlap there in the same way, and addresses are aligned to 64
 * bytes where the host's are.  A run writes the host's bytes to the block, launches the kernel as
 * a task on a stream, and reads all bytes back: what the kernel did to them is seen in host memory.
 * Every byte of the block that belongs to no view and no scratch is checked. */
#ifndef WEFT_TESTS_DEVICE_CALL_H
#define WEFT_TESTS_DEVICE_CALL_H

#include "device/device.h"
#include "kernel/kernel.h"

/* Host bytes that some views cover, and where they are in the block. */
typedef struct device_range {
    char   *host;
    int64_t bytes;
    int64_t offset;
} device_range;

typedef struct device_call {
    weft_device       *device;
    const weft_kernel *kernel;
    weft_kernel_call   call; /* on the block */
    weft_kernel_ctx    ctx;
    weft_arena        *arena;
    weft_memory        block;
    char              *image; /* of the block, in host memory */
    int                n_range;
    device_range      *range;
    int64_t            scalars_at, scratch_at, scratch_bytes;
    weft_stream        stream;
    weft_task          task;
    weft_code          code;
} device_call;

/* c stays where it is until it is closed.  kernel NULL: the one that weft_kernel_find gives for
 * device->kernels.  Borrows call, its views' memory and pool (NULL: none).  After a failure c needs
 * no closing. */
weft_status device_call_open(device_call *c, weft_device *device,
                             const weft_kernel *kernel, const weft_kernel_call *call,
                             weft_pool *pool);
/* WEFT_ERR_INTERNAL: the kernel wrote outside of operands, results and scratch. */
weft_status device_call_run(device_call *c, const weft_step_scalars *scalars);
/* The kernel alone, on what the block holds since the last run: for timing. */
weft_status device_call_launch(device_call *c);
void        device_call_close(device_call *c);

#endif
