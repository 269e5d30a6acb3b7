/* The matrix product against a double-precision reference, and its promise that bits depend on
 * shapes alone: not on threads, on m and n, on the place in C, or on the vector instructions. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel/gemm.h"
#include "kernel/isa.h"
#include "support/test.h"

static uint64_t seed = 1;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static int64_t draw_to(int64_t n)
{
    return (int64_t)(draw() % (uint32_t)n);
}
static float draw_float(void)
{
    return (float)((int32_t)(draw() % 2001u) - 1000) / 512.0f;
}

static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static float of_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float    f;
    memcpy(&f, &u, 4);
    return f;
}

/* A matrix in memory of its own, with strides and a type. */
typedef struct mat {
    void      *p;
    weft_dtype t;
    int64_t    rs, cs, bs, n;
} mat;

static size_t size_of(weft_dtype t)
{
    return t == WEFT_DTYPE_F32 ? 4 : 2;
}

static float get(const mat *x, int64_t b, int64_t i, int64_t j)
{
    int64_t at = b * x->bs + i * x->rs + j * x->cs;
    return x->t == WEFT_DTYPE_F32 ? ((float *)x->p)[at] : of_bf16(((uint16_t *)x->p)[at]);
}

static mat mat_make(int64_t batch, int64_t rows, int64_t cols, int layout, weft_dtype t)
{
    mat x = {.t = t};

    switch (layout) { /* row major, column major, padded, with gaps both ways */
    case 0: x.rs = cols, x.cs = 1; break;
    case 1: x.rs = 1, x.cs = rows; break;
    case 2: x.rs = cols + 3, x.cs = 1; break;
    default: x.rs = 2 * cols + 1, x.cs = 2; break;
    }
    x.bs = layout == 1 ? cols * x.cs : rows * x.rs;
    x.n  = batch * x.bs + 1;
    x.p  = malloc((size_t)x.n *
                  size_of(t)); /* exact, so that a sanitizer sees any overrun */
    for (int64_t i = 0; i < x.n; i++) {
        float f = draw_float();
        if (t == WEFT_DTYPE_F32)
            ((float *)x.p)[i] = f;
        else
            ((uint16_t *)x.p)[i] = to_bf16(f);
    }
    return x;
}

static mat mat_copy(const mat *x)
{
    mat y = *x;
    y.p   = malloc((size_t)x->n * size_of(x->t));
    memcpy(y.p, x->p, (size_t)x->n * size_of(x->t));
    return y;
}

static void run(const weft_gemm *g, int n_gemm, weft_pool *pool, int n_thread)
{
    size_t n = (weft_gemm_scratch_many(g, n_gemm, n_thread) + 63) / 64 * 64;
    void  *s = aligned_alloc(64, n + 64);

    memset(s, 0xff, n);              /* NaNs: nothing may be read that was not written */
    memset((char *)s + n, 0x5a, 64); /* nothing may be written past the end */
    weft_gemm_run_many(g, n_gemm, pool, s);
    for (int i = 0; i < 64; i++)
        assert_int_equal(((unsigned char *)s)[n + (size_t)i], 0x5a);
    free(s);
}

static weft_gemm gemm_of(int64_t batch, int64_t m, int64_t n, int64_t k, const mat *a,
                         const mat *b, const mat *c)
{
    return (weft_gemm){.batch = batch,
                       .m     = m,
                       .n     = n,
                       .k     = k,
                       .a     = a->p,
                       .b     = b->p,
                       .c     = c->p,
                       .ta    = a->t,
                       .tb    = b->t,
                       .tc    = c->t,
                       .a_rs  = a->rs,
                       .a_cs  = a->cs,
                       .a_bs  = a->bs,
                       .b_rs  = b->rs,
                       .b_cs  = b->cs,
                       .b_bs  = b->bs,
                       .c_rs  = c->rs,
                       .c_cs  = c->cs,
                       .c_bs  = c->bs,
                       .alpha = 1.0f};
}

/* ---- reference ------------------------------------------------------------------------- */

static double cdf(double u)
{
    return 0.5 * erfc(-u * 0.70710678118654752);
}

