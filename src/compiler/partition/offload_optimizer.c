/* Updates of parameters move to the host's cores, and states that only they use to its memory.
 *
 * In: a finished program, whose compute stream updates parameters after the commit point.  Out: the
 * updates in chunks, on streams of two devices; between them gradients, and parameters that the
 * device computes with, go through a ring of RING slots in host memory:
 *
 *     compute    ... norm, commit |                                          | the rest, next step
 *     copy_out                    | out.0  out.1  out.2 (when slot 0 is free) ...
 *     update                              | update.0   update.1 ...              device 1: the host
 *     copy_in                                         | in.0   in.1 ...
 *
 * An update runs element by element, so a large parameter is cut into runs of its rows; each
 * element has the bits of the host's kernels, however it is cut.  A step that is held back leaves
 * out update and copy_in alone: they write state.  A cast that is fused onto an update becomes an
 * instruction of its own, as the host's kernels have it. */
#include "partition/partition_priv.h"

enum {
    RING  = 3, /* chunks under way: one is copied out, one updated, one copied in */
    ALIGN = 64 /* bytes */
};

/* Instructions while they are collected. */
typedef struct instr_list {
    weft_instr *instr;
    int         n, cap;
} instr_list;

typedef struct chunk {
    instr_list out, update, in; /* device to host, on the host, host to device */
    int64_t    bytes;           /* of its slot in the ring */
} chunk;

/* What a piece of an update uses of a buffer on the device, and its copy in the ring. */
typedef struct copied {
    weft_operand device, host;
    bool         written;
} copied;

enum {
    MOST_COPIED = 16 /* operands and results of an update and its casts */
};

/* Rows [first, first + n) of an update and the casts of its result. */
typedef struct piece {
    weft_shape shape; /* of the whole parameter */
    int64_t    first, n;
    int        n_copied;
    copied     copied[MOST_COPIED];
} piece;

typedef struct offload_pass {
    weft_program        *p;
    weft_arena          *tmp;
    weft_partition__more more;
    int64_t              chunk_bytes;
    int     at, n_slab; /* of the compute stream: the first firing with updates */
    bool   *on_device;  /* buffer: something else uses it */
    int     n_chunk, cap_chunk, cap_buffer;
    chunk  *chunk;
    int    *slot; /* of each new buffer: the ring's; -1 scalars */
    int     first_buffer;
    int64_t scalar_bytes;
    int     n_scalar;
    copied  scalar[MOST_COPIED];
} offload_pass;

/* ---- which instructions ---- */

bool weft_offload_is_update(const weft_instr *i)
{
    if (i->kind != WEFT_INSTR_COMPUTE) return false;
    switch (i->op) {
    case WEFT_OP_SGD:
    case WEFT_OP_SGD_MOMENTUM:
    case WEFT_OP_ADAM:
    case WEFT_OP_ADAMW:
    case WEFT_OP_ADAGRAD:
    case WEFT_OP_LAMB: return true;
    default: return false;
    }
}

/* Parameters may be parts of one buffer (lower/join.c). */
static bool is_same_place(const weft_operand *a, const weft_operand *b)
{
    return a->buffer == b->buffer && a->offset == b->offset;
}

/* The last update before instruction `at` of an actor that writes what it casts; NULL: it is no
 * cast of a parameter. */
static const weft_instr *find_updated(const weft_actor *a, int at)
{
    const weft_instr *i = &a->instr[at];
    if (i->kind != WEFT_INSTR_COMPUTE || i->op != WEFT_OP_CAST || i->n_post) return NULL;
    for (int n = at - 1; n >= 0; n--)
        if (weft_offload_is_update(&a->instr[n]) &&
            is_same_place(&a->instr[n].out[0], &i->in[0]))
            return &a->instr[n];
    return NULL;
}

static bool is_moved(const weft_actor *a, int at)
{
    return weft_offload_is_update(&a->instr[at]) || find_updated(a, at);
}

static weft_status check_update(const weft_program *p, const weft_instr *i)
{
    if (i->op == WEFT_OP_LAMB)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "offload=optimizer: lamb needs the norms of its steps before the "
            "step is committed, which the host makes after it: choose adamw, "
            "adam, adagrad or sgd, or offload=none");
    for (int k = 0; k < i->n_post; k++)
        if (i->post[k].op != WEFT_OP_CAST || i->post[k].in >= 0)
            return WEFT_FAIL(WEFT_ERR_INTERNAL,
                             "program %s: %s has a fused %s, and cannot run on the host",
                             p->name, i->name, weft_op_get(i->post[k].op)->name);
    return WEFT_OK;
}

