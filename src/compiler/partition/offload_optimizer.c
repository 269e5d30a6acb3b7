/* Updates of parameters move to the host's cores, and states that only they use to its memory.
 *
 * In: a finished program, whose compute stream updates parameters after the commit point.  Out: the
 * updates in chunks, on streams of two devices; between them gradients, and parameters that the
 * device computes with, are copied through host memory.  offload_streams.c says when.
 *
 * An update runs element by element, so a large parameter is cut into runs of its rows; each
 * element has the bits of the host's kernels, however it is cut.  A step that is held back leaves
 * out update and copy_in alone: they write state.  The cast of a new parameter is fused onto its
 * update: it is made while the parameter is in the cache. */
#include <stdlib.h>

#include "partition/offload_priv.h"

enum {
    ALIGN = 64 /* bytes */
};

/* Rows [first, first + n) of an update and the casts of its result. */
typedef struct piece {
    weft_shape          shape; /* of the whole parameter */
    int64_t             first, n;
    int                 n_copied;
    weft_offload_copied copied[WEFT_OFFLOAD_MOST_COPIED];
} piece;

typedef weft_offload_pass offload_pass;

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

bool weft_offload__is_moved(const weft_actor *a, int at)
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
            if (weft_offload__is_moved(&p->actor[a], n)) continue;
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

bool weft_offload__overlap(const weft_buffer *a, const weft_buffer *b)
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
        if (b == buffer || !used[b] || !weft_offload__overlap(f, &p->buffer[b])) continue;
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
            for (int x = 0; weft_offload__is_moved(a, n) && x < a->instr[n].n_out; x++) {
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

static weft_status add_instr(weft_arena *a, weft_offload_list *l, const weft_instr *i)
{
    WEFT_TRY(weft_arena_grow(a, (void **)&l->instr, &l->cap, l->n + 1, sizeof *i));
    l->instr[l->n++] = *i;
    return WEFT_OK;
}

/* Where bytes of a kind of host memory end so far. */
static int64_t *find_end(offload_pass *k, int slot)
{
    if (slot == WEFT_OFFLOAD_SCALAR) return &k->scalar_bytes;
    return slot == WEFT_OFFLOAD_KEPT ? &k->kept_bytes
                                     : &k->chunk[k->n_chunk - 1].ring_bytes;
}

/* Host memory for a copy of o. */
static weft_status add_buffer(offload_pass *k, const weft_operand *o, int slot,
                              weft_operand *out)
{
    weft_program *p = k->p;
    int           n = p->n_buffer - k->first_buffer, cap = k->cap_buffer;
    int64_t       bytes = (operand_bytes(o) + ALIGN - 1) / ALIGN * ALIGN;
    int64_t      *end   = find_end(k, slot);
    WEFT_TRY(weft_arena_grow(p->arena, (void **)&p->buffer, &k->cap_buffer,
                             p->n_buffer + 1, sizeof *p->buffer));
    if (k->cap_buffer != cap || !k->slot) {
        int *more = WEFT_ARENA_ARRAY(k->tmp, int, k->cap_buffer);
        WEFT_TRY(weft_arena_status(k->tmp));
        for (int i = 0; i < n; i++) more[i] = k->slot[i];
        k->slot = more;
    }
    p->buffer[p->n_buffer] = (weft_buffer){
        .name   = weft_arena_printf(p->arena, "host.%d.%s", n, p->buffer[o->buffer].name),
        .slab   = k->n_slab + 1,
        .offset = *end,
        .bytes  = bytes,
        .n_slot = 1};
    k->slot[n] = slot;
    *end += bytes;
    if (slot != WEFT_OFFLOAD_SCALAR) k->chunk[k->n_chunk - 1].bytes += bytes;
    *out = weft_operand_make(p->n_buffer++, o->type.dtype, &o->type.shape);
    return weft_arena_status(p->arena);
}

static weft_status add_copy(offload_pass *k, weft_offload_list *l,
                            const weft_operand *from, const weft_operand *to,
                            const weft_operand *of)
{
    weft_instr i;
    WEFT_TRY(weft_partition__move(k->p, WEFT_INSTR_COPY, k->p->buffer[of->buffer].name,
                                  from, to, &i));
    return add_instr(k->tmp, l, &i);
}

/* Numbers of the step (lr, scale, step): copied once, after the commit point. */
static weft_status copy_scalar(offload_pass *k, weft_operand *o)
{
    for (int i = 0; i < k->n_scalar; i++)
        if (k->scalar[i].device.buffer == o->buffer &&
            k->scalar[i].device.offset == o->offset) {
            *o = k->scalar[i].host;
            return WEFT_OK;
        }
    if (k->n_scalar == WEFT_OFFLOAD_MOST_COPIED)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: updates have too many scalars",
                         k->p->name);
    weft_offload_copied *c = &k->scalar[k->n_scalar++];
    c->device              = *o;
    WEFT_TRY(add_buffer(k, o, WEFT_OFFLOAD_SCALAR, &c->host));
    WEFT_TRY(add_copy(k, &k->scalars, &c->device, &c->host, &c->device));
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
    if (n == WEFT_OFFLOAD_MOST_COPIED)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: an update has too many operands",
                         k->p->name);
    weft_offload_copied *c = &x->copied[n];
    if (n == x->n_copied) {
        *c       = (weft_offload_copied){.device = *o};
        int slot = (k->n_chunk - 1) % WEFT_OFFLOAD_RING;
        if (k->keeps && !is_out) slot = WEFT_OFFLOAD_KEPT;
        WEFT_TRY(add_buffer(k, o, slot, &c->host));
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

/* An update with casts of its result: those that are fused already, and instructions of the same
 * actor. */
static weft_status join_casts(offload_pass *k, const weft_actor *a, int at, weft_instr *i)
{
    weft_program     *p = k->p;
    const weft_instr *u = &a->instr[at];
    weft_operand *out   = WEFT_ARENA_ARRAY(p->arena, weft_operand, u->n_out + a->n_instr);
    weft_post    *post  = WEFT_ARENA_ARRAY(p->arena, weft_post, u->n_post + a->n_instr);
    WEFT_TRY(weft_instr_copy(u, p->arena, i));
    WEFT_TRY(weft_arena_status(p->arena));
    for (int n = 0; n < u->n_out; n++) out[n] = i->out[n];
    for (int n = 0; n < u->n_post; n++) post[n] = i->post[n];
    i->out  = out;
    i->post = post;
    for (int n = at + 1; n < a->n_instr; n++) {
        if (find_updated(a, n) != u) continue;
        post[i->n_post++] = (weft_post){
            .op = WEFT_OP_CAST, .attr = a->instr[n].attr, .in = -1, .out = i->n_out};
        out[i->n_out++] = a->instr[n].out[0];
    }
    if (i->n_post > 1)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: %s has %d copies, not one",
                         p->name, u->name, i->n_post);
    return WEFT_OK;
}

