/* libcublasLt of the tests: the symbols of plugin/cuda/library.h, computed on the CPU.  It
 * refuses what the real library
 * refuses: leading dimensions that are too small, epilogues without their operands, addresses
 * that are less aligned than the algorithm was asked for, sums that are split in no fixed order,
 * a workspace that is too small; of fp8 what sm_90 has not.  Its sums begin at another term for
 * each question (sizes, strides, alignments, epilogue, workspace), so that products of which one
 * was asked otherwise than the other have other bits. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub/call.h"

enum {
    OK          = 0,
    BAD_VALUE   = 7,
    NOT_HERE    = 15,
    TYPE_F32    = 0,
    TYPE_BF16   = 14,
    TYPE_E4M3   = 28,
    TYPE_E5M2   = 29,
    SCALE_ROWS  = 3,
    COMPUTE_F32 = 68,
    BIAS        = 4,
    GELU        = 32,
    DGELU       = 64,
    AUX         = 128,
    MAGIC       = 0x5afe
};

typedef struct layout {
    int      type;
    uint64_t rows, cols;
    int64_t  ld, stride;
    int32_t  batch;
} layout;

typedef struct desc {
    int          trans[2], epilogue;
    const void  *bias;
    void        *aux;
    int64_t      aux_ld;
    int32_t      scale_mode[2]; /* of A, B */
    const float *scale[2];
    int8_t       fast;
} desc;

typedef struct preference {
    uint64_t workspace;
    uint32_t schemes, align[4];
} preference;

typedef struct algo {
    uint64_t word[8]; /* magic, workspace, alignments, where sums begin */
} algo;

typedef struct offer {
    algo   a;
    size_t workspace;
    int    status;
    float  waves;
    int    reserved[4];
} offer;

/* How many calls of cublasLtMatmul there were: tests look it up. */
int stub_blas_matmuls;

static int is_fp8(int type)
{
    return type == TYPE_E4M3 || type == TYPE_E5M2;
}

static int64_t type_bytes(int type)
{
    return is_fp8(type) ? 1 : type == TYPE_BF16 ? 2 : 4;
}

/* e4m3 has no infinity and one NaN; e5m2 is the upper byte of an fp16. */
static float read_code(uint8_t code, int type)
{
    int   keep = type == TYPE_E4M3 ? 3 : 2, bias = type == TYPE_E4M3 ? 7 : 15;
    int   e = (code & 0x7f) >> keep, m = code & ((1 << keep) - 1);
    float x = ldexpf((float)(e ? m + (1 << keep) : m), (e ? e : 1) - bias - keep);
    if (type == TYPE_E4M3 ? (code & 0x7f) == 0x7f : e == 31 && m) x = NAN;
    if (type == TYPE_E5M2 && e == 31 && !m) x = INFINITY;
    return code & 0x80 ? -x : x;
}

static float read_float(const void *p, int type, int64_t i)
{
    union {
        uint32_t u;
        float    f;
    } v;
    if (type == TYPE_F32) return ((const float *)p)[i];
    if (is_fp8(type)) return read_code(((const uint8_t *)p)[i], type);
    v.u = (uint32_t)((const uint16_t *)p)[i] << 16;
    return v.f;
}

