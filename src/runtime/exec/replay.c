/* Steps as graphs: where a device can capture work, a step is issued once, captured once and then
 * replayed, in two segments: up to the commit point and after it.  Where it cannot, every step is
 * issued in the same order.
 *
 *     reads            all micro-batches' samples, kept in pinned memory of our own: read while
 *                      the device worked on the step before, up to its commit point
 *     segment 1        scalars, samples to their place, kernels, the outcome to pinned memory
 *     commit           the host looks at the outcome
 *     segment 2        updates; outputs that they write to pinned memory
 *
 * Where segment 2 is the device's work alone, a step ends when it has been given: what the host
 * does between two steps and the next step's launch are overlapped with updates.  So pinned memory
 * that a segment reads is written just before it is given: its last run was over at the last commit
 * point.
 *
 * Only for programs whose streams are one device's and whose host work is reading and the commit
 * point: nobody else waits in the middle of a step.  Firings of several streams are given in one
 * order, in which all that does not wait for the commit point comes before it.  What a graph reads
 * from the host has one address for its life.  Of a traced
 * step every task is an item, with a record of the graph's before and after it: times without the
 * host's part. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "exec/replay_priv.h"

/* Work that was left uses what is going to be released; the error stays as it was said. */
static void drop_left(weft_exec *e)
{
    char text[1024];
    if (!weft_exec__is_left(e)) return;
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft_status st = weft_exec__finish_left(e);
    if (st != WEFT_OK) (void)WEFT_FAIL(st, "%s", text);
}

void weft_exec__free_graph(weft_exec *e)
{
    weft_exec__graph *g = e->graph;
    drop_left(e);
    for (int i = 0; g && i < g->n_segment; i++)
        if (g->segment[i].captured.device)
            g->s->device->captured_free(&g->segment[i].captured);
    for (int k = 0; g && k < WEFT_MAX_STREAM; k++)
        if (g->join[k].device) g->s->device->event_close(&g->join[k]);
    if (g) weft_exec__close_gaps(g->gaps);
    if (g && g->updates.device) g->s->device->event_close(&g->updates);
    if (g) weft_device_free(&g->pinned);
    e->graph = NULL;
}

int64_t weft_exec__graph_bytes(const weft_exec *e)
{
    return e->graph ? e->graph->pinned.bytes : 0;
}

/* ---- the host's part of a step ---- */

static void enter_firing(const step_item *x)
{
    x->s->firing = &x->s->e->p->stream[x->s->number].firing[x->firing];
}

static void put_scalars(weft_exec__graph *g, const step_segment *x)
{
    weft_step_scalars *to = g->pinned.address;
    for (int i = x->first; i < x->first + x->n; i++) {
        if (g->item[i].scalars < 0) continue;
        enter_firing(&g->item[i]);
        to[g->item[i].scalars] = weft_exec__step_scalars(g->item[i].s);
    }
}

/* What a read has left in the host's memory, before the next one fills it; to: memory for all
 * samples of a step. */
static void keep_samples(const weft_exec__graph *g, const step_item *x, char *to)
{
    const weft_exec__instr *instr = instr_of(x);
    to += x->samples - g->first_sample;
    for (int k = 0; k < instr->i->n_out; k++) {
        size_t bytes = (size_t)weft_exec__sample_bytes(instr->i, k);
        memcpy(to, instr->call.out[k].p, bytes);
        to += bytes;
    }
}

/* All micro-batches' samples of the step that streams are at. */
static weft_status read_all(weft_exec__graph *g, char *to, bool traced)
{
    for (int i = 0; i < g->n_item; i++) {
        const step_item *x = &g->item[i];
        if (x->code || !is_read(x)) continue;
        double start = weft_clock_s();
        enter_firing(x);
        WEFT_TRY(weft_exec__read(x->s, instr_of(x)));
        keep_samples(g, x, to);
        if (traced) weft_exec__add_slice(x->s, x->instr, start, weft_clock_s());
    }
    return WEFT_OK;
}

