/* Before the first step: memory, kernels, views.  Firings that meet the same slots share one
 * variant of their actor, so a thousand micro-batches over two slots cost two copies. */
#include <string.h>

#include "exec/exec_priv.h"

weft_view weft_exec__view(const weft_exec *e, const weft_operand *o, int32_t slot)
{
    weft_view v = {.dtype = o->type.dtype, .shape = o->type.shape};
    memcpy(v.stride, o->stride, sizeof v.stride);
    memcpy(v.origin, o->origin, sizeof v.origin);
    if (o->buffer < 0) return v;
    const weft_buffer *b    = &e->p->buffer[o->buffer];
    char              *base = e->slab[b->slab].address;
    if (base)
        v.p = base + b->offset + slot * b->bytes +
              o->offset * weft_dtype_bytes(o->type.dtype);
    return v;
}

/* ---- kernels ---- */

/* The type that chooses the kernel: bf16 or f32, whichever comes first. */
static weft_dtype storage_type(const weft_instr *i)
{
    for (int k = 0; k < i->n_own_in + i->n_own_out; k++) {
        weft_dtype t =
            (k < i->n_own_in ? &i->in[k] : &i->out[k - i->n_own_in])->type.dtype;
        if (t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_BF16) return t;
    }
    return WEFT_DTYPE_F32;
}

static weft_status find_kernel(weft_exec *e, weft_exec__instr *x)
{
    const weft_instr *i = x->i;
    if (i->kind != WEFT_INSTR_COMPUTE) return WEFT_OK;
    const weft_kernel *k = (e->o.find ? e->o.find : weft_kernel_find)(
        i->op, e->device->name, storage_type(i));
    if (!k || !k->run)
        return WEFT_FAIL(WEFT_ERR_ARG, "no kernel for %s on %s in %s ('%s')",
                         weft_op_get(i->op)->name, e->device->name,
                         weft_dtype_name(storage_type(i)), i->name);
    x->fn = k->run;
    if (k->scratch) {
        int64_t n = (int64_t)k->scratch(
            &x->call, x->s->ctx.pool ? weft_pool_threads(x->s->ctx.pool) : 1);
        if (n > x->s->scratch_bytes) x->s->scratch_bytes = n;
    }
    return WEFT_OK;
}

/* On a device that only lasts. */
static weft_status find_seconds(weft_exec *e, weft_exec__instr *x)
{
    const weft_instr *i = x->i;
    if (e->o.price) return e->o.price(e->p, i, e->o.price_arg, &x->seconds);
    if (i->seconds < 0 && !weft_instr_is_free(i))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s '%s' states no seconds, and nothing prices it",
                         weft_instr_kind_name(i->kind), i->name);
    x->seconds = i->seconds < 0 ? 0 : i->seconds;
    return WEFT_OK;
}

/* ---- variants ---- */

