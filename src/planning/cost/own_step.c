/* The step of our own programs: rows become the works of a pipeline, which is played
 * (pipe_priv.h). */
#include <math.h>

#include "cost/pipe_priv.h"
#include "cost/score_priv.h"

typedef weft_cost__stage stage;

/* A message from pipeline rank r to the next, or the first. */
static double next_seconds(const weft_cost_table *t, const weft_cost_point *p, int r,
                           double bytes)
{
    return weft_cost__hop_seconds(t, p, r, r + 1 < p->pp ? r + 1 : 0, bytes);
}

/* A rank of the pipeline on the kind of device that sets its pace. */
static stage slowest(const weft_cost_table *t, const weft_cost_point *p, int s, int from,
                     int n, weft_cost__pipe *x, weft_cost_score *out)
{
    int   kinds    = weft_cost__kinds(p, s);
    stage slow     = {.fwd_s = -1};
    x->before_s[s] = x->after_s[s] = 0;
    for (int d = 0; d < t->n_device; d++) {
        if (!(kinds >> d & 1)) continue;
        stage y = weft_cost__sum_stage(t, p, d, kinds, from, n, s);
        weft_cost__add_memory(t, p, d, s, &y, out);
        x->before_s[s] = fmax(x->before_s[s], weft_cost__replica_seconds(t, p, d, &y));
        x->after_s[s]  = fmax(x->after_s[s], weft_cost__optimizer_seconds(t, p, d, &y));
        if (slow.fwd_s < 0 || y.fwd_s + y.bwd_s > slow.fwd_s + slow.bwd_s) slow = y;
    }
    return slow;
}

static void put_work(const weft_cost_table *t, const weft_cost_point *p, int i,
                     const stage *y, weft_cost__pipe *x)
{
    double ep   = t->rounds ? t->variant[p->variant].ep : 1;
    double w    = x->split ? y->own.weight_s / ep : 0;
    x->stage[i] = (weft_cost__work){y->fwd_s / ep, y->bwd_s / ep - w, w,
                                    next_seconds(t, p, i % p->pp, y->own.out_bytes),
                                    next_seconds(t, p, i % p->pp, y->own.out_back_bytes)};
}

/* Layers of stage i of a pipeline with chunks: the ends have fewer where their ranks do. */
static int chunk_layers(const weft_cost_point *p, int n, int i)
{
    int most = 0, mine = 0, of = i % p->pp;
    for (int s = 0; s < p->pp; s++) {
        int k = p->cut ? p->cut[s] : weft_cost_even_cut(n, p->pp, s);
        if (k > most) most = k;
        if (s == of) mine = k;
    }
    bool end = i == 0 || i == p->pp * p->chunks - 1;
    return most / p->chunks - (end ? most - mine : 0);
}

static void put_chunks(const weft_cost_table *t, const weft_cost_point *p, int n,
                       weft_cost__pipe *x)
{
    int last = p->pp * p->chunks - 1, from = 0;
    for (int i = 0; i <= last; i++) {
        int   mine = chunk_layers(p, n, i), s = i == 0 ? 0 : i == last ? p->pp - 1 : -1;
        int   kinds = weft_cost__kinds(p, i % p->pp);
        stage slow  = {.fwd_s = -1};
        for (int d = 0; d < t->n_device; d++) {
            if (!(kinds >> d & 1)) continue;
            stage y = weft_cost__sum_stage(t, p, d, kinds, from, mine, s);
            if (slow.fwd_s < 0 || y.fwd_s + y.bwd_s > slow.fwd_s + slow.bwd_s) slow = y;
        }
        put_work(t, p, i, &slow, x);
        from += mine;
    }
}

enum {
    TIED_WORKS = 7 /* instructions about what is tied, between two meetings */
};

/* All kinds of devices that the pipeline has, as bits. */
static int all_kinds(const weft_cost_point *p)
{
    int kinds = 0;
    for (int s = 0; s < p->pp; s++) kinds |= weft_cost__kinds(p, s);
    return kinds;
}

static int first_kind(const weft_cost_table *t, int kinds)
{
    int d = 0;
    while (d + 1 < t->n_device && !(kinds >> d & 1)) d++;
    return d;
}

/* What ranks of a pipeline give each other in the update: values of all layers, copied by each of
 * them, and tied parameters' sums, there and back. */
