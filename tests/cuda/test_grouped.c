/* plugin/cuda/ops/grouped.c: what it gives the kernels of warpgroups, which no CPU runs.  Here the
 * maps keep what they were made of, and a launch computes what its arguments say. */
#include <math.h>
#include <stdlib.h>

#include "support/test.h"

#include "cuda_priv.h"
#include "grouped_data.h"

enum {
    MAX_LAUNCH = 8,
    EXPERTS    = 3,
    ROWS       = 40,
    LAST       = 33 /* rows from here on are nobody's */
};

static const int32_t offsets[EXPERTS + 1] = {0, 17, 17, LAST};

static int              blocks = 132;
static int              n_launch;
static weft_cuda_kernel launched[MAX_LAUNCH];
static weft_cuda_grid   grid_of[MAX_LAUNCH];

/* ---- in place of kernels.c ---- */

int weft_cuda_wgmma_blocks(void)
{
    return blocks;
}

typedef struct map_parts {
    uint64_t p, d[3], box;
} map_parts;

weft_status weft_cuda_map_boxes(const void *p, const int64_t d[3], int64_t box,
                                weft_cuda_tensor_map *out)
{
    map_parts m = {(uint64_t)(uintptr_t)p, {0}, (uint64_t)box};
    for (int i = 0; i < 3; i++) m.d[i] = (uint64_t)d[i];
    assert_int_equal((uintptr_t)out % 64, 0);
    memcpy(out, &m, sizeof m);
    return WEFT_OK;
}

/* Element (x, y, z); zero outside, as copies of boxes have it. */
static float map_get(const weft_cuda_tensor_map *map, int64_t x, int64_t y, int64_t z)
{
    map_parts m;
    memcpy(&m, map, sizeof m);
    if (x >= (int64_t)m.d[0] || y >= (int64_t)m.d[1] || z >= (int64_t)m.d[2]) return 0;
    return bf16_to_float(((const uint16_t *)(uintptr_t)
                              m.p)[(z * (int64_t)m.d[1] + y) * (int64_t)m.d[0] + x]);
}

static float step_value(const weft_cuda_wgmma_step *s, float x, int64_t at)
{
    float u = s->p ? bf16_to_float(((uint16_t *)s->p)[at]) : 0, g;
    switch (s->kind) {
    case WEFT_CUDA_MAP_ADD: return x + u;
    case WEFT_CUDA_MAP_MUL: return x * u;
    case WEFT_CUDA_MAP_SILU: return x / (1 + expf(-x));
    case WEFT_CUDA_MAP_SILU_GRAD:
        g = 1 / (1 + expf(-u));
        return x * g * (1 + u * (1 - g));
    default: ((uint16_t *)s->p)[at] = float_to_bf16(x); return x;
    }
}

static int expert_of(const weft_cuda_wgmma_args *a, int64_t row)
{
    const int32_t *o = a->offsets;
    for (int e = 0; e < a->experts; e++)
        if (row >= o[e] && row < o[e + 1]) return e;
    return -1;
}

static void multiply_rows(const weft_cuda_wgmma_args *a, bool turned)
{
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t n = 0; n < a->n; n++) {
            int   e = expert_of(a, r);
            float x = 0;
            for (int64_t k = 0; k < a->k && e >= 0; k++)
                x += map_get(&a->left, k, r, 0) *
                     map_get(&a->right, turned ? n : k, turned ? k : n, e);
            for (int s = 0; s < a->n_step; s++)
                if (e >= 0 || a->step[s].kind == WEFT_CUDA_MAP_STORE)
                    x = bf16_to_float(float_to_bf16(step_value(
                        &a->step[s], bf16_to_float(float_to_bf16(x)), r * a->n + n)));
        }
}

static void sum_rows(const weft_cuda_wgmma_args *a)
{
    const int32_t *o = a->offsets;
    for (int64_t e = 0; e < a->experts; e++)
        for (int64_t m = 0; m < a->m; m++)
            for (int64_t n = 0; n < a->n; n++) {
                float *y = &a->y[(e * a->m + m) * a->n + n], x = a->add ? *y : 0;
                for (int64_t r = o[e]; r < o[e + 1]; r++)
                    x += map_get(&a->left, m, r, 0) * map_get(&a->right, n, r, 0);
                *y = x;
            }
}

weft_status weft_cuda_launch(const weft_kernel_ctx *x, weft_cuda_kernel k,
                             weft_cuda_grid grid, const void *args)
{
    (void)x;
    assert_true(n_launch < MAX_LAUNCH);
    grid_of[n_launch]    = grid;
    launched[n_launch++] = k;
    if (k == WEFT_CUDA_grouped_wgmma || k == WEFT_CUDA_grouped_wgmma_turned)
        multiply_rows(args, k == WEFT_CUDA_grouped_wgmma_turned);
    if (k == WEFT_CUDA_grouped_wgmma_wgrad) sum_rows(args);
    return WEFT_OK;
}

/* ---- calls ---- */

