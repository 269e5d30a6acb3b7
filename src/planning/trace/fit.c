/* Constants as a trace shows them.
 *
 * Instructions that ran several times count by their least time: waiting and other processes only
 * add.  Three constants of the device (flop/s reached, bytes/s, launch) and two of the link
 * (alpha, bytes/s) are moved one after the other, each to where the error over all instructions,
 * weighted by time, is least; the prices are cost's own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "trace/trace_priv.h"

typedef struct sample {
    const weft_trace_event *e;
    int                     coll; /* -1: compute, -2: a message */
    int                     n;    /* times it ran */
    double                  s;    /* the least */
} sample;

typedef struct fitter {
    const weft_trace *t;
    weft_device_kind *d;
    weft_link_kind   *l;     /* NULL: one rank, or no link */
    double            flops; /* reached: peak * efficiency */
    int               n;
    sample           *sample;
} fitter;

static int kind_of(const weft_trace_event *e)
{
    for (int k = 0; k < WEFT_N_COLLECTIVE; k++)
        if (!strcmp(weft_collective_name((weft_collective)k), e->kind)) return k;
    if (!strcmp(e->kind, "send")) return -2;
    if (!strcmp(e->kind, "recv") || !strcmp(e->kind, "mark") || !strcmp(e->kind, "read"))
        return -3; /* waits, or what no constant prices */
    return -1;
}

static double price(const fitter *f, const sample *s)
{
    const weft_trace_event *e = s->e;
    if (s->coll == -1) {
        double compute = e->flops > 0 ? e->flops / f->flops : 0;
        return fmax(compute, e->bytes / f->d->mem_Bps) + f->d->launch_s;
    }
    double beta = 1 / (f->l->Bps * f->l->share);
    if (s->coll == -2) return f->l->alpha_s + e->bytes * beta;
    return weft_cost_collective((weft_collective)s->coll, f->t->n_rank, e->bytes,
                                f->l->alpha_s, beta);
}

/* Mean error by time; comm: of messages and collectives, else of the others. */
static double error(const fitter *f, bool comm, double *predicted, double *measured)
{
    double sum = 0, weight = 0, p = 0;
    for (int i = 0; i < f->n; i++) {
        const sample *s = &f->sample[i];
        if ((s->coll != -1) != comm) continue;
        double x = price(f, s);
        sum += s->n * fabs(x - s->s);
        weight += s->n * s->s;
        p += s->n * x;
    }
    if (predicted) *predicted += p;
    if (measured) *measured += weight;
    return weight > 0 ? sum / weight : 0;
}

/* Moves *x by factors, at first large, then small, while the error falls. */
static void move(const fitter *f, bool comm, double *x, double most)
{
    double best = error(f, comm, NULL, NULL);
    for (double step = 4; step > 1.001; step = sqrt(step))
        for (int dir = 0; dir < 2;) {
            double was = *x;
            *x         = fmin(most, dir ? was / step : was * step);
            double now = error(f, comm, NULL, NULL);
            if (now < best * (1 - 1e-9)) {
                best = now;
            } else {
                *x = was;
                dir++;
            }
        }
}

static int by_identity(const void *a, const void *b)
{
    const weft_trace_event *x = ((const sample *)a)->e, *y = ((const sample *)b)->e;
    int                     c = strcmp(x->actor, y->actor);
    if (!c) c = strcmp(x->name, y->name);
    if (!c) c = (x->flops > y->flops) - (x->flops < y->flops);
    if (!c) c = (x->bytes > y->bytes) - (x->bytes < y->bytes);
    return c;
}

