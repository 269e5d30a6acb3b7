/* plugin/cuda/ops/product.c over a cublasLt that computes on the CPU, against the CPU's own
 * matmul. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"

#include "base/random.h"
#include "cuda_priv.h"
#include "library.h"
#include "ops/product.h"
#include "pinned.h"
#include "support/device_call.h"
#include "support/fixture.h"
#include "support/kernels.h"

static const weft_kernel product = {.op      = WEFT_OP_MATMUL,
                                    .run     = weft_cuda_run_product,
                                    .scratch = weft_cuda_scratch_product,
                                    .takes   = weft_cuda_takes_product,
                                    .prepare = weft_cuda_prepare_product,
                                    .release = weft_cuda_release_product};

static void open_stub(void)
{
    setenv("WEFT_CUDA_LIBS", WEFT_TEST_CUDA_STUB, 1);
    assert_ok(weft_cuda_libraries_open(13000));
    assert_non_null(strstr(weft_cuda_library_get(WEFT_CUDA_BLAS)->path, "cuda_stub"));
}

/* ---- operands ---- */

static float get(const weft_view *v, int64_t i)
{
    int64_t at = 0;
    for (int d = v->shape.n - 1; d >= 0; d--) {
        at += i % v->shape.d[d] * v->stride[d];
        i /= v->shape.d[d];
    }
    if (v->dtype == WEFT_DTYPE_F32) return ((float *)v->p)[at];
    union {
        uint32_t u;
        float    f;
    } x = {(uint32_t)((uint16_t *)v->p)[at] << 16};
    return x.f;
}

/* Memory of the trial at hand. */
static void *made[64];
static int   n_made;

static void *make_memory(size_t bytes)
{
    assert_true(n_made < (int)WEFT_COUNT(made));
    void *p = aligned_alloc(64, bytes);
    assert_non_null(p);
    made[n_made++] = p;
    return p;
}

static void free_memory(void)
{
    while (n_made) free(made[--n_made]);
}

/* Drawn numbers; pad: elements more between rows of the last dimension. */
static weft_view make(weft_dtype t, const weft_shape *s, int64_t pad)
{
    weft_view v = weft_view_make(NULL, t, s);
    int64_t   n = 1;
    for (int d = s->n - 1; d >= 0; d--) {
        v.stride[d] = n;
        n *= s->d[d] + (d == s->n - 1 ? pad : 0);
    }
    v.p = make_memory((size_t)(n * 4 + 64) / 64 * 64);
    for (int64_t i = 0; i < n; i++) {
        union {
            float    f;
            uint32_t u;
        } x = {2.0f * weft_random_uniform(test_draw()) - 1.0f};
        if (t == WEFT_DTYPE_F32)
            ((float *)v.p)[i] = x.f;
        else
            ((uint16_t *)v.p)[i] = (uint16_t)(x.u >> 16);
    }
    return v;
}

/* The same numbers in memory of its own. */
static weft_view copy_of(const weft_view *v)
{
    weft_view w = *v;
    int64_t   n = 1;
    for (int d = 0; d < v->shape.n; d++) n += (v->shape.d[d] - 1) * v->stride[d];
    size_t bytes = (size_t)(n * 4 + 64) / 64 * 64;
    w.p          = make_memory(bytes);
    memcpy(w.p, v->p, (size_t)n * (v->dtype == WEFT_DTYPE_F32 ? 4 : 2));
    return w;
}

static void compare(const weft_view *got, const weft_view *want, const char *text)
{
    double  diff = 0, norm = 0;
    int64_t n = weft_shape_count(&want->shape);
    for (int64_t i = 0; i < n; i++) {
        double a = (double)get(got, i), b = (double)get(want, i);
        diff += (a - b) * (a - b);
        norm += b * b;
    }
    double limit = want->dtype == WEFT_DTYPE_F32 ? 1e-5 : 1e-2;
    if (!(sqrt(diff) <= limit * sqrt(norm)))
        fail_msg("%s: error %g of %g", text, sqrt(diff / norm), limit);
}

/* ---- one call both ways ---- */