static double act(weft_post_kind kind, double x, double u)
{
    const double c = 0.79788456080286536;
    double       v, s;

    switch (kind) {
    case WEFT_POST_ADD: return x + u;
    case WEFT_POST_MUL: return x * u;
    case WEFT_POST_GELU_TANH: return 0.5 * x * (1 + tanh(c * (x + 0.044715 * x * x * x)));
    case WEFT_POST_GELU_ERF: return x * cdf(x);
    case WEFT_POST_SILU: return x / (1 + exp(-x));
    case WEFT_POST_RELU: return x > 0 ? x : 0;
    case WEFT_POST_TANH: return tanh(x);
    case WEFT_POST_GELU_TANH_GRAD:
        v = tanh(c * (u + 0.044715 * u * u * u));
        return x *
               (0.5 * (1 + v) + 0.5 * u * (1 - v * v) * c * (1 + 3 * 0.044715 * u * u));
    case WEFT_POST_GELU_ERF_GRAD:
        return x * (cdf(u) + u * exp(-0.5 * u * u) * 0.39894228040143268);
    case WEFT_POST_SILU_GRAD: s = 1 / (1 + exp(-u)); return x * (s + u * s * (1 - s));
    case WEFT_POST_RELU_GRAD: return u > 0 ? x : 0;
    case WEFT_POST_TANH_GRAD: return x * (1 - u * u);
    default: return x;
    }
}

/* Checks every element; `was` is C before, `u` the steps' matrices. */
static void check(const weft_gemm *g, const mat *a, const mat *b, const mat *was,
                  const mat *now, const mat *u)
{
    for (int64_t e = 0; e < g->batch; e++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++) {
                double x = 0, size = 0, old = g->accumulate ? get(was, e, i, j) : 0.0;
                for (int64_t p = 0; p < g->k; p++) {
                    double t = (double)get(a, e, i, p) * (double)get(b, e, p, j);
                    x += t, size += fabs(t);
                }
                x    = old + (double)g->alpha * x;
                size = fabs(old) + fabs((double)g->alpha) * size + 1;
                for (int s = 0; s < g->n_post; s++) {
                    double us  = u[s].p ? get(u + s, e, i, j) : 0.0;
                    bool   f32 = u[s].t == WEFT_DTYPE_F32 && now->t == WEFT_DTYPE_F32;
                    if (g->post[s].kind == WEFT_POST_STORE)
                        assert_true(fabs(us - x) <= (f32 ? 4e-7 : 8e-3) * size);
                    x    = act(g->post[s].kind, x, us);
                    size = size * (1 + fabs(us)) + fabs(us);
                }
                double tol = (now->t == WEFT_DTYPE_F32 ? 4e-7 : 8e-3) * size;
                double got = get(now, e, i, j);
                if (!(fabs(got - x) <= tol))
                    fail_msg("%s batch %ld m %ld n %ld k %ld: c[%ld][%ld][%ld] = %.9g, "
                             "not %.9g",
                             weft_kernel_isa_name(weft_kernel_isa()), (long)g->batch,
                             (long)g->m, (long)g->n, (long)g->k, (long)e, (long)i,
                             (long)j, got, x);
            }
}

/* ---- values ---------------------------------------------------------------------------- */

static int64_t draw_size(int kind)
{
    static const int64_t edge[] = {1, 2, 5, 6, 7, 12, 13, 16, 17, 31, 32, 33, 48, 64, 65};
    return kind == 0 ? edge[draw_to(15)] : 1 + draw_to(kind == 1 ? 40 : 130);
}

static weft_dtype draw_type(void)
{
    return draw_to(3) == 0 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32;
}

