/* Positions: a node of a local graph is told where its part lies; a part that is several runs of
 * a factor whose positions the operator knows (half a zigzag's sequence, twice) is as many nodes,
 * their results put side by side or added. */
#include <string.h>

#include "base/status.h"
#include "spmd/spmd_priv.h"

typedef weft_spmd__rewriter rewriter;

typedef struct parts {
    weft_interval  run[WEFT_MAX_FACTOR]; /* of each factor, the run at hand */
    int            factor;               /* the one that has several runs, -1 none */
    int            n;
    weft_interval *all;
} parts;

static const char *name_of(const rewriter *rw, int node)
{
    return rw->g->value[rw->g->node[node].out[0]].name;
}

static weft_status find_runs(rewriter *rw, int node, const weft_op_use *u,
                             const weft_node_factors *f, parts *p)
{
    const weft_layout *cut = &rw->s->node[node];
    p->factor              = -1;
    p->n                   = 1;
    for (int c = 0; c < f->f.n; c++) {
        weft_interval *x;
        int            n;
        p->run[c] = (weft_interval){0, f->f.factor[c].size};
        if (!cut->n || c == f->own || !weft_shard_is_positional(u, f, c)) continue;
        WEFT_TRY(weft_layout_intervals(cut, rw->m, c, f->f.factor[c].size,
                                       rw->o->mesh_rank, rw->tmp, &x, &n));
        p->run[c] = n ? x[0] : (weft_interval){f->f.factor[c].size, f->f.factor[c].size};
        if (n < 2) continue;
        if (p->factor >= 0)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: a part in several runs of two factors",
                             name_of(rw, node));
        if (f->f.factor[c].flags & WEFT_FACTOR_SOFTMAX)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: a part of a softmax in several runs",
                             name_of(rw, node));
        p->factor = c;
        p->n      = n;
        p->all    = x;
    }
    int at = weft_op_attr_index(u->op, "experts");
    if (f->own < 0 || at < 0) return WEFT_OK;
    return weft_shard_own_experts(f, rw->m, cut, u->attr[at].i, rw->o->mesh_rank, rw->tmp,
                                  &p->run[f->own]);
}

/* Numbers of rows in a table whose part cannot be told where it begins. */
static weft_status check_index(const rewriter *rw, int node, const weft_op_use *u,
                               const weft_node_factors *f)
{
    int v;
    if (weft_shard_index_operand(u, f, &v) < 0) return WEFT_OK;
    if (weft_op_attr_index(u->op, "first") >= 0) return WEFT_OK;
    for (int i = 0; i < rw->s->node[node].n; i++)
        if (rw->s->node[node].split[i].dim == v)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s cannot take a part of its table",
                             name_of(rw, node), weft_op_get(u->op)->name);
    return WEFT_OK;
}

/* ---- several runs ---- */

/* The dimension of operand or result i that the factor is, -1 none. */
static int dim_with(const weft_node_factors *f, int i, int factor)
{
    for (int d = 0; d < WEFT_MAX_DIM; d++) {
        const weft_dim_factors *x = &f->dim[i * WEFT_MAX_DIM + d];
        if (x->n == 1 && x->f[0] == factor) return d;
    }
    return -1;
}

static weft_vid slice(rewriter *rw, weft_vid x, int d, int64_t lo, int64_t hi)
{
    if (d < 0) return x;
    return weft_buildf(&rw->b, WEFT_OP_SLICE, NULL, 1, &x, "axis=%d start=%lld stop=%lld",
                       d, (long long)lo, (long long)hi);
}

/* Results of all runs: side by side where they have the factor, else their sum. */
static weft_status join(rewriter *rw, const weft_graph_node *n,
                        const weft_node_factors *f, const parts *p, const weft_vid *piece,
                        weft_vid *out)
{
    for (int j = 0; j < n->n_out; j++) {
        int       d    = dim_with(f, n->n_in + j, p->factor);
        weft_vid *list = WEFT_ARENA_ARRAY(rw->tmp, weft_vid, p->n);
        WEFT_TRY(weft_arena_status(rw->tmp));
        for (int r = 0; r < p->n; r++) list[r] = piece[r * n->n_out + j];
        out[j] = list[0];
        if (d >= 0)
            out[j] = weft_buildf(&rw->b, WEFT_OP_CONCAT, NULL, p->n, list, "axis=%d", d);
        for (int r = 1; r < p->n && d < 0; r++)
            out[j] = weft_build(&rw->b, WEFT_OP_ADD, NULL, NULL, 2, out[j], list[r]);
    }
    return rw->b.st;
}

