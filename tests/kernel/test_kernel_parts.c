/* Pieces put together are the whole: kernels told where their part of a vocabulary, a sequence, a
 * table, a random mask or a set of experts begins, and the operators that combine what they give.
 */
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

static weft_view room(weft_dtype t, int n, const int64_t *d)
{
    weft_shape s = weft_shape_make(n, d);
    weft_view  v = weft_view_make(NULL, t, &s);
    v.p          = WEFT_ARENA_ARRAY(arena, float, weft_shape_count(&s) + 1);
    assert_non_null(v.p);
    return v;
}
#define ROOM(t, ...)                                                                     \
    room(WEFT_DTYPE_##t, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8),                    \
         (int64_t[]){__VA_ARGS__})

static weft_view numbers(weft_view v)
{
    for (int64_t i = 0; i < weft_shape_count(&v.shape); i++)
        ((float *)v.p)[i] = 4.0f * weft_random_uniform(test_draw()) - 2.0f;
    return v;
}
/* below n; one in eight is `none` */
static weft_view ids(weft_view v, uint32_t n, int32_t none)
{
    for (int64_t i = 0; i < weft_shape_count(&v.shape); i++)
        ((int32_t *)v.p)[i] = test_draw() % 8 ? (int32_t)(test_draw() % n) : none;
    return v;
}

/* Positions [lo, hi) of dimension d, as a tensor of its own. */
static weft_view part(const weft_view *v, int d, int64_t lo, int64_t hi)
{
    int64_t   before = 1, behind = 1, n = v->shape.d[d];
    weft_view y = *v;
    for (int k = 0; k < d; k++) before *= v->shape.d[k];
    for (int k = d + 1; k < v->shape.n; k++) behind *= v->shape.d[k];
    y.shape.d[d] = hi - lo;
    y            = room(v->dtype, v->shape.n, y.shape.d);
    for (int64_t b = 0; b < before; b++)
        memcpy((float *)y.p + b * (hi - lo) * behind,
               (float *)v->p + (b * n + lo) * behind,
               sizeof(float) * (size_t)((hi - lo) * behind));
    return y;
}
/* ... and back. */
static void put(const weft_view *v, int d, int64_t lo, const weft_view *y)
{
    int64_t before = 1, behind = 1, n = v->shape.d[d], m = y->shape.d[d];
    for (int k = 0; k < d; k++) before *= v->shape.d[k];
    for (int k = d + 1; k < v->shape.n; k++) behind *= v->shape.d[k];
    for (int64_t b = 0; b < before; b++)
        memcpy((float *)v->p + (b * n + lo) * behind, (float *)y->p + b * m * behind,
               sizeof(float) * (size_t)(m * behind));
}
static void add(const weft_view *to, const weft_view *x)
{
    for (int64_t i = 0; i < weft_shape_count(&to->shape); i++)
        ((float *)to->p)[i] += ((const float *)x->p)[i];
}

