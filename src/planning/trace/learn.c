/* Timings as a trace shows them.
 *
 * A kind of work (or a collective of so many ranks) that took r times what was predicted, over
 * all that ran of it, takes r times as long at every size; the sizes that ran are then added as
 * they were.  A trace is one measurement beside the
 * calibration: two calibrations of one machine differ by some percent, and so far r is believed
 * in part only; more than that is a machine that has changed, unless the same instruction took
 * unlike times within the trace.  Where ranks shared cores, waiting cannot be told from work, and
 * nothing is learned. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "trace/trace_priv.h"

typedef struct sample {
    weft_timing   t;
    weft_workload w;
    int           n;
    double        said;  /* by the cluster as it was */
    double        least; /* of the n */
} sample;

static const double usual = 0.05; /* how far two calibrations are apart */

typedef struct learner {
    const weft_trace   *m;
    const weft_cluster *c;
    int                 device, link; /* kinds; link -1: none */
    int                 n;
    sample             *sample;
} learner;

/* How much longer work takes with all ranks at it. */
static double crowd_of(const weft_cluster *c, int n_rank)
{
    for (int i = 0; i < c->n_node; i++)
        if (!c->node[i].first_rank && c->node[i].n_oversubscription)
            return c->node[i].oversubscription[n_rank <= c->node[i].n_oversubscription
                                                   ? n_rank - 1
                                                   : c->node[i].n_oversubscription - 1];
    return 1;
}

/* False: not to be learned from. */
static bool make_sample(const learner *l, const weft_trace_event *e, sample *out)
{
    *out = (sample){.t = {.device = l->device, .link = -1, .s = e->dur_s}, .w = e->work};
    if (!(e->dur_s > 0)) return false;
    if (e->work.n) {
        out->t.work   = e->work.kind;
        out->t.n_size = e->work.n;
        memcpy(out->t.size, e->work.size, sizeof e->work.size);
        return true;
    }
    bool message = !strcmp(e->kind, "send");
    if (l->link < 0 || (!message && e->ranks < 2)) return false;
    out->t.device  = -1;
    out->t.link    = l->link;
    out->t.work    = e->kind;
    out->t.n       = message ? 0 : e->ranks;
    out->t.n_size  = 1;
    out->t.size[0] = message ? e->bytes : e->given;
    return true;
}

