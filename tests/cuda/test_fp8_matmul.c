/* plugin/cuda/ops/fp8.c and kernels/fp8.cu on the CPU, over a cublasLt that computes there, against
 * the CPU's own matmul: both round in the same way, so results differ by the order of sums. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "support/test.h"

#include "base/random.h"
#include "cuda_priv.h"
#include "library.h"
#include "op/workspace.h"
#include "support/device_call.h"
#include "support/fixture.h"
#include "support/kernels.h"
#include "tensor/fp8.h"

static const weft_kernel fp8 = {.op      = WEFT_OP_MATMUL,
                                .run     = weft_cuda_run_fp8,
                                .scratch = weft_cuda_scratch_fp8,
                                .takes   = weft_cuda_takes_fp8,
                                .prepare = weft_cuda_prepare_fp8,
                                .release = weft_cuda_release_fp8};

static const char log_file[] = "/tmp/weft_test_fp8_log";

static char *log_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "%s_%d", log_file, (int)getpid());
    return path;
}

static void open_stub(void)
{
    setenv("WEFT_CUDA_LIBS", WEFT_TEST_CUDA_STUB, 1);
    assert_ok(weft_cuda_libraries_open(13000));
}

/* ---- codes ---- */

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Every bf16 that fits, in a row whose unit is 1: the code is the CPU's. */
static void test_codes(void **state)
{
    (void)state;
    for (int e5m2 = 0; e5m2 < 2; e5m2++) {
        weft_dtype             t    = e5m2 ? WEFT_DTYPE_F8_E5M2 : WEFT_DTYPE_F8_E4M3;
        float                  most = weft_fp8_format_of(t).most, unit = 0;
        float                 *x    = WEFT_ARENA_ARRAY(arena, float, 1 << 17);
        uint8_t               *code = WEFT_ARENA_ARRAY(arena, uint8_t, 1 << 17);
        int64_t                n    = 0;
        weft_cuda_fp8_any_args a    = {
               .x = x, .y = code, .unit = &unit, .x_dtype = WEFT_DTYPE_F32, .e5m2 = e5m2};
        x[n++] = most;
        for (uint32_t u = 0; u < 0x10000; u++) {
            float y = float_of(u << 16 | (u & 1 ? 0 : 0x8000)); /* halfway, too */
            if (fabsf(y) <= most) x[n++] = y;
        }
        a.row   = (weft_cuda_nd){.n_op = 2, .count = 1};
        a.along = a.row;
        weft_cuda_nd_dim(&a.row, 1, (int64_t[]){n, n});
        weft_cuda_nd_dim(&a.along, n, (int64_t[]){1, 1});
        a.k_row             = n + 3;
        code[n]             = 7;
        weft_kernel_ctx ctx = {0};
        assert_ok(weft_cuda_launch(&ctx, WEFT_CUDA_fp8_any,
                                   weft_cuda_grid_1d(32, WEFT_CUDA_FP8_THREADS), &a));
        assert_true(unit == 1);
        for (int64_t i = 0; i < n; i++)
            if (code[i] != weft_fp8_encode(x[i], t))
                fail_msg("%a has code %02x, not %02x", (double)x[i], code[i],
                         weft_fp8_encode(x[i], t));
        for (int64_t i = n; i < n + 3; i++) assert_int_equal(code[i], 0);
    }
}

/* ---- one matmul both ways ---- */

typedef struct fp8_case {
    const char *spec, *formats;
    int64_t     d[2][4]; /* of a and b */
    weft_dtype  in, out;
    int64_t     pad; /* between rows of a and b */
    unsigned    add;
    bool        bias, gelu;
    const char *how; /* how it runs, as logged */
} fp8_case;