/* A piece into the last chunk: what it reads comes, its update, what it wrote goes. */
static weft_status place_piece(offload_pass *k, piece *x, const weft_actor *a, int at)
{
    weft_instr i;
    WEFT_TRY(join_casts(k, a, at, &i));
    for (int n = 0; n < i.n_in; n++)
        WEFT_TRY(place_operand(k, x, &i.in[n], false, is_scalar(&i, n)));
    for (int n = 0; n < i.n_out; n++)
        WEFT_TRY(place_operand(k, x, &i.out[n], true, false));
    WEFT_TRY(add_instr(k->tmp, &k->chunk[k->n_chunk - 1].update, &i));
    for (int n = 0; n < x->n_copied; n++) {
        const weft_offload_copied *c = &x->copied[n];
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
    k->chunk[k->n_chunk++] = (weft_offload_chunk){.bytes = 0};
    return WEFT_OK;
}

/* An update in pieces of at most chunk_bytes of gradients, if its rows are not longer. */
static weft_status place_update(offload_pass *k, const weft_actor *a, int at)
{
    const weft_operand *g    = &a->instr[at].in[1];
    int64_t             rows = g->type.shape.n ? g->type.shape.d[0] : 1;
    int64_t             row  = rows ? operand_bytes(g) / rows : 0;
    int64_t             most = row && row < k->o.chunk_bytes ? k->o.chunk_bytes / row : 1;
    for (int64_t first = 0; first < rows; first += most) {
        piece x = {.shape = a->instr[at].in[0].type.shape,
                   .first = first,
                   .n     = rows - first < most ? rows - first : most};
        if (!k->n_chunk || k->chunk[k->n_chunk - 1].bytes + x.n * row > k->o.chunk_bytes)
            WEFT_TRY(begin_chunk(k));
        WEFT_TRY(place_piece(k, &x, a, at));
    }
    return WEFT_OK;
}

/* An update of the compute stream's. */
typedef struct update {
    int     actor, instr;
    int     use; /* of its results on the device, by number in after */
    int64_t bytes;
} update;

static int compare_updates(const void *a, const void *b)
{
    const update *x = a, *y = b;
    if (x->use != y->use) return x->use < y->use ? -1 : 1;
    if (x->actor != y->actor) return x->actor < y->actor ? -1 : 1;
    return x->instr < y->instr ? -1 : x->instr > y->instr;
}

static void add_result(const offload_pass *k, int32_t buffer, int32_t *list, int *n)
{
    if (buffer < 0 || !k->on_device[buffer] || *n == WEFT_OFFLOAD_MOST_COPIED) return;
    list[(*n)++] = buffer;
}

/* Where results of an update and its casts are first used on the device. */
static int find_use(const offload_pass *k, const weft_actor *a, int at)
{
    const weft_instr *u = &a->instr[at];
    int32_t           result[WEFT_OFFLOAD_MOST_COPIED];
    int               n = 0;
    for (int x = 0; x < u->n_out; x++) add_result(k, u->out[x].buffer, result, &n);
    for (int i = at + 1; i < a->n_instr; i++)
        if (find_updated(a, i) == u) add_result(k, a->instr[i].out[0].buffer, result, &n);
    return weft_offload__find_use(k, result, n, false);
}

/* All updates; where the next step overlaps with them, in the order in which it needs them. */
static weft_status list_updates(offload_pass *k, update **out, int *n_out)
{
    const weft_program     *p    = k->p;
    const weft_stream_spec *s    = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    update                 *list = NULL;
    int                     n = 0, cap = 0;
    for (int f = k->at; f < s->n_firing; f++) {
        int               actor = s->firing[f].actor;
        const weft_actor *a     = &p->actor[actor];
        for (int i = 0; i < a->n_instr; i++) {
            if (!weft_offload_is_update(&a->instr[i])) continue;
            WEFT_TRY(weft_arena_grow(k->tmp, (void **)&list, &cap, n + 1, sizeof *list));
            list[n++] = (update){.actor = actor,
                                 .instr = i,
                                 .use   = k->overlaps ? find_use(k, a, i) : 0,
                                 .bytes = operand_bytes(&a->instr[i].in[1])};
        }
    }
    if (k->overlaps) qsort(list, (size_t)n, sizeof *list, compare_updates);
    *out   = list;
    *n_out = n;
    return WEFT_OK;
}

static weft_status make_chunks(offload_pass *k)
{
    weft_program *p = k->p;
    update       *list;
    int           n;
    int64_t       bytes = 0;
    k->first_buffer     = p->n_buffer;
    k->cap_buffer       = p->n_buffer + 1;
    weft_buffer *buffer = WEFT_ARENA_ARRAY(p->arena, weft_buffer, k->cap_buffer);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int b = 0; b < p->n_buffer; b++) buffer[b] = p->buffer[b];
    p->buffer = buffer;
    WEFT_TRY(list_updates(k, &list, &n));
    for (int i = 0; i < n; i++) bytes += list[i].bytes;
    k->keeps = k->overlaps && bytes <= k->o.gradient_bytes;
    for (int i = 0; i < n; i++)
        WEFT_TRY(place_update(k, &p->actor[list[i].actor], list[i].instr));
    return WEFT_OK;
}

