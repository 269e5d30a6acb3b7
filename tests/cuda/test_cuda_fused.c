/* plugin/cuda/ops/norm.c, fp8.c, turned.c: what lowering fuses for GPUs (weft_fusion) has the bits
 * of instructions of their own; and jobs for GPUs ask for no other fusions than kernels take.
 * Norms of bf16: a warp goes through many rows, unless a block has too little shared memory for
 * it. */
#include "support/test.h"

#include <math.h>

#include "base/random.h"
#include "compile/compile.h"
#include "gpu_test.h"
#include "kernel/kernel.h"
#include "kernel/vec.h"
#include "plugin/plugin.h"
#include "support/device_call.h"
#include "support/fixture.h"

static weft_device *device;

/* A tensor of drawn numbers, aligned. */
static weft_view tensor(weft_dtype type, int n, const int64_t *d)
{
    weft_shape s     = weft_shape_make(n, d);
    int64_t    count = weft_shape_count(&s);
    char      *p     = weft_arena_alloc(arena, (size_t)(count * 4 + 128));
    assert_non_null(p);
    p += (64 - (uintptr_t)p % 64) % 64;
    for (int64_t i = 0; i < count; i++) {
        float x = 2.0f * weft_random_uniform(test_draw()) - 1.0f;
        if (type == WEFT_DTYPE_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = weft_bf16_round(x);
    }
    return weft_view_make(p, type, &s);
}
#define TENSOR(type, ...)                                                                \
    tensor(type, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})

static weft_view copy_of(const weft_view *v)
{
    weft_view y = tensor(v->dtype, v->shape.n, v->shape.d);
    memcpy(y.p, v->p, (size_t)(weft_shape_count(&v->shape) * weft_dtype_bytes(v->dtype)));
    return y;
}

static void assert_same(const weft_view *a, const weft_view *b)
{
    assert_memory_equal(
        a->p, b->p, (size_t)(weft_shape_count(&a->shape) * weft_dtype_bytes(a->dtype)));
}

static const weft_attr *attributes(weft_op op, const char *text)
{
    weft_attr *a = WEFT_ARENA_ARRAY(arena, weft_attr, WEFT_MAX_ATTR);
    assert_ok(weft_op_parse_attr(op, text, arena, a));
    return a;
}

static void run(weft_kernel_call *c)
{
    static const weft_step_scalars scalars = {0};
    device_call                    d;
    if (!c->n_own_in) c->n_own_in = c->n_in;
    if (!c->n_own_out) c->n_own_out = c->n_out;
    assert_ok(device_call_open(&d, device, NULL, c, NULL));
    assert_ok(device_call_run(&d, &scalars));
    device_call_close(&d);
}

/* y += or = sums of x over its first two dimensions */
static void run_sums(weft_view *x, weft_view *y, bool add)
{
    weft_kernel_call c = {.op    = WEFT_OP_REDUCE,
                          .attr  = attributes(WEFT_OP_REDUCE, "axes=[0,1] dtype=f32"),
                          .n_in  = 1,
                          .n_out = 1,
                          .in    = x,
                          .out   = y,
                          .add   = add};
    run(&c);
}

/* A norm's gradient with residual and sums against three calls; rows of any width. */
static void check_norm_grad(weft_dtype type, bool rms, int64_t rows, int64_t d)
{
    weft_op          op   = rms ? WEFT_OP_RMS_NORM_GRAD : WEFT_OP_LAYER_NORM_GRAD;
    int              n_in = rms ? 4 : 5, n_out = rms ? 2 : 3;
    weft_view        in[6], out[5], apart[5], sum[2];
    weft_kernel_post post[2] = {
        {.op   = WEFT_OP_ADD,
         .attr = attributes(WEFT_OP_ADD, ""),
         .in   = n_in,
         .out  = n_out},
        {.op   = WEFT_OP_REDUCE,
         .attr = attributes(WEFT_OP_REDUCE, "axes=[0,1] dtype=f32"),
         .in   = -1,
         .out  = n_out + 1}};
    in[0] = TENSOR(type, 2, rows, d);
    in[1] = TENSOR(type, 2, rows, d);
    in[2] = TENSOR(WEFT_DTYPE_F32, d);
    for (int k = 3; k < n_in; k++) in[k] = TENSOR(WEFT_DTYPE_F32, 2, rows);
    in[n_in] = TENSOR(type, 2, rows, d);
    out[0]   = TENSOR(type, 2, rows, d);
    for (int k = 1; k < n_out; k++) out[k] = TENSOR(WEFT_DTYPE_F32, d);
    out[n_out]     = TENSOR(type, 2, rows, d);
    out[n_out + 1] = TENSOR(WEFT_DTYPE_F32, d);
    for (int k = 0; k < n_out + 2; k++) apart[k] = copy_of(&out[k]);
    weft_kernel_call c = {.op    = op,
                          .attr  = attributes(op, ""),
                          .n_in  = n_in,
                          .n_out = n_out,
                          .in    = in,
                          .out   = apart,
                          .add   = 2};
    run(&c);
    sum[0]               = apart[0];
    sum[1]               = in[n_in];
    weft_kernel_call add = {.op    = WEFT_OP_ADD,
                            .attr  = attributes(WEFT_OP_ADD, ""),
                            .n_in  = 2,
                            .n_out = 1,
                            .in    = sum,
                            .out   = &apart[n_out]};
    run(&add);
    run_sums(&apart[n_out], &apart[n_out + 1], true);

    out[0].p = NULL;
    c.out    = out;
    c.n_in   = n_in + 1;
    c.n_out  = n_out + 2;
    c.n_post = 2;
    c.post   = post;
    c.add    = 2u | 1u << (n_out + 1);
    run(&c);
    for (int k = 1; k < n_out + 2; k++) assert_same(&out[k], &apart[k]);
}