static double meet_seconds(const weft_cost_table *t, const weft_cost_point *p,
                           double n_met, double tied_bytes)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    weft_cost_group          g = {p->pp, v->tp * v->cp * p->dp};
    weft_cost_fabric         tmp;
    if (p->pp < 2 || !(n_met > 0)) return 0;
    int                     kinds = all_kinds(p), kind = first_kind(t, kinds);
    double                  launch_s = t->device[kind].launch_s;
    const weft_cost_fabric *f        = weft_cost__fabric_of(t, p, kind, kinds, &tmp);
    double                  s        = (n_met + 1) * launch_s +
               weft_cost_group_seconds(f, g, WEFT_ALL_GATHER, 8 * n_met / p->pp);
    if (!(tied_bytes > 0)) return s;
    /* both ends then have the sum, add its squares up where it is cut, and tell the ranks between
     */
    weft_cost_group like = {p->dp / v->ep, v->tp * v->cp * v->ep}, cut = {v->tp, 1};
    s += TIED_WORKS * launch_s;
    if (v->tp > 1) s += weft_cost_group_seconds(f, cut, WEFT_ALL_REDUCE, 8);
    if (p->pp > 2) s += weft_cost_group_seconds(f, g, WEFT_ALL_GATHER, 8);
    if (p->zero) s += weft_cost_group_seconds(f, like, WEFT_ALL_GATHER, 8);
    return s;
}

/* What all ranks sum at the commit point. */
static double vote_seconds(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    weft_cost_group          g = {p->pp * v->tp * v->cp * p->dp, 1};
    weft_cost_fabric         tmp;
    if (g.n < 2) return 0;
    int                     kinds = all_kinds(p);
    const weft_cost_fabric *f =
        weft_cost__fabric_of(t, p, first_kind(t, kinds), kinds, &tmp);
    return weft_cost_group_seconds(f, g, WEFT_ALL_REDUCE, WEFT_COMMIT_BYTES);
}

/* The sum of what is tied, from the first stage to the last and back. */
static double tied_seconds(const weft_cost_table *t, const weft_cost_point *p,
                           double tied_bytes)
{
    if (p->pp < 2 || !(tied_bytes > 0)) return 0;
    if (p->zero) tied_bytes /= weft_cost__sharers(t, p);
    return 2 * weft_cost__hop_seconds(t, p, 0, p->pp - 1, tied_bytes);
}

/* The step of our own programs: its schedule is played.  Ranks along ep have the same
 * micro-batches: a row stands for ep of them. */
void weft_cost__score_program(const weft_cost_table *t, const weft_cost_point *of, int n,
                              weft_cost_score *out)
{
    weft_cost_point        all = *of;
    const weft_cost_point *p   = &all;
    int                    ep  = t->rounds ? t->variant[of->variant].ep : 1;
    all.n_micro *= ep;
    weft_cost__own_deal(t, &all);
    weft_cost__pipe x;
    stage           slow = {.fwd_s = -1};
    double          met = 0, tied = 0, made = 0;
    int             from = 0, pp = p->pp;
    x.pp        = pp;
    x.chunks    = p->chunks > 1 && pp > 1 ? p->chunks : 1;
    x.n_micro   = p->n_micro;
    x.split     = p->schedule == WEFT_COST_ZERO_BUBBLE && pp > 1 && x.chunks == 1;
    x.all_first = p->schedule == WEFT_COST_GPIPE;
    for (int s = 0, run; s < pp; s += run) {
        int   mine = p->cut ? p->cut[s] : weft_cost_even_cut(n, pp, s);
        stage y    = slowest(t, p, s, from, mine, &x, out);
        run        = weft_cost__alike(t, p, n, s, from, mine);
        for (int i = s; i < s + run; i++) {
            x.before_s[i] = x.before_s[s];
            x.after_s[i]  = x.after_s[s];
            put_work(t, p, i, &y, &x);
        }
        for (int d = 0; run > 1 && d < t->n_device; d++)
            if (weft_cost__kinds(p, s) >> d & 1)
                weft_cost__add_memory(t, p, d, s + run - 1, &y, out);
        if (y.fwd_s + y.bwd_s > slow.fwd_s + slow.bwd_s) slow = y;
        met += run * y.own.n_met;
        made += run * y.own.meet_s;
        tied = fmax(tied, y.own.tied_bytes);
        from += run * mine;
    }
    for (int s = 0; s + 1 < pp; s++)
        x.after_s[s] += made; /* each for itself; the last one's counts it */
    if (x.chunks > 1) put_chunks(t, p, n, &x);
    x.meet_s = meet_seconds(t, p, met, tied) + vote_seconds(t, p);
    x.tied_s = met > 0 ? tied_seconds(t, p, tied) : 0;
    double m = (double)p->n_micro / ep, each = slow.fwd_s + slow.bwd_s;
    out->step_s      = weft_cost__pipe_seconds(&x);
    out->compute_s   = m * (each - slow.comm_s - slow.again_s);
    out->comm_s      = m * slow.comm_s;
    out->again_s     = m * slow.again_s;
    out->dp_s        = x.before_s[0];
    out->optimizer_s = x.after_s[0];
    out->p2p_s       = x.meet_s + x.tied_s;
    out->bubble_s    = out->step_s - m * each - out->dp_s - out->optimizer_s - out->p2p_s;
}