static void one_random(weft_pool *pool)
{
    int64_t   batch = draw_to(5) == 0 ? 3 : 1;
    int64_t   m = draw_size((int)draw_to(3)), n = draw_size((int)draw_to(3));
    int64_t   k = draw_to(8) == 0 ? 380 + draw_to(20) : draw_size((int)draw_to(3));
    mat       a = mat_make(batch, m, k, (int)draw_to(4), draw_type());
    mat       b = mat_make(batch, k, n, (int)draw_to(4), draw_type());
    mat       c = mat_make(batch, m, n, (int)draw_to(4), draw_type()), was = mat_copy(&c);
    weft_gemm g    = gemm_of(batch, m, n, k, &a, &b, &c);
    mat       u[4] = {{0}};
    weft_gemm_post post[4];

    if (draw_to(12) == 0) g.k = 0;
    g.alpha      = draw_to(3) == 0 ? 0.375f : 1.0f;
    g.accumulate = (int)draw_to(2);
    g.n_post     = (int)draw_to(4);
    g.post       = post;
    for (int s = 0; s < g.n_post; s++) {
        post[s] = (weft_gemm_post){.kind = (weft_post_kind)draw_to(WEFT_N_POST)};
        if (post[s].kind > WEFT_POST_STORE && post[s].kind < WEFT_POST_GELU_TANH_GRAD)
            continue;
        u[s] = mat_make(batch, m, n, (int)draw_to(4), draw_type());
        if (post[s].kind == WEFT_POST_ADD && draw_to(2)) u[s].rs = 0; /* bias */
        post[s].p = u[s].p, post[s].dtype = u[s].t;
        post[s].rs = u[s].rs, post[s].cs = u[s].cs, post[s].bs = u[s].bs;
    }
    run(&g, 1, pool, pool ? 2 : 1);
    check(&g, &a, &b, &was, &c, u);
    for (int s = 0; s < 4; s++) free(u[s].p);
    free(a.p), free(b.p), free(c.p), free(was.p);
}

static void random_shapes(void **state)
{
    weft_pool *pool;

    (void)state;
    assert_int_equal(weft_pool_create(2, 0, &pool), WEFT_OK);
    for (int isa = 0; isa < WEFT_N_ISA; isa++) {
        if (!weft_kernel_isa_use((weft_isa)isa)) continue;
        for (int i = 0; i < 400; i += TEST_STRIDE(5)) one_random(i % 2 ? pool : NULL);
    }
    weft_pool_destroy(pool);
}

/* Several chunks of k; C in bf16 or with gaps keeps its partial sums elsewhere. */
static void long_k(void **state)
{
    (void)state;
    for (int isa = 0; isa < WEFT_N_ISA; isa++) {
        if (!weft_kernel_isa_use((weft_isa)isa)) continue;
        for (int i = 0; i < 6; i++) {
            int64_t        m = 9, n = 37, k = 2500;
            mat            a      = mat_make(2, m, k, i % 2, WEFT_DTYPE_F32);
            mat            b      = mat_make(2, k, n, 1 - i % 2, WEFT_DTYPE_F32);
            mat            c      = mat_make(2, m, n, i < 2 ? 0 : 3,
                             i < 4 ? WEFT_DTYPE_F32 : WEFT_DTYPE_BF16);
            mat            was    = mat_copy(&c);
            mat            bias   = mat_make(1, 1, n, 0, WEFT_DTYPE_F32);
            weft_gemm      g      = gemm_of(2, m, n, k, &a, &b, &c);
            weft_gemm_post post[] = {{.kind = WEFT_POST_ADD, .p = bias.p, .cs = 1},
                                     {.kind = WEFT_POST_RELU}};
            if (i % 3 == 0) g.post = post, g.n_post = 2;
            g.alpha      = i % 4 == 0 ? 1.0f : 0.5f;
            g.accumulate = i % 2;
            run(&g, 1, NULL, 1);
            mat u[2] = {{.p = bias.p, .t = WEFT_DTYPE_F32, .cs = 1}};
            check(&g, &a, &b, &was, &c, u);
            free(a.p), free(b.p), free(c.p), free(was.p), free(bias.p);
        }
    }
}

/* ---- bits ------------------------------------------------------------------------------ */