static weft_view make_view(weft_dtype t, const weft_shape *s, int64_t pad, float scale)
{
    weft_view v    = weft_view_make(NULL, t, s);
    int64_t   size = 1;
    for (int d = s->n - 1; d >= 0; d--) {
        v.stride[d] = size;
        size *= s->d[d] + (d == s->n - 1 ? pad : 0);
    }
    v.p = WEFT_ARENA_ARRAY(arena, float, size + 64);
    v.p = (void *)(((uintptr_t)v.p + 63) / 64 * 64);
    for (int64_t i = 0; i < size; i++) {
        float x = scale * (2 * weft_random_uniform(test_draw()) - 1);
        if (i % 7 == 3) x *= 0x1p-12f; /* small ones, too */
        uint32_t u;
        memcpy(&u, &x, sizeof u);
        if (t == WEFT_DTYPE_F32)
            ((float *)v.p)[i] = float_of(u & 0xffff0000u);
        else
            ((uint16_t *)v.p)[i] = (uint16_t)(u >> 16);
    }
    return v;
}

static double get(const weft_view *v, int64_t i)
{
    int64_t at = 0;
    for (int d = v->shape.n - 1; d >= 0; d--) {
        at += i % v->shape.d[d] * v->stride[d];
        i /= v->shape.d[d];
    }
    if (v->dtype == WEFT_DTYPE_F32) return (double)((float *)v->p)[at];
    return (double)float_of((uint32_t)((uint16_t *)v->p)[at] << 16);
}

static const weft_attr *attributes(weft_op op, const char *text)
{
    weft_attr *a = WEFT_ARENA_ARRAY(arena, weft_attr, WEFT_MAX_ATTR);
    assert_ok(weft_op_parse_attr(op, text, arena, a));
    return a;
}

static void read_log(char *text, size_t n)
{
    FILE  *f  = fopen(log_path(), "r");
    size_t at = f ? fread(text, 1, n - 1, f) : 0;
    text[at]  = 0;
    if (f) fclose(f);
    unlink(log_path());
}

static void compare(const weft_view *got, const weft_view *want, const char *text)
{
    double  off = 0, norm = 0;
    int64_t n = weft_shape_count(&want->shape);
    for (int64_t i = 0; i < n; i++) {
        double a = get(got, i), b = get(want, i);
        if (isnan(a) && isnan(b)) continue;
        off += (a - b) * (a - b);
        norm += b * b;
    }
    double limit = want->dtype == WEFT_DTYPE_F32 ? 1e-5 : 1e-2;
    if (!(sqrt(off) <= limit * sqrt(norm)))
        fail_msg("%s: error %g", text, sqrt(off / norm));
}

typedef struct trial {
    weft_view        in[4], out[3];
    weft_kernel_post post[2];
    weft_kernel_call call;
    char             text[160];
} trial;

static void open_trial(trial *t, const fp8_case *p)
{
    weft_op_use u = {.op = WEFT_OP_MATMUL, .n_in = 2, .n_out = 1};
    weft_type   type[2], y;
    const char *b    = strchr(p->spec, ',') + 1;
    size_t      n[2] = {(size_t)(b - 1 - p->spec), (size_t)(strchr(b, '-') - b)};
    char        text[96];
    snprintf(text, sizeof text, "spec=%s fp8=%s%s", p->spec, p->formats,
             p->in != p->out ? " dtype=f32" : "");
    *t = (trial){.call = {.op = WEFT_OP_MATMUL, .n_in = 2, .n_out = 1, .add = p->add}};
    snprintf(t->text, sizeof t->text, "%s %s", text, p->how);
    for (int k = 0; k < 2; k++) {
        type[k]  = (weft_type){p->in, weft_shape_make((int)n[k], p->d[k])};
        t->in[k] = make_view(p->in, &type[k].shape, p->pad, k ? 0.02f : 3.0f);
    }
    u.attr = t->call.attr = attributes(WEFT_OP_MATMUL, text);
    u.in                  = type;
    assert_ok(weft_op_infer(&u, &y));
    t->out[0]         = make_view(p->out, &y.shape, 0, 1);
    t->call.n_own_in  = 2;
    t->call.n_own_out = 1;
    weft_shape row    = weft_shape_make(1, &y.shape.d[y.shape.n - 1]);
    weft_view  bias   = make_view(p->out, &row, 0, 1);
    t->call.in        = t->in;
    t->call.out       = t->out;
    t->call.post      = t->post;
    if (p->bias) {
        t->post[0] = (weft_kernel_post){WEFT_OP_ADD, attributes(WEFT_OP_ADD, ""), 2, 1};
        t->in[t->call.n_in++]   = bias;
        t->out[t->call.n_out++] = make_view(p->out, &y.shape, 0, 1);
        t->call.n_post          = 1;
        t->out[0].p             = NULL;
    }
    if (p->gelu) {
        const weft_attr *tanh_form = attributes(WEFT_OP_GELU, "approx=tanh");
        t->post[1]                 = (weft_kernel_post){WEFT_OP_GELU, tanh_form, -1, 2};
        t->out[t->call.n_out++]    = make_view(p->out, &y.shape, 0, 1);
        t->call.n_post             = 2;
    }
}

