#include "support/kernels.h"

#include <stdlib.h>

#include "support/device_call.h"
#include "support/test.h"

weft_status test_kernel_once(const weft_kernel_call *c, weft_pool *pool,
                             const weft_step_scalars *s)
{
    static const weft_step_scalars none = {0};
    device_call                    call;
    assert_ok(device_call_open(&call, weft_device_guard(), NULL, c, pool));
    weft_status st = device_call_run(&call, s ? s : &none);
    if (st == WEFT_ERR_INTERNAL) fail_msg("%s", weft_error_text());
    device_call_close(&call);
    return st;
}

/* ---- devices ---- */

static const char *name_set(void)
{
    return "test";
}

typedef struct test_device {
    weft_device       device;
    weft_kernel_table table;
    weft_kernel       kernel[WEFT_N_OP];
} test_device;

weft_device *test_device_with(const char *name, weft_kernel (*choose)(weft_op op))
{
    test_device *d = calloc(1, sizeof *d); /* registered: never freed */
    assert_non_null(d);
    d->device      = *weft_device_cpu();
    d->device.name = d->device.kernels = name;
    d->table                           = (weft_kernel_table){
                                  .device  = name,
                                  .storage = weft_kernel_storage_bit(WEFT_DTYPE_F32) |
                                             weft_kernel_storage_bit(WEFT_DTYPE_BF16),
                                  .id     = name_set,
                                  .kernel = d->kernel,
                                  .copy   = weft_kernel_table_at(0)->copy,
                                  .merge  = weft_kernel_table_at(0)->merge,
    };
    for (int op = 0; op < WEFT_N_OP; op++) {
        weft_kernel k = choose((weft_op)op);
        if (!k.run) continue;
        k.op                    = (weft_op)op;
        d->kernel[d->table.n++] = k;
    }
    assert_ok(weft_kernel_register(&d->table));
    return &d->device;
}