/* Scalars, what is kept, then the slots of the ring, each as large as the largest chunk's. */
static void place_buffers(offload_pass *k)
{
    weft_program *p    = k->p;
    int64_t       most = 0, ring = k->scalar_bytes + k->kept_bytes;
    for (int i = 0; i < k->n_chunk; i++)
        if (k->chunk[i].ring_bytes > most) most = k->chunk[i].ring_bytes;
    for (int b = k->first_buffer; b < p->n_buffer; b++) {
        int slot = k->slot[b - k->first_buffer];
        if (slot == WEFT_OFFLOAD_KEPT) p->buffer[b].offset += k->scalar_bytes;
        if (slot >= 0) p->buffer[b].offset += ring + slot * most;
    }
    int n_slot = k->n_chunk < WEFT_OFFLOAD_RING ? k->n_chunk : WEFT_OFFLOAD_RING;
    p->slab[k->n_slab + 1].bytes = ring + most * n_slot;
}

/* ---- the actor with the first update ---- */

/* Edges of the actor that was cut are also those of its front. */
static weft_status spread_edges(offload_pass *k)
{
    int n = k->p->n_edge;
    for (int i = 0; i < n; i++) {
        weft_edge e = k->p->edge[i];
        if (e.from == k->rest) e.from = k->front;
        if (e.to == k->rest) e.to = k->front;
        if (e.from != k->p->edge[i].from || e.to != k->p->edge[i].to)
            WEFT_TRY(weft_partition__more_edge(&k->more, e));
    }
    return WEFT_OK;
}

