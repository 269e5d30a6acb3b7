/* What lowering asks of kernels beyond one operator: steps behind a product, a loss with its
 * gradient, updates in place, results that nobody keeps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/random.h"
#include "base/status.h"
#include "support/fixture.h"
#include "support/kernels.h"

static float draw(void)
{
    return 4.0f * weft_random_uniform(test_draw()) - 2.0f;
}

/* A tensor of drawn numbers; gap > 0 leaves room behind every row of the last dimension. */
static weft_view tensor(int n, const int64_t *d, int64_t gap)
{
    weft_shape s    = weft_shape_make(n, d);
    weft_view  v    = weft_view_make(NULL, WEFT_DTYPE_F32, &s);
    int64_t    size = 1;
    for (int k = n - 1; k >= 0; k--) {
        v.stride[k] = size;
        size *= d[k] + (k == n - 1 ? gap : 0);
    }
    float *p = WEFT_ARENA_ARRAY(arena, float, size + 1);
    assert_non_null(p);
    for (int64_t i = 0; i < size; i++) p[i] = draw();
    v.p = p;
    return v;
}
#define TENSOR(gap, ...)                                                                 \
    tensor((int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__}, gap)

static float *at(const weft_view *v, int64_t i)
{
    int64_t to = 0;
    for (int d = v->shape.n - 1; d >= 0; d--) {
        to += i % v->shape.d[d] * v->stride[d];
        i /= v->shape.d[d];
    }
    return (float *)v->p + to;
}

static const weft_attr *attr(weft_op op, const char *text)
{
    weft_attr *a = WEFT_ARENA_ARRAY(arena, weft_attr, WEFT_MAX_ATTR);
    assert_int_equal(weft_op_parse_attr(op, text, arena, a), WEFT_OK);
    return a;
}

/* An operator by itself. */
static weft_kernel_call call_of(weft_op op, const char *words, int n_in, weft_view *in,
                                int n_out, weft_view *out)
{
    return (weft_kernel_call){.op        = op,
                              .attr      = attr(op, words),
                              .n_in      = n_in,
                              .n_own_in  = n_in,
                              .n_out     = n_out,
                              .n_own_out = n_out,
                              .in        = in,
                              .out       = out};
}

static void run(const weft_kernel_call *c)
{
    if (test_kernel_once(c, pool, NULL) != WEFT_OK) fail_msg("%s", weft_error_text());
}

static double step(weft_op op, double x, double u)
{
    double c = 0.79788456080286536, v;
    switch ((int)op) {
    case WEFT_OP_ADD: return x + u;
    case WEFT_OP_MUL: return x * u;
    case WEFT_OP_SCALE: return -0.5 * x;
    case WEFT_OP_GELU: return 0.5 * x * (1 + tanh(c * (x + 0.044715 * x * x * x)));
    case WEFT_OP_RELU: return x > 0 ? x : 0;
    case WEFT_OP_TANH: return tanh(x);
    case WEFT_OP_SILU: return x / (1 + exp(-x));
    case WEFT_OP_RELU_GRAD: return u > 0 ? x : 0;
    case WEFT_OP_TANH_GRAD: return x * (1 - u * u);
    case WEFT_OP_SILU_GRAD: v = 1 / (1 + exp(-u)); return x * (v + u * v * (1 - v));
    case WEFT_OP_GELU_GRAD:
        v = tanh(c * (u + 0.044715 * u * u * u));
        return x *
               (0.5 * (1 + v) + 0.5 * u * (1 - v * v) * c * (1 + 3 * 0.044715 * u * u));
    default: fail_msg("no such step"); return 0;
    }
}

/* y (b,s,c,h,e) = x (b,s,d) w (d,c,h,e), then the steps; results are kept where keep says so.
 * gap > 0: rows of every tensor have room behind them, so that nothing is one run. */