/* The first firing of the compute stream with updates; -1: none. */
static weft_status find_updates(offload_pass *k)
{
    const weft_program     *p = k->p;
    const weft_stream_spec *s = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    k->at                     = -1;
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++)
            if (weft_offload_is_update(&p->actor[a].instr[n]))
                WEFT_TRY(check_update(p, &p->actor[a].instr[n]));
    for (int f = 0; s && f < s->n_firing && k->at < 0; f++)
        for (int n = 0; n < p->actor[s->firing[f].actor].n_instr; n++)
            if (weft_offload_is_update(&p->actor[s->firing[f].actor].instr[n])) k->at = f;
    return WEFT_OK;
}

/* ---- states ---- */

static void mark_operands(offload_pass *k, const weft_operand *o, int n)
{
    for (int i = 0; i < n; i++)
        if (o[i].buffer >= 0) k->on_device[o[i].buffer] = true;
}

static weft_status find_on_device(offload_pass *k)
{
    const weft_program *p = k->p;
    k->on_device          = WEFT_ARENA_ARRAY(k->tmp, bool, p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    for (int b = 0; b < p->n_buffer; b++)
        k->on_device[b] = p->slab[p->buffer[b].slab].kind != WEFT_SLAB_STATE;
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++) {
            const weft_instr *i = &p->actor[a].instr[n];
            if (is_moved(&p->actor[a], n)) continue;
            mark_operands(k, i->in, i->n_in);
            mark_operands(k, i->out, i->n_out);
        }
    return WEFT_OK;
}

static bool is_operand_of_update(const weft_program *p, int buffer)
{
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++) {
            const weft_instr *i = &p->actor[a].instr[n];
            for (int x = 0; weft_offload_is_update(i) && x < i->n_own_out; x++)
                if (i->out[x].buffer == buffer) return true;
        }
    return false;
}

/* States that only updates use get a slab of their own; the others move together. */
static weft_status move_states(offload_pass *k)
{
    weft_program *p   = k->p;
    int64_t       end = 0, host_end = 0;
    weft_slab    *slab = WEFT_ARENA_ARRAY(p->arena, weft_slab, p->n_slab + 2);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < p->n_slab; i++) slab[i] = p->slab[i];
    int state = 0;
    while (state < p->n_slab && slab[state].kind != WEFT_SLAB_STATE) state++;
    for (int b = 0; b < p->n_buffer; b++) {
        weft_buffer *f = &p->buffer[b];
        if (f->slab != state) continue;
        if (!k->on_device[b] && !is_operand_of_update(p, b)) k->on_device[b] = true;
        int64_t *at = k->on_device[b] ? &end : &host_end;
        f->offset   = *at;
        *at += f->bytes * f->n_slot;
        if (!k->on_device[b]) f->slab = p->n_slab;
    }
    slab[state].bytes   = end;
    slab[p->n_slab]     = (weft_slab){"host_state", WEFT_SLAB_HOST_STATE, host_end};
    slab[p->n_slab + 1] = (weft_slab){"host_work", WEFT_SLAB_HOST_WORK, 0};
    p->slab             = slab;
    k->n_slab           = p->n_slab;
    p->n_slab += 2;
    return WEFT_OK;
}

/* ---- results in work memory: of a rank's shards, before they are gathered ---- */

static bool overlap(const weft_buffer *a, const weft_buffer *b)
{
    return a->slab == b->slab && a->offset < b->offset + b->bytes * b->n_slot &&
           b->offset < a->offset + a->bytes * a->n_slot;
}

/* Is the buffer of a step's end: of an instruction at or after the first update, or of a
 * collective? */
static void find_used_late(const offload_pass *k, bool *used)
{
    const weft_program *p = k->p;
    for (int s = 0; s < p->n_stream; s++)
        for (int f = p->stream[s].kind == WEFT_STREAM_COMPUTE ? k->at : 0;
             f < p->stream[s].n_firing; f++) {
            const weft_actor *a = &p->actor[p->stream[s].firing[f].actor];
            for (int n = 0; n < a->n_instr; n++) {
                const weft_instr *i = &a->instr[n];
                for (int x = 0; x < i->n_in; x++)
                    if (i->in[x].buffer >= 0) used[i->in[x].buffer] = true;
                for (int x = 0; x < i->n_out; x++)
                    if (i->out[x].buffer >= 0) used[i->out[x].buffer] = true;
            }
        }
}

