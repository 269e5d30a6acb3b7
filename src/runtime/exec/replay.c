/* Steps as graphs: where a device can capture work, a step is issued once, captured once and then
 * replayed, in two segments: up to the commit point and after it.
 *
 *     reads            all micro-batches' samples, kept in pinned memory of our own
 *     segment 1        scalars, samples to their place, kernels, the outcome to pinned memory
 *     commit           the host looks at the outcome
 *     segment 2        updates, outputs to pinned memory
 *
 * Only for programs of one stream whose host work is reading and the commit point: nobody else
 * waits in the middle of a step.  What a graph reads from the host has one address for its life; it
 * is written when the stream is idle.  Of a traced step every task is an item, with a record of the
 * graph's before and after it: times without the host's part. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "exec/exec_priv.h"

enum {
    ALIGN = 64
};

/* What a step does, in order. */
typedef struct step_item {
    int              firing, instr;
    const weft_code *code; /* NULL: a read or the commit point */
    bool             writes_state;
    int              scalars; /* number of those that are written before it; -1 none */
    int64_t          samples; /* of a read: where its results are kept */
    int64_t          record;  /* where tasks are timed: the first one of its two */
} step_item;

/* A run of items that the device gets at once. */
typedef struct step_segment {
    int           first, n;
    bool          writes_state;
    weft_captured captured; /* all zero: not yet */
} step_segment;

/* A number that the host looks at after a segment: an operand of the commit point, or an output. */
typedef struct step_number {
    const char *name; /* of an output; NULL: an operand */
    int         segment;
    weft_memory from;
    int64_t     at; /* in pinned memory */
} step_number;

struct weft_exec__graph {
    weft_exec__stream *s;
    int                n_item, n_segment, n_scalars;
    step_item         *item;
    step_segment      *segment;
    int                n_number, n_outcome;
    step_number       *number; /* the first n_outcome are operands, in order */
    weft_memory        pinned; /* scalars, samples, numbers */
    int64_t            steps;  /* that were run */
    bool               done;   /* numbers are those of the last step */
};

/* ---- before the first step ---- */

/* Host work that can wait until the segment is over, or be done before it: the commit point, and
 * reads into memory that is copied to the device. */
static bool can_be_apart(const weft_exec *e, const weft_instr *i)
{
    if (weft_instr_is_comm(i)) return false;
    for (int k = 0; i->kind == WEFT_INSTR_READ && k < i->n_out; k++)
        if (i->out[k].buffer < 0 ||
            !e->host_slab[e->p->buffer[i->out[k].buffer].slab].address)
            return false;
    return true;
}

static bool has_only_reads_and_commit(const weft_exec *e)
{
    for (int a = 0; a < e->p->n_actor; a++)
        for (int n = 0; n < e->p->actor[a].n_instr; n++)
            if (!can_be_apart(e, &e->p->actor[a].instr[n])) return false;
    return true;
}

