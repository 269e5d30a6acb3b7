/* A stage of a point, summed from the rows of its layers: a micro-batch of it, and what its
 * engine loses. */
#include <math.h>

#include "cost/score_priv.h"

typedef weft_cost__stage  stage;
typedef weft_cost__stalls stalls;

/* The kinds of devices of stage s, as bits. */
int weft_cost__kinds(const weft_cost_point *p, int s)
{
    if (p->only) return 1 << (p->only - 1);
    return p->kinds ? p->kinds[s] : 1;
}

const weft_cost_row *weft_cost__rows(const weft_cost_table *t, int device, int variant)
{
    return t->row + ((int64_t)device * t->n_variant + variant) * t->n_class;
}

int weft_cost_even_cut(int n, int pp, int s)
{
    int base = n / pp, more = n % pp;
    /* the spare layers go to the middle: the ends also hold the input side and the head */
    int from = (pp - more + 1) / 2;
    return base + (s >= from && s < from + more);
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

/* How many stages from s on are alike: as many layers of one class on the same devices.  The
 * first and the last are like no other. */
int weft_cost__alike(const weft_cost_table *t, const weft_cost_point *p, int n, int s,
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

/* The floor under a layer where the engine stalls, on several nodes: the more ranks share a
 * tensor, the more. */
double weft_cost__stall(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_variant *v      = &t->variant[p->variant];
    const weft_cost_engine  *e      = &t->engine;
    int                      domain = t->fabric[0].domain;
    if (!(e->stall_s > 0) || v->tp < 2 ||
        (int64_t)p->pp * p->dp * v->tp * v->cp <= domain)
        return 0;
    return e->stall_base_s + e->stall_s * v->tp;
}

/* What an engine loses a micro-batch where tensors spread wide, and on a large crowd of nodes:
 * each message of a stage waits there, two at the ends, four between them. */
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

stalls weft_cost__stalls_of(const weft_cost_table *t, const weft_cost_point *p)
{
    return (stalls){p->pp > 1 ? weft_cost__stall(t, p) : 0, crowd(t, p)};
}

void weft_cost__apply_stalls(stage *s, const stalls *w)
{
    double t = s->fwd_s + s->bwd_s, want = s->n_layer * w->layer_s, more = w->micro_s;
    s->ahead = 1;
    if (!(t > 0)) return;
    if (want > t) more += want - t;
    s->bwd_s += more;
    s->host_s += more;
    s->ahead = t / (t + more);
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
    s->max_param = fmax(s->max_param, r->n_param + r->n_expert_param);
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
    const weft_cost_row *r      = weft_cost__rows(t, device, p->variant);
    weft_cost_shares     k      = weft_cost__own_shares(p, &t->variant[p->variant]);
    weft_cost__own      *x      = &out->own;
    double               n_like = weft_cost__sharers(t, p);
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
stage weft_cost__sum_stage(const weft_cost_table *t, const weft_cost_point *p, int device,
                           int kinds, int from, int n, int s)
{
    stage                out  = {.n_layer = n, .own.kinds = p->reach ? p->reach : kinds};
    const weft_cost_row *r    = weft_cost__rows(t, device, p->variant);
    const weft_cost_row *rest = p->n_again > 0 ? weft_cost__rows(t, device, p->rest) : r;
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