/* Samples that were read ahead: of this step's time a read takes what its copy does. */
static void take_ahead(weft_exec__graph *g, char *to)
{
    for (int i = 0; i < g->n_item; i++) {
        const step_item *x = &g->item[i];
        if (x->code || !is_read(x)) continue;
        double  start = weft_clock_s();
        int64_t at    = x->samples - g->first_sample;
        enter_firing(x);
        memcpy(to + at, g->ahead + at, (size_t)sample_bytes(instr_of(x)->i));
        weft_exec__add_slice(x->s, x->instr, start, weft_clock_s());
    }
}

static weft_status read_samples(weft_exec__graph *g)
{
    char *to = (char *)g->pinned.address + g->first_sample;
    if (g->ahead_step != g->s->job_step) return read_all(g, to, true);
    take_ahead(g, to);
    return WEFT_OK;
}

/* While the device works on this step, the next one's are read.  What fails now fails again when
 * that step comes, if it does. */
static void read_ahead(weft_exec__graph *g)
{
    weft_exec *e    = g->s->e;
    int64_t    next = g->s->job_step + 1;
    /* a step that runs again has the next one's already */
    if (!g->s->device->capture_begin || g->ahead_step == next) return;
    g->ahead_step = -1;
    for (int k = 0; k < e->n_stream; k++) e->stream[k].job_step++;
    weft_status st = read_all(g, g->ahead, false);
    for (int k = 0; k < e->n_stream; k++) e->stream[k].job_step--;
    if (st == WEFT_OK) g->ahead_step = next;
}

/* ---- the device's ---- */

static weft_status issue_work(weft_exec__graph *g, step_item *x, bool held)
{
    weft_exec__stream *s = x->s;
    weft_memory        from;
    if (x->instr < 0) return WEFT_OK;
    if (!x->code) {
        const weft_exec__instr *instr = instr_of(x);
        WEFT_TRY(weft_memory_part(&g->pinned, x->samples, sample_bytes(instr->i), &from));
        return weft_exec__put_samples(s, instr, &from);
    }
    if (x->scalars >= 0 && s->scalars.address) {
        WEFT_TRY(weft_memory_part(&g->pinned,
                                  x->scalars * (int64_t)sizeof(weft_step_scalars),
                                  sizeof(weft_step_scalars), &from));
        WEFT_TRY(s->device->copy(s->device, &s->dev, &s->scalars, &from));
    }
    if (held && x->writes_state) return WEFT_OK;
    return s->timed.device && !held ? weft_exec__launch_timed(s, x->code, &x->record)
                                    : s->device->launch(&s->dev, x->code);
}

static weft_status issue_item(weft_exec__graph *g, step_item *x, bool held)
{
    const weft_firing_order *f = &x->s->e->order.firing[x->s->number][x->firing];
    enter_firing(x);
    if (x->s->e->alone) { /* edges are cancelled; items are in order */
        WEFT_TRY(issue_work(g, x, false));
        return x->s->device->finish(&x->s->dev);
    }
    if (x->enters) WEFT_TRY(weft_exec__wait_for(x->s, f));
    WEFT_TRY(issue_work(g, x, held));
    return x->leaves ? weft_exec__give(x->s, f) : WEFT_OK;
}

static weft_status take_numbers(weft_exec__graph *g, int segment)
{
    weft_device *d = g->s->device;
    for (int i = 0; i < g->n_number; i++) {
        const step_number *x = &g->number[i];
        weft_memory        to;
        if (x->segment != segment || x->is_copied) continue;
        WEFT_TRY(weft_memory_part(&g->pinned, x->at, x->from.bytes, &to));
        WEFT_TRY(d->copy(d, &g->s->dev, &to, &x->from));
    }
    return WEFT_OK;
}

static weft_status join_streams(weft_exec__graph *g)
{
    weft_exec *e = g->s->e;
    for (int k = 0; k < e->n_stream; k++) {
        if (&e->stream[k] == g->s) continue;
        WEFT_TRY(g->s->device->record(&e->stream[k].dev, &g->join[k]));
        WEFT_TRY(g->s->device->wait(&g->s->dev, &g->join[k], g->n_joined + 1));
    }
    return WEFT_OK;
}

