/* Every operator, every legal cut of its factors on meshes {2}, {3}, {4} and {2,2}, through the
 * local graphs that
 * really run: slices before, positions told, collectives behind.  All ranks are run side by side
 * with the reference kernels, collectives by hand; each then has the serial result whole.
 *
 * Cuts in other orders than blocks may be refused, with a line; blocks may not.  Experts are in
 * tests/flow. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build.h"
#include "kernel/ref.h"
#include "spmd/spmd.h"
#include "support/op_cases.h"

enum {
    MAX_PLACE   = 4,
    MAX_OPERAND = 2048
};

static weft_arena *arena;
static int         n_tried, n_refused, n_op_tried[WEFT_N_OP];

typedef struct whole {
    char              what[256];
    weft_op_use       u;
    weft_node_factors f;
    double          **x; /* operands, then results */
    weft_graph       *g;
} whole;

static double *numbers(const weft_shape *s)
{
    double *x = WEFT_ARENA_ARRAY(arena, double, weft_shape_count(s) + 1);
    assert_non_null(x);
    return x;
}

static bool is_update(weft_op op)
{
    return weft_op_get(op)->flags & WEFT_OP_UPDATE || op == WEFT_OP_SUMSQ ||
           op == WEFT_OP_LAMB_DIR || op == WEFT_OP_CLIP || op == WEFT_OP_ACCUMULATE ||
           op == WEFT_OP_SUMSQ_PARTS || op == WEFT_OP_SUMSQ_TREE;
}

static void make_graph(whole *w)
{
    weft_vid in[16], out[16];
    assert_ok(weft_graph_create("one", &w->g));
    weft_builder b = weft_build_start(w->g);
    for (int i = 0; i < w->u.n_in; i++) {
        const weft_type *t = &w->u.in[i];
        in[i]              = weft_build_input(&b, "x", t->dtype, t->shape.n, t->shape.d);
        assert_ok(b.st);
        w->g->value[in[i]].per_step = is_update(w->u.op);
    }
    if (is_update(w->u.op)) w->g->phase = WEFT_PHASE_UPDATE;
    assert_ok(weft_graph_add_node(w->g, w->u.op, w->u.attr, w->u.n_in, in, "y",
                                  w->u.n_out, out));
    for (int j = 0; j < w->u.n_out; j++) assert_ok(weft_graph_set_output(w->g, out[j]));
}

static void make_whole(whole *w, const weft_test_case *c)
{
    weft_ref_ctx ctx = {.seed = 3};
    weft_test_case_text(c, w->what, sizeof w->what);
    assert_ok(weft_test_case_make(c, arena, &w->u));
    assert_ok(weft_shard_factors(&w->u, arena, &w->f));
    w->x = WEFT_ARENA_ARRAY(arena, double *, w->u.n_in + w->u.n_out);
    for (int i = 0; i < w->u.n_in + w->u.n_out; i++) {
        w->x[i] =
            numbers(i < w->u.n_in ? &w->u.in[i].shape : &w->u.out[i - w->u.n_in].shape);
        if (i < w->u.n_in) weft_test_case_fill(c, &w->u, i, 31, w->x[i]);
    }
    assert_ok(
        weft_kernel_ref_run(&w->u, (const double *const *)w->x, w->x + w->u.n_in, &ctx));
    make_graph(w);
}

/* ---- all places at once ---- */

typedef struct place {
    weft_local_graph *l;
    double          **x;  /* by value of its graph */
    int               at; /* the node it is at */
} place;

static void run_node(place *p)
{
    const weft_graph      *g = p->l->graph;
    const weft_graph_node *n = &g->node[p->at];
    static weft_type       ti[MAX_OPERAND], to[MAX_OPERAND];
    static const double   *in[MAX_OPERAND];
    static double         *out[MAX_OPERAND];
    weft_ref_ctx           ctx = {.seed = 3};
    assert_true(n->n_in <= MAX_OPERAND && n->n_out <= MAX_OPERAND);
    weft_op_use u = weft_graph_use(g, n, ti, to);
    for (int i = 0; i < n->n_in; i++) in[i] = p->x[n->in[i]];
    for (int j = 0; j < n->n_out; j++) out[j] = p->x[n->out[j]];
    assert_ok(weft_kernel_ref_run(&u, in, out, &ctx));
}

