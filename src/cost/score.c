/* Points composed from rows; see score.h. */
#include "cost/score.h"

#include <math.h>

#include "base/lanes.h"
#include "cost/own_priv.h"
#include "cost/pipe_priv.h"

int weft_cost_even_cut(int n, int pp, int s)
{
    int base = n / pp, more = n % pp;
    /* the spare layers go to the middle: the ends also hold the input side and the head */
    int from = (pp - more + 1) / 2;
    return base + (s >= from && s < from + more);
}

int weft_cost_deal_lanes(const weft_cost_deal *d)
{
    int n = 0;
    for (int k = 0; k < d->n; k++) n += d->lanes[k];
    return n;
}

int weft_cost_deal_share(const weft_cost_deal *d, int i, int *kind)
{
    int k = 0;
    while (k + 1 < d->n && i >= d->replicas[k]) i -= d->replicas[k++];
    if (kind) *kind = k;
    return d->lanes[k] / d->replicas[k] + (i < d->lanes[k] % d->replicas[k]);
}

void weft_cost_deal_count(weft_cost_deal *d)
{
    int at   = 0;
    d->terms = 1;
    for (int k = 0; k < d->n; k++) {
        d->open[k] = 1;
        for (int i = 0; i < d->replicas[k]; i++) {
            int share = d->lanes[k] / d->replicas[k] + (i < d->lanes[k] % d->replicas[k]);
            int level[WEFT_LANES_MAX_TERM], n = weft_lanes_terms(at, at + share, level);
            for (int j = 0; j < n; j++) /* those before, and its own levels */
                if (j + level[j] + 1 > d->open[k]) d->open[k] = j + level[j] + 1;
            if (n > d->terms) d->terms = n;
            at += share;
        }
    }
}

/* The kinds of devices of stage s, as bits. */
static int kinds_of(const weft_cost_point *p, int s)
{
    if (p->only) return 1 << (p->only - 1);
    return p->kinds ? p->kinds[s] : 1;
}

/* One for all of them: messages go by its links. */
static int some_kind(const weft_cost_point *p)
{
    return p->only ? p->only - 1 : 0;
}

typedef struct stage {
    double         fwd_s, bwd_s, again_s, comm_s, host_s;
    double         keep, gathered, work, n_param, n_expert, max_param;
    weft_cost__own own; /* of programs */
    double ahead;       /* share of its time in which the host runs ahead of the device */
    int    n_layer;
} stage;

static void add_row(stage *s, const weft_cost_row *r, int n)
{
    s->fwd_s += n * r->fwd_s;
    s->bwd_s += n * r->bwd_s;
    s->again_s += n * r->again_s;
    s->comm_s += n * r->comm_s;
    s->host_s += n * r->host_s;
    s->keep += n * r->keep_bytes;
    s->gathered += n * r->gathered_bytes;
    s->work = fmax(s->work, r->work_bytes);
    s->n_param += n * r->n_param;
    s->n_expert += n * r->n_expert_param;
    s->max_param = fmax(s->max_param, r->n_param + r->n_expert_param);
}

static const weft_cost_row *rows(const weft_cost_table *t, int device, int variant)
{
    return t->row + ((int64_t)device * t->n_variant + variant) * t->n_class;
}

/* The floor under a layer where the engine stalls, on several nodes: the more ranks share a tensor, the more. */
static double stall(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_variant *v      = &t->variant[p->variant];
    const weft_cost_engine  *e      = &t->engine;
    int                      domain = t->fabric[0].domain;
    if (!(e->stall_s > 0) || v->tp < 2 ||
        (int64_t)p->pp * p->dp * v->tp * v->cp <= domain)
        return 0;
    return e->stall_base_s + e->stall_s * v->tp;
}

/* What an engine loses a micro-batch where tensors spread wide, and on a large crowd of nodes: each message of a stage
 * waits there, two at the ends, four between them. */
static double crowd(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_variant *v      = &t->variant[p->variant];
    const weft_cost_engine  *e      = &t->engine;
    double                   domain = t->fabric[0].domain, s = 0;
    double                   x = (double)p->pp * p->dp * v->tp * v->cp / domain / 64;
    if (e->wide_s > 0 && p->pp > 1 && v->tp > 2 * domain) s += e->wide_s;
    if (e->crowd_s > 0 &&
        (p->pp > 1 || v->tp >= domain)) /* the rest stays inside nodes */
        s += e->crowd_s * (p->pp > 2 ? 4 : 2) * fmin(1, pow(x, 8));
    return s;
}