static void write_float(void *p, int type, int64_t i, float x)
{
    union {
        uint32_t u;
        float    f;
    } v = {.f = x};
    if (type == TYPE_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = (uint16_t)((v.u + 0x7fffu + (v.u >> 16 & 1u)) >> 16);
}

size_t cublasLtGetVersion(void);
size_t cublasLtGetVersion(void)
{
    const char *version = getenv("WEFT_STUB_BLAS"); /* another version */
    return version ? (size_t)atol(version) : 130100;
}

int cublasLtCreate(void **h);
int cublasLtCreate(void **h)
{
    if (stub_enter(__func__)) return 14;
    *h = malloc(1);
    return *h ? OK : 3;
}

int cublasLtDestroy(void *h);
int cublasLtDestroy(void *h)
{
    if (stub_enter(__func__)) return 14;
    free(h);
    return OK;
}

int cublasLtMatmulDescCreate(void **out, int compute, int scale);
int cublasLtMatmulDescCreate(void **out, int compute, int scale)
{
    if (stub_enter(__func__)) return 14;
    desc *d = calloc(1, sizeof *d);
    if (compute != COMPUTE_F32 || scale != TYPE_F32 || !d) return free(d), NOT_HERE;
    d->epilogue = 1;
    *out        = d;
    return OK;
}

int cublasLtMatmulDescDestroy(void *d);
int cublasLtMatmulDescDestroy(void *d)
{
    if (stub_enter(__func__)) return 14;
    free(d);
    return OK;
}

static int take(void *to, size_t want, const void *from, size_t n)
{
    if (n != want) return BAD_VALUE;
    memcpy(to, from, n);
    return OK;
}

int cublasLtMatmulDescSetAttribute(void *x, int what, const void *p, size_t n);
int cublasLtMatmulDescSetAttribute(void *x, int what, const void *p, size_t n)
{
    if (stub_enter(__func__)) return 14;
    desc *d = x;
    switch (what) {
    case 3:
    case 4: return take(&d->trans[what - 3], sizeof d->trans[0], p, n);
    case 7: return take(&d->epilogue, sizeof d->epilogue, p, n);
    case 8: return take(&d->bias, sizeof d->bias, p, n);
    case 11: return take(&d->aux, sizeof d->aux, p, n);
    case 12: return take(&d->aux_ld, sizeof d->aux_ld, p, n);
    case 17:
    case 18: return take(&d->scale[what - 17], sizeof d->scale[0], p, n);
    case 25: return take(&d->fast, sizeof d->fast, p, n);
    case 31:
    case 32: return take(&d->scale_mode[what - 31], sizeof d->scale_mode[0], p, n);
    default: return BAD_VALUE;
    }
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols,
                               int64_t ld);
int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols,
                               int64_t ld)
{
    if (stub_enter(__func__)) return 14;
    layout *l = malloc(sizeof *l);
    if (!l || (type != TYPE_F32 && type != TYPE_BF16 && !is_fp8(type)) || !rows ||
        !cols || ld < (int64_t)rows)
        return free(l), BAD_VALUE;
    *l   = (layout){.type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
    *out = l;
    return OK;
}

int cublasLtMatrixLayoutDestroy(void *l);
int cublasLtMatrixLayoutDestroy(void *l)
{
    if (stub_enter(__func__)) return 14;
    free(l);
    return OK;
}

int cublasLtMatrixLayoutSetAttribute(void *x, int what, const void *p, size_t n);
int cublasLtMatrixLayoutSetAttribute(void *x, int what, const void *p, size_t n)
{
    if (stub_enter(__func__)) return 14;
    layout *l = x;
    if (what == 5) return take(&l->batch, sizeof l->batch, p, n);
    if (what == 6) return take(&l->stride, sizeof l->stride, p, n);
    return BAD_VALUE;
}

int cublasLtMatmulPreferenceCreate(void **out);
int cublasLtMatmulPreferenceCreate(void **out)
{
    if (stub_enter(__func__)) return 14;
    preference *p = malloc(sizeof *p);
    if (!p) return 3;
    *p   = (preference){.schemes = 7, .align = {256, 256, 256, 256}};
    *out = p;
    return OK;
}

int cublasLtMatmulPreferenceDestroy(void *p);
int cublasLtMatmulPreferenceDestroy(void *p)
{
    if (stub_enter(__func__)) return 14;
    free(p);
    return OK;
}

int cublasLtMatmulPreferenceSetAttribute(void *x, int what, const void *p, size_t n);
int cublasLtMatmulPreferenceSetAttribute(void *x, int what, const void *p, size_t n)
{
    if (stub_enter(__func__)) return 14;
    preference *f = x;
    if (what == 1) return take(&f->workspace, sizeof f->workspace, p, n);
    if (what == 3) return take(&f->schemes, sizeof f->schemes, p, n);
    if (what >= 5 && what <= 8)
        return take(&f->align[what - 5], sizeof f->align[0], p, n);
    return BAD_VALUE;
}

/* Both operands with k contiguous, sizes and rows in multiples of 16 bytes, not both e5m2, a scale
 * for each row and column; of epilogues a bias alone. */
static int check_fp8(const desc *d, const layout *a, const layout *b, const layout *y)
{
    const layout *l[3] = {a, b, y};
    if (!is_fp8(a->type) || !is_fp8(b->type)) return NOT_HERE;
    if (a->type == TYPE_E5M2 && b->type == TYPE_E5M2) return NOT_HERE;
    if (!d->trans[0] || d->trans[1] || a->rows % 16 || y->rows % 16) return NOT_HERE;
    for (int i = 0; i < 3; i++)
        if (l[i]->ld * type_bytes(l[i]->type) % 16) return NOT_HERE;
    for (int i = 0; i < 2; i++)
        if (d->scale_mode[i] != SCALE_ROWS || !d->scale[i]) return NOT_HERE;
    return d->epilogue & ~(1 | BIAS) || a->batch > 1 ? NOT_HERE : OK;
}

/* Do the matrices fit each other and the epilogue? */
static int check(const desc *d, const layout *a, const layout *b, const layout *c,
                 const layout *y)
{
    uint64_t m = d->trans[0] ? a->cols : a->rows, k = d->trans[0] ? a->rows : a->cols;
    uint64_t n = d->trans[1] ? b->rows : b->cols, k2 = d->trans[1] ? b->cols : b->rows;
    if (k != k2 || m != y->rows || n != y->cols || c->rows != m || c->cols != n)
        return BAD_VALUE;
    if (a->batch != b->batch || a->batch != c->batch || a->batch != y->batch)
        return BAD_VALUE;
    if (c->type != y->type || is_fp8(y->type)) return NOT_HERE;
    if (is_fp8(a->type) || is_fp8(b->type)) {
        int st = check_fp8(d, a, b, y);
        if (st) return st;
    } else if (a->type != b->type) {
        return NOT_HERE;
    }
    if (a->type == TYPE_F32 && y->type != TYPE_F32) return NOT_HERE;
    if (d->epilogue & BIAS && (!d->bias || a->batch > 1)) return BAD_VALUE;
    if (d->epilogue & AUX &&
        (!d->aux || d->aux_ld < (int64_t)m || d->aux_ld % 8 || m % 8 || a->batch > 1))
        return BAD_VALUE;
    if (d->epilogue & ~(1 | BIAS | GELU | DGELU | AUX)) return NOT_HERE;
    return OK;
}

static uint64_t hash_word(uint64_t h, uint64_t x) /* FNV-1a by words */
{
    return (h ^ x) * 1099511628211u;
}

/* All that an answer may depend on. */
static uint64_t hash_question(const desc *d, const layout *l[4], const preference *f)
{
    uint64_t h = 14695981039346656037u;
    h          = hash_word(h, (uint64_t)(d->trans[0] * 2 + d->trans[1]));
    h          = hash_word(h, (uint64_t)d->epilogue);
    for (int i = 0; i < 4; i++) {
        h = hash_word(h, (uint64_t)l[i]->type * 4096 + (uint64_t)l[i]->batch);
        h = hash_word(hash_word(h, l[i]->rows), l[i]->cols);
        h = hash_word(hash_word(h, (uint64_t)l[i]->ld), (uint64_t)l[i]->stride);
        h = hash_word(h, f->align[i]);
    }
    return hash_word(h, f->workspace) >> 16;
}

/* WEFT_STUB_BLAS_LOG: a line for each question. */
static void log_question(const desc *d, const layout *l[4], const preference *f)
{
    const char *path = getenv("WEFT_STUB_BLAS_LOG");
    FILE       *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%c%c epilogue %d", d->trans[0] ? 'T' : 'N', d->trans[1] ? 'T' : 'N',
            d->epilogue);
    for (int i = 0; i < 4; i++) {
        const layout *x = l[i];
        fprintf(file, ", %c %d %lu x %lu ld %ld batch %d %ld align %u", "abcd"[i],
                x -> type, (unsigned long)x -> rows, (unsigned long)x -> cols,
                (long)x -> ld, x -> batch, (long)x -> stride, f -> align[i]);
    }
    fprintf(file, ", workspace %lu\n", (unsigned long)f->workspace);
    fclose(file);
}

