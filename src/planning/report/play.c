/* A step from the plan's schedule and the stages' own seconds, in virtual time.
 * (1) Pieces of work come in the order of the schedule's generator, each as soon as what it waits
 *     for is there.
 * (2) What the score counts behind the pipeline (exposed sums of gradients, optimizer, fixed)
 *     comes behind it. */
#include <math.h>

#include "program/schedule.h"
#include "report/timeline_priv.h"

enum {
    MOST_WORK = 400000 /* pieces */
};

/* A piece of work of stage s from start on; its end.  A micro-batch's seconds are dealt to its
 * pieces. */
static weft_status piece(weft_report__drawing *d, int s, weft_work_kind k, double start,
                         double *end)
{
    const weft_cost_stage    *g = &d->v->stage[s];
    const weft_search_choice *x = d->v->x;
    double both = g->fwd_s + g->bwd_s, wires = both > 0 ? g->comm_s / both : 0;
    double hop = x->score.p2p_s / x->point.n_micro / 2 / d->chunks;
    double again =
        k == WEFT_WORK_BACKWARD || k == WEFT_WORK_BACKWARD_INPUT ? g->again_s : 0;
    double             own  = k == WEFT_WORK_FORWARD    ? g->fwd_s
                              : k == WEFT_WORK_BACKWARD ? g->bwd_s - again
                                                        : (g->bwd_s - g->again_s) / 2;
    weft_report__shade kind = k == WEFT_WORK_FORWARD           ? SHADE_FORWARD
                              : k == WEFT_WORK_BACKWARD_WEIGHT ? SHADE_WGRAD
                                                               : SHADE_BACKWARD;
    again /= d->chunks;
    own /= d->chunks;
    if (k == WEFT_WORK_BACKWARD_WEIGHT) hop = 0;
    *end = start;
    WEFT_TRY(weft_report__push(d, s, SHADE_AGAIN, *end, again));
    *end += again;
    WEFT_TRY(weft_report__push(d, s, kind, *end, own * (1 - wires)));
    *end += own * (1 - wires);
    WEFT_TRY(weft_report__push(d, s, SHADE_WIRES, *end, own * wires));
    *end += own * wires;
    WEFT_TRY(weft_report__push(d, s, SHADE_BETWEEN, *end, hop));
    *end += hop;
    return WEFT_OK;
}

typedef struct clock {
    double *fwd, *bwd; /* ends, [stage along the model][micro]; < 0: not yet */
    double *now;       /* of each rank */
    int    *at;        /* its next piece */
} clock;

/* When what w waits for is there; < 0: not yet. */
static double ready(const weft_report__drawing *d, const clock *c, int rank,
                    const weft_work *w)
{
    int     n = d->n_micro, stage = w->chunk * d->pp + rank, last = d->pp * d->chunks - 1;
    int64_t at = (int64_t)stage * n + w->micro;
    if (w->kind == WEFT_WORK_FORWARD) return stage ? c->fwd[at - n] : 0;
    if (w->kind == WEFT_WORK_BACKWARD_WEIGHT) return c->bwd[at];
    if (c->fwd[at] < 0) return -1;
    return stage == last ? c->fwd[at] : c->bwd[at + n];
}

static weft_status advance(weft_report__drawing *d, clock *c, const weft_schedule *z,
                           int rank, bool *moved)
{
    while (c->at[rank] < z->n_work[rank]) {
        const weft_work *w  = &z->work[rank][c->at[rank]];
        int64_t          at = (int64_t)(w->chunk * d->pp + rank) * d->n_micro + w->micro;
        double           t  = ready(d, c, rank, w), end;
        if (t < 0) return WEFT_OK;
        WEFT_TRY(piece(d, rank, w->kind, fmax(t, c->now[rank]), &end));
        c->now[rank] = end;
        if (w->kind == WEFT_WORK_FORWARD)
            c->fwd[at] = end;
        else if (w->kind != WEFT_WORK_BACKWARD_WEIGHT)
            c->bwd[at] = end;
        d->pipe_s = fmax(d->pipe_s, end);
        c->at[rank]++;
        *moved = true;
    }
    return WEFT_OK;
}

static weft_status play(weft_report__drawing *d, const weft_schedule *z)
{
    int         n     = d->pp * d->chunks * d->n_micro;
    weft_arena *a     = d->v->a;
    clock       c     = {.fwd = WEFT_ARENA_ARRAY(a, double, n),
                         .bwd = WEFT_ARENA_ARRAY(a, double, n),
                         .now = WEFT_ARENA_ARRAY(a, double, d->pp),
                         .at  = WEFT_ARENA_ARRAY(a, int, d->pp)};
    bool        moved = true;
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < n; i++) c.fwd[i] = c.bwd[i] = -1;
    while (moved) {
        moved = false;
        for (int r = 0; r < d->pp; r++) WEFT_TRY(advance(d, &c, z, r, &moved));
    }
    return WEFT_OK;
}

/* Behind the pipeline, as the score counts it. */
static weft_status tail(weft_report__drawing *d)
{
    const weft_cost_score *s = &d->v->x->score;
    for (int i = 0; i < d->pp; i++) {
        const weft_cost_stage *g = &d->v->stage[i];
        double                 t = d->pipe_s;
        WEFT_TRY(weft_report__push(d, i, SHADE_GRADS, t, g->dp_s));
        t += s->dp_s;
        WEFT_TRY(weft_report__push(d, i, SHADE_OPTIMIZER, t, g->optimizer_s));
        t += s->optimizer_s;
        WEFT_TRY(weft_report__push(d, i, SHADE_FIXED, t, s->fixed_s));
    }
    d->total_s = d->pipe_s + s->dp_s + s->optimizer_s + s->fixed_s;
    return WEFT_OK;
}

weft_status weft_report__play(weft_report__drawing *d)
{
    static const char *const name[] = {"1f1b", "gpipe", "zb-h1"};
    const weft_cost_point   *p      = &d->v->x->point;
    weft_schedule           *z      = NULL;
    weft_schedule_shape      of;
    d->pp      = p->pp;
    d->chunks  = p->chunks;
    d->n_micro = p->n_micro;
    while ((int64_t)d->pp * d->chunks * d->n_micro > MOST_WORK / 2 &&
           d->n_micro > 4 * d->pp)
        d->n_micro -= d->pp;
    of     = (weft_schedule_shape){d->pp, d->chunks, d->n_micro};
    d->row = WEFT_ARENA_ARRAY(d->v->a, weft_report__row, d->pp);
    WEFT_TRY(weft_arena_status(d->v->a));
    WEFT_TRY(
        weft_schedule_make(d->chunks > 1 ? "interleaved" : name[p->schedule], &of, &z));
    weft_status st = play(d, z);
    d->most_pieces = (weft_schedule_splits(z) ? 3 : 2) * d->chunks * d->n_micro;
    weft_schedule_destroy(z);
    return st == WEFT_OK ? tail(d) : st;
}
