/* Every kernel of every registered table against the reference kernels: each row of ops.def over
 * the op-test table and some larger shapes, in f32 and bf16, dense and strided, storing and adding;
 * the same bits with 1, 2 and 3 threads and with every instruction set; nothing written outside
 * results and scratch; what is prepared once serves steps with other operands and scalars. */
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
#include "base/status.h"
#include "kernel/isa.h"
#include "kernel/kernel.h"
#include "kernel/ref.h"
#include "kernel/vec.h"
#include "support/kernels.h"
#include "support/op_cases.h"

#define C(ID, attr, in, n_out)                                                           \
    {                                                                                    \
        WEFT_OP_##ID, attr, in, n_out                                                    \
    }

/* Ranks that have nothing of a dimension: sums over it are 0, attention sees no keys. */
static const weft_test_case nothing[] = {
    C(MATMUL, "spec=bsd,bsf->df", "f32[0,8,5] f32[0,8,7]", 1),
    C(MATMUL, "spec=bsd,df->bsf", "f32[0,8,5] f32[5,7]", 1),
    C(MATMUL, "spec=bshe,hed->bsd", "f32[2,3,0,4] f32[0,4,5]", 1),
    C(GROUPED_MATMUL_WGRAD, "", "f32[0,3] f32[0,5] i32[4]:0", 1),
    C(LAYER_NORM_GRAD, "", "f32[0,3,5] f32[0,3,5] f32[5] f32[0,3] f32[0,3]+", 3),
    C(RMS_NORM_GRAD, "", "f32[2,0,5] f32[2,0,5] f32[5] f32[2,0]+", 2),
    C(ATTENTION, "", "f32[2,0,4,8] f32[2,0,2,8] f32[2,0,2,8]", 2),
    C(ATTENTION, "", "f32[0,3,4,8] f32[0,3,2,8] f32[0,3,2,8]", 2),
    C(EMBEDDING, "first=3", "f32[0,5] i32[2,9]<11", 1),
    C(EMBEDDING_GRAD, "rows=7", "f32[0,3,5] i32[0,3]<7", 1),
    C(CROSS_ENTROPY, "", "f32[0,3,7] i32[0,3]<7", 2),
    C(CROSS_ENTROPY_GRAD, "", "f32[0,33] i32[0]<33? f32[0]+ f32[0]", 1),
    C(REDUCE, "axes=[0]", "f32[0,5]", 1),
    C(REDUCE, "axes=[0,2]", "f32[3,5,0]", 1),
    C(CONCAT, "axis=0", "f32[2,3] f32[0,3] f32[4,3]", 1),
    C(ROUTE, "k=2", "f32[0,4]", 2),
    C(DISPATCH, "experts=4", "f32[0,3] i32[0,2]!4", 3),
    C(COMBINE_GRAD, "", "f32[0,3] f32[0,3] f32[0,2] i32[0]%", 2),
    C(SUMSQ, "", "f32[0]", 1),
    C(SUMSQ_PARTS, "", "f32[0,5]", 1),
};