int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *y,
                                   void *x, int most, offer *o, int *n);
int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *y,
                                   void *x, int most, offer *o, int *n)
{
    if (stub_enter(__func__)) return 14;
    const preference *f  = x;
    int               st = check(d, a, b, c, y);
    (void)h;
    *n = 0;
    if (st) return st;
    if (f->schemes & 5u || most < 1) return NOT_HERE; /* in place, or in bf16 */
    const layout *l[4] = {a, b, c, y};
    log_question(d, l, f);
    memset(o, 0, sizeof *o);
    o->a.word[0] = MAGIC;
    o->a.word[1] = o->workspace = (size_t)(f->workspace < 4096 ? f->workspace : 4096);
    for (int i = 0; i < 4; i++) o->a.word[2 + i] = f->align[i];
    o->a.word[6] = hash_question(d, l, f);
    *n           = 1;
    return OK;
}

int cublasLtMatmulAlgoCheck(void *h, void *d, void *a, void *b, void *c, void *y,
                            const algo *g, offer *o);
int cublasLtMatmulAlgoCheck(void *h, void *d, void *a, void *b, void *c, void *y,
                            const algo *g, offer *o)
{
    if (stub_enter(__func__)) return 14;
    (void)h;
    if (g->word[0] != MAGIC) return NOT_HERE;
    o->workspace = (size_t)g->word[1];
    return check(d, a, b, c, y);
}

