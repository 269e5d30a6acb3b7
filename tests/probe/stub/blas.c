/* The symbols that src/app/probe asks of libcublasLt, over the stub driver's clock. */
#include "stub/stated.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef STUB_OLD /* a library that lacks it */
#define cublasLtMatmul cublasLtMatmulOfLater
#endif

typedef struct layout {
    int      type;
    uint64_t rows, cols;
    int64_t  ld;
} layout;

typedef struct desc {
    int compute, flip[2];
} desc;

typedef struct result {
    uint64_t algorithm[8];
    size_t   scratch;
    int      status;
    float    waves;
    int      reserved[4];
} result;

enum {
    OK          = 0,
    BAD         = 7,
    NOT_HERE    = 15,
    REAL_32     = 0,
    REAL_16     = 2,
    BRAIN       = 14,
    E4M3        = 28,
    E5M2        = 29,
    SUM_32      = 68,
    SUM_TF      = 77,
    LEAST_ALIGN = 16
};

int cublasLtCreate(void **h);
int cublasLtCreate(void **h)
{
    *h = malloc(1);
    return stub_fails("cublasLtCreate") ? 1 : OK;
}

int cublasLtDestroy(void *h);
int cublasLtDestroy(void *h)
{
    free(h);
    return OK;
}

int cublasLtMatmulDescCreate(desc **d, int compute, int scale);
int cublasLtMatmulDescCreate(desc **d, int compute, int scale)
{
    if (scale != REAL_32) return BAD;
    *d            = calloc(1, sizeof **d);
    (*d)->compute = compute;
    return OK;
}

int cublasLtMatmulDescDestroy(desc *d);
int cublasLtMatmulDescDestroy(desc *d)
{
    free(d);
    return OK;
}

int cublasLtMatmulDescSetAttribute(desc *d, int what, const void *p, size_t n);
int cublasLtMatmulDescSetAttribute(desc *d, int what, const void *p, size_t n)
{
    if ((what != 3 && what != 4) || n != sizeof(int)) return BAD;
    memcpy(&d->flip[what - 3], p, n);
    return OK;
}

int cublasLtMatrixLayoutCreate(layout **l, int type, uint64_t rows, uint64_t cols,
                               int64_t ld);
int cublasLtMatrixLayoutCreate(layout **l, int type, uint64_t rows, uint64_t cols,
                               int64_t ld)
{
    if ((uint64_t)ld < rows) return BAD;
    *l  = calloc(1, sizeof **l);
    **l = (layout){type, rows, cols, ld};
    return OK;
}

int cublasLtMatrixLayoutDestroy(layout *l);
int cublasLtMatrixLayoutDestroy(layout *l)
{
    free(l);
    return OK;
}

int cublasLtMatmulPreferenceCreate(void **p);
int cublasLtMatmulPreferenceCreate(void **p)
{
    *p = malloc(1);
    return OK;
}

int cublasLtMatmulPreferenceDestroy(void *p);
int cublasLtMatmulPreferenceDestroy(void *p)
{
    free(p);
    return OK;
}

int cublasLtMatmulPreferenceSetAttribute(void *p, int what, const void *x, size_t n);
int cublasLtMatmulPreferenceSetAttribute(void *p, int what, const void *x, size_t n)
{
    (void)p, (void)x;
    return what == 1 && n == sizeof(uint64_t) ? OK : BAD;
}

/* Sizes that do not fit together are a mistake of the caller's, as with the real one. */
static int meet(const desc *d, const layout *a, const layout *b, const layout *c,
                uint64_t *k)
{
    uint64_t n = d->flip[0] ? a->cols : a->rows, k_a = d->flip[0] ? a->rows : a->cols;
    uint64_t m = d->flip[1] ? b->rows : b->cols, k_b = d->flip[1] ? b->cols : b->rows;
    *k = k_a;
    return k_a == k_b && c->rows == n && c->cols == m;
}

int cublasLtMatmulAlgoGetHeuristic(void *h, desc *d, layout *a, layout *b, layout *c,
                                   layout *out, void *wish, int want, result *r, int *n);
int cublasLtMatmulAlgoGetHeuristic(void *h, desc *d, layout *a, layout *b, layout *c,
                                   layout *out, void *wish, int want, result *r, int *n)
{
    uint64_t k;
    (void)h, (void)out, (void)wish;
    memset(r, 0, sizeof *r);
    *n = 0;
    if (!meet(d, a, b, c, &k) || want < 1) return BAD;
    if ((a->type >= E4M3) != (b->type >= E4M3)) return NOT_HERE;
    if (a->type == E5M2 || (a->type >= E4M3 && (!d->flip[0] || d->flip[1])))
        return NOT_HERE; /* 8 bits: rows by rows only, and one operand e4m3 */
    if (d->compute == SUM_TF && a->type != REAL_32) return NOT_HERE;
    if (stub_fails("f8") && a->type >= E4M3) return NOT_HERE;
    *n = 1;
    return OK;
}

static double saturate(double x, double half)
{
    return x / (x + half);
}

static double seconds(const desc *d, const layout *a, const layout *c, double k, int b)
{
    double m = (double)c->cols, n = (double)c->rows, half = STATED_HALF;
    double rate = STATED_PEAK * STATED_BF16, bytes = 2, longer = half;
    if (a->type == REAL_16) rate = STATED_PEAK * STATED_F16;
    if (a->type == REAL_32 && d->compute == SUM_TF) rate = STATED_PEAK / 2 * STATED_TF32;
    if (a->type == REAL_32 && d->compute == SUM_32) rate = STATED_PEAK_32 * STATED_F32;
    if (a->type == REAL_32) bytes = 4;
    if (a->type >= E4M3) {
        rate   = STATED_PEAK_8 * STATED_F8;
        bytes  = 1;
        longer = half * STATED_PEAK_8 / STATED_PEAK;
    }
    (void)b;
    double s =
        2 * m * n * k / (rate * saturate(k, longer) * saturate(m * n, 6 * half * half));
    double least = bytes * (m * k + k * n + m * n) / STATED_STREAM;
    return (s > least ? s : least) + STATED_LAUNCH_S;
}

int cublasLtMatmul(void *h, desc *d, const float *alpha, const void *x, layout *a,
                   const void *y, layout *b, const float *beta, const void *z, layout *c,
                   void *out, layout *o, const void *algorithm, void *scratch,
                   size_t scratch_bytes, void *stream);
int cublasLtMatmul(void *h, desc *d, const float *alpha, const void *x, layout *a,
                   const void *y, layout *b, const float *beta, const void *z, layout *c,
                   void *out, layout *o, const void *algorithm, void *scratch,
                   size_t scratch_bytes, void *stream)
{
    uint64_t k;
    (void)h, (void)z, (void)o, (void)algorithm, (void)scratch, (void)scratch_bytes;
    (void)stream;
    if (!meet(d, a, b, c, &k) || *alpha != 1 || *beta != 0) return BAD;
    if ((uintptr_t)x % LEAST_ALIGN || (uintptr_t)y % LEAST_ALIGN ||
        (uintptr_t)out % LEAST_ALIGN)
        return BAD;
    stub_advance(seconds(d, a, c, (double)k, b->type));
    return stub_fails("cublasLtMatmul") ? 13 : OK;
}