/* Shapes with more than one task, and tails of every kind. */
static const weft_test_case large[] = {
    C(MATMUL, "spec=mk,kn->mn", "f32[70,800] f32[800,65]", 1),
    C(MATMUL, "spec=bsche,dche->bsd", "f32[2,20,3,2,8] f32[48,3,2,8]", 1),
    C(MATMUL, "spec=abcd,dbe->aceb", "f32[3,4,5,6] f32[6,4,7]", 1),
    C(MATMUL, "spec=ab,cb->ac", "f32[3,4] f32[5,4]", 1),
    C(MATMUL, "spec=abk,k->a", "f32[3,4,9] f32[9]", 1),
    C(GROUPED_MATMUL, "", "f32[150,40] f32[4,70,40] i32[5]:150", 1),
    C(GROUPED_MATMUL_WGRAD, "", "f32[150,40] f32[150,70] i32[5]:150", 1),
    C(ADD, "", "f32[7,130,129] f32[130,1]", 1),
    C(MUL, "", "f32[90,1000] f32[90,1000]", 1),
    C(GELU, "", "f32[33,1033]", 1),
    C(DROPOUT, "p=0.1 id=3", "f32[3,2050]", 1),
    C(LAYER_NORM, "", "f32[90,771] f32[771] f32[771]", 3),
    C(LAYER_NORM_GRAD, "", "f32[90,771] f32[90,771] f32[771] f32[90] f32[90]+", 3),
    C(RMS_NORM, "", "f32[90,771] f32[771]", 2),
    C(RMS_NORM_GRAD, "", "f32[90,771] f32[90,771] f32[771] f32[90]+", 2),
    C(SOFTMAX, "", "f32[20,3001]", 1),
    C(SOFTMAX_GRAD, "", "f32[20,3001] f32[20,3001]+", 1),
    C(ROTARY, "", "f32[2,70,3,64]", 1),
    C(ATTENTION, "", "f32[2,130,4,64] f32[2,130,2,64] f32[2,130,2,64]", 2),
    C(ATTENTION, "", "f32[3,67,22,8] f32[3,67,11,8] f32[3,67,11,8]", 2),
    C(ATTENTION, "causal=0", "f32[1,65,2,20] f32[1,150,1,20] f32[1,150,1,33]", 2),
    C(ATTENTION, "window=40", "f32[1,200,2,16] f32[1,200,1,16] f32[1,200,1,16]", 2),
    C(ATTENTION, "", "f32[1,70,2,16] f32[1,150,1,16] f32[1,150,1,16]", 2),
    C(ATTENTION, "q_first=90 k_first=30",
      "f32[1,70,2,16] f32[1,150,1,16] f32[1,150,1,16]", 2),
    C(ATTENTION, "q_first=30 k_first=90 window=20",
      "f32[1,150,2,16] f32[1,100,1,16] f32[1,100,1,16]", 2),
    C(ATTENTION, "q_first=500 window=50", "f32[1,70,2,16] f32[1,70,1,16] f32[1,70,1,16]",
      2),
    C(ATTENTION_MERGE, "", "f32[2,130,4,64] f32[2,130,4] f32[2,130,4,64] f32[2,130,4]",
      2),
    C(ATTENTION_GRAD, "q_first=30 k_first=90 window=20",
      "f32[1,150,2,16] f32[1,150,2,16] f32[1,100,1,16] f32[1,100,1,16] f32[1,150,2,16] "
      "f32[1,150,2]+",
      3),
    C(DROPOUT, "p=0.3 id=2 at=[1,70,33] whole=[5,150,1033]", "f32[2,60,701]", 1),
    C(ATTENTION, "causal=0 scale=1",
      "f32[2,70,2,16] f32[2,80,2,16] f32[2,80,2,16] f32[2,70,80]", 2),
    C(ATTENTION_GRAD, "",
      "f32[2,130,4,64] f32[2,130,4,64] f32[2,130,2,64] f32[2,130,2,64] f32[2,130,4,64] "
      "f32[2,130,4]+",
      3),
    C(ATTENTION_GRAD, "window=40",
      "f32[1,200,2,16] f32[1,200,2,16] f32[1,200,1,16] f32[1,200,1,16] f32[1,200,2,16] "
      "f32[1,200,2]+",
      3),
    C(ATTENTION_GRAD, "causal=0 scale=0.1",
      "f32[2,70,2,9] f32[2,70,2,16] f32[2,80,2,16] f32[2,80,2,9] f32[2,70,2,9] "
      "f32[2,70,2]+ "
      "f32[2,70,80]",
      4),
    C(EMBEDDING, "", "f32[300,200] i32[5,70]<300", 1),
    C(EMBEDDING_GRAD, "rows=300", "f32[5,70,200] i32[5,70]<300", 1),
    C(CROSS_ENTROPY, "", "f32[20,5003] i32[20]<5003?", 2),
    C(CROSS_ENTROPY_GRAD, "", "f32[20,5003] i32[20]<5003? f32[20]+ f32[20]", 1),
    C(REDUCE, "axes=[0]", "f32[2100,70]", 1),
    C(REDUCE, "axes=[0,1]", "f32[6,70,1300]", 1),
    C(REDUCE, "axes=[1]", "f32[6,70,13]", 1),
    C(REDUCE, "axes=[1] kind=mean", "f32[60,2300]", 1),
    C(REDUCE, "axes=[1] kind=max", "f32[60,2300]", 1),
    C(TRANSPOSE, "perm=[0,2,1]", "f32[3,70,133]", 1),
    C(CONCAT, "axis=1", "f32[70,300] f32[70,1300]", 1),
    C(ROUTE, "k=2", "f32[700,8]", 2),
    C(DISPATCH, "experts=8", "f32[100,300] i32[100,2]!8", 3),
    C(OWN_OFFSETS, "first_expert=2 own=3", "i32[4,9]!100", 1),
    C(COMBINE, "", "f32[200,1300] f32[100,2] i32[200]%", 1),
    C(COMBINE_GRAD, "", "f32[100,1300] f32[200,1300] f32[100,2] i32[200]%", 2),
    C(CONV2D, "stride=[1,1] pad=[1,1]", "f32[2,8,15,14] f32[17,8,3,3]", 1),
    C(CONV2D, "stride=[1,1] pad=[0,0]", "f32[2,8,15,14] f32[17,8,1,1]", 1),
    C(CONV2D_GRAD_X, "stride=[2,2] pad=[1,1] size=[15,14]", "f32[2,17,8,7] f32[17,8,3,3]",
      1),
    C(CONV2D_GRAD_X, "stride=[1,1] pad=[0,0] size=[15,14]",
      "f32[2,17,15,14] f32[17,8,1,1]", 1),
    C(CONV2D_GRAD_W, "stride=[2,2] pad=[1,1] size=[3,3]", "f32[2,17,8,7] f32[2,8,15,14]",
      1),
    C(BATCH_NORM, "", "f32[5,3,40,40] f32[3] f32[3]", 3),
    C(BATCH_NORM_GRAD, "", "f32[5,3,40,40] f32[5,3,40,40] f32[3] f32[3] f32[3]+", 3),
    C(SUMSQ, "", "f32[301,700]", 1),
    C(SUMSQ, "", "f32[70001]", 1),
    C(SGD, "", "f32[70001] f32[70001] f32[]=0.01 f32[]=0.7", 1),
    C(ADAMW, "",
      "f32[70001] f32[70001] f32[70001] f32[70001]+ f32[]=0.01 f32[]=0.7 f32[]=3", 3),
};