/* Where an engine stalls: a floor under each layer, more for each micro-batch of a stage. */
typedef struct stalls {
    double layer_s, micro_s;
} stalls;

static stalls stalls_of(const weft_cost_table *t, const weft_cost_point *p)
{
    return (stalls){p->pp > 1 ? stall(t, p) : 0, crowd(t, p)};
}

static void apply_stalls(stage *s, const stalls *w)
{
    double t = s->fwd_s + s->bwd_s, want = s->n_layer * w->layer_s, more = w->micro_s;
    s->ahead = 1;
    if (!(t > 0)) return;
    if (want > t) more += want - t;
    s->bwd_s += more;
    s->host_s += more;
    s->ahead = t / (t + more);
}

static void add_seam(stage *to, const weft_cost_seam *x)
{
    to->fwd_s += x->fwd_s;
    to->bwd_s += x->bwd_s;
    to->comm_s += x->comm_s;
    to->own.weight_s += x->weight_s;
    to->own.keep_bytes += x->keep_bytes;
}

/* Layers from .. from + n - 1 of our own programs, in order. */
static void sum_own(const weft_cost_table *t, const weft_cost_point *p, int device,
                    int from, int n, int s, stage *out)
{
    const weft_cost_row *r      = rows(t, device, p->variant);
    weft_cost_shares     k      = weft_cost__own_shares(p, &t->variant[p->variant]);
    weft_cost__own      *x      = &out->own;
    double               n_like = weft_cost__replicas(p, &t->variant[p->variant]);
    int                  at     = 0;
    if (s == 0 && t->first >= 0) {
        weft_cost__own_add(x, &r[t->first], 1, k, n_like);
        x->first_bytes = r[t->first].keep_bytes;
    }
    for (int i = 0; i < t->n_segment; i++) {
        int end = at + t->segment[i].count;
        int lo = from > at ? from : at, hi = from + n < end ? from + n : end;
        const weft_cost_row *q = &r[t->segment[i].layer_class];
        if (hi > lo) weft_cost__own_add(x, q, hi - lo, k, n_like);
        if (s != 0 && from > at && from <= end) {
            add_seam(out, &q->of->begin);
            x->in_bytes      = q->out_bytes;
            x->in_back_bytes = q->of->back_out_bytes;
        }
        if (s < p->pp - 1 && from + n > at && from + n <= end) {
            add_seam(out, &q->of->end);
            x->out_bytes      = q->out_bytes;
            x->out_back_bytes = q->of->back_out_bytes;
        }
        at = end;
    }
    if (s == p->pp - 1 && t->last >= 0) {
        weft_cost__own_add(x, &r[t->last], 1, k, n_like);
        x->head_bytes = r[t->last].keep_bytes;
    }
    if ((s == 0 || s == p->pp - 1) && t->last >= 0)
        x->given_bytes = r[t->last].of->tied_bytes;
    double fwd = weft_cost__own_fetch(t, p, device, x, false);
    double bwd = weft_cost__own_fetch(t, p, device, x, true);
    out->fwd_s += fwd;
    out->bwd_s += bwd;
    out->comm_s += fwd + bwd;
}

/* Layers from..from+n of the segments on one device kind. */
static stage sum_stage(const weft_cost_table *t, const weft_cost_point *p, int device,
                       int from, int n, int s)
{
    stage                out  = {.n_layer = n};
    const weft_cost_row *r    = rows(t, device, p->variant);
    const weft_cost_row *rest = p->n_again > 0 ? rows(t, device, p->rest) : r;
    int                  at = 0, again = p->n_again > 0 ? p->n_again : n;
    for (int i = 0; i < t->n_segment && n > 0; i++) {
        int end = at + t->segment[i].count, k = t->segment[i].layer_class;
        int lo = from > at ? from : at, hi = from + n < end ? from + n : end;
        int here = hi - lo < again ? hi - lo : again;
        if (here > 0) add_row(&out, &r[k], here);
        if (hi - lo > here && hi > lo) add_row(&out, &rest[k], hi - lo - here);
        if (here > 0) again -= here;
        at = end;
    }
    if (s == 0 && t->first >= 0) add_row(&out, &r[t->first], 1);
    if (s == p->pp - 1 && t->last >= 0) {
        stage head = {0};
        add_row(&head, &r[t->last], 1);
        if (t->tied && p->pp == 1) head.n_param = 0;
        out.fwd_s += head.fwd_s;
        out.bwd_s += head.bwd_s;
        out.again_s += head.again_s;
        out.comm_s += head.comm_s;
        out.host_s += head.host_s;
        out.n_param += head.n_param;
        out.work = fmax(out.work, head.work + head.keep); /* one micro-batch at a time */
        out.max_param = fmax(out.max_param, head.max_param);
    }
    if (t->programs) sum_own(t, p, device, from, n, s, &out);
    return out;
}

