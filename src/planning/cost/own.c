/* A stage of our own programs (own_priv.h).
 *
 * Memory as partition plans it:
 *     state            parameters and states, apart
 *     sums             a slot for each open lane, for the whole step; in shards where they are
 *                      summed so
 *     one at a time    where each micro-batch is over before the next begins, all by lifetime:
 *                      what earlier layers keep and the fullest moment of a layer
 *     else             what reaches from piece to piece has a slot for each micro-batch between;
 *     the rest by lifetime messages         slots of their own, one more where they come in */
#include <math.h>

#include "cost/score_priv.h"
#include "program/coalesce.h"

/* Ranks that share states, or sum gradients with each other. */
static double count_replicas(const weft_cost_point *p, const weft_cost_variant *v)
{
    return (double)p->dp / v->ep;
}

/* Copies move the same bytes and hold more of them. */
double weft_cost__sharers(const weft_cost_table *t, const weft_cost_point *p)
{
    double n = count_replicas(p, &t->variant[p->variant]);
    return p->zero && t->copies > 1 ? fmax(1, n / t->copies) : n;
}

/* How many times a rank's own state it holds and updates for others.  Replicas of dp and cp make
 * it needless, or share it (strategy/strategy.h). */
static double count_standby(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    double                   n = count_replicas(p, v);
    if (t->standby > 0)
        return t->standby / (n / (p->zero ? weft_cost__sharers(t, p) : 1) * v->cp);
    if (t->copies < 2 || p->dp != v->ep || v->cp != 1) return 0;
    return fmin(t->copies, v->tp * v->ep * p->pp) - 1;
}

weft_cost_shares weft_cost__own_shares(const weft_cost_point   *p,
                                       const weft_cost_variant *v)
{
    int k = 0, n = p->dp / v->ep;
    if (n < 2) return WEFT_COST_ALONE;
    if (p->zero < 1) return WEFT_COST_WHOLE;
    while (k + 1 < WEFT_COST_N_REPLICAS && 2 << k < n) k++;
    return (weft_cost_shares)((p->zero > 2 ? WEFT_COST_PARAMS : WEFT_COST_STATES) + k);
}

static void add_sharing(weft_cost_sharing *to, const weft_cost_sharing *x, int n)
{
    double       *a = (double *)(void *)to; /* nothing but doubles */
    const double *b = (const double *)(const void *)x;
    for (size_t i = 0; i < sizeof *to / sizeof *a; i++) a[i] += n * b[i];
}

void weft_cost__own_add(weft_cost__own *x, const weft_cost_row *r, int n,
                        weft_cost_shares k, double replicas)
{
    const weft_cost_program_row *of   = r->of;
    double                       peak = of->peak_bytes;
    /* n layers one behind the other: both numbers are straight lines in between */
    double first = x->keep_bytes + peak, last = first + (n - 1) * r->keep_bytes;
    double before    = x->sum_bytes + of->sum_bytes;
    x->peak_bytes    = fmax(x->peak_bytes, fmax(first, last));
    x->last_bytes    = fmax(x->last_bytes,
                            fmax(first - before, last - before - (n - 1) * of->sum_bytes));
    double ends      = first - before / replicas;
    double ends_last = last - (before + (n - 1) * of->sum_bytes) / replicas;
    x->part_bytes    = fmax(x->part_bytes, fmax(ends, ends_last) + of->grad_bytes);
    x->weight_s += n * of->weight_s;
    x->n_met += n * of->n_met;
    x->merge_s += n * of->merge_s;
    x->meet_s += n * of->meet_s;
    x->sum_bytes += n * of->sum_bytes;
    x->tied_bytes += n * of->tied_bytes;
    x->keep_bytes += n * r->keep_bytes;
    x->read_bytes += n * of->read_bytes;
    x->read_keep_bytes += n * of->read_keep_bytes;
    x->weight_bytes += n * of->weight_bytes;
    x->back_bytes += n * of->back_bytes;
    x->work_bytes  = fmax(x->work_bytes, r->work_bytes);
    x->split_bytes = fmax(x->split_bytes, of->split_bytes);
    x->grad_bytes  = fmax(x->grad_bytes, of->grad_bytes);
    if (k >= WEFT_COST_PARAMS)
        x->fetched_bytes = fmax(x->fetched_bytes, of->fetched_bytes);
    add_sharing(&x->share, &of->share[k], n);
}

