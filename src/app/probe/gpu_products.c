/* Matrix products of a GPU by type and shape: squares, and those of a layer's three passes.
 *
 * Operands are random (a GPU draws less power, and runs faster, on zeros) and change from call to
 * call, so that no cache holds them.  The device works for a second first: what it holds then
 * is what training gets. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/gpu_priv.h"

enum {
    SCRATCH = 32 << 20, /* what frameworks give the library */
    PATTERN = 4 << 20,  /* bytes of operands that differ */
    ALIGN   = 1024,
    REAL_32 = 0,
    REAL_16 = 2,
    BRAIN   = 14, /* bf16 */
    E4M3    = 28,
    E5M2    = 29,
    SUM_32  = 68,
    SUM_TF  = 77
};
#define WARM_S    1.0
#define PRODUCT_S 0.045
#define STEADY    0.1 /* the same product may be so far apart, else all is measured again */
#define WILD      0.5 /* and so far the second time */

static const weft_probe__type type[] = {
    {"bf16", BRAIN, BRAIN, BRAIN, SUM_32, 2},
    {"f16", REAL_16, REAL_16, REAL_16, SUM_32, 2},
    {"f8_e4m3", E4M3, E4M3, BRAIN, SUM_32, 1},
    {"f8_e5m2", E5M2, E4M3, BRAIN, SUM_32, 1}, /* gradients by weights */
    {"tf32", REAL_32, REAL_32, REAL_32, SUM_TF, 4},
    {"f32", REAL_32, REAL_32, REAL_32, SUM_32, 4},
};

typedef struct shape {
    int64_t          m, n, k;
    weft_probe__form form;
} shape;

typedef struct running {
    weft_probe__bench   *b;
    weft_probe__blas    *blas;
    weft_probe__product *p;
    size_t               a, both, c; /* bytes of A, of A and B, of C */
    size_t               in, out;    /* of the area: operands first, results behind */
    int                  n_in, n_out;
} running;

/* ---- operands ---- */

