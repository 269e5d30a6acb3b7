/* Attention as a ring: every rank keeps its queries; keys and values of the others come by, a
 * part at a time, and what each gives is merged with what there is.  Backward, the gradients of
 * keys and values travel with them and come home after a whole round.
 *
 * A part is one run of the sequence or, cut zigzag, two; runs that no query of the rank sees
 * cost nothing.  All ranks shift alike, whatever they skip, and keys no further than somebody
 * sees them (a window). */
#include <string.h>

#include "base/status.h"
#include "spmd/spmd_priv.h"

typedef weft_spmd__rewriter rewriter;

enum {
    MAX_RUN = 4
};

typedef struct runs {
    int           n;
    weft_interval at[MAX_RUN];
    int64_t       local[MAX_RUN]; /* where each begins in the local tensor */
} runs;

typedef struct ring {
    rewriter              *rw;
    const weft_graph_node *n;
    int                    node, axis, parts, group;
    int                    far;   /* steps after which nobody sees keys any more */
    int                    q, kv; /* operands: queries; keys, and values behind them */
    bool                   causal;
    int64_t                size, window, ahead;
    weft_split             cut; /* of the sequence */
    runs                   mine;
} ring;

/* ---- is it one? ---- */

static int named(const weft_node_factors *f, char name)
{
    for (int i = 0; i < f->f.n; i++)
        if (f->f.factor[i].name == name) return i;
    return -1;
}

/* The one axis that cuts the factor, -1: none or several. */
static int cut_by(const weft_layout *cut, int factor, weft_split *out)
{
    int axis = -1;
    for (int i = 0; i < cut->n; i++) {
        if (cut->split[i].dim != factor) continue;
        if (axis >= 0) return -1;
        axis = cut->split[i].axis;
        *out = cut->split[i];
    }
    return axis;
}

static weft_status runs_of(const ring *r, int part, runs *out)
{
    weft_layout    l = weft_layout_replicated(0, 1);
    weft_interval *x;
    int64_t        at = 0;
    weft_layout_cut(&l, 0, r->axis, (weft_split_order)r->cut.order);
    WEFT_TRY(weft_layout_intervals(&l, r->rw->m, 0, r->size,
                                   weft_spmd__neighbour(r->rw, r->axis, part), r->rw->tmp,
                                   &x, &out->n));
    for (int i = 0; i < out->n && i < MAX_RUN; i++) {
        out->at[i]    = x[i];
        out->local[i] = at;
        at += x[i].hi - x[i].lo;
    }
    return WEFT_OK;
}

static int64_t length(const runs *x)
{
    int64_t n = 0;
    for (int i = 0; i < x->n && i < MAX_RUN; i++) n += x->at[i].hi - x->at[i].lo;
    return n;
}

/* Parts of one size, in few runs. */
static weft_status is_even(const ring *r, bool *out)
{
    *out = r->cut.unit == 1 && !r->cut.period;
    for (int p = 0; p < r->parts && *out; p++) {
        runs x;
        WEFT_TRY(runs_of(r, p, &x));
        *out = x.n > 0 && x.n <= MAX_RUN && length(&x) * r->parts == r->size;
    }
    return WEFT_OK;
}

/* Does some query of the run see a key of the other? */
static bool sees(const ring *r, weft_interval q, weft_interval t)
{
    if (r->causal && t.lo >= q.hi) return false;
    return !r->window || t.hi - 1 > q.lo - r->window;
}

static bool see_any(const ring *r, const runs *q, const runs *t)
{
    for (int a = 0; a < q->n; a++)
        for (int b = 0; b < t->n; b++)
            if (sees(r, q->at[a], t->at[b])) return true;
    return false;
}

/* The last step at which some rank sees something of what has come to it. */
static weft_status find_far(ring *r)
{
    runs *x = WEFT_ARENA_ARRAY(r->rw->tmp, runs, r->parts);
    WEFT_TRY(weft_arena_status(r->rw->tmp));
    for (int p = 0; p < r->parts; p++) WEFT_TRY(runs_of(r, p, &x[p]));
    for (int step = 0; step < r->parts; step++)
        for (int p = 0; p < r->parts; p++)
            if (see_any(r, &x[p], &x[(p - step + r->parts) % r->parts])) r->far = step;
    return WEFT_OK;
}

