/* Matrix products of training steps: ours beside OpenBLAS, BLIS and oneDNN, in turn in one process.
 *
 *     cc -O2 -std=c11 -D_GNU_SOURCE -Iinclude -Isrc/core -Isrc/ir -Isrc/runtime \
 *        bench/micro/gemm.c build/libweft.a -lm -lpthread -ldl -o build/bench_gemm
 *     OMP_NUM_THREADS=2 build/bench_gemm [threads [seconds a case [filter]]] > out.csv
 *
 * The peers are opened at run time where they are installed.  With several threads the serial
 * OpenBLAS and BLIS get one part of the longer side of C each (our pool); oneDNN uses its own
 * OpenMP threads.  Every product is timed by the wall clock; with one thread by the thread's
 * processor time, which other processes disturb less. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernel/gemm.h"
#include "kernel/isa.h"

enum {
    MAX_ROUND = 60,
    N_LIB     = 5
};
static const char *const lib_name[N_LIB] = {"weft", "weft-avx2", "openblas", "blis",
                                            "onednn"};

typedef void cblas_fn(int, int, int, int, int, int, float, const float *, int,
                      const float *, int, float, float *, int);
typedef int  dnnl_fn(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                     const float *, int64_t, float, float *, int64_t);

static cblas_fn  *openblas, *blis;
static dnnl_fn   *dnnl;
static weft_pool *pool;
static int        n_thread = 1;
static void      *scratch;
static size_t     scratch_bytes;

/* C (m,n) = op(A) op(B), all row major; ta: A is stored (k,m), tb: B is stored (n,k). */
typedef struct product {
    int64_t      m, n, k;
    int          ta, tb, accumulate;
    const float *a, *b;
    float       *c;
} product;