static void chain(int n, const weft_op *op, const int *keep, bool keep_product,
                  int64_t gap)
{
    weft_view        in[16] = {TENSOR(gap, 2, 9, 7), TENSOR(gap, 7, 3, 2, 4)}, out[16];
    weft_kernel_post post[8];
    weft_kernel_call c = {
        .op = WEFT_OP_MATMUL, .n_own_in = 2, .n_own_out = 1, .n_in = 2, .n_out = 1};

    out[0] = TENSOR(gap, 2, 9, 3, 2, 4);
    if (!keep_product) out[0].p = NULL;
    for (int i = 0; i < n; i++) {
        bool two = op[i] == WEFT_OP_ADD || op[i] == WEFT_OP_MUL ||
                   weft_op_get(op[i])->in[1] == 'y';
        post[i] = (weft_kernel_post){
            .op   = op[i],
            .in   = -1,
            .out  = -1,
            .attr = attr(op[i], op[i] == WEFT_OP_SCALE ? "alpha=-0.5" : "")};
        if (two) {
            post[i].in   = c.n_in;
            in[c.n_in++] = i == 0 ? TENSOR(gap, 3, 2, 4) : TENSOR(gap, 2, 9, 3, 2, 4);
        }
        if (keep[i] || i == n - 1) {
            post[i].out    = c.n_out;
            out[c.n_out++] = TENSOR(gap, 2, 9, 3, 2, 4);
        }
    }
    c.attr = attr(WEFT_OP_MATMUL, "spec=bsd,dche->bsche");
    c.in = in, c.out = out, c.post = post, c.n_post = n;
    run(&c);
    for (int64_t i = 0; i < 2 * 9 * 24; i++) {
        double x = 0;
        for (int64_t d = 0; d < 7; d++)
            x += (double)*at(&in[0], i / 24 * 7 + d) *
                 (double)*at(&in[1], d * 24 + i % 24);
        if (keep_product) assert_float_equal(*at(&out[0], i), x, 1e-4);
        for (int k = 0; k < n; k++) {
            const weft_view *u = post[k].in >= 0 ? &in[post[k].in] : NULL;
            x = step(op[k], x, u ? (double)*at(u, u->shape.n == 3 ? i % 24 : i) : 0);
            if (post[k].out >= 0) assert_float_equal(*at(&out[post[k].out], i), x, 2e-4);
        }
    }
}

static void posts(void **state)
{
    (void)state;
    for (int64_t gap = 0; gap < 2; gap++)
        for (int product = 0; product < 2; product++) {
            chain(1, (weft_op[]){WEFT_OP_ADD}, (int[]){0}, product, gap);
            chain(2, (weft_op[]){WEFT_OP_ADD, WEFT_OP_GELU}, (int[]){1, 0}, product, gap);
            chain(2, (weft_op[]){WEFT_OP_ADD, WEFT_OP_ADD}, (int[]){0, 0}, product, gap);
            chain(3, (weft_op[]){WEFT_OP_SCALE, WEFT_OP_MUL, WEFT_OP_RELU},
                  (int[]){1, 1, 0}, product, gap);
            chain(1, (weft_op[]){WEFT_OP_SILU}, (int[]){0}, product, gap);
            chain(1, (weft_op[]){WEFT_OP_TANH}, (int[]){0}, product, gap);
            chain(2, (weft_op[]){WEFT_OP_SCALE, WEFT_OP_GELU_GRAD}, (int[]){0, 0},
                  product, gap);
            chain(2, (weft_op[]){WEFT_OP_SCALE, WEFT_OP_SILU_GRAD}, (int[]){0, 0},
                  product, gap);
            chain(2, (weft_op[]){WEFT_OP_SCALE, WEFT_OP_RELU_GRAD}, (int[]){0, 0},
                  product, gap);
            chain(2, (weft_op[]){WEFT_OP_SCALE, WEFT_OP_TANH_GRAD}, (int[]){0, 0},
                  product, gap);
        }
}

/* Drawn numbers in bf16. */
static weft_view half(int n, const int64_t *d)
{
    weft_view f = tensor(n, d, 0), v = f;
    int64_t   size = weft_shape_count(&f.shape);
    uint16_t *h    = WEFT_ARENA_ARRAY(arena, uint16_t, size);
    assert_non_null(h);
    for (int64_t i = 0; i < size; i++) {
        uint32_t u;
        memcpy(&u, (float *)f.p + i, 4);
        h[i] = (uint16_t)(u >> 16);
    }
    v.dtype = WEFT_DTYPE_BF16;
    v.p     = h;
    return v;
}
#define HALF(...)                                                                        \
    half((int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})

