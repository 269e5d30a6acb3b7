/* Times each kernel at GPT-2's shapes beside its floor: its flops at the rate of weft_gemm, or its
 * bytes at the rate of a copy, whichever is more.  Not a test.
 *
 *     build/bench_ops [threads] [word in the operator's name] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/status.h"
#include "kernel/gemm.h"
#include "kernel/isa.h"
#include "support/device_call.h"
#include "support/op_cases.h"

#define C(ID, attr, in, n_out) WEFT_TEST_CASE(ID, attr, in, n_out)
#define ROWS(s)                                                                          \
    C(ADD, "", "f32[4," s ",768] f32[4," s ",768]", 1),                                  \
        C(ADD, "", "f32[4," s ",3072] f32[3072]", 1),                                    \
        C(GELU, "", "f32[4," s ",3072]", 1),                                             \
        C(GELU_GRAD, "", "f32[4," s ",3072] f32[4," s ",3072]", 1),                      \
        C(SILU, "", "f32[4," s ",3072]", 1), C(DROPOUT, "p=0.1", "f32[4," s ",768]", 1), \
        C(LAYER_NORM, "", "f32[4," s ",768] f32[768] f32[768]", 3),                      \
        C(LAYER_NORM_GRAD, "",                                                           \
          "f32[4," s ",768] f32[4," s ",768] f32[768] f32[4," s "] f32[4," s "]+", 3),   \
        C(RMS_NORM, "", "f32[4," s ",768] f32[768]", 2),                                 \
        C(RMS_NORM_GRAD, "", "f32[4," s ",768] f32[4," s ",768] f32[768] f32[4," s "]+", \
          2),                                                                            \
        C(ROTARY, "", "f32[4," s ",12,64]", 1),                                          \
        C(ATTENTION, "", "f32[4," s ",12,64] f32[4," s ",12,64] f32[4," s ",12,64]", 2), \
        C(ATTENTION_GRAD, "",                                                            \
          "f32[4," s ",12,64] f32[4," s ",12,64] f32[4," s ",12,64] f32[4," s            \
          ",12,64] f32[4," s ",12,64] f32[4," s ",12]+",                                 \
          3),                                                                            \
        C(EMBEDDING, "", "f32[50257,768] i32[4," s "]<50257", 1),                        \
        C(EMBEDDING_GRAD, "rows=50257", "f32[4," s ",768] i32[4," s "]<50257", 1),       \
        C(CROSS_ENTROPY, "", "f32[4," s ",50257] i32[4," s "]<50257", 2),                \
        C(CROSS_ENTROPY_GRAD, "",                                                        \
          "f32[4," s ",50257] i32[4," s "]<50257 f32[4," s "]+ f32[4," s "]", 1),        \
        C(REDUCE, "axes=[0,1]", "f32[4," s ",768]", 1),                                  \
        C(REDUCE, "axes=[0,1]", "f32[4," s ",3072]", 1),                                 \
        C(TRANSPOSE, "perm=[0,2,1,3]", "f32[4," s ",12,64]", 1)

static const weft_test_case cases[] = {
    ROWS("64"),
    ROWS("256"),
    C(MATMUL, "spec=bsd,dn->bsn", "f32[4,64,768] f32[768,3072]", 1),
    C(MATMUL, "spec=bsn,dn->bsd", "f32[4,64,3072] f32[768,3072]", 1),
    C(MATMUL, "spec=bsd,bsn->dn", "f32[4,64,768] f32[4,64,3072]", 1),
    C(TRANSPOSE, "perm=[1,0]", "f32[3072,768]", 1),
    C(SUMSQ, "", "f32[50257,768]", 1),
    C(ADAMW, "",
      "f32[50257,768] f32[50257,768] f32[50257,768] f32[50257,768]+ f32[]=0.001 f32[]=1 "
      "f32[]=3",
      3),
};

static double rate_copy, rate_flops; /* bytes and flops a second */
static int    threads = 2;

