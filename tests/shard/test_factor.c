/* Every operator, every case of the op-test table, every legal cut of its factors on meshes {2},
 * {3}, {4} and {2,2}: places run alone on what they have; combined as their layouts say, that is
 * the serial result.  Gradients are operators like any other, so this is forward and backward.  A
 * new operator is covered as soon as it has a case. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernel/ref.h"
#include "support/op_cases.h"
#include "support/shard_op.h"

static weft_arena *arena;
static int         n_tried, n_op_tried[WEFT_N_OP];

typedef struct whole {
    char              what[256];
    weft_op_use       u;
    weft_node_factors f;
    double          **x; /* operands, then results */
} whole;

static double *numbers(const weft_type *t)
{
    return WEFT_ARENA_ARRAY(arena, double, weft_shape_count(&t->shape) + 1);
}

static void make_whole(whole *w, const weft_test_case *c)
{
    weft_ref_ctx ctx = {.seed = 3};
    weft_test_case_text(c, w->what, sizeof w->what);
    assert_ok(weft_test_case_make(c, arena, &w->u));
    assert_ok(weft_shard_factors(&w->u, arena, &w->f));
    w->x = WEFT_ARENA_ARRAY(arena, double *, w->u.n_in + w->u.n_out);
    for (int i = 0; i < w->u.n_in + w->u.n_out; i++) {
        w->x[i] = numbers(i < w->u.n_in ? &w->u.in[i] : &w->u.out[i - w->u.n_in]);
        if (i < w->u.n_in) weft_test_case_fill(c, &w->u, i, 31, w->x[i]);
    }
    assert_ok(
        weft_kernel_ref_run(&w->u, (const double *const *)w->x, w->x + w->u.n_in, &ctx));
}

/* ---- combining ---- */

/* Does place q stand beside p along unreduced (or own) axes only? */
static bool beside(const weft_mesh *m, const weft_layout *l, int p, int q)
{
    int a[WEFT_MAX_AXIS], b[WEFT_MAX_AXIS];
    weft_mesh_coords(m, p, a);
    weft_mesh_coords(m, q, b);
    for (int i = 0; i < m->n_axis; i++) {
        const weft_split *s = weft_layout_find(l, i);
        bool own = s && s->order == WEFT_SPLIT_OWN; /* rows of other experts are zeros */
        if (a[i] != b[i] && !l->unreduced[i] && !own) return false;
    }
    return true;
}

static void compare(const whole *w, const char *how, int j, int place, const double *got,
                    const bool *has)
{
    const double *want = w->x[w->u.n_in + j];
    for (int64_t e = 0; e < weft_shape_count(&w->u.out[j].shape); e++)
        if (has[e] && !(fabs(got[e] - want[e]) <= 1e-9 * fmax(1, fabs(want[e]))) &&
            !(got[e] == want[e]))
            fail_msg("%s: %s: result %d[%ld] at place %d is %.12g, should be %.12g",
                     w->what, how, j, (long)e, place, got[e], want[e]);
}

static bool *regions_of(const weft_layout *l, const weft_mesh *m, const weft_shape *s,
                        int place)
{
    bool        *has = WEFT_ARENA_ARRAY(arena, bool, weft_shape_count(s) + 1);
    weft_region *r;
    int          n;
    assert_ok(weft_layout_regions(l, m, s, place, arena, &r, &n));
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < weft_region_count(&r[i]); k++) {
            int64_t at = k, x[WEFT_MAX_DIM], to = 0;
            for (int d = s->n - 1; d >= 0; d--) {
                x[d] = r[i].offset[d] + at % r[i].extent[d];
                at /= r[i].extent[d];
            }
            for (int d = 0; d < s->n; d++) to = to * s->d[d] + x[d];
            has[to] = true;
        }
    return has;
}

static void check_cut(const whole *w, const weft_mesh *m, const weft_layout *cut,
                      const char *how)
{
    test_op   o;
    int       n_out = w->u.n_out;
    double ***y     = WEFT_ARENA_ARRAY(arena, double **, m->n_rank);
    assert_ok(test_op_make(&o, arena, &w->u, m, cut));
    for (int p = 0; p < m->n_rank; p++) {
        y[p] = WEFT_ARENA_ARRAY(arena, double *, n_out);
        for (int j = 0; j < n_out; j++) y[p][j] = numbers(&w->u.out[j]);
        if (test_op_run(&o, p, (const double *const *)w->x, y[p], 3) != WEFT_OK)
            fail_msg("%s: %s: %s", w->what, how, weft_error_text());
    }
    for (int p = 0; p < m->n_rank; p++) {
        double **sum = WEFT_ARENA_ARRAY(arena, double *, n_out);
        for (int j = 0; j < n_out; j++) {
            weft_layout l = weft_shard_project(&w->u, &o.f, m, cut, w->u.n_in + j);
            assert_ok(weft_layout_verify(&l, m, &w->u.out[j].shape));
            sum[j] = numbers(&w->u.out[j]);
            for (int64_t e = 0; e < weft_shape_count(&w->u.out[j].shape); e++)
                sum[j][e] = o.pair && j == 1 ? -INFINITY : 0;
        }
        for (int q = 0; q < m->n_rank; q++) {
            bool pair = false;
            for (int j = 0; j < n_out; j++) {
                weft_layout l = weft_shard_project(&w->u, &o.f, m, cut, w->u.n_in + j);
                if (!beside(m, &l, p, q)) continue;
                if (o.pair) {
                    pair = true;
                    continue;
                }
                for (int64_t e = 0; e < weft_shape_count(&w->u.out[j].shape); e++)
                    sum[j][e] += y[q][j][e];
            }
            if (pair) test_op_add_pair(&o, sum, (const double *const *)y[q]);
        }
        if (o.pair) test_op_end_pair(&o, (const double *const *)w->x, sum);
        for (int j = 0; j < n_out; j++) {
            weft_layout l = weft_shard_project(&w->u, &o.f, m, cut, w->u.n_in + j);
            compare(w, how, j, p, sum[j], regions_of(&l, m, &w->u.out[j].shape, p));
        }
    }
    n_tried++;
    n_op_tried[w->u.op]++;
}

