/* Before the first step: memory, kernels, views.  Firings that meet the same slots share one
 * variant of their actor, so a thousand micro-batches over two slots cost two copies. */
#include <stdio.h>
#include <string.h>

#include "exec/exec_priv.h"

weft_view weft_exec__view(const weft_exec *e, const weft_operand *o, int32_t slot)
{
    weft_view v = {.dtype = o->type.dtype, .shape = o->type.shape};
    memcpy(v.stride, o->stride, sizeof v.stride);
    if (o->buffer < 0) return v;
    const weft_buffer *b    = &e->p->buffer[o->buffer];
    char              *base = e->slab[b->slab].address;
    if (base)
        v.p = base + b->offset + slot * b->bytes +
              o->offset * weft_dtype_bytes(o->type.dtype);
    return v;
}

void *weft_exec__host_address(const weft_exec *e, int slab, void *device)
{
    const weft_memory *h = &e->host_slab[slab];
    if (!h->address || !device) return device;
    return (char *)h->address + ((char *)device - (char *)e->slab[slab].address);
}

weft_status weft_exec_stated_seconds(const weft_program *p, const weft_instr *i,
                                     const void *arg, double *seconds)
{
    (void)p, (void)arg;
    if (i->seconds < 0 && !weft_instr_is_free(i))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s '%s' states no seconds, and nothing prices it",
                         weft_instr_kind_name(i->kind), i->name);
    *seconds = i->seconds < 0 ? 0 : i->seconds;
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

static weft_device *device_of(const weft_exec *e, int32_t actor)
{
    int d = e->p->stream[e->p->actor[actor].stream].device;
    return d >= 0 && d < WEFT_EXEC_MAX_DEVICE ? e->o.device[d] : NULL;
}

static bool is_host_work(const weft_exec *e, const weft_device *d, const weft_instr *i)
{
    if (weft_instr_is_comm(i)) return weft_exec__comm_needs_host(e, d, i);
    return !e->o.price && (i->kind == WEFT_INSTR_READ || i->kind == WEFT_INSTR_COMMIT);
}

/* A READ into staging that has a copy on the device. */
static bool is_copied(const weft_exec *e, const weft_exec__instr *x)
{
    return x->i->kind == WEFT_INSTR_READ && x->i->n_out > 0 && x->i->out[0].buffer >= 0 &&
           e->host_slab[e->p->buffer[x->i->out[0].buffer].slab].address;
}

static weft_status bind_host_work(weft_exec *e, weft_exec__instr *x)
{
    x->host = WEFT_ARENA_NEW(e->arena, weft_exec__host);
    if (!x->host) return weft_arena_status(e->arena);
    if (!x->s->device->host_access && !is_copied(e, x) &&
        !weft_exec__find_device_comm(e, x->s->device, x->i) &&
        is_host_work(e, x->s->device, x->i))
        WEFT_TRY(weft_exec__find_stage(e, x));
    return weft_exec__find_link(e, x->s->device, x->i, &x->host->link);
}

weft_status weft_exec__bind_call(weft_exec *e, const weft_firing *f, bool first,
                                 const weft_instr *i, weft_exec__instr *x,
                                 weft_view **results)
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
                                  .add       = (first ? 0 : i->add) | i->into};
    *results = out;
    return WEFT_OK;
}

/* The bytes of an operand without gaps. */
static weft_status find_bytes(const weft_exec *e, const weft_operand *o,
                              const weft_view *v, weft_memory *out)
{
    const weft_memory *m = &e->slab[e->p->buffer[o->buffer].slab];
    return weft_memory_part(
        m, (char *)v->p - (char *)m->address,
        weft_shape_count(&o->type.shape) * weft_dtype_bytes(o->type.dtype), out);
}

/* A COPY between host memory and the device's, where both are without gaps: the device copies it,
 * which takes none of its units. */
