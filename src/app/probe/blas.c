/* Matrix products by cublasLt: one product is one shape, its algorithm the library's own choice,
 * as frameworks take it. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe/cuda_priv.h"

/* Numbers of cublasLt.h. */
enum {
    DESC_TRANS_A      = 3,
    DESC_TRANS_B      = 4,
    PREF_SCRATCH      = 1,
    REAL_32           = 0,
    NOT_SUPPORTED     = 15,
    INVALID_VALUE     = 7,
    ARCHITECTURE_MISS = 8
};

typedef struct choice { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t   scratch_bytes;
    int      status;
    float    waves;
    int      reserved[4];
} choice;

#define ROWS                                                                             \
    ROW(Create, (void **))                                                               \
    ROW(Destroy, (void *))                                                               \
    ROW(MatmulDescCreate, (void **, int, int))                                           \
    ROW(MatmulDescDestroy, (void *))                                                     \
    ROW(MatmulDescSetAttribute, (void *, int, const void *, size_t))                     \
    ROW(MatrixLayoutCreate, (void **, int, uint64_t, uint64_t, int64_t))                 \
    ROW(MatrixLayoutDestroy, (void *))                                                   \
    ROW(MatmulPreferenceCreate, (void **))                                               \
    ROW(MatmulPreferenceDestroy, (void *))                                               \
    ROW(MatmulPreferenceSetAttribute, (void *, int, const void *, size_t))               \
    ROW(MatmulAlgoGetHeuristic,                                                          \
        (void *, void *, void *, void *, void *, void *, void *, int, choice *, int *))  \
    ROW(Matmul, (void *, void *, const void *, const void *, void *, const void *,       \
                 void *, const void *, const void *, void *, void *, void *,             \
                 const void *, void *, size_t, void *))

struct weft_probe__blas {
    void *lib, *handle;
#define ROW(name, parameters) int(*name) parameters;
    ROWS
#undef ROW
};

struct weft_probe__product {
    weft_probe__blas *blas;
    void             *desc, *a, *b, *c; /* a: the library's first operand, our second */
    choice            best;
};

/* ---- the library ---- */

static void *open_library(void)
{
    static const char *const at[] = {"", "/usr/local/cuda/lib64/"};
    for (size_t i = 0; i < WEFT_COUNT(at); i++)
        for (int version = 13; version >= 11; version--) {
            char file[64];
            snprintf(file, sizeof file, "%slibcublasLt.so.%d", at[i], version);
            void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
            if (lib) return lib;
        }
    return NULL;
}

static weft_status find(void *lib, const char *symbol, void **out)
{
    *out = dlsym(lib, symbol);
    return *out ? WEFT_OK : WEFT_FAIL(WEFT_ERR_IO, "libcublasLt has no %s", symbol);
}

static weft_status check(int code, const char *call)
{
    if (!code) return WEFT_OK;
    bool none =
        code == NOT_SUPPORTED || code == INVALID_VALUE || code == ARCHITECTURE_MISS;
    return WEFT_FAIL(none ? WEFT_ERR_NOFIT : WEFT_ERR_IO, "cublasLt%s fails with %d",
                     call, code);
}
#define CALL(b, name, ...) WEFT_TRY(check((b)->name(__VA_ARGS__), #name))

static weft_status open_all(weft_probe__blas *b)
{
    b->lib = open_library();
    if (!b->lib)
        return WEFT_FAIL(WEFT_ERR_IO, "libcublasLt is not here (LD_LIBRARY_PATH says "
                                      "where CUDA's libraries are)");
#define ROW(name, parameters) WEFT_TRY(find(b->lib, "cublasLt" #name, (void **)&b->name));
    ROWS
#undef ROW
        CALL(b, Create, &b->handle);
    return WEFT_OK;
}

weft_status weft_probe__blas_open(weft_probe__blas **out)
{
    weft_probe__blas *b = calloc(1, sizeof *b);
    if (!b) return WEFT_FAIL(WEFT_ERR_MEM, "no memory");
    weft_status st = open_all(b);
    if (st == WEFT_OK)
        *out = b;
    else
        weft_probe__blas_close(b);
    return st;
}