/* ---- all cuts ---- */

/* Rows that depend on the data are seen as a whole in test_sharding. */
static bool can_try(const whole *w, int factor)
{
    const weft_factor *x = &w->f.f.factor[factor];
    return weft_shard_can_cut(&w->f, factor) && x->size > 1 && factor != w->f.own &&
           !(x->flags & WEFT_FACTOR_RAGGED);
}

static void add(const whole *w, weft_layout *cut, int factor, int axis,
                weft_split_order order)
{
    weft_layout_cut(cut, factor, axis, order);
    if (factor == w->f.expert) weft_layout_cut(cut, w->f.own, axis, WEFT_SPLIT_OWN);
}

static void try_one(const whole *w, const weft_mesh *m)
{
    char how[64];
    for (int f = 0; f < w->f.f.n; f++)
        for (int order = 0; order < 3 && can_try(w, f); order++) {
            weft_layout cut = weft_layout_replicated(0, 0);
            if (order && f == w->f.expert) continue; /* offsets are consecutive */
            add(w, &cut, f, 0, (weft_split_order)order);
            snprintf(how, sizeof how, "%c over %d, order %d", w->f.f.factor[f].name,
                     m->n_rank, order);
            check_cut(w, m, &cut, how);
        }
}

static void try_two(const whole *w, const weft_mesh *m)
{
    char how[64];
    for (int f = 0; f < w->f.f.n; f++)
        for (int g = 0; g < w->f.f.n; g++) {
            weft_layout cut = weft_layout_replicated(0, 0);
            if (!can_try(w, f) || !can_try(w, g)) continue;
            if (f == g && f == w->f.expert) continue;
            add(w, &cut, f, 0, WEFT_SPLIT_BLOCK);
            add(w, &cut, g, 1, WEFT_SPLIT_BLOCK);
            snprintf(how, sizeof how, "%c and %c over 2,2", w->f.f.factor[f].name,
                     w->f.f.factor[g].name);
            check_cut(w, m, &cut, how);
        }
}

static void every_cut_is_serial(void **state)
{
    (void)state;
    static const char *const name[] = {"a", "b"};
    static const int         size[] = {2, 3, 4};
    for (int c = 0; c < weft_n_test_case; c++) {
        whole          w;
        weft_mesh      m;
        weft_mesh_axis axis[2];
        if (!TEST_HERE((int)weft_test_cases[c].op)) continue;
        assert_ok(weft_arena_create(&arena));
        make_whole(&w, &weft_test_cases[c]);
        bool big = false; /* the mesh of 2,2 and other orders only where it is quick */
        for (int i = 0; i < w.u.n_in; i++)
            big = big || weft_shape_count(&w.u.in[i].shape) > 4000;
        for (int i = 0; i < 3; i++) {
            axis[0] = (weft_mesh_axis){name[0], size[i], 0};
            assert_ok(weft_mesh_make(arena, "m", 1, axis, 0, &m));
            if (!big || i == 0) try_one(&w, &m);
        }
        axis[0] = (weft_mesh_axis){name[0], 2, 0};
        axis[1] = (weft_mesh_axis){name[1], 2, 0};
        assert_ok(weft_mesh_make(arena, "m", 2, axis, 0, &m));
        if (!big) try_two(&w, &m);
        weft_arena_destroy(arena);
    }
    print_message("%d cuts of %d cases\n", n_tried, weft_n_test_case);
    assert_true(n_tried > (TEST_SPLIT ? 500 : 2500));
}

/* Operators none of whose factors may be cut, and why nobody minds. */
static bool has_nothing_to_cut(weft_op op)
{
    const weft_op_row *r = weft_op_get(op);
    /* scalars only (clip); rows as the data has it (dispatch, combine and their gradients but for
     * d) */
    return !strcmp(r->rule, "=none");
}

static void no_operator_is_left_out(void **state)
{
    (void)state;
    for (int op = 0; op < WEFT_N_OP; op++)
        if (TEST_HERE(op) && !n_op_tried[op] && !has_nothing_to_cut((weft_op)op))
            fail_msg("%s: no cut of it was tried", weft_op_get((weft_op)op)->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_is_serial),
        cmocka_unit_test(no_operator_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