static weft_status write_runs(rewriter *rw, int node, const weft_op_use *u,
                              const weft_node_factors *f, parts *p, const weft_vid *in,
                              const weft_attr *base, weft_vid *out)
{
    const weft_graph_node *n     = &rw->g->node[node];
    weft_vid              *x     = WEFT_ARENA_ARRAY(rw->tmp, weft_vid, n->n_in + 1);
    weft_vid              *piece = WEFT_ARENA_ARRAY(rw->tmp, weft_vid, p->n * n->n_out);
    weft_type             *t     = WEFT_ARENA_ARRAY(rw->tmp, weft_type, n->n_out + 1);
    int64_t                at    = 0;
    WEFT_TRY(weft_arena_status(rw->tmp));
    rw->b.prefix = name_of(rw, node);
    for (int r = 0; r < p->n; r++) {
        weft_attr attr[WEFT_MAX_ATTR];
        int64_t   size    = p->all[r].hi - p->all[r].lo;
        p->run[p->factor] = p->all[r];
        memcpy(attr, base, sizeof *attr * (size_t)weft_op_n_attr(n->op));
        for (int i = 0; i < n->n_in; i++)
            x[i] = slice(rw, in[i], dim_with(f, i, p->factor), at, at + size);
        for (int j = 0; j < n->n_out; j++) {
            int d = dim_with(f, n->n_in + j, p->factor);
            t[j]  = u->out[j];
            t[j].shape =
                weft_spmd__local_shape(rw, &rw->s->value[n->out[j]], &t[j].shape);
            if (d >= 0) t[j].shape.d[d] = size;
        }
        weft_shard_local_attr(u, t, attr);
        weft_shard_local_first(u, f, &rw->s->node[node], p->run, attr);
        WEFT_TRY(rw->b.st);
        WEFT_TRY(weft_graph_add_node(rw->b.g, n->op, attr, n->n_in, x, NULL, n->n_out,
                                     &piece[r * n->n_out]));
        at += size;
    }
    WEFT_TRY(join(rw, n, f, p, piece, out));
    rw->b.prefix = NULL;
    return WEFT_OK;
}

/* ---- one ---- */

/* Offsets stand beside all experts' rows; a part of the experts takes its own. */
static weft_status own_offsets(rewriter *rw, int node, const weft_op_use *u,
                               const weft_node_factors *f, weft_vid *in)
{
    const weft_layout *cut = &rw->s->node[node];
    weft_interval      own;
    weft_vid           sent = -1;
    bool               any  = false;
    for (int i = 0; i < cut->n && f->expert >= 0; i++)
        any = any || cut->split[i].dim == f->expert;
    if (!any || f->own < 0) return WEFT_OK;
    WEFT_TRY(weft_shard_own_experts(f, rw->m, cut, f->f.factor[f->expert].size,
                                    rw->o->mesh_rank, rw->tmp, &own));
    WEFT_TRY(weft_spmd__received_offsets(rw, node, &sent));
    for (int i = 0; i < u->n_in; i++)
        if (u->in[i].dtype == WEFT_DTYPE_I32 && !f->dim[i * WEFT_MAX_DIM].n)
            in[i] = slice(rw, sent >= 0 ? sent : in[i], 0, own.lo, own.hi + 1);
    return rw->b.st;
}

/* Of rows that may all come to one owner of experts, its part is expected. */
static void set_share(const rewriter *rw, int node, const weft_op_use *u,
                      const weft_node_factors *f, weft_attr *attr)
{
    const weft_layout *cut = &rw->s->node[node];
    int                at  = weft_op_attr_index(u->op, "share");
    for (int i = 0; i < cut->n && at >= 0; i++)
        if (cut->split[i].dim == f->expert)
            attr[at].i *= rw->m->axis[cut->split[i].axis].size;
}

weft_status weft_spmd__add_positioned_node(rewriter *rw, int node, const weft_op_use *u,
                                           const weft_node_factors *f,
                                           const weft_attr *base, const weft_vid *in,
                                           weft_vid *out)
{
    const weft_graph_node *n = &rw->g->node[node];
    weft_attr              attr[WEFT_MAX_ATTR];
    weft_vid              *x = WEFT_ARENA_ARRAY(rw->tmp, weft_vid, n->n_in + 1);
    parts                  p;
    WEFT_TRY(weft_arena_status(rw->tmp));
    memcpy(x, in, sizeof *x * (size_t)n->n_in);
    WEFT_TRY(check_index(rw, node, u, f));
    WEFT_TRY(find_runs(rw, node, u, f, &p));
    if (p.factor >= 0) return write_runs(rw, node, u, f, &p, in, base, out);
    WEFT_TRY(own_offsets(rw, node, u, f, x));
    memcpy(attr, base, sizeof *attr * (size_t)weft_op_n_attr(n->op));
    set_share(rw, node, u, f, attr);
    if (rw->s->node[node].n)
        weft_shard_local_first(u, f, &rw->s->node[node], p.run, attr);
    return weft_graph_add_node(rw->b.g, n->op, attr, n->n_in, x,
                               rw->g->value[n->out[0]].name, n->n_out, out);
}