static int32_t gcd(int32_t a, int32_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Which slots an actor's operands depend on. */
static void find_cycle(const weft_program *p, const weft_actor *a, weft_exec__actor *out)
{
    out->cycle = 1;
    for (int n = 0; n < a->n_instr; n++) {
        const weft_instr *i = &a->instr[n];
        if (i->add) out->adds = true;
        if (weft_instr_writes_state(p, i)) out->writes_state = true;
        for (int k = 0; k < i->n_in + i->n_out; k++) {
            int32_t b = (k < i->n_in ? &i->in[k] : &i->out[k - i->n_in])->buffer;
            if (b < 0) continue;
            if (p->buffer[b].slot_by == WEFT_SLOT_LANE) out->by_lane = true;
            if (p->buffer[b].slot_by != WEFT_SLOT_MICRO) continue;
            int64_t l = (int64_t)out->cycle / gcd(out->cycle, p->buffer[b].n_slot) *
                        p->buffer[b].n_slot;
            out->cycle = l > p->n_micro ? p->n_micro : (int32_t)l;
        }
    }
}

static weft_status bind_instr(weft_exec *e, weft_exec__stream *s, const weft_firing *f,
                              bool first, const weft_instr *i, weft_exec__instr *x)
{
    weft_view        *in   = WEFT_ARENA_ARRAY(e->arena, weft_view, i->n_in);
    weft_view        *out  = WEFT_ARENA_ARRAY(e->arena, weft_view, i->n_out);
    weft_kernel_post *post = WEFT_ARENA_ARRAY(e->arena, weft_kernel_post, i->n_post);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int k = 0; k < i->n_in; k++)
        in[k] = weft_exec__view(
            e, &i->in[k],
            i->in[k].buffer < 0 ? 0
                                : weft_program_slot(e->p, i, false, i->in[k].buffer, f));
    for (int k = 0; k < i->n_out; k++)
        out[k] = weft_exec__view(
            e, &i->out[k],
            i->out[k].buffer < 0 ? 0
                                 : weft_program_slot(e->p, i, true, i->out[k].buffer, f));
    for (int k = 0; k < i->n_post; k++)
        post[k] = (weft_kernel_post){i->post[k].op, i->post[k].attr, i->post[k].in,
                                     i->post[k].out};
    x->i     = i;
    x->actor = &e->p->actor[f->actor];
    x->s     = s;
    x->call  = (weft_kernel_call){.op        = i->op,
                                  .attr      = i->attr,
                                  .n_in      = i->n_in,
                                  .n_own_in  = i->n_own_in,
                                  .n_out     = i->n_out,
                                  .n_own_out = i->n_own_out,
                                  .in        = in,
                                  .out       = out,
                                  .n_post    = i->n_post,
                                  .post      = post,
                                  .add       = first ? 0 : i->add};
    WEFT_TRY(e->device->computes ? find_kernel(e, x) : find_seconds(e, x));
    if (i->kind == WEFT_INSTR_READ && e->device->computes && !e->o.read)
        return WEFT_FAIL(WEFT_ERR_ARG, "read '%s': nobody gives samples", i->name);
    return weft_exec__find_link(e, i, &x->link);
}

static weft_status make_variant(weft_exec *e, weft_exec__stream *s, const weft_firing *f,
                                weft_exec__variant *v)
{
    const weft_actor *a = &e->p->actor[f->actor];
    v->instr            = WEFT_ARENA_ARRAY(e->arena, weft_exec__instr, a->n_instr);
    v->task             = WEFT_ARENA_ARRAY(e->arena, weft_task, a->n_instr);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int n = 0; n < a->n_instr; n++) {
        weft_status st = bind_instr(e, s, f, v->first, &a->instr[n], &v->instr[n]);
        if (st != WEFT_OK)
            return weft_fail_in(st, "program %s, actor %s: ", e->p->name, a->name);
        v->task[n] = (weft_task){weft_exec__task, &v->instr[n], v->instr[n].seconds};
    }
    return WEFT_OK;
}

static weft_status find_variant(weft_exec *e, weft_exec__stream *s, const weft_firing *f,
                                weft_exec__variant **out)
{
    weft_exec__actor *a     = &e->actor[f->actor];
    int32_t           micro = f->micro < 0 ? 0 : f->micro % a->cycle;
    int32_t           lane  = a->by_lane ? f->lane_slot : 0;
    bool              first = a->adds && f->first;
    for (weft_exec__variant *v = a->variant; v; v = v->next)
        if (v->micro == micro && v->lane == lane && v->first == first) {
            *out = v;
            return WEFT_OK;
        }
    weft_exec__variant *v = WEFT_ARENA_NEW(e->arena, weft_exec__variant);
    if (!v) return weft_arena_status(e->arena);
    v->micro   = micro;
    v->lane    = lane;
    v->first   = first;
    v->next    = a->variant;
    a->variant = v;
    *out       = v;
    return make_variant(e, s, f, v);
}

/* Runs of instructions that go to the device in one submit; one by one when they are traced. */
static weft_status find_runs(weft_exec *e, int actor)
{
    const weft_actor *a = &e->p->actor[actor];
    weft_exec__actor *x = &e->actor[actor];
    x->run              = WEFT_ARENA_ARRAY(e->arena, int, a->n_instr + 1);
    if (!x->run) return weft_arena_status(e->arena);
    for (int n = a->n_instr - 1; n >= 0; n--) {
        weft_instr_kind kind = a->instr[n].kind;
        bool own = weft_instr_is_comm(&a->instr[n]) || kind == WEFT_INSTR_READ ||
                   kind == WEFT_INSTR_COMMIT;
        x->run[n] = own ? 0 : 1 + (e->o.trace ? 0 : x->run[n + 1]);
    }
    return WEFT_OK;
}