static weft_status issue_segment(weft_exec__graph *g, const step_segment *x, bool held)
{
    int part = x > g->segment;
    WEFT_TRY(weft_exec__record_gap(g->gaps, &g->s->dev, part, false));
    for (int i = 0; i < x->n; i++) WEFT_TRY(issue_item(g, &g->item[x->first + i], held));
    WEFT_TRY(join_streams(g));
    WEFT_TRY(take_numbers(g, (int)(x - g->segment)));
    return weft_exec__record_gap(g->gaps, &g->s->dev, part, true);
}

static weft_status finish_streams(weft_exec *e)
{
    for (int k = 0; k < e->n_stream; k++)
        WEFT_TRY(e->stream[k].device->finish(&e->stream[k].dev));
    return WEFT_OK;
}

static weft_status capture_segment(weft_exec__graph *g, step_segment *x)
{
    weft_exec   *e                  = g->s->e;
    weft_device *d                  = g->s->device;
    weft_stream *s[WEFT_MAX_STREAM] = {&g->s->dev};
    int          n                  = 1;
    char         text[512]          = "";
    for (int k = 0; k < e->n_stream; k++)
        if (&e->stream[k] != g->s) s[n++] = &e->stream[k].dev;
    WEFT_TRY(finish_streams(e));
    WEFT_TRY(d->capture_begin(d, s, n));
    weft_status st = issue_segment(g, x, false);
    if (st != WEFT_OK) snprintf(text, sizeof text, "%s", weft_error_text());
    weft_status ended = d->capture_end(d, &x->captured);
    return st != WEFT_OK ? WEFT_FAIL(st, "%s", text) : ended;
}

static void trace_segment(weft_exec__graph *g, const step_segment *x)
{
    for (int i = x->first; i < x->first + x->n; i++) {
        const step_item *item = &g->item[i];
        if (!item->code || !item->s->timed.device) continue;
        enter_firing(item);
        weft_exec__trace_task(item->s, item->s->variant[item->firing], item->code,
                              item->record);
    }
}

static weft_status note_left(weft_exec__graph *g)
{
    g->at.open = true;
    WEFT_TRY(g->s->device->record(&g->s->dev, &g->updates));
    g->n_updates++;
    return WEFT_OK;
}

/* The first step warms libraries up; a step that is held back leaves out what it must, and is not
 * timed. */
static weft_status run_segment(weft_exec__graph *g, step_segment *x)
{
    bool held     = x->writes_state && g->s->e->held_step == g->s->job_step;
    bool is_last  = x == &g->segment[g->n_segment - 1];
    bool measured = g->at.steps > 1; /* the first one captures */
    put_scalars(g, x);
    if (held || !g->at.steps || !g->s->device->capture_begin) {
        WEFT_TRY(issue_segment(g, x, held));
    } else {
        if (!x->captured.device) WEFT_TRY(capture_segment(g, x));
        if (is_last && measured) WEFT_TRY(weft_exec__read_updates(g->gaps));
        WEFT_TRY(g->s->device->replay(&g->s->dev, &x->captured));
        if (is_last && measured) WEFT_TRY(weft_exec__read_before_commit(g->gaps));
        if (is_last && g->leaves) WEFT_TRY(note_left(g));
    }
    g->n_joined++;
    if (!held) trace_segment(g, x);
    return WEFT_OK;
}

static weft_status run_commit(weft_exec__graph *g, const step_item *x)
{
    weft_exec__stream       *s    = g->s;
    const weft_firing_order *f    = &s->e->order.firing[s->number][x->firing];
    weft_task               *task = &s->variant[x->firing]->task[x->instr];
    enter_firing(x);
    if (x->enters) WEFT_TRY(weft_exec__wait_for(s, f));
    WEFT_TRY(s->device->call(&s->dev, weft_exec__host_work, task));
    g->at.open = false; /* it has waited for all that was given */
    weft_exec__add_slice(s, x->instr, s->dev.start_s, s->dev.done_s);
    return x->leaves ? weft_exec__give(s, f) : WEFT_OK;
}