static weft_view draw_view(weft_dtype t, int n, const int64_t *d)
{
    weft_view v = grouped_view(t, n, d);
    grouped_draw(&v, d[0]);
    return v;
}

typedef struct trial {
    weft_view        in[8], out[4];
    weft_kernel_post post[4];
    weft_attr        attr[WEFT_MAX_ATTR];
    weft_kernel_call call;
} trial;

static void start_trial(trial *t, weft_op op, const char *attr, weft_view a, weft_view b,
                        weft_view y)
{
    weft_shape s = weft_shape_make(1, (int64_t[]){EXPERTS + 1});
    *t           = (trial){
                  .in  = {a, b, weft_view_make((void *)(uintptr_t)offsets, WEFT_DTYPE_I32, &s)},
                  .out = {y}};
    assert_ok(weft_op_parse_attr(op, attr, arena, t->attr));
    t->call  = (weft_kernel_call){.op        = op,
                                  .attr      = t->attr,
                                  .n_in      = 3,
                                  .n_own_in  = 3,
                                  .n_out     = 1,
                                  .n_own_out = 1,
                                  .in        = t->in,
                                  .out       = t->out,
                                  .post      = t->post};
    n_launch = 0;
}

static void add_post(trial *t, weft_op op, const weft_view *in, const weft_view *out)
{
    weft_attr *attr = WEFT_ARENA_ARRAY(arena, weft_attr, WEFT_MAX_ATTR);
    weft_op_attr_defaults(op, attr);
    t->post[t->call.n_post++] = (weft_kernel_post){.op   = op,
                                                   .attr = attr,
                                                   .in   = in ? t->call.n_in : -1,
                                                   .out  = out ? t->call.n_out : -1};
    if (in) t->in[t->call.n_in++] = *in;
    if (out) t->out[t->call.n_out++] = *out;
}

static void run_trial(trial *t)
{
    weft_kernel_ctx x = {0};
    if (t->call.op == WEFT_OP_GROUPED_MATMUL) {
        assert_true(weft_cuda_takes_grouped_wgmma(&t->call));
        assert_ok(
            weft_cuda_prepare_grouped_wgmma(&t->call, &x, arena, &t->call.prepared));
        assert_ok(weft_cuda_run_grouped_wgmma(&t->call, &x));
    } else {
        assert_true(weft_cuda_takes_grouped_wgmma_wgrad(&t->call));
        assert_ok(weft_cuda_prepare_grouped_wgmma_wgrad(&t->call, &x, arena,
                                                        &t->call.prepared));
        assert_ok(weft_cuda_run_grouped_wgmma_wgrad(&t->call, &x));
    }
}

/* The product itself, by what the operator says. */
static float want_at(const trial *t, int64_t r, int64_t n)
{
    int64_t K = t->in[0].shape.d[1], N = t->out[0].shape.d[1];
    bool    trans = weft_cuda_attr(&t->call, "trans")->i != 0;
    float   x     = 0;
    for (int64_t e = 0; e < EXPERTS; e++)
        for (int64_t k = 0; k < K && r >= offsets[e] && r < offsets[e + 1]; k++)
            x +=
                grouped_get(&t->in[0], r * K + k) *
                grouped_get(&t->in[1], trans ? (e * N + n) * K + k : (e * K + k) * N + n);
    return x;
}

static void check_near(float got, float want)
{
    if (!(fabsf(got - want) <= 0.02f + 0.02f * fabsf(want)))
        fail_msg("%g instead of %g", (double)got, (double)want);
}

static float silu(float x)
{
    return x / (1 + expf(-x));
}

/* ---- tests ---- */

#define D2(a, b)                                                                         \
    2, (const int64_t[])                                                                 \
    {                                                                                    \
        a, b                                                                             \
    }
#define D3(a, b, c)                                                                      \
    3, (const int64_t[])                                                                 \
    {                                                                                    \
        a, b, c                                                                          \
    }
#define BF16 WEFT_DTYPE_BF16

static void steps_ride_on_the_product(void **state)
{
    (void)state;
    trial     t;
    weft_view act = draw_view(BF16, D2(ROWS, 24));
    start_trial(&t, WEFT_OP_GROUPED_MATMUL, "", draw_view(BF16, D2(ROWS, 16)),
                draw_view(BF16, D3(EXPERTS, 24, 16)), draw_view(BF16, D2(ROWS, 24)));
    add_post(&t, WEFT_OP_SILU, NULL, &act);
    run_trial(&t);
    assert_int_equal(n_launch, 1);
    assert_int_equal(launched[0], WEFT_CUDA_grouped_wgmma);
    assert_true(grid_of[0].x > 0 && grid_of[0].x <= (unsigned)blocks);
    for (int64_t i = 0; i < ROWS * 24; i++) {
        check_near(grouped_get(&t.out[0], i), want_at(&t, i / 24, i % 24));
        check_near(grouped_get(&act, i), silu(want_at(&t, i / 24, i % 24)));
    }
}