/* Memory for a result, with the same contents. */
static weft_view copy_result(const weft_view *v)
{
    weft_view w = *v;
    size_t    n = (size_t)weft_shape_count(&v->shape) * 4 + 64;
    if (!v->p) return w;
    w.p = WEFT_ARENA_ARRAY(arena, char, n + 64);
    w.p = (void *)(((uintptr_t)w.p + 63) / 64 * 64);
    memcpy(w.p, v->p, n - 64);
    return w;
}

/* ---- with largest magnitudes that other matmuls have found, and for others ---- */

static bool has_letter(const char *letters, char c)
{
    return strchr(letters, c) != NULL;
}

/* Largest magnitudes of rows of an operand, or of columns. */
static weft_view find_largest(const weft_view *x, const char *letters, const char *result,
                              bool rows)
{
    weft_shape shape = weft_shape_make(1, (int64_t[]){1});
    for (int d = 0; d < x->shape.n; d++)
        if (has_letter(result, letters[d]) == rows) shape.d[0] *= x->shape.d[d];
    weft_view y = weft_view_make(WEFT_ARENA_ARRAY(arena, float, shape.d[0] + 16),
                                 WEFT_DTYPE_F32, &shape);
    y.p         = (void *)(((uintptr_t)y.p + 15) / 16 * 16);
    memset(y.p, 0, sizeof(float) * (size_t)shape.d[0]);
    for (int64_t i = 0; i < weft_shape_count(&x->shape); i++) {
        int64_t at = 0, rest = i, step = 1;
        for (int d = x->shape.n - 1; d >= 0; d--) {
            if (has_letter(result, letters[d]) == rows) {
                at += rest % x->shape.d[d] * step;
                step *= x->shape.d[d];
            }
            rest /= x->shape.d[d];
        }
        float   *most = (float *)y.p + at, found = (float)fabs(get(x, i));
        uint32_t a = weft_fp8_magnitude(*most), b = weft_fp8_magnitude(found);
        if (b > a) *most = found;
    }
    return y;
}

/* The same bits, and the largest of columns, each number of which is written. */
static void run_shared(const fp8_case *p, const trial *t, const weft_view *first)
{
    static const weft_step_scalars scalars = {0};
    const char      *b = strchr(p->spec, ',') + 1, *result = strstr(p->spec, "->") + 2;
    weft_view        in[6], out[5], want[2];
    device_call      k;
    char             said[400];
    weft_kernel_post post[2];
    weft_kernel_call c = t->call;
    memcpy(post, t->post, sizeof post);
    for (int i = 0; i < c.n_post; i++) {
        if (post[i].in >= 0) post[i].in += 2;
        if (post[i].out >= 0) post[i].out += 2;
    }
    for (int i = 0; i < 2; i++) {
        in[i]      = t->in[i];
        in[2 + i]  = find_largest(&in[i], i ? b : p->spec, result, true);
        want[i]    = find_largest(&in[i], i ? b : p->spec, result, false);
        out[1 + i] = copy_result(&want[i]);
        memset(out[1 + i].p, 0x7f, sizeof(float) * (size_t)want[i].shape.d[0]);
    }
    for (int i = 2; i < c.n_in; i++) in[2 + i] = t->in[i];
    out[0] = copy_result(&t->out[0]);
    for (int j = 1; j < c.n_out; j++) out[2 + j] = copy_result(&t->out[j]);
    c.in = in, c.out = out, c.post        = post;
    c.n_in += 2, c.n_out += 2, c.n_own_in = 4, c.n_own_out = 3;
    unlink(log_path());
    assert_ok(device_call_open(&k, weft_device_guard(), &fp8, &c, NULL));
    for (int i = 0; i < (p->add ? 1 : 2); i++) assert_ok(device_call_run(&k, &scalars));
    device_call_close(&k);
    read_log(said, sizeof said);
    if (!strstr(said,
                ", rows of a known, columns of a found, rows of b known, columns of b"))
        fail_msg("%s: runs as %s", t->text, said);
    for (int j = 0; j < t->call.n_out; j++) {
        const weft_view *y = &out[j ? 2 + j : 0];
        size_t n = (size_t)(weft_shape_count(&y->shape) * weft_dtype_bytes(y->dtype));
        if (y->p && memcmp(y->p, first[j].p, n)) fail_msg("%s: other bits", t->text);
    }
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; at < want[i].shape.d[0]; at++) {
            uint32_t x = weft_fp8_magnitude(((float *)want[i].p)[at]);
            uint32_t y = weft_fp8_magnitude(((float *)out[1 + i].p)[at]);
            if (x != y) fail_msg("%s: column %ld of %c", t->text, (long)at, "ab"[i]);
        }
}