/* ---- one tensor, laid out in some way, with what surrounds it ---- */

enum {
    DENSE,
    PADDED,
    TURNED,
    N_LAYOUT
};
enum {
    GUARD = 64
};

typedef struct tensor {
    weft_view v;
    double   *x;   /* its numbers */
    int64_t   n;   /* how many */
    char     *mem; /* the whole memory, guards included */
    char     *before;
    size_t    bytes;
} tensor;

static weft_arena *arena;

static int64_t offset(const tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int d = t->v.shape.n - 1; d >= 0; d--) {
        at += i % t->v.shape.d[d] * t->v.stride[d];
        i /= t->v.shape.d[d];
    }
    return at;
}

static double get(const tensor *t, int64_t i)
{
    int64_t at = offset(t, i);
    switch (t->v.dtype) {
    case WEFT_DTYPE_F32: return (double)((float *)t->v.p)[at];
    case WEFT_DTYPE_BF16: return (double)bf16_widen(((uint16_t *)t->v.p)[at]);
    case WEFT_DTYPE_F64: return ((double *)t->v.p)[at];
    case WEFT_DTYPE_I64: return (double)((int64_t *)t->v.p)[at];
    default: return (double)((int32_t *)t->v.p)[at];
    }
}

static void put(tensor *t, int64_t i, double x)
{
    int64_t at = offset(t, i);
    switch (t->v.dtype) {
    case WEFT_DTYPE_F32: ((float *)t->v.p)[at] = (float)x; break;
    case WEFT_DTYPE_BF16: ((uint16_t *)t->v.p)[at] = bf16_round((float)x); break;
    case WEFT_DTYPE_F64: ((double *)t->v.p)[at] = x; break;
    case WEFT_DTYPE_I64: ((int64_t *)t->v.p)[at] = (int64_t)x; break;
    default: ((int32_t *)t->v.p)[at] = (int32_t)x; break;
    }
}

static tensor make(const weft_type *type, int layout)
{
    tensor     t    = {.n = weft_shape_count(&type->shape)};
    weft_shape s    = type->shape;
    int64_t    step = 1;
    t.v             = weft_view_make(NULL, type->dtype, &s);
    for (int k = 0; k < s.n && layout != DENSE; k++) {
        int d         = layout == PADDED ? s.n - 1 - k : k;
        t.v.stride[d] = step;
        step *= s.d[d] + (layout == PADDED ? k % 2 : 1);
    }
    if (layout == DENSE) step = t.n;
    t.bytes  = (size_t)(step + 8) * (size_t)weft_dtype_bytes(type->dtype) + 2 * GUARD;
    t.mem    = weft_arena_alloc(arena, t.bytes);
    t.before = weft_arena_alloc(arena, t.bytes);
    t.x      = WEFT_ARENA_ARRAY(arena, double, t.n + 1);
    assert_non_null(t.x);
    memset(t.mem, 0xff, t.bytes); /* not a number in every floating type */
    t.v.p = t.mem + GUARD;
    return t;
}