/* All updates now come before what follows the first of them, so their results are there at the
 * same time: one whose memory was free again in between gets memory of its own. */
static void keep_result(offload_pass *k, int buffer, const bool *used)
{
    weft_program *p    = k->p;
    weft_buffer  *f    = &p->buffer[buffer];
    weft_slab    *slab = &p->slab[f->slab];
    for (int b = 0; b < p->n_buffer; b++) {
        if (b == buffer || !used[b] || !overlap(f, &p->buffer[b])) continue;
        f->offset = slab->bytes;
        slab->bytes += f->bytes * f->n_slot;
        break;
    }
}

static weft_status keep_results(offload_pass *k)
{
    weft_program           *p    = k->p;
    const weft_stream_spec *s    = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    bool                   *used = WEFT_ARENA_ARRAY(k->tmp, bool, p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    find_used_late(k, used);
    for (int f = k->at; f < s->n_firing; f++) {
        const weft_actor *a = &p->actor[s->firing[f].actor];
        for (int n = 0; n < a->n_instr; n++)
            for (int x = 0; is_moved(a, n) && x < a->instr[n].n_out; x++) {
                int32_t b = a->instr[n].out[x].buffer;
                if (b >= 0 && p->slab[p->buffer[b].slab].kind == WEFT_SLAB_WORK)
                    keep_result(k, b, used);
            }
    }
    return WEFT_OK;
}

/* ---- chunks ---- */

static int64_t operand_bytes(const weft_operand *o)
{
    return weft_shape_count(&o->type.shape) * weft_dtype_bytes(o->type.dtype);
}

static weft_status add_instr(weft_arena *a, instr_list *l, const weft_instr *i)
{
    WEFT_TRY(weft_arena_grow(a, (void **)&l->instr, &l->cap, l->n + 1, sizeof *i));
    l->instr[l->n++] = *i;
    return WEFT_OK;
}

/* Host memory for a copy of o: of the running chunk, or (scalar) of the whole step. */
static weft_status add_buffer(offload_pass *k, const weft_operand *o, bool scalar,
                              weft_operand *out)
{
    weft_program *p = k->p;
    int           n = p->n_buffer - k->first_buffer, cap = k->cap_buffer;
    int64_t       bytes = (operand_bytes(o) + ALIGN - 1) / ALIGN * ALIGN;
    int64_t      *end   = scalar ? &k->scalar_bytes : &k->chunk[k->n_chunk - 1].bytes;
    WEFT_TRY(weft_arena_grow(p->arena, (void **)&p->buffer, &k->cap_buffer,
                             p->n_buffer + 1, sizeof *p->buffer));
    if (k->cap_buffer != cap || !k->slot) {
        int *slot = WEFT_ARENA_ARRAY(k->tmp, int, k->cap_buffer);
        WEFT_TRY(weft_arena_status(k->tmp));
        for (int i = 0; i < n; i++) slot[i] = k->slot[i];
        k->slot = slot;
    }
    p->buffer[p->n_buffer] = (weft_buffer){
        .name   = weft_arena_printf(p->arena, "host.%d.%s", n, p->buffer[o->buffer].name),
        .slab   = k->n_slab + 1,
        .offset = *end,
        .bytes  = bytes,
        .n_slot = 1};
    k->slot[n] = scalar ? -1 : (k->n_chunk - 1) % RING;
    *end += bytes;
    *out = weft_operand_make(p->n_buffer++, o->type.dtype, &o->type.shape);
    return weft_arena_status(p->arena);
}

static weft_status add_copy(offload_pass *k, instr_list *l, const weft_operand *from,
                            const weft_operand *to, const weft_operand *of)
{
    weft_instr i;
    WEFT_TRY(weft_partition__move(k->p, WEFT_INSTR_COPY, k->p->buffer[of->buffer].name,
                                  from, to, &i));
    return add_instr(k->tmp, l, &i);
}

/* Numbers of the step (lr, scale, step): copied once, by the first chunk. */
static weft_status copy_scalar(offload_pass *k, weft_operand *o)
{
    for (int i = 0; i < k->n_scalar; i++)
        if (k->scalar[i].device.buffer == o->buffer &&
            k->scalar[i].device.offset == o->offset) {
            *o = k->scalar[i].host;
            return WEFT_OK;
        }
    if (k->n_scalar == MOST_COPIED)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: updates have too many scalars",
                         k->p->name);
    copied *c = &k->scalar[k->n_scalar++];
    c->device = *o;
    WEFT_TRY(add_buffer(k, o, true, &c->host));
    WEFT_TRY(add_copy(k, &k->chunk[0].out, &c->device, &c->host, &c->device));
    *o = c->host;
    return WEFT_OK;
}

