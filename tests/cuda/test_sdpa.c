/* plugin/cuda/ops/sdpa.c over a cuDNN that computes on the CPU, against the CPU's own attention. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"

#include "base/random.h"
#include "cuda_priv.h"
#include "library.h"
#include "ops/sdpa.h"
#include "support/device_call.h"
#include "support/fixture.h"
#include "support/kernels.h"

static weft_kernel row_of(weft_op op)
{
    return (weft_kernel){.op      = op,
                         .run     = weft_cuda_run_sdpa,
                         .scratch = weft_cuda_scratch_sdpa,
                         .takes   = weft_cuda_takes_sdpa,
                         .prepare = weft_cuda_prepare_sdpa,
                         .release = weft_cuda_release_sdpa};
}

typedef struct sdpa_case {
    int64_t     b, h, g, s, t, e;
    bool        packed; /* q, k, v side by side in one row of a matmul's result */
    const char *attr;
    int         slices; /* of the backward pass */
} sdpa_case;

/* ---- operands ---- */

static uint16_t round_bf16(float x)
{
    union {
        float    f;
        uint32_t u;
    } v = {x};
    return (uint16_t)((v.u + 0x7fffu + (v.u >> 16 & 1u)) >> 16);
}

static double get(const weft_view *v, int64_t i)
{
    int64_t at = 0;
    for (int d = v->shape.n - 1; d >= 0; d--) {
        at += i % v->shape.d[d] * v->stride[d];
        i /= v->shape.d[d];
    }
    if (v->dtype == WEFT_DTYPE_F32) return (double)((float *)v->p)[at];
    union {
        uint32_t u;
        float    f;
    } x = {(uint32_t)((uint16_t *)v->p)[at] << 16};
    return (double)x.f;
}

static void *memory(int64_t bytes)
{
    void *p = weft_arena_alloc(arena, (size_t)bytes + 64);
    assert_non_null(p);
    return (void *)(((uintptr_t)p + 63) / 64 * 64);
}

static void draw(void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)p)[i] = round_bf16(2.0f * weft_random_uniform(test_draw()) - 1.0f);
}

/* (b,n,heads,e), rows of a position so far apart */
static weft_view heads(void *p, int64_t b, int64_t n, int64_t h, int64_t e, int64_t row)
{
    weft_shape s = weft_shape_make(4, (int64_t[]){b, n, h, e});
    weft_view  v = weft_view_make(p, WEFT_DTYPE_BF16, &s);
    v.stride[1]  = row;
    v.stride[0]  = n * row;
    return v;
}

/* q, k, v (or their gradients), packed or each by itself */
static void make_qkv(const sdpa_case *c, weft_view *out)
{
    int64_t q = c->h * c->e, k = c->g * c->e, row = q + 2 * k;
    if (c->packed) {
        uint16_t *p = memory(2 * c->b * c->t * row);
        draw(p, c->b * c->t * row);
        out[0] = heads(p, c->b, c->s, c->h, c->e, row);
        out[1] = heads(p + q, c->b, c->t, c->g, c->e, row);
        out[2] = heads(p + q + k, c->b, c->t, c->g, c->e, row);
        return;
    }
    void *p[3] = {memory(2 * c->b * c->s * q), memory(2 * c->b * c->t * k),
                  memory(2 * c->b * c->t * k)};
    for (int i = 0; i < 3; i++) draw(p[i], c->b * (i ? c->t * k : c->s * q));
    out[0] = heads(p[0], c->b, c->s, c->h, c->e, q);
    out[1] = heads(p[1], c->b, c->t, c->g, c->e, k);
    out[2] = heads(p[2], c->b, c->t, c->g, c->e, k);
}

static weft_view make_output(const sdpa_case *c)
{
    int64_t n = c->b * c->s * c->h * c->e;
    void   *p = memory(2 * n);
    draw(p, n);
    return heads(p, c->b, c->s, c->h, c->e, c->h * c->e);
}

static weft_view make_lse(const sdpa_case *c)
{
    weft_shape s = weft_shape_make(3, (int64_t[]){c->b, c->s, c->h});
    return weft_view_make(memory(4 * c->b * c->s * c->h), WEFT_DTYPE_F32, &s);
}

static void compare(const weft_view *got, const weft_view *want, const char *what)
{
    double  diff = 0, norm = 0;
    int64_t n = weft_shape_count(&want->shape);
    for (int64_t i = 0; i < n; i++) {
        double a = get(got, i), b = get(want, i);
        diff += (a - b) * (a - b);
        norm += b * b;
    }
    if (!(sqrt(diff) <= 1e-2 * sqrt(norm)))
        fail_msg("%s: error %g", what, sqrt(diff / norm));
}

static const weft_attr *attributes(weft_op op, const char *text)
{
    weft_attr *a = WEFT_ARENA_ARRAY(arena, weft_attr, WEFT_MAX_ATTR);
    assert_ok(weft_op_parse_attr(op, text, arena, a));
    return a;
}

static int *stub_runs(void)
{
    int *n = dlsym(weft_cuda_library_get(WEFT_CUDA_DNN)->handle, "stub_dnn_runs");
    assert_non_null(n);
    return n;
}

static void run_row(const weft_kernel_call *c, int runs)
{
    static const weft_step_scalars scalars = {0};
    weft_kernel                    row     = row_of(c->op);
    device_call                    k;
    assert_true(row.takes(c));
    int before = *stub_runs();
    assert_ok(device_call_open(&k, weft_device_guard(), &row, c, NULL));
    assert_ok(device_call_run(&k, &scalars));
    device_call_close(&k);
    assert_int_equal(*stub_runs() - before, runs);
}

