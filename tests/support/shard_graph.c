#include "support/shard_graph.h"

#include <math.h>
#include <stdio.h>

#include "base/random.h"
#include "support/eval.h"
#include "support/shard_apply.h"
#include "support/shard_op.h"
#include "support/test.h"

typedef struct runner {
    const weft_graph    *g;
    const weft_sharding *s;
    weft_arena          *a;
    weft_test_eval       e;  /* the serial run */
    test_spread         *at; /* by value */
    uint64_t             seed;
    test_graph_report   *report;
} runner;

/* ---- made up numbers ---- */

static double uniform(uint64_t seed, uint32_t v, uint32_t i)
{
    uint32_t key[2] = {(uint32_t)seed, 5}, ctr[4] = {i, v, 0, 0}, w[4];
    weft_random_philox(key, ctr, w);
    return (double)weft_random_uniform(w[0]);
}

/* The rows of the table or the classes that an integer input counts. */
static int64_t range_of(const weft_graph *g, weft_vid v)
{
    int64_t most = 0;
    for (int i = 0; i < g->n_node; i++) {
        weft_type   in[64], out[16];
        weft_arena *a;
        if (g->node[i].n_in > 64 || g->node[i].n_out > 16) continue;
        weft_op_use       u = weft_graph_use(g, &g->node[i], in, out);
        weft_node_factors f;
        int               factor;
        assert_ok(weft_arena_create(&a));
        assert_ok(weft_shard_factors(&u, a, &f));
        int k = weft_shard_index_operand(&u, &f, &factor);
        if (k >= 0 && g->node[i].in[k] == v && f.f.factor[factor].size > most)
            most = f.f.factor[factor].size;
        weft_arena_destroy(a);
    }
    return most ? most : 2;
}

static void fill_leaf(runner *r, weft_vid v)
{
    const weft_graph_value *x = &r->g->value[v];
    int64_t                 n = weft_shape_count(&x->type.shape);
    bool    whole = x->type.dtype == WEFT_DTYPE_I32 || x->type.dtype == WEFT_DTYPE_I64;
    int64_t range = whole ? range_of(r->g, v) : 0;
    for (int64_t i = 0; i < n; i++) {
        double u = uniform(r->seed, (uint32_t)v, (uint32_t)i);
        double y = 0.6 * (u - 0.5);
        if (whole) y = floor(u * (double)range);
        if (whole && !strcmp(x->name, "labels") && i % 7 == 3) y = -100;
        if (x->kind == WEFT_VALUE_STATE) y = 0.01 * u;
        if (x->per_step) y = !strcmp(x->name, "step") ? 1 : 0.05;
        r->e.data[v][i] = y;
    }
}

/* ---- spreads ---- */

static const weft_mesh *mesh_of(const runner *r, const weft_layout *l)
{
    return &r->s->mesh[l->mesh];
}

static void give_leaf(runner *r, weft_vid v)
{
    const weft_layout *l = &r->s->value[v];
    assert_ok(
        test_spread_make(r->a, mesh_of(r, l), l, &r->g->value[v].type.shape, &r->at[v]));
    assert_ok(test_spread_mark(r->a, &r->at[v]));
    for (int p = 0; p < r->at[v].m->n_rank; p++)
        for (int64_t e = 0; e < weft_shape_count(&r->at[v].s); e++)
            r->at[v].x[p][e] = r->at[v].has[p][e] ? r->e.data[v][e] : NAN;
}

/* Value v as layout `to` has it. */
static test_spread take_as(runner *r, weft_vid v, const weft_layout *to)
{
    test_spread      in = r->at[v], out;
    const weft_mesh *a = in.m, *b = mesh_of(r, to);
    weft_type        t = r->g->value[v].type;
    weft_reshard     plan;
    if (a == b && weft_layout_same(&in.l, to, a, &t.shape)) return in;
    if (weft_reshard_plan(a, &in.l, b, to, &t, r->a, &plan) != WEFT_OK)
        fail_msg("%s: %s", r->g->value[v].name, weft_error_text());
    assert_ok(weft_reshard_verify(&plan, a, b, &t));
    assert_true(plan.bytes * 10 <= plan.bound * 11 || plan.bound < 0 ||
                weft_shape_count(&t.shape) < a->n_rank);
    if (test_spread_reshard(r->a, &plan, b, &in, &out) != WEFT_OK)
        fail_msg("%s: %s", r->g->value[v].name, weft_error_text());
    for (int p = 0; p < b->n_rank; p++) /* what a place has not, nobody may read */
        for (int64_t e = 0; e < weft_shape_count(&t.shape); e++)
            if (!out.has[p][e]) out.x[p][e] = NAN;
    r->report->n_reshard++;
    r->report->bytes += plan.bytes;
    for (int i = 0; i < plan.n_step; i++) r->report->kind[plan.step[i].kind]++;
    return out;
}

/* ---- nodes ---- */

