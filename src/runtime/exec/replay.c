/* Steps as graphs: where a device can capture work, a step is issued once, captured once and then
 * replayed, in two segments: up to the commit point and after it.  Where it cannot, every step is
 * issued in the same order.
 *
 *     reads            all micro-batches' samples, kept in pinned memory of our own: read while
 *                      the device worked on the step before, up to its commit point
 *     segment 1        scalars, samples to their place, kernels, the outcome to pinned memory
 *     commit           the host looks at the outcome
 *     segment 2        updates, outputs to pinned memory
 *
 * Only for programs whose streams are one device's and whose host work is reading and the commit
 * point: nobody else waits in the middle of a step.  Firings of several streams are given in one
 * order, in which all that does not wait for the commit point comes before it.  What a graph reads
 * from the host has one address for its life; it is written when all streams are idle.  Of a traced
 * step every task is an item, with a record of the graph's before and after it: times without the
 * host's part. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "exec/exec_priv.h"

enum {
    ALIGN = 64,
    /* bytes of an output that goes to pinned memory with the step */
    MOST_OUTPUT = 16 << 10
};

/* What a step does, in order. */
typedef struct step_item {
    weft_exec__stream *s;
    int                firing, instr;
    bool               enters, leaves; /* the first and the last of its firing */
    const weft_code   *code;           /* NULL: a read or the commit point, or nothing */
    bool               writes_state;
    int                scalars; /* number of those that are written before it; -1 none */
    int64_t            samples; /* of a read: where its results are kept */
    int64_t            record;  /* where tasks are timed: the first one of its two */
} step_item;

/* A run of items that the device gets at once. */
typedef struct step_segment {
    int           first, n;
    bool          writes_state;
    weft_captured captured; /* all zero: not yet */
} step_segment;

/* Numbers that the host looks at after a segment: an operand of the commit point, or a small
 * output. */
typedef struct step_number {
    const char *name; /* of an output; NULL: an operand */
    int         segment;
    weft_memory from;
    int64_t     at; /* in pinned memory */
} step_number;

struct weft_exec__graph {
    weft_exec__stream *s; /* the one with the commit point */
    /* all others are joined to it at the end of a segment: segments run so far */
    weft_event    join[WEFT_MAX_STREAM];
    int64_t       n_joined;
    int           n_item, n_segment, n_scalars;
    step_item    *item;
    step_segment *segment;
    int           n_number, n_outcome;
    step_number  *number; /* the first n_outcome are operands, in order */
    weft_memory   pinned; /* scalars, samples, numbers */
    /* samples of the next step, read while the device is busy; the step they are of, -1: none */
    char   *ahead;
    int64_t ahead_step, first_sample;
    int64_t steps;  /* that were run */
    int     next;   /* the first segment of the running step that was not begun */
    bool    within; /* ... the one before it was not given to the device as a whole */
    bool    done;   /* numbers are those of the last step */
};

/* ---- before the first step ---- */

/* Host work that can wait until the segment is over, or be done before it: the commit point, and
 * reads into memory that is copied to the device. */