static weft_status find_ring(rewriter *rw, int node, ring *r, bool *is)
{
    const weft_graph_node *n    = &rw->g->node[node];
    bool                   grad = n->op == WEFT_OP_ATTENTION_GRAD;
    weft_type              in[8], out[4];
    weft_node_factors      f;
    *is = false;
    if (!rw->o->ring_axes || (n->op != WEFT_OP_ATTENTION && !grad)) return WEFT_OK;
    if (n->n_in != (grad ? 6 : 3)) return WEFT_OK; /* with a bias */
    weft_op_use u = weft_graph_use(rw->g, n, in, out);
    WEFT_TRY(weft_shard_factors(&u, rw->tmp, &f));
    int s = named(&f, 's'), t = named(&f, 't');
    *r = (ring){.rw = rw, .n = n, .node = node, .q = grad ? 1 : 0, .kv = grad ? 2 : 1};
    r->axis = cut_by(&rw->s->node[node], s, &r->cut);
    if (r->axis < 0 || !(rw->o->ring_axes >> r->axis & 1)) return WEFT_OK;
    for (int i = 0; i < rw->s->node[node].n; i++)
        if (rw->s->node[node].split[i].dim == t) return WEFT_OK;
    r->size   = f.f.factor[t].size;
    r->parts  = rw->m->axis[r->axis].size;
    r->causal = weft_use_int(&u, "causal") != 0;
    r->window = weft_use_int(&u, "window");
    if (r->size != f.f.factor[s].size || weft_use_int(&u, "q_first") >= 0 || r->parts < 2)
        return WEFT_OK;
    WEFT_TRY(is_even(r, is));
    if (!*is) return WEFT_OK;
    WEFT_TRY(runs_of(r, rw->coord[r->axis], &r->mine));
    WEFT_TRY(find_far(r));
    return weft_spmd__group_of_axes(rw, 1u << r->axis, &r->group);
}

/* ---- nodes ---- */

static weft_vid slice(const ring *r, weft_vid x, const runs *of, int i)
{
    int64_t lo = of->local[i], hi = lo + of->at[i].hi - of->at[i].lo;
    if (of->n == 1) return x;
    return weft_buildf(&r->rw->b, WEFT_OP_SLICE, NULL, 1, &x,
                       "axis=1 start=%lld stop=%lld", (long long)lo, (long long)hi);
}

static weft_vid concat(const ring *r, const weft_vid *x, int n)
{
    if (n == 1) return x[0];
    return weft_buildf(&r->rw->b, WEFT_OP_CONCAT, NULL, n, x, "axis=1");
}

static weft_vid shift(const ring *r, weft_vid x)
{
    return weft_buildf(&r->rw->b, WEFT_OP_SHIFT, NULL, 1, &x, "group=%d", r->group);
}

static weft_status attend(const ring *r, weft_interval q, weft_interval t, int n_in,
                          const weft_vid *in, int n_out, weft_vid *out)
{
    weft_attr attr[WEFT_MAX_ATTR];
    WEFT_TRY(r->rw->b.st);
    memcpy(attr, r->n->attr, sizeof *attr * (size_t)weft_op_n_attr(r->n->op));
    attr[weft_op_attr_index(r->n->op, "q_first")].i = q.lo;
    attr[weft_op_attr_index(r->n->op, "k_first")].i = t.lo;
    return weft_graph_add_node(r->rw->b.g, r->n->op, attr, n_in, in, NULL, n_out, out);
}

/* Operand i as it is used, its sequence cut by the ring's axis too. */
static weft_layout in_parts(const ring *r, weft_layout l)
{
    l.unreduced[r->axis] = WEFT_REDUCED;
    if (!weft_layout_find(&l, r->axis))
        weft_layout_cut(&l, 1, r->axis, (weft_split_order)r->cut.order);
    return l;
}

static weft_status take(const ring *r, int i, bool parts, weft_vid *out)
{
    weft_layout l = r->rw->s->use[r->rw->s->first[r->node] + i];
    if (parts) l = in_parts(r, l);
    return weft_spmd__materialize(r->rw, r->n->in[i], &l, out);
}

static weft_status put(const ring *r, int j, bool parts, weft_vid x)
{
    weft_layout l = r->rw->s->value[r->n->out[j]];
    if (parts) l = in_parts(r, l);
    WEFT_TRY(r->rw->b.st);
    return weft_spmd__add_materialized(r->rw, r->n->out[j], &l, x, true);
}

/* ---- forward ---- */