static double number(const weft_view *v, int64_t i)
{
    return v->dtype == WEFT_DTYPE_F32
               ? (double)((const float *)v->p)[i]
               : (double)weft_bf16_widen(((const uint16_t *)v->p)[i]);
}

/* Parts of more than 32 rows, whose means and deviations are read 32 at a time: against the
 * formula. */
static void check_long_parts(weft_dtype type, bool rms)
{
    enum {
        ROWS = 53000,
        D    = 8
    };
    weft_op   op   = rms ? WEFT_OP_RMS_NORM_GRAD : WEFT_OP_LAYER_NORM_GRAD;
    int       n_in = rms ? 4 : 5;
    weft_view in[5], out[3];
    in[0] = TENSOR(type, ROWS, D);
    in[1] = TENSOR(type, ROWS, D);
    in[2] = TENSOR(WEFT_DTYPE_F32, D);
    for (int k = 3; k < n_in; k++) in[k] = TENSOR(WEFT_DTYPE_F32, ROWS);
    out[0] = TENSOR(type, ROWS, D);
    out[1] = out[2]    = TENSOR(WEFT_DTYPE_F32, D);
    weft_kernel_call c = {.op    = op,
                          .attr  = attributes(op, ""),
                          .n_in  = n_in,
                          .n_out = rms ? 2 : 3,
                          .in    = in,
                          .out   = out};
    if (!rms) out[2] = TENSOR(WEFT_DTYPE_F32, D);
    run(&c);
    for (int64_t r = 0; r < ROWS; r++) {
        double mean = rms ? 0 : number(&in[3], r), rstd = number(&in[n_in - 1], r);
        double g[D], h[D], sum = 0, dot = 0;
        for (int k = 0; k < D; k++) {
            h[k] = (number(&in[1], r * D + k) - mean) * rstd;
            g[k] = number(&in[0], r * D + k) * number(&in[2], k);
            sum += rms ? 0 : g[k] / D;
            dot += g[k] * h[k] / D;
        }
        for (int k = 0; k < D; k++) {
            double y = rstd * (g[k] - sum - h[k] * dot), x = number(&out[0], r * D + k);
            if (fabs(x - y) > (type == WEFT_DTYPE_F32 ? 1e-5 : 1e-2))
                fail_msg("row %ld: %g instead of %g", (long)r, x, y);
        }
    }
}

static void test_long_parts(void **state)
{
    (void)state;
    check_long_parts(WEFT_DTYPE_F32, false);
    check_long_parts(WEFT_DTYPE_BF16, true);
}

static void test_norm_grads(void **state)
{
    (void)state;
    static const int64_t width[] = {8, 264, 768, 2048, 2056, 33};
    for (size_t k = 0; k < WEFT_COUNT(width); k++)
        for (int rms = 0; rms < 2; rms++) {
            check_norm_grad(WEFT_DTYPE_BF16, rms, width[k] > 1000 ? 20 : 67, width[k]);
            check_norm_grad(WEFT_DTYPE_F32, rms, 13, width[k]);
        }
    check_norm_grad(WEFT_DTYPE_BF16, false, 2500, 16); /* parts of several rows */
}

/* ---- largest magnitudes that one matmul in fp8 finds for another ---- */