/* With one thread processor time, which other programs on the machine disturb less. */
static double now(void)
{
    struct timespec t;
    if (threads > 1) return weft_clock_s();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best_of(void (*fn)(void *), void *arg)
{
    double best = 1e9, begin = weft_clock_s();
    for (int i = 0; i < 3 || (i < 400 && weft_clock_s() - begin < 0.25); i++) {
        double t0 = now();
        fn(arg);
        double t = now() - t0;
        best     = t < best ? t : best;
    }
    return best;
}

/* Its numbers are in the device's memory afterwards. */
static void open_call(device_call *c, const weft_kernel_call *call, weft_pool *pool)
{
    static const weft_step_scalars scalars = {0};
    if (device_call_open(c, weft_device_cpu(), NULL, call, pool) != WEFT_OK ||
        device_call_run(c, &scalars) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        exit(1);
    }
}

static void run(void *arg)
{
    if (device_call_launch(arg) != WEFT_OK) fprintf(stderr, "%s\n", weft_error_text());
}

typedef struct product {
    weft_gemm  g;
    weft_pool *pool;
    void      *scratch;
} product;
static void run_product(void *arg)
{
    product *p = arg;
    weft_gemm_run(&p->g, p->pool, p->scratch);
}

/* In-cache tensors are faster than this, so floors of small ones are an upper bound. */
static void rates(weft_pool *pool)
{
    int64_t    n = 1 << 25, m = 1024;
    float     *a = calloc((size_t)n, sizeof *a), *b = calloc((size_t)n, sizeof *b);
    weft_shape s  = weft_shape_make(1, &n);
    weft_view  in = weft_view_make(a, WEFT_DTYPE_F32, &s),
              out = weft_view_make(b, WEFT_DTYPE_F32, &s);
    weft_attr   attr[WEFT_MAX_ATTR];
    device_call copy;
    if (!a || !b) exit(1);
    weft_op_attr_defaults(WEFT_OP_CAST, attr);
    weft_kernel_call c = {.op        = WEFT_OP_CAST,
                          .attr      = attr,
                          .n_in      = 1,
                          .n_own_in  = 1,
                          .n_out     = 1,
                          .n_own_out = 1,
                          .in        = &in,
                          .out       = &out};
    open_call(&copy, &c, pool);
    rate_copy = 8.0 * (double)n / best_of(run, &copy);
    device_call_close(&copy);

    product p  = {.g    = weft_gemm_make(m, m, m, a, m, 1, a + m * m, m, 1, b, m),
                  .pool = pool};
    p.scratch  = aligned_alloc(64, (weft_gemm_scratch(&p.g, threads) + 127) / 64 * 64);
    rate_flops = 2.0 * (double)(m * m * m) / best_of(run_product, &p);
    free(p.scratch);
    free(a);
    free(b);
}

static void *fill(const weft_test_case *c, const weft_op_use *u, int k)
{
    int64_t n = weft_shape_count(&u->in[k].shape);
    double *x = malloc(sizeof *x * (size_t)(n + 1));
    char   *p = aligned_alloc(64, (size_t)(n + 32) / 16 * 16 * 8);
    if (!x || !p) exit(1);
    weft_test_case_fill(c, u, k, 3, x);
    for (int64_t i = 0; i < n; i++) weft_test_put(p, u->in[k].dtype, i, x[i]);
    free(x);
    return p;
}

static void time_case(const weft_test_case *c, weft_pool *pool)
{
    weft_arena *a;
    weft_op_use u;
    weft_view   in[16], out[4];
    device_call timed;
    char        text[256];

    if (weft_arena_create(&a) != WEFT_OK || weft_test_case_make(c, a, &u) != WEFT_OK)
        exit(1);
    for (int k = 0; k < u.n_in; k++)
        in[k] = weft_view_make(fill(c, &u, k), u.in[k].dtype, &u.in[k].shape);
    for (int j = 0; j < u.n_out; j++) {
        size_t bytes = (size_t)weft_shape_count(&u.out[j].shape) * 8 + 128;
        out[j]       = weft_view_make(aligned_alloc(64, bytes / 64 * 64), u.out[j].dtype,
                                      &u.out[j].shape);
        if (weft_op_get(c->op)->flags & WEFT_OP_UPDATE) { /* in place */
            free(out[j].p);
            out[j].p = in[j == 0 ? 0 : j + 1].p;
        }
    }
    weft_kernel_call call = {.op        = c->op,
                             .attr      = u.attr,
                             .n_in      = u.n_in,
                             .n_own_in  = u.n_in,
                             .n_out     = u.n_out,
                             .n_own_out = u.n_out,
                             .in        = in,
                             .out       = out};
    open_call(&timed, &call, pool);

    double t = best_of(run, &timed), flops = weft_op_flops(&u) / rate_flops,
           bytes = weft_op_bytes(&u) / rate_copy;
    double floor = flops > bytes ? flops : bytes;
    printf("%10.3f ms  floor %9.3f (%s)  %5.2fx  %s\n", t * 1e3, floor * 1e3,
           flops > bytes ? "flops" : "bytes", t / floor,
           weft_test_case_text(c, text, sizeof text));
    fflush(stdout);
    device_call_close(&timed);
    for (int k = 0; k < u.n_in; k++) free(in[k].p);
    for (int j = 0; j < u.n_out && !(weft_op_get(c->op)->flags & WEFT_OP_UPDATE); j++)
        free(out[j].p);
    weft_arena_destroy(a);
}

int main(int argc, char **argv)
{
    weft_pool *pool;
    if (argc > 1) threads = atoi(argv[1]);
    if (weft_pool_create(threads, 0, &pool) != WEFT_OK) return 1;
    rates(pool);
    printf("%d threads, %s: copy %.1f GB/s, gemm %.0f GFLOP/s\n", threads,
           weft_kernel_isa_name(weft_kernel_isa()), rate_copy / 1e9, rate_flops / 1e9);
    for (size_t i = 0; i < WEFT_COUNT(cases); i++)
        if (argc < 3 || strstr(weft_op_get(cases[i].op)->name, argv[2]))
            time_case(&cases[i], pool);
    weft_pool_destroy(pool);
    return 0;
}