/* The rows of the piece, where o is as large as the parameter. */
static bool cut_rows(const piece *x, weft_operand *o)
{
    if (!weft_shape_equal(&o->type.shape, &x->shape)) return false;
    if (!x->shape.n) return true;
    o->offset += x->first * o->stride[0];
    o->type.shape.d[0] = x->n;
    return true;
}

/* *o becomes what the host's instruction uses. */
static weft_status place_operand(offload_pass *k, piece *x, weft_operand *o, bool is_out,
                                 bool scalar)
{
    if (o->buffer < 0) return WEFT_OK;
    if (scalar) return copy_scalar(k, o);
    if (!cut_rows(x, o))
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "program %s: %s has not its parameter's shape", k->p->name,
                         k->p->buffer[o->buffer].name);
    if (!k->on_device[o->buffer]) return WEFT_OK;
    int n = 0;
    while (n < x->n_copied && !is_same_place(&x->copied[n].device, o)) n++;
    if (n == MOST_COPIED)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: an update has too many operands",
                         k->p->name);
    copied *c = &x->copied[n];
    if (n == x->n_copied) {
        *c = (copied){.device = *o};
        WEFT_TRY(add_buffer(k, o, false, &c->host));
        x->n_copied++;
        if (!is_out) WEFT_TRY(add_copy(k, &k->chunk[k->n_chunk - 1].out, o, &c->host, o));
    }
    c->written = c->written || is_out;
    *o         = c->host;
    return WEFT_OK;
}

/* Operands of an update that are as large as the parameter: p, g and its states, by name of the
 * operator's row; the others are numbers of the step. */
static bool is_scalar(const weft_instr *i, int operand)
{
    return weft_offload_is_update(i) && operand > i->n_own_out;
}

static weft_status place_instr(offload_pass *k, piece *x, const weft_instr *from)
{
    weft_instr i;
    WEFT_TRY(weft_instr_copy(from, k->p->arena, &i));
    i.n_out  = i.n_own_out;
    i.n_post = 0;
    for (int n = 0; n < i.n_in; n++)
        WEFT_TRY(place_operand(k, x, &i.in[n], false, is_scalar(&i, n)));
    for (int n = 0; n < i.n_out; n++)
        WEFT_TRY(place_operand(k, x, &i.out[n], true, false));
    return add_instr(k->tmp, &k->chunk[k->n_chunk - 1].update, &i);
}

/* A fused cast as an instruction of its own. */
static weft_status place_post(offload_pass *k, piece *x, const weft_instr *update,
                              const weft_post *post)
{
    weft_instr i;
    if (post->out < 0) return WEFT_OK;
    WEFT_TRY(weft_partition__move(k->p, WEFT_INSTR_COMPUTE, update->name, &update->out[0],
                                  &update->out[post->out], &i));
    i.op   = post->op;
    i.attr = post->attr;
    return place_instr(k, x, &i);
}

/* A piece into the last chunk: what it reads comes, its update, its casts, what it wrote goes. */
static weft_status place_piece(offload_pass *k, piece *x, const weft_actor *a, int at)
{
    const weft_instr *update = &a->instr[at];
    WEFT_TRY(place_instr(k, x, update));
    for (int n = 0; n < update->n_post; n++)
        WEFT_TRY(place_post(k, x, update, &update->post[n]));
    for (int n = at + 1; n < a->n_instr; n++)
        if (find_updated(a, n) == update) WEFT_TRY(place_instr(k, x, &a->instr[n]));
    for (int n = 0; n < x->n_copied; n++) {
        const copied *c = &x->copied[n];
        if (c->written)
            WEFT_TRY(add_copy(k, &k->chunk[k->n_chunk - 1].in, &c->host, &c->device,
                              &c->device));
    }
    return WEFT_OK;
}

static weft_status begin_chunk(offload_pass *k)
{
    WEFT_TRY(weft_arena_grow(k->tmp, (void **)&k->chunk, &k->cap_chunk, k->n_chunk + 1,
                             sizeof *k->chunk));
    k->chunk[k->n_chunk++] = (chunk){.bytes = 0};
    return WEFT_OK;
}