/* Rows and columns of many sizes, so that each has a scale of its own. */
static weft_view uneven(int64_t rows, int64_t columns)
{
    weft_view x = TENSOR(WEFT_DTYPE_BF16, rows, columns);
    for (int64_t i = 0; i < rows * columns; i++) {
        uint16_t *p    = (uint16_t *)x.p + i;
        uint32_t  bits = (uint32_t)*p << 16;
        float     y;
        memcpy(&y, &bits, sizeof y);
        *p =
            weft_bf16_round(ldexpf(y, (int)(i / columns * 7 % 5 - i % columns * 3 % 11)));
    }
    return x;
}

static weft_kernel_call fp8_call(const char *spec, weft_view *in, weft_view *out)
{
    return (weft_kernel_call){.op    = WEFT_OP_MATMUL,
                              .attr  = attributes(WEFT_OP_MATMUL, spec),
                              .n_in  = 2,
                              .n_out = 1,
                              .in    = in,
                              .out   = out};
}

/* Largest magnitudes of the columns of x (rows,columns). */
static weft_view largest_of(const weft_view *x)
{
    int64_t   n = x->shape.d[1];
    weft_view y = TENSOR(WEFT_DTYPE_F32, n);
    memset(y.p, 0, sizeof(float) * (size_t)n);
    for (int64_t i = 0; i < weft_shape_count(&x->shape); i++) {
        uint32_t bits = ((const uint16_t *)x->p)[i] & 0x7fffu, *most = y.p;
        if (bits << 16 > most[i % n]) most[i % n] = bits << 16;
    }
    return y;
}

/* x and w from the forward pass to dw and dx, dy from dx to dw: the bits of matmuls that find all
 * of their rows' largest numbers themselves. */
static void check_largest(int64_t m, int64_t d, int64_t n)
{
    static const char *const spec[3] = {"spec=md,nd->mn fp8=e4m3,e4m3,e5m2",
                                        "spec=mn,nd->md fp8=e5m2,e4m3",
                                        "spec=mn,md->nd dtype=f32 fp8=e5m2,e4m3"};
    weft_view x = uneven(m, d), w = uneven(n, d), dy = uneven(m, n), none = {.p = NULL};
    weft_view in[3][4]  = {{x, w}, {dy, w}, {dy, x}}, apart[3], found[3];
    weft_view out[3][3] = {{TENSOR(WEFT_DTYPE_BF16, m, n)},
                           {TENSOR(WEFT_DTYPE_BF16, m, d)},
                           {TENSOR(WEFT_DTYPE_F32, n, d)}};
    for (int i = 0; i < 3; i++) {
        apart[i]           = copy_of(&out[i][0]);
        weft_kernel_call c = fp8_call(spec[i], in[i], &apart[i]);
        run(&c);
        found[i] = TENSOR(WEFT_DTYPE_F32, i == 2 ? n : d);
    }
    out[0][1] = found[0], out[0][2] = found[1]; /* of x and w */
    out[1][1] = found[2], out[1][2] = none;     /* of dy */
    in[1][2] = none, in[1][3] = found[1];
    in[2][2] = found[2], in[2][3] = found[0];
    for (int i = 0; i < 3; i++) {
        weft_kernel_call c = fp8_call(spec[i], in[i], out[i]);
        if (i) c.n_in = 4;
        if (i < 2) c.n_out = 3;
        run(&c);
        assert_same(&out[i][0], &apart[i]);
    }
    const weft_view *operand[3] = {&x, &w, &dy};
    for (int i = 0; i < 3; i++) {
        weft_view want = largest_of(operand[i]);
        assert_same(&found[i], &want);
    }
}

static void test_largest(void **state)
{
    (void)state;
    check_largest(16, 16, 16);
    check_largest(48, 1040, 160);
    check_largest(80, 2064, 48);
    check_largest(8300, 48, 16); /* threads take several rows */
    if (!test_gpu_is_real()) return;
    check_largest(8192, 2048, 6144);
    check_largest(2048, 8192, 2048);
    check_largest(1040, 32768, 64);
}