static weft_status bind_transfer(weft_exec *e, weft_exec__instr *x)
{
    const weft_instr   *i = x->i;
    const weft_program *p = e->p;
    if (i->kind != WEFT_INSTR_COPY || e->o.price || i->in[0].buffer < 0 ||
        i->out[0].buffer < 0 || !weft_operand_contiguous(&i->in[0]) ||
        !weft_operand_contiguous(&i->out[0]))
        return WEFT_OK;
    if (weft_slab_kind_is_host(p->slab[p->buffer[i->in[0].buffer].slab].kind) ==
        weft_slab_kind_is_host(p->slab[p->buffer[i->out[0].buffer].slab].kind))
        return WEFT_OK;
    x->transfer = WEFT_ARENA_NEW(e->arena, weft_exec__transfer);
    WEFT_TRY(weft_arena_status(e->arena));
    WEFT_TRY(find_bytes(e, &i->in[0], &x->call.in[0], &x->transfer->from));
    return find_bytes(e, &i->out[0], &x->call.out[0], &x->transfer->to);
}

static weft_status bind_instr(weft_exec *e, weft_exec__stream *s, const weft_firing *f,
                              bool first, const weft_instr *i, weft_exec__instr *x)
{
    weft_view *out;
    x->s = s;
    WEFT_TRY(weft_exec__bind_call(e, f, first, i, x, &out));
    for (int k = 0; k < i->n_out && i->kind == WEFT_INSTR_READ; k++)
        if (i->out[k].buffer >= 0)
            out[k].p =
                weft_exec__host_address(e, e->p->buffer[i->out[k].buffer].slab, out[k].p);
    if (!e->o.price) WEFT_TRY(weft_exec__find_kernel(x));
    WEFT_TRY(bind_transfer(e, x));
    if (i->kind == WEFT_INSTR_READ && !e->o.price && !e->o.read && !e->o.alone)
        return WEFT_FAIL(WEFT_ERR_ARG, "read '%s': nobody gives samples", i->name);
    return weft_instr_is_comm(i) || is_host_work(e, s->device, i) ? bind_host_work(e, x)
                                                                  : WEFT_OK;
}

/* After kernels are prepared; firings may share a variant. */
static weft_status load_runs(weft_exec__stream *s, const weft_actor *a, const int *run,
                             weft_exec__variant *v)
{
    weft_code *code = v->code;
    if (v->loaded) return WEFT_OK;
    v->loaded = true;
    for (int n = 0; n < a->n_instr; n += run[n] ? run[n] : 1) {
        bool timed = weft_exec__is_timed(s->e, s->device);
        int  each  = timed ? 1 : v->n_grouped[n];
        for (int k = 0; run[n] && k < v->n_grouped[n]; k += each, code++) {
            WEFT_TRY(s->device->load(s->device, &v->grouped[n + k], each, code));
            code->name  = k ? NULL : a->name; /* it is the same */
            code->blame = weft_exec__blame;
        }
    }
    return WEFT_OK;
}

static weft_status make_variant(weft_exec *e, weft_exec__stream *s, const weft_firing *f,
                                weft_exec__variant *v)
{
    const weft_actor *a = &e->p->actor[f->actor];
    v->instr            = WEFT_ARENA_ARRAY(e->arena, weft_exec__instr, a->n_instr);
    v->task             = WEFT_ARENA_ARRAY(e->arena, weft_task, a->n_instr);
    v->grouped          = WEFT_ARENA_ARRAY(e->arena, weft_task, a->n_instr);
    v->n_grouped        = WEFT_ARENA_ARRAY(e->arena, int, a->n_instr);
    v->code = WEFT_ARENA_ARRAY(e->arena, weft_code, e->actor[f->actor].n_code);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int n = 0; n < a->n_instr; n++) {
        weft_exec__instr *x  = &v->instr[n];
        weft_status       st = bind_instr(e, s, f, v->first, &a->instr[n], x);
        if (st != WEFT_OK)
            return weft_fail_in(st, "program %s, actor %s: ", e->p->name, a->name);
        v->task[n].arg = x;
        if (!e->o.price)
            v->task[n].run = weft_exec__task;
        else
            WEFT_TRY(e->o.price(e->p, x->i, e->o.price_arg, &v->task[n].seconds));
    }
    const int *run = e->actor[f->actor].run;
    for (int n = 0; n < a->n_instr; n += run[n] ? run[n] : 1)
        if (run[n])
            WEFT_TRY(weft_exec__group_run(v, n, run[n], e->arena, &v->n_grouped[n]));
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

