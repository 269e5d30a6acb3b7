/* Messages between stages, and groups of several device kinds: which network they use.
 *
 * Ranks are assigned stage by stage, and of each device kind node by node (score.h).  A message
 * between two stages of one kind uses that kind's network, one between kinds the slower end;
 * ports.h says who shares the ports. */
#include <math.h>

#include "cost/ports.h"
#include "cost/score_priv.h"

/* Ranks of a stage, all of them or on the kind that the point looks at. */
static int stage_ranks(const weft_cost_table *t, const weft_cost_point *p, bool of_kind)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    return v->tp * v->cp * (of_kind && p->only_dp ? p->only_dp : p->dp);
}

const weft_cost_fabric *weft_cost__fabric_of(const weft_cost_table *t,
                                             const weft_cost_point *p, int device,
                                             int kinds, weft_cost_fabric *tmp)
{
    if (!(kinds & ~(1 << device))) return &t->fabric[device];
    *tmp = t->fabric[device];
    for (int d = 0; d < t->n_device; d++)
        if (kinds >> d & 1 && d != device) weft_cost_slower_end(tmp, &t->fabric[d]);
    /* replicas on other kinds are on other nodes, however few there are of this one */
    int own = stage_ranks(t, p, true);
    if (p->only_dp && own < tmp->domain) tmp->domain = own;
    return tmp;
}

/* Where stage s begins among the devices of its kind. */
static int first_rank(const weft_cost_point *p, int s, int per)
{
    int n = 0;
    if (!p->kinds || p->only) return s * per;
    for (int i = 0; i < s; i++) n += p->kinds[i] == p->kinds[s];
    return n * per;
}

/* Ranks of a stage that share a node's ports in messages to those `move` further, at the node
 * where they are most. */
static int most_crossing(const weft_cost_fabric *f, weft_rank_range stage, int move)
{
    int size = weft_cost_port_node(f), most = 0;
    int first = stage.first / size, last = (stage.first + stage.n - 1) / size;
    for (int k = first; k <= last; k = k < first + 2 ? k + 1 : last + 1) {
        int             at     = k == first + 2 ? last : k; /* those between are alike */
        weft_rank_range node   = {at * size, size};
        weft_rank_range island = {at * size / f->domain * f->domain, f->domain};
        int             n      = weft_cost_count_crossing(node, island, stage, move);
        if (n > most) most = n;
    }
    return most;
}

/* Both stages on one kind. */
static double same_kind_seconds(const weft_cost_table *t, const weft_cost_point *p,
                                int kind, int from, int to, double bytes)
{
    const weft_cost_fabric *f   = &t->fabric[kind];
    int                     per = stage_ranks(t, p, false), n = weft_cost_port_node(f);
    int                     of_kind = stage_ranks(t, p, true);
    if (per % f->domain) {
        weft_rank_range a      = {first_rank(p, from, per), per};
        weft_rank_range b      = {first_rank(p, to, per), per};
        int             n_from = most_crossing(f, a, b.first - a.first);
        int             n_to   = most_crossing(f, b, a.first - b.first);
        if (!n_from && !n_to) return weft_cost_near_seconds(f, bytes);
        n = n_from > n_to ? n_from : n_to;
    }
    if (of_kind < n) n = of_kind;
    return weft_cost_far_seconds(f, n, f, n, bytes);
}

static int all_cross(const weft_cost_fabric *f, int per)
{
    int n = weft_cost_port_node(f);
    return per < n ? per : n;
}

double weft_cost__hop_seconds(const weft_cost_table *t, const weft_cost_point *p,
                              int from, int to, double bytes)
{
    int    a = weft_cost__kinds(p, from), b = weft_cost__kinds(p, to);
    int    per = stage_ranks(t, p, true);
    double s   = 0;
    for (int d = 0; d < t->n_device; d++) {
        if (!(a >> d & 1)) continue;
        if (a == b && a == 1 << d) return same_kind_seconds(t, p, d, from, to, bytes);
        for (int e = 0; e < t->n_device; e++)
            if (b >> e & 1)
                s = fmax(s, weft_cost_far_seconds(
                                &t->fabric[d], all_cross(&t->fabric[d], per),
                                &t->fabric[e], all_cross(&t->fabric[e], per), bytes));
    }
    return s;
}

double weft_cost__slowest_hop(const weft_cost_table *t, const weft_cost_point *p,
                              double bytes)
{
    int    kind = p->only ? p->only - 1 : 0;
    double s    = 0;
    if (!p->kinds || p->only)
        return weft_cost_send_seconds(
            &t->fabric[kind], (weft_cost_group){p->pp, stage_ranks(t, p, false)}, bytes);
    for (int i = 0; i + 1 < p->pp; i++)
        s = fmax(s, weft_cost__hop_seconds(t, p, i, i + 1, bytes));
    if (p->chunks > 1) s = fmax(s, weft_cost__hop_seconds(t, p, p->pp - 1, 0, bytes));
    return s;
}
