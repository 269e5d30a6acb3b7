/* Times kernels of libweft_cuda.so at the shapes of GPT-2 124M (batch 32, seq 1024) and of a Llama
 * of 1.2B (batch 8, seq 2048) on the first GPU, beside the bytes that they must move.  Not a test.
 *
 *     WEFT_PLUGINS=build build/bench_cuda_ops [word in the operator's name]
 *     WEFT_PLUGINS=build build/bench_cuda_ops codes      passes that make codes of fp8, alone
 *     WEFT_PLUGINS=build build/bench_cuda_ops products   forms of a matmul in fp8 and in bf16 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/status.h"
#include "kernel/kernel.h"
#include "plugin/plugin.h"
#include "support/op_form.h"

#define C(ID, attr, in, n_out) WEFT_TEST_CASE(ID, attr, in, n_out)

#define IN_BOTH(attr, in) C(MATMUL, attr, in, 1), C(MATMUL, attr " fp8=e4m3,e4m3", in, 1)
/* y = x w, dw, dx; x (m,d), w of any order */
#define LINEAR(y, dw, dx, m, d, n, w)                                                    \
    IN_BOTH("spec=" y, "bf16[" #m "," #d "] bf16" w),                                    \
        IN_BOTH("spec=" dw " dtype=f32", "bf16[" #m "," #d "] bf16[" #m "," #n "]"),     \
        IN_BOTH("spec=" dx, "bf16[" #m "," #n "] bf16" w)

static const weft_test_case cases[] = {
    C(CAST, "dtype=f32", "f32[50304,768]", 1), /* a copy: what memory gives */
    C(CAST, "dtype=bf16", "f32[50304,768]", 1),
    C(CAST, "dtype=f32", "bf16[32768,768]", 1),
    C(ADD, "", "bf16[32768,768] bf16[32768,768]", 1),
    C(ADD, "", "bf16[32768,3072] bf16[3072]", 1),
    C(GELU, "", "bf16[32768,3072]", 1),
    C(GELU_GRAD, "", "bf16[32768,3072] bf16[32768,3072]", 1),
    C(GELU_GRAD, "", "f32[8192,3072] f32[8192,3072]", 1),
    C(SILU, "", "bf16[16384,8192]", 1),
    C(SILU_GRAD, "", "bf16[16384,8192] bf16[16384,8192]", 1),
    C(GATE, "", "bf16[16384,8192] bf16[16384,8192]", 1),
    C(GATE_GRAD, "", "bf16[16384,8192] bf16[16384,8192] bf16[16384,8192]", 2),
    C(MUL, "", "bf16[16384,8192] bf16[16384,8192]", 1),
    C(DROPOUT, "p=0.1", "bf16[32,1024,768]", 1),
    C(LAYER_NORM, "", "bf16[32768,768] f32[768] f32[768]", 3),
    C(LAYER_NORM, "", "f32[32768,768] f32[768] f32[768]", 3),
    C(LAYER_NORM, "", "bf16[8192,2048] f32[2048] f32[2048]", 3),
    C(LAYER_NORM_GRAD, "",
      "bf16[32768,768] bf16[32768,768] f32[768] f32[32768] f32[32768]+", 3),
    C(LAYER_NORM_GRAD, "",
      "bf16[8192,2048] bf16[8192,2048] f32[2048] f32[8192] f32[8192]+", 3),
    C(RMS_NORM, "", "bf16[16384,2048] f32[2048]", 2),
    C(RMS_NORM_GRAD, "", "bf16[16384,2048] bf16[16384,2048] f32[2048] f32[16384]+", 2),
    C(RMS_NORM_GRAD, "", "bf16[16384,4096] bf16[16384,4096] f32[4096] f32[16384]+", 2),
    C(REDUCE, "axes=[0] dtype=f32", "bf16[32768,768]", 1),
    C(REDUCE, "axes=[0] dtype=f32", "bf16[32768,2304]", 1),
    C(REDUCE, "axes=[0] dtype=f32", "bf16[32768,3072]", 1),
    C(REDUCE, "axes=[0] dtype=f32", "bf16[32,1024,768]", 1),
    C(REDUCE, "axes=[0] kind=mean", "f32[32768]", 1),
    C(TRANSPOSE, "perm=[0,2,1,3]", "bf16[32,1024,12,64]", 1),
    C(TRANSPOSE, "perm=[1,0]", "f32[3072,768]", 1),
    C(EMBEDDING, "", "bf16[50304,768] i32[32,1024]<50304", 1),
    C(EMBEDDING_GRAD, "rows=50304 dtype=f32", "bf16[32,1024,768] i32[32,1024]<50304", 1),
    C(CROSS_ENTROPY, "", "bf16[32768,50304] i32[32768]<50304", 2),
    C(CROSS_ENTROPY_GRAD, "", "bf16[32768,50304] i32[32768]<50304 f32[32768]+ f32[32768]",
      1),
    C(EMBEDDING_GRAD, "rows=2 dtype=f32", "bf16[32,1024,768] i32[32,1024]<2", 1),
    C(ROTARY, "", "bf16[8,2048,32,64]", 1),
    C(ROTARY, "", "bf16[8,2048,8,64]", 1),
    C(ROTARY, "", "bf16[8,2048,40,64]", 1),
    C(ROUTE, "k=2", "bf16[16384,8]", 2),
    C(DISPATCH, "experts=8", "bf16[16384,1024] i32[16384,2]!8", 3),
    C(COMBINE, "", "bf16[32768,1024] bf16[16384,2] i32[32768]<32768", 1),
    /* linear layers of GPT 1.3B and of a Llama of 1.2B: forward, both gradients; in fp8 with the
     * passes that make codes */
    LINEAR("md,dn->mn", "md,mn->dn", "mn,dn->md", 8192, 2048, 6144, "[2048,6144]"),
    LINEAR("md,dn->mn", "md,mn->dn", "mn,dn->md", 8192, 2048, 2048, "[2048,2048]"),
    LINEAR("md,dn->mn", "md,mn->dn", "mn,dn->md", 8192, 2048, 8192, "[2048,8192]"),
    LINEAR("md,dn->mn", "md,mn->dn", "mn,dn->md", 8192, 8192, 2048, "[8192,2048]"),
    LINEAR("md,nd->mn", "md,mn->nd", "mn,nd->md", 16384, 2048, 3072, "[3072,2048]"),
    LINEAR("md,nd->mn", "md,mn->nd", "mn,nd->md", 16384, 2048, 8192, "[8192,2048]"),
    LINEAR("md,nd->mn", "md,mn->nd", "mn,nd->md", 16384, 8192, 2048, "[2048,8192]"),
    C(GROUPED_MATMUL, "", "bf16[32768,1024] bf16[8,3584,1024] i32[9]:32768", 1),
    C(GROUPED_MATMUL, "trans=0", "bf16[32768,3584] bf16[8,3584,1024] i32[9]:32768", 1),
    C(GROUPED_MATMUL_WGRAD, "", "bf16[32768,1024] bf16[32768,3584] i32[9]:32768", 1),
    C(SUMSQ, "", "f32[50304,768]", 1),
    C(SUMSQ, "", "f32[768,3072]", 1),
    C(SUMSQ, "", "f32[768]", 1),
    C(ADAMW, "",
      "f32[50304,768] f32[50304,768] f32[50304,768] f32[50304,768]+ f32[]=0.001 f32[]=1 "
      "f32[]=3",
      3),
    C(ADAMW, "", "f32[768] f32[768] f32[768] f32[768]+ f32[]=0.001 f32[]=1 f32[]=3", 3),
};

/* With the last of the steps that lowering fuses for GPUs (op_chain_of). */
static const weft_test_case fused[] = {
    C(LAYER_NORM_GRAD, "",
      "bf16[32768,768] bf16[32768,768] f32[768] f32[32768] f32[32768]+", 3),
    C(LAYER_NORM_GRAD, "",
      "bf16[8192,2048] bf16[8192,2048] f32[2048] f32[8192] f32[8192]+", 3),
    C(RMS_NORM_GRAD, "", "bf16[16384,2048] bf16[16384,2048] f32[2048] f32[16384]+", 2),
    C(RMS_NORM_GRAD, "", "bf16[16384,4096] bf16[16384,4096] f32[4096] f32[16384]+", 2),
    C(ADAMW, "",
      "f32[50304,768] f32[50304,768] f32[50304,768] f32[50304,768]+ f32[]=0.001 f32[]=1 "
      "f32[]=3",
      3),
};

/* cross_entropy with its gradient in one visit, written over the logits */
static const weft_test_case with_gradient[] = {
    C(CROSS_ENTROPY, "", "bf16[32768,50304] i32[32768]<50257", 2),
    C(CROSS_ENTROPY, "", "bf16[32768,50257] i32[32768]<50257", 2),
    C(CROSS_ENTROPY, "", "bf16[16384,128256] i32[16384]<128000", 2),
};

enum {
    N_PATTERN = 1 << 20 /* elements that operands repeat */
};

static void fail(void)
{
    fprintf(stderr, "%s\n", weft_error_text());
    exit(1);
}
#define MUST(call)                                                                       \
    do                                                                                   \
        if ((call) != WEFT_OK) fail();                                                   \
    while (0)

/* Memory of the device for a value, with numbers of operand k, repeated. */
static weft_memory place(weft_device *d, const weft_test_case *c, const weft_op_use *u,
                         int k)
{
    const weft_type *t = &u->in[k];
    int64_t     count = weft_shape_count(&t->shape), size = weft_dtype_bytes(t->dtype);
    weft_type   few = {t->dtype, t->shape};
    weft_memory m;
    double     *x = malloc(sizeof *x * N_PATTERN);
    char       *p = malloc((size_t)size * N_PATTERN);
    if (!x || !p) exit(1);
    if (count > N_PATTERN) few.shape = weft_shape_make(1, (const int64_t[]){N_PATTERN});
    int64_t     n   = weft_shape_count(&few.shape);
    weft_op_use one = *u;
    weft_type   in[16];
    memcpy(in, u->in, sizeof *in * (size_t)u->n_in);
    in[k]  = few;
    one.in = in;
    weft_test_case_fill(c, &one, k, 3, x);
    for (int64_t i = 0; i < n; i++) weft_test_put(p, t->dtype, i, x[i]);
    MUST(weft_device_alloc(d, WEFT_SPACE_DEVICE, count * size, &m));
    for (int64_t i = 0; i < count; i += n)
        MUST(weft_device_write(&m, i * size, p, (count - i < n ? count - i : n) * size));
    free(x);
    free(p);
    return m;
}

typedef struct timed {
    const weft_kernel *kernel;
    weft_kernel_call   call;
    weft_kernel_ctx    ctx;
    weft_attr          post_attr[OP_MAX_STEP][WEFT_MAX_ATTR];
    weft_kernel_post   post[OP_MAX_STEP];
} timed;

static weft_status run(void *arg)
{
    const timed *t = arg;
    return t->kernel->run(&t->call, &t->ctx);
}

/* Seconds of one call, of several that follow each other. */
static double time_calls(weft_device *d, weft_stream *s, timed *t)
{
    weft_task task = {.run = run, .arg = t};
    weft_code code;
    double    best = 1e9;
    MUST(d->load(d, &task, 1, &code));
    for (int round = 0; round < 4; round++) {
        int    n  = round ? 20 : 1;
        double t0 = weft_clock_s();
        for (int i = 0; i < n; i++) MUST(d->launch(s, &code));
        MUST(d->finish(s));
        double each = (weft_clock_s() - t0) / n;
        if (round && each < best) best = each;
    }
    d->unload(d, &code);
    return best;
}

/* The loss' gradient where the logits were; in and out have room for it.  Memory of dloss. */
static weft_memory add_gradient(weft_device *d, timed *t, weft_view *in, weft_view *out)
{
    weft_memory m;
    int64_t     rows = weft_shape_count(&in[1].shape);
    MUST(weft_device_alloc(d, WEFT_SPACE_DEVICE, rows * 4, &m));
    in[2]  = weft_view_make(m.address, WEFT_DTYPE_F32, &in[1].shape);
    out[2] = in[0];
    weft_op_attr_defaults(WEFT_OP_CROSS_ENTROPY_GRAD, t->post_attr[0]);
    t->post[0]    = (weft_kernel_post){WEFT_OP_CROSS_ENTROPY_GRAD, t->post_attr[0], 2, 2};
    t->call.n_in  = 3;
    t->call.n_out = 3, t->call.n_post = 1, t->call.post = t->post;
    return m;
}

static weft_view allocate_view(weft_device *d, const weft_type *type, weft_memory *m)
{
    int64_t bytes = weft_shape_count(&type->shape) * weft_dtype_bytes(type->dtype);
    MUST(weft_device_alloc(d, WEFT_SPACE_DEVICE, bytes, m));
    return weft_view_make(m->address, type->dtype, &type->shape);
}

/* Bytes that the steps of a chain move more; in, out and block have room. */
static double add_chain(weft_device *d, weft_arena *a, timed *t, const weft_op_use *u,
                        weft_view *in, weft_view *out, weft_memory *block, int *n_block)
{
    const op_chain *c     = op_chain_of(u->op, op_n_chain(u->op) > 1 ? 1 : 0);
    double          bytes = 0;
    for (int i = 0; i < c->n; i++) {
        weft_kernel_post *p    = &t->post[i];
        weft_type         type = u->out[0];
        weft_op           op   = c->s[i].op;
        const char       *attr = c->s[i].attr ? c->s[i].attr : "axes=[0] dtype=f32";
        weft_op_use step = {.op = op, .attr = t->post_attr[i], .n_in = 1, .n_out = 1};
        MUST(weft_op_parse_attr(op, attr, a, t->post_attr[i]));
        *p = (weft_kernel_post){op, t->post_attr[i], -1, t->call.n_out++};
        if (c->s[i].other) {
            p->in     = t->call.n_in++;
            in[p->in] = allocate_view(d, &type, &block[(*n_block)++]);
            bytes += (double)weft_shape_count(&type.shape) * weft_dtype_bytes(type.dtype);
        } else {
            step.in = &u->out[0];
            MUST(weft_op_infer(&step, &type));
            bytes += (double)weft_shape_count(&type.shape) * weft_dtype_bytes(type.dtype);
        }
        out[p->out] = allocate_view(d, &type, &block[(*n_block)++]);
    }
    if (!c->product_kept) out[0].p = NULL;
    t->call.n_post = c->n, t->call.post = t->post;
    return bytes;
}

typedef enum timed_steps {
    NO_STEPS,
    WITH_GRADIENT,
    WITH_CHAIN,
    KNOWN_ROWS,    /* of a: the largest magnitudes are given */
    FOUND_COLUMNS, /* of a: they are a result */
    WITH_BIAS,     /* of a matmul's result, as lowering fuses them */
    WITH_RESIDUAL, /* and a bias */
    WITH_GELU_GRAD,
    ADDED /* to what is there */
} timed_steps;

static const char *const steps_name[] = {"",
                                         " with its gradient",
                                         " with fused steps",
                                         " largest of rows known",
                                         " largest of columns found",
                                         " with a bias",
                                         " with a bias and a residual",
                                         " with gelu's gradient",
                                         " added"};

/* Largest magnitudes of operand a, all 1; in and out have room for them. */
static weft_memory add_largest(weft_device *d, timed *t, weft_view *in, weft_view *out,
                               timed_steps steps)
{
    int64_t     n = in[0].shape.d[1];
    weft_memory m;
    float      *one = malloc(sizeof *one * (size_t)n);
    if (!one) exit(1);
    for (int64_t i = 0; i < n; i++) one[i] = 1;
    MUST(weft_device_alloc(d, WEFT_SPACE_DEVICE, 4 * n, &m));
    MUST(weft_device_write(&m, 0, one, 4 * n));
    free(one);
    weft_view v = weft_view_make(m.address, WEFT_DTYPE_F32, &(weft_shape){1, {n}});
    if (steps == KNOWN_ROWS)
        in[2] = v, t->call.n_in = t->call.n_own_in = 3;
    else
        out[1] = v, t->call.n_out = t->call.n_own_out = 2;
    return m;
}

/* Steps behind a matmul, whose last value alone is kept. */
static void add_steps(weft_device *d, timed *t, weft_view *in, weft_view *out,
                      timed_steps steps, weft_memory *block, int *n_block)
{
    weft_type full = {out[0].dtype, out[0].shape}, row = full;
    row.shape     = weft_shape_make(1, &full.shape.d[full.shape.n - 1]);
    weft_op op[2] = {steps == WITH_GELU_GRAD ? WEFT_OP_GELU_GRAD : WEFT_OP_ADD,
                     WEFT_OP_ADD};
    int n = steps == WITH_RESIDUAL ? 2 : 1;
    for (int i = 0; i < n; i++) {
        bool is_row = !i && steps != WITH_GELU_GRAD;
        in[2 + i]   = allocate_view(d, is_row ? &row : &full, &block[*n_block]);
        ++*n_block;
        weft_op_attr_defaults(op[i], t->post_attr[i]);
        t->post[i] =
            (weft_kernel_post){op[i], t->post_attr[i], 2 + i, i == n - 1 ? 1 : -1};
    }
    out[1]         = out[0];
    out[0].p       = NULL;
    t->call.n_in   = 2 + n;
    t->call.n_out  = 2;
    t->call.n_post = n;
    t->call.post   = t->post;
}

/* Seconds; bytes that it moves, -1: the operator's and its steps'. */
static double time_case(weft_device *d, weft_stream *s, const weft_test_case *c,
                        timed_steps steps, double bytes)
{
    weft_arena *a;
    weft_op_use u;
    weft_view   in[16], out[4 + OP_MAX_STEP];
    weft_memory block[32], scratch, scalars;
    int         n_block = 0;
    char        text[256];
    MUST(weft_arena_create(&a));
    MUST(weft_test_case_make(c, a, &u));
    for (int k = 0; k < u.n_in; k++) {
        block[n_block] = place(d, c, &u, k);
        in[k] = weft_view_make(block[n_block++].address, u.in[k].dtype, &u.in[k].shape);
    }
    bool update = weft_op_get(c->op)->flags & WEFT_OP_UPDATE;
    for (int j = 0; j < u.n_out; j++) {
        int64_t size =
            weft_shape_count(&u.out[j].shape) * weft_dtype_bytes(u.out[j].dtype);
        void *p = in[j == 0 ? 0 : j + 1].p; /* in place */
        if (!update) {
            MUST(weft_device_alloc(d, WEFT_SPACE_DEVICE, size, &block[n_block]));
            p = block[n_block++].address;
        }
        out[j] = weft_view_make(p, u.out[j].dtype, &u.out[j].shape);
    }
    timed  t    = {.call = {.op        = c->op,
                            .attr      = u.attr,
                            .n_in      = u.n_in,
                            .n_own_in  = u.n_in,
                            .n_out     = u.n_out,
                            .n_own_out = u.n_out,
                            .in        = in,
                            .out       = out}};
    double more = 0;
    if (steps == WITH_GRADIENT) {
        block[n_block++] = add_gradient(d, &t, in, out);
        more             = 2 * (double)weft_shape_count(&u.in[0].shape);
    }
    if (steps == WITH_CHAIN) more = add_chain(d, a, &t, &u, in, out, block, &n_block);
    if (steps == KNOWN_ROWS || steps == FOUND_COLUMNS)
        block[n_block++] = add_largest(d, &t, in, out, steps);
    if (steps >= WITH_BIAS && steps < ADDED)
        add_steps(d, &t, in, out, steps, block, &n_block);
    t.call.add = steps == ADDED;
    MUST(weft_kernel_find(d->kernels, &t.call, &t.kernel));
    MUST(weft_device_alloc(d, WEFT_SPACE_DEVICE,
                           (int64_t)weft_kernel_scratch(t.kernel, &t.call, 1), &scratch));
    MUST(weft_device_alloc(d, WEFT_SPACE_DEVICE, sizeof(weft_step_scalars), &scalars));
    t.ctx = (weft_kernel_ctx){
        .scratch = scratch.address, .scalars = scalars.address, .queue = s->impl};
    MUST(weft_kernel_prepare(t.kernel, &t.ctx, a, &t.call));

    double seconds = time_calls(d, s, &t);
    if (bytes < 0) bytes = weft_op_bytes(&u) + more;
    printf("%9.4f ms %7.0f GB/s %6.1f TFLOP/s  %s%s\n", seconds * 1e3,
           bytes / seconds / 1e9, weft_op_flops(&u) / seconds / 1e12,
           weft_test_case_text(c, text, sizeof text), steps_name[steps]);
    fflush(stdout);
    weft_kernel_release(t.kernel, &t.call);
    weft_device_free(&scratch);
    weft_device_free(&scalars);
    while (n_block) weft_device_free(&block[--n_block]);
    weft_arena_destroy(a);
    return seconds;
}

/* ---- codes of fp8 ---- */

/* Passes that make codes of a (m,d), and how many of them a layer has.  They are timed with a
 * matmul of 16 columns, which is little but reads the codes once. */
typedef struct code_passes {
    int64_t     m, d;
    bool        turned; /* rows are a's columns */
    timed_steps steps;
    int         n[2]; /* GPT 1.3B, batch 8 x 1,024; a Llama of 1.2B, batch 8 x 2,048 */
} code_passes;

static const code_passes passes[] = {
    /* x and dy: along rows forward and for dx, then turned for dw */
    {8192, 2048, false, FOUND_COLUMNS, {5, 0}},
    {8192, 6144, false, FOUND_COLUMNS, {1, 0}},
    {8192, 8192, false, FOUND_COLUMNS, {2, 0}},
    {8192, 2048, true, KNOWN_ROWS, {5, 0}},
    {8192, 6144, true, KNOWN_ROWS, {1, 0}},
    {8192, 8192, true, KNOWN_ROWS, {2, 0}},
    {16384, 2048, false, FOUND_COLUMNS, {0, 6}},
    {16384, 8192, false, FOUND_COLUMNS, {0, 3}},
    {16384, 3072, false, NO_STEPS, {0, 1}},
    {16384, 2048, true, KNOWN_ROWS, {0, 6}},
    {16384, 8192, true, KNOWN_ROWS, {0, 3}},
    {16384, 3072, true, NO_STEPS, {0, 1}},
    /* weights */
    {2048, 6144, true, NO_STEPS, {1, 0}},
    {2048, 2048, true, NO_STEPS, {1, 0}},
    {2048, 8192, true, NO_STEPS, {1, 0}},
    {8192, 2048, true, NO_STEPS, {1, 0}},
    {2048, 6144, false, NO_STEPS, {1, 0}},
    {2048, 2048, false, NO_STEPS, {1, 0}},
    {2048, 8192, false, NO_STEPS, {1, 0}},
    {8192, 2048, false, NO_STEPS, {1, 0}},
    {3072, 2048, false, FOUND_COLUMNS, {0, 1}},
    {2048, 2048, false, FOUND_COLUMNS, {0, 1}},
    {8192, 2048, false, FOUND_COLUMNS, {0, 2}},
    {2048, 8192, false, FOUND_COLUMNS, {0, 1}},
    {3072, 2048, true, KNOWN_ROWS, {0, 1}},
    {2048, 2048, true, KNOWN_ROWS, {0, 1}},
    {8192, 2048, true, KNOWN_ROWS, {0, 2}},
    {2048, 8192, true, KNOWN_ROWS, {0, 1}},
    /* what it would be without largest magnitudes of other matmuls */
    {8192, 2048, false, NO_STEPS, {0, 0}},
    {8192, 8192, false, NO_STEPS, {0, 0}},
    {8192, 2048, true, NO_STEPS, {0, 0}},
    {8192, 8192, true, NO_STEPS, {0, 0}},
};

static void time_codes(weft_device *d, weft_stream *s)
{
    double seconds[2] = {0, 0}, bytes[2] = {0, 0};
    for (size_t i = 0; i < WEFT_COUNT(passes); i++) {
        const code_passes *p    = &passes[i];
        bool               once = !p->turned || p->steps == KNOWN_ROWS;
        double             b    = (double)(p->m * p->d) * (once ? 4 : 6);
        char               in[80];
        snprintf(in, sizeof in, "bf16[%ld,%ld] bf16[%ld,%ld]", (long)p->m, (long)p->d,
                 p->turned ? (long)p->m : 16L, p->turned ? 16L : (long)p->d);
        weft_test_case c = {.op    = WEFT_OP_MATMUL,
                            .attr  = p->turned ? "spec=md,mn->dn fp8=e4m3,e4m3"
                                               : "spec=md,nd->mn fp8=e4m3,e4m3",
                            .in    = in,
                            .n_out = 1};
        double         t = time_case(d, s, &c, p->steps, b);
        for (int k = 0; k < 2; k++) seconds[k] += p->n[k] * t, bytes[k] += p->n[k] * b;
    }
    for (int k = 0; k < 2; k++)
        printf("codes of a layer of %s: %.4f ms, %.0f GB/s\n",
               k ? "a Llama of 1.2B, batch 8 x 2,048" : "GPT 1.3B, batch 8 x 1,024",
               seconds[k] * 1e3, bytes[k] / seconds[k] / 1e9);
}

/* A matmul in all forms that a layer has, in fp8 (its passes included) and in bf16: which results
 * and steps cost more in one than in the other. */
static void time_products(weft_device *d, weft_stream *s)
{
    static const struct {
        const char *spec, *in;
        timed_steps steps;
    } forms[] = {
        {"spec=md,nd->mn", "bf16[8192,2048] bf16[8192,2048]", NO_STEPS},
        {"spec=md,nd->mn dtype=f32", "bf16[8192,2048] bf16[8192,2048]", NO_STEPS},
        {"spec=md,nd->mn dtype=f32", "bf16[8192,2048] bf16[8192,2048]", ADDED},
        {"spec=md,nd->mn", "bf16[8192,2048] bf16[8192,2048]", WITH_BIAS},
        {"spec=md,nd->mn", "bf16[8192,2048] bf16[8192,2048]", WITH_RESIDUAL},
        {"spec=md,nd->mn", "bf16[8192,2048] bf16[8192,2048]", WITH_GELU_GRAD},
        {"spec=md,nd->mn", "bf16[8192,8192] bf16[2048,8192]", NO_STEPS},
        {"spec=md,nd->mn", "bf16[8192,8192] bf16[2048,8192]", WITH_RESIDUAL},
        {"spec=md,nd->mn", "bf16[2048,8192] bf16[8192,8192]", NO_STEPS},
        {"spec=md,nd->mn dtype=f32", "bf16[2048,8192] bf16[8192,8192]", NO_STEPS},
        {"spec=md,nd->mn dtype=f32", "bf16[2048,8192] bf16[8192,8192]", ADDED},
    };
    for (size_t i = 0; i < WEFT_COUNT(forms); i++)
        for (int fp8 = 0; fp8 < 2; fp8++) {
            char attr[80];
            snprintf(attr, sizeof attr, "%s%s", forms[i].spec,
                     fp8 ? " fp8=e4m3,e4m3" : "");
            weft_test_case c = {
                .op = WEFT_OP_MATMUL, .attr = attr, .in = forms[i].in, .n_out = 1};
            time_case(d, s, &c, forms[i].steps, -1);
        }
}

int main(int argc, char **argv)
{
    weft_device      *d;
    weft_device_facts facts;
    weft_stream       s;
    MUST(weft_plugin_open_device("cuda", 0, &d));
    MUST(d->facts(d, &facts));
    MUST(d->stream_open(d, "bench", &s));
    printf("%s, %s\n", facts.name, facts.versions);
    for (size_t i = 0; i < WEFT_COUNT(cases); i++)
        if (argc < 2 || strstr(weft_op_get(cases[i].op)->name, argv[1]))
            time_case(d, &s, &cases[i], NO_STEPS, -1);
    for (size_t i = 0; i < WEFT_COUNT(fused); i++)
        if (argc < 2 || strstr(weft_op_get(fused[i].op)->name, argv[1]))
            time_case(d, &s, &fused[i], WITH_CHAIN, -1);
    for (size_t i = 0; i < WEFT_COUNT(with_gradient); i++)
        if (argc < 2 || strstr(weft_op_get(with_gradient[i].op)->name, argv[1]))
            time_case(d, &s, &with_gradient[i], WITH_GRADIENT, -1);
    if (argc < 2 || !strcmp(argv[1], "codes")) time_codes(d, &s);
    if (argc < 2 || !strcmp(argv[1], "products")) time_products(d, &s);
    d->stream_close(&s);
    weft_plugin_close_device(d);
    return 0;
}