bool weft_exec__can_replay(const weft_exec *e)
{
    return e->n_stream == 1 && e->stream[0].device->capture_begin && !e->o.price &&
           !e->o.carry && has_only_reads_and_commit(e);
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t sample_bytes(const weft_instr *i)
{
    int64_t bytes = 0;
    for (int k = 0; k < i->n_out; k++) bytes += weft_exec__sample_bytes(i, k);
    return round_up(bytes);
}

static int count_items(const weft_exec *e, const weft_stream_spec *spec)
{
    int n = 0;
    for (int i = 0; i < spec->n_firing; i++)
        n += e->p->actor[spec->firing[i].actor].n_instr;
    return n;
}

static int micro_of(const weft_firing *f)
{
    return f->micro < 0 ? 0 : f->micro;
}

/* The items of firing f; *micro: the micro-batch whose scalars the device has. */
static void list_firing(weft_exec__graph *g, int f, int *micro, int64_t *bytes)
{
    weft_exec                *e    = g->s->e;
    const weft_firing        *fire = &e->p->stream[g->s->number].firing[f];
    const weft_exec__variant *v    = g->s->variant[f];
    const weft_code          *code = v->code;
    const int                *run  = e->actor[fire->actor].run;
    for (int n = 0; n < e->p->actor[fire->actor].n_instr; n += run[n] ? run[n] : 1) {
        const weft_instr *i = v->instr[n].i;
        step_item         x = {.firing       = f,
                               .instr        = n,
                               .code         = run[n] ? code++ : NULL,
                               .writes_state = weft_instr_writes_state(e->p, i),
                               .scalars      = -1};
        if (x.code && *micro != micro_of(fire)) {
            *micro    = micro_of(fire);
            x.scalars = g->n_scalars++;
        }
        if (i->kind == WEFT_INSTR_READ) {
            x.samples = *bytes;
            *bytes += sample_bytes(i);
        }
        g->item[g->n_item++] = x;
        x.scalars            = -1;
        for (int k = 1; run[n] && g->s->timed.device && k < v->n_grouped[n]; k++) {
            x.code               = code++;
            g->item[g->n_item++] = x;
        }
    }
}

static bool is_read(const weft_exec__graph *g, const step_item *x)
{
    return g->s->variant[x->firing]->instr[x->instr].i->kind == WEFT_INSTR_READ;
}

static bool is_commit(const weft_exec__graph *g, const step_item *x)
{
    return g->s->variant[x->firing]->instr[x->instr].i->kind == WEFT_INSTR_COMMIT;
}

/* Reads are of a segment, too: there samples go to their place. */
static void cut_segments(weft_exec__graph *g)
{
    for (int i = 0; i < g->n_item; i++) {
        bool starts = !g->n_segment || is_commit(g, &g->item[i]) ||
                      (i && is_commit(g, &g->item[i - 1]));
        step_segment *x = &g->segment[g->n_segment - !starts];
        if (starts) *x = (step_segment){.first = i};
        if (starts) g->n_segment++;
        x->n++;
        x->writes_state = x->writes_state || g->item[i].writes_state;
    }
}

static weft_status add_number(weft_exec__graph *g, const char *name, int segment,
                              const weft_operand *o, int32_t slot, int64_t *bytes)
{
    const weft_buffer *b    = &g->s->e->p->buffer[o->buffer];
    int64_t            size = weft_dtype_bytes(o->type.dtype);
    step_number       *x    = &g->number[g->n_number];
    *x                      = (step_number){name, segment, {0}, *bytes};
    WEFT_TRY(weft_memory_part(&g->s->e->slab[b->slab],
                              b->offset + slot * b->bytes + o->offset * size, size,
                              &x->from));
    g->n_number++;
    *bytes += ALIGN;
    return WEFT_OK;
}

static weft_status add_outcome(weft_exec__graph *g, int segment, const step_item *x,
                               int64_t *bytes)
{
    const weft_exec   *e = g->s->e;
    const weft_instr  *i = g->s->variant[x->firing]->instr[x->instr].i;
    const weft_firing *f = &e->p->stream[g->s->number].firing[x->firing];
    for (int k = 0; k < i->n_in; k++)
        WEFT_TRY(add_number(g, NULL, segment, &i->in[k],
                            weft_program_slot(e->p, i, false, i->in[k].buffer, f),
                            bytes));
    g->n_outcome = g->n_number;
    return WEFT_OK;
}

/* Numbers of the commit point after the segment before it, outputs after the last one. */
static weft_status list_numbers(weft_exec__graph *g, int64_t *bytes)
{
    const weft_program *p = g->s->e->p;
    g->number =
        WEFT_ARENA_ARRAY(g->s->e->arena, step_number, WEFT_MAX_OUTCOME + p->n_binding);
    WEFT_TRY(weft_arena_status(g->s->e->arena));
    for (int k = 1; k < g->n_segment; k++) {
        const step_item *x = &g->item[g->segment[k].first];
        if (is_commit(g, x) &&
            g->s->variant[x->firing]->instr[x->instr].i->n_in <= WEFT_MAX_OUTCOME)
            WEFT_TRY(add_outcome(g, k - 1, x, bytes));
    }
    int last = g->n_segment - 1;
    if (last > 0 && is_commit(g, &g->item[g->segment[last].first])) last--;
    for (int i = 0; i < p->n_binding; i++) {
        const weft_binding *b = &p->binding[i];
        if (b->kind == WEFT_BIND_OUTPUT && weft_shape_count(&b->at.type.shape) == 1 &&
            p->buffer[b->at.buffer].n_slot == 1)
            WEFT_TRY(add_number(g, b->name, last, &b->at, 0, bytes));
    }
    return WEFT_OK;
}

weft_status weft_exec__make_graph(weft_exec *e)
{
    weft_exec__stream      *s    = &e->stream[0];
    const weft_stream_spec *spec = &e->p->stream[s->number];
    weft_exec__graph       *g    = WEFT_ARENA_NEW(e->arena, weft_exec__graph);
    int                     n = count_items(e, spec), micro = -1;
    int64_t                 bytes = 0;
    WEFT_TRY(weft_arena_status(e->arena));
    g->s       = s;
    g->item    = WEFT_ARENA_ARRAY(e->arena, step_item, n + 1);
    g->segment = WEFT_ARENA_ARRAY(e->arena, step_segment, n + 1);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int f = 0; f < spec->n_firing; f++) list_firing(g, f, &micro, &bytes);
    cut_segments(g);
    int64_t first = round_up(g->n_scalars * (int64_t)sizeof(weft_step_scalars));
    for (int i = 0; i < g->n_item; i++) g->item[i].samples += first;
    bytes = round_up(first + bytes);
    WEFT_TRY(list_numbers(g, &bytes));
    e->graph = g;
    return weft_device_alloc(s->device, WEFT_SPACE_PINNED, bytes, &g->pinned);
}