typedef struct product_case {
    const char *spec;
    int         sizes[26]; /* of letters a .. z */
    weft_dtype  in, out;
    int64_t     pad[3]; /* of a, b, y */
    unsigned    add;
    /* b bias, r residual, g gelu with what it was of, h gelu alone, d gelu's gradient, s scale, k
     * the product is kept */
    const char *steps;
    bool        taken;
} product_case;

enum {
    MOST = 8
};

typedef struct trial {
    weft_view        in[MOST], out[MOST];
    weft_kernel_post post[MOST];
    weft_kernel_call call;
} trial;

static weft_shape shape_of(const product_case *p, const char *letters, size_t n)
{
    weft_shape s = {.n = (int)n};
    for (size_t i = 0; i < n; i++) s.d[i] = p->sizes[letters[i] - 'a'];
    return s;
}

static const weft_attr *attributes(weft_op op, const char *text)
{
    weft_attr *a = WEFT_ARENA_ARRAY(arena, weft_attr, WEFT_MAX_ATTR);
    assert_ok(weft_op_parse_attr(op, text, arena, a));
    return a;
}

static int add_step(trial *t, weft_op op, const char *attr, const weft_view *in)
{
    weft_kernel_post *q = &t->post[t->call.n_post++];
    *q = (weft_kernel_post){.op = op, .attr = attributes(op, attr), .in = -1, .out = -1};
    if (in) {
        q->in                 = t->call.n_in;
        t->in[t->call.n_in++] = *in;
    }
    return t->call.n_post - 1;
}

static void keep(trial *t, int step, const weft_view *out)
{
    t->post[step].out       = t->call.n_out;
    t->out[t->call.n_out++] = *out;
}

static void add_steps(trial *t, const product_case *p, const weft_shape *y, int n_col)
{
    weft_shape row = {.n = n_col};
    memcpy(row.d, y->d + y->n - n_col, sizeof(int64_t) * (size_t)n_col);
    for (const char *s = p->steps; s && *s; s++) {
        weft_view v;
        int       last = t->call.n_post - 1;
        switch (*s) {
        case 'b': v = make(p->out, &row, 0), add_step(t, WEFT_OP_ADD, "", &v); break;
        case 'r': v = make(p->out, y, 0), add_step(t, WEFT_OP_ADD, "", &v); break;
        case 'd': v = make(p->out, y, 0), add_step(t, WEFT_OP_GELU_GRAD, "", &v); break;
        case 'g':
            v = make(p->out, y, 0);
            if (last >= 0) keep(t, last, &v);
            add_step(t, WEFT_OP_GELU, "", NULL);
            break;
        case 'h': add_step(t, WEFT_OP_GELU, "", NULL); break;
        case 's': add_step(t, WEFT_OP_SCALE, "alpha=0.5", NULL); break;
        default: break;
        }
    }
}

static void open_trial(trial *t, const product_case *p)
{
    const char *b = strchr(p->spec, ',') + 1, *y = strstr(p->spec, "->") + 2;
    size_t      na = (size_t)(b - 1 - p->spec), nb = (size_t)(y - 2 - b), ny = strlen(y);
    char        attr[96];
    weft_shape  s[3] = {shape_of(p, p->spec, na), shape_of(p, b, nb), shape_of(p, y, ny)};
    int         n_col = 0;
    while (n_col < (int)ny && !memchr(p->spec, y[(int)ny - 1 - n_col], na)) n_col++;
    snprintf(attr, sizeof attr, "spec=%s%s", p->spec,
             p->in != p->out ? " dtype=f32" : "");
    memset(t, 0, sizeof *t);
    t->in[0]  = make(p->in, &s[0], p->pad[0]);
    t->in[1]  = make(p->in, &s[1], p->pad[1]);
    t->out[0] = make(p->out, &s[2], p->pad[2]);
    t->call   = (weft_kernel_call){.op    = WEFT_OP_MATMUL,
                                   .add   = p->add,
                                   .attr  = attributes(WEFT_OP_MATMUL, attr),
                                   .n_in  = 2,
                                   .n_out = 1};
    add_steps(t, p, &s[2], n_col);
    if (t->call
            .n_post) { /* the last value is the result, the product is kept where it is asked for */
        weft_view v = make(p->out, &s[2], p->pad[2]);
        keep(t, t->call.n_post - 1, &v);
        if (!strchr(p->steps, 'k')) t->out[0].p = NULL;
    }
    t->call.n_own_in = 2, t->call.n_own_out = 1;
    t->call.in = t->in, t->call.out = t->out, t->call.post = t->post;
}