static bool can_be_apart(const weft_exec *e, const weft_instr *i)
{
    if (weft_instr_is_comm(i))
        return !weft_exec__comm_needs_host(e, e->stream[0].device, i);
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

static bool has_one_device(const weft_exec *e)
{
    for (int i = 1; i < e->n_stream; i++)
        if (e->stream[i].device != e->stream[0].device) return false;
    return true;
}

bool weft_exec__can_replay(const weft_exec *e)
{
    return e->n_stream > 0 && !e->stream[0].device->needs_thread && !e->o.price &&
           !e->o.carry && has_one_device(e) && has_only_reads_and_commit(e);
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

static int count_items(const weft_exec *e)
{
    int n = 0;
    for (int k = 0; k < e->n_stream; k++) {
        const weft_stream_spec *spec = &e->p->stream[e->stream[k].number];
        for (int i = 0; i < spec->n_firing; i++)
            n += e->p->actor[spec->firing[i].actor].n_instr + 1;
    }
    return n;
}

static int micro_of(const weft_firing *f)
{
    return f->micro < 0 ? 0 : f->micro;
}

/* While items are listed. */
typedef struct step_walk {
    int      at[WEFT_MAX_STREAM];    /* the next firing of each stream */
    int      micro[WEFT_MAX_STREAM]; /* whose scalars the device has */
    int64_t *given;                  /* of each edge: messages, credits */
    int64_t  bytes;                  /* of samples */
} step_walk;

static void list_tasks(weft_exec__graph *g, const weft_exec__variant *v, int n,
                       step_item x)
{
    int run   = v->n_grouped[n];
    x.scalars = -1;
    x.enters  = false;
    for (int k = 1; x.s->timed.device && k < run; k++) {
        x.code++;
        g->item[g->n_item++] = x;
    }
}

/* The items of the next firing of stream k. */
static void list_firing(weft_exec__graph *g, step_walk *w, int k)
{
    weft_exec__stream        *s    = &g->s->e->stream[k];
    weft_exec                *e    = s->e;
    int                       f    = w->at[k]++;
    const weft_firing        *fire = &e->p->stream[s->number].firing[f];
    const weft_exec__variant *v    = s->variant[f];
    const weft_code          *code = v->code;
    const int                *run  = e->actor[fire->actor].run;
    int first = g->n_item, n_instr = e->p->actor[fire->actor].n_instr;
    for (int n = 0; n < n_instr; n += run[n] ? run[n] : 1) {
        const weft_instr *i = v->instr[n].i;
        step_item         x = {.s            = s,
                               .firing       = f,
                               .instr        = n,
                               .code         = run[n] ? code : NULL,
                               .writes_state = weft_instr_writes_state(e->p, i),
                               .scalars      = -1};
        if (x.code && w->micro[k] != micro_of(fire)) {
            w->micro[k] = micro_of(fire);
            x.scalars   = g->n_scalars++;
        }
        if (i->kind == WEFT_INSTR_READ) {
            x.samples = w->bytes;
            w->bytes += sample_bytes(i);
        }
        g->item[g->n_item++] = x;
        if (run[n]) list_tasks(g, v, n, x);
        if (run[n]) code += s->timed.device ? v->n_grouped[n] : 1;
    }
    if (g->n_item == first)
        g->item[g->n_item++] =
            (step_item){.s = s, .firing = f, .instr = -1, .scalars = -1};
    g->item[first].enters         = true;
    g->item[g->n_item - 1].leaves = true;
}

/* ---- the order of firings ---- */

/* What the next firing of stream k waits for that was not given; NULL: nothing.  What is of earlier
 * steps was. */
static const weft_wait *find_blocking(const weft_exec *e, const step_walk *w, int k)
{
    const weft_firing_order *f = &e->order.firing[e->stream[k].number][w->at[k]];
    for (int i = 0; i < f->n_wait; i++)
        if (w->given[2 * f->wait[i].edge + f->wait[i].credit] < f->wait[i].at)
            return &f->wait[i];
    return NULL;
}

static bool is_left(const weft_exec *e, const step_walk *w, int k)
{
    return w->at[k] < e->p->stream[e->stream[k].number].n_firing;
}

static int stream_that_gives(const weft_exec *e, const weft_wait *wait)
{
    const weft_edge *d     = &e->p->edge[wait->edge];
    int32_t          actor = wait->credit ? d->to : d->from;
    for (int k = 0; k < e->n_stream; k++)
        if (e->stream[k].number == e->p->actor[actor].stream) return k;
    return -1;
}

/* Stream k, or the one that it waits for; -1: none of them can go on. */
static int find_ready(const weft_exec *e, const step_walk *w, int k)
{
    for (int hops = 0; hops <= e->n_stream && k >= 0 && is_left(e, w, k); hops++) {
        const weft_wait *wait = find_blocking(e, w, k);
        if (!wait) return k;
        k = stream_that_gives(e, wait);
    }
    return -1;
}

static bool has_commit(const weft_exec *e, int k, int firing)
{
    const weft_actor *a =
        &e->p->actor[e->p->stream[e->stream[k].number].firing[firing].actor];
    for (int n = 0; n < a->n_instr; n++)
        if (a->instr[n].kind == WEFT_INSTR_COMMIT) return true;
    return false;
}

static bool has_send(const weft_exec *e, int k, int firing)
{
    const weft_actor *a =
        &e->p->actor[e->p->stream[e->stream[k].number].firing[firing].actor];
    return a->n_instr > 0 && a->instr[0].kind == WEFT_INSTR_SEND;
}

/* The stream to go on with.  Sends at once; then the first stream (computing) or whatever it waits
 * for; one that comes to the commit point only when no other can.  So the order would do for a
 * device that works through it one by one: a device may hold the thread that gives work until all
 * that it was given is done (code that is loaded when it is first used), and peers must not wait
 * for what could have been given before. */
static int next_stream(const weft_exec *e, const step_walk *w, bool *left)
{
    int found = -1;
    *left     = false;
    for (int k = 0; k < e->n_stream; k++) {
        if (!is_left(e, w, k)) continue;
        *left = true;
        if (find_blocking(e, w, k)) continue;
        if (has_send(e, k, w->at[k])) return k;
        found = k;
    }
    for (int k = 0; k < e->n_stream; k++) {
        int ready = find_ready(e, w, k);
        if (ready >= 0 && !has_commit(e, ready, w->at[ready])) return ready;
    }
    return found;
}

static weft_status list_items(weft_exec__graph *g, step_walk *w)
{
    weft_exec *e = g->s->e;
    bool       left;
    for (int k; (k = next_stream(e, w, &left)) >= 0;) {
        const weft_firing_order *f = &e->order.firing[e->stream[k].number][w->at[k]];
        for (int i = 0; i < f->n_give; i++)
            w->given[2 * f->give[i].edge + f->give[i].credit]++;
        list_firing(g, w, k);
    }
    return left ? WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: streams wait for each other",
                            e->p->name)
                : WEFT_OK;
}

static const weft_exec__instr *instr_of(const step_item *x)
{
    return &x->s->variant[x->firing]->instr[x->instr];
}

static bool is_read(const step_item *x)
{
    return x->instr >= 0 && instr_of(x)->i->kind == WEFT_INSTR_READ;
}

static bool is_commit(const step_item *x)
{
    return x->instr >= 0 && instr_of(x)->i->kind == WEFT_INSTR_COMMIT;
}

/* Reads are of a segment, too: there samples go to their place. */
static void cut_segments(weft_exec__graph *g)
{
    for (int i = 0; i < g->n_item; i++) {
        bool starts =
            !g->n_segment || is_commit(&g->item[i]) || (i && is_commit(&g->item[i - 1]));
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
    int64_t            all  = size * weft_shape_count(&o->type.shape);
    step_number       *x    = &g->number[g->n_number];
    *x                      = (step_number){name, segment, {0}, *bytes};
    WEFT_TRY(weft_memory_part(&g->s->e->slab[b->slab],
                              b->offset + slot * b->bytes + o->offset * size, all,
                              &x->from));
    g->n_number++;
    *bytes += round_up(all);
    return WEFT_OK;
}

static weft_status add_outcome(weft_exec__graph *g, int segment, const step_item *x,
                               int64_t *bytes)
{
    const weft_exec   *e = g->s->e;
    const weft_instr  *i = instr_of(x)->i;
    const weft_firing *f = &e->p->stream[x->s->number].firing[x->firing];
    for (int k = 0; k < i->n_in; k++)
        WEFT_TRY(add_number(g, NULL, segment, &i->in[k],
                            weft_program_slot(e->p, i, false, i->in[k].buffer, f),
                            bytes));
    g->n_outcome = g->n_number;
    return WEFT_OK;
}

/* Numbers without gaps, some KB of them. */
static bool is_small(const weft_operand *o)
{
    int64_t   n = weft_shape_count(&o->type.shape);
    weft_view v = {.dtype = o->type.dtype, .shape = o->type.shape};
    memcpy(v.stride, o->stride, sizeof v.stride);
    return n > 0 && n * weft_dtype_bytes(o->type.dtype) <= MOST_OUTPUT &&
           (n == 1 || weft_view_contiguous(&v));
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
        if (is_commit(x) && instr_of(x)->i->n_in <= WEFT_MAX_OUTCOME)
            WEFT_TRY(add_outcome(g, k - 1, x, bytes));
    }
    int last = g->n_segment - 1;
    if (last > 0 && is_commit(&g->item[g->segment[last].first])) last--;
    for (int i = 0; i < p->n_binding; i++) {
        const weft_binding *b = &p->binding[i];
        if (b->kind == WEFT_BIND_OUTPUT && is_small(&b->at) &&
            p->buffer[b->at.buffer].n_slot == 1)
            WEFT_TRY(add_number(g, b->name, last, &b->at, 0, bytes));
    }
    return WEFT_OK;
}

static weft_exec__stream *find_main(weft_exec *e)
{
    for (int k = 0; k < e->n_stream; k++)
        for (int f = 0; f < e->p->stream[e->stream[k].number].n_firing; f++)
            if (has_commit(e, k, f)) return &e->stream[k];
    return &e->stream[0];
}

static weft_status open_joins(weft_exec__graph *g)
{
    weft_exec *e = g->s->e;
    for (int k = 0; k < e->n_stream; k++)
        if (&e->stream[k] != g->s)
            WEFT_TRY(g->s->device->event_open(g->s->device, 4, &g->join[k]));
    return WEFT_OK;
}

/* One thread gives all of a step. */
static void use_one_issuer(weft_exec *e)
{
    weft_exec__issuer *u = &e->issuer[0];
    e->n_issuer          = 1;
    u->n                 = 0;
    for (int k = 0; k < e->n_stream; k++) u->stream[u->n++] = &e->stream[k];
}

weft_status weft_exec__make_graph(weft_exec *e)
{
    weft_exec__graph *g = e->graph = WEFT_ARENA_NEW(e->arena, weft_exec__graph);
    int               n            = count_items(e);
    step_walk         w            = {.bytes = 0};
    WEFT_TRY(weft_arena_status(e->arena));
    g->s       = find_main(e);
    g->item    = WEFT_ARENA_ARRAY(e->arena, step_item, n + 1);
    g->segment = WEFT_ARENA_ARRAY(e->arena, step_segment, n + 1);
    w.given    = WEFT_ARENA_ARRAY(e->arena, int64_t, 2 * e->p->n_edge + 1);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int k = 0; k < e->n_stream; k++) w.micro[k] = -1;
    WEFT_TRY(list_items(g, &w));
    cut_segments(g);
    int64_t first = round_up(g->n_scalars * (int64_t)sizeof(weft_step_scalars));
    for (int i = 0; i < g->n_item; i++) g->item[i].samples += first;
    int64_t bytes   = round_up(first + w.bytes);
    g->first_sample = first;
    g->ahead_step   = -1;
    g->ahead        = WEFT_ARENA_ARRAY(e->arena, char, w.bytes + 1);
    WEFT_TRY(weft_arena_status(e->arena));
    WEFT_TRY(list_numbers(g, &bytes));
    WEFT_TRY(open_joins(g));
    use_one_issuer(e);
    return weft_device_alloc(g->s->device, WEFT_SPACE_PINNED, bytes, &g->pinned);
}