static void two_steps_behind_the_other_form(void **state)
{
    (void)state;
    trial     t;
    weft_view up = draw_view(BF16, D2(ROWS, 24)), gate = draw_view(BF16, D2(ROWS, 24));
    weft_view y = draw_view(BF16, D2(ROWS, 24));
    start_trial(&t, WEFT_OP_GROUPED_MATMUL, "trans=0", draw_view(BF16, D2(ROWS, 16)),
                draw_view(BF16, D3(EXPERTS, 16, 24)), draw_view(BF16, D2(ROWS, 24)));
    t.out[0].p = NULL; /* nobody keeps the product itself */
    add_post(&t, WEFT_OP_MUL, &up, NULL);
    add_post(&t, WEFT_OP_SILU_GRAD, &gate, &y);
    run_trial(&t);
    assert_int_equal(n_launch, 1);
    assert_int_equal(launched[0], WEFT_CUDA_grouped_wgmma_turned);
    for (int64_t i = 0; i < ROWS * 24; i++) {
        float u = grouped_get(&gate, i), g = 1 / (1 + expf(-u));
        check_near(grouped_get(&y, i), i / 24 < LAST ? want_at(&t, i / 24, i % 24) *
                                                           grouped_get(&up, i) * g *
                                                           (1 + u * (1 - g))
                                                     : 0);
    }
}

/* gelu is no step of the kernel: the product goes to the last result, where it is taken from. */
static void other_steps_follow(void **state)
{
    (void)state;
    trial     t;
    weft_view y = draw_view(BF16, D2(ROWS, 24));
    start_trial(&t, WEFT_OP_GROUPED_MATMUL, "", draw_view(BF16, D2(ROWS, 16)),
                draw_view(BF16, D3(EXPERTS, 24, 16)), draw_view(BF16, D2(ROWS, 24)));
    add_post(&t, WEFT_OP_GELU, NULL, &y);
    run_trial(&t);
    assert_int_equal(n_launch, 2);
    assert_int_equal(launched[1], WEFT_CUDA_steps_8);
    for (int64_t i = 0; i < ROWS * 24; i++)
        check_near(grouped_get(&y, i), want_at(&t, i / 24, i % 24));
}

static void check_gradient(const char *attr, bool add)
{
    trial   t;
    bool    trans = !*attr;
    int64_t K = 16, N = 24, m = trans ? N : K, n = trans ? K : N;
    start_trial(&t, WEFT_OP_GROUPED_MATMUL_WGRAD, attr, draw_view(BF16, D2(ROWS, K)),
                draw_view(BF16, D2(ROWS, N)),
                draw_view(WEFT_DTYPE_F32, D3(EXPERTS, m, n)));
    weft_view before = t.out[0];
    before.p   = weft_arena_memdup(arena, t.out[0].p, (size_t)(EXPERTS * m * n) * 4);
    t.call.add = add;
    run_trial(&t);
    assert_int_equal(n_launch, 1);
    assert_int_equal(launched[0], WEFT_CUDA_grouped_wgmma_wgrad);
    for (int64_t i = 0; i < EXPERTS * m * n; i++) {
        int64_t e = i / m / n, a = i / n % m, b = i % n;
        float   x = add ? grouped_get(&before, i) : 0;
        for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
            x += grouped_get(&t.in[0], r * K + (trans ? b : a)) *
                 grouped_get(&t.in[1], r * N + (trans ? a : b));
        check_near(grouped_get(&t.out[0], i), x);
    }
}

static void gradients_of_weights(void **state)
{
    (void)state;
    check_gradient("", false);
    check_gradient("", true);
    check_gradient("trans=0", false);
}

static bool is_taken(weft_dtype dtype, int64_t k, int64_t n, int64_t shift)
{
    trial     t;
    weft_view x = draw_view(dtype, D2(ROWS, k));
    x.p         = (char *)x.p + shift;
    start_trial(&t, WEFT_OP_GROUPED_MATMUL, "", x, draw_view(dtype, D3(EXPERTS, n, k)),
                draw_view(dtype, D2(ROWS, n)));
    return weft_cuda_takes_grouped_wgmma(&t.call);
}

static void what_is_left_to_other_kernels(void **state)
{
    (void)state;
    assert_true(is_taken(BF16, 16, 24, 0));
    assert_false(is_taken(WEFT_DTYPE_F32, 16, 24, 0));
    assert_false(is_taken(BF16, 12, 24, 0)); /* rows of 24 bytes */
    assert_false(is_taken(BF16, 16, 20, 0));
    assert_false(is_taken(BF16, 16, 24, 2)); /* not aligned */
    blocks = 0;                              /* another GPU */
    assert_false(is_taken(BF16, 16, 24, 0));
    blocks = 132;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(steps_ride_on_the_product),
        with_arena(two_steps_behind_the_other_form),
        with_arena(other_steps_follow),
        with_arena(gradients_of_weights),
        with_arena(what_is_left_to_other_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
