/* Factor rules, over the op-test table: sizes multiply up to dimensions; and what a rule says is
 * true: cut a parallel factor in two and the results are the parts; cut a summed one and they add
 * up. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/status.h"
#include "kernel/ref.h"
#include "support/fixture.h"
#include "support/op_cases.h"

/* One use with its factors and numbers. */
typedef struct whole {
    const weft_test_case *c;
    char                  what[256];
    weft_op_use           u;
    weft_factors          f;
    weft_dim_factors     *dim;
    double              **x; /* operands, then results */
} whole;

static const weft_type *type_at(const weft_op_use *u, int i)
{
    return i < u->n_in ? &u->in[i] : &u->out[i - u->n_in];
}
static double *numbers(const weft_type *t)
{
    int64_t n = weft_shape_count(&t->shape);
    return WEFT_ARENA_ARRAY(arena, double, n ? n : 1);
}
static const weft_dim_factors *dim_of(const whole *w, int i, int d)
{
    return &w->dim[i * WEFT_MAX_DIM + d];
}

static void make_whole(whole *w, const weft_test_case *c)
{
    w->c = c;
    weft_test_case_text(c, w->what, sizeof w->what);
    if (weft_test_case_make(c, arena, &w->u) != WEFT_OK)
        fail_msg("%s: %s", w->what, weft_error_text());
    int n  = w->u.n_in + w->u.n_out;
    w->dim = WEFT_ARENA_ARRAY(arena, weft_dim_factors, n * WEFT_MAX_DIM);
    w->x   = WEFT_ARENA_ARRAY(arena, double *, n);
    if (weft_op_factors(&w->u, &w->f, w->dim) != WEFT_OK)
        fail_msg("%s: %s", w->what, weft_error_text());
    for (int i = 0; i < n; i++) {
        w->x[i] = numbers(type_at(&w->u, i));
        if (i < w->u.n_in) weft_test_case_fill(c, &w->u, i, 31, w->x[i]);
    }
}

/* The dimension of operand or result i that has factor f; -1 none. */
static int where(const whole *w, int i, int f)
{
    for (int d = 0; d < type_at(&w->u, i)->shape.n; d++)
        for (int k = 0; k < dim_of(w, i, d)->n; k++)
            if (dim_of(w, i, d)->f[k] == f) return d;
    return -1;
}

static void sizes_multiply(void **state)
{
    (void)state;
    for (int c = 0; c < weft_n_test_case; c++) {
        whole w;
        make_whole(&w, &weft_test_cases[c]);
        for (int i = 0; i < w.u.n_in + w.u.n_out; i++)
            for (int d = 0; d < type_at(&w.u, i)->shape.n; d++) {
                const weft_dim_factors *x    = dim_of(&w, i, d);
                int64_t                 n    = 1;
                bool                    halo = false;
                for (int k = 0; k < x->n; k++) {
                    n *= w.f.factor[x->f[k]].size;
                    halo = halo || w.f.factor[x->f[k]].flags & WEFT_FACTOR_HALO;
                }
                if (x->n && !halo && n != type_at(&w.u, i)->shape.d[d])
                    fail_msg("%s: dimension %d of %d: factors make %ld", w.what, d, i,
                             (long)n);
            }
        for (int f = 0; f < w.f.n;
             f++) { /* every factor has a size and stands somewhere */
            bool seen = false;
            for (int i = 0; i < w.u.n_in + w.u.n_out; i++)
                seen = seen || where(&w, i, f) >= 0;
            if (!seen || w.f.factor[f].size < 0)
                fail_msg("%s: factor %c", w.what, w.f.factor[f].name);
        }
    }
}

/* ---- cutting ---- */

/* A part: [lo, hi) of factor f. */
typedef struct part {
    int     f;
    int64_t lo, hi;
} part;

/* The coordinate of f in position at of dimension d (factors slowest first). */
static int64_t coordinate(const whole *w, int i, int d, int f, int64_t at)
{
    const weft_dim_factors *x = dim_of(w, i, d);
    for (int k = x->n - 1; k >= 0; k--) {
        int64_t size = w->f.factor[x->f[k]].size;
        if (x->f[k] == f) return at % size;
        at /= size;
    }
    return at;
}

static weft_type local_type(const whole *w, int i, const part *p)
{
    weft_type t = *type_at(&w->u, i);
    int       d = where(w, i, p->f);
    if (d >= 0) t.shape.d[d] = t.shape.d[d] / w->f.factor[p->f].size * (p->hi - p->lo);
    return t;
}