void weft_exec__free_graph(weft_exec *e)
{
    weft_exec__graph *g = e->graph;
    for (int i = 0; g && i < g->n_segment; i++)
        if (g->segment[i].captured.device)
            g->s->device->captured_free(&g->segment[i].captured);
    if (g) weft_device_free(&g->pinned);
    e->graph = NULL;
}

int64_t weft_exec__graph_bytes(const weft_exec *e)
{
    return e->graph ? e->graph->pinned.bytes : 0;
}

/* ---- the host's part of a step ---- */

static void enter_firing(weft_exec__graph *g, const step_item *x)
{
    g->s->firing = &g->s->e->p->stream[g->s->number].firing[x->firing];
}

static void put_scalars(weft_exec__graph *g)
{
    weft_step_scalars *to = g->pinned.address;
    for (int i = 0; i < g->n_item; i++) {
        if (g->item[i].scalars < 0) continue;
        enter_firing(g, &g->item[i]);
        to[g->item[i].scalars] = weft_exec__step_scalars(g->s);
    }
}

/* What a read has left in the host's memory, before the next one fills it. */
static void keep_samples(weft_exec__graph *g, const step_item *x)
{
    const weft_exec__instr *instr = &g->s->variant[x->firing]->instr[x->instr];
    char                   *to    = (char *)g->pinned.address + x->samples;
    for (int k = 0; k < instr->i->n_out; k++) {
        size_t bytes = (size_t)weft_exec__sample_bytes(instr->i, k);
        memcpy(to, instr->call.out[k].p, bytes);
        to += bytes;
    }
}

static weft_status read_samples(weft_exec__graph *g)
{
    for (int i = 0; i < g->n_item; i++) {
        const step_item *x = &g->item[i];
        if (x->code || !is_read(g, x)) continue;
        double start = weft_clock_s();
        enter_firing(g, x);
        WEFT_TRY(weft_exec__read(g->s, &g->s->variant[x->firing]->instr[x->instr]));
        keep_samples(g, x);
        weft_exec__add_slice(g->s, x->instr, start, weft_clock_s());
    }
    return WEFT_OK;
}

/* ---- the device's ---- */