/* An update in pieces of at most chunk_bytes of gradients, if its rows are not longer. */
static weft_status place_update(offload_pass *k, const weft_actor *a, int at)
{
    const weft_operand *g    = &a->instr[at].in[1];
    int64_t             rows = g->type.shape.n ? g->type.shape.d[0] : 1;
    int64_t             row  = rows ? operand_bytes(g) / rows : 0;
    int64_t             most = row && row < k->chunk_bytes ? k->chunk_bytes / row : 1;
    for (int64_t first = 0; first < rows; first += most) {
        piece x = {.shape = a->instr[at].in[0].type.shape,
                   .first = first,
                   .n     = rows - first < most ? rows - first : most};
        if (!k->n_chunk || k->chunk[k->n_chunk - 1].bytes + x.n * row > k->chunk_bytes)
            WEFT_TRY(begin_chunk(k));
        WEFT_TRY(place_piece(k, &x, a, at));
    }
    return WEFT_OK;
}

static weft_status make_chunks(offload_pass *k)
{
    weft_program           *p = k->p;
    const weft_stream_spec *s = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    k->first_buffer           = p->n_buffer;
    k->cap_buffer             = p->n_buffer + 1;
    weft_buffer *buffer       = WEFT_ARENA_ARRAY(p->arena, weft_buffer, k->cap_buffer);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int b = 0; b < p->n_buffer; b++) buffer[b] = p->buffer[b];
    p->buffer = buffer;
    for (int f = k->at; f < s->n_firing; f++) {
        const weft_actor *a = &p->actor[s->firing[f].actor];
        for (int n = 0; n < a->n_instr; n++)
            if (weft_offload_is_update(&a->instr[n])) WEFT_TRY(place_update(k, a, n));
    }
    return WEFT_OK;
}

/* Slots of the ring follow the scalars, each as large as the largest chunk. */
static void place_ring(offload_pass *k)
{
    weft_program *p    = k->p;
    int64_t       most = 0;
    for (int i = 0; i < k->n_chunk; i++)
        if (k->chunk[i].bytes > most) most = k->chunk[i].bytes;
    for (int b = k->first_buffer; b < p->n_buffer; b++)
        if (k->slot[b - k->first_buffer] >= 0)
            p->buffer[b].offset += k->scalar_bytes + k->slot[b - k->first_buffer] * most;
    p->slab[k->n_slab + 1].bytes =
        k->scalar_bytes + most * (k->n_chunk < RING ? k->n_chunk : RING);
}

/* ---- streams ---- */

/* What is before the first update becomes an actor of its own. */
static weft_status cut_front(offload_pass *k, int actor, int *front)
{
    weft_program *p = k->p;
    weft_actor   *a = &p->actor[actor];
    int           n = 0;
    while (!weft_offload_is_update(&a->instr[n])) n++;
    const char *name = weft_arena_printf(p->arena, "%s.front", a->name);
    WEFT_TRY(weft_arena_status(p->arena));
    WEFT_TRY(weft_partition__more_actor(&k->more, name, a->stream, a->instr, n, front));
    a = &p->actor[actor];
    a->instr += n;
    a->n_instr -= n;
    return WEFT_OK;
}

static void remove_moved(weft_actor *a, weft_instr *kept)
{
    int n = 0;
    for (int i = 0; i < a->n_instr; i++)
        if (!is_moved(a, i)) kept[n++] = a->instr[i];
    a->instr   = kept;
    a->n_instr = n;
}

static weft_status remove_updates(offload_pass *k)
{
    weft_program           *p = k->p;
    const weft_stream_spec *s = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    for (int f = k->at; f < s->n_firing; f++) {
        weft_actor *a    = &p->actor[s->firing[f].actor];
        weft_instr *kept = WEFT_ARENA_ARRAY(p->arena, weft_instr, a->n_instr + 1);
        WEFT_TRY(weft_arena_status(p->arena));
        remove_moved(a, kept);
    }
    return WEFT_OK;
}

static weft_status insert_front(offload_pass *k, int front)
{
    weft_stream_spec *s    = weft_program_stream(k->p, WEFT_STREAM_COMPUTE);
    weft_firing      *list = WEFT_ARENA_ARRAY(k->p->arena, weft_firing, s->n_firing + 1);
    WEFT_TRY(weft_arena_status(k->p->arena));
    for (int f = 0; f < s->n_firing; f++) list[f + (f >= k->at)] = s->firing[f];
    list[k->at]       = s->firing[k->at];
    list[k->at].actor = front;
    s->firing         = list;
    s->n_firing++;
    return WEFT_OK;
}