/* The elements of operand or result i that belong to the part, in order. */
static double *extract(const whole *w, int i, const part *p)
{
    weft_type         t   = local_type(w, i, p);
    const weft_shape *s   = &type_at(&w->u, i)->shape;
    double           *out = numbers(&t), *at = out;
    int               d      = where(w, i, p->f);
    int64_t           behind = 1, n = weft_shape_count(s);
    for (int k = d + 1; k < s->n && d >= 0; k++) behind *= s->d[k];
    for (int64_t e = 0; e < n; e++) {
        int64_t c = d < 0 ? p->lo : coordinate(w, i, d, p->f, e / behind % s->d[d]);
        if (c >= p->lo && c < p->hi) *at++ = w->x[i][e];
    }
    assert_int_equal(at - out, weft_shape_count(&t.shape));
    return out;
}

static void set_list(weft_op op, weft_attr *attr, const char *name, const weft_shape *s)
{
    int i = weft_op_attr_index(op, name);
    if (i < 0) return;
    attr[i].n = s->n;
    memcpy(attr[i].l, s->d, sizeof s->d);
}
static void set_int(weft_op op, weft_attr *attr, const char *name, int64_t x)
{
    int i = weft_op_attr_index(op, name);
    if (i >= 0) attr[i].i = x;
}

/* Where the part's positions begin. */
static void set_positions(const whole *w, const part *p, weft_attr *attr)
{
    weft_op op    = w->u.op;
    char    name  = w->f.factor[p->f].name;
    int64_t first = 0, s_lo = name == 's' ? p->lo : 0, t_lo = name == 't' ? p->lo : 0;
    if (op == WEFT_OP_ROTARY)
        set_int(op, attr, "first", weft_use_int(&w->u, "first") + s_lo);
    if (op == WEFT_OP_REL_BUCKET) {
        set_int(op, attr, "s_first", weft_use_int(&w->u, "s_first") + s_lo);
        set_int(op, attr, "t_first", weft_use_int(&w->u, "t_first") + t_lo);
    }
    if (op != WEFT_OP_ATTENTION && op != WEFT_OP_ATTENTION_GRAD) return;
    int q = op == WEFT_OP_ATTENTION_GRAD ? 1 : 0;
    if ((first = weft_use_int(&w->u, "q_first")) < 0)
        first = w->u.in[q + 1].shape.d[1] - w->u.in[q].shape.d[1] +
                weft_use_int(&w->u, "k_first");
    if (name != 's' && name != 't') return;
    set_int(op, attr, "q_first", first + s_lo);
    set_int(op, attr, "k_first", weft_use_int(&w->u, "k_first") + t_lo);
}

/* Attributes that repeat a size of the result, or a row number of a table that is cut. */
static weft_attr *local_attr(const whole *w, const part *p, const weft_type *out)
{
    weft_op    op   = w->u.op;
    weft_attr *attr = WEFT_ARENA_ARRAY(arena, weft_attr, WEFT_MAX_ATTR);
    memcpy(attr, w->u.attr, sizeof *attr * WEFT_MAX_ATTR);
    set_list(op, attr, "shape", &out[0].shape);
    if (op == WEFT_OP_EMBEDDING_GRAD) set_int(op, attr, "rows", out[0].shape.d[0]);
    if (w->f.factor[p->f].name == 'v' && weft_op_attr_index(op, "first") >= 0) {
        int64_t first = weft_use_int(&w->u, "first");
        set_int(op, attr, "first", (first < 0 ? 0 : first) + p->lo);
    }
    if (op == WEFT_OP_SCATTER_ADD)
        set_int(op, attr, "size", out[0].shape.d[weft_use_int(&w->u, "axis")]);
    if (op == WEFT_OP_DROPOUT) {
        const weft_attr *base = weft_use_attr(&w->u, "at");
        weft_shape       at   = w->u.in[0].shape;
        if (!base->n) set_list(op, attr, "whole", &at);
        for (int d = 0; d < at.n; d++)
            at.d[d] = (base->n ? base->l[d] : 0) + (d == where(w, 0, p->f) ? p->lo : 0);
        set_list(op, attr, "at", &at);
    }
    set_positions(w, p, attr);
    if (op == WEFT_OP_REL_BUCKET) {
        set_int(op, attr, "s", out[0].shape.d[0]);
        set_int(op, attr, "t", out[0].shape.d[1]);
    }
    return attr;
}