/* Softmax pairs are combined as soon as they are made: nobody uses them otherwise. */
static void combine_pairs(runner *r, const weft_graph_node *n, const test_op *o,
                          const test_spread *in)
{
    test_spread     *y = &r->at[n->out[0]], *l = &r->at[n->out[1]];
    const weft_mesh *m   = y->m;
    double        ***sum = WEFT_ARENA_ARRAY(r->a, double **, m->n_rank);
    for (int p = 0; p < m->n_rank; p++) {
        int c[WEFT_MAX_AXIS], b[WEFT_MAX_AXIS];
        weft_mesh_coords(m, p, c);
        sum[p] = WEFT_ARENA_ARRAY(r->a, double *, 2);
        for (int j = 0; j < 2; j++) {
            int64_t count = weft_shape_count(&o->u.out[j].shape);
            sum[p][j]     = WEFT_ARENA_ARRAY(r->a, double, count + 1);
            for (int64_t e = 0; e < count; e++) sum[p][j][e] = j ? -INFINITY : 0;
        }
        for (int q = 0; q < m->n_rank; q++) {
            bool in_group = true;
            weft_mesh_coords(m, q, b);
            for (int a = 0; a < m->n_axis; a++)
                in_group = in_group && (b[a] == c[a] || y->l.unreduced[a]);
            if (in_group)
                test_op_add_pair(o, sum[p], (const double *const[]){y->x[q], l->x[q]});
        }
        const double *operand[8];
        for (int k = 0; k < o->u.n_in; k++) operand[k] = in[k].x[p];
        test_op_end_pair(o, operand, sum[p]);
    }
    for (int p = 0; p < m->n_rank; p++) y->x[p] = sum[p][0], l->x[p] = sum[p][1];
    memset(y->l.unreduced, 0, sizeof y->l.unreduced);
    memset(l->l.unreduced, 0, sizeof l->l.unreduced);
}

static void run_node(runner *r, int i)
{
    const weft_graph_node *n   = &r->g->node[i];
    const weft_layout     *cut = &r->s->node[i];
    weft_type             *ti  = WEFT_ARENA_ARRAY(r->a, weft_type, n->n_in + 1);
    weft_type             *to  = WEFT_ARENA_ARRAY(r->a, weft_type, n->n_out + 1);
    test_spread           *in  = WEFT_ARENA_ARRAY(r->a, test_spread, n->n_in + 1);
    const weft_mesh       *m   = mesh_of(r, cut);
    weft_op_use            u   = weft_graph_use(r->g, n, ti, to);
    test_op                o;
    assert_ok(test_op_make(&o, r->a, &u, m, cut));
    for (int k = 0; k < n->n_in; k++)
        in[k] = take_as(r, n->in[k], &r->s->use[r->s->first[i] + k]);
    for (int j = 0; j < n->n_out; j++) {
        assert_ok(test_spread_make(r->a, m, &r->s->value[n->out[j]], &to[j].shape,
                                   &r->at[n->out[j]]));
        assert_ok(test_spread_mark(r->a, &r->at[n->out[j]]));
    }
    for (int p = 0; p < m->n_rank; p++) {
        const double **x = WEFT_ARENA_ARRAY(r->a, const double *, n->n_in + 1);
        double       **y = WEFT_ARENA_ARRAY(r->a, double *, n->n_out + 1);
        for (int k = 0; k < n->n_in; k++) x[k] = in[k].x[p];
        for (int j = 0; j < n->n_out; j++) y[j] = r->at[n->out[j]].x[p];
        if (test_op_run(&o, p, x, y, r->seed) != WEFT_OK)
            fail_msg("node %d (%s): %s", i, r->g->value[n->out[0]].name,
                     weft_error_text());
    }
    if (o.pair) combine_pairs(r, n, &o, in);
}

/* ---- comparing ---- */

static void compare(runner *r, weft_vid v, const test_spread *t, const char *what)
{
    const double *want = r->e.data[v];
    for (int p = 0; p < t->m->n_rank; p++)
        for (int64_t e = 0; e < weft_shape_count(&t->s); e++)
            if (t->has[p][e] &&
                !(fabs(t->x[p][e] - want[e]) <= 1e-9 + 1e-7 * fabs(want[e])))
                fail_msg("%s %s[%ld] at place %d is %.15g, should be %.15g", what,
                         r->g->value[v].name, (long)e, p, t->x[p][e], want[e]);
    r->report->n_value++;
}

/* Reduced values as they are made; rows that each rank sorts for itself have nothing to compare with. */
static void compare_made(runner *r, weft_vid v)
{
    const test_spread *t = &r->at[v];
    for (int a = 0; a < WEFT_MAX_AXIS; a++)
        if (t->l.unreduced[a]) return;
    for (int i = 0; i < t->l.n; i++)
        if (t->l.split[i].ragged || t->l.split[i].order == WEFT_SPLIT_OWN) return;
    compare(r, v, t, "value");
}

void test_graph_run(const weft_graph *g, const weft_sharding *s, uint64_t seed,
                    test_graph_report *out)
{
    runner       r   = {.g = g, .s = s, .seed = seed, .report = out};
    weft_ref_ctx ctx = {.seed = seed};
    memset(out, 0, sizeof *out);
    assert_ok(weft_arena_create(&r.a));
    assert_ok(weft_test_eval_make(g, r.a, &r.e));
    r.at = WEFT_ARENA_ARRAY(r.a, test_spread, g->n_value);
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].node < 0) {
            fill_leaf(&r, v);
            give_leaf(&r, v);
        }
    assert_ok(
        weft_test_eval_run(&r.e, WEFT_PHASE_FORWARD, WEFT_PHASE_UPDATE, false, &ctx));
    for (int i = 0; i < g->n_node; i++) {
        run_node(&r, i);
        for (int j = 0; j < g->node[i].n_out; j++) compare_made(&r, g->node[i].out[j]);
    }
    for (int i = 0; i < g->n_output; i++) {
        test_spread t = take_as(&r, g->output[i], &s->output[i]);
        compare(&r, g->output[i], &t, "output");
    }
    for (weft_vid v = 0; v < g->n_value; v++) /* what is kept for the next step */
        if (g->value[v].next >= 0) {
            test_spread t = take_as(&r, g->value[v].next, &s->value[v]);
            compare(&r, g->value[v].next, &t, "next");
        }
    weft_arena_destroy(r.a);
}