void weft_exec__free_graph(weft_exec *e)
{
    weft_exec__graph *g = e->graph;
    for (int i = 0; g && i < g->n_segment; i++)
        if (g->segment[i].captured.device)
            g->s->device->captured_free(&g->segment[i].captured);
    for (int k = 0; g && k < WEFT_MAX_STREAM; k++)
        if (g->join[k].device) g->s->device->event_close(&g->join[k]);
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

static void put_scalars(weft_exec__graph *g)
{
    weft_step_scalars *to = g->pinned.address;
    for (int i = 0; i < g->n_item; i++) {
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
        if (x->segment != segment) continue;
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
    for (int i = 0; i < x->n; i++) WEFT_TRY(issue_item(g, &g->item[x->first + i], held));
    WEFT_TRY(join_streams(g));
    return take_numbers(g, (int)(x - g->segment));
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

/* The first step warms libraries up; a step that is held back leaves out what it must, and is not
 * timed. */
static weft_status run_segment(weft_exec__graph *g, step_segment *x)
{
    bool held = x->writes_state && g->s->e->held_step == g->s->job_step;
    if (held || !g->steps || !g->s->device->capture_begin) {
        WEFT_TRY(issue_segment(g, x, held));
    } else {
        if (!x->captured.device) WEFT_TRY(capture_segment(g, x));
        WEFT_TRY(g->s->device->replay(&g->s->dev, &x->captured));
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
    weft_exec__graph *g = e->graph;
    int64_t           n[WEFT_MAX_STREAM];
    WEFT_TRY(finish_streams(e)); /* pinned memory is free */
    for (int k = 0; k < e->n_stream; k++) {
        weft_exec__stream *s = &e->stream[k];
        /* this step makes its records again; slices that it replaces need no times */
        if (s->trace.per_step < s->trace.cap) WEFT_TRY(weft_exec__find_times(s));
        n[k]        = s->trace.n;
        s->job_step = e->first_step + s->step;
    }
    weft_exec__note_device_step(e, g->s->job_step + 1);
    put_scalars(g);
    WEFT_TRY(read_samples(g));
    for (g->next = 0; g->next < g->n_segment;) {
        step_segment *x = &g->segment[g->next++];
        g->within       = true;
        if (is_commit(&g->item[x->first])) read_ahead(g);
        WEFT_TRY(is_commit(&g->item[x->first]) ? run_commit(g, &g->item[x->first])
                                               : run_segment(g, x));
        g->within = false;
    }
    g->steps++;
    g->done = true; /* when the run has ended */
    for (int k = 0; k < e->n_stream; k++) {
        e->stream[k].trace.per_step = e->stream[k].trace.n - n[k];
        e->stream[k].step++;
    }
    return WEFT_OK;
}

weft_status weft_exec__replay_alone(weft_exec *e)
{
    weft_exec__graph *g = e->graph;
    if (g->within && !is_commit(&g->item[g->segment[g->next - 1].first]))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: a part of the updates was begun",
                         e->p->name);
    for (; g->next < g->n_segment; g->next++)
        WEFT_TRY(issue_segment(g, &g->segment[g->next], false));
    return finish_streams(e);
}
