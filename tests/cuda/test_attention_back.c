/* plugin/cuda/ops/attention_back.c on emulated warpgroups: which calls it takes, and what it
 * computes of those, beside the plain kernel. */
#include "support/test.h"

#include <math.h>
#include <string.h>

#include "cuda_priv.h"
#include "attention_room.h"
#include "grouped_data.h"

extern int weft_cuda_emu_blocks; /* emu/launch.cpp */

typedef struct sizes {
    int64_t     b, s, h, t, g, e;
    const char *attr;
} sizes;

typedef struct trial {
    weft_view        in[7], out[3], made[2];
    weft_attr        attr[WEFT_MAX_ATTR];
    weft_kernel_call call;
} trial;

static weft_view make_heads(weft_dtype t, int64_t b, int64_t n, int64_t h, int64_t e)
{
    weft_view v = grouped_view(t, e ? 4 : 3, (int64_t[]){b, n, h, e});
    grouped_draw(&v, b);
    return v;
}

static weft_status run_own(weft_status (*run)(const weft_kernel_call *,
                                              const weft_kernel_ctx *),
                           const weft_kernel_call *c, size_t scratch)
{
    weft_step_scalars scalars = {0};
    weft_kernel_ctx   x       = {.scratch = grouped_room((int64_t)scratch + 1),
                                 .scalars = &scalars};
    memset(x.scratch, 0xff, scratch);
    return run(c, &x);
}

/* Operands of the gradient: o and lse by the plain kernel. */
static void make_trial(const sizes *z, trial *t)
{
    weft_attr forward[WEFT_MAX_ATTR];
    memset(t, 0, sizeof *t);
    t->in[0]  = make_heads(WEFT_DTYPE_BF16, z->b, z->s, z->h, z->e);
    t->in[1]  = make_heads(WEFT_DTYPE_BF16, z->b, z->s, z->h, z->e);
    t->in[2]  = make_heads(WEFT_DTYPE_BF16, z->b, z->t, z->g, z->e);
    t->in[3]  = make_heads(WEFT_DTYPE_BF16, z->b, z->t, z->g, z->e);
    t->in[4]  = make_heads(WEFT_DTYPE_BF16, z->b, z->s, z->h, z->e);
    t->in[5]  = make_heads(WEFT_DTYPE_F32, z->b, z->s, z->h, 0);
    t->out[0] = make_heads(WEFT_DTYPE_BF16, z->b, z->s, z->h, z->e);
    t->out[1] = make_heads(WEFT_DTYPE_BF16, z->b, z->t, z->g, z->e);
    t->out[2] = make_heads(WEFT_DTYPE_BF16, z->b, z->t, z->g, z->e);
    assert_ok(weft_op_parse_attr(WEFT_OP_ATTENTION, z->attr, arena, forward));
    assert_ok(weft_op_parse_attr(WEFT_OP_ATTENTION_GRAD, z->attr, arena, t->attr));
    memcpy(t->made, t->in + 4, sizeof t->made);
    weft_kernel_call o = {.op        = WEFT_OP_ATTENTION,
                          .attr      = forward,
                          .n_in      = 3,
                          .n_own_in  = 3,
                          .n_out     = 2,
                          .n_own_out = 2,
                          .in        = t->in + 1,
                          .out       = t->made};
    assert_ok(run_own(weft_cuda_run_attention, &o, 0));
    t->call = (weft_kernel_call){.op        = WEFT_OP_ATTENTION_GRAD,
                                 .attr      = t->attr,
                                 .n_in      = 6,
                                 .n_own_in  = 6,
                                 .n_out     = 3,
                                 .n_own_out = 3,
                                 .in        = t->in,
                                 .out       = t->out};
}

static void check_values(const sizes *z)
{
    trial             t;
    weft_view         want[3];
    weft_step_scalars scalars = {0};
    make_trial(z, &t);
    weft_kernel_call plain = t.call;
    for (int i = 0; i < 3; i++)
        want[i] = grouped_view(WEFT_DTYPE_BF16, 4, t.out[i].shape.d);
    plain.out = want;
    assert_ok(run_own(weft_cuda_run_attention_grad, &plain,
                      weft_cuda_scratch_attention_grad(&plain, 1)));

    assert_true(weft_cuda_takes_attention_back(&t.call));
    size_t bytes = weft_cuda_scratch_attention_back(&t.call, 1);
    assert_int_equal(bytes,
                     room_of_attention(z->b, z->h, z->g, z->s, z->t, z->e, z->attr));
    weft_kernel_ctx x = {.scratch = grouped_room((int64_t)bytes), .scalars = &scalars};
    memset(x.scratch, 0xff, bytes);
    assert_ok(weft_cuda_prepare_attention_back(&t.call, &x, arena, &t.call.prepared));
    assert_ok(weft_cuda_run_attention_back(&t.call, &x));
    for (int i = 0; i < 3; i++) {
        double off = 0, all = 0;
        for (int64_t k = 0; k < weft_shape_count(&want[i].shape); k++) {
            double a = (double)grouped_get(&t.out[i], k),
                   b = (double)grouped_get(&want[i], k);
            off += (a - b) * (a - b);
            all += b * b;
        }
        if (!(sqrt(off) <= 0.01 * sqrt(all)))
            fail_msg("s %ld t %ld e %ld, result %d: off by %g of %g", (long)z->s,
                     (long)z->t, (long)z->e, i, sqrt(off), sqrt(all));
    }
}

static void near_the_plain_kernel(void **state)
{
    static const sizes all[] = {
        {1, 70, 2, 140, 1, 64, "causal=1"},
        {1, 40, 1, 130, 1, 128, "causal=0"},
    };
    (void)state;
    weft_cuda_emu_blocks = 2;
    for (size_t i = 0; i < WEFT_COUNT(all); i++) check_values(&all[i]);
}

static bool is_taken(const sizes *z)
{
    trial t;
    make_trial(z, &t);
    return weft_cuda_takes_attention_back(&t.call);
}

static void what_it_takes(void **state)
{
    static const sizes yes  = {1, 8, 1, 8, 1, 64, "causal=1"};
    static const sizes no[] = {
        {1, 8, 1, 8, 1, 96, "causal=1"},
        {1, 8, 1, 8, 1, 64, "causal=1 window=4"},
        {1, 12, 1, 8, 1, 64, "causal=1"},                      /* queries see no key */
        {1, 8, 1, 300, 1, 64, "causal=1 q_first=4 k_first=0"}, /* keys are not seen */
    };
    trial t;
    (void)state;
    weft_cuda_emu_blocks = 2;
    assert_true(is_taken(&yes));
    for (size_t i = 0; i < WEFT_COUNT(no); i++)
        if (is_taken(&no[i])) fail_msg("call %ld is taken", (long)i);

    make_trial(&yes, &t);
    t.call.add = 1;
    assert_false(weft_cuda_takes_attention_back(&t.call));
    t.call.add = 0;
    t.in[1].p  = (uint16_t *)t.in[1].p + 1;
    assert_false(weft_cuda_takes_attention_back(&t.call));
    t.in[1].p = (uint16_t *)t.in[1].p - 1;
    t.out[2].stride[1] += 4;
    assert_false(weft_cuda_takes_attention_back(&t.call));
    t.out[2].stride[1] -= 4;
    assert_true(weft_cuda_takes_attention_back(&t.call));
    weft_cuda_emu_blocks = 0; /* another GPU */
    assert_false(weft_cuda_takes_attention_back(&t.call));
}

int main(void)
{
    const struct CMUnitTest tests[] = {with_arena(near_the_plain_kernel),
                                       with_arena(what_it_takes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