/* A norm's rows of bf16 against the formula. */
static void check_norm(bool rms, int64_t rows, int64_t d)
{
    weft_op          op = rms ? WEFT_OP_RMS_NORM : WEFT_OP_LAYER_NORM;
    int              n  = rms ? 2 : 3; /* inputs, and results */
    weft_view        in[3], out[3];
    weft_kernel_call c = {.op    = op,
                          .attr  = attributes(op, "eps=1e-5"),
                          .n_in  = n,
                          .n_out = n,
                          .in    = in,
                          .out   = out};
    in[0]              = TENSOR(WEFT_DTYPE_BF16, rows, d);
    out[0]             = TENSOR(WEFT_DTYPE_BF16, rows, d);
    for (int k = 1; k < n; k++) {
        in[k]  = TENSOR(WEFT_DTYPE_F32, d);
        out[k] = TENSOR(WEFT_DTYPE_F32, rows);
    }
    run(&c);
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < d && !rms; i++)
            mean += number(&in[0], r * d + i) / (double)d;
        for (int64_t i = 0; i < d; i++)
            square += pow(number(&in[0], r * d + i) - mean, 2) / (double)d;
        double rstd = 1 / sqrt(square + 1e-5);
        if (fabs(number(&out[n - 1], r) / rstd - 1) > 1e-5 ||
            (!rms && fabs(number(&out[1], r) - mean) > 1e-6))
            fail_msg("row %ld of %ld: statistics", (long)r, (long)d);
        for (int64_t i = 0; i < d; i++) {
            double x = number(&out[0], r * d + i);
            double y = (number(&in[0], r * d + i) - mean) * rstd * number(&in[1], i) +
                       (rms ? 0 : number(&in[2], i));
            if (!(fabs(x - y) <= 4e-3 * fabs(y) + 1e-5))
                fail_msg("row %ld of %ld, column %ld: %g instead of %g", (long)r, (long)d,
                         (long)i, x, y);
        }
    }
}

/* Vectors of a lane: 1 to 8, the last not of all lanes; then a block has a row. */
static void test_norms(void **state)
{
    (void)state;
    static const int64_t width[] = {8,    256,  264,  768,  1016, 1032,
                                    1600, 1672, 2048, 2056, 2304, 4096};
    for (size_t k = 0; k < WEFT_COUNT(width); k++)
        for (int rms = 0; rms < 2; rms++) check_norm(rms, 19, width[k]);
}

/* Rooms of a warp in turn: of 528 blocks, 8 warps each, 3 rooms; 2 for 520 columns. */
static void test_many_rows(void **state)
{
    (void)state;
    check_norm(false, 4 * 528 * 8 + 5, 8);
    check_norm(true, 3 * 528 * 8 - 3, 520);
}

/* A GPU whose blocks have 99 KiB of shared memory. */
/* Losses of rows with all of their gradient. */
static weft_view find_loss(weft_view *in, weft_view *gradient)
{
    int64_t          n      = in[0].shape.d[0];
    weft_view        x      = copy_of(&in[0]);
    weft_view        all[3] = {x, in[1], in[2]};
    weft_view        out[3] = {TENSOR(WEFT_DTYPE_F32, n), TENSOR(WEFT_DTYPE_F32, n), x};
    weft_kernel_post post   = {WEFT_OP_CROSS_ENTROPY_GRAD,
                               attributes(WEFT_OP_CROSS_ENTROPY_GRAD, ""), 2, 2};
    weft_kernel_call c      = {.op        = WEFT_OP_CROSS_ENTROPY,
                               .attr      = attributes(WEFT_OP_CROSS_ENTROPY, ""),
                               .n_in      = 3,
                               .n_own_in  = 2,
                               .n_out     = 3,
                               .n_own_out = 2,
                               .in        = all,
                               .out       = out,
                               .n_post    = 1,
                               .post      = &post};
    run(&c);
    *gradient = out[2];
    return out[0];
}

static void test_small_shared(void **state)
{
    int64_t rows = 3, columns = 81000; /* more than a block keeps on a GPU with 99 KiB */
    int32_t label[3] = {5, 80999, 40000};
    weft_view in[3]  = {TENSOR(WEFT_DTYPE_BF16, rows, columns),
                        TENSOR(WEFT_DTYPE_F32, rows), TENSOR(WEFT_DTYPE_F32, rows)};
    weft_view gradient[2], loss[2];
    (void)state;
    if (test_gpu_is_real()) skip();
    in[1] = weft_view_make(in[1].p, WEFT_DTYPE_I32, &in[1].shape);
    memcpy(in[1].p, label, sizeof label);
    loss[0] = find_loss(in, &gradient[0]);
    weft_plugin_close_device(device);
    setenv("WEFT_STUB_SHARED", "101376", 1);
    assert_ok(weft_plugin_open_device("cuda", 0, &device));
    check_norm(false, 19, 1024);
    check_norm(false, 19, 2048);
    check_norm(true, 19, 2048);
    loss[1] = find_loss(in, &gradient[1]);
    assert_same(&loss[0], &loss[1]);
    assert_same(&gradient[0], &gradient[1]);
    weft_plugin_close_device(device);
    unsetenv("WEFT_STUB_SHARED");
    assert_ok(weft_plugin_open_device("cuda", 0, &device));
}