static int by_subject(const void *a, const void *b)
{
    const weft_timing *x = &((const sample *)a)->t, *y = &((const sample *)b)->t;
    int                c = strcmp(x->work, y->work);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static int by_size(const void *a, const void *b)
{
    const weft_timing *x = &((const sample *)a)->t, *y = &((const sample *)b)->t;
    int                c = by_subject(a, b);
    for (int i = 0; !c && i < x->n_size; i++)
        c = (x->size[i] > y->size[i]) - (x->size[i] < y->size[i]);
    return c;
}

static int by_time(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    int           c = by_size(a, b);
    return c ? c : (x->t.s > y->t.s) - (x->t.s < y->t.s);
}

static bool said_of(const weft_cluster *c, const sample *x, double *out)
{
    if (x->t.device >= 0) return weft_cost_timed_work(c, x->t.device, &x->w, out);
    return weft_cost_timed_link(c, x->t.link, x->t.work, x->t.n, x->t.size[0], out);
}

/* One sample for each size: the median. */
static void gather(learner *l)
{
    int n = 0;
    qsort(l->sample, (size_t)l->n, sizeof(sample), by_time);
    for (int i = 0, end; i < l->n; i = end) {
        for (end = i; end < l->n && !by_size(&l->sample[i], &l->sample[end]);) end++;
        sample x = l->sample[i + (end - i) / 2];
        x.n      = end - i;
        x.least  = l->sample[i].t.s;
        if (!said_of(l->c, &x, &x.said)) x.said = x.t.s;
        l->sample[n++] = x;
    }
    l->n = n;
}

/* Mean error by time, and the sums. */
static double error_of(const learner *l, const weft_cluster *c, double *predicted,
                       double *measured)
{
    double off = 0;
    *predicted = *measured = 0;
    for (int i = 0; i < l->n; i++) {
        const sample *x = &l->sample[i];
        double        s = x->t.s;
        if (!said_of(c, x, &s)) s = x->said;
        off += x->n * fabs(s - x->t.s);
        *predicted += x->n * s;
        *measured += x->n * x->t.s;
    }
    return *measured > 0 ? off / *measured : 0;
}

/* Between what was said and what it took: the further apart they are, the nearer to the latter,
 * beyond four times what chance does wholly; least: it was done in once. */
static double believed(double said, double took, double least)
{
    double r = log(took / said), noise = log(took / least);
    double chance = usual * usual + noise * noise;
    return r * r > 16 * chance ? took : said * exp(r * r * r / (r * r + chance));
}

/* Everything known of a subject in proportion, then what ran. */
static weft_status correct(const learner *l, weft_arena *a, weft_timing **out, int *n)
{
    *out = WEFT_ARENA_ARRAY(a, weft_timing, l->c->n_timing + l->n + 1);
    *n   = 0;
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0, end; i < l->n; i = end) {
        double said = 0, took = 0, least = 0;
        int    known = 0;
        for (end = i; end < l->n && !by_subject(&l->sample[i], &l->sample[end]); end++) {
            said += l->sample[end].n * l->sample[end].said;
            took += l->sample[end].n * l->sample[end].t.s;
            least += l->sample[end].n * l->sample[end].least;
        }
        double             r  = believed(said, took, least) / said;
        const weft_timing *of = &l->sample[i].t;
        const weft_timing *t =
            weft_cluster_timings(l->c, of->device, of->link, of->work, of->n, &known);
        for (int k = 0; k < known; k++) {
            (*out)[*n] = t[k];
            (*out)[(*n)++].s *= r;
        }
        for (int k = i; k < end; k++) {
            const sample *x  = &l->sample[k];
            (*out)[*n]       = x->t;
            (*out)[(*n)++].s = believed(x->said * r, x->t.s, x->least);
        }
    }
    return WEFT_OK;
}

weft_status weft_trace__learn(const weft_trace *m, const weft_cluster *c,
                              weft_cluster **out, weft_trace_fitted *fit)
{
    learner      l    = {.m = m, .c = c, .link = -1};
    weft_arena  *a    = NULL;
    weft_timing *list = NULL;
    int          n    = 0;
    weft_status  st;
    if (crowd_of(c, m->n_rank) > 1.45) /* less: some are slower than others */
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: its %d ranks shared cores, where waiting cannot be told from "
            "work: trace at most a rank a core",
            m->file, m->n_rank);
    WEFT_GO(weft_arena_create(&a));
    const weft_link_kind *k = m->n_rank > 1 ? weft_cluster_link(c, 0, 1) : NULL;
    l.device                = (int)(weft_cluster_device(c, 0) - c->device);
    if (k) l.link = (int)(k - c->link);
    l.sample = WEFT_ARENA_ARRAY(a, sample, m->n_event + 1);
    WEFT_GO(weft_arena_status(a));
    for (int i = 0; i < m->n_event; i++)
        l.n += make_sample(&l, &m->event[i], &l.sample[l.n]);
    if (!l.n) WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: nothing to learn from", m->file));
    gather(&l);
    WEFT_GO(correct(&l, a, &list, &n));
    WEFT_GO(weft_cluster_learn(c, list, n, out));
    for (int i = 0; i < l.n; i++)
        ++*(l.sample[i].t.device >= 0 ? &fit->n_compute : &fit->n_comm);
    fit->error_before = error_of(&l, c, &fit->sum_before, &fit->sum_measured);
    fit->error_after  = error_of(&l, *out, &fit->sum_after, &fit->sum_measured);
out:
    weft_arena_destroy(a);
    return st;
}