static weft_status forward(const ring *r)
{
    weft_vid q, kv[2], o[MAX_RUN], lse[MAX_RUN];
    bool     any[MAX_RUN] = {0};
    WEFT_TRY(take(r, r->q, false, &q));
    for (int i = 0; i < 2; i++) WEFT_TRY(take(r, r->kv + i, true, &kv[i]));
    r->rw->b.prefix = r->rw->g->value[r->n->out[0]].name;
    for (int step = 0; step <= r->far; step++) {
        runs of;
        WEFT_TRY(runs_of(r, (r->rw->coord[r->axis] - step + r->parts) % r->parts, &of));
        for (int a = 0; a < r->mine.n; a++)
            for (int b = 0; b < of.n; b++) {
                weft_vid in[3], y[4];
                if (!sees(r, r->mine.at[a], of.at[b])) continue;
                in[0] = slice(r, q, &r->mine, a);
                for (int i = 0; i < 2; i++) in[1 + i] = slice(r, kv[i], &of, b);
                WEFT_TRY(attend(r, r->mine.at[a], of.at[b], 3, in, 2, &y[2]));
                y[0] = o[a], y[1] = lse[a];
                o[a] = y[2], lse[a] = y[3];
                if (any[a]) {
                    weft_vid z[2];
                    weft_build_many(&r->rw->b, WEFT_OP_ATTENTION_MERGE, NULL, NULL, 4, y,
                                    2, z);
                    o[a] = z[0], lse[a] = z[1];
                }
                any[a] = true;
            }
        for (int i = 0; i < 2 && step < r->far; i++) kv[i] = shift(r, kv[i]);
    }
    o[0]            = concat(r, o, r->mine.n);
    lse[0]          = concat(r, lse, r->mine.n);
    r->rw->b.prefix = NULL;
    WEFT_TRY(put(r, 0, false, o[0]));
    return put(r, 1, false, lse[0]);
}

/* ---- backward ---- */

typedef struct sums {
    weft_vid dq[MAX_RUN];   /* of the own queries; -1 nothing yet */
    weft_vid d[2][MAX_RUN]; /* of the keys and values at hand, by run */
} sums;

static weft_vid add(const ring *r, weft_vid a, weft_vid b)
{
    return a < 0 ? b : weft_build(&r->rw->b, WEFT_OP_ADD, NULL, NULL, 2, a, b);
}

/* in: do q k v o lse.  Adds what the part at hand gives. */
static weft_status backward_part(const ring *r, const weft_vid *in, const runs *of,
                                 sums *s)
{
    static const bool key[6] = {0, 0, 1, 1, 0, 0};
    for (int a = 0; a < r->mine.n; a++)
        for (int b = 0; b < of->n; b++) {
            weft_vid x[6], y[3];
            if (!sees(r, r->mine.at[a], of->at[b])) continue;
            for (int i = 0; i < 6; i++)
                x[i] = slice(r, in[i], key[i] ? of : &r->mine, key[i] ? b : a);
            WEFT_TRY(attend(r, r->mine.at[a], of->at[b], 6, x, 3, y));
            s->dq[a] = add(r, s->dq[a], y[0]);
            for (int i = 0; i < 2; i++) s->d[i][b] = add(r, s->d[i][b], y[1 + i]);
        }
    return r->rw->b.st;
}

/* What travels: run by run what came plus what is added here.  The round begins at home, where
 * every run is seen. */
static weft_vid travel(const ring *r, weft_vid came, const runs *of, const weft_vid *own)
{
    weft_vid part[MAX_RUN];
    bool     any = false;
    for (int b = 0; b < of->n; b++) any = any || own[b] >= 0;
    if (!any) return came;
    for (int b = 0; b < of->n; b++) {
        part[b] = came < 0 ? -1 : slice(r, came, of, b);
        if (own[b] >= 0) part[b] = add(r, part[b], own[b]);
    }
    return concat(r, part, of->n);
}

static weft_status backward(const ring *r)
{
    weft_vid in[6], came[2] = {-1, -1};
    sums     s;
    memset(s.dq, -1, sizeof s.dq);
    for (int i = 0; i < 6; i++) WEFT_TRY(take(r, i, i == 2 || i == 3, &in[i]));
    r->rw->b.prefix = r->rw->g->value[r->n->out[0]].name;
    for (int step = 0; step < r->parts; step++) {
        runs of;
        memset(s.d, -1, sizeof s.d);
        WEFT_TRY(runs_of(r, (r->rw->coord[r->axis] - step + r->parts) % r->parts, &of));
        if (step <= r->far) WEFT_TRY(backward_part(r, in, &of, &s));
        for (int i = 0; i < 2; i++) {
            came[i] = shift(r, travel(r, came[i], &of, s.d[i]));
            if (step < r->far) in[2 + i] = shift(r, in[2 + i]);
        }
    }
    s.dq[0]         = concat(r, s.dq, r->mine.n);
    r->rw->b.prefix = NULL;
    WEFT_TRY(put(r, 0, false, s.dq[0]));
    for (int i = 0; i < 2; i++) WEFT_TRY(put(r, 1 + i, true, came[i]));
    return WEFT_OK;
}

weft_status weft_spmd__add_ring_attention(rewriter *rw, int node, bool *done)
{
    ring r;
    WEFT_TRY(find_ring(rw, node, &r, done));
    if (!*done) return WEFT_OK;
    return r.n->op == WEFT_OP_ATTENTION ? forward(&r) : backward(&r);
}