/* Nothing but the elements changed since `before`. */
static bool only_elements(tensor *t)
{
    int   size = weft_dtype_bytes(t->v.dtype);
    char *copy = malloc(t->bytes);
    assert_non_null(copy);
    memcpy(copy, t->before, t->bytes);
    for (int64_t i = 0; i < t->n; i++) {
        size_t at = GUARD + (size_t)(offset(t, i) * size);
        memcpy(copy + at, t->mem + at, (size_t)size);
    }
    bool same = memcmp(copy, t->mem, t->bytes) == 0;
    free(copy);
    return same;
}

/* ---- one run ---- */

typedef struct trial {
    const weft_test_case *c;
    weft_dtype            storage;
    int                   layout;
    bool                  add;
    weft_op_use           u;
    tensor               *in, *out;
    double              **want;
    weft_kernel_call      call;
    const weft_kernel    *kernel; /* under test */
    char                  text[320];
} trial;

/* Operands that stay f32 whatever the storage: statistics, states, what weighs a loss. */
static bool stays(weft_op op, int k)
{
    const weft_op_row *row = weft_op_get(op);
    switch (op) {
    case WEFT_OP_LAYER_NORM_GRAD:
    case WEFT_OP_BATCH_NORM_GRAD:
    case WEFT_OP_BATCH_NORM_INFER:
    case WEFT_OP_RMS_NORM_GRAD: return k >= 3;
    case WEFT_OP_ATTENTION_GRAD: return k == 5;
    case WEFT_OP_CROSS_ENTROPY_GRAD: return k >= 2;
    case WEFT_OP_ATTENTION_MERGE: return k % 2 == 1;
    case WEFT_OP_LAMB_DIR:
    case WEFT_OP_CROSS_ENTROPY_MERGE: return true;
    default: return (row->flags & WEFT_OP_UPDATE) != 0;
    }
}

/* Operands of a step; scalars differ by a factor. */
static void fill(trial *t, uint64_t seed, double factor)
{
    for (int k = 0; k < t->u.n_in; k++) {
        tensor *in = &t->in[k];
        weft_test_case_fill(t->c, &t->u, k, seed, in->x);
        if (!in->v.shape.n) in->x[0] *= factor;
        for (int64_t i = 0; i < in->n; i++) {
            put(in, i, in->x[i]);
            in->x[i] = get(in, i);
        }
    }
}

static void make_call(trial *t)
{
    weft_view *in  = WEFT_ARENA_ARRAY(arena, weft_view, t->u.n_in + 1);
    weft_view *out = WEFT_ARENA_ARRAY(arena, weft_view, t->u.n_out);
    for (int i = 0; i < t->u.n_in; i++) in[i] = t->in[i].v;
    for (int j = 0; j < t->u.n_out; j++) out[j] = t->out[j].v;
    t->call = (weft_kernel_call){.op        = t->c->op,
                                 .attr      = t->u.attr,
                                 .n_in      = t->u.n_in,
                                 .n_own_in  = t->u.n_in,
                                 .n_out     = t->u.n_out,
                                 .n_own_out = t->u.n_out,
                                 .in        = in,
                                 .out       = out,
                                 .add       = t->add ? (1u << t->u.n_out) - 1 : 0};
}