/* ---- once a step ---- */

static weft_cost_group group_of(const weft_cost_point *p, const weft_cost_variant *v,
                                weft_cost_over over)
{
    int n = p->dp / v->ep;
    switch (over) {
    case WEFT_COST_OVER_CP: return (weft_cost_group){n * v->ep * v->cp, v->tp};
    case WEFT_COST_OVER_ALL: return (weft_cost_group){n * v->ep * v->cp * v->tp, 1};
    case WEFT_COST_OVER_DP:
    case WEFT_COST_N_OVER: break;
    }
    return (weft_cost_group){n, v->tp * v->cp * v->ep};
}

/* Are gradients summed in shards, micro-batch by micro-batch?  Replicas then have equally many. */
static bool is_in_shards(const weft_cost_table *t, const weft_cost_point *p)
{
    int n = p->dp / t->variant[p->variant].ep;
    return t->shard_sums && p->zero > 1 && p->n_micro > 1 && n > 1 && !(n & (n - 1)) &&
           p->terms == 0;
}

/* Are sums over replicas of the backward pass? */
static bool is_once(const weft_cost_table *t, const weft_cost_point *p)
{
    return p->zero && p->pp == 1 && (p->n_micro == 1 || is_in_shards(t, p));
}

double weft_cost__own_calls(const weft_cost_table *t, const weft_cost_point *p,
                            const weft_cost_calls *c, double sums)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    if (!(c->bytes > 0)) return 0;
    if (!p->zero && v->tp * v->cp * v->ep == 1 && t->bucket_bytes <= 0) return 1;
    if (!(sums > 0) || !is_once(t, p)) return fmax(1, c->n);
    bool early = c->once > 2 * c->n; /* else it stands in the update all the same */
    if (!early) return fmax(1, c->once);
    return weft_coalesce_backward_count(t->bucket_bytes, (int64_t)(sums * v->tp),
                                        fmax(1, c->once));
}

/* There sums over parts of a sequence follow those over replicas, one by one. */
static double cp_seconds(const weft_cost_table *t, const weft_cost_point *p,
                         const weft_cost_fabric *f, const weft_cost_calls *scatter,
                         double sums)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    weft_cost_group          g = {v->cp, v->tp};
    if (v->cp < 2 || !is_once(t, p)) return 0;
    return (weft_cost__own_calls(t, p, scatter, sums) - 1) *
           weft_cost_group_seconds(f, g, WEFT_ALL_REDUCE, 0);
}

static double sum_bytes(const weft_cost_sharing *z)
{
    double n = 0;
    for (int o = 0; o < WEFT_COST_N_OVER; o++) n += z->sum[o].bytes + z->scatter[o].bytes;
    return n;
}

/* Calls of bytes in all; of gathers each rank gives its part. */
static double calls_seconds(const weft_cost_fabric *f, weft_cost_group g,
                            weft_collective k, const weft_cost_calls *c)
{
    if (!(fabs(c->n) > 0)) return 0;
    double bytes = k == WEFT_ALL_GATHER ? c->bytes / g.n : c->bytes;
    return c->n * weft_cost_group_seconds(f, g, k, bytes / c->n);
}

/* So many times the bytes of a sum are given where replicas bring several terms to it
 * (program/work.h). */
static double terms_of(const weft_cost_point *p, weft_collective k)
{
    if (p->terms < 2 || k == WEFT_ALL_GATHER) return 1;
    return k == WEFT_ALL_REDUCE ? (p->terms + 1) / 2.0 : p->terms;
}

/* Do replicas bring unlike parts of the lanes' tree to a sum?  It is then made by itself, before
 * that over other axes. */
