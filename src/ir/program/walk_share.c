/* Hosts whose ranks share cores and memory.  Where they share nothing an instruction ends as soon
 * as it has begun: its end is known.  Where they do, it has some seconds of work left, all that
 * run at once get on at their host's pace, and time goes on from one end to the next. */
#include "program/walk_priv.h"

static bool shares(const weft_program__walk *w, const weft_program__stream *x)
{
    return w->o->host && w->o->host[w->o->host_of[x->program]].n_slow > 0;
}

static bool talks(const weft_program__walk *w, const weft_program__stream *x)
{
    const weft_program *p = w->program[x->program];
    return weft_instr_is_comm(
        &p->actor[p->stream[x->number].firing[x->firing].actor].instr[x->instr]);
}

weft_status weft_program__begin(weft_program__walk *w, weft_program__stream *x,
                                double start, double seconds)
{
    if (!w->o->host) return weft_program__end(w, x, start, start + seconds);
    x->running = true;
    x->begun   = start > w->clock ? start : w->clock;
    x->left    = seconds;
    x->talks   = talks(w, x);
    return WEFT_OK;
}

/* How many of a host's instructions run, each at 1 / pace. */
static double pace(const weft_program__walk *w, const weft_program__stream *x)
{
    if (!shares(w, x) || x->talks) return 1; /* talking: as long as it takes them all */
    const weft_walk_host *h = &w->o->host[w->o->host_of[x->program]];
    int                   k = w->n_active[w->o->host_of[x->program]];
    if (k < 1) return 1;
    return k <= h->n_slow ? h->slow[k - 1] : h->slow[h->n_slow - 1] * k / h->n_slow;
}

static bool takes_time(const weft_program__stream *x)
{
    return x->running && x->left > 0;
}

weft_status weft_program__pass_time(weft_program__walk *w, bool *more)
{
    double next = -1;
    *more       = false;
    if (!w->o->host) return WEFT_OK;
    for (int h = 0; h < w->o->n_host; h++) w->n_active[h] = 0;
    for (int i = 0; i < w->n_stream; i++)
        w->n_active[w->o->host_of[w->stream[i].program]] += takes_time(&w->stream[i]);
    for (int i = 0; i < w->n_stream; i++) {
        weft_program__stream *x = &w->stream[i];
        double                t = x->left * pace(w, x);
        if (x->running && (next < 0 || t < next)) next = t;
    }
    if (next < 0) return WEFT_OK;
    *more = true;
    w->clock += next;
    for (int i = 0; i < w->n_stream; i++) {
        weft_program__stream *x = &w->stream[i];
        if (!x->running) continue;
        double rest = x->left * pace(w, x) - next;
        x->left     = rest > 1e-15 * w->clock ? rest / pace(w, x) : 0;
        if (x->left > 0) continue;
        x->running = false;
        WEFT_TRY(weft_program__end(w, x, x->begun, w->clock));
    }
    return WEFT_OK;
}