static void make_trial(trial *t)
{
    weft_type *in;
    char       text[256];
    if (weft_test_case_make(t->c, arena, &t->u) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    in = WEFT_ARENA_ARRAY(arena, weft_type, t->u.n_in + 1);
    for (int k = 0; k < t->u.n_in; k++) {
        in[k] = t->u.in[k];
        if (in[k].dtype == WEFT_DTYPE_F32 && !stays(t->c->op, k))
            in[k].dtype = t->storage;
    }
    t->u.in = in;
    assert_int_equal(weft_op_infer(&t->u, (weft_type *)(uintptr_t)t->u.out), WEFT_OK);
    snprintf(t->text, sizeof t->text, "%s, %s, layout %d%s",
             weft_test_case_text(t->c, text, sizeof text), weft_dtype_name(t->storage),
             t->layout, t->add ? ", adding" : "");

    t->in   = WEFT_ARENA_ARRAY(arena, tensor, t->u.n_in + 1);
    t->out  = WEFT_ARENA_ARRAY(arena, tensor, t->u.n_out);
    t->want = WEFT_ARENA_ARRAY(arena, double *, t->u.n_out);
    for (int k = 0; k < t->u.n_in; k++) t->in[k] = make(&t->u.in[k], t->layout);
    fill(t, 11, 1);
    for (int j = 0; j < t->u.n_out; j++) {
        t->out[j] = make(&t->u.out[j], t->layout);
        for (int64_t i = 0; i < t->out[j].n && t->add; i++)
            put(&t->out[j], i, sin((double)(i + 3 * j)));
        memcpy(t->out[j].before, t->out[j].mem, t->out[j].bytes);
    }
    make_call(t);
}

static const weft_step_scalars first_step = {
    .seed = 7, .step = 3, .sample = 5, .micro_sample = 2};
static const weft_step_scalars second_step = {
    .seed = 8, .step = 4, .sample = 9, .micro_sample = 4};

static void restore_results(trial *t)
{
    for (int j = 0; j < t->u.n_out; j++)
        memcpy(t->out[j].mem, t->out[j].before, t->out[j].bytes);
}

static void reference(trial *t, const weft_step_scalars *s)
{
    weft_ref_ctx ctx = {
        .seed = s->seed, .step = s->step, .first_sample = s->sample + s->micro_sample};
    const double **in = WEFT_ARENA_ARRAY(arena, const double *, t->u.n_in + 1);
    restore_results(t);
    for (int k = 0; k < t->u.n_in; k++) in[k] = t->in[k].x;
    for (int j = 0; j < t->u.n_out; j++) t->want[j] = t->out[j].x;
    if (weft_kernel_ref_run(&t->u, in, t->want, &ctx) != WEFT_OK)
        fail_msg("%s: %s", t->text, weft_error_text());
    for (int j = 0; j < t->u.n_out && t->add; j++)
        for (int64_t i = 0; i < t->out[j].n; i++) t->want[j][i] += get(&t->out[j], i);
}

/* Runs the kernel on results as they were before. */
static void run_step(trial *t, test_kernel *k, const weft_step_scalars *scalars)
{
    restore_results(t);
    k->scalars = *scalars;
    if (test_kernel_run(k) != WEFT_OK) fail_msg("%s: %s", t->text, weft_error_text());
}

static void run(trial *t, int threads)
{
    weft_pool  *pool = NULL;
    test_kernel k;
    assert_int_equal(weft_pool_create(threads, 0, &pool), WEFT_OK);
    test_kernel_open(&k, t->kernel, &t->call, pool);
    run_step(t, &k, &first_step);
    test_kernel_close(&k);
    weft_pool_destroy(pool);
}

static void compare(trial *t)
{
    for (int j = 0; j < t->u.n_out; j++) {
        tensor *o    = &t->out[j];
        double  size = 0, tol = o->v.dtype == WEFT_DTYPE_BF16 ? 8e-3 : 1e-5;
        bool    exact = o->v.dtype == WEFT_DTYPE_I32;
        for (int64_t i = 0; i < o->n; i++)
            if (isfinite(t->want[j][i])) size = fmax(size, fabs(t->want[j][i]));
        for (int64_t i = 0; i < o->n; i++) {
            double got = get(o, i), want = t->want[j][i];
            bool   ok = got == want || (!exact && fabs(got - want) <= tol * size);
            if (!ok)
                fail_msg("%s: result %d[%ld] is %.9g, expected %.9g (largest %g)",
                         t->text, j, (long)i, got, want, size);
        }
        if (!only_elements(o)) fail_msg("%s: wrote outside of result %d", t->text, j);
    }
}

/* The first run's bits, and every later one's against them. */
static void same_bits(trial *t, char **first, const char *how)
{
    for (int j = 0; j < t->u.n_out; j++) {
        if (!first[j]) {
            first[j] = weft_arena_alloc(arena, t->out[j].bytes);
            assert_non_null(first[j]);
            memcpy(first[j], t->out[j].mem, t->out[j].bytes);
        }
        if (memcmp(first[j], t->out[j].mem, t->out[j].bytes) != 0)
            fail_msg("%s: result %d has other bits with %s", t->text, j, how);
    }
}

static void try_threads_and_isa(trial *t, const weft_kernel_table *table)
{
    char   **first = WEFT_ARENA_ARRAY(arena, char *, t->u.n_out);
    weft_isa best  = weft_kernel_isa();
    bool     cpu   = strcmp(table->device, "cpu") == 0;
    for (int isa = WEFT_N_ISA - 1; isa >= 0; isa--) {
        char how[64];
        if (cpu ? !weft_kernel_isa_use((weft_isa)isa) : isa != (int)best) continue;
        for (int threads = 1; threads <= (isa == (int)best ? 3 : 1); threads++) {
            run(t, threads);
            snprintf(how, sizeof how, "%d threads, %s", threads,
                     weft_kernel_isa_name((weft_isa)isa));
            if (threads == 1) compare(t);
            same_bits(t, first, how);
        }
    }
    weft_kernel_isa_use(best);
}

/* Two steps of one prepared call: the second has the bits of a call prepared for it alone. */
static void try_two_steps(trial *t)
{
    char      **alone = WEFT_ARENA_ARRAY(arena, char *, t->u.n_out);
    test_kernel once, fresh;
    test_kernel_open(&once, t->kernel, &t->call, NULL);
    run_step(t, &once, &first_step);
    fill(t, 12, 2);
    reference(t, &second_step);
    test_kernel_open(&fresh, t->kernel, &t->call, NULL);
    run_step(t, &fresh, &second_step);
    same_bits(t, alone, "itself");
    run_step(t, &once, &second_step);
    same_bits(t, alone, "what was prepared for an earlier step");
    compare(t);
    test_kernel_close(&once);
    test_kernel_close(&fresh);
    fill(t, 11, 1);
    reference(t, &first_step);
}

static void try_row(trial *t, const weft_kernel_table *table, const weft_kernel *k)
{
    size_t n = strlen(t->text);
    if (k->op != t->c->op || (k->takes && !k->takes(&t->call))) return;
    t->kernel = k;
    snprintf(t->text + n, sizeof t->text - n, ", %s", table->device);
    try_threads_and_isa(t, table);
    if (t->layout == DENSE && !t->add) try_two_steps(t);
    t->text[n] = 0;
}

static void try(const weft_test_case *c, weft_dtype storage, int layout, bool add)
{
    const weft_kernel_table *table;
    trial t = {.c = c, .storage = storage, .layout = layout, .add = add};
    make_trial(&t);
    reference(&t, &first_step);
    unsigned bit = weft_kernel_storage_bit(weft_kernel_storage(&t.call));
    for (int i = 0; (table = weft_kernel_table_at(i)); i++)
        for (int k = 0; table->storage & bit && k < table->n; k++)
            try_row(&t, table, &table->kernel[k]);
}

static void try_all(const weft_test_case *c)
{
    unsigned flags = weft_op_get(c->op)->flags;
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int layout = 0; layout < (flags & WEFT_OP_STRIDED ? N_LAYOUT : 1); layout++)
            for (int add = 0; add < (flags & WEFT_OP_ADDS ? 2 : 1); add++) {
                assert_int_equal(weft_arena_create(&arena), WEFT_OK);
                try(c, bf16 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32, layout, add);
                weft_arena_destroy(arena);
            }
}