/* ---- attention's gradient, dq and dk turned back ---- */

/* in: dy, q, k, v, o, lse. */
static void find_gradients(weft_view in[6], weft_view *out, int n_out, int n_post,
                           const weft_kernel_post *post)
{
    weft_kernel_call c = {.op        = WEFT_OP_ATTENTION_GRAD,
                          .attr      = attributes(WEFT_OP_ATTENTION_GRAD, "causal=1"),
                          .n_in      = 6,
                          .n_own_in  = 6,
                          .n_out     = n_out,
                          .n_own_out = 3,
                          .in        = in,
                          .out       = out,
                          .n_post    = n_post,
                          .post      = post};
    run(&c);
}

static weft_view turn(weft_view x, const char *attr)
{
    weft_view        y = tensor(x.dtype, x.shape.n, x.shape.d);
    weft_kernel_call c = {.op        = WEFT_OP_ROTARY,
                          .attr      = attributes(WEFT_OP_ROTARY, attr),
                          .n_in      = 1,
                          .n_own_in  = 1,
                          .n_out     = 1,
                          .n_own_out = 1,
                          .in        = &x,
                          .out       = &y};
    run(&c);
    return y;
}

static void check_turned(weft_dtype type, int64_t e, const char *of_q, const char *of_k)
{
    int64_t          b = 2, s = 70, h = 4, g = 2;
    weft_view        in[6]    = {TENSOR(type, b, s, h, e), TENSOR(type, b, s, h, e),
                                 TENSOR(type, b, s, g, e), TENSOR(type, b, s, g, e),
                                 TENSOR(type, b, s, h, e), TENSOR(WEFT_DTYPE_F32, b, s, h)};
    weft_kernel_call forward  = {.op        = WEFT_OP_ATTENTION,
                                 .attr      = attributes(WEFT_OP_ATTENTION, "causal=1"),
                                 .n_in      = 3,
                                 .n_own_in  = 3,
                                 .n_out     = 2,
                                 .n_own_out = 2,
                                 .in        = in + 1,
                                 .out       = in + 4};
    weft_view        apart[3] = {copy_of(&in[1]), copy_of(&in[2]), copy_of(&in[3])};
    weft_view        all[5]   = {apart[0], apart[1], copy_of(&in[3]), copy_of(&in[1]),
                                 copy_of(&in[2])};
    weft_kernel_post post[2]  = {
         {WEFT_OP_ROTARY, attributes(WEFT_OP_ROTARY, of_q), -1, 3},
         {WEFT_OP_ROTARY, attributes(WEFT_OP_ROTARY, of_k), -1, 4}};
    run(&forward);
    find_gradients(in, apart, 3, 0, NULL);
    weft_view dq = turn(apart[0], of_q), dk = turn(apart[1], of_k);
    all[0].p = all[1].p = NULL;
    find_gradients(in, all, 5, 2, post);
    assert_same(&all[3], &dq);
    assert_same(&all[4], &dk);
    assert_same(&all[2], &apart[2]);
}

/* By each row of the table where there is a GPU: warpgroups, cuDNN, the plain kernel. */
static void test_turned(void **state)
{
    (void)state;
    static const char    q[] = "inverse=1 theta=500", k[] = "inverse=1 theta=500 first=5";
    static const int64_t e[] = {64, 128, 96};
    check_turned(WEFT_DTYPE_F32, 32, q, q);
    for (size_t i = 0; i < WEFT_COUNT(e); i++) check_turned(WEFT_DTYPE_BF16, e[i], q, q);
    check_turned(WEFT_DTYPE_BF16, 64, q, k);
}

/* Jobs for GPUs ask for what kernels take; a row gets no step that it does not name. */
static void test_what_is_asked_for(void **state)
{
    (void)state;
    weft_compile_spec spec = {0};
    weft_compile_for_cuda(&spec);
    assert_true(spec.fusions != 0);
    assert_int_equal(spec.fusions & ~weft_kernel_fusions("cuda"), 0);
    assert_int_equal(weft_kernel_fusions("cpu"), WEFT_FUSION_COPY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(test_norm_grads),   with_arena(test_long_parts),
        with_arena(test_norms),        with_arena(test_many_rows),
        with_arena(test_small_shared), with_arena(test_largest),
        with_arena(test_turned),       with_arena(test_what_is_asked_for),
    };
    if (!test_gpu_start()) return 1;
    if (weft_plugin_open_device("cuda", 0, &device) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_plugin_close_device(device);
    return failed;
}
