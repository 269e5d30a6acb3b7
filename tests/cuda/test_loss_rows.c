/* plugin/cuda/ops/loss.c: padded rows of logits give what rows without gaps give, and gaps stay
 * as they are. */
#include <math.h>
#include <stdlib.h>

#include "support/test.h"

#include "base/random.h"
#include "cuda_priv.h"
#include "support/device_call.h"
#include "support/fixture.h"

enum {
    BATCH      = 2,
    SEQUENCE   = 3,
    ROWS       = BATCH * SEQUENCE,
    VOCABULARY = 1001,
    FILLER     = 0x7fc1 /* a NaN */
};

typedef struct loss_trial {
    uint16_t        *logits;
    weft_view        in[3], out[3];
    weft_kernel_post post;
    weft_kernel_call call;
} loss_trial;

static const weft_attr *attributes(weft_op op)
{
    weft_attr *a = WEFT_ARENA_ARRAY(arena, weft_attr, WEFT_MAX_ATTR);
    assert_ok(weft_op_parse_attr(op, "", arena, a));
    return a;
}

static void *memory(size_t bytes)
{
    void *p = weft_arena_alloc(arena, bytes + 64);
    assert_non_null(p);
    return (void *)(((uintptr_t)p + 63) / 64 * 64);
}

/* Loss and gradient over the logits, whose rows are `row` elements apart. */
static void make_trial(loss_trial *t, const uint16_t *numbers, int64_t row)
{
    weft_shape z      = weft_shape_make(3, (int64_t[]){BATCH, SEQUENCE, VOCABULARY});
    weft_shape l      = weft_shape_make(2, (int64_t[]){BATCH, SEQUENCE});
    int32_t   *labels = memory(sizeof *labels * ROWS);
    float     *weight = memory(sizeof *weight);
    *weight           = 0.25f;
    memset(t, 0, sizeof *t);
    t->logits = memory(sizeof *t->logits * (size_t)(ROWS * row));
    for (int64_t i = 0; i < ROWS * row; i++) t->logits[i] = FILLER;
    for (int64_t r = 0; r < ROWS; r++) {
        memcpy(t->logits + r * row, numbers + r * VOCABULARY,
               sizeof *numbers * VOCABULARY);
        labels[r] = r == 4 ? -100 : (int32_t)(r * 200);
    }
    t->in[0]           = weft_view_make(t->logits, WEFT_DTYPE_BF16, &z);
    t->in[0].stride[1] = row;
    t->in[0].stride[0] = SEQUENCE * row;
    t->in[1]           = weft_view_make(labels, WEFT_DTYPE_I32, &l);
    t->in[2]           = weft_view_make(weight, WEFT_DTYPE_F32, &l);
    memset(t->in[2].stride, 0, sizeof t->in[2].stride);
    t->out[0] = weft_view_make(memory(sizeof(float) * ROWS), WEFT_DTYPE_F32, &l);
    t->out[1] = weft_view_make(NULL, WEFT_DTYPE_F32, &l);
    t->out[2] = t->in[0];
    t->post   = (weft_kernel_post){.op   = WEFT_OP_CROSS_ENTROPY_GRAD,
                                   .attr = attributes(WEFT_OP_CROSS_ENTROPY_GRAD),
                                   .in   = 2,
                                   .out  = 2};
    t->call   = (weft_kernel_call){.op        = WEFT_OP_CROSS_ENTROPY,
                                   .attr      = attributes(WEFT_OP_CROSS_ENTROPY),
                                   .n_in      = 3,
                                   .n_own_in  = 2,
                                   .n_out     = 3,
                                   .n_own_out = 2,
                                   .in        = t->in,
                                   .out       = t->out,
                                   .n_post    = 1,
                                   .post      = &t->post};
}

static void run_trial(const loss_trial *t)
{
    static const weft_step_scalars scalars = {0};
    const weft_kernel             *kernel;
    device_call                    c;
    assert_ok(weft_kernel_register(&weft_cuda_table));
    assert_ok(weft_kernel_find("cuda", &t->call, &kernel));
    assert_ptr_equal(kernel->run, weft_cuda_run_cross_entropy_rows);
    assert_ok(device_call_open(&c, weft_device_guard(), kernel, &t->call, NULL));
    assert_ok(device_call_run(&c, &scalars));
    device_call_close(&c);
}

static void test_padded_rows(void **state)
{
    (void)state;
    uint16_t  *numbers = memory(sizeof *numbers * ROWS * VOCABULARY);
    loss_trial dense, padded;
    for (int i = 0; i < ROWS * VOCABULARY; i++) {
        union {
            float    f;
            uint32_t u;
        } x        = {8.0f * weft_random_uniform(test_draw()) - 4.0f};
        numbers[i] = (uint16_t)(x.u >> 16);
    }
    make_trial(&dense, numbers, VOCABULARY);
    make_trial(&padded, numbers, 1024);
    run_trial(&dense);
    run_trial(&padded);
    for (int64_t r = 0; r < ROWS;
         r++) { /* units of 16 bytes begin elsewhere: sums differ */
        float a = ((float *)padded.out[0].p)[r], b = ((float *)dense.out[0].p)[r];
        if (!(fabsf(a - b) <= 1e-6f * (1 + fabsf(b))))
            fail_msg("loss %g and %g", (double)a, (double)b);
        for (int64_t i = 0; i < VOCABULARY; i++)
            assert_in_range(
                padded.logits[r * 1024 + i] + 1 - dense.logits[r * VOCABULARY + i], 0, 2);
        for (int64_t i = VOCABULARY; i < 1024; i++)
            assert_int_equal(padded.logits[r * 1024 + i], FILLER);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {with_arena(test_padded_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