void weft_probe__blas_close(weft_probe__blas *b)
{
    if (b && b->handle) b->Destroy(b->handle);
    if (b && b->lib) dlclose(b->lib);
    free(b);
}

/* ---- one product ---- */

/* Its matrices are column by column, so it makes C' = B' A', and ours are what it takes for
 * transposed. */
static weft_status describe(weft_probe__product *p, const weft_probe__type *t,
                            weft_probe__form form, int64_t m, int64_t n, int64_t k)
{
    weft_probe__blas *b      = p->blas;
    int               flip_b = form == WEFT_PROBE_NT, flip_a = form == WEFT_PROBE_TN;
    uint64_t          M = (uint64_t)m, N = (uint64_t)n, K = (uint64_t)k;
    CALL(b, MatmulDescCreate, &p->desc, t->compute, REAL_32);
    CALL(b, MatmulDescSetAttribute, p->desc, DESC_TRANS_A, &flip_b, sizeof flip_b);
    CALL(b, MatmulDescSetAttribute, p->desc, DESC_TRANS_B, &flip_a, sizeof flip_a);
    CALL(b, MatrixLayoutCreate, &p->a, t->b, flip_b ? K : N, flip_b ? N : K,
         flip_b ? k : n);
    CALL(b, MatrixLayoutCreate, &p->b, t->a, flip_a ? M : K, flip_a ? K : M,
         flip_a ? m : k);
    CALL(b, MatrixLayoutCreate, &p->c, t->c, N, M, n);
    return WEFT_OK;
}

static weft_status choose(weft_probe__product *p, size_t scratch_bytes)
{
    weft_probe__blas *b     = p->blas;
    void             *wish  = NULL;
    uint64_t          bytes = scratch_bytes;
    int               n     = 0;
    CALL(b, MatmulPreferenceCreate, &wish);
    int code = b->MatmulPreferenceSetAttribute(wish, PREF_SCRATCH, &bytes, sizeof bytes);
    if (!code)
        code = b->MatmulAlgoGetHeuristic(b->handle, p->desc, p->a, p->b, p->c, p->c, wish,
                                         1, &p->best, &n);
    b->MatmulPreferenceDestroy(wish);
    WEFT_TRY(check(code, "MatmulAlgoGetHeuristic"));
    return n ? check(p->best.status, "MatmulAlgoGetHeuristic")
             : WEFT_FAIL(WEFT_ERR_NOFIT, "cublasLt has no such product here");
}

weft_status weft_probe__product_open(weft_probe__blas *b, const weft_probe__type *t,
                                     weft_probe__form form, int64_t m, int64_t n,
                                     int64_t k, size_t scratch_bytes,
                                     weft_probe__product **out)
{
    weft_probe__product *p = calloc(1, sizeof *p);
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "no memory");
    p->blas        = b;
    weft_status st = describe(p, t, form, m, n, k);
    if (st == WEFT_OK) st = choose(p, scratch_bytes);
    if (st == WEFT_OK)
        *out = p;
    else
        weft_probe__product_close(p);
    return st;
}

weft_status weft_probe__product_run(weft_probe__product *p, weft_cuda_ptr a,
                                    weft_cuda_ptr b, weft_cuda_ptr c,
                                    weft_cuda_ptr scratch, weft_cuda_handle stream)
{
    float one = 1, zero = 0;
    void *x = (void *)(uintptr_t)b, *y = (void *)(uintptr_t)a, *z = (void *)(uintptr_t)c;
    CALL(p->blas, Matmul, p->blas->handle, p->desc, &one, x, p->a, y, p->b, &zero, z,
         p->c, z, p->c, p->best.algorithm, (void *)(uintptr_t)scratch,
         p->best.scratch_bytes, stream);
    return WEFT_OK;
}

void weft_probe__product_close(weft_probe__product *p)
{
    if (!p) return;
    if (p->desc) p->blas->MatmulDescDestroy(p->desc);
    if (p->a) p->blas->MatrixLayoutDestroy(p->a);
    if (p->b) p->blas->MatrixLayoutDestroy(p->b);
    if (p->c) p->blas->MatrixLayoutDestroy(p->c);
    free(p);
}
