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

/* ---- rows ---- */

/* Where a place's local rows lie in the whole, one by one. */
static int64_t *rows_at(runner *r, const test_spread *t, int place)
{
    weft_interval *x;
    int            n;
    int64_t       *at = WEFT_ARENA_ARRAY(r->a, int64_t, t->s.d[0] + 1), k = 0;
    assert_ok(weft_layout_intervals(&t->l, t->m, 0, t->s.d[0], place, r->a, &x, &n));
    for (int i = 0; i < n; i++)
        for (int64_t e = x[i].lo; e < x[i].hi; e++) at[k++] = e;
    return at;
}

/* The place's neighbour along an axis, and the experts that are a place's own. */
static int beside(const weft_mesh *m, int place, int axis, int at)
{
    int c[WEFT_MAX_AXIS];
    weft_mesh_coords(m, place, c);
    if (at >= 0) c[axis] = at;
    return at < 0 ? c[axis] : weft_mesh_place_of(m, c);
}
static weft_interval own_experts(const weft_mesh *m, int place, int axis, int64_t n)
{
    int at = beside(m, place, axis, -1), parts = m->axis[axis].size;
    return (weft_interval){weft_part_start(n, 1, parts, at),
                           weft_part_start(n, 1, parts, at + 1)};
}

static bool moves_rows(const weft_reshard_step *s)
{
    return weft_step_is(s, WEFT_SEND_ROWS) || weft_step_is(s, WEFT_RETURN_ROWS);
}

/* Rows of the expert that each owner has, from each home in turn: there or back. */
static test_spread move_rows(runner *r, int node, const test_spread *in,
                             const weft_reshard_step *s)
{
    int         sorter = weft_shard_sorter(r->g, node), axis = __builtin_ctz(s->axes);
    bool        send = s->coll == WEFT_SEND_ROWS;
    int64_t     d    = in->s.d[1];
    test_spread out;
    const test_spread *off = &r->at[r->g->node[sorter].out[1]];
    assert_ok(test_spread_make(r->a, in->m, &s->after, &in->s, &out));
    assert_ok(test_spread_mark(r->a, &out));
    for (int p = 0; p < in->m->n_rank; p++) {
        weft_interval own = own_experts(in->m, p, axis, off->s.d[0] - 1);
        int64_t      *at = rows_at(r, send ? &out : in, p), k = 0;
        for (int64_t e = own.lo; e < own.hi; e++)
            for (int i = 0; i < in->m->axis[axis].size; i++) {
                int      q    = beside(in->m, p, axis, i);
                int64_t *home = rows_at(r, send ? in : &out, q);
                for (int64_t j = (int64_t)off->x[q][e]; j < (int64_t)off->x[q][e + 1];
                     j++, k++)
                    memcpy(send ? out.x[p] + at[k] * d : out.x[q] + home[j] * d,
                           send ? in->x[q] + home[j] * d : in->x[p] + at[k] * d,
                           sizeof(double) * (size_t)d);
            }
    }
    return out;
}

/* Where the rows that came begin, for products whose rows were sent. */
static void sent_offsets(runner *r, int node, test_spread *in)
{
    int                sorter = weft_shard_sorter(r->g, node), axis = -1;
    const weft_layout *use = &r->s->use[r->s->first[node]], *made;
    if (sorter < 0 || r->g->node[node].in[2] != r->g->node[sorter].out[1]) return;
    made = &r->s->value[r->g->node[sorter].out[0]];
    for (int i = 0; i < use->n; i++) {
        const weft_split *s = weft_layout_find(made, use->split[i].axis);
        if (use->split[i].order == WEFT_SPLIT_OWN && s && s->order != WEFT_SPLIT_OWN)
            axis = s->axis;
    }
    if (axis < 0) return;
    test_spread out;
    assert_ok(test_spread_make(r->a, in->m, &in->l, &in->s, &out));
    assert_ok(test_spread_mark(r->a, &out));
    for (int p = 0; p < in->m->n_rank; p++) {
        weft_interval own = own_experts(in->m, p, axis, in->s.d[0] - 1);
        double        sum = 0;
        for (int64_t e = 0; e < in->s.d[0]; e++) {
            out.x[p][e] = sum;
            for (int i = 0; i < in->m->axis[axis].size && e >= own.lo && e < own.hi;
                 i++) {
                const double *x = in->x[beside(in->m, p, axis, i)];
                sum += x[e + 1] - x[e];
            }
        }
    }
    *in = out;
}