static void run_case(const product_case *p)
{
    trial       t, u;
    device_call k;
    char        text[200];
    snprintf(text, sizeof text, "%s %s -> %s, steps %s, add %u", p->spec,
             weft_dtype_name(p->in), weft_dtype_name(p->out),
             p->steps ? p->steps : "none", p->add);
    open_trial(&t, p);
    u          = t;
    u.call.out = u.out;
    for (int j = 0; j < t.call.n_out; j++)
        if (t.out[j].p) u.out[j] = copy_of(&t.out[j]);
    assert_ok(test_kernel_once(&t.call, NULL, NULL));
    if (product.takes(&u.call) != p->taken)
        fail_msg("%s: %s", text, p->taken ? "not taken" : "taken");
    if (p->taken) {
        static const weft_step_scalars scalars = {0};
        assert_ok(device_call_open(&k, weft_device_guard(), &product, &u.call, NULL));
        assert_ok(device_call_run(&k, &scalars));
        device_call_close(&k);
        for (int j = 0; j < t.call.n_out; j++)
            if (t.out[j].p) compare(&u.out[j], &t.out[j], text);
    }
    free_memory();
}

#define SIZE(letter, n) [(letter) - 'a'] = (n)
/* b 2, s 5, d 24, f 40, h 3, e 8, c 3, v 19 */
#define SIZES                                                                            \
    {                                                                                    \
        SIZE('b', 2), SIZE('s', 5), SIZE('d', 24), SIZE('f', 40), SIZE('h', 3),          \
            SIZE('e', 8), SIZE('c', 3), SIZE('v', 19), SIZE('t', 7)                      \
    }

static const char *const specs[] = {
    "bsd,dche->bsche", "bshe,hed->bsd",   "bsd,df->bsf",     "bsf,fd->bsd",
    "bsd,vd->bsv",     "bsv,vd->bsd",     "bsd,bsv->vd",     "bsd,fd->bsf",
    "bsf,bsd->fd",     "bsf,df->bsd",     "bsd,bsf->df",     "bsd,hed->bshe",
    "bshe,bsd->hed",   "bsd,bse->ed",     "bshe,dhe->bsd",   "bsche,dche->bsd",
    "bshe,bthe->bhst", "bhst,bthe->bshe", "bhst,bshe->bthe", "bshe,bthe->bhts",
};

/* Every form that models have, dense and with padded rows, stored and added, in three types. */
static void test_forms(void **state)
{
    (void)state;
    open_stub();
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int types = 0; types < 3; types++)
            for (int pads = 0; pads < 8; pads += TEST_STRIDE(3))
                for (unsigned add = 0; add < 2; add++) {
                    product_case p = {.spec  = specs[i],
                                      .sizes = SIZES,
                                      .in    = types ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32,
                                      .out =
                                          types == 1 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32,
                                      .add   = add,
                                      .taken = true};
                    for (int o = 0; o < 3; o++) p.pad[o] = pads >> o & 1 ? 5 : 0;
                    if (pads) { /* rows apart may be no matrix any more */
                        trial t;
                        open_trial(&t, &p);
                        p.taken = product.takes(&t.call);
                        free_memory();
                    }
                    run_case(&p);
                }
}