static void run_case(const sdpa_case *c)
{
    weft_view q[3], o = make_output(c), lse = make_lse(c), d_o = make_output(c);
    make_qkv(c, q);
    weft_view        want[2] = {o, lse}, got[2] = {make_output(c), make_lse(c)};
    weft_kernel_call call    = {.op        = WEFT_OP_ATTENTION,
                                .attr      = attributes(WEFT_OP_ATTENTION, c->attr),
                                .n_in      = 3,
                                .n_own_in  = 3,
                                .in        = q,
                                .n_out     = 2,
                                .n_own_out = 2};
    weft_kernel_call forward = call;
    call.out = want, forward.out = got;
    assert_ok(test_kernel_once(&call, NULL, NULL));
    run_row(&forward, 1);
    compare(&got[0], &o, "o");
    compare(&got[1], &lse, "lse");
    got[1].p = NULL; /* nobody keeps it */
    run_row(&forward, 1);

    weft_view        in[6]    = {d_o, q[0], q[1], q[2], o, lse}, dq[3], dq_want[3];
    weft_kernel_call grad     = {.op        = WEFT_OP_ATTENTION_GRAD,
                                 .attr      = attributes(WEFT_OP_ATTENTION_GRAD, c->attr),
                                 .n_in      = 6,
                                 .n_own_in  = 6,
                                 .in        = in,
                                 .n_out     = 3,
                                 .n_own_out = 3};
    weft_kernel_call backward = grad;
    make_qkv(c, dq);
    make_qkv(c, dq_want);
    grad.out = dq_want, backward.out = dq;
    assert_ok(test_kernel_once(&grad, NULL, NULL));
    run_row(&backward, c->slices);
    compare(&dq[0], &dq_want[0], "dq");
    compare(&dq[1], &dq_want[1], "dk");
    compare(&dq[2], &dq_want[2], "dv");
}

static int open_stub(void **state)
{
    setenv("WEFT_CUDA_LIBS", WEFT_TEST_CUDA_STUB, 1);
    assert_ok(weft_cuda_libraries_open(13000));
    assert_non_null(weft_cuda_dnn_get());
    return test_arena_setup(state);
}

static int close_stub(void **state)
{
    weft_cuda_sdpa_drop();
    weft_cuda_sdpa_most_bytes = (int64_t)9 << 28;
    return test_arena_teardown(state);
}

static void test_shapes(void **state)
{
    (void)state;
    static const sdpa_case cases[] = {
        {2, 3, 3, 16, 16, 8, true, "", 1},
        {2, 6, 2, 13, 13, 16, true, "", 1},
        {1, 2, 2, 9, 9, 8, false, "scale=0.5", 1},
        {2, 4, 4, 11, 11, 24, false, "causal=0", 1},
        {2, 4, 1, 6, 14, 8, false, "", 1},                    /* the last queries */
        {2, 2, 2, 6, 14, 8, false, "q_first=4 k_first=0", 1}, /* shifted */
        {2, 2, 2, 6, 6, 8, false, "q_first=12 k_first=6", 1}, /* earlier keys: all seen */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i]);
}

/* A smaller limit cuts the backward pass: 4 of 6 sequences do not divide, 3 do; then heads. */
static void test_slices(void **state)
{
    (void)state;
    sdpa_case c               = {6, 4, 2, 16, 16, 8, true, "", 2};
    weft_cuda_sdpa_most_bytes = 2 * 4 * 16 * 16 * 4;
    run_case(&c);
    c.slices                  = 12;
    weft_cuda_sdpa_most_bytes = 2 * 4 * 16 * 16 / 2;
    run_case(&c);
}

/* Calls that go to the own kernel. */
static void test_refused(void **state)
{
    (void)state;
    sdpa_case c = {2, 2, 2, 16, 16, 8, false, "", 1};
    weft_view q[3], out[2] = {make_output(&c), make_lse(&c)};
    make_qkv(&c, q);
    weft_kernel_call call = {.op        = WEFT_OP_ATTENTION,
                             .attr      = attributes(WEFT_OP_ATTENTION, ""),
                             .n_in      = 3,
                             .n_own_in  = 3,
                             .in        = q,
                             .n_out     = 2,
                             .n_own_out = 2,
                             .out       = out};
    assert_true(weft_cuda_takes_sdpa(&call));
    call.attr = attributes(WEFT_OP_ATTENTION, "window=4");
    assert_false(weft_cuda_takes_sdpa(&call));
    call.attr =
        attributes(WEFT_OP_ATTENTION, "q_first=0 k_first=4"); /* some see nothing */
    assert_false(weft_cuda_takes_sdpa(&call));
    call.attr     = attributes(WEFT_OP_ATTENTION, "");
    call.n_own_in = 4; /* a bias */
    assert_false(weft_cuda_takes_sdpa(&call));
    call.n_own_in = 3;
    q[1].p        = (uint16_t *)q[1].p + 1;
    assert_false(weft_cuda_takes_sdpa(&call));
    q[1].p     = (uint16_t *)q[1].p - 1;
    q[0].dtype = WEFT_DTYPE_F32;
    assert_false(weft_cuda_takes_sdpa(&call));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shapes, open_stub, close_stub),
        cmocka_unit_test_setup_teardown(test_slices, open_stub, close_stub),
        cmocka_unit_test_setup_teardown(test_refused, open_stub, close_stub),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