/* Numbers that are positions within what is cut: offsets of experts. */
static void local_numbers(const whole *w, const part *p, weft_type *in, double **x)
{
    if (w->f.factor[p->f].name == 'x' &&
        w->u.n_in == 3) { /* grouped: the own experts' rows */
        x[2] += p->lo;
        in[2].shape.d[0] = p->hi - p->lo + 1;
    }
}

/* Runs the operator on the part alone; its results. */
static double **run_part(const whole *w, const part *p)
{
    int          n_in = w->u.n_in, n_out = w->u.n_out;
    weft_type   *in  = WEFT_ARENA_ARRAY(arena, weft_type, n_in + 1);
    weft_type   *out = WEFT_ARENA_ARRAY(arena, weft_type, n_out);
    weft_type   *got = WEFT_ARENA_ARRAY(arena, weft_type, n_out);
    double     **x   = WEFT_ARENA_ARRAY(arena, double *, n_in + 1);
    double     **y   = WEFT_ARENA_ARRAY(arena, double *, n_out);
    weft_ref_ctx ctx = {.seed = 3};
    for (int i = 0; i < n_in; i++) {
        in[i] = local_type(w, i, p);
        x[i]  = extract(w, i, p);
    }
    for (int j = 0; j < n_out; j++) {
        out[j] = local_type(w, n_in + j, p);
        y[j]   = numbers(&out[j]);
    }
    local_numbers(w, p, in, x);
    weft_op_use u = {w->u.op, local_attr(w, p, out), n_in, n_out, in, out};
    if (weft_op_infer(&u, got) != WEFT_OK ||
        weft_kernel_ref_run(&u, (const double *const *)x, y, &ctx))
        fail_msg("%s: part of %c: %s", w->what, w->f.factor[p->f].name,
                 weft_error_text());
    for (int j = 0; j < n_out; j++)
        if (!weft_shape_equal(&got[j].shape, &out[j].shape))
            fail_msg("%s: part of %c: result %d has another shape than its factors say",
                     w->what, w->f.factor[p->f].name, j);
    return y;
}

static void compare(const whole *w, int f, int j, const double *a, const double *b,
                    int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i] && !(fabs(a[i] - b[i]) <= 1e-10 * fmax(1, fabs(b[i]))))
            fail_msg("%s: cut along %c: result %d[%ld] is %.12g, should be %.12g",
                     w->what, w->f.factor[f].name, j, (long)i, a[i], b[i]);
}

/* The parts' losses as the operator for it puts them together. */
static void merge_losses(const whole *w, double **a, double **b)
{
    weft_type    in[3] = {w->u.out[0], w->u.out[1], w->u.in[1]};
    weft_attr    attr[WEFT_MAX_ATTR];
    weft_op_use  u    = {WEFT_OP_CROSS_ENTROPY_MERGE, attr, 3, 2, in, w->u.out};
    weft_ref_ctx ctx  = {.seed = 3};
    int64_t      n    = weft_shape_count(&w->u.out[0].shape);
    bool         all  = weft_use_int(&w->u, "first") < 0;
    double      *x[3] = {NULL, NULL, w->x[1]};
    weft_op_attr_defaults(u.op, attr);
    for (int j = 0; j < 2; j++) {
        memmove(in[j].shape.d + 1, in[j].shape.d, sizeof(int64_t) * (WEFT_MAX_DIM - 1));
        in[j].shape.d[0] = 2;
        in[j].shape.n++;
        x[j] = numbers(&in[j]);
        memcpy(x[j], a[j], sizeof(double) * (size_t)n);
        memcpy(x[j] + n, b[j], sizeof(double) * (size_t)n);
    }
    assert_int_equal(weft_kernel_ref_run(&u, (const double *const *)x, a, &ctx), WEFT_OK);
    for (int64_t i = 0; i < n && !all; i++) a[0][i] = x[0][i] + x[0][n + i];
}

/* Softmax pairs, as the operators for it put them together. */
static void combine_pair(const whole *w, double **a, double **b)
{
    weft_type     in[4] = {w->u.out[0], w->u.out[1], w->u.out[0], w->u.out[1]};
    weft_op_use   u     = {WEFT_OP_ATTENTION_MERGE, NULL, 4, 2, in, w->u.out};
    const double *x[4]  = {a[0], a[1], b[0], b[1]};
    double       *y[2]  = {numbers(&in[0]), numbers(&in[1])};
    weft_ref_ctx  ctx   = {.seed = 3};
    if (w->u.op == WEFT_OP_CROSS_ENTROPY) {
        merge_losses(w, a, b);
        return;
    }
    assert_int_equal(weft_kernel_ref_run(&u, x, y, &ctx), WEFT_OK);
    for (int j = 0; j < 2; j++) a[j] = y[j];
}