/* Micro-batches whose activations stage s holds. */
static double in_flight(const weft_cost_point *p, int s)
{
    double m = p->n_micro, pp = p->pp, v = p->chunks;
    if (p->schedule == WEFT_COST_GPIPE) return m;
    if (p->chunks > 1) return fmin(m, ((pp - s - 1) * 2 + (v - 1) * pp + 1) / v);
    return fmin(m, pp - s);
}

static int shards(const weft_cost_point *p, const weft_cost_variant *v)
{
    return p->zero < 1 ? 1 : p->zero_group > 0 ? p->zero_group : p->dp * v->cp;
}

static double expert_shards(const weft_cost_point *p, const weft_cost_variant *v)
{
    double n = (double)p->dp * v->cp * v->tp / v->ep;
    return p->zero < 1 || n < 1 ? 1 : n;
}

/* Of gradients between steps and beside the weights. */
static double grad_bytes(const weft_cost_table *t, const weft_cost_point *p,
                         const stage *x)
{
    const weft_cost_variant *v    = &t->variant[p->variant];
    double                   grad = t->engine.mem_weight - t->param_bytes;
    if (p->zero < 2) return grad * (x->n_param + x->n_expert);
    return grad * (x->n_param / shards(p, v) + x->n_expert / expert_shards(p, v));
}

/* What a device holds, apart from what its engine adds. */
typedef struct held {
    double weight, grad, state, keep, work, late;
} held;

static held held_by(const weft_cost_table *t, const weft_cost_point *p, int s,
                    const stage *x)
{
    if (t->programs) {
        weft_cost__room r = weft_cost__own_room(t, p, s, &x->own);
        double          w = fmin(r.state, t->param_bytes * (x->n_param + x->n_expert));
        return (held){.weight = w,
                      .grad   = r.sums,
                      .state  = r.state - w,
                      .keep   = r.keep + r.read,
                      .work   = r.work};
    }
    const weft_cost_variant *v = &t->variant[p->variant];
    double n = shards(p, v), ne = expert_shards(p, v), w = t->param_bytes;
    held   h = {.weight = x->n_param * (p->zero > 2 ? w / n : w) +
                          x->n_expert * (p->zero > 2 ? w / ne : w),
                .grad  = grad_bytes(t, p, x),
                .state = t->engine.mem_state * (x->n_param / n + x->n_expert / ne),
                .work  = x->work};
    if (p->zero > 2) h.weight += 2 * w * x->max_param;
    double flying = in_flight(p, s);
    double whole  = x->gathered * (p->pp == 1 ? 1 : fmax(0, flying - 2));
    h.keep        = x->keep * flying + x->ahead * whole;
    h.late        = x->ahead * (x->gathered * flying - whole);
    return h;
}

static void add_memory(const weft_cost_table *t, const weft_cost_point *p, int device,
                       int s, const stage *x, weft_cost_score *out)
{
    const weft_cost_engine *e     = &t->engine;
    held                    h     = held_by(t, p, s, x);
    double                  live  = h.weight + h.grad + h.state + h.keep + h.work;
    double                  total = live * e->mem_spare + e->mem_fixed;
    double                  limit = e->mem_limit * (double)t->device[device].mem_bytes;
    out->late_bytes               = fmax(out->late_bytes, total + h.late * e->mem_spare);
    if (out->tightest >= 0 && total - limit <= out->mem_bytes - out->mem_limit) return;
    out->tightest     = s;
    out->mem_bytes    = total;
    out->mem_limit    = limit;
    out->weight_bytes = h.weight + h.grad;
    out->state_bytes  = h.state;
    out->keep_bytes   = h.keep;
    out->work_bytes   = h.work;
    out->engine_bytes = total - live;
}

/* Waiting for t_s when of it only so much can hide behind cover_s. */
static double wait_for(double t_s, double share, double cover_s)
{
    return share * t_s + (1 - share) * fmax(0, t_s - cover_s);
}

/* Passes that gradient sums can hide behind.  Where the plan overlaps them, weights come in during the first pass;
 * of interleaved stages all chunks but one are done while pp micro-batches still go through the others. */
