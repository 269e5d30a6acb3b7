/* Messages and collectives over the links that they use.
 *
 * Ranks of a node that execute the same message or collective share its ports: ports.h.  A group
 * on several islands (nodes, racks of one fast link) works in two levels, m members an island, I
 *     islands, as halving and doubling do: reduce_scatter   inside S over m, then S / m over I
 *     all_gather       S over I, then I S over m
 *     all_reduce       the first, the second on what is left
 *     all_to_all       (m-1)/n S inside, (n-m)/n S outside, one after another
 * Where all-reduces were measured on the link, their curve counts instead of its nominal numbers;
 * where the collective itself was timed (the cluster's timings, table.c), those times do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "cost/cost_priv.h"
#include "cost/ports.h"
#include "program/work.h"

/* What `rank` gets of its node's ports while its stage exchanges messages with the ranks `move`
 * further. */
static double end_Bps(const weft_cluster *c, int stage_ranks, int rank, int move,
                      const weft_path *w)
{
    double one, all;
    if (!weft_cluster_ports(c, rank, w->level, &one, &all)) return w->Bps;
    weft_rank_range stage  = {rank / stage_ranks * stage_ranks, stage_ranks};
    weft_rank_range node   = weft_cluster_node_ranks(c, rank);
    weft_rank_range island = weft_cluster_island_ranks(c, rank);
    int             n      = weft_cost_count_crossing(node, island, stage, move);
    return weft_cost_port_share(one, all, n);
}

weft_status weft_cost_message_path(const weft_cluster *c, int stage_ranks, int from,
                                   int to, weft_path *out)
{
    WEFT_TRY(weft_cluster_path(c, from, to, out));
    if (out->level < 2) return WEFT_OK;
    double sends    = end_Bps(c, stage_ranks, from, to - from, out);
    double receives = end_Bps(c, stage_ranks, to, from - to, out);
    out->Bps        = fmin(out->Bps, fmin(sends, receives));
    return WEFT_OK;
}

weft_status weft_cost__send_seconds(const weft_program *p, const weft_instr *i,
                                    const weft_cluster *c, double *out)
{
    weft_path w;
    WEFT_TRY(
        weft_cost_message_path(c, weft_program_stage_ranks(p), p->rank, i->peer, &w));
    *out = w.alpha_s + weft_instr_bytes(i) / w.Bps;
    if (w.level < 2) weft_cost__measured_link(c, &w, "send", 0, weft_instr_bytes(i), out);
    return WEFT_OK;
}

/* ---- groups ---- */