/* ---- memory ---- */

static weft_status check_slabs(weft_exec *e)
{
    const weft_program *p = e->p;
    e->slab               = WEFT_ARENA_ARRAY(e->arena, weft_memory, p->n_slab);
    if (!e->slab) return weft_arena_status(e->arena);
    for (int i = 0; i < p->n_slab; i++) {
        const weft_memory *m = e->o.slab ? &e->o.slab[i] : NULL;
        if (!p->slab[i].bytes) continue;
        if (!m || !m->address || m->bytes < p->slab[i].bytes)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "program %s, slab %s: %lld bytes are needed, %lld are given",
                             p->name, p->slab[i].name, (long long)p->slab[i].bytes,
                             (long long)(m && m->address ? m->bytes : 0));
        if (m->space == WEFT_SPACE_HOST)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "program %s, slab %s: kernels do not reach %s memory",
                             p->name, p->slab[i].name, weft_space_name(m->space));
        e->slab[i] = *m;
    }
    return WEFT_OK;
}

static weft_status make_streams(weft_exec *e)
{
    for (int k = 0; k < e->p->n_stream; k++) {
        if (!e->p->stream[k].n_firing) continue;
        if (e->p->stream[k].device)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "program %s, stream %s: device %d, but there is one",
                             e->p->name, e->p->stream[k].name, e->p->stream[k].device);
        weft_exec__stream *s = &e->stream[e->n_stream++];
        s->e                 = e;
        s->number            = k;
        s->ctx.seed          = e->o.seed;
        if (!e->p->stream[k].threads) s->ctx.pool = e->o.pool ? e->o.pool : e->own_pool;
        s->trace.cap   = e->o.trace;
        s->trace.slice = WEFT_ARENA_ARRAY(e->arena, weft_slice, e->o.trace);
        s->variant =
            WEFT_ARENA_ARRAY(e->arena, weft_exec__variant *, e->p->stream[k].n_firing);
        WEFT_TRY(weft_arena_status(e->arena));
        for (int i = 0; i < e->p->stream[k].n_firing; i++)
            WEFT_TRY(find_variant(e, s, &e->p->stream[k].firing[i], &s->variant[i]));
        if (e->device->computes && s->scratch_bytes)
            WEFT_TRY(weft_device_alloc(e->device, WEFT_SPACE_DEVICE, s->scratch_bytes,
                                       &s->scratch));
        s->ctx.scratch = s->scratch.address;
    }
    return WEFT_OK;
}

/* As many times are kept as may be looked at: two steps and what may be under way. */
static weft_status make_edges(weft_exec *e)
{
    WEFT_TRY(weft_order_make(e->p, e->arena, false, &e->order));
    e->edge = WEFT_ARENA_ARRAY(e->arena, weft_exec__edge, e->p->n_edge);
    if (!e->edge) return weft_arena_status(e->arena);
    for (int i = 0; i < e->p->n_edge; i++) {
        int64_t n = e->order.per_step[i], c = e->p->edge[i].credits;
        e->edge[i].cap   = 2 * n + (c < 4 * n ? c : 4 * n) + 1;
        e->edge[i].at[0] = WEFT_ARENA_ARRAY(e->arena, double, e->edge[i].cap);
        e->edge[i].at[1] = WEFT_ARENA_ARRAY(e->arena, double, e->edge[i].cap);
    }
    return weft_arena_status(e->arena);
}

weft_status weft_exec__prepare(weft_exec *e)
{
    WEFT_TRY(check_slabs(e));
    WEFT_TRY(make_edges(e));
    e->actor = WEFT_ARENA_ARRAY(e->arena, weft_exec__actor, e->p->n_actor);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int i = 0; i < e->p->n_actor; i++) {
        find_cycle(e->p, &e->p->actor[i], &e->actor[i]);
        WEFT_TRY(find_runs(e, i));
    }
    WEFT_TRY(make_streams(e));
    WEFT_TRY(weft_exec__open_links(e));
    return weft_exec__prepare_calls(e);
}