/* What is before the first update becomes an actor of its own, which fires before the rest. */
static weft_status cut_front(offload_pass *k)
{
    weft_program     *p = k->p;
    weft_stream_spec *s = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    k->rest             = s->firing[k->at].actor;
    weft_actor *a       = &p->actor[k->rest];
    int         n       = 0;
    while (!weft_offload_is_update(&a->instr[n])) n++;
    const char  *name = weft_arena_printf(p->arena, "%s.front", a->name);
    weft_firing *list = WEFT_ARENA_ARRAY(p->arena, weft_firing, s->n_firing + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    WEFT_TRY(
        weft_partition__more_actor(&k->more, name, a->stream, a->instr, n, &k->front));
    a = &p->actor[k->rest];
    a->instr += n;
    a->n_instr -= n;
    for (int f = 0; f < s->n_firing; f++) list[f + (f >= k->at)] = s->firing[f];
    list[k->at]       = s->firing[k->at];
    list[k->at].actor = k->front;
    s->firing         = list;
    s->n_firing++;
    return spread_edges(k);
}

/* Numbers of the step are copied by the compute stream, after all that front does. */
static weft_status append_scalars(offload_pass *k)
{
    weft_actor *a = &k->p->actor[k->front];
    weft_instr *i =
        WEFT_ARENA_ARRAY(k->p->arena, weft_instr, a->n_instr + k->scalars.n + 1);
    WEFT_TRY(weft_arena_status(k->p->arena));
    for (int n = 0; n < a->n_instr; n++) i[n] = a->instr[n];
    for (int n = 0; n < k->scalars.n; n++) i[a->n_instr + n] = k->scalars.instr[n];
    a->instr = i;
    a->n_instr += k->scalars.n;
    return WEFT_OK;
}

static weft_status remove_updates(offload_pass *k)
{
    weft_program           *p = k->p;
    const weft_stream_spec *s = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    for (int f = k->at + 1; f < s->n_firing; f++) {
        weft_actor *a    = &p->actor[s->firing[f].actor];
        weft_instr *kept = WEFT_ARENA_ARRAY(p->arena, weft_instr, a->n_instr + 1);
        int         n    = 0;
        WEFT_TRY(weft_arena_status(p->arena));
        for (int i = 0; i < a->n_instr; i++)
            if (!weft_offload__is_moved(a, i)) kept[n++] = a->instr[i];
        a->instr   = kept;
        a->n_instr = n;
    }
    return WEFT_OK;
}

static weft_status offload_updates(offload_pass *k)
{
    WEFT_TRY(find_updates(k));
    if (k->at < 0) return WEFT_OK;
    WEFT_TRY(find_on_device(k));
    WEFT_TRY(move_states(k));
    WEFT_TRY(keep_results(k));
    WEFT_TRY(weft_partition__more_start(k->p, &k->more));
    WEFT_TRY(cut_front(k));
    WEFT_TRY(weft_offload__find_places(k));
    WEFT_TRY(make_chunks(k));
    if (!k->n_chunk) return WEFT_OK; /* parameters without elements */
    place_buffers(k);
    WEFT_TRY(append_scalars(k));
    WEFT_TRY(weft_offload__make_streams(k));
    return remove_updates(k);
}

static weft_status offload_optimizer(weft_program *p, const void *options)
{
    offload_pass k = {.p = p, .o = *(const weft_offload_options *)options};
    WEFT_TRY(weft_arena_create(&k.tmp));
    weft_status st = offload_updates(&k);
    weft_arena_destroy(k.tmp);
    return st;
}

weft_status weft_pass_offload_optimizer(const weft_program         *in,
                                        const weft_offload_options *o, weft_program **out)
{
    return weft_partition__edit_copy(in, offload_optimizer, o, out);
}