/* Edges of the actor that was cut are also those of its front. */
static weft_status spread_edges(offload_pass *k, int actor, int front)
{
    int n = k->p->n_edge;
    for (int i = 0; i < n; i++) {
        weft_edge e = k->p->edge[i];
        if (e.from == actor) e.from = front;
        if (e.to == actor) e.to = front;
        if (e.from != k->p->edge[i].from || e.to != k->p->edge[i].to)
            WEFT_TRY(weft_partition__more_edge(&k->more, e));
    }
    return WEFT_OK;
}

static weft_status add_stream(offload_pass *k, const char *name, weft_stream_kind kind,
                              int32_t device, int32_t threads, int32_t *out)
{
    weft_program    *p = k->p;
    weft_stream_spec s = {
        .name = name, .kind = kind, .device = device, .threads = threads};
    s.firing = WEFT_ARENA_ARRAY(p->arena, weft_firing, k->n_chunk + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    return weft_program_add_stream(p, s, out);
}

/* The next actor of a stream, which fires once a step. */
static weft_status add_actor(offload_pass *k, int32_t stream, const char *what,
                             int number, const instr_list *l, int *out)
{
    weft_program *p    = k->p;
    const char   *name = weft_arena_printf(p->arena, "offload.%s.%d", what, number);
    WEFT_TRY(weft_arena_status(p->arena));
    WEFT_TRY(weft_partition__more_actor(&k->more, name, stream, l->instr, l->n, out));
    weft_stream_spec *s      = &p->stream[stream];
    s->firing[s->n_firing++] = (weft_firing){.actor = *out, .micro = -1};
    return WEFT_OK;
}

static weft_status order(offload_pass *k, int from, int to)
{
    return weft_partition__more_edge(
        &k->more, (weft_edge){.from = from, .to = to, .credits = 1, .per_step = true});
}

static weft_status make_streams(offload_pass *k, int front, int rest)
{
    int32_t copy_out, update, copy_in;
    int    *in = WEFT_ARENA_ARRAY(k->tmp, int, k->n_chunk + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    WEFT_TRY(add_stream(k, "copy_out", WEFT_STREAM_IO, 0, 1, &copy_out));
    WEFT_TRY(add_stream(k, "update", WEFT_STREAM_HOST, 1, 0, &update));
    WEFT_TRY(add_stream(k, "copy_in", WEFT_STREAM_IO, 0, 1, &copy_in));
    for (int i = 0; i < k->n_chunk; i++) {
        int out, up;
        WEFT_TRY(add_actor(k, copy_out, "out", i, &k->chunk[i].out, &out));
        WEFT_TRY(add_actor(k, update, "update", i, &k->chunk[i].update, &up));
        WEFT_TRY(add_actor(k, copy_in, "in", i, &k->chunk[i].in, &in[i]));
        if (!i) WEFT_TRY(order(k, front, out));
        if (i >= RING) WEFT_TRY(order(k, in[i - RING], out));
        WEFT_TRY(order(k, out, up));
        WEFT_TRY(order(k, up, in[i]));
    }
    return order(k, in[k->n_chunk - 1], rest);
}

static weft_status offload_updates(offload_pass *k)
{
    int front, rest;
    WEFT_TRY(find_updates(k));
    if (k->at < 0) return WEFT_OK;
    rest = weft_program_stream(k->p, WEFT_STREAM_COMPUTE)->firing[k->at].actor;
    WEFT_TRY(find_on_device(k));
    WEFT_TRY(move_states(k));
    WEFT_TRY(keep_results(k));
    WEFT_TRY(make_chunks(k));
    if (!k->n_chunk) return WEFT_OK; /* parameters without elements */
    place_ring(k);
    WEFT_TRY(weft_partition__more_start(k->p, &k->more));
    WEFT_TRY(cut_front(k, rest, &front));
    WEFT_TRY(remove_updates(k));
    WEFT_TRY(insert_front(k, front));
    WEFT_TRY(spread_edges(k, rest, front));
    return make_streams(k, front, rest);
}

static weft_status offload_optimizer(weft_program *p, const void *options)
{
    offload_pass k = {.p = p, .chunk_bytes = *(const int64_t *)options};
    WEFT_TRY(weft_arena_create(&k.tmp));
    weft_status st = offload_updates(&k);
    weft_arena_destroy(k.tmp);
    return st;
}

weft_status weft_pass_offload_optimizer(const weft_program *in, int64_t chunk_bytes,
                                        weft_program **out)
{
    return weft_partition__edit_copy(in, offload_optimizer, &chunk_bytes, out);
}