/* Runs of instructions that go to the device in one launch, one by one when the host times them.
 * What writes state, which a step that is held back leaves out, has runs of its own; so has each
 * communication, which others must not be moved past (group.c). */
static weft_status find_runs(weft_exec *e, int actor)
{
    const weft_actor  *a     = &e->p->actor[actor];
    weft_exec__actor  *x     = &e->actor[actor];
    const weft_device *d     = device_of(e, actor);
    bool               timed = weft_exec__is_timed(e, d);
    x->run                   = WEFT_ARENA_ARRAY(e->arena, int, a->n_instr + 1);
    if (!x->run) return weft_arena_status(e->arena);
    for (int n = a->n_instr - 1; n >= 0; n--) {
        bool writes = weft_instr_writes_state(e->p, &a->instr[n]);
        bool joins  = (!e->o.trace || timed) && n + 1 < a->n_instr &&
                     !weft_instr_is_comm(&a->instr[n]) &&
                     !weft_instr_is_comm(&a->instr[n + 1]) &&
                     weft_instr_writes_state(e->p, &a->instr[n + 1]) == writes;
        x->run[n] =
            is_host_work(e, d, &a->instr[n]) ? 0 : 1 + (joins ? x->run[n + 1] : 0);
    }
    for (int n = 0; n < a->n_instr; n += x->run[n] ? x->run[n] : 1)
        x->n_code += timed ? x->run[n] : x->run[n] > 0;
    return WEFT_OK;
}

/* ---- memory ---- */

/* Kernels work on device memory alone: what the host fills in is copied there. */
static weft_status copy_staging(weft_exec *e, int i)
{
    const weft_memory *m = &e->slab[i];
    weft_memory        twin;
    if (e->p->slab[i].kind != WEFT_SLAB_STAGING || m->space != WEFT_SPACE_PINNED ||
        !m->device || m->device->host_access || e->o.price)
        return WEFT_OK;
    WEFT_TRY(weft_device_alloc(m->device, WEFT_SPACE_DEVICE, m->bytes, &twin));
    e->host_slab[i] = *m;
    e->slab[i]      = twin;
    return WEFT_OK;
}

void weft_exec__free_staging(weft_exec *e)
{
    for (int i = 0; e->host_slab && i < e->p->n_slab; i++)
        if (e->host_slab[i].address) weft_device_free(&e->slab[i]);
}

static weft_status check_slabs(weft_exec *e)
{
    const weft_program *p = e->p;
    e->slab               = WEFT_ARENA_ARRAY(e->arena, weft_memory, p->n_slab);
    e->host_slab          = WEFT_ARENA_ARRAY(e->arena, weft_memory, p->n_slab);
    WEFT_TRY(weft_arena_status(e->arena));
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
        WEFT_TRY(copy_staging(e, i));
    }
    return WEFT_OK;
}

static weft_status find_device(weft_exec *e, const weft_stream_spec *s, weft_device **out)
{
    *out = s->device >= 0 && s->device < WEFT_EXEC_MAX_DEVICE ? e->o.device[s->device]
                                                              : NULL;
    if (*out) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "program %s, stream %s: there is no device %d",
                     e->p->name, s->name, s->device);
}

/* Host memory for the largest instruction of a stream, and all of its in it. */
static weft_status make_stage(weft_exec *e, weft_exec__stream *s)
{
    if (!s->stage_bytes) return WEFT_OK;
    WEFT_TRY(weft_device_alloc(s->device, WEFT_SPACE_PINNED, s->stage_bytes, &s->stage));
    for (int a = 0; a < e->p->n_actor; a++)
        for (weft_exec__variant *v = e->actor[a].variant; v; v = v->next)
            for (int n = 0; n < e->p->actor[a].n_instr; n++)
                if (v->instr[n].s == s && is_host_work(e, s->device, v->instr[n].i))
                    WEFT_TRY(weft_exec__place_stage(e, &v->instr[n]));
    return WEFT_OK;
}