/* In bf16 a step behind a product gives the bits that it gives alone: recomputation fuses other
 * things than the first pass did, and must change nothing. */
static void posts_bf16(void **state)
{
    (void)state;
    weft_view        in[] = {HALF(37, 19), HALF(19, 45), HALF(45), HALF(37, 45)};
    weft_view        y[]  = {HALF(37, 45), HALF(37, 45), HALF(37, 45), HALF(37, 45)};
    weft_view        one = HALF(37, 45), all[] = {one, HALF(37, 45)};
    weft_op          op[] = {WEFT_OP_ADD, WEFT_OP_GELU, WEFT_OP_MUL};
    int              u[]  = {2, -1, 3};
    weft_kernel_post post[3];
    weft_kernel_call c = call_of(WEFT_OP_MATMUL, "spec=mk,kn->mn", 2, in, 1, y);
    run(&c);
    for (int i = 0; i < 3; i++) {
        weft_view        x[2] = {y[i], u[i] >= 0 ? in[u[i]] : y[i]};
        int              n    = u[i] >= 0 ? 2 : 1;
        weft_kernel_call s    = call_of(op[i], "", n, x, 1, &y[i + 1]);
        run(&s);
        post[i] = (weft_kernel_post){
            .op = op[i], .in = u[i], .out = i == 2 ? 1 : -1, .attr = s.attr};
    }
    all[0].p = NULL; /* the product is not kept */
    c.n_in = 4, c.n_out = 2, c.out = all, c.post = post, c.n_post = 3;
    run(&c);
    assert_memory_equal(all[1].p, y[3].p, 37 * 45 * 2);
}

/* The same behind experts' products, of which some have no rows; what is nobody's is 0. */
static void posts_of_experts(void **state)
{
    int32_t    where[] = {0, 3, 3, 20, 29};
    weft_shape five    = {.n = 1, .d = {5}};
    weft_op    op[]    = {WEFT_OP_SILU, WEFT_OP_MUL};
    (void)state;
#define DRAWN(...) (t == WEFT_DTYPE_BF16 ? HALF(__VA_ARGS__) : TENSOR(0, __VA_ARGS__))
    for (int keep = 0; keep < 4; keep++) {
        weft_dtype       t     = keep / 2 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32;
        size_t           bytes = 29 * 45 * (size_t)weft_dtype_bytes(t);
        weft_view        in[]  = {DRAWN(37, 19), DRAWN(4, 45, 19),
                                  weft_view_make(where, WEFT_DTYPE_I32, &five), DRAWN(37, 45)};
        weft_view        y[]   = {DRAWN(37, 45), DRAWN(37, 45), DRAWN(37, 45)};
        weft_view        all[] = {DRAWN(37, 45), DRAWN(37, 45), DRAWN(37, 45)};
        weft_kernel_post post[2];
        weft_kernel_call c = call_of(WEFT_OP_GROUPED_MATMUL, "", 3, in, 1, y);
        run(&c);
        for (int i = 0; i < 2; i++) {
            weft_view        x[2] = {y[i], in[3]};
            weft_kernel_call s    = call_of(op[i], "", i + 1, x, 1, &y[i + 1]);
            run(&s);
            post[i] = (weft_kernel_post){
                .op = op[i], .in = i ? 3 : -1, .out = i + 1, .attr = s.attr};
        }
        if (!(keep & 1)) all[0].p = NULL, post[0].out = -1;
        c.n_in = 4, c.n_out = 3, c.out = all, c.post = post, c.n_post = 2;
        run(&c);
        if (keep & 1) assert_memory_equal(all[0].p, y[0].p, bytes);
        if (keep & 1) assert_memory_equal(all[1].p, y[1].p, bytes);
        assert_memory_equal(all[2].p, y[2].p, bytes);
        for (size_t i = bytes; i < bytes / 29 * 37; i++)
            assert_int_equal(((const char *)all[2].p)[i], 0);
    }
#undef DRAWN
}