/* The whole product; then blocks of it alone, other threads, other instructions: the same bits. */
static void same_bits(void **state)
{
    static const int64_t shape[][3] = {{70, 200, 100}, {97, 131, 1500}, {300, 90, 800},
                                       {1600, 40, 33}, {40, 700, 385},  {513, 257, 129}};
    weft_pool           *pool[3];

    (void)state;
    for (int t = 0; t < 3; t++)
        assert_int_equal(weft_pool_create(t + 1, 0, pool + t), WEFT_OK);
    for (size_t q = 0; q < sizeof shape / sizeof shape[0]; q++) {
        int64_t        m = shape[q][0], n = shape[q][1], k = shape[q][2];
        mat            a = mat_make(1, m, k, 0, WEFT_DTYPE_F32);
        mat            b = mat_make(1, k, n, (int)q % 2, WEFT_DTYPE_F32);
        mat            c = mat_make(1, m, n, 0, WEFT_DTYPE_F32), d = mat_copy(&c);
        mat            bias   = mat_make(1, 1, n, 0, WEFT_DTYPE_F32);
        weft_gemm_post post[] = {{.kind = WEFT_POST_ADD, .p = bias.p, .cs = 1},
                                 {.kind = WEFT_POST_GELU_TANH}};
        weft_gemm      g      = gemm_of(1, m, n, k, &a, &b, &c);

        if (q % 2) g.post = post, g.n_post = 2;
        assert_true(weft_kernel_isa_use(WEFT_ISA_PLAIN));
        run(&g, 1, NULL, 1);
        for (int isa = 0; isa < WEFT_N_ISA; isa++) {
            if (!weft_kernel_isa_use((weft_isa)isa)) continue;
            weft_gemm h = g;
            h.c         = d.p;
            for (int t = 0; t < 3; t++) {
                memset(d.p, 0xff, (size_t)(m * n) * 4);
                run(&h, 1, pool[t], t + 1);
                assert_memory_equal(c.p, d.p, (size_t)(m * n) * 4);
            }
            if (isa == WEFT_ISA_PLAIN) continue;
            for (int t = 0; t < 8; t++) { /* a block of rows and columns alone */
                int64_t        i0 = draw_to(m), j0 = draw_to(n);
                weft_gemm      s      = g;
                weft_gemm_post cut[2] = {post[0], post[1]};
                s.m = 1 + draw_to(m - i0), s.n = 1 + draw_to(n - j0);
                s.a = (float *)a.p + i0 * a.rs, s.b = (float *)b.p + j0 * b.cs;
                s.c      = (float *)d.p + i0 * n + j0;
                cut[0].p = (float *)bias.p + j0;
                if (q % 2) s.post = cut;
                for (int64_t i = 0; i < s.m; i++)
                    memset((float *)s.c + i * n, 0xff, (size_t)s.n * 4);
                run(&s, 1, pool[1], 2);
                assert_memory_equal(c.p, d.p, (size_t)(m * n) * 4);
            }
        }
        free(a.p), free(b.p), free(c.p), free(d.p), free(bias.p);
    }
    for (int t = 0; t < 3; t++) weft_pool_destroy(pool[t]);
}

/* A long k, C and a bias and a residual added by the last tiles: the bits of one after the other.
 */
static void added_bits(void **state)
{
    enum {
        M = 100,
        N = 265,
        K = 2048
    };
    mat a = mat_make(1, M, K, 0, WEFT_DTYPE_F32),
        b = mat_make(1, K, N, 0, WEFT_DTYPE_F32),
        c = mat_make(1, M, N, 0, WEFT_DTYPE_F32), d = mat_copy(&c), want = mat_copy(&c),
        bias              = mat_make(1, 1, N, 0, WEFT_DTYPE_F32),
        rest              = mat_make(1, M, N, 0, WEFT_DTYPE_F32);
    weft_gemm_post post[] = {
        {.kind = WEFT_POST_ADD, .p = bias.p, .cs = 1},
        {.kind = WEFT_POST_ADD, .p = rest.p, .rs = N, .cs = 1},
    };
    weft_gemm  g = gemm_of(1, M, N, K, &a, &b, &want);
    weft_pool *pool;
    float     *w = want.p, *u = bias.p, *v = rest.p;

    (void)state;
    assert_int_equal(weft_pool_create(2, 0, &pool), WEFT_OK);
    for (g.accumulate = 0; g.accumulate < 2; g.accumulate++) {
        memcpy(want.p, c.p, sizeof(float) * M * N);
        assert_true(weft_kernel_isa_use(WEFT_ISA_PLAIN));
        run(&g, 1, NULL, 1);
        for (int i = 0; i < M * N; i++) w[i] = v[i] + (u[i % N] + w[i]);
        for (int isa = 0; isa < WEFT_N_ISA; isa++) {
            weft_gemm h = g;
            if (!weft_kernel_isa_use((weft_isa)isa)) continue;
            h.c = d.p, h.post = post, h.n_post = 2;
            memcpy(d.p, c.p, sizeof(float) * M * N);
            run(&h, 1, pool, 2);
            assert_memory_equal(want.p, d.p, sizeof(float) * M * N);
        }
    }
    weft_pool_destroy(pool);
    free(a.p), free(b.p), free(c.p), free(d.p), free(want.p), free(bias.p), free(rest.p);
}