static bool is_apart(const weft_cost_point *p, const weft_cost_variant *v)
{
    int n = p->dp / v->ep;
    return p->terms > 0 || (n & (n - 1));
}

static weft_cost_group others_of(const weft_cost_variant *v, weft_cost_over over)
{
    return over == WEFT_COST_OVER_CP ? (weft_cost_group){v->ep * v->cp, v->tp}
                                     : (weft_cost_group){v->ep * v->cp * v->tp, 1};
}

static double all_seconds(const weft_cost_table *t, const weft_cost_point *p,
                          const weft_cost_fabric *f, weft_collective k,
                          const weft_cost_calls *c, double sums)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    double                   s = 0;
    for (int i = 0; i < WEFT_COST_N_OVER; i++) {
        weft_cost_over  over = (weft_cost_over)i;
        weft_cost_calls x    = c[i];
        x.n                  = weft_cost__own_calls(t, p, &c[i], sums);
        if (over != WEFT_COST_OVER_DP && k == WEFT_ALL_REDUCE && is_apart(p, v)) {
            s += calls_seconds(f, others_of(v, over), k, &x);
            over = WEFT_COST_OVER_DP;
        }
        x.bytes *= terms_of(p, k);
        s += calls_seconds(f, group_of(p, v, over), k, &x);
    }
    return s;
}

static double share_of(const weft_cost_share *x, double replicas)
{
    return x->once + x->part / replicas;
}

enum {
    PART = 30 /* of a device's memory: further sums take no more */
};

/* Lanes of a replica: what the point says, else as planner/make.c deals them. */
static int count_lanes(const weft_cost_table *t, const weft_cost_point *p,
                       const weft_cost__own *x)
{
    int    n    = p->dp / t->variant[p->variant].ep;
    double room = t->engine.mem_limit * (double)t->device[0].mem_bytes / PART;
    if (p->lanes > 0) return p->lanes;
    return weft_cost_lanes(n, n * p->n_micro, x->sum_bytes, room) / n;
}

double weft_cost__own_before(const weft_cost_table *t, const weft_cost_point *p,
                             int device, const weft_cost__own *x)
{
    const weft_cost_sharing *z    = &x->share;
    double                   n    = weft_cost__sharers(t, p);
    double                   sums = sum_bytes(z);
    weft_cost_fabric         tmp;
    const weft_cost_fabric  *f     = weft_cost__fabric_of(t, p, device, x->kinds, &tmp);
    double                   times = is_in_shards(t, p) ? p->n_micro : 1;
    return all_seconds(t, p, f, WEFT_ALL_REDUCE, z->sum, sums) +
           times * all_seconds(t, p, f, WEFT_REDUCE_SCATTER, z->scatter, sums) +
           times * cp_seconds(t, p, f, &z->scatter[WEFT_COST_OVER_DP], sums) +
           all_seconds(t, p, f, WEFT_ALL_GATHER, z->tell, 0) + share_of(&z->before_s, n) +
           (count_lanes(t, p, x) - 1) * x->merge_s;
}

double weft_cost__own_after(const weft_cost_table *t, const weft_cost_point *p,
                            int device, const weft_cost__own *x)
{
    const weft_cost_sharing *z = &x->share;
    double                   n = weft_cost__sharers(t, p);
    weft_cost_fabric         tmp;
    const weft_cost_fabric  *f = weft_cost__fabric_of(t, p, device, x->kinds, &tmp);
    double update_s            = share_of(&z->after_s, n) * (1 + count_standby(t, p));
    return all_seconds(t, p, f, WEFT_ALL_GATHER, z->gather, 0) + update_s;
}

weft_cost_calls weft_cost__own_fetches(const weft_cost_point *p, const weft_cost_calls *c)
{
    weft_cost_calls out = *c;
    if (p->pp == 1 && c->bytes > 0) out.n = fmax(1, c->once);
    return out;
}

/* Where links were timed, a sum of unlike calls is not what as many alike would take: it is known
 * of 2, 4, 8 .. replicas, and in between in proportion. */