static weft_status issue_item(weft_exec__graph *g, step_item *x, bool held)
{
    weft_exec__stream *s = g->s;
    weft_memory        from;
    enter_firing(g, x);
    if (!x->code) {
        const weft_exec__instr *instr = &s->variant[x->firing]->instr[x->instr];
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

static weft_status take_numbers(weft_exec__graph *g, int segment)
{
    weft_device *d = g->s->device;
    for (int i = 0; i < g->n_number; i++) {
        const step_number *x = &g->number[i];
        weft_memory        to;
        if (x->segment != segment) continue;
        WEFT_TRY(weft_memory_part(&g->pinned, x->at, x->from.bytes, &to));
        WEFT_TRY(d->copy(d, &g->s->dev, &to, &x->from));
    }
    return WEFT_OK;
}

static weft_status issue_segment(weft_exec__graph *g, const step_segment *x, bool held)
{
    for (int i = 0; i < x->n; i++) WEFT_TRY(issue_item(g, &g->item[x->first + i], held));
    return take_numbers(g, (int)(x - g->segment));
}

static weft_status capture_segment(weft_exec__graph *g, step_segment *x)
{
    weft_device       *d         = g->s->device;
    weft_stream *const s[1]      = {&g->s->dev};
    char               text[512] = "";
    WEFT_TRY(d->finish(s[0]));
    WEFT_TRY(d->capture_begin(d, s, 1));
    weft_status st = issue_segment(g, x, false);
    if (st != WEFT_OK) snprintf(text, sizeof text, "%s", weft_error_text());
    weft_status ended = d->capture_end(d, &x->captured);
    return st != WEFT_OK ? WEFT_FAIL(st, "%s", text) : ended;
}

static void trace_segment(weft_exec__graph *g, const step_segment *x)
{
    for (int i = x->first; g->s->timed.device && i < x->first + x->n; i++) {
        const step_item *item = &g->item[i];
        if (!item->code) continue;
        enter_firing(g, item);
        weft_exec__trace_task(g->s, g->s->variant[item->firing], item->code,
                              item->record);
    }
}

/* The first step warms libraries up; a step that is held back leaves out what it must, and is not
 * timed. */
static weft_status run_segment(weft_exec__graph *g, step_segment *x)
{
    bool held = x->writes_state && g->s->e->held_step == g->s->job_step;
    if (held) return issue_segment(g, x, held);
    if (!g->steps) {
        WEFT_TRY(issue_segment(g, x, held));
    } else {
        if (!x->captured.device) WEFT_TRY(capture_segment(g, x));
        WEFT_TRY(g->s->device->replay(&g->s->dev, &x->captured));
    }
    trace_segment(g, x);
    return WEFT_OK;
}

static weft_status run_commit(weft_exec__graph *g, const step_item *x)
{
    enter_firing(g, x);
    weft_task *task = &g->s->variant[x->firing]->task[x->instr];
    WEFT_TRY(g->s->device->call(&g->s->dev, weft_exec__host_work, task));
    weft_exec__add_slice(g->s, x->instr, g->s->dev.start_s, g->s->dev.done_s);
    return WEFT_OK;
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
    for (int i = g && g->done ? g->n_outcome : 0; g && g->done && i < g->n_number; i++)
        if (!strcmp(g->number[i].name, name))
            return (const char *)g->pinned.address + g->number[i].at;
    return NULL;
}

void weft_exec__forget_outputs(weft_exec *e)
{
    if (e->graph) e->graph->done = false;
}

weft_status weft_exec__replay_step(weft_exec *e)
{
    weft_exec__graph  *g = e->graph;
    weft_exec__stream *s = g->s;
    WEFT_TRY(s->device->finish(&s->dev)); /* pinned memory is free */
    /* this step makes its records again; slices that it replaces need no times */
    if (s->trace.per_step < s->trace.cap) WEFT_TRY(weft_exec__find_times(s));
    int64_t n   = s->trace.n;
    s->job_step = e->first_step + s->step;
    put_scalars(g);
    WEFT_TRY(read_samples(g));
    for (int k = 0; k < g->n_segment; k++) {
        step_segment *x = &g->segment[k];
        WEFT_TRY(is_commit(g, &g->item[x->first]) ? run_commit(g, &g->item[x->first])
                                                  : run_segment(g, x));
    }
    g->steps++;
    g->done           = true; /* when the run has ended */
    s->trace.per_step = s->trace.n - n;
    s->step++;
    return WEFT_OK;
}