static void check_factor(const whole *w, int f)
{
    const weft_factor *x = &w->f.factor[f];
    part     p[2]        = {{f, 0, (x->size + 1) / 2}, {f, (x->size + 1) / 2, x->size}};
    double **y[2]        = {run_part(w, &p[0]), run_part(w, &p[1])};
    int      n_in        = w->u.n_in;
    if (x->flags & WEFT_FACTOR_SOFTMAX) combine_pair(w, y[0], y[1]);
    for (int j = 0; j < w->u.n_out; j++) {
        int64_t n = weft_shape_count(&w->u.out[j].shape);
        if (where(w, n_in + j, f) >= 0) {
            for (int k = 0; k < 2; k++) {
                weft_type t = local_type(w, n_in + j, &p[k]);
                compare(w, f, j, y[k][j], extract(w, n_in + j, &p[k]),
                        weft_shape_count(&t.shape));
            }
            continue;
        }
        if (!(x->flags & (WEFT_FACTOR_FREE | WEFT_FACTOR_SOFTMAX)))
            for (int64_t i = 0; i < n; i++) y[0][j][i] += y[1][j][i];
        compare(w, f, j, y[0][j], w->x[n_in + j], n);
    }
}

static bool can_cut(const whole *w, int f)
{
    const weft_factor *x = &w->f.factor[f];
    return !(x->flags & (WEFT_FACTOR_WHOLE | WEFT_FACTOR_HALO | WEFT_FACTOR_RAGGED)) &&
           x->size >= 2;
}

static void rules_are_true(void **state)
{
    (void)state;
    int n = 0;
    for (int c = 0; c < weft_n_test_case; c++) {
        whole w;
        make_whole(&w, &weft_test_cases[c]);
        weft_ref_ctx ctx = {.seed = 3};
        if (weft_kernel_ref_run(&w.u, (const double *const *)w.x, w.x + w.u.n_in, &ctx) !=
            WEFT_OK)
            fail_msg("%s: %s", w.what, weft_error_text());
        for (int f = 0; f < w.f.n; f++)
            if (can_cut(&w, f)) {
                check_factor(&w, f);
                n++;
            }
    }
    assert_true(n > 250);
}

/* ---- rules by example ---- */

static void expect(const weft_test_case *c, int i, int d, int n, const int64_t *size)
{
    whole w;
    make_whole(&w, c);
    const weft_dim_factors *x = dim_of(&w, i, d);
    assert_int_equal(x->n, n);
    for (int k = 0; k < n; k++) assert_int_equal(w.f.factor[x->f[k]].size, size[k]);
}

static void reshape_composes(void **state)
{
    (void)state;
    weft_test_case c = {WEFT_OP_RESHAPE, "shape=[8,3]", "f32[4,6]", 1};
    expect(&c, 0, 0, 1, (int64_t[]){4});
    expect(&c, 0, 1, 2, (int64_t[]){2, 3});
    expect(&c, 1, 0, 2, (int64_t[]){4, 2});
    expect(&c, 1, 1, 1, (int64_t[]){3});
    c = (weft_test_case){WEFT_OP_RESHAPE, "shape=[5,3,2,7]", "f32[5,2,3,7]", 1};
    expect(&c, 0, 0, 1,
           (int64_t[]){5}); /* only the dimensions that do not divide have none */
    expect(&c, 0, 1, 0, NULL);
    expect(&c, 0, 2, 0, NULL);
    expect(&c, 0, 3, 1, (int64_t[]){7});
    expect(&c, 1, 1, 0, NULL);
    c = (weft_test_case){WEFT_OP_RESHAPE, "shape=[2,1,3,2,2]", "f32[6,4]", 1};
    expect(&c, 0, 0, 2, (int64_t[]){2, 3});
    expect(&c, 0, 1, 2, (int64_t[]){2, 2});
    expect(&c, 1, 1, 0, NULL);
}

static void grouped_queries(void **state)
{
    (void)state;
    weft_test_case c = {WEFT_OP_ATTENTION, "", "f32[1,3,6,4] f32[1,3,2,4] f32[1,3,2,4]",
                        2};
    expect(&c, 0, 2, 2, (int64_t[]){2, 3});
    expect(&c, 1, 2, 1, (int64_t[]){2});
    expect(&c, 4, 2, 2, (int64_t[]){2, 3});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(sizes_multiply),
        with_arena(rules_are_true),
        with_arena(reshape_composes),
        with_arena(grouped_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
