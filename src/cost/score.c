/* Points composed from rows; see score.h. */
#include "cost/score.h"

#include <math.h>

#include "cost/pipe_priv.h"

int weft_cost_even_cut(int n, int pp, int s)
{
    int base = n / pp, more = n % pp;
    /* the spare layers go to the middle: the ends also hold the input side and the head */
    int from = (pp - more + 1) / 2;
    return base + (s >= from && s < from + more);
}

typedef struct stage {
    double                fwd_s, bwd_s, again_s, comm_s, host_s;
    double                keep, gathered, work, n_param, n_expert, max_param;
    weft_cost_program_row of;
    double ahead; /* share of its time in which the host runs ahead of the device */
    int    n_layer;
} stage;

static void add_program(weft_cost_program_row *to, const weft_cost_program_row *x, int n)
{
    /* a struct of nothing but doubles */
    double       *a = (double *)(void *)to;
    const double *b = (const double *)(const void *)x;
    for (size_t i = 0; i < sizeof *to / sizeof *a; i++) a[i] += n * b[i];
}

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
    if (r->of.update_s != 0) add_program(&s->of, &r->of, n);
    s->max_param = fmax(s->max_param, r->n_param + r->n_expert_param);
}

static const weft_cost_row *rows(const weft_cost_table *t, int device, int variant)
{
    return t->row + ((int64_t)device * t->n_variant + variant) * t->n_class;
}

/* The floor under a layer where the engine stalls: pipelines over several nodes. */
static double stall(const weft_cost_table *t, const weft_cost_point *p, int device)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    const weft_cost_fabric  *f = &t->fabric[device];
    if (!(t->engine.stall_s > 0) || p->pp < 2 || v->tp < 2 ||
        (int64_t)p->pp * p->dp * v->tp * v->cp <= f->domain)
        return 0;
    return t->engine.stall_base_s + t->engine.stall_s * v->tp;
}

/* What an engine loses on a large crowd of nodes, and where tensors spread wide, a micro-batch. */
static double crowd(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_variant *v      = &t->variant[p->variant];
    double                   domain = t->fabric[0].domain, s = 0;
    double                   x = (double)p->pp * p->dp * v->tp * v->cp / domain / 64;
    if (t->engine.wide_s > 0 && p->pp > 1 && v->tp > 2 * domain) s += t->engine.wide_s;
    if (t->engine.crowd_s > 0 &&
        (p->pp > 1 || v->tp >= domain)) /* the rest stays inside nodes */
        s += t->engine.crowd_s * fmin(1, pow(x, 8));
    return s;
}

/* Where an engine stalls: a floor under each layer, more for each micro-batch of a stage. */
typedef struct stalls {
    double layer_s, micro_s;
} stalls;

static stalls stalls_of(const weft_cost_table *t, const weft_cost_point *p)
{
    return (stalls){stall(t, p, 0), crowd(t, p)};
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

/* n collectives of bytes in all; of gathers each rank gives its part. */
static double calls_seconds(const weft_cost_fabric *f, weft_cost_group g,
                            weft_collective k, double n, double bytes)
{
    if (!(n > 0)) return 0;
    double each = bytes / n;
    if (k == WEFT_ALL_GATHER) each /= g.n;
    return n * weft_cost_group_seconds(f, g, k, each);
}

/* Zero 3 of our own programs: what is kept in parts is gathered in both passes. */
static void add_fetches(const weft_cost_table *t, const weft_cost_point *p, int device,
                        stage *x)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    const weft_cost_fabric  *f = &t->fabric[device];
    weft_cost_group          g = {p->dp / v->ep, v->tp * v->cp * v->ep};
    const weft_cost_sharing *z = &x->of.zero[1];
    if (!t->programs || p->zero < 3 || g.n < 2) return;
    double fwd = calls_seconds(f, g, WEFT_ALL_GATHER, z->n_fetch[0], z->fetch_bytes[0]);
    double bwd = calls_seconds(f, g, WEFT_ALL_GATHER, z->n_fetch[1], z->fetch_bytes[1]);
    x->fwd_s += fwd;
    x->bwd_s += bwd;
    x->comm_s += fwd + bwd;
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
        add_program(&out.of, &head.of, 1);
        out.work = fmax(out.work, head.work + head.keep); /* one micro-batch at a time */
        out.max_param = fmax(out.max_param, head.max_param);
    }
    add_fetches(t, p, device, &out);
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
    if (t->programs) /* sums over micro-batches are whole on every rank, unless there is one */
        return x->of.sum_bytes / (p->zero && p->n_micro == 1 ? (double)p->dp / v->ep : 1);
    if (p->zero < 2) return grad * (x->n_param + x->n_expert);
    return grad * (x->n_param / shards(p, v) + x->n_expert / expert_shards(p, v));
}