static test_spread reshard(runner *r, int node, weft_vid v, test_spread in,
                           const weft_layout *to)
{
    weft_type    t = r->g->value[v].type;
    weft_reshard plan;
    test_spread  out;
    if (weft_reshard_collectives(in.m, 0, &in.l, to, &t, r->a, &plan) != WEFT_OK)
        fail_msg("%s: %s", r->g->value[v].name, weft_error_text());
    for (int i = 0; i < plan.n_step; i++, in = out) {
        weft_reshard one = {.n_step = 1, .step = &plan.step[i]};
        if (moves_rows(&plan.step[i]))
            out = move_rows(r, node, &in, &plan.step[i]);
        else if (test_spread_reshard(r->a, &one, &in, &out) != WEFT_OK)
            fail_msg("%s: %s", r->g->value[v].name, weft_error_text());
    }
    r->report->bytes += plan.bytes;
    return in;
}

/* Of what is to be a sum over a mesh' axes, the first along each has all, others nothing. */
static bool is_neutral(const weft_mesh *m, const weft_layout *l, int place)
{
    int c[WEFT_MAX_AXIS];
    weft_mesh_coords(m, place, c);
    for (int a = 0; a < m->n_axis; a++)
        if (l->unreduced[a] && c[a]) return true;
    return false;
}

/* On the places of another mesh: reduced, then from any place that has the element. */
static test_spread send(runner *r, int node, weft_vid v, test_spread in,
                        const weft_mesh *b, const weft_layout *to)
{
    weft_layout reduced = in.l;
    test_spread out;
    memset(reduced.unreduced, 0, sizeof reduced.unreduced);
    in = reshard(r, node, v, in, &reduced);
    assert_ok(test_spread_make(r->a, b, to, &in.s, &out));
    assert_ok(test_spread_mark(r->a, &out));
    for (int p = 0; p < b->n_rank; p++)
        for (int64_t e = 0; e < weft_shape_count(&in.s); e++) {
            int q = 0;
            while (out.has[p][e] && !in.has[q][e]) assert_true(++q < in.m->n_rank);
            if (out.has[p][e]) out.x[p][e] = is_neutral(b, to, p) ? 0 : in.x[q][e];
        }
    return out;
}

/* Value v as layout `to` has it. */
static test_spread take_as(runner *r, int node, weft_vid v, const weft_layout *to)
{
    test_spread      in = r->at[v], out;
    const weft_mesh *a = in.m, *b = mesh_of(r, to);
    weft_type        t = r->g->value[v].type;
    if (a == b && weft_layout_same(&in.l, to, a, &t.shape)) return in;
    out = a == b ? reshard(r, node, v, in, to) : send(r, node, v, in, b, to);
    for (int p = 0; p < b->n_rank; p++) /* what a place has not, nobody may read */
        for (int64_t e = 0; e < weft_shape_count(&t.shape); e++)
            if (!out.has[p][e]) out.x[p][e] = NAN;
    r->report->n_reshard++;
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
        in[k] = take_as(r, i, n->in[k], &r->s->use[r->s->first[i] + k]);
    if (n->n_in > 2) sent_offsets(r, i, &in[2]);
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

/* Reduced values as they are made; rows that each rank sorts for itself have nothing to compare
 * with. */
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
        test_spread t = take_as(&r, -1, g->output[i], &s->output[i]);
        compare(&r, g->output[i], &t, "output");
    }
    for (weft_vid v = 0; v < g->n_value; v++) /* what is kept for the next step */
        if (g->value[v].next >= 0) {
            test_spread t = take_as(&r, -1, g->value[v].next, &s->value[v]);
            compare(&r, g->value[v].next, &t, "next");
        }
    weft_arena_destroy(r.a);
}