/* Summed letters that are no one run, with steps behind: "bsche,dche->bsd" over gaps. */
static void loops_over_sums(void **state)
{
    (void)state;
    weft_view in[3]  = {TENSOR(1, 2, 5, 3, 2, 4), TENSOR(1, 6, 3, 2, 4), TENSOR(0, 6)};
    weft_view out[2] = {TENSOR(0, 2, 5, 6), TENSOR(0, 2, 5, 6)};
    weft_kernel_post post = {
        .op = WEFT_OP_ADD, .in = 2, .out = 1, .attr = attr(WEFT_OP_ADD, "")};
    weft_kernel_call c = {.op        = WEFT_OP_MATMUL,
                          .n_own_in  = 2,
                          .n_own_out = 1,
                          .n_in      = 3,
                          .n_out     = 2,
                          .in        = in,
                          .out       = out,
                          .post      = &post,
                          .n_post    = 1};
    c.attr             = attr(WEFT_OP_MATMUL, "spec=bsche,dche->bsd");
    run(&c);
    for (int64_t i = 0; i < 60; i++) {
        double x = 0;
        for (int64_t k = 0; k < 24; k++)
            x +=
                (double)*at(&in[0], i / 6 * 24 + k) * (double)*at(&in[1], i % 6 * 24 + k);
        assert_float_equal(*at(&out[0], i), x, 1e-4);
        assert_float_equal(*at(&out[1], i), (float)x + *at(&in[2], i % 6), 1e-4);
    }
}

/* The gradient over the logits themselves, its weight one number for all rows. */
/* A looked-up table's gradient over a base is the sum of both, to the last bit, also in place. */
static void rows_over_a_base(void **state)
{
    (void)state;
    enum {
        N = 9,
        V = 5,
        D = 300
    };
    int64_t          n     = N;
    int32_t          id[N] = {3, 0, 3, 3, 4, 0, -1, 2, 3};
    weft_shape       s     = weft_shape_make(1, &n);
    weft_view        in[3] = {TENSOR(0, N, D), weft_view_make(id, WEFT_DTYPE_I32, &s),
                              TENSOR(0, V, D)};
    weft_view        alone = TENSOR(0, V, D), over = TENSOR(0, V, D);
    weft_kernel_call c =
        call_of(WEFT_OP_EMBEDDING_GRAD, "rows=5 pad=2", 2, in, 1, &alone);
    run(&c);
    c.n_in = c.n_own_in = 3, c.out = &over;
    run(&c);
    for (int64_t i = 0; i < V * D; i++)
        assert_true(*at(&over, i) == *at(&in[2], i) + *at(&alone, i));
    c.out = &in[2];
    run(&c);
    assert_memory_equal(over.p, in[2].p, sizeof(float) * V * D);
}

static void loss_and_gradient(void **state)
{
    (void)state;
    enum {
        ROWS = 6,
        V    = 2500
    };
    int64_t    n           = ROWS;
    weft_shape s           = weft_shape_make(1, &n);
    int32_t    label[ROWS] = {0, 2499, -100, 7, 1024, 1023};
    float      loss[2][ROWS], lse[ROWS], weight = 0.25f;
    weft_view  a = TENSOR(0, ROWS, V), b = TENSOR(0, ROWS, V), d = TENSOR(0, ROWS, V);
    weft_view  labels     = weft_view_make(label, WEFT_DTYPE_I32, &s);
    weft_view  w          = weft_view_make(&weight, WEFT_DTYPE_F32, &s);
    weft_kernel_post post = {.op = WEFT_OP_CROSS_ENTROPY_GRAD, .in = 2, .out = 2};
    w.stride[0]           = 0;
    memcpy(b.p, a.p, sizeof(float) * ROWS * V);

    weft_view        in[4]  = {a, labels, weft_view_make(lse, WEFT_DTYPE_F32, &s), w};
    weft_view        out[3] = {weft_view_make(loss[0], WEFT_DTYPE_F32, &s), in[2], d};
    weft_kernel_call c      = call_of(WEFT_OP_CROSS_ENTROPY, "", 2, in, 2, out);
    run(&c);
    weft_kernel_call g = call_of(WEFT_OP_CROSS_ENTROPY_GRAD, "", 4, in, 1, &d);
    run(&g);

    weft_view in2[3]  = {b, labels, w},
              out2[3] = {weft_view_make(loss[1], WEFT_DTYPE_F32, &s), out[1], b};
    out2[1].p         = NULL;
    c.n_in = 3, c.n_out = 3, c.in = in2, c.out = out2, c.n_post = 1, c.post = &post;
    post.attr = g.attr;
    run(&c);
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_memory_equal(b.p, d.p, sizeof(float) * ROWS * V);
    assert_true(loss[0][2] == 0.0f && loss[0][0] > 0.0f);
}