/* Every step on values of every size: vector forms have the plain form's bits. */
static void step_bits(void **state)
{
    enum {
        N = 4096
    };
    static float x[N], u[N], plain[N], y[N];
    float        one = 1.0f;
    weft_gemm    g   = weft_gemm_make(N, 1, 1, x, 1, 1, &one, 1, 1, plain, 1);

    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = draw_float() * ldexpf(1.0f, (int)draw_to(40) - 30);
        u[i] = draw_float() * ldexpf(1.0f, (int)draw_to(12) - 6);
    }
    for (int kind = 0; kind < WEFT_N_POST; kind++) {
        weft_gemm_post post = {(weft_post_kind)kind, u, WEFT_DTYPE_F32, 1, 1, 0};
        if (kind == WEFT_POST_STORE) continue;
        g.post = &post, g.n_post = 1;
        for (int wide = 0; wide < 2; wide++) { /* as a column, as a row */
            weft_gemm h =
                wide ? weft_gemm_make(1, N, 1, &one, 1, 1, x, 1, 1, plain, N) : g;
            h.post = &post, h.n_post = 1, h.c = plain;
            assert_true(weft_kernel_isa_use(WEFT_ISA_PLAIN));
            run(&h, 1, NULL, 1);
            for (int isa = 1; isa < WEFT_N_ISA; isa++) {
                if (!weft_kernel_isa_use((weft_isa)isa)) continue;
                h.c = y;
                run(&h, 1, NULL, 1);
                assert_memory_equal(plain, y, sizeof y);
            }
        }
    }
}

/* Column-major C is computed as the transposed product: the same bits. */
static void turned_bits(void **state)
{
    int64_t m = 77, n = 45, k = 500;
    mat     a   = mat_make(1, m, k, 0, WEFT_DTYPE_F32),
        b       = mat_make(1, k, n, 0, WEFT_DTYPE_F32);
    mat c       = mat_make(1, m, n, 0, WEFT_DTYPE_F32),
        d       = mat_make(1, m, n, 1, WEFT_DTYPE_F32);
    weft_gemm g = gemm_of(1, m, n, k, &a, &b, &c), h = gemm_of(1, m, n, k, &a, &b, &d);

    (void)state;
    run(&g, 1, NULL, 1);
    run(&h, 1, NULL, 1);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float x = get(&c, 0, i, j), y = get(&d, 0, i, j);
            assert_memory_equal(&x, &y, 4);
        }
    free(a.p), free(b.p), free(c.p), free(d.p);
}

/* Experts: ragged rows of one matrix, each group with its own weights, some empty. */
static void many(void **state)
{
    enum {
        N = 6
    };
    static const int64_t rows[N] = {5, 0, 70, 1, 33, 14};
    int64_t              n = 96, k = 160, total = 123, r = 0;
    mat                  a = mat_make(1, total, k, 0, WEFT_DTYPE_F32);
    mat                  b = mat_make(N, k, n, 0, WEFT_DTYPE_F32);
    mat                  c = mat_make(1, total, n, 0, WEFT_DTYPE_F32), d = mat_copy(&c);
    weft_gemm            g[N];
    weft_pool           *pool;

    (void)state;
    assert_int_equal(weft_pool_create(2, 0, &pool), WEFT_OK);
    for (int i = 0; i < N; r += rows[i++]) {
        g[i]          = weft_gemm_make(rows[i], n, k, (float *)a.p + r * k, k, 1,
                                       (float *)b.p + i * b.bs, n, 1, (float *)c.p + r * n, n);
        weft_gemm one = g[i];
        one.c         = (float *)d.p + r * n;
        run(&one, 1, NULL, 1);
    }
    run(g, N, pool, 2);
    assert_memory_equal(c.p, d.p, (size_t)(total * n) * 4);
    for (int i = 0; i < N; i++) { /* scratch for the bound is enough for less */
        weft_gemm more = g[i];
        more.m         = total;
        assert_true(weft_gemm_scratch(&more, 2) >= weft_gemm_scratch(g + i, 2));
    }
    weft_pool_destroy(pool);
    free(a.p), free(b.p), free(c.p), free(d.p);
}