/* Algorithms have nothing to set. */
int cublasLtMatmulAlgoConfigSetAttribute(algo *g, int what, const void *p, size_t n);
int cublasLtMatmulAlgoConfigSetAttribute(algo *g, int what, const void *p, size_t n)
{
    (void)g, (void)what, (void)p, (void)n;
    return NOT_HERE;
}

static float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float u)
{
    float t = tanhf(0.7978845608f * (u + 0.044715f * u * u * u));
    return 0.5f * (1 + t) +
           0.5f * u * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * u * u);
}

static float finish(const desc *d, int type, int64_t i, int64_t j, float x)
{
    int64_t at = j * d->aux_ld + i;
    if (d->epilogue & BIAS) x += read_float(d->bias, type, i);
    if (d->epilogue & GELU) {
        if (d->epilogue & AUX) write_float(d->aux, type, at, x);
        x = gelu(x);
    }
    if (d->epilogue & DGELU) x *= gelu_slope(read_float(d->aux, type, at));
    return x;
}

static void multiply(const desc *d, uint64_t from, float alpha, const void *pa,
                     const layout *a, const void *pb, const layout *b, float beta,
                     const void *pc, const layout *c, void *py, const layout *y,
                     int64_t batch)
{
    int64_t k = (int64_t)(d->trans[0] ? a->rows : a->cols);
    for (int64_t j = 0; j < (int64_t)y->cols; j++)
        for (int64_t i = 0; i < (int64_t)y->rows; i++) {
            float sum = 0;
            for (int64_t t = 0; t < k; t++) {
                int64_t l = (int64_t)(((uint64_t)t + from) % (uint64_t)k);
                sum += read_float(pa, a->type,
                                  batch * a->stride +
                                      (d->trans[0] ? i * a->ld + l : l * a->ld + i)) *
                       read_float(pb, b->type,
                                  batch * b->stride +
                                      (d->trans[1] ? l * b->ld + j : j * b->ld + l));
            }
            if (is_fp8(a->type)) sum *= d->scale[0][i] * d->scale[1][j];
            sum *= alpha;
            if (beta != 0)
                sum += beta * read_float(pc, c->type, batch * c->stride + j * c->ld + i);
            write_float(py, y->type, batch * y->stride + j * y->ld + i,
                        finish(d, y->type, i, j, sum));
        }
}

typedef struct product {
    desc        d;
    float       alpha, beta;
    const void *a, *b, *c;
    void       *y, *workspace;
    layout      la, lb, lc, ly;
    size_t      bytes;
    uint64_t    from;
} product;

static void run_product(const void *args)
{
    const product *p = args;
    memset(p->workspace, 0x5a, p->bytes);
    for (int64_t k = 0; k < p->ly.batch; k++)
        multiply(&p->d, p->from, p->alpha, p->a, &p->la, p->b, &p->lb, p->beta, p->c,
                 &p->lc, p->y, &p->ly, k);
}

int cublasLtMatmul(void *h, void *d, const float *alpha, const void *a, void *la,
                   const void *b, void *lb, const float *beta, const void *c, void *lc,
                   void *y, void *ly, const algo *g, void *workspace, size_t bytes,
                   void *stream);
int cublasLtMatmul(void *h, void *d, const float *alpha, const void *a, void *la,
                   const void *b, void *lb, const float *beta, const void *c, void *lc,
                   void *y, void *ly, const algo *g, void *workspace, size_t bytes,
                   void *stream)
{
    const void *p[4] = {a, b, c, y};
    int         st   = check(d, la, lb, lc, ly);
    (void)h;
    if (st) return st;
    if (g->word[0] != MAGIC || bytes < g->word[1]) return BAD_VALUE;
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)p[i] % g->word[2 + i]) return BAD_VALUE;
    stub_blas_matmuls++;
    product x = {.d = *(desc *)d, .alpha = *alpha, .beta = *beta, .a = a, .b = b, .c = c};
    x.y       = y;
    x.la = *(layout *)la, x.lb = *(layout *)lb, x.lc = *(layout *)lc,
    x.ly        = *(layout *)ly;
    x.workspace = workspace;
    x.bytes     = (size_t)g->word[1];
    x.from      = g->word[6];
    return stub_call(stream, "cublasLtMatmul", run_product, &x, sizeof x) ? 13 : OK;
}