static void bad_label(void **state)
{
    (void)state;
    int64_t          n        = 2;
    weft_shape       s        = weft_shape_make(1, &n);
    int32_t          label[2] = {3, 9};
    weft_view        in[2] = {TENSOR(0, 2, 9), weft_view_make(label, WEFT_DTYPE_I32, &s)};
    weft_view        out[2] = {TENSOR(0, 2), TENSOR(0, 2)};
    weft_kernel_call c      = call_of(WEFT_OP_CROSS_ENTROPY, "", 2, in, 2, out);
    assert_int_equal(test_kernel_once(&c, pool, NULL), WEFT_ERR_ARG);
}

/* AdamW over its own state has the bits of AdamW into new memory. */
static void update_in_place(void **state)
{
    (void)state;
    enum {
        N = 70001
    };
    float     lr = 0.01f, scale = 0.5f;
    int64_t   t = 3;
    weft_view p = TENSOR(0, N), g = TENSOR(0, N), m = TENSOR(0, N), v = TENSOR(0, N);
    weft_view p2 = TENSOR(0, N), m2 = TENSOR(0, N), v2 = TENSOR(0, N);
    for (int i = 0; i < N; i++) ((float *)v.p)[i] = fabsf(((float *)v.p)[i]);
    weft_shape none  = {0};
    weft_view  in[7] = {p,
                        g,
                        m,
                        v,
                        weft_view_make(&lr, WEFT_DTYPE_F32, &none),
                        weft_view_make(&scale, WEFT_DTYPE_F32, &none),
                        weft_view_make(&t, WEFT_DTYPE_I64, &none)};
    weft_view new[3] = {p2, m2, v2}, same[3] = {p, m, v};
    weft_kernel_call c = call_of(WEFT_OP_ADAMW, "", 7, in, 3, new);
    run(&c);
    c.out = same;
    run(&c);
    for (int k = 0; k < 3; k++)
        assert_memory_equal(new[k].p, same[k].p, sizeof(float) * N);
}

/* A result nobody keeps changes nothing about the others; results before `from` are always kept. */
static void unkept(weft_op op, int from, int n_in, weft_view *in, int n_out,
                   weft_view *out)
{
    weft_kernel_call c = call_of(op, "", n_in, in, n_out, out);
    float           *all[4];
    run(&c);
    for (int j = 0; j < n_out; j++) {
        int64_t n = weft_shape_count(&out[j].shape);
        all[j]    = WEFT_ARENA_ARRAY(arena, float, n);
        memcpy(all[j], out[j].p, sizeof(float) * (size_t)n);
    }
    for (int gone = from; gone < n_out; gone++) {
        weft_view some[4];
        memcpy(some, out, sizeof *out * (size_t)n_out);
        some[gone].p = NULL;
        c.out        = some;
        run(&c);
        for (int j = 0; j < n_out; j++)
            if (j != gone)
                assert_memory_equal(all[j], out[j].p,
                                    sizeof(float) *
                                        (size_t)weft_shape_count(&out[j].shape));
    }
}