static weft_status make_stream(weft_exec *e, int k, weft_exec__stream *s)
{
    const weft_stream_spec *spec = &e->p->stream[k];
    s->e                         = e;
    s->number                    = k;
    WEFT_TRY(find_device(e, spec, &s->device));
    WEFT_TRY(s->device->stream_open(s->device, spec->name, &s->dev));
    s->ctx.queue = s->dev.impl;
    if (!spec->threads) s->ctx.pool = e->o.pool ? e->o.pool : e->own_pool;
    s->pool        = s->ctx.pool;
    s->trace.cap   = e->o.trace;
    s->trace.slice = WEFT_ARENA_ARRAY(e->arena, weft_slice, e->o.trace);
    if (weft_exec__is_timed(e, s->device)) {
        s->trace.part = WEFT_ARENA_ARRAY(e->arena, weft_exec__part, e->o.trace);
        WEFT_TRY(s->device->event_open(s->device, 2 * (int64_t)e->o.trace, &s->timed));
        s->timed.times = true;
    }
    s->variant = WEFT_ARENA_ARRAY(e->arena, weft_exec__variant *, spec->n_firing);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int i = 0; i < spec->n_firing; i++)
        WEFT_TRY(find_variant(e, s, &spec->firing[i], &s->variant[i]));
    WEFT_TRY(weft_exec__prepare_kernels(s));
    for (int i = 0; i < spec->n_firing; i++) {
        int32_t a = spec->firing[i].actor;
        WEFT_TRY(load_runs(s, &e->p->actor[a], e->actor[a].run, s->variant[i]));
    }
    return make_stage(e, s);
}

static weft_status make_streams(weft_exec *e)
{
    for (int k = 0; k < e->p->n_stream; k++)
        if (e->p->stream[k].n_firing)
            WEFT_TRY(make_stream(e, k, &e->stream[e->n_stream++]));
    return WEFT_OK;
}

/* After an error there may be work left that uses what is going to be released; the error stays as
 * it was said. */
static void finish_work(weft_exec__stream *s)
{
    char text[1024];
    if (!s->dev.device || !s->dev.busy || s->e->o.price) return;
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft_status st = s->device->finish(&s->dev);
    if (st != WEFT_OK) (void)WEFT_FAIL(st, "%s", text);
}

void weft_exec__close_stream(weft_exec__stream *s)
{
    const weft_stream_spec *spec = &s->e->p->stream[s->number];
    finish_work(s);
    for (int i = 0; s->variant && i < spec->n_firing; i++) {
        weft_exec__variant *v = s->variant[i];
        for (int n = 0; v && v->code && n < s->e->actor[spec->firing[i].actor].n_code;
             n++)
            if (v->code[n].n) s->device->unload(s->device, &v->code[n]);
    }
    weft_exec__release_kernels(s);
    weft_device_free(&s->stage);
    if (s->timed.device) s->device->event_close(&s->timed);
    if (s->dev.device) s->device->stream_close(&s->dev);
}

/* Does a stream have work of the host's, which may block the thread that gives it? */
static bool has_host_work(const weft_exec *e, int stream)
{
    for (int i = 0; i < e->p->stream[stream].n_firing; i++) {
        int32_t a = e->p->stream[stream].firing[i].actor;
        for (int n = 0; n < e->p->actor[a].n_instr; n += e->actor[a].run[n])
            if (!e->actor[a].run[n]) return true;
    }
    return false;
}

static bool is_staging(const weft_program *p, const weft_operand *o)
{
    return o->buffer >= 0 && p->slab[p->buffer[o->buffer].slab].kind == WEFT_SLAB_STAGING;
}

static bool uses_staging(const weft_program *p, const weft_instr *i)
{
    for (int k = 0; k < i->n_in; k++)
        if (is_staging(p, &i->in[k])) return true;
    for (int k = 0; k < i->n_out; k++)
        if (is_staging(p, &i->out[k])) return true;
    return false;
}

/* Can the caller go on while a stream does: has it no messages, nothing of the host's, and
 * nothing that the caller reads or writes between two steps? */