static double timed_fetch(const weft_cost_fabric *f, const weft_cost_point *p,
                          const weft_cost_variant *v, const weft_cost__own *x, bool back)
{
    weft_cost_calls c = weft_cost__own_fetches(p, &x->share.fetch[back]);
    weft_cost_group g = group_of(p, v, WEFT_COST_OVER_DP), like = g;
    int             k = (int)weft_cost__own_shares(p, v) - WEFT_COST_PARAMS;
    double          s = calls_seconds(f, g, WEFT_ALL_GATHER, &c);
    if (!f->timed || k < 0) return s;
    like.n    = 2 << k;
    double of = calls_seconds(f, like, WEFT_ALL_GATHER, &c);
    return of > 0 ? x->share.fetch_s[back] * s / of : s;
}

double weft_cost__own_fetch(const weft_cost_table *t, const weft_cost_point *p,
                            int device, const weft_cost__own *x, bool back)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    weft_cost_fabric         tmp;
    const weft_cost_fabric  *f = weft_cost__fabric_of(t, p, device, x->kinds, &tmp);
    return x->share.more_s[back] + timed_fetch(f, p, v, x, back);
}

/* ---- memory ---- */

/* Micro-batches of a chunk whose backward has not begun when its first does. */
static double chunk_slots(const weft_cost_point *p, int s, int c)
{
    int pp = p->pp, v = p->chunks, m = p->n_micro;
    int warm = 2 * (pp - 1 - s) + (v - 1) * pp;
    int done = warm + 1 + (v - 1 - c) * pp, turn = done / (v * pp);
    int in = done - turn * v * pp - c * pp, n = turn * pp;
    n += in < 0 ? 0 : in > pp ? pp : in;
    return n < m ? n : m;
}

/* Slots from forward to backward, on average over the chunks. */
static double slots(const weft_cost_point *p, int s)
{
    double n = 0;
    if (p->schedule == WEFT_COST_GPIPE) return p->n_micro;
    if (p->chunks < 2) return fmin(p->n_micro, p->pp - s);
    for (int c = 0; c < p->chunks; c++) n += chunk_slots(p, s, c);
    return n / p->chunks;
}

/* As partition deals slots to messages: a step's micro-batches leave room for the next one's. */
static int message_slots(double want, int m)
{
    int least = (int)ceil(want), n;
    if (least > m) least = m;
    for (n = least; (m % n ? m % n : n) < least;) n++;
    return n;
}

/* What reaches from piece to piece, without what came as a message. */
static double keep_bytes(const weft_cost_point *p, int s, const weft_cost__own *x)
{
    double m = p->n_micro, n = slots(p, s), all = fmin(m, p->pp);
    double keep = fmax(0, x->keep_bytes - x->in_bytes) * n;
    if (p->schedule == WEFT_COST_ZERO_BUBBLE)
        keep += x->weight_bytes * (all - n) + x->back_bytes * fmin(m, s + 1);
    return keep;
}

static double message_bytes(const weft_cost_point *p, int s, const weft_cost__own *x)
{
    if (p->pp < 2) return 0;
    return x->in_bytes * message_slots(slots(p, s) + 1, p->n_micro) +
           (x->in_back_bytes + x->out_bytes + x->out_back_bytes) *
               message_slots(2, p->n_micro);
}

/* Of replicas whose number is no power of two some have more lanes than others. */
void weft_cost__own_deal(const weft_cost_table *t, weft_cost_point *p)
{
    int n = p->dp / t->variant[p->variant].ep, micro = n * p->n_micro;
    if (p->lanes > 0 || !(n & (n - 1))) return;
    int            lanes = weft_cost_lanes(n, micro, 0, 1);
    weft_cost_deal d     = {.n = 1, .replicas = {n}, .lanes = {lanes}};
    weft_cost_deal_count(&d);
    p->n_micro = weft_cost_most_micro(n, lanes, micro);
    p->lanes   = (lanes + n - 1) / n;
    p->open    = d.open[0];
    p->terms   = d.terms;
}