static void run_case(const fp8_case *p, bool nan_row)
{
    static const weft_step_scalars scalars = {0};
    trial                          t;
    weft_view                      out[3];
    device_call                    k;
    char                           said[400];
    open_trial(&t, p);
    if (nan_row) /* all results of row 1 are not finite */
        ((uint16_t *)t.in[0].p)[t.in[0].stride[0] + 2] = 0x7f80;
    weft_kernel_call c = t.call;
    c.out              = out;
    for (int j = 0; j < c.n_out; j++) out[j] = copy_result(&t.out[j]);
    trial before = t;
    for (int j = 0; j < c.n_out; j++) before.out[j] = copy_result(&t.out[j]);
    assert_ok(test_kernel_once(&t.call, NULL, NULL));
    assert_true(fp8.takes(&c));
    unlink(log_path());
    assert_ok(device_call_open(&k, weft_device_guard(), &fp8, &c, NULL));
    assert_ok(device_call_run(&k, &scalars));
    if (!p->add) assert_ok(device_call_run(&k, &scalars)); /* a second step */
    device_call_close(&k);
    read_log(said, sizeof said);
    if (!strstr(said, p->how)) fail_msg("%s: runs as %s", t.text, said);
    for (int j = 0; j < c.n_out; j++)
        if (t.out[j].p) compare(&out[j], &t.out[j], t.text);
    run_shared(p, &before, out);
    if (!nan_row) return;
    int64_t row = t.out[0].shape.d[1];
    for (int64_t i = 0; i < 3 * row; i++)
        assert_int_equal(!isfinite(get(&out[0], i)), i / row == 1);
}

#define BF16 WEFT_DTYPE_BF16
#define F32  WEFT_DTYPE_F32