static double hiding(const weft_cost_engine *e, const weft_cost_point *p, const stage *x)
{
    if (!p->dp_overlap) return e->dp_cover * x->bwd_s;
    double passes = p->pp * (1 - 1.0 / p->chunks);
    return 0.9 * (x->fwd_s + x->bwd_s) * fmax(1, fmin(passes, p->n_micro));
}

/* Summing gradients and handing weights round, as far as it is waited for. */
static double replica_seconds(const weft_cost_table *t, const weft_cost_point *p,
                              int device, const stage *x)
{
    if (t->programs) return weft_cost__own_before(t, p, device, &x->own);
    const weft_cost_engine  *e   = &t->engine;
    const weft_cost_variant *v   = &t->variant[p->variant];
    const weft_cost_fabric  *f   = &t->fabric[device];
    double                   out = 0, hide = p->dp_overlap ? e->dp_overlap : 1;
    for (int expert = 0; expert < 2; expert++) {
        double          n_param = expert ? x->n_expert : x->n_param;
        weft_cost_group g       = {p->dp * v->cp, v->tp};
        if (expert) g = (weft_cost_group){p->dp * v->cp * v->tp / v->ep, v->ep};
        if (g.n < 2 || !(n_param > 0)) continue;
        double          sum = n_param * t->grad_bytes, part = n_param * t->param_bytes;
        weft_cost_group in = g, over = {1, 1};
        if (p->zero > 0 && p->zero_group > 1 && p->zero_group < g.n) {
            in.n = p->zero_group;
            over = (weft_cost_group){g.n / in.n, g.stride * in.n};
        }
        double cover  = hiding(e, p, x);
        double rounds = e->dp_calls * (x->n_layer + 1) * (g.n - 1) * f->in.alpha_s;
        if (p->zero == 0 && p->pp > 1) rounds *= e->dp_calls_pp;
        if (p->zero == 0) {
            double s = weft_cost_group_seconds(f, g, WEFT_ALL_REDUCE, sum) + rounds;
            out +=
                wait_for(s, hide * (p->pp > 1 ? e->dp_exposed_pp : e->dp_exposed), cover);
            continue;
        }
        double calls = p->zero < 3 ? 1 : x->n_layer + 1; /* zero 3: layer by layer */
        double reduce =
            weft_cost_group_seconds(f, in, WEFT_REDUCE_SCATTER, sum / calls) +
            weft_cost_group_seconds(f, over, WEFT_ALL_REDUCE, sum / in.n / calls);
        double gather =
            weft_cost_group_seconds(f, in, WEFT_ALL_GATHER, part / in.n / calls);
        if (p->zero < 3) {
            out += wait_for(reduce + gather + 2 * rounds, hide * e->zero_exposed, cover);
            continue;
        }
        double s     = calls * (2 * gather + reduce) / e->gather_share;
        double under = e->dp_cover * (x->fwd_s + x->bwd_s);
        out += p->n_micro * wait_for(s, e->gather_exposed, under);
    }
    return out;
}

static double optimizer_seconds(const weft_cost_table *t, const weft_cost_point *p,
                                int device, const stage *x)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    const weft_device_kind  *d = &t->device[device];
    if (t->programs) return weft_cost__own_after(t, p, device, &x->own);
    /* read gradient, weight, both moments; write weight (32 and 16 bits) and moments; gradients are
     * cleared and their norm is taken */
    double per = 16 + 14, every = 2 * t->grad_bytes;
    double bytes = per * (x->n_param / shards(p, v) + x->n_expert / expert_shards(p, v)) +
                   every * (x->n_param + x->n_expert);
    return t->engine.optimizer * bytes / (d->mem_Bps * (d->stream > 0 ? d->stream : 1));
}

typedef struct sums {
    double slow_s, sum_s, dp_s, optimizer_s, most_param;
    stage  slow;
    int    slow_device;
} sums;

/* Stages s .. s+run-1, which are alike: of those the first holds the most activations. */
static void add_stages(const weft_cost_table *t, const weft_cost_point *p, int s, int run,
                       int from, int n, const stalls *w, sums *z, weft_cost_score *out)
{
    int    kinds = kinds_of(p, s);
    double worst = -1;
    for (int d = 0; d < t->n_device; d++) {
        if (!(kinds >> d & 1)) continue;
        stage x = sum_stage(t, p, d, from, n, s);
        apply_stalls(&x, w);
        add_memory(t, p, d, s, &x, out);
        worst = fmax(worst, x.fwd_s + x.bwd_s);
        if (x.fwd_s + x.bwd_s > z->slow_s) {
            z->slow_s      = x.fwd_s + x.bwd_s;
            z->slow        = x;
            z->slow_device = d;
        }
        /* of devices alike those with more parameters wait longer */
        if (p->kinds || x.n_param + x.n_expert > z->most_param) {
            z->most_param  = x.n_param + x.n_expert;
            z->dp_s        = fmax(z->dp_s, replica_seconds(t, p, d, &x));
            z->optimizer_s = fmax(z->optimizer_s, optimizer_seconds(t, p, d, &x));
        }
    }
    if (worst > 0) z->sum_s += run * worst;
}