static void add_memory(const weft_cost_table *t, const weft_cost_point *p, int device,
                       int s, const stage *x, weft_cost_score *out)
{
    const weft_cost_engine  *e = &t->engine;
    const weft_cost_variant *v = &t->variant[p->variant];
    double                   n = shards(p, v), ne = expert_shards(p, v);
    double                   w      = t->param_bytes;
    double                   weight = x->n_param * (p->zero > 2 ? w / n : w) +
                    x->n_expert * (p->zero > 2 ? w / ne : w) + grad_bytes(t, p, x);
    if (p->zero > 2) weight += 2 * w * x->max_param;
    double state = e->mem_state * (x->n_param / n + x->n_expert / ne);
    double held  = in_flight(p, s);
    if (t->programs && p->schedule == WEFT_COST_ZERO_BUBBLE)
        held = fmin(p->n_micro, p->pp); /* until the weights' gradients are made */
    double whole    = x->gathered * (p->pp == 1 ? 1 : fmax(0, held - 2));
    double keep     = x->keep * held + x->ahead * whole;
    double late     = x->ahead * (x->gathered * held - whole);
    double live     = weight + state + keep + x->work;
    double total    = live * e->mem_spare + e->mem_fixed;
    double limit    = e->mem_limit * (double)t->device[device].mem_bytes;
    out->late_bytes = fmax(out->late_bytes, total + late * e->mem_spare);
    if (out->tightest >= 0 && total - limit <= out->mem_bytes - out->mem_limit) return;
    out->tightest     = s;
    out->mem_bytes    = total;
    out->mem_limit    = limit;
    out->weight_bytes = weight;
    out->state_bytes  = state;
    out->keep_bytes   = keep;
    out->work_bytes   = x->work;
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

/* The same of our own programs, in which nothing of it runs beside compute. */
static double program_replica_seconds(const weft_cost_table *t, const weft_cost_point *p,
                                      int device, const stage *x)
{
    const weft_cost_variant *v   = &t->variant[p->variant];
    const weft_cost_fabric  *f   = &t->fabric[device];
    weft_cost_group          g   = {p->dp / v->ep, v->tp * v->cp * v->ep};
    weft_cost_group          all = {g.n * v->cp,
                                    v->tp}; /* parts of a sequence are summed with replicas */
    if (all.n < 2) return 0;
    if (p->zero == 0 || g.n < 2)
        return calls_seconds(f, all, WEFT_ALL_REDUCE, x->of.n_sum, x->of.sum_bytes);
    const weft_cost_sharing *z = &x->of.zero[p->zero > 2];
    return calls_seconds(f, all, WEFT_REDUCE_SCATTER, z->n_sum, z->sum_bytes) +
           calls_seconds(f, g, WEFT_ALL_GATHER, z->n_gather, z->gather_bytes) +
           calls_seconds(f, g, WEFT_ALL_REDUCE, z->n_scalar, 8 * z->n_scalar);
}

/* Summing gradients and handing weights round, as far as it is waited for. */
static double replica_seconds(const weft_cost_table *t, const weft_cost_point *p,
                              int device, const stage *x)
{
    if (t->programs) return program_replica_seconds(t, p, device, x);
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
    if (t->programs) /* the sums of squares and the optimizer, on what a rank has of the states */
        return x->of.launch_s +
               (x->of.update_s - x->of.launch_s) / (p->zero ? (double)p->dp / v->ep : 1);
    /* read gradient, weight, both moments; write weight (32 and 16 bits) and moments; gradients are
     * cleared and their norm is taken */
    double per = 16 + 14, every = 2 * t->grad_bytes;
    double bytes = per * (x->n_param / shards(p, v) + x->n_expert / expert_shards(p, v)) +
                   every * (x->n_param + x->n_expert);
    return t->engine.optimizer * bytes / (d->mem_Bps * (d->stream > 0 ? d->stream : 1));
}

typedef struct sums {
    double          slow_s, sum_s, dp_s, optimizer_s, most_param;
    stage           slow;
    int             slow_device;
    weft_cost__pipe pipe; /* of programs */
    double          tied_bytes;
} sums;

/* Stages s .. s+run-1, which are alike: of those the first holds the most activations. */
static void add_stages(const weft_cost_table *t, const weft_cost_point *p, int s, int run,
                       int from, int n, const stalls *w, sums *z, weft_cost_score *out)
{
    int    kinds = p->kinds ? p->kinds[s] : 1;
    double worst = -1;
    stage  last  = {0};
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
        /* of devices alike those with more parameters wait longer; of programs later stages are done earlier, and
         * wanted later */
        if (t->programs || p->kinds || x.n_param + x.n_expert > z->most_param) {
            double sum     = replica_seconds(t, p, d, &x);
            double set     = optimizer_seconds(t, p, d, &x);
            z->most_param  = x.n_param + x.n_expert;
            z->dp_s        = fmax(z->dp_s, sum - z->pipe.bwd_s);
            z->optimizer_s = fmax(z->optimizer_s, set - z->pipe.fwd_s);
        }
        last = x;
    }
    if (t->programs) {
        weft_cost__pipe_add(&z->pipe, s, run, last.fwd_s, last.bwd_s, last.of.weight_s);
        z->tied_bytes = fmax(z->tied_bytes, last.of.tied_bytes);
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
    out->grad_bytes   = grad_bytes(t, p, &x);
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
        int kinds = p->kinds ? p->kinds[s] : 1;
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
    int             kinds = p->kinds ? p->kinds[s] : 1;
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

/* What passes from a layer to the next, on average: layers may be of many kinds. */
static double usual_out(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_row *r     = rows(t, 0, p->variant);
    double               bytes = 0;
    int                  n     = 0;
    for (int i = 0; i < t->n_segment; i++) {
        bytes += t->segment[i].count * r[t->segment[i].layer_class].out_bytes;
        n += t->segment[i].count;
    }
    return n ? bytes / n : 0;
}

/* The step of our own programs. */
static void compose_program(const weft_cost_table *t, const weft_cost_point *p,
                            const sums *z, weft_cost_score *out)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    const weft_cost_fabric  *f = &t->fabric[0];
    weft_cost_group          g = {p->pp, v->tp * v->cp * p->dp};
    double                   m = p->n_micro;
    double all = weft_cost__pipe_seconds(&z->pipe, p, f, g, usual_out(t, p));
    if (p->pp > 1 && z->tied_bytes > 0) /* there and back, one after the other */
        all += 2 * weft_cost_send_seconds(
                       f, g, z->tied_bytes / (p->zero ? (double)p->dp / v->ep : 1));
    out->compute_s   = m * (z->slow_s - z->slow.comm_s - z->slow.again_s);
    out->comm_s      = m * z->slow.comm_s;
    out->again_s     = m * z->slow.again_s;
    out->bubble_s    = all - m * z->slow_s;
    out->dp_s        = z->dp_s;
    out->optimizer_s = z->optimizer_s;
    out->step_s      = all + z->dp_s + z->optimizer_s;
}

void weft_cost_score_point(const weft_cost_table *t, const weft_cost_point *p,
                           weft_cost_score *out)
{
    const weft_cost_engine *e = &t->engine;
    sums                    z = {.slow_s = -1};
    int                     n = 0, from = 0;
    *out = (weft_cost_score){.tightest = -1};
    for (int i = 0; i < t->n_segment; i++) n += t->segment[i].count;
    stalls w = stalls_of(t, p);
    for (int s = 0, run; s < p->pp; s += run) {
        int mine = p->cut ? p->cut[s] : weft_cost_even_cut(n, p->pp, s);
        run      = alike(t, p, n, s, from, mine);
        add_stages(t, p, s, run, from, mine, &w, &z, out);
        from += run * mine;
    }
    if (t->programs) {
        compose_program(t, p, &z, out);
        return;
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
        out->step_s += more;
        out->host_s += more;
    }
}
