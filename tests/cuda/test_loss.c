/* plugin/cuda/ops/loss.c: rows of which a part is read twice, since registers
 * and shared memory do not hold them, with their gradient in place, and
 * labels that are no column. */
#include <math.h>
#include <stdio.h>

#include "cuda_priv.h"
#include "support/device_call.h"
#include "support/kernels.h"
#include "support/test.h"

enum {
    ROWS    = 3,
    COLUMNS = 130001, /* above 80,896; odd: rows begin anywhere in 16 bytes */
    IGNORED = -100
};

/* Two sets of operands and results: for the CPU's kernel, and for the plugin's. */
typedef struct loss_call {
    uint16_t         logits[ROWS][COLUMNS];
    int32_t          labels[ROWS];
    float            dloss[ROWS], loss[ROWS], lse[ROWS];
    weft_view        in[3], out[3];
    weft_attr        attr[WEFT_MAX_ATTR];
    weft_kernel_post post;
    weft_kernel_call call;
} loss_call;

static loss_call on_cpu, on_cuda;

static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)(u >> 16);
}

static double from_bf16(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float    f;
    memcpy(&f, &u, sizeof f);
    return (double)f;
}

/* Logits of [-4, 4); labels at both ends, one ignored. */
static void make(loss_call *c, bool gradient)
{
    weft_shape all = weft_shape_make(2, (int64_t[]){ROWS, COLUMNS});
    weft_shape one = weft_shape_make(1, (int64_t[]){ROWS});
    memset(c, 0, sizeof *c);
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < COLUMNS; i++)
            c->logits[r][i] = to_bf16((float)((i * 31 + r * 17) % 4093) / 512.0f - 4.0f);
        c->labels[r] = r == 0 ? COLUMNS - 1 : r == 1 ? IGNORED : 0;
        c->dloss[r]  = 0.25f * (float)(r + 1);
    }
    c->in[0]  = weft_view_make(c->logits, WEFT_DTYPE_BF16, &all);
    c->in[1]  = weft_view_make(c->labels, WEFT_DTYPE_I32, &one);
    c->in[2]  = weft_view_make(c->dloss, WEFT_DTYPE_F32, &one);
    c->out[0] = weft_view_make(c->loss, WEFT_DTYPE_F32, &one);
    c->out[1] = weft_view_make(c->lse, WEFT_DTYPE_F32, &one);
    c->out[2] = c->in[0]; /* the gradient where the logits were */
    weft_op_attr_defaults(WEFT_OP_CROSS_ENTROPY, c->attr);
    c->post = (weft_kernel_post){WEFT_OP_CROSS_ENTROPY_GRAD, c->attr, 2, 2};
    c->call = (weft_kernel_call){.op        = WEFT_OP_CROSS_ENTROPY,
                                 .attr      = c->attr,
                                 .n_in      = gradient ? 3 : 2,
                                 .n_own_in  = 2,
                                 .n_out     = gradient ? 3 : 2,
                                 .n_own_out = 2,
                                 .in        = c->in,
                                 .out       = c->out,
                                 .n_post    = gradient,
                                 .post      = &c->post};
}

static void run_on_cuda(const weft_kernel *kernel)
{
    static const weft_step_scalars scalars = {0};
    device_call                    k;
    if (kernel->takes) assert_true(kernel->takes(&on_cuda.call));
    assert_ok(device_call_open(&k, weft_device_guard(), kernel, &on_cuda.call, NULL));
    assert_ok(device_call_run(&k, &scalars));
    device_call_close(&k);
}

static const weft_kernel by_rows = {.op    = WEFT_OP_CROSS_ENTROPY,
                                    .run   = weft_cuda_run_cross_entropy_rows,
                                    .takes = weft_cuda_takes_cross_entropy_rows};
static const weft_kernel plain   = {.op  = WEFT_OP_CROSS_ENTROPY,
                                    .run = weft_cuda_run_cross_entropy};

/* A row of 140 KB is kept in part and read twice in part. */
static void gradient_of_long_rows_in_place(void **state)
{
    (void)state;
    make(&on_cpu, true);
    make(&on_cuda, true);
    assert_ok(test_kernel_once(&on_cpu.call, NULL, NULL));
    run_on_cuda(&by_rows);
    for (int r = 0; r < ROWS; r++) {
        double error = 0, size = 0;
        assert_true(fabsf(on_cuda.lse[r] - on_cpu.lse[r]) < 1e-5f * fabsf(on_cpu.lse[r]));
        assert_true(fabsf(on_cuda.loss[r] - on_cpu.loss[r]) <=
                    1e-5f * fabsf(on_cpu.loss[r]));
        for (int i = 0; i < COLUMNS; i++) {
            double want = from_bf16(on_cpu.logits[r][i]),
                   got  = from_bf16(on_cuda.logits[r][i]);
            if (i == on_cpu.labels[r]) { /* thousands of times the others */
                assert_true(fabs(got - want) <= 1e-2 * fabs(want));
                continue;
            }
            error += (got - want) * (got - want);
            size += want * want;
        }
        if (!(sqrt(error) <= 1e-2 * sqrt(size)))
            fail_msg("row %d: gradient off by %g of %g", r, sqrt(error), sqrt(size));
    }
    assert_true(from_bf16(on_cuda.logits[0][COLUMNS - 1]) < -0.2);
    assert_true(from_bf16(on_cuda.logits[2][0]) < -0.7);
}

/* The host cannot be told by a kernel: the loss of such a row is not a number. */
static void labels_outside_make_nan(void **state)
{
    static const weft_kernel *const kernels[] = {&by_rows, &plain};
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(kernels); k++) {
        make(&on_cuda, false);
        on_cuda.labels[0] = COLUMNS;
        on_cuda.labels[2] = -1;
        run_on_cuda(kernels[k]);
        assert_true(isnan(on_cuda.loss[0]));
        assert_true(on_cuda.loss[1] == 0.0f);
        assert_true(isnan(on_cuda.loss[2]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_of_long_rows_in_place),
        cmocka_unit_test(labels_outside_make_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