/* The segment that layer `from` is in ends at this layer. */
static int segment_end(const weft_cost_table *t, int from)
{
    int end = 0;
    for (int i = 0; i < t->n_segment; i++) {
        end += t->segment[i].count;
        if (from < end) break;
    }
    return end;
}

/* How many stages from s on are alike: as many layers of one class on the same devices.  The first and the last
 * are like no other. */
static int alike(const weft_cost_table *t, const weft_cost_point *p, int n, int s,
                 int from, int mine)
{
    int run = 1, stop = p->pp - 1;
    if (s == 0 || s >= stop) return 1;
    if (!p->cut) { /* as weft_cost_even_cut deals them */
        int more = n % p->pp, first = (p->pp - more + 1) / 2;
        int edge = s < first ? first : s < first + more ? first + more : stop;
        if (edge < stop) stop = edge;
    }
    int room = mine > 0 ? (segment_end(t, from) - from) / mine : stop - s;
    if (room < stop - s) stop = s + (room > 1 ? room : 1);
    if (!p->cut && !p->kinds) return stop - s;
    while (s + run < stop && (!p->cut || p->cut[s + run] == mine) &&
           (!p->kinds || p->kinds[s + run] == p->kinds[s]))
        run++;
    return run;
}

static void add_wires(const weft_cost_table *t, const weft_cost_point *p, int device,
                      int from, int n, int s, weft_cost_stage *out)
{
    const weft_cost_row *r  = rows(t, device, p->variant);
    int                  at = 0;
    for (int i = 0; i < t->n_segment; i++) {
        int end = at + t->segment[i].count;
        int lo = from > at ? from : at, hi = from + n < end ? from + n : end;
        const weft_cost_row *x = &r[t->segment[i].layer_class];
        for (int k = 0; k < WEFT_COST_N_TRAFFIC && hi > lo; k++)
            out->wire_bytes[k] += (hi - lo) * x->wire_bytes[k];
        if (hi > lo) out->out_bytes = x->out_bytes;
        at = end;
    }
    for (int k = 0; k < WEFT_COST_N_TRAFFIC; k++) {
        if (s == 0 && t->first >= 0) out->wire_bytes[k] += r[t->first].wire_bytes[k];
        if (s == p->pp - 1 && t->last >= 0)
            out->wire_bytes[k] += r[t->last].wire_bytes[k];
    }
}

/* Stage s on device kind d, where it is slower, or fuller, than what out has. */
static void add_kind(const weft_cost_table *t, const weft_cost_point *p, int d, int s,
                     int from, int n, weft_cost_stage *out)
{
    stage           x    = sum_stage(t, p, d, from, n, s);
    weft_cost_score full = {.tightest = -1};
    stalls          w    = stalls_of(t, p);
    apply_stalls(&x, &w);
    add_memory(t, p, d, s, &x, &full);
    out->dp_s        = fmax(out->dp_s, replica_seconds(t, p, d, &x));
    out->optimizer_s = fmax(out->optimizer_s, optimizer_seconds(t, p, d, &x));
    if (x.fwd_s + x.bwd_s > out->fwd_s + out->bwd_s) {
        out->device  = d;
        out->fwd_s   = x.fwd_s;
        out->bwd_s   = x.bwd_s;
        out->again_s = x.again_s;
        out->comm_s  = x.comm_s;
        out->host_s  = x.host_s;
    }
    if (out->mem_limit > 0 &&
        full.mem_bytes - full.mem_limit <= out->mem_bytes - out->mem_limit)
        return;
    out->mem_device   = d;
    out->mem_bytes    = full.mem_bytes;
    out->mem_limit    = full.mem_limit;
    out->grad_bytes   = held_by(t, p, s, &x).grad;
    out->weight_bytes = full.weight_bytes - out->grad_bytes;
    out->state_bytes  = full.state_bytes;
    out->keep_bytes   = full.keep_bytes;
    out->work_bytes   = full.work_bytes;
    out->engine_bytes = full.engine_bytes;
    out->n_param      = x.n_param + x.n_expert;
}