static void test_steps(void **state)
{
    (void)state;
    static const struct {
        const char *steps;
        bool        taken;
    } chain[] = {{"b", true},  {"bg", true}, {"bh", true}, {"br", true}, {"r", true},
                 {"d", true},  {"h", true},  {"s", true},  {"sb", true}, {"sbr", true},
                 {"bk", true}, {"rb", true}, {"bd", true}, {"hbr", true}};
    open_stub();
    for (size_t i = 0; i < sizeof chain / sizeof *chain; i++)
        for (int types = 0; types < 2; types++) {
            product_case p = {.spec  = "bsd,df->bsf",
                              .sizes = SIZES,
                              .in    = types ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32,
                              .out   = types ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32,
                              .steps = chain[i].steps,
                              .taken = chain[i].taken};
            run_case(&p);
            p.spec = "bsd,dche->bsche";
            run_case(&p);
            p.spec = "bsd,fd->bsf";
            run_case(&p);
        }
}

static int matmuls(void)
{
    int *n = dlsym(weft_cuda_library_get(WEFT_CUDA_BLAS)->handle, "stub_blas_matmuls");
    assert_non_null(n);
    return *n;
}

/* An odd vocabulary whose rows are padded runs in two parts: 591 = 576 + 15. */
static void test_odd_width(void **state)
{
    (void)state;
    static const char *const head[] = {"bsd,vd->bsv", "bsv,vd->bsd", "bsd,bsv->vd"};
    open_stub();
    for (size_t i = 0; i < 3; i++)
        for (int padded = 0; padded < 2; padded++) {
            product_case p     = {.spec  = head[i],
                                  .sizes = SIZES,
                                  .in    = WEFT_DTYPE_BF16,
                                  .out   = i == 2 ? WEFT_DTYPE_F32 : WEFT_DTYPE_BF16,
                                  .taken = true};
            p.sizes['v' - 'a'] = 591;
            if (padded && i == 0) p.pad[2] = 640 - 591;
            if (padded && i == 1) p.pad[0] = 640 - 591;
            if (padded && i == 2) p.pad[1] = 640 - 591;
            int before = matmuls();
            run_case(&p);
            assert_int_equal(matmuls() - before, padded ? 2 : 1);
            p.add = 1;
            run_case(&p);
            p.add   = 0;
            p.steps = "br";
            run_case(&p);
            p.steps = "b";
            run_case(&p);
        }
}

/* A pinned algorithm is used where the key is that of the product, and nowhere else. */
static void test_pinned(void **state)
{
    (void)state;
    weft_cuda_pinned_key key  = {.type     = {14, 14, 0},
                                 .m        = 128,
                                 .n        = 256,
                                 .k        = 512,
                                 .batch    = 1,
                                 .epilogue = 1,
                                 .align    = {16, 16, 16, 16}};
    weft_cuda_blas_algo  algo = {.word = {1, 2, 3, 4, 5, 6, 7, 0xfedcba9876543210}}, got;
    char                 line[512];
    weft_cuda_pinned_print(&key, &algo, line, sizeof line);
    assert_ok(weft_cuda_pinned_read(line, "line"));
    assert_true(weft_cuda_pinned_find(&key, &got));
    assert_memory_equal(&got, &algo, sizeof got);
    key.epilogue = 4;
    assert_false(weft_cuda_pinned_find(&key, &got));
    assert_true(weft_cuda_pinned_hash() != 0);
    assert_fails(weft_cuda_pinned_read("# a table\n1 2 3\n", "h200.tsv"), WEFT_ERR_ARG,
                 "h200.tsv:2");
    assert_ok(weft_cuda_pinned_read(NULL, "none"));
    assert_true(weft_cuda_pinned_hash() == 0);
}

static void test_libraries(void **state)
{
    (void)state;
    char text[1200];
    open_stub();
    assert_non_null(strstr(weft_cuda_libraries_name(text, sizeof text),
                           "cublasLt 13.1.0, cuDNN 9.19.0"));
    assert_non_null(
        strstr(weft_cuda_libraries_print(text, sizeof text), "cublasLt 13.1.0 "));
    assert_non_null(
        strstr(weft_cuda_libraries_id(text, sizeof text), " cublasLt-13.1.0"));
    assert_string_equal(weft_cuda_table.id(), text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(test_forms),  with_arena(test_steps),     with_arena(test_odd_width),
        with_arena(test_pinned), with_arena(test_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