/* Forward, both gradients, in every layout of operands that models have; what cannot have codes. */
static void test_products(void **state)
{
    (void)state;
    static const fp8_case cases[] = {
        /* rows of both in registers */
        {"md,nd->mn",
         "e4m3,e4m3,e4m3",
         {{9, 40}, {48, 40}},
         BF16,
         BF16,
         0,
         0,
         0,
         0,
         ": units"},
        {"md,nd->mn",
         "e4m3,e4m3",
         {{3, 2200}, {16, 2200}},
         BF16,
         BF16,
         8,
         0,
         0,
         0,
         ": units"},
        {"md,nd->mn",
         "e4m3,e4m3",
         {{2, 8208}, {16, 8208}},
         BF16,
         F32,
         0,
         0,
         0,
         0,
         ": units"},
        /* b turned, in tiles that are not full; k in pieces */
        {"md,dn->mn",
         "e5m2,e4m3",
         {{33, 200}, {200, 272}},
         BF16,
         BF16,
         0,
         0,
         0,
         0,
         ": units"},
        {"bsd,dche->bsche",
         "e4m3,e4m3,e5m2",
         {{2, 7, 24}, {24, 3, 2, 8}},
         BF16,
         BF16,
         0,
         0,
         0,
         0,
         ": units"},
        {"bshe,hed->bsd",
         "e4m3,e4m3",
         {{2, 5, 2, 8}, {2, 8, 32}},
         BF16,
         BF16,
         0,
         0,
         0,
         0,
         ": units"},
        {"bshe,dhe->bsd",
         "e4m3,e4m3",
         {{2, 5, 2, 8}, {48, 2, 8}},
         BF16,
         BF16,
         0,
         0,
         0,
         0,
         ": units"},
        /* both turned, into f32, added */
        {"bsd,bsn->dn",
         "e4m3,e5m2",
         {{2, 70, 24}, {2, 70, 32}},
         BF16,
         F32,
         0,
         0,
         0,
         0,
         ": units"},
        {"bsd,bsn->dn",
         "e4m3,e4m3",
         {{1, 700, 136}, {1, 700, 144}},
         BF16,
         F32,
         0,
         1,
         0,
         0,
         ": units"},
        /* steps on the epilogue, and behind it */
        {"md,dn->mn",
         "e4m3,e4m3",
         {{9, 40}, {40, 48}},
         BF16,
         BF16,
         0,
         0,
         1,
         0,
         ": units; "},
        {"md,dn->mn",
         "e4m3,e4m3",
         {{9, 40}, {40, 48}},
         BF16,
         BF16,
         0,
         0,
         1,
         1,
         "units, own steps from 1 on"},
        /* k no multiple of 16 or of 8, rows that are not aligned, f32 */
        {"md,nd->mn",
         "e4m3,e4m3",
         {{9, 24}, {48, 24}},
         BF16,
         BF16,
         0,
         0,
         0,
         0,
         ": units"},
        {"md,nd->mn",
         "e4m3,e4m3",
         {{9, 21}, {48, 21}},
         BF16,
         BF16,
         0,
         0,
         0,
         0,
         ": units"},
        {"md,dn->mn",
         "e4m3,e4m3",
         {{9, 24}, {24, 48}},
         BF16,
         BF16,
         5,
         0,
         0,
         0,
         ": units"},
        {"md,dn->mn", "e4m3,e4m3", {{9, 24}, {24, 48}}, F32, F32, 0, 0, 0, 0, ": units"},
        /* columns no multiple of 16; both in e5m2; a batch: rounded */
        {"md,dn->mn",
         "e4m3,e4m3",
         {{9, 24}, {24, 40}},
         BF16,
         BF16,
         0,
         0,
         0,
         0,
         "rounded, cublasLt"},
        {"md,dn->mn",
         "e5m2,e5m2",
         {{9, 24}, {24, 48}},
         BF16,
         BF16,
         0,
         0,
         1,
         0,
         "rounded, cublasLt"},
        {"bij,bjk->bik",
         "e4m3,e4m3",
         {{3, 4, 16}, {3, 16, 16}},
         BF16,
         BF16,
         0,
         0,
         0,
         0,
         "rounded, cublasLt"},
    };
    open_stub();
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) run_case(&cases[i], false);
}

/* A number that is not finite makes its row so, and no other. */
static void test_not_finite(void **state)
{
    static const fp8_case cases[] = {
        {"md,nd->mn", "e4m3,e4m3", {{3, 40}, {48, 40}}, BF16, F32, 0, 0, 0, 0, ": units"},
        {"md,nd->mn",
         "e5m2,e4m3",
         {{3, 40}, {40, 40}},
         BF16,
         F32,
         0,
         0,
         0,
         0,
         "rounded"}};
    (void)state;
    open_stub();
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) run_case(&cases[i], true);
}

/* What the planner counts is what a call takes, to the alignment. */
static void test_scratch(void **state)
{
    trial          t;
    const fp8_case p = {
        "md,dn->mn", "e4m3,e4m3", {{33, 200}, {200, 272}}, BF16, BF16, 0, 0, 0, 0, ""};
    (void)state;
    open_stub();
    open_trial(&t, &p);
    assert_int_equal(weft_cuda_scratch_fp8(&t.call, 1),
                     weft_workspace_matmul(33 * 272) + 256 + weft_workspace_fp8(33, 200) +
                         weft_workspace_fp8(272, 200));
}

int main(void)
{
    const struct CMUnitTest tests[] = {with_arena(test_codes), with_arena(test_products),
                                       with_arena(test_not_finite),
                                       with_arena(test_scratch)};
    setenv("WEFT_CUDA_FP8_LOG", log_path(), 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