void weft_cost_score_stages(const weft_cost_table *t, const weft_cost_point *p,
                            weft_cost_stage *out)
{
    int n = 0, from = 0;
    for (int i = 0; i < t->n_segment; i++) n += t->segment[i].count;
    for (int s = 0; s < p->pp; s++) {
        int mine  = p->cut ? p->cut[s] : weft_cost_even_cut(n, p->pp, s);
        int kinds = kinds_of(p, s);
        out[s]    = (weft_cost_stage){.n_layer = mine};
        for (int d = 0; d < t->n_device; d++)
            if (kinds >> d & 1) add_kind(t, p, d, s, from, mine, &out[s]);
        add_wires(t, p, out[s].device, from, mine, s, &out[s]);
        from += mine;
    }
}

double weft_cost_stage_over(const weft_cost_table *t, const weft_cost_point *p, int s,
                            int from, int n)
{
    int             kinds = kinds_of(p, s);
    weft_cost_score out   = {.tightest = -1};
    for (int d = 0; d < t->n_device; d++) {
        if (!(kinds >> d & 1)) continue;
        stage x = sum_stage(t, p, d, from, n, s);
        add_memory(t, p, d, s, &x, &out);
    }
    return out.mem_bytes - out.mem_limit;
}

/* Messages of a micro-batch to the next stage and back, as far as they are waited for. */
static double between(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_variant *v   = &t->variant[p->variant];
    weft_cost_group          g   = {p->pp, v->tp * v->cp * p->dp};
    double                   p2p = 0, bytes;
    if (p->pp < 2) return 0;
    bytes = rows(t, 0, p->variant)[t->segment[0].layer_class].out_bytes;
    if (t->engine.pp_whole > 0.5) bytes *= v->tp;
    for (int d = 0; d < t->n_device; d++)
        p2p = fmax(p2p, weft_cost_send_seconds(&t->fabric[d], g, bytes));
    return p2p * 2 * t->engine.pp_exposed * p->chunks;
}

static double idle_seconds(const weft_cost_table *t, const weft_cost_point *p,
                           double slow_s, double sum_s, double p2p_s)
{
    const weft_cost_engine *e = &t->engine;
    double pass_s = p->chunks * e->micro_s, ends = (p->pp - 1) * (p2p_s + pass_s);
    double idle = e->bubble * (sum_s - slow_s + ends) / p->chunks;
    return p->schedule == WEFT_COST_ZERO_BUBBLE ? idle / 3 : idle;
}

/* Of all stages the one with most parameters has at least the average, and what it waits for is not less. */
double weft_cost_floor_param(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_row *r   = rows(t, 0, p->variant);
    stage                x   = {.fwd_s = 1e30, .bwd_s = 1e30};
    double               out = INFINITY;
    for (int i = 0; i < t->n_segment; i++) {
        const weft_cost_row *k = &r[t->segment[i].layer_class];
        x.n_param += t->segment[i].count * k->n_param;
        x.n_expert += t->segment[i].count * k->n_expert_param;
        x.n_layer += t->segment[i].count;
    }
    if (t->first >= 0) x.n_param += r[t->first].n_param;
    if (t->last >= 0 && !(t->tied && p->pp == 1)) x.n_param += r[t->last].n_param;
    x.n_param /= p->pp;
    x.n_expert /= p->pp;
    x.n_layer = p->zero < 3 ? 0 : x.n_layer / p->pp;
    for (int d = 0; d < t->n_device; d++)
        out = fmin(out, replica_seconds(t, p, d, &x) + optimizer_seconds(t, p, d, &x));
    return out;
}

double weft_cost_floor(const weft_cost_table *t, const weft_cost_point *p, double slow_s,
                       double sum_s)
{
    double m = p->n_micro, p2p = between(t, p);
    return m * (slow_s + p2p + p->chunks * t->engine.micro_s) + t->engine.step_s +
           idle_seconds(t, p, slow_s, fmax(slow_s, sum_s), p2p);
}

/* ---- our own programs ---- */

/* Messages from rank r to the next, or the first. */
static double hop_seconds(const weft_cost_table *t, const weft_cost_point *p, int r,
                          double bytes)
{
    const weft_cost_variant *v      = &t->variant[p->variant];
    const weft_cost_fabric  *f      = &t->fabric[some_kind(p)];
    int64_t                  stride = (int64_t)v->tp * v->cp * p->dp;
    int                      to     = r + 1 < p->pp ? r + 1 : 0;
    bool                     far    = r * stride / f->domain != to * stride / f->domain;
    return weft_cost_send_seconds(f, (weft_cost_group){2, far ? f->domain : 1}, bytes);
}