static double lane_slots(const weft_cost_point *p, int lanes)
{
    double n = 1;
    for (; lanes > 1; lanes /= 2) n++;
    return p->open > 0 ? p->open : n;
}

/* One micro-batch a step: gradients are their sums, and live from where they are made. */
static void room_once(const weft_cost__own *x, double replicas, bool parts, double update,
                      weft_cost__room *r)
{
    double sums = parts ? r->sums / replicas : r->sums;
    double all  = parts ? fmax(0, x->part_bytes) + x->fetched_bytes + sums
                        : fmax(x->peak_bytes, fmax(x->last_bytes, update) + sums);
    r->sums     = sums;
    r->work     = fmax(all - sums, 0);
}

/* The same of interleaved chunks, each with messages and slots of its own. */
static double chunk_bytes(const weft_cost_point *p, int s, const weft_cost__own *x)
{
    double in = fmax(x->in_bytes, x->out_bytes), sum = 0;
    double back = fmax(x->in_back_bytes, x->out_back_bytes);
    double body = (x->keep_bytes - x->first_bytes - x->head_bytes) / p->chunks;
    int    two  = message_slots(2, p->n_micro);
    for (int c = 0; c < p->chunks; c++) {
        bool   first = s == 0 && c == 0, last = s == p->pp - 1 && c == p->chunks - 1;
        double n    = p->schedule == WEFT_COST_GPIPE ? p->n_micro : chunk_slots(p, s, c);
        double keep = body + (first ? x->first_bytes : -in) + (last ? x->head_bytes : 0);
        sum += n * fmax(0, keep);
        if (!first) sum += in * message_slots(n + 1, p->n_micro) + back * two;
        if (!last) sum += (in + back) * two;
    }
    return sum;
}

weft_cost__room weft_cost__own_room(const weft_cost_table *t, const weft_cost_point *p,
                                    int s, const weft_cost__own *x)
{
    double n     = weft_cost__sharers(t, p);
    bool   split = p->schedule == WEFT_COST_ZERO_BUBBLE && p->pp > 1;
    bool   by_life =
        p->chunks < 2 && slots(p, s) < 1.5 && !(split && fmin(p->n_micro, p->pp) > 1);
    const weft_cost_sharing *z      = &x->share;
    double                   update = share_of(&z->update, n), mine = 0;
    weft_cost__room          r = {.state = share_of(&z->state, n),
                                  .sums = x->sum_bytes * lane_slots(p, count_lanes(t, p, x))};
    /* each as large as its own, about; with its gradients */
    r.state *= 1 + count_standby(t, p);
    r.sums += x->sum_bytes * count_standby(t, p);
    if (p->pp > 1) {
        double given = p->zero ? x->given_bytes / n : x->given_bytes;
        r.state += share_of(&z->tied, n);
        update += given;
        if (p->zero && n > 1) mine = given; /* to send: apart */
    }
    r.read =
        mine + x->read_bytes + x->read_keep_bytes * (p->pp > 1 ? slots(p, s) - 1 : 0);
    if (p->pp == 1 && p->n_micro == 1) {
        room_once(x, n, p->zero && n > 1, update, &r);
    } else if (by_life) {
        r.keep = message_bytes(p, s, x);
        r.work = fmax(x->peak_bytes - x->in_bytes + x->fetched_bytes, update);
    } else { /* the update finds room where micro-batches were */
        double all  = p->chunks > 1 ? chunk_bytes(p, s, x) : 0;
        double keep = p->chunks > 1 ? all / 2 : keep_bytes(p, s, x);
        r.keep      = p->chunks > 1 ? all : keep + message_bytes(p, s, x);
        r.work      = (split ? x->split_bytes : x->work_bytes) + x->fetched_bytes;
        r.work      = fmax(r.work, update - keep);
    }
    if (is_in_shards(t, p)) { /* a gradient on its way, and its part before it is added */
        r.sums /= n;
        r.work += x->grad_bytes * (1 + 1 / n);
    }
    return r;
}
