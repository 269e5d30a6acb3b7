#include "support/kernels.h"

#include <stdlib.h>

#include "support/test.h"

enum {
    GUARD  = 64,
    FILLER = 0xff
};

void test_kernel_open(test_kernel *k, const weft_kernel *kernel,
                      const weft_kernel_call *c, weft_pool *pool)
{
    int n_thread = pool ? weft_pool_threads(pool) : 1;
    *k           = (test_kernel){.kernel = kernel, .call = *c, .ctx = {.pool = pool}};
    if (!kernel) assert_ok(weft_kernel_find("cpu", c, &k->kernel));
    k->scratch_bytes = weft_kernel_scratch(k->kernel, c, n_thread);
    size_t n         = (k->scratch_bytes + GUARD + 63) / 64 * 64;
    k->ctx.scratch   = aligned_alloc(64, n);
    k->ctx.scalars   = &k->scalars;
    assert_non_null(k->ctx.scratch);
    memset(k->ctx.scratch, FILLER, n);
    assert_ok(weft_arena_create(&k->arena));
    assert_ok(weft_kernel_prepare(k->kernel, &k->ctx, k->arena, &k->call));
}

weft_status test_kernel_run(test_kernel *k)
{
    weft_status          st    = k->kernel->run(&k->call, &k->ctx);
    const unsigned char *guard = (unsigned char *)k->ctx.scratch + k->scratch_bytes;
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != FILLER)
            fail_msg("%s: wrote %d behind its scratch", weft_op_get(k->call.op)->name, i);
    return st;
}

void test_kernel_close(test_kernel *k)
{
    weft_kernel_release(k->kernel, &k->call);
    weft_arena_destroy(k->arena);
    free(k->ctx.scratch);
}

weft_status test_kernel_once(const weft_kernel_call *c, weft_pool *pool,
                             const weft_step_scalars *s)
{
    test_kernel k;
    test_kernel_open(&k, NULL, c, pool);
    if (s) k.scalars = *s;
    weft_status st = test_kernel_run(&k);
    test_kernel_close(&k);
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