const void *weft_exec__find_outcome(const weft_exec *e, int k)
{
    const weft_exec__graph *g = e->graph;
    if (!g || k >= g->n_outcome) return NULL;
    return (const char *)g->pinned.address + g->number[k].at;
}

const void *weft_exec__find_output(const weft_exec *e, const char *name)
{
    const weft_exec__graph *g = e->graph;
    for (int i = g && g->at.done ? g->n_outcome : 0; g && g->at.done && i < g->n_number;
         i++)
        if (!strcmp(g->number[i].name, name))
            return (const char *)g->pinned.address + g->number[i].at;
    return NULL;
}

void weft_exec__forget_outputs(weft_exec *e)
{
    if (e->graph) e->graph->at.done = false;
}

/* The device has the step up to its commit point. */
static weft_status work_meanwhile(weft_exec__graph *g)
{
    const weft_exec_options *o = &g->s->e->o;
    read_ahead(g);
    return o->given ? o->given(o->user, g->s->job_step) : WEFT_OK;
}

bool weft_exec__is_left(const weft_exec *e)
{
    return e->graph && e->graph->at.open;
}

weft_status weft_exec__finish_left(weft_exec *e)
{
    if (!weft_exec__is_left(e)) return WEFT_OK;
    e->graph->at.open = false;
    return finish_streams(e);
}

const weft_exec__gaps *weft_exec__graph_gaps(const weft_exec *e)
{
    return e->graph ? e->graph->gaps : NULL;
}

bool weft_exec_overlaps(const weft_exec *e)
{
    return e->graph && e->graph->leaves;
}

weft_status weft_exec_await_updates(weft_exec *e)
{
    const weft_exec__graph *g = e->graph;
    double                  done_s;
    if (!weft_exec__is_left(e)) return WEFT_OK;
    return g->s->device->sync(&e->graph->updates, g->n_updates, &done_s);
}

weft_stream *weft_exec__graph_order(const weft_exec *e)
{
    return e->graph ? &e->graph->s->dev : NULL;
}

weft_status weft_exec__replay_step(weft_exec *e)
{
    weft_exec__graph *g = e->graph;
    int64_t           n[WEFT_MAX_STREAM];
    if (!g->at.open || !g->segment[0].captured.device) WEFT_TRY(finish_streams(e));
    for (int k = 0; k < e->n_stream; k++) {
        weft_exec__stream *s = &e->stream[k];
        /* this step makes its records again; slices that it replaces need no times */
        if (s->trace.per_step < s->trace.cap) WEFT_TRY(weft_exec__find_times(s));
        n[k]        = s->trace.n;
        s->job_step = e->first_step + s->step;
    }
    weft_exec__note_device_step(e, g->s->job_step + 1);
    WEFT_TRY(read_samples(g));
    for (g->at.next = 0; g->at.next < g->n_segment;) {
        step_segment *x = &g->segment[g->at.next++];
        g->at.within    = true;
        if (is_commit(&g->item[x->first])) WEFT_TRY(work_meanwhile(g));
        WEFT_TRY(is_commit(&g->item[x->first]) ? run_commit(g, &g->item[x->first])
                                               : run_segment(g, x));
        g->at.within = false;
    }
    g->at.steps++;
    g->at.done = true; /* when the run has ended */
    for (int k = 0; k < e->n_stream; k++) {
        e->stream[k].trace.per_step = e->stream[k].trace.n - n[k];
        e->stream[k].step++;
    }
    return WEFT_OK;
}

weft_status weft_exec__replay_alone(weft_exec *e)
{
    weft_exec__graph *g = e->graph;
    if (g->at.within && !is_commit(&g->item[g->segment[g->at.next - 1].first]))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: a part of the updates was begun",
                         e->p->name);
    for (; g->at.next < g->n_segment; g->at.next++)
        WEFT_TRY(issue_segment(g, &g->segment[g->at.next], false));
    return finish_streams(e);
}