static uint32_t next(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

/* Numbers of both signs from 1/16 up to 2 with random digits, as the type stores them. */
static void fill(void *host, size_t bytes, int kind)
{
    uint32_t seed = 2463534242u, *w = host;
    for (size_t i = 0; i < bytes / 4; i++) {
        uint32_t r = next(&seed), word = 0;
        int      each = kind == REAL_32 ? 1 : kind == REAL_16 || kind == BRAIN ? 2 : 4;
        for (int k = 0; k < each; k++, r = next(&seed)) {
            uint32_t sign = r >> 31, step = (r >> 28) & 3, digits = r & 0xffffff, x;
            switch (kind) {
            case REAL_32: x = sign << 31 | (123 + step) << 23 | digits >> 1; break;
            case BRAIN: x = sign << 15 | (123 + step) << 7 | digits >> 17; break;
            case REAL_16: x = sign << 15 | (11 + step) << 10 | digits >> 14; break;
            case E4M3: x = sign << 7 | (3 + step) << 3 | digits >> 21; break;
            default: x = sign << 7 | (11 + step) << 2 | digits >> 22; break;
            }
            word |= x << (32 / each * k);
        }
        w[i] = word;
    }
}

static weft_status fill_area(weft_probe__bench *b, int kind)
{
    fill(b->host, PATTERN, kind);
    for (size_t at = PATTERN; at < b->host_bytes; at += PATTERN)
        memcpy((char *)b->host + at, b->host, PATTERN);
    for (size_t at = 0; at < b->bytes; at += b->host_bytes)
        WEFT_CUDA(b->c, CopyIn, b->area + at, b->host, b->host_bytes, b->stream);
    WEFT_CUDA(b->c, StreamSynchronize, b->stream);
    return WEFT_OK;
}

/* ---- one product ---- */

static weft_status run_product(void *arg, int i)
{
    running      *r  = arg;
    weft_cuda_ptr in = r->b->area + SCRATCH + (size_t)(i % r->n_in) * r->both;
    weft_cuda_ptr c  = r->b->area + SCRATCH + r->in + (size_t)(i % r->n_out) * r->c;
    return weft_probe__product_run(r->p, in, in + r->a, c, r->b->area, r->b->stream);
}

static size_t rounded(int64_t n, int bytes)
{
    return ((size_t)n * (size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* *s 0: the library has no such product, or it is too large for the memory there is. */
static weft_status time_product(running *r, const weft_probe__type *t, const shape *x,
                                double least_s, double *s)
{
    *s      = 0;
    r->a    = rounded(x->m * x->k, t->bytes);
    r->both = r->a + rounded(x->k * x->n, t->bytes);
    r->c    = rounded(x->m * x->n, t->c == REAL_32 ? 4 : 2);
    r->in   = (r->b->bytes - SCRATCH) / 4 * 3 / ALIGN * ALIGN;
    r->out  = r->b->bytes - SCRATCH - r->in;
    if (r->both > r->in || r->c > r->out) return WEFT_OK;
    r->n_in  = (int)(r->in / r->both);
    r->n_out = (int)(r->out / r->c);
    weft_status st =
        weft_probe__product_open(r->blas, t, x->form, x->m, x->n, x->k, SCRATCH, &r->p);
    if (st == WEFT_ERR_NOFIT) return WEFT_OK;
    WEFT_TRY(st);
    st = weft_probe__bench_time(r->b, run_product, r, least_s, s);
    weft_probe__product_close(r->p);
    return st;
}

/* ---- all ---- */

static weft_status add(running *r, const weft_probe__type *t, shape x, weft_probe_gpu *g)
{
    double s;
    if (g->n_product == WEFT_PROBE_GPU_PRODUCTS) return WEFT_OK;
    if (x.form != WEFT_PROBE_NT && t->bytes == 1) return WEFT_OK; /* none such */
    WEFT_TRY(time_product(r, t, &x, PRODUCT_S, &s));
    if (s > 0)
        g->product[g->n_product++] = (weft_probe_gpu_product){.dtype = t->dtype,
                                                              .bytes = t->bytes,
                                                              .m     = (double)x.m,
                                                              .n     = (double)x.n,
                                                              .k     = (double)x.k,
                                                              .s     = s};
    return WEFT_OK;
}

/* A feed-forward layer of width h on so many tokens: forward, and both gradients. */
static weft_status add_layer(running *r, const weft_probe__type *t, int64_t tokens,
                             int64_t h, weft_probe_gpu *g)
{
    WEFT_TRY(add(r, t, (shape){tokens, 4 * h, h, WEFT_PROBE_NT}, g));
    WEFT_TRY(add(r, t, (shape){tokens, h, 4 * h, WEFT_PROBE_NT}, g));
    WEFT_TRY(add(r, t, (shape){tokens, h, 3 * h, WEFT_PROBE_NN}, g));
    return add(r, t, (shape){4 * h, h, tokens, WEFT_PROBE_TN}, g);
}

static weft_status time_type(running *r, const weft_probe__type *t, bool wide,
                             weft_probe_gpu *g)
{
    static const int64_t side[] = {512, 1024, 2048, 4096, 8192};
    WEFT_TRY(fill_area(r->b, t->a));
    for (size_t i = 0; i < WEFT_COUNT(side); i++)
        WEFT_TRY(add(r, t, (shape){side[i], side[i], side[i], WEFT_PROBE_NT}, g));
    for (int64_t h = wide ? 1024 : 2048; h <= (wide ? 4096 : 2048); h *= 2)
        for (int64_t n = wide ? 1024 : 4096; n <= (wide ? 16384 : 4096); n *= 4)
            WEFT_TRY(add_layer(r, t, n, h, g));
    if (!wide) return WEFT_OK;
    WEFT_TRY(add(r, t, (shape){4096, 50304, 2048, WEFT_PROBE_NT}, g)); /* a vocabulary */
    WEFT_TRY(add(r, t, (shape){4096, 2048, 50304, WEFT_PROBE_NN}, g));
    return add(r, t, (shape){50304, 2048, 4096, WEFT_PROBE_TN}, g);
}

/* The one that is timed again and again: large, of the fastest type for training that there is. */
static weft_status time_same(running *r, double least_s, int *first, double *s)
{
    static const shape x = {4096, 4096, 4096, WEFT_PROBE_NT};
    *s                   = 0;
    for (*first = 0; *first < (int)WEFT_COUNT(type); ++*first) {
        if (type[*first].bytes == 1) continue;
        WEFT_TRY(fill_area(r->b, type[*first].a));
        WEFT_TRY(time_product(r, &type[*first], &x, least_s, s));
        if (*s > 0) return WEFT_OK;
    }
    return WEFT_FAIL(WEFT_ERR_NOFIT, "cublasLt makes no product of 4096 here");
}

static weft_status sweep(running *r, weft_probe_gpu *g)
{
    double before, after;
    int    first;
    g->n_product = 0;
    WEFT_TRY(time_same(r, WARM_S, &first, &before));
    WEFT_TRY(time_same(r, PRODUCT_S, &first, &before));
    for (int i = 0; i < (int)WEFT_COUNT(type); i++)
        WEFT_TRY(time_type(r, &type[i], i == first, g));
    WEFT_TRY(time_same(r, PRODUCT_S, &first, &after));
    g->drift = fmax(before, after) / fmin(before, after) - 1;
    return WEFT_OK;
}

weft_status weft_probe__time_products(weft_probe__bench *b, weft_probe_gpu *g)
{
    running     r  = {.b = b};
    weft_status st = weft_probe__blas_open(&r.blas);
    b->queue       = true;
    if (st == WEFT_OK) st = sweep(&r, g);
    if (st == WEFT_OK && g->drift > STEADY) st = sweep(&r, g);
    if (st == WEFT_OK && g->drift > WILD)
        st = WEFT_FAIL(WEFT_ERR_IO,
                       "one of them takes %.0f %% longer at times: others use "
                       "this GPU",
                       100 * g->drift);
    if (st != WEFT_OK) g->n_product = 0;
    b->queue = false;
    weft_probe__blas_close(r.blas);
    return st;
}