static weft_status gather(fitter *f, weft_arena *a)
{
    int n     = 0;
    f->sample = WEFT_ARENA_ARRAY(a, sample, f->t->n_event + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < f->t->n_event; i++) {
        const weft_trace_event *e = &f->t->event[i];
        int                     k = kind_of(e);
        if (e->flops < 0 || e->bytes < 0)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s: instruction %s does not say its flops and bytes; trace "
                             "the run again with this version",
                             f->t->file, e->name);
        if (k == -3 || !(e->dur_s > 0) || (k != -1 && !f->l)) continue;
        f->sample[n++] = (sample){.e = e, .coll = k, .n = 1, .s = e->dur_s};
    }
    qsort(f->sample, (size_t)n, sizeof(sample), by_identity);
    for (int i = 0; i < n; i++) {
        sample *to = f->n ? &f->sample[f->n - 1] : NULL;
        if (to && !by_identity(to, &f->sample[i])) {
            to->n++;
            to->s = fmin(to->s, f->sample[i].s);
        } else {
            f->sample[f->n++] = f->sample[i];
        }
    }
    if (!f->n) return WEFT_FAIL(WEFT_ERR_ARG, "%s: nothing to learn from", f->t->file);
    return WEFT_OK;
}

static void fit_all(fitter *f, weft_trace_fitted *r)
{
    double before = 0, measured = 0, after = 0, rest = 0;
    double c0 = error(f, false, &before, &measured), m0 = measured;
    double l0 = error(f, true, &before, &measured);
    for (int round = 0; round < 6; round++) {
        move(f, false, &f->flops, INFINITY);
        move(f, false, &f->d->mem_Bps, INFINITY);
        if (f->d->launch_s <= 0) f->d->launch_s = 1e-7;
        move(f, false, &f->d->launch_s, 1);
        if (!f->l) continue;
        move(f, true, &f->l->Bps, INFINITY);
        if (f->l->alpha_s <= 0) f->l->alpha_s = 1e-7;
        move(f, true, &f->l->alpha_s, 1);
    }
    double c1 = error(f, false, &after, &rest), l1 = error(f, true, &after, &rest);
    for (int i = 0; i < f->n; i++)
        ++*(f->sample[i].coll == -1 ? &r->n_compute : &r->n_comm);
    r->error_before = (c0 * m0 + l0 * (measured - m0)) / measured;
    r->error_after  = (c1 * m0 + l1 * (measured - m0)) / measured;
    r->sum_before   = before;
    r->sum_after    = after;
    r->sum_measured = measured;
}

/* Peak and efficiency that give the reached flop/s: what is above the peak raises it. */
static void set_reached(weft_device_kind *d, double flops)
{
    for (int i = 0; i < d->n_rate; i++) {
        if (strcmp(d->rate[i].dtype, "f32")) continue;
        if (flops > d->rate[i].flops) d->rate[i].flops = flops;
        d->efficiency = flops / d->rate[i].flops;
    }
}

weft_status weft_trace_fit(const weft_trace *m, const weft_cluster *c, weft_cluster **out,
                           weft_trace_fitted *fit)
{
    fitter        f    = {.t = m};
    weft_cluster *next = NULL;
    weft_status   st;
    memset(fit, 0, sizeof *fit);
    if (c->n_timing) return weft_trace__learn(m, c, out, fit);
    WEFT_GO(weft_cluster_copy(c, &next));
    const weft_link_kind *l = m->n_rank > 1 ? weft_cluster_link(next, 0, 1) : NULL;
    f.d                     = &next->device[weft_cluster_device(next, 0) - next->device];
    f.l                     = l ? &next->link[l - next->link] : NULL;
    f.flops                 = weft_cluster_flops(f.d, "f32") * f.d->efficiency;
    if (!(f.flops > 0))
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "cluster %s: device %s has no flops for f32",
                          c->name, f.d->name));
    WEFT_GO(gather(&f, next->arena));
    fit_all(&f, fit);
    set_reached(f.d, f.flops);
    f.d->source = weft_arena_printf(next->arena, "corrected by the trace %s", m->file);
    if (f.l) f.l->source = f.d->source;
    next->version = c->version + 1;
    WEFT_GO(weft_arena_status(next->arena));
    WEFT_GO(weft_cluster_verify(next));
    *out = next;
    next = NULL;
out:
    weft_cluster_destroy(next);
    return st;
}
