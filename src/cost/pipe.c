/* A pipeline of our programs by its longest chain.  Messages run beside compute, so that they are waited for only
 * where nothing else is to do.
 *
 * The chain through stage s (f, b: its two passes; i, w: the two parts of b under zb-h1, else i = b, w = 0):
 *     the first micro-batch comes down       f of stages 0 .. s
 *     it goes on and returns                 f + i of later stages, or as many f of s as are run ahead
 *     s works without a pause                m i, the f that are left, the w that are not put off
 *     the last one goes up                   i of stages s-1 .. 0
 *     what was put off                       w
 * and, where messages take long or stages are uneven, s has no more than pp - s micro-batches under way: one of
 * them comes out in every (pp - s)-th part of a round trip. */
#include <math.h>

#include "cost/pipe_priv.h"

void weft_cost__pipe_add(weft_cost__pipe *x, int stage, int n, double fwd_s, double bwd_s,
                         double weight_s)
{
    weft_cost__part *q = &x->part[x->n < WEFT_COST__PARTS ? x->n++ : x->n - 1];
    *q                 = (weft_cost__part){.first        = stage,
                                           .n            = n,
                                           .fwd_s        = fwd_s,
                                           .bwd_s        = bwd_s,
                                           .weight_s     = weight_s,
                                           .fwd_before_s = x->fwd_s,
                                           .bwd_before_s = x->bwd_s};
    x->fwd_s += n * fwd_s;
    x->bwd_s += n * bwd_s;
}

/* Seconds of the messages between stages 0 and s, one way. */
typedef struct hops {
    const weft_cost_fabric *f;
    weft_cost_group         g;
    double                  in_s, out_s;
} hops;

static hops hops_of(const weft_cost_fabric *f, weft_cost_group g, double bytes)
{
    weft_cost_group near = {2, 1}, far = {2, f->domain};
    return (hops){f, g, weft_cost_send_seconds(f, near, bytes),
                  weft_cost_send_seconds(f, far, bytes)};
}

static double down_to(const hops *h, int s)
{
    int far = (int)((int64_t)s * h->g.stride / h->f->domain);
    if (h->g.stride >= h->f->domain || far > s) far = s;
    return far * h->out_s + (s - far) * h->in_s;
}

typedef struct chain {
    const weft_cost__pipe *x;
    const weft_cost_point *p;
    const hops            *h;
    bool                   split;                     /* zb-h1 */
    double input_before_s[WEFT_COST__PARTS], input_s; /* i of all before, of all */
} chain;

/* Through stage s of part k. */
static double through(const chain *c, int k, int s)
{
    const weft_cost__part *q = &c->x->part[k];
    int                    m = c->p->n_micro, pp = c->p->pp, n = s - q->first;
    double                 f = q->fwd_s, w = c->split ? q->weight_s : 0, i = q->bwd_s - w;
    double down = q->fwd_before_s + n * f, up = c->input_before_s[k] + n * i;
    double back = c->x->fwd_s - down - f + (c->input_s - up - i) +
                  2 * (down_to(c->h, pp - 1) - down_to(c->h, s));
    int warm = pp - 1 - s, kept = c->split ? s : 0;
    if (warm > m - 1) warm = m - 1;
    if (kept > m - 1) kept = m - 1;
    double here = m * i + (m - 1 - warm) * f + (m - 1 - kept) * w;
    double t    = down + f + fmax(back, warm * f) + here + 2 * down_to(c->h, s) + up;
    if (!c->split) return t;
    double first_w = c->x->part[0].weight_s; /* the first stage's last one */
    return fmax(t + first_w, t - up + (kept + 1) * w);
}

static double longest(chain *c)
{
    double t = 0, before = 0;
    for (int k = 0; k < c->x->n; k++) {
        const weft_cost__part *q = &c->x->part[k];
        c->input_before_s[k]     = before;
        before += q->n * (q->bwd_s - (c->split ? q->weight_s : 0));
    }
    c->input_s = before;
    for (int k = 0; k < c->x->n; k++) {
        const weft_cost__part *q = &c->x->part[k];
        t                        = fmax(t, through(c, k, q->first));
        if (q->n > 1) t = fmax(t, through(c, k, q->first + q->n - 1));
    }
    return t;
}

/* The pace that round trips allow, and one such trip. */
static double paced(const weft_cost__pipe *x, const weft_cost_point *p, const hops *h)
{
    double trip = x->fwd_s + x->bwd_s + 2 * down_to(h, p->pp - 1), each = 0;
    for (int k = 0; k < x->n; k++) {
        const weft_cost__part *q    = &x->part[k];
        int                    left = p->pp - q->first;
        double on = x->fwd_s - q->fwd_before_s + x->bwd_s - q->bwd_before_s +
                    2 * (down_to(h, p->pp - 1) - down_to(h, q->first));
        each = fmax(each, fmax(on / left, q->fwd_s + q->bwd_s));
    }
    return (p->n_micro - 1) * each + trip;
}

double weft_cost__pipe_seconds(const weft_cost__pipe *x, const weft_cost_point *p,
                               const weft_cost_fabric *f, weft_cost_group g, double bytes)
{
    double m = p->n_micro, fwd = 0, bwd = 0;
    hops   h = hops_of(f, g, bytes);
    if (p->pp == 1) return m * (x->fwd_s + x->bwd_s);
    for (int k = 0; k < x->n; k++) {
        fwd = fmax(fwd, x->part[k].fwd_s);
        bwd = fmax(bwd, x->part[k].bwd_s);
    }
    double trip = x->fwd_s + x->bwd_s + 2 * down_to(&h, p->pp - 1);
    if (p->schedule == WEFT_COST_GPIPE) return (m - 1) * (fwd + bwd) + trip;
    if (p->schedule == WEFT_COST_ZERO_BUBBLE) {
        chain c = {.x = x, .p = p, .h = &h, .split = true};
        return longest(&c);
    }
    if (p->chunks > 1) {
        double slow = 0;
        for (int k = 0; k < x->n; k++)
            slow = fmax(slow, x->part[k].fwd_s + x->part[k].bwd_s);
        return m * slow + (trip - slow) / p->chunks;
    }
    chain c = {.x = x, .p = p, .h = &h};
    return fmax(longest(&c), paced(x, p, &h));
}