/* A rank of the pipeline on the kind of device that sets its pace. */
static stage slowest(const weft_cost_table *t, const weft_cost_point *p, int s, int from,
                     int n, weft_cost__pipe *x, weft_cost_score *out)
{
    int   kinds    = kinds_of(p, s);
    stage slow     = {.fwd_s = -1};
    x->before_s[s] = x->after_s[s] = 0;
    for (int d = 0; d < t->n_device; d++) {
        if (!(kinds >> d & 1)) continue;
        stage y = sum_stage(t, p, d, from, n, s);
        add_memory(t, p, d, s, &y, out);
        x->before_s[s] = fmax(x->before_s[s], replica_seconds(t, p, d, &y));
        x->after_s[s]  = fmax(x->after_s[s], optimizer_seconds(t, p, d, &y));
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
                                    hop_seconds(t, p, i % p->pp, y->own.out_bytes),
                                    hop_seconds(t, p, i % p->pp, y->own.out_back_bytes)};
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
        int   kinds = kinds_of(p, i % p->pp);
        stage slow  = {.fwd_s = -1};
        for (int d = 0; d < t->n_device; d++) {
            if (!(kinds >> d & 1)) continue;
            stage y = sum_stage(t, p, d, from, mine, s);
            if (slow.fwd_s < 0 || y.fwd_s + y.bwd_s > slow.fwd_s + slow.bwd_s) slow = y;
        }
        put_work(t, p, i, &slow, x);
        from += mine;
    }
}

enum {
    TIED_WORKS = 7 /* instructions about what is tied, between two meetings */
};

/* What ranks of a pipeline give each other in the update: values of all layers, copied by each of them, and tied
 * parameters' sums, there and back. */
static double meet_seconds(const weft_cost_table *t, const weft_cost_point *p,
                           double n_met, double tied_bytes)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    const weft_cost_fabric  *f = &t->fabric[some_kind(p)];
    weft_cost_group          g = {p->pp, v->tp * v->cp * p->dp};
    if (p->pp < 2 || !(n_met > 0)) return 0;
    double s = (n_met + 1) * t->device[some_kind(p)].launch_s +
               weft_cost_group_seconds(f, g, WEFT_ALL_GATHER, 8 * n_met / p->pp);
    if (!(tied_bytes > 0)) return s;
    /* both ends then have the sum, and tell its squares */
    weft_cost_group like = {p->dp / v->ep, v->tp * v->cp * v->ep};
    s += TIED_WORKS * t->device[some_kind(p)].launch_s +
         weft_cost_group_seconds(f, g, WEFT_ALL_GATHER, 8);
    if (p->zero) s += weft_cost_group_seconds(f, like, WEFT_ALL_GATHER, 8);
    if (p->zero) tied_bytes /= weft_cost__replicas(p, v);
    return s + 2 * weft_cost_send_seconds(f, g, tied_bytes);
}

/* The step of our own programs: its schedule is played.  Ranks along ep have the same micro-batches: a row stands for ep of
 * them. */
static void score_program(const weft_cost_table *t, const weft_cost_point *of, int n,
                          weft_cost_score *out)
{
    weft_cost_point        all = *of;
    const weft_cost_point *p   = &all;
    if (t->rounds) all.n_micro *= t->variant[of->variant].ep;
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
        run        = alike(t, p, n, s, from, mine);
        for (int i = s; i < s + run; i++) {
            x.before_s[i] = x.before_s[s];
            x.after_s[i]  = x.after_s[s];
            put_work(t, p, i, &y, &x);
        }
        if (run > 1) add_memory(t, p, some_kind(p), s + run - 1, &y, out);
        if (y.fwd_s + y.bwd_s > slow.fwd_s + slow.bwd_s) slow = y;
        met += run * y.own.n_met;
        made += run * y.own.meet_s;
        tied = fmax(tied, y.own.tied_bytes);
        from += run * mine;
    }
    for (int s = 0; s + 1 < pp; s++)
        x.after_s[s] += made; /* each for itself; the last one's counts it */
    if (x.chunks > 1) put_chunks(t, p, n, &x);
    x.meet_s = meet_seconds(t, p, met, tied);
    double m = of->n_micro, each = slow.fwd_s + slow.bwd_s;
    out->step_s      = weft_cost__pipe_seconds(&x);
    out->compute_s   = m * (each - slow.comm_s - slow.again_s);
    out->comm_s      = m * slow.comm_s;
    out->again_s     = m * slow.again_s;
    out->dp_s        = x.before_s[0];
    out->optimizer_s = x.after_s[0];
    out->p2p_s       = x.meet_s;
    out->bubble_s    = out->step_s - m * each - out->dp_s - out->optimizer_s - out->p2p_s;
}