static void results_not_kept(void **state)
{
    (void)state;
    weft_view x = TENSOR(0, 9, 33), w = TENSOR(0, 33), b = TENSOR(0, 33),
              r1 = TENSOR(0, 9), r2 = TENSOR(0, 9);
    weft_view y = TENSOR(0, 9, 33), dw = TENSOR(0, 33), db = TENSOR(0, 33);
    unkept(WEFT_OP_LAYER_NORM, 1, 3, (weft_view[]){x, w, b}, 3, (weft_view[]){y, r1, r2});
    unkept(WEFT_OP_LAYER_NORM_GRAD, 0, 5, (weft_view[]){x, y, w, r1, r2}, 3,
           (weft_view[]){TENSOR(0, 9, 33), dw, db});
    unkept(WEFT_OP_RMS_NORM, 1, 2, (weft_view[]){x, w}, 2, (weft_view[]){y, r1});
    unkept(WEFT_OP_RMS_NORM_GRAD, 0, 4, (weft_view[]){x, y, w, r1}, 2,
           (weft_view[]){TENSOR(0, 9, 33), dw});
    weft_view q = TENSOR(0, 2, 5, 2, 4), o = TENSOR(0, 2, 5, 2, 4),
              l = TENSOR(0, 2, 5, 2);
    unkept(WEFT_OP_ATTENTION, 1, 3, (weft_view[]){q, q, q}, 2, (weft_view[]){o, l});
    unkept(WEFT_OP_ATTENTION_GRAD, 0, 6, (weft_view[]){o, q, q, q, o, l}, 3,
           (weft_view[]){TENSOR(0, 2, 5, 2, 4), TENSOR(0, 2, 5, 2, 4),
                         TENSOR(0, 2, 5, 2, 4)});
    unkept(WEFT_OP_CLIP, 0, 0, NULL, 2,
           (weft_view[]){tensor(0, NULL, 0), tensor(0, NULL, 0)});
}

/* Larger than the caches: stores go around them. */
static void far(void **state)
{
    (void)state;
    enum {
        N = 13000001
    };
    int64_t    n = N;
    weft_shape s = weft_shape_make(1, &n);
    float     *a = aligned_alloc(64, 4 * (N + 63)), *b = aligned_alloc(64, 4 * (N + 63));
    float     *y = aligned_alloc(64, 4 * (N + 63));
    assert_true(a && b && y);
    for (int i = 0; i < N; i++) a[i] = (float)(i % 1000), b[i] = (float)(i % 77);
    y[N]                   = 5.0f;
    weft_view        in[2] = {weft_view_make(a, WEFT_DTYPE_F32, &s),
                              weft_view_make(b, WEFT_DTYPE_F32, &s)};
    weft_view        out   = weft_view_make(y, WEFT_DTYPE_F32, &s);
    weft_kernel_call c     = call_of(WEFT_OP_ADD, "", 2, in, 1, &out);
    run(&c);
    for (int i = 0; i < N; i++)
        if (y[i] != a[i] + b[i]) fail_msg("y[%d] is %g", i, (double)y[i]);
    int32_t   id[2] = {12345, 3};
    weft_view g[2]  = {TENSOR(0, 2, 7),
                       weft_view_make(id, WEFT_DTYPE_I32, &(weft_shape){1, {2}})};
    out             = weft_view_make(y, WEFT_DTYPE_F32, &(weft_shape){2, {N / 7, 7}});
    c.op = WEFT_OP_EMBEDDING_GRAD, c.attr = attr(c.op, "rows=1857143"), c.in = g;
    run(&c);
    for (int i = 0; i < N; i++) {
        float want = i / 7 == 12345 ? *at(&g[0], i % 7)
                     : i / 7 == 3   ? *at(&g[0], 7 + i % 7)
                                    : 0.0f;
        if (y[i] != want) fail_msg("y[%d] is %g", i, (double)y[i]);
    }
    assert_true(y[N] == 5.0f);
    free(a), free(b), free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_pool(posts),
        with_pool(posts_bf16),
        with_pool(posts_of_experts),
        with_pool(loops_over_sums),
        with_pool(rows_over_a_base),
        with_pool(loss_and_gradient),
        with_pool(bad_label),
        with_pool(update_in_place),
        with_pool(results_not_kept),
        with_pool(far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