static double now(void)
{
    struct timespec t;
    clock_gettime(n_thread == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void call_cblas(cblas_fn *f, const product *p, int64_t i0, int64_t i1, int64_t j0,
                       int64_t j1)
{
    int64_t lda = p->ta ? p->m : p->k, ldb = p->tb ? p->k : p->n;

    f(101, p->ta ? 112 : 111, p->tb ? 112 : 111, (int)(i1 - i0), (int)(j1 - j0),
      (int)p->k, 1.0f, p->a + (p->ta ? i0 : i0 * lda), (int)lda,
      p->b + (p->tb ? j0 * ldb : j0), (int)ldb, (float)p->accumulate,
      p->c + i0 * p->n + j0, (int)p->n);
}

typedef struct part {
    cblas_fn      *f;
    const product *p;
} part;

static void part_task(void *arg, int64_t t, int thread)
{
    const part *q = arg;
    int64_t     m = q->p->m, n = q->p->n, parts = n_thread;

    (void)thread;
    if (m > n)
        call_cblas(q->f, q->p, m * t / parts, m * (t + 1) / parts, 0, n);
    else
        call_cblas(q->f, q->p, 0, m, n * t / parts, n * (t + 1) / parts);
}

static void call_weft(const product *p)
{
    weft_gemm g =
        weft_gemm_make(p->m, p->n, p->k, p->a, p->ta ? 1 : p->k, p->ta ? p->m : 1, p->b,
                       p->tb ? 1 : p->n, p->tb ? p->k : 1, p->c, p->n);
    g.accumulate = p->accumulate;
    size_t need  = weft_gemm_scratch(&g, n_thread);
    if (need > scratch_bytes) {
        free(scratch);
        scratch       = aligned_alloc(4096, (need + 4095) / 4096 * 4096);
        scratch_bytes = need;
    }
    weft_gemm_run(&g, pool, scratch);
}

static int call(int lib, const product *p)
{
    part q = {lib == 2 ? openblas : blis, p};

    switch (lib) {
    case 0:
    case 1:
        if (!weft_kernel_isa_use(lib ? WEFT_ISA_AVX2 : WEFT_ISA_AVX512)) return 0;
        call_weft(p);
        return 1;
    case 4:
        if (dnnl)
            dnnl(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->m, p->n, p->k, 1.0f, p->a,
                 p->ta ? p->m : p->k, p->b, p->tb ? p->k : p->n, (float)p->accumulate,
                 p->c, p->n);
        return dnnl != NULL;
    default:
        if (q.f) weft_pool_run(pool, n_thread, part_task, &q);
        return q.f != NULL;
    }
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static float *floats(int64_t n)
{
    float   *p = aligned_alloc(4096, ((size_t)n * 4 + 8191) / 4096 * 4096);
    uint32_t s = 12345;
    for (int64_t i = 0; i < n; i++) {
        s    = s * 1664525u + 1013904223u;
        p[i] = (float)(int32_t)s * 0x1p-31f;
    }
    return p;
}

static void bench(const char *name, int64_t m, int64_t n, int64_t k, int ta, int tb,
                  int acc, double seconds)
{
    float  *a = floats(m * k), *b = floats(k * n), *c = floats(m * n), *d = floats(m * n);
    product p   = {m, n, k, ta, tb, acc, a, b, c};
    double flop = 2.0 * (double)m * (double)n * (double)k, begin, best_peer = 0, ours = 0;
    double t[N_LIB][MAX_ROUND];
    int    n_round = 0, inner = flop < 5e7 ? (int)(5e7 / flop) : 1, have[N_LIB];

    for (int l = 0; l < N_LIB; l++) { /* warm, and compare with ours */
        p.c = l ? d : c;
        if (acc) memset(p.c, 0, (size_t)(m * n) * 4);
        have[l]    = call(l, &p);
        double err = 0;
        for (int64_t i = 0; l && have[l] && i < m * n; i += 1 + m * n / 9973)
            err = fmax(err, fabs((double)c[i] - (double)d[i]));
        if (err > 1e-5 * (double)k)
            fprintf(stderr, "%s %s: differs by %g\n", name, lib_name[l], err);
    }
    p.c   = c;
    begin = now();
    while (n_round < MAX_ROUND && (n_round < 3 || now() - begin < seconds)) {
        for (int l = 0; l < N_LIB; l++) {
            if (!have[l]) continue;
            double t0 = now();
            for (int i = 0; i < inner; i++) call(l, &p);
            t[l][n_round] = (now() - t0) / inner;
        }
        n_round++;
    }
    printf("%s,%s%s%s,%ld,%ld,%ld,%d,%d", name, ta ? "T" : "N", tb ? "T" : "N",
           acc ? "+" : "", (long)m, (long)n, (long)k, n_thread, n_round);
    for (int l = 0; l < N_LIB; l++) {
        if (!have[l]) {
            printf(",,");
            continue;
        }
        qsort(t[l], (size_t)n_round, sizeof(double), by_value);
        double best = flop / t[l][0] / 1e9;
        printf(",%.1f,%.1f", best, flop / t[l][n_round / 2] / 1e9);
        if (l == 0) ours = best;
        if (l > 1 && best > best_peer) best_peer = best;
    }
    printf(",%.3f\n", best_peer > 0 ? ours / best_peer : 0.0);
    fflush(stdout);
    free(a), free(b), free(c), free(d);
}

/* Forward, gradient of the input, gradient of the weight of y = x w, w stored (in,out). */
static void layer(const char *filter, int64_t rows, int64_t in, int64_t out, double s)
{
    char name[64];
    snprintf(name, sizeof name, "linear-%ld-%ld-%ld", (long)rows, (long)in, (long)out);
    if (filter && !strstr(name, filter)) return;
    bench(name, rows, out, in, 0, 0, 0, s);
    bench(name, rows, in, out, 0, 1, 0, s);
    bench(name, in, out, rows, 1, 0, 0, s);
}

/* The same of y = x w^T, w stored (out,in): the head of a language model. */
static void head(const char *filter, int64_t rows, int64_t in, int64_t out, double s)
{
    char name[64];
    snprintf(name, sizeof name, "head-%ld-%ld-%ld", (long)rows, (long)in, (long)out);
    if (filter && !strstr(name, filter)) return;
    bench(name, rows, out, in, 0, 1, 0, s);
    bench(name, rows, in, out, 0, 0, 0, s);
    bench(name, out, in, rows, 1, 0, 0, s);
}

static void *find(const char *const *file, const char *symbol)
{
    for (; *file; file++) {
        void *h = dlopen(*file, RTLD_NOW | RTLD_LOCAL);
        if (h && dlsym(h, symbol)) return dlsym(h, symbol);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static const char *const f_open[] = {
        "/usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.so.0", "libopenblas.so.0",
        NULL};
    static const char *const f_blis[] = {
        "/usr/lib/x86_64-linux-gnu/blis-serial/libblis.so.4", "libblis.so.4", NULL};
    static const char *const f_dnnl[] = {"libdnnl.so.2", NULL};
    const char              *filter   = argc > 3 ? argv[3] : NULL;
    double                   s        = argc > 2 ? atof(argv[2]) : 1.0;

    n_thread            = argc > 1 ? atoi(argv[1]) : 2;
    *(void **)&openblas = find(f_open, "cblas_sgemm");
    *(void **)&blis     = find(f_blis, "cblas_sgemm");
    *(void **)&dnnl     = find(f_dnnl, "dnnl_sgemm");
    if (weft_pool_create(n_thread, 0, &pool) != WEFT_OK) return 1;
    printf("case,form,m,n,k,threads,rounds");
    for (int l = 0; l < N_LIB; l++)
        printf(",%s_best,%s_median", lib_name[l], lib_name[l]);
    printf(",weft_to_best_peer\n");
    for (int64_t rows = 256; rows <= 1024; rows *= 4) {
        layer(filter, rows, 768, 768, s);
        layer(filter, rows, 768, 2304, s);
        layer(filter, rows, 768, 3072, s);
        layer(filter, rows, 3072, 768, s);
        head(filter, rows, 768, 50257, s);
    }
    layer(filter, 1024, 128, 128, s);
    layer(filter, 1024, 128, 256, s);
    layer(filter, 1024, 128, 384, s);
    layer(filter, 1024, 128, 512, s);
    layer(filter, 1024, 512, 128, s);
    head(filter, 1024, 128, 50257, s);
    layer(filter, 48, 64, 64, s);
    layer(filter, 128, 64, 128, s);
    layer(filter, 384, 64, 256, s);
    weft_pool_destroy(pool);
    return 0;
}