static bool may_stay_open(const weft_exec *e, int stream)
{
    for (int i = 0; i < e->p->stream[stream].n_firing; i++) {
        const weft_actor *a = &e->p->actor[e->p->stream[stream].firing[i].actor];
        for (int n = 0; n < a->n_instr; n++)
            if (weft_instr_is_comm(&a->instr[n]) || uses_staging(e->p, &a->instr[n]))
                return false;
    }
    return !has_host_work(e, stream);
}

/* The caller's own thread never does. */
static void find_open(weft_exec *e)
{
    for (int i = 1; i < e->n_issuer; i++) {
        weft_exec__issuer *u = &e->issuer[i];
        u->open              = !e->o.price;
        for (int k = 0; k < u->n; k++)
            u->open = u->open && may_stay_open(e, u->stream[k]->number);
    }
}

/* A thread for each stream that may block one, and one for the others of each device. */
static void make_issuers(weft_exec *e)
{
    for (int i = 0; i < e->n_stream; i++) {
        weft_exec__stream *s     = &e->stream[i];
        bool               alone = s->device->needs_thread || has_host_work(e, s->number);
        int                k     = alone ? e->n_issuer : 0;
        while (k < e->n_issuer && (e->issuer[k].stream[0]->device != s->device ||
                                   has_host_work(e, e->issuer[k].stream[0]->number)))
            k++;
        if (k == e->n_issuer) e->issuer[e->n_issuer++].e = e;
        e->issuer[k].stream[e->issuer[k].n++] = s;
    }
}

/* ---- edges ---- */

/* As many times are kept as may be asked for: two steps and what may be under way. */
static weft_status open_edge(weft_exec *e, int i)
{
    const weft_edge *d = &e->p->edge[i];
    weft_exec__edge *x = &e->edge[i];
    int64_t          n = e->order.per_step[i], c = d->credits;
    int64_t          depth = 2 * n + (c < 4 * n ? c : 4 * n) + 1 + (int64_t)d->delay * n;
    if (!n || e->p->actor[d->from].stream == e->p->actor[d->to].stream) return WEFT_OK;
    weft_device *from = device_of(e, d->from), *to = device_of(e, d->to);
    x->host    = from != to;
    x->tracked = x->host || !from->needs_thread;
    e->tracked = e->tracked || x->tracked;
    if (x->tracked) depth += 2 * n + (c < 4 * n ? c : 4 * n) + (int64_t)d->delay * n;
    e->event_bytes += from->event_bytes(depth) + to->event_bytes(depth);
    WEFT_TRY(from->event_open(from, depth, &x->event[0]));
    return to->event_open(to, depth, &x->event[1]);
}

static weft_status make_edges(weft_exec *e)
{
    WEFT_TRY(weft_order_make(e->p, e->arena, false, &e->order));
    e->edge = WEFT_ARENA_ARRAY(e->arena, weft_exec__edge, e->p->n_edge);
    if (!e->edge) return weft_arena_status(e->arena);
    for (int i = 0; i < e->p->n_edge; i++) WEFT_TRY(open_edge(e, i));
    return WEFT_OK;
}

void weft_exec__close_edges(weft_exec *e)
{
    for (int i = 0; e->edge && i < e->p->n_edge; i++)
        for (int k = 0; k < 2; k++) {
            weft_event *v = &e->edge[i].event[k];
            if (v->device) v->device->event_close(v);
        }
}

weft_status weft_exec__prepare(weft_exec *e)
{
    WEFT_TRY(check_slabs(e));
    e->actor = WEFT_ARENA_ARRAY(e->arena, weft_exec__actor, e->p->n_actor);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int i = 0; i < e->p->n_actor; i++) {
        find_cycle(e->p, &e->p->actor[i], &e->actor[i]);
        WEFT_TRY(find_runs(e, i));
    }
    WEFT_TRY(make_streams(e));
    WEFT_TRY(make_edges(e));
    make_issuers(e);
    find_open(e);
    if (weft_exec__can_replay(e)) WEFT_TRY(weft_exec__make_graph(e));
    WEFT_TRY(weft_exec__open_links(e));
    WEFT_TRY(weft_exec__prepare_calls(e));
    e->opened = true;
    return WEFT_OK;
}
