/* Before the first step that is replayed (replay.c): can it be, its items in the order in which the
 * device gets them, its segments, the numbers that the host looks at. */
#include "exec/replay_priv.h"

#include <string.h>

enum {
    /* bytes of an output that goes to pinned memory with the step */
    MOST_OUTPUT = 16 << 10
};

static int64_t round_up(int64_t bytes)
{
    return (bytes + WEFT_EXEC__SAMPLE_ALIGN - 1) / WEFT_EXEC__SAMPLE_ALIGN *
           WEFT_EXEC__SAMPLE_ALIGN;
}

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

/* An output that is an operand of the commit point, too. */
static const step_number *find_same(const weft_exec__graph *g, const step_number *x)
{
    for (int i = 0; i < g->n_number; i++) {
        const step_number *k = &g->number[i];
        if (k->segment == x->segment && k->from.address == x->from.address &&
            k->from.bytes == x->from.bytes)
            return k;
    }
    return NULL;
}

static weft_status add_number(weft_exec__graph *g, const char *name, int segment,
                              const weft_operand *o, int32_t slot, int64_t *bytes)
{
    const weft_buffer *b    = &g->s->e->p->buffer[o->buffer];
    int64_t            size = weft_dtype_bytes(o->type.dtype);
    int64_t            all  = size * weft_shape_count(&o->type.shape);
    step_number       *x    = &g->number[g->n_number];
    *x = (step_number){.name = name, .segment = segment, .at = *bytes};
    WEFT_TRY(weft_memory_part(&g->s->e->slab[b->slab],
                              b->offset + slot * b->bytes + o->offset * size, all,
                              &x->from));
    const step_number *same = find_same(g, x);
    x->is_copied            = same != NULL;
    if (same)
        x->at = same->at;
    else
        *bytes += round_up(all);
    g->n_number++;
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

/* Does an instruction of the segment write the buffer? */
static bool writes_buffer(const weft_exec__graph *g, int segment, int32_t buffer)
{
    const step_segment *x = &g->segment[segment];
    for (int n = x->first; n < x->first + x->n; n++) {
        const weft_instr *i = g->item[n].instr < 0 ? NULL : instr_of(&g->item[n])->i;
        for (int k = 0; i && k < i->n_out; k++)
            if (i->out[k].buffer == buffer) return true;
    }
    return false;
}

/* The last segment that writes it; 0: none does. */
static int find_last_writer(const weft_exec__graph *g, int32_t buffer)
{
    int k = g->n_segment - 1;
    while (k > 0 && !writes_buffer(g, k, buffer)) k--;
    return k;
}

/* Numbers of the commit point after the segment before it, outputs after the last one that writes
 * them. */
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
    for (int i = 0; i < p->n_binding; i++) {
        const weft_binding *b = &p->binding[i];
        if (b->kind == WEFT_BIND_OUTPUT && is_small(&b->at) &&
            p->buffer[b->at.buffer].n_slot == 1)
            WEFT_TRY(add_number(g, b->name, find_last_writer(g, b->at.buffer), &b->at, 0,
                                bytes));
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

/* May a step end while the device works on what follows the commit point?  Communication is asked
 * for its end there, and outputs that are written there are read when the step has ended. */
static bool can_leave(const weft_exec__graph *g)
{
    const weft_exec *e = g->s->e;
    if (g->n_segment != 3 || !is_commit(&g->item[g->segment[1].first]) || e->journal ||
        weft_exec__is_timed(e, g->s->device))
        return false;
    for (int n = g->segment[2].first; n < g->n_item; n++)
        if (g->item[n].instr >= 0 && weft_instr_is_comm(instr_of(&g->item[n])->i))
            return false;
    for (int i = 0; i < g->n_number; i++)
        if (g->number[i].segment == 2) return false;
    return true;
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
    g->leaves = can_leave(g);
    WEFT_TRY(open_joins(g));
    if (g->leaves) WEFT_TRY(g->s->device->event_open(g->s->device, 1, &g->updates));
    if (e->o.gaps && g->leaves)
        WEFT_TRY(weft_exec__open_gaps(g->s->device, e->arena, &g->gaps));
    use_one_issuer(e);
    return weft_device_alloc(g->s->device, WEFT_SPACE_PINNED, bytes, &g->pinned);
}