/* A C past the size from which it is stored around the caches, rows not aligned to lines. */
static void large_c(void **state)
{
    int64_t m = 70, n = 100003, k = 3;
    mat     a   = mat_make(1, m, k, 0, WEFT_DTYPE_F32),
        b       = mat_make(1, k, n, 0, WEFT_DTYPE_F32);
    mat       c = mat_make(1, m, n, 0, WEFT_DTYPE_F32);
    weft_gemm g = gemm_of(1, m, n, k, &a, &b, &c);

    (void)state;
    for (int isa = 1; isa < WEFT_N_ISA; isa++) {
        if (!weft_kernel_isa_use((weft_isa)isa)) continue;
        memset(c.p, 0xff, (size_t)(m * n) * 4);
        run(&g, 1, NULL, 1);
        check(&g, &a, &b, &c, &c, NULL);
    }
    free(a.p), free(b.p), free(c.p);
}

/* ---- work that is dropped ---- */

enum {
    PAGE = 4096
};

static struct {
    _Atomic bool stop;
    char        *page;
} trap;

/* The first to read the page finds that the work is dropped. */
static void drop_work(int signal, siginfo_t *i, void *context)
{
    (void)context;
    if ((char *)i->si_addr < trap.page || (char *)i->si_addr >= trap.page + PAGE)
        _exit(128 + signal);
    atomic_store(&trap.stop, true);
    mprotect(trap.page, PAGE, PROT_READ | PROT_WRITE);
}

/* In the middle of a strip, so that this task ends early as well; no later task begins. */
static void a_product_ends_early(void **state)
{
    enum {
        M = 512, /* rows of A, which is shared */
        N = 768,
        K = PAGE / sizeof(float)
    };
    struct sigaction traps = {.sa_sigaction = drop_work, .sa_flags = SA_SIGINFO}, before;
    size_t           bytes = (size_t)M * K * sizeof(float);
    float           *a     = aligned_alloc(PAGE, bytes);
    float           *b     = calloc((size_t)K * N, sizeof *b);
    float           *c     = calloc((size_t)M * N, sizeof *c);
    weft_pool       *threads, *pool;
    (void)state;
    memset(a, 0, bytes);
    assert_ok(weft_pool_create(1, 0, &threads));
    assert_ok(weft_pool_share(threads, &trap.stop, &pool));
    weft_gemm g = weft_gemm_make(M, N, K, a, K, 1, b, N, 1, c, N);
    for (int64_t i = 0; i < (int64_t)M * N; i++) c[i] = 7;
    trap.page = (char *)(a + (int64_t)M / 2 * K);
    sigaction(SIGSEGV, &traps, &before);
    assert_int_equal(mprotect(trap.page, PAGE, PROT_NONE), 0);
    run(&g, 1, pool, 1);
    sigaction(SIGSEGV, &before, NULL);
    assert_true(atomic_load(&trap.stop));
    assert_true(c[0] == 0);                    /* it had begun */
    assert_true(c[(int64_t)(M - 1) * N] == 7); /* the rest of its strip */
    assert_true(c[(int64_t)M * N - 1] == 7); /* and other strips are left as they were */
    assert_true(c[N - 1] == 7);
    weft_pool_destroy(pool);
    weft_pool_destroy(threads);
    free(a);
    free(b);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_ends_early),
        cmocka_unit_test(random_shapes),
        test_sanitized(long_k),
        test_plain(same_bits),
        cmocka_unit_test(turned_bits),
        cmocka_unit_test(step_bits),
        cmocka_unit_test(many),
        test_sanitized(large_c),
        test_plain(added_bits),
    };
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