/* Runs op; results are made by its shape rule. */
static void run(weft_op op, const char *text, int n_in, const weft_view *in, int n_out,
                weft_view *out)
{
    weft_attr       *attr = WEFT_ARENA_ARRAY(arena, weft_attr, WEFT_MAX_ATTR);
    weft_type        ti[8], to[4];
    weft_op_use      u                     = {op, attr, n_in, n_out, ti, to};
    weft_kernel_call c                     = {.op        = op,
                                              .attr      = attr,
                                              .n_in      = n_in,
                                              .n_own_in  = n_in,
                                              .n_out     = n_out,
                                              .n_own_out = n_out,
                                              .in        = in,
                                              .out       = out};
    static const weft_step_scalars scalars = {.seed = 9, .step = 4, .sample = 6};
    for (int i = 0; i < n_in; i++) ti[i] = (weft_type){in[i].dtype, in[i].shape};
    if (weft_op_parse_attr(op, text, arena, attr) != WEFT_OK ||
        weft_op_infer(&u, to) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    for (int j = 0; j < n_out; j++)
        out[j] = room(to[j].dtype, to[j].shape.n, to[j].shape.d);
    if (test_kernel_once(&c, pool, &scalars) != WEFT_OK)
        fail_msg("%s", weft_error_text());
}
#define RUN(op, text, n_out, out, ...)                                                   \
    run(WEFT_OP_##op, text,                                                              \
        (int)(sizeof((weft_view[]){__VA_ARGS__}) / sizeof(weft_view)),                   \
        (weft_view[]){__VA_ARGS__}, n_out, out)

static void near(const weft_view *a, const weft_view *b, double tol, const char *what)
{
    double  size = 0;
    int64_t n    = weft_shape_count(&a->shape);
    assert_int_equal(n, weft_shape_count(&b->shape));
    for (int64_t i = 0; i < n; i++)
        if (isfinite(((float *)b->p)[i])) size = fmax(size, fabs(((float *)b->p)[i]));
    for (int64_t i = 0; i < n; i++) {
        double x = (double)((float *)a->p)[i], y = (double)((float *)b->p)[i];
        if (x != y && !(fabs(x - y) <= tol * size))
            fail_msg("%s[%ld] is %.9g, whole %.9g", what, (long)i, x, y);
    }
}
static const char *attr_text(const char *form, ...)
{
    char   *t = weft_arena_alloc(arena, 128);
    va_list ap;
    va_start(ap, form);
    vsnprintf(t, 128, form, ap);
    va_end(ap);
    return t;
}

/* A vocabulary in four parts, uneven and one of them without any label. */
static void vocabulary(void **state)
{
    (void)state;
    enum {
        ROWS = 37,
        V    = 301,
        P    = 4
    };
    const int64_t cut[P + 1] = {0, 100, 101, 299, V};
    weft_view     x = numbers(ROOM(F32, ROWS, V)), y = ids(ROOM(I32, ROWS), V, -100);
    weft_view     w    = numbers(ROOM(F32, ROWS)), whole[2], merged[2], d[1];
    weft_view     loss = ROOM(F32, P, ROWS), lse = ROOM(F32, P, ROWS),
              all = ROOM(F32, ROWS, V);
    RUN(CROSS_ENTROPY, "", 2, whole, x, y);
    for (int p = 0; p < P; p++) {
        weft_view own = part(&x, 1, cut[p], cut[p + 1]), r[2];
        RUN(CROSS_ENTROPY, attr_text("first=%ld", (long)cut[p]), 2, r, own, y);
        memcpy((float *)loss.p + p * ROWS, r[0].p, sizeof(float) * ROWS);
        memcpy((float *)lse.p + p * ROWS, r[1].p, sizeof(float) * ROWS);
    }
    RUN(CROSS_ENTROPY_MERGE, "", 2, merged, loss, lse, y);
    near(&merged[0], &whole[0], 1e-6, "loss");
    near(&merged[1], &whole[1], 1e-6, "lse");
    for (int p = 0; p < P; p++) {
        weft_view own = part(&x, 1, cut[p], cut[p + 1]);
        RUN(CROSS_ENTROPY_GRAD, attr_text("first=%ld", (long)cut[p]), 1, d, own, y,
            merged[1], w);
        put(&all, 1, cut[p], d);
    }
    RUN(CROSS_ENTROPY_GRAD, "", 1, d, x, y, whole[1], w);
    near(&all, d, 1e-5, "dlogits");
}

/* A table in parts: each gives zeros for others' rows, and its gradient only its own. */
static void table(void **state)
{
    (void)state;
    const int64_t cut[4] = {0, 3, 3, 29};
    weft_view t = numbers(ROOM(F32, 29, 17)), y = ids(ROOM(I32, 5, 31), 29, 7), whole[1];
    weft_view sum = ROOM(F32, 5, 31, 17), dy = numbers(ROOM(F32, 5, 31, 17)), d[1];
    weft_view all = ROOM(F32, 29, 17);
    memset(sum.p, 0, sizeof(float) * 5 * 31 * 17);
    for (int p = 0; p < 3; p++) {
        weft_view own = part(&t, 0, cut[p], cut[p + 1]), r[1];
        RUN(EMBEDDING, attr_text("first=%ld", (long)cut[p]), 1, r, own, y);
        add(&sum, &r[0]);
        RUN(EMBEDDING_GRAD,
            attr_text("rows=%ld first=%ld pad=7", (long)(cut[p + 1] - cut[p]),
                      (long)cut[p]),
            1, d, dy, y);
        put(&all, 0, cut[p], d);
    }
    RUN(EMBEDDING, "", 1, whole, t, y);
    near(&sum, whole, 0, "rows");
    RUN(EMBEDDING_GRAD, "rows=29 pad=7", 1, d, dy, y);
    near(&all, d, 0, "dtable");
}

/* Queries of one run against keys in parts, in the order a ring brings them; gradients with the
 * merged statistics, dk and dv added up. */
static void ring(const char *more, int64_t s)
{
    enum {
        B = 2,
        H = 4,
        G = 2,
        E = 16,
        P = 4
    };
    weft_view q = numbers(ROOM(F32, B, s, H, E)), k = numbers(ROOM(F32, B, s, G, E));
    weft_view v = numbers(ROOM(F32, B, s, G, E)), dy = numbers(ROOM(F32, B, s, H, E));
    weft_view whole[2], dw[3], o = ROOM(F32, B, s, H, E), dq = ROOM(F32, B, s, H, E);
    weft_view dk = ROOM(F32, B, s, G, E), dv = ROOM(F32, B, s, G, E);
    int64_t   at[P + 1];
    memset(dk.p, 0, sizeof(float) * (size_t)(B * s * G * E));
    memset(dv.p, 0, sizeof(float) * (size_t)(B * s * G * E));
    for (int p = 0; p <= P; p++) at[p] = s * p / P;
    RUN(ATTENTION, more, 2, whole, q, k, v);
    RUN(ATTENTION_GRAD, more, 3, dw, dy, q, k, v, whole[0], whole[1]);
    for (int p = 0; p < P; p++) {
        weft_view own  = part(&q, 1, at[p], at[p + 1]), sum[2], r[2], g[3];
        weft_view mine = part(&dy, 1, at[p], at[p + 1]), dq_own;
        for (int i = 0; i < P; i++) {
            int       c  = (p + P - i) % P;
            weft_view kc = part(&k, 1, at[c], at[c + 1]),
                      vc = part(&v, 1, at[c], at[c + 1]);
            RUN(ATTENTION,
                attr_text("%s q_first=%ld k_first=%ld", more, (long)at[p], (long)at[c]),
                2, i ? r : sum, own, kc, vc);
            if (i) RUN(ATTENTION_MERGE, "", 2, sum, sum[0], sum[1], r[0], r[1]);
        }
        put(&o, 1, at[p], &sum[0]);
        for (int c = 0; c < P; c++) {
            weft_view kc    = part(&k, 1, at[c], at[c + 1]),
                      vc    = part(&v, 1, at[c], at[c + 1]);
            weft_view to[2] = {part(&dk, 1, at[c], at[c + 1]),
                               part(&dv, 1, at[c], at[c + 1])};
            RUN(ATTENTION_GRAD,
                attr_text("%s q_first=%ld k_first=%ld", more, (long)at[p], (long)at[c]),
                3, g, mine, own, kc, vc, sum[0], sum[1]);
            if (c)
                add(&dq_own, &g[0]);
            else
                dq_own = g[0];
            add(&to[0], &g[1]);
            add(&to[1], &g[2]);
            put(&dk, 1, at[c], &to[0]);
            put(&dv, 1, at[c], &to[1]);
        }
        put(&dq, 1, at[p], &dq_own);
    }
    near(&o, &whole[0], 2e-6, "o");
    near(&dq, &dw[0], 1e-5, "dq");
    near(&dk, &dw[1], 1e-5, "dk");
    near(&dv, &dw[2], 1e-5, "dv");
}
static void rings(void **state)
{
    (void)state;
    ring("", 64);
    ring("", 203);
    ring("window=50", 203);
    ring("causal=0", 130);
}

/* Queries in two runs, first and last: what zigzag gives a rank. */
static void two_runs(void **state)
{
    (void)state;
    weft_view q = numbers(ROOM(F32, 1, 96, 2, 8)), k = numbers(ROOM(F32, 1, 96, 1, 8));
    weft_view v = numbers(ROOM(F32, 1, 96, 1, 8)), o = ROOM(F32, 1, 96, 2, 8), whole[2];
    RUN(ATTENTION, "", 2, whole, q, k, v);
    for (int64_t i = 0; i < 96; i += 12) {
        weft_view own = part(&q, 1, i, i + 12), r[2];
        RUN(ATTENTION, attr_text("q_first=%ld", (long)i), 2, r, own, k, v);
        put(&o, 1, i, &r[0]);
    }
    near(&o, &whole[0], 2e-6, "o");
}

static void turned(void **state)
{
    (void)state;
    weft_view x = numbers(ROOM(F32, 2, 50, 3, 16)), y = ROOM(F32, 2, 50, 3, 16), whole[1];
    const int64_t cut[4] = {0, 7, 33, 50};
    RUN(ROTARY, "theta=500", 1, whole, x);
    for (int p = 0; p < 3; p++) {
        weft_view own = part(&x, 1, cut[p], cut[p + 1]), r[1];
        RUN(ROTARY, attr_text("theta=500 first=%ld", (long)cut[p]), 1, r, own);
        put(&y, 1, cut[p], r);
    }
    near(&y, whole, 0, "y");
}

/* Cut along every dimension, at places that are no multiples of four. */
static void masks(void **state)
{
    (void)state;
    weft_view     x      = numbers(ROOM(F32, 5, 23, 211)), whole[1];
    const int64_t mid[3] = {2, 9, 99};
    RUN(DROPOUT, "p=0.3 id=11", 1, whole, x);
    for (int d = 0; d < 3; d++) {
        weft_view y = ROOM(F32, 5, 23, 211);
        for (int h = 0; h < 2; h++) {
            int64_t at[3] = {0, 0, 0}, hi = h ? x.shape.d[d] : mid[d];
            at[d]         = h ? mid[d] : 0;
            weft_view own = part(&x, d, at[d], hi), r[1];
            RUN(DROPOUT,
                attr_text("p=0.3 id=11 at=[%ld,%ld,%ld] whole=[5,23,211]", (long)at[0],
                          (long)at[1], (long)at[2]),
                1, r, own);
            put(&y, d, at[d], r);
        }
        near(&y, whole, 0, "mask");
    }
}

/* Experts on three parts, the middle one without any: what each combines adds up to the whole.
 * bias: all tokens choose the same two. */
static void experts(bool same)
{
    enum {
        N = 40,
        K = 2,
        D = 24,
        F = 20,
        X = 5
    };
    const int64_t cut[4] = {0, 2, 2, X};
    weft_view     x = numbers(ROOM(F32, N, D)), w = numbers(ROOM(F32, N, K)),
              idx = ROOM(I32, N, K);
    weft_view up = numbers(ROOM(F32, X, F, D)), down = numbers(ROOM(F32, X, D, F));
    weft_view dy = numbers(ROOM(F32, N, D));
    weft_view sum[3], parts[3];
    for (int64_t i = 0; i < N; i++)
        for (int s = 0; s < K; s++)
            ((int32_t *)idx.p)[i * K + s] = same ? 3 + s : (int32_t)((i + 2 * s) % X);
    for (int p = -1; p < 3; p++) {
        int64_t   lo = p < 0 ? 0 : cut[p], hi = p < 0 ? X : cut[p + 1];
        weft_view r[3], h[1], z[1], y[1], g[2], dh[1], dr[1], dx[1];
        weft_view u = part(&up, 0, lo, hi), o = part(&down, 0, lo, hi);
        RUN(DISPATCH,
            attr_text("experts=%d first_expert=%ld own=%ld", X, (long)lo,
                      (long)(hi - lo)),
            3, r, x, idx);
        weft_view off = part(&r[1], 0, lo, hi + 1);
        RUN(GROUPED_MATMUL, "", 1, h, r[0], u, off);
        RUN(GROUPED_MATMUL, "", 1, z, h[0], o, off);
        RUN(COMBINE, "", 1, y, z[0], w, r[2]);
        RUN(COMBINE_GRAD, "", 2, g, dy, z[0], w, r[2]);
        RUN(GROUPED_MATMUL, "trans=0", 1, dh, g[0], o, off);
        RUN(GROUPED_MATMUL, "trans=0", 1, dr, dh[0], u, off);
        RUN(DISPATCH_GRAD, attr_text("k=%d", K), 1, dx, dr[0], r[2]);
        weft_view *to = p < 0 ? sum : parts;
        if (p <= 0)
            to[0] = y[0], to[1] = g[1], to[2] = dx[0];
        else
            add(&to[0], y), add(&to[1], &g[1]), add(&to[2], dx);
    }
    near(&parts[0], &sum[0], 1e-6, "y");
    near(&parts[1], &sum[1], 1e-6, "dw");
    near(&parts[2], &sum[2], 1e-6, "dx");
}
static void own_experts(void **state)
{
    (void)state;
    experts(false);
    experts(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_pool(vocabulary),  with_pool(table),  with_pool(rings),
        with_pool(two_runs),    with_pool(turned), with_pool(masks),
        with_pool(own_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