static int by_rank(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* What each member gets between islands: at the node whose ports are shared most. */
static void share_ports(const weft_cluster *c, int origin, int world, const int32_t *rank,
                        int n, weft_path *outer)
{
    int last = -1, sharers = 1;
    for (int i = 0; i < n; i++) {
        double one, all;
        int    node = weft_cluster_node(c, rank[i], NULL);
        if (!weft_cluster_ports(c, rank[i], outer->level, &one, &all)) continue;
        if (all >= one * weft_cluster_node_ranks(c, rank[i]).n) { /* a port for each */
            outer->Bps = fmin(outer->Bps, one);
            continue;
        }
        if (node != last)
            sharers = weft_cost_count_members(c, origin, world, rank, n, rank[i]);
        last       = node;
        outer->Bps = fmin(outer->Bps, weft_cost_port_share(one, all, sharers));
    }
}

weft_status weft_cost_group_shape(const weft_cluster *c, int origin, int world,
                                  const int32_t *rank, int n, weft_group_shape *out)
{
    int32_t *sorted = NULL;
    int      i;
    WEFT_TRY(weft_cluster_group(c, rank, n, out));
    if (out->n_island < 2) return WEFT_OK;
    for (i = 1; i < n && rank[i - 1] < rank[i]; i++) {
    }
    if (i < n) {
        sorted = malloc(sizeof *sorted * (size_t)n);
        if (!sorted) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a group of %d", n);
        memcpy(sorted, rank, sizeof *sorted * (size_t)n);
        qsort(sorted, (size_t)n, sizeof *sorted, by_rank);
    }
    share_ports(c, origin, world, sorted ? sorted : rank, n, &out->outer);
    free(sorted);
    return WEFT_OK;
}

/* Layer costs are priced as the first rank of a job that begins there. */
static weft_status shape_of(const weft_program *p, const weft_instr *i,
                            const weft_cluster *c, weft_group_shape *out)
{
    const weft_group *g      = &p->group[i->group];
    int               origin = p->n_actor ? 0 : p->rank;
    return weft_cost_group_shape(c, origin, p->world, g->rank, g->n_rank, out);
}

typedef struct wire {
    double alpha_s, beta;
} wire;

/* A link as n members of an island see it; measured all-reduces count a tree up and down. */
static wire inner_wire(const weft_path *w, int n)
{
    wire                  x = {w->alpha_s, 1 / w->Bps};
    const weft_link_kind *l = w->link;
    if (!l || !l->n_measured) return x;
    int k = 0;
    while (k + 1 < l->n_measured && l->measured[k].n < n) k++;
    weft_link_measured m = l->measured[k];
    if (k && m.n > n) { /* between two of them */
        const weft_link_measured *b = &l->measured[k - 1];
        double                    t = (double)(n - b->n) / (m.n - b->n);
        m.alpha_s                   = b->alpha_s + t * (m.alpha_s - b->alpha_s);
        m.Bps                       = b->Bps + t * (m.Bps - b->Bps);
    }
    double health = w->Bps / (l->Bps * l->share);
    x.alpha_s     = m.alpha_s / (2 * ceil(log2(n)));
    x.beta        = 1 / (m.Bps * health);
    return x;
}

static double two_levels(weft_collective k, const weft_group_shape *g, double bytes,
                         wire in, wire out)
{
    int    m = g->per_island, few = g->least_per_island, n = g->n_island;
    double up = weft_cost__collective(WEFT_REDUCE_SCATTER, m, bytes, in.alpha_s, in.beta);
    switch (k) {
    case WEFT_REDUCE_SCATTER:
        return up + weft_cost__collective(k, n, bytes / few, out.alpha_s, out.beta);
    case WEFT_ALL_REDUCE:
    case WEFT_BROADCAST:
        return 2 * up + weft_cost__collective(k, n, bytes / few, out.alpha_s, out.beta);
    case WEFT_ALL_GATHER:
        return weft_cost__collective(k, n, bytes * m / few, out.alpha_s, out.beta) +
               weft_cost__collective(k, m, bytes * n, in.alpha_s, in.beta);
    case WEFT_SEND_ROWS: /* to all experts alike */
    case WEFT_RETURN_ROWS:
    case WEFT_ALL_TO_ALL:
        return (m - 1) * (in.alpha_s + bytes / g->n * in.beta) +
               (g->n - few) * (out.alpha_s + bytes / g->n * out.beta);
    case WEFT_BARRIER:
        return weft_cost__collective(k, m, 0, in.alpha_s, 0) +
               weft_cost__collective(k, n, 0, out.alpha_s, 0);
    case WEFT_SHIFT: return out.alpha_s + bytes * out.beta;
    }
    return 0;
}

static double shape_seconds(const weft_cluster *c, weft_collective coll,
                            const weft_group_shape *s, int n, double bytes)
{
    wire in = {0};
    if (s->per_island > 1) in = inner_wire(&s->inner, s->per_island);
    if (s->n_island < 2) {
        double seconds = weft_cost__collective(coll, n, bytes, in.alpha_s, in.beta);
        bool   rows    = coll == WEFT_SEND_ROWS || coll == WEFT_RETURN_ROWS;
        if (n > 1)
            weft_cost__measured_link(c, &s->inner,
                                     weft_collective_name(rows ? WEFT_ALL_TO_ALL : coll),
                                     n, bytes, &seconds);
        return seconds;
    }
    wire far = {s->outer.alpha_s, 1 / s->outer.Bps};
    return two_levels(coll, s, bytes, in, far);
}

weft_status weft_cost__collective_seconds(const weft_program *p, const weft_instr *i,
                                          const weft_cluster *c, weft_group_shape *shape,
                                          double *out)
{
    const weft_group *g = &p->group[i->group];
    weft_group_shape  s;
    if (shape && shape->n)
        s = *shape;
    else
        WEFT_TRY(shape_of(p, i, c, &s));
    if (shape) *shape = s;
    *out = shape_seconds(c, i->coll, &s, g->n_rank, weft_instr_given(i, g));
    return WEFT_OK;
}

weft_status weft_cost__vote_seconds(const weft_program *p, const weft_cluster *c,
                                    double *out)
{
    weft_group_shape s;
    *out = 0;
    if (p->world < 2) return WEFT_OK;
    WEFT_TRY(weft_cluster_group_stride(c, 0, p->world, 1, &s));
    *out = shape_seconds(c, WEFT_ALL_REDUCE, &s, p->world, WEFT_COMMIT_BYTES);
    return WEFT_OK;
}

/* ---- bytes ---- */

static double sent(weft_collective k, int n, double bytes)
{
    return weft_cost__collective(k, n, bytes, 0, 1);
}

static weft_status group_traffic(const weft_program *p, const weft_instr *i,
                                 const weft_cluster *c, double *level)
{
    const weft_group *g = &p->group[i->group];
    weft_group_shape  s;
    WEFT_TRY(weft_cluster_group(c, g->rank, g->n_rank, &s));
    double all = weft_instr_given(i, g), near;
    if (s.n_island < 2) {
        if (g->n_rank > 1) level[s.inner.level] += sent(i->coll, g->n_rank, all);
        return WEFT_OK;
    }
    near = two_levels(i->coll, &s, all, (wire){0, 1}, (wire){0});
    if (s.per_island > 1) level[s.inner.level] += near;
    level[s.outer.level] += two_levels(i->coll, &s, all, (wire){0}, (wire){0, 1});
    return WEFT_OK;
}

weft_status weft_cost_traffic(const weft_program *p, const weft_instr *i,
                              const weft_cluster *c, double *level)
{
    weft_path w;
    if (c->n_switch + 3 > WEFT_COST_LEVELS)
        return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has more than %d switches", c->name,
                         WEFT_COST_LEVELS - 3);
    if (i->kind == WEFT_INSTR_COLLECTIVE) return group_traffic(p, i, c, level);
    if (i->kind != WEFT_INSTR_SEND) return WEFT_OK;
    WEFT_TRY(weft_cluster_path(c, p->rank, i->peer, &w));
    level[w.level] += weft_instr_bytes(i);
    return WEFT_OK;
}