/* All places stand before the same collective. */
static void communicate(place *all, const weft_mesh *m, int me)
{
    const weft_graph      *g     = all[me].l->graph;
    const weft_graph_node *n     = &g->node[all[me].at];
    weft_op_use            u     = {.op = n->op, .attr = n->attr};
    const weft_shape      *s     = &g->value[n->in[0]].type.shape;
    int64_t                count = weft_shape_count(s), at = 0;
    int64_t                row = s->n && s->d[0] ? count / s->d[0] : 0;
    double                *y   = all[me].x[n->out[0]];
    int32_t                rank[MAX_PLACE];
    int k   = weft_mesh_group(m, all[me].l->group_axes[weft_use_int(&u, "group")], me,
                              rank),
        pos = 0;
    while (rank[pos] != me) pos++;
    for (int i = 0; i < k; i++) {
        const place           *p = &all[rank[i]];
        const weft_graph_node *o = &p->l->graph->node[p->at];
        const double          *x = p->x[o->in[0]];
        int64_t c = weft_shape_count(&p->l->graph->value[o->in[0]].type.shape);
        assert_int_equal(o->op, n->op);
        if (n->op == WEFT_OP_ALL_REDUCE)
            for (int64_t e = 0; e < count; e++) y[e] = (i ? y[e] : 0) + x[e];
        if (n->op == WEFT_OP_ALL_GATHER) {
            memcpy(y + at, x, sizeof *y * (size_t)c);
            at += c;
        }
        if (n->op == WEFT_OP_REDUCE_SCATTER) {
            int64_t unit = weft_use_int(&u, "unit");
            int64_t lo   = weft_part_start(s->d[0], unit, k, pos) * row;
            int64_t hi   = weft_part_start(s->d[0], unit, k, pos + 1) * row;
            for (int64_t e = lo; e < hi; e++) y[e - lo] = (i ? y[e - lo] : 0) + x[e];
        }
        if (n->op == WEFT_OP_ALL_TO_ALL)
            memcpy(y + i * count / k, x + pos * count / k,
                   sizeof *y * (size_t)(count / k));
        if (n->op == WEFT_OP_SHIFT && i == (pos + k - 1) % k)
            memcpy(y, x, sizeof *y * (size_t)count);
    }
}

static bool comes_to_collective(place *p)
{
    for (; p->at < p->l->graph->n_node; p->at++) {
        if (weft_op_get(p->l->graph->node[p->at].op)->flags & WEFT_OP_COMM) return true;
        run_node(p);
    }
    return false;
}

static void run_all(place *p, const weft_mesh *m)
{
    for (;;) {
        int n = 0;
        for (int i = 0; i < m->n_rank; i++) n += comes_to_collective(&p[i]);
        if (!n) return;
        assert_int_equal(n, m->n_rank);
        for (int i = 0; i < m->n_rank; i++) communicate(p, m, i);
        for (int i = 0; i < m->n_rank; i++) p[i].at++;
    }
}

static void compare(const whole *w, const char *how, int p, int j, const double *got)
{
    const double *want = w->x[w->u.n_in + j];
    for (int64_t e = 0; e < weft_shape_count(&w->u.out[j].shape); e++)
        if (got[e] != want[e] &&
            !(fabs(got[e] - want[e]) <= 1e-9 * fmax(1, fabs(want[e]))))
            fail_msg("%s: %s: result %d[%ld] at place %d is %.12g, should be %.12g",
                     w->what, how, j, (long)e, p, got[e], want[e]);
}

/* ---- one cut ---- */

/* The sharding that cuts the one node so; inputs are whole, results are given out whole. */
static void make_sharding(const whole *w, weft_mesh *m, const weft_layout *cut,
                          weft_sharding *s)
{
    int n      = w->u.n_in;
    *s         = (weft_sharding){.arena = arena, .n_mesh = 1, .mesh = m, .n_node = 1};
    s->n_value = w->g->n_value, s->n_use = n, s->n_output = w->u.n_out;
    s->value  = WEFT_ARENA_ARRAY(arena, weft_layout, s->n_value + 1);
    s->use    = WEFT_ARENA_ARRAY(arena, weft_layout, n + 1);
    s->output = WEFT_ARENA_ARRAY(arena, weft_layout, s->n_output + 1);
    s->node   = WEFT_ARENA_ARRAY(arena, weft_layout, 1);
    s->first  = WEFT_ARENA_ARRAY(arena, int32_t, 2);
    assert_ok(weft_arena_status(arena));
    s->node[0]  = *cut;
    s->first[1] = n;
    for (weft_vid v = 0; v < w->g->n_value; v++)
        s->value[v] = weft_layout_replicated(0, w->g->value[v].type.shape.n);
    for (int i = 0; i < n; i++) s->use[i] = weft_shard_project(&w->u, &w->f, m, cut, i);
    for (int j = 0; j < w->u.n_out; j++)
        s->value[w->g->node[0].out[j]] = weft_shard_project(&w->u, &w->f, m, cut, n + j);
}

