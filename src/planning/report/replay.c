/* A step as the simulator ran it: of each stage the first rank there is, its last step, on the
 * compute stream. */
#include <math.h>
#include <string.h>

#include "report/timeline_priv.h"

enum {
    NOT_DRAWN = N_SHADE
};

static bool starts(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

/* By the names that partition gives to actors. */
static int shade_of(const weft_actor *a, const weft_instr *i)
{
    bool comm = weft_instr_is_comm(i);
    if (starts(a->name, "send") || starts(a->name, "recv")) return SHADE_BETWEEN;
    if (starts(a->name, "exchange") || starts(a->name, "merge")) return SHADE_GRADS;
    if (starts(a->name, "update")) return comm ? SHADE_GRADS : SHADE_OPTIMIZER;
    if (starts(a->name, "read")) return SHADE_FIXED;
    if (comm) return SHADE_WIRES;
    if (starts(a->name, "forward")) return SHADE_FORWARD;
    if (!starts(a->name, "backward")) return SHADE_FIXED;
    return strstr(a->name, "weight") ? SHADE_WGRAD : SHADE_BACKWARD;
}

/* Neighbours of one shade are one piece. */
static weft_status add(weft_report__drawing *d, int row, int kind, double start,
                       double end)
{
    weft_report__row   *r    = &d->row[row];
    weft_report__slice *last = r->n ? &r->slice[r->n - 1] : NULL;
    if (kind == NOT_DRAWN || !(end > start)) return WEFT_OK;
    if (last && (int)last->kind == kind && start - last->end < 1e-9 * d->total_s) {
        r->busy_s += end - last->end;
        last->end = end;
        return WEFT_OK;
    }
    return weft_report__push(d, row, (weft_report__shade)kind, start, end - start);
}

/* The program that stands for each stage; -1: none. */
static void find_rows(const weft_report__drawing *d, const weft_timeline *t, int per,
                      int *program)
{
    for (int s = 0; s < d->pp; s++) program[s] = -1;
    for (int k = 0; k < t->n_program; k++) {
        int s = t->program[k]->rank / per;
        if (s < d->pp && program[s] < 0) program[s] = k;
    }
}

/* When the last step began on a row's program. */
static double begin_of(const weft_timeline *t)
{
    double start = INFINITY;
    for (int i = 0; i < t->n_slice; i++)
        if (t->slice[i].step == t->n_step - 1 &&
            t->program[t->slice[i].program]->stream[t->slice[i].stream].kind ==
                WEFT_STREAM_COMPUTE)
            start = fmin(start, t->slice[i].start_s);
    return start;
}

weft_status weft_report__replay(weft_report__drawing *d, const weft_timeline *t)
{
    double start = begin_of(t);
    int    per   = d->v->n_used / d->v->x->point.pp;
    d->pp        = d->v->x->point.pp;
    d->chunks    = d->v->x->point.chunks;
    d->n_micro   = d->v->x->point.n_micro;
    d->simulated = true;
    d->total_s   = t->total_s - start;
    d->row       = WEFT_ARENA_ARRAY(d->v->a, weft_report__row, d->pp);
    int *program = WEFT_ARENA_ARRAY(d->v->a, int, d->pp);
    int *row     = WEFT_ARENA_ARRAY(d->v->a, int, t->n_program);
    WEFT_TRY(weft_arena_status(d->v->a));
    find_rows(d, t, per, program);
    for (int k = 0; k < t->n_program; k++) row[k] = -1;
    for (int s = 0; s < d->pp; s++)
        if (program[s] >= 0) row[program[s]] = s;
    for (int i = 0; i < t->n_slice; i++) {
        const weft_slice *x = &t->slice[i];
        if (row[x->program] < 0 ||
            t->program[x->program]->stream[x->stream].kind != WEFT_STREAM_COMPUTE ||
            x->step != t->n_step - 1)
            continue;
        const weft_actor *a = &t->program[x->program]->actor[x->actor];
        WEFT_TRY(add(d, row[x->program], shade_of(a, &a->instr[x->instr]),
                     x->start_s - start, x->end_s - start));
    }
    for (int s = 0; s < d->pp; s++) { /* passes: what comes behind them is always drawn */
        int n = 0;
        for (int i = 0; i < d->row[s].n; i++) n += d->row[s].slice[i].kind <= SHADE_WGRAD;
        if (n > d->most_pieces) d->most_pieces = n;
    }
    return WEFT_OK;
}