static void table(void **state)
{
    (void)state;
    for (int i = 0; i < weft_n_test_case; i++) try_all(&weft_test_cases[i]);
}

static void larger(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(large); i++) try_all(&large[i]);
}

static void of_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(nothing); i++) try_all(&nothing[i]);
}

static bool has_kernel(const char *device, weft_op op, weft_dtype storage)
{
    const weft_kernel_table *t;
    for (int i = 0; (t = weft_kernel_table_at(i)); i++)
        for (int k = 0; k < t->n; k++)
            if (!strcmp(t->device, device) && t->kernel[k].op == op &&
                t->storage & weft_kernel_storage_bit(storage))
                return true;
    return false;
}

/* On every device. */
static void every_row(void **state)
{
    const weft_kernel_table *t;
    bool                     seen[WEFT_N_OP] = {0};
    (void)state;
    for (int i = 0; i < weft_n_test_case; i++) seen[weft_test_cases[i].op] = true;
    for (int op = 0; op < WEFT_N_OP; op++) {
        const char *name = weft_op_get((weft_op)op)->name;
        bool        comm = weft_op_get((weft_op)op)->flags & WEFT_OP_COMM;
        if (!comm && !seen[op]) fail_msg("%s has no case", name);
        for (int i = 0; (t = weft_kernel_table_at(i)); i++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                weft_dtype storage = bf16 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32;
                /* collectives: tests/lower, tests/flow */
                if (has_kernel(t->device, (weft_op)op, storage) == comm)
                    fail_msg("%s has %s kernel on %s in %s", name, comm ? "a" : "no",
                             t->device, weft_dtype_name(storage));
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),
        cmocka_unit_test(table),
        cmocka_unit_test(larger),
        cmocka_unit_test(of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