static void check_cut(const whole *w, weft_mesh *m, const weft_layout *cut, bool blocks,
                      const char *how)
{
    weft_sharding s;
    place         p[MAX_PLACE] = {0};
    bool          made         = true;
    make_sharding(w, m, cut, &s);
    for (int i = 0; i < m->n_rank && made; i++) {
        weft_spmd_options o  = {.mesh_rank = i};
        weft_status       st = weft_spmd_rewrite(w->g, &s, &o, &p[i].l);
        made                 = st == WEFT_OK;
        if (!made && (blocks || st != WEFT_ERR_ARG))
            fail_msg("%s: %s: %s", w->what, how, weft_error_text());
    }
    for (int i = 0; i < m->n_rank && made; i++) {
        const weft_graph *g = p[i].l->graph;
        p[i].x              = WEFT_ARENA_ARRAY(arena, double *, g->n_value + 1);
        for (weft_vid v = 0; v < g->n_value; v++)
            p[i].x[v] = numbers(&g->value[v].type.shape);
        for (int k = 0; k < w->u.n_in; k++)
            memcpy(p[i].x[p[i].l->value[w->g->node[0].in[k]]], w->x[k],
                   sizeof(double) * (size_t)weft_shape_count(&w->u.in[k].shape));
    }
    if (made) run_all(p, m);
    for (int i = 0; i < m->n_rank && made; i++)
        for (int j = 0; j < w->u.n_out; j++)
            compare(w, how, i, j, p[i].x[p[i].l->output[j]]);
    for (int i = 0; i < m->n_rank; i++) weft_local_graph_destroy(p[i].l);
    n_refused += !made;
    n_tried += made;
    n_op_tried[w->u.op] += made;
}

static bool can_try(const whole *w, int factor)
{
    const weft_factor *x = &w->f.f.factor[factor];
    if (w->u.op == WEFT_OP_CROSS_ENTROPY && x->name == 'v' &&
        weft_use_int(&w->u, "first") >= 0)
        return false; /* a part already */
    return weft_shard_can_cut(&w->f, factor) && x->size > 1 && factor != w->f.own &&
           factor != w->f.expert && !(x->flags & WEFT_FACTOR_RAGGED);
}

static void try_one(const whole *w, weft_mesh *m)
{
    char how[64];
    for (int f = 0; f < w->f.f.n; f++)
        for (int order = 0; order < 3 && can_try(w, f); order++) {
            weft_layout cut = weft_layout_replicated(0, 0);
            weft_layout_cut(&cut, f, 0, (weft_split_order)order);
            snprintf(how, sizeof how, "%c over %d, order %d", w->f.f.factor[f].name,
                     m->n_rank, order);
            check_cut(w, m, &cut, order == WEFT_SPLIT_BLOCK, how);
        }
}

/* Two factors of one dimension, cut by two axes, are no plain blocks either. */
static bool together(const whole *w, int f, int g)
{
    for (int k = 0; k < (w->u.n_in + w->u.n_out) * WEFT_MAX_DIM; k++) {
        const weft_dim_factors *x = &w->f.dim[k];
        bool                    a = false, b = false;
        for (int i = 0; i < x->n; i++) a = a || x->f[i] == f, b = b || x->f[i] == g;
        if (a && b) return true;
    }
    return false;
}

static void try_two(const whole *w, weft_mesh *m)
{
    char how[64];
    for (int f = 0; f < w->f.f.n; f++)
        for (int g = 0; g < w->f.f.n; g++) {
            weft_layout cut = weft_layout_replicated(0, 0);
            if (!can_try(w, f) || !can_try(w, g)) continue;
            weft_layout_cut(&cut, f, 0, WEFT_SPLIT_BLOCK);
            weft_layout_cut(&cut, g, 1, WEFT_SPLIT_BLOCK);
            snprintf(how, sizeof how, "%c and %c over 2,2", w->f.f.factor[f].name,
                     w->f.f.factor[g].name);
            check_cut(w, m, &cut, !together(w, f, g), how);
        }
}

static void every_cut_is_serial(void **state)
{
    static const int size[] = {2, 3, 4};
    (void)state;
    for (int c = 0; c < weft_n_test_case; c++) {
        whole          w;
        weft_mesh      m;
        weft_mesh_axis axis[2] = {{"a", 2, 0}, {"b", 2, 0}};
        bool           big     = false;
        if (!TEST_HERE((int)weft_test_cases[c].op)) continue;
        assert_ok(weft_arena_create(&arena));
        make_whole(&w, &weft_test_cases[c]);
        for (int i = 0; i < w.u.n_in; i++)
            big = big || weft_shape_count(&w.u.in[i].shape) > 4000;
        for (int i = 0; i < 3; i++) {
            axis[0].size = size[i];
            assert_ok(weft_mesh_make(arena, "m", 1, axis, 0, &m));
            if (!big || i == 0) try_one(&w, &m);
        }
        axis[0].size = 2;
        assert_ok(weft_mesh_make(arena, "m", 2, axis, 0, &m));
        if (!big) try_two(&w, &m);
        weft_graph_destroy(w.g);
        weft_arena_destroy(arena);
    }
    print_message("%d cuts of %d cases, %d refused\n", n_tried, weft_n_test_case,
                  n_refused);
    assert_true(n_tried > (TEST_SPLIT ? 300 : 1500));
}

/* Operators without a cut here: of scalars, or whose every factor is whole or rows as the data
 * has them. */
static void no_operator_is_left_out(void **state)
{
    (void)state;
    for (int op = 0; op < WEFT_N_OP; op++) {
        const weft_op_row *r = weft_op_get((weft_op)op);
        if (TEST_HERE(op) && !n_op_tried[op] && strcmp(r->rule, "=none") != 0)
            fail_msg("%s: no cut of it was tried", r->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_is_serial),
        cmocka_unit_test(no_operator_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