static double own_seconds(const weft_cost_score *s)
{
    return s->step_s - s->dp_s - s->optimizer_s;
}

/* Each kind with its share by itself; sums wait for the last, and take a term more on the way there for each that
 * a replica brings. */
static void score_deal(const weft_cost_table *t, const weft_cost_point *p,
                       weft_cost_score *out)
{
    const weft_cost_deal *d    = &p->deal;
    weft_cost_score       full = {0}, s;
    double                sum = 0, set = 0;
    for (int k = 0; k < d->n; k++) {
        weft_cost_point q = *p;
        q.deal.n          = 0;
        q.only            = d->kind[k] + 1;
        q.kinds           = NULL;
        q.lanes           = (d->lanes[k] + d->replicas[k] - 1) / d->replicas[k];
        q.open            = d->open[k];
        q.terms           = d->terms;
        q.n_micro         = q.lanes * d->per_lane;
        weft_cost_score_point(t, &q, &s);
        sum = fmax(sum, s.dp_s);
        set = fmax(set, s.optimizer_s);
        if (!k || s.mem_bytes - s.mem_limit > full.mem_bytes - full.mem_limit) full = s;
        if (!k || own_seconds(&s) > own_seconds(out)) *out = s;
    }
    double own        = own_seconds(out);
    out->dp_s         = t->programs ? sum : sum * (d->terms + 1) / 2;
    out->optimizer_s  = set;
    out->step_s       = own + out->dp_s + out->optimizer_s;
    out->mem_bytes    = full.mem_bytes;
    out->mem_limit    = full.mem_limit;
    out->late_bytes   = full.late_bytes;
    out->tightest     = full.tightest;
    out->weight_bytes = full.weight_bytes;
    out->state_bytes  = full.state_bytes;
    out->keep_bytes   = full.keep_bytes;
    out->work_bytes   = full.work_bytes;
    out->engine_bytes = full.engine_bytes;
}

void weft_cost_score_point(const weft_cost_table *t, const weft_cost_point *p,
                           weft_cost_score *out)
{
    if (p->deal.n) {
        score_deal(t, p, out);
        return;
    }
    const weft_cost_engine *e = &t->engine;
    sums                    z = {.slow_s = -1};
    int                     n = 0, from = 0;
    *out = (weft_cost_score){.tightest = -1};
    for (int i = 0; i < t->n_segment; i++) n += t->segment[i].count;
    if (t->programs) {
        score_program(t, p, n, out);
        return;
    }
    stalls w = stalls_of(t, p);
    for (int s = 0, run; s < p->pp; s += run) {
        int mine = p->cut ? p->cut[s] : weft_cost_even_cut(n, p->pp, s);
        run      = alike(t, p, n, s, from, mine);
        add_stages(t, p, s, run, from, mine, &w, &z, out);
        from += run * mine;
    }
    double m = p->n_micro, p2p = between(t, p), pass_s = p->chunks * e->micro_s;
    double idle      = idle_seconds(t, p, z.slow_s, z.sum_s, p2p);
    out->compute_s   = m * (z.slow_s - z.slow.comm_s - z.slow.host_s - z.slow.again_s);
    out->comm_s      = m * z.slow.comm_s;
    out->host_s      = m * z.slow.host_s;
    out->again_s     = m * z.slow.again_s;
    out->p2p_s       = m * p2p;
    out->bubble_s    = idle;
    out->dp_s        = z.dp_s;
    out->optimizer_s = z.optimizer_s;
    out->fixed_s     = e->step_s + m * pass_s;
    out->step_s = m * (z.slow_s + p2p) + idle + z.dp_s + z.optimizer_s + out->fixed_s;
    if (e->thrash > 0 && out->mem_bytes > out->mem_limit) {
        double more = out->step_s *
                      expm1(e->thrash * fmin(out->mem_bytes / out->mem_limit - 1, 0.1));
        if (p->pp == 1) /* the host can not run ahead, and stalls as in stages */
            more = fmax(more, m * (n * stall(t, p) - z.slow_s));
        out->step_s += more;
        out->host_s += more;
    }
}
