#include "state/state.h"

#include <string.h>

struct weft_state {
    weft_arena        *arena;
    weft_memory        memory, host;
    weft_state_free_fn release; /* of the memory */
    void              *arg;
    int64_t            step;
    int                n_tensor, cap;
    weft_state_tensor *tensor;
    int                n_standby;
    weft_state       **standby; /* over the same memory; in the arena */
    int                cap_standby;
};

static void free_memory(void *arg, weft_memory *m)
{
    (void)arg;
    weft_device_free(m);
}

weft_status weft_state_create_over(const weft_memory *memory, weft_state_free_fn release,
                                   void *arg, weft_state **out)
{
    weft_memory held = *memory;
    weft_arena *a    = NULL;
    weft_state *s    = NULL;
    weft_status st   = weft_arena_create(&a);
    if (st == WEFT_OK && !(s = WEFT_ARENA_NEW(a, weft_state))) st = weft_arena_status(a);
    if (st != WEFT_OK) {
        weft_arena_destroy(a);
        release(arg, &held);
        return st;
    }
    *s = (weft_state){
        .arena = a, .memory = held, .release = release, .arg = arg, .step = -1};
    *out = s;
    return WEFT_OK;
}

weft_status weft_state_create(weft_device *device, int64_t bytes, weft_state **out)
{
    weft_memory m;
    WEFT_TRY(weft_device_alloc(device ? device : weft_device_cpu(), WEFT_SPACE_DEVICE,
                               bytes, &m));
    return weft_state_create_over(&m, free_memory, NULL, out);
}

void weft_state_destroy(weft_state *s)
{
    if (!s) return;
    for (int k = 0; k < s->n_standby; k++) weft_state_destroy(s->standby[k]);
    s->release(s->arg, &s->memory);
    weft_device_free(&s->host);
    weft_arena_destroy(s->arena);
}

weft_status weft_state_add_host_memory(weft_state *s, int64_t bytes)
{
    if (s->host.address || s->n_tensor)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "a state has one block of host memory");
    return bytes ? weft_device_alloc(s->memory.device, WEFT_SPACE_PINNED, bytes, &s->host)
                 : WEFT_OK;
}

int64_t weft_state_bytes(const weft_state *s)
{
    int64_t n = s ? weft_arena_bytes(s->arena) : 0;
    for (int k = 0; s && k < s->n_standby; k++) n += weft_state_bytes(s->standby[k]);
    return n;
}

static void keep_memory(void *arg, weft_memory *m)
{
    (void)arg, (void)m;
}

weft_status weft_state_add_standby(weft_state *s, weft_state **out)
{
    WEFT_TRY(weft_arena_grow(s->arena, (void **)&s->standby, &s->cap_standby,
                             s->n_standby + 1, sizeof *s->standby));
    WEFT_TRY(weft_state_create_over(&s->memory, keep_memory, NULL, out));
    s->standby[s->n_standby++] = *out;
    return WEFT_OK;
}

int weft_state_n_standby(const weft_state *s)
{
    return s->n_standby;
}

weft_state *weft_state_standby(const weft_state *s, int k)
{
    return k < s->n_standby ? s->standby[k] : NULL;
}

/* ---- tensors ---- */

weft_status weft_state_add(weft_state *s, const weft_state_tensor *t)
{
    int64_t bytes = t->part ? weft_part_count(t->part) * weft_dtype_bytes(t->dtype) : 0;
    int64_t have  = t->on_host ? s->host.bytes : s->memory.bytes;
    if (t->part && (t->offset < 0 || bytes > have || t->offset > have - bytes))
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "%s: bytes %lld to %lld are not in a state of %lld", t->name,
                         (long long)t->offset, (long long)(t->offset + bytes),
                         (long long)have);
    WEFT_TRY(weft_arena_grow(s->arena, (void **)&s->tensor, &s->cap, s->n_tensor + 1,
                             sizeof *s->tensor));
    weft_state_tensor *x = &s->tensor[s->n_tensor];
    *x                   = *t;
    x->name              = weft_arena_strdup(s->arena, t->name);
    if (t->part) x->part = weft_part_copy(t->part, s->arena);
    WEFT_TRY(weft_arena_status(s->arena));
    s->n_tensor++;
    return WEFT_OK;
}

weft_status weft_state_create_like(const weft_state *s, weft_space space,
                                   weft_state **out)
{
    weft_memory m;
    WEFT_TRY(weft_device_alloc(s->memory.device, space, s->memory.bytes, &m));
    return weft_state_create_like_over(s, &m, free_memory, NULL, out);
}

weft_status weft_state_create_like_over(const weft_state *s, const weft_memory *memory,
                                        weft_state_free_fn release, void *arg,
                                        weft_state **out)
{
    weft_state *like = NULL, *standby;
    weft_status st   = WEFT_OK;
    WEFT_TRY(weft_state_create_over(memory, release, arg, &like));
    WEFT_GO(weft_state_add_host_memory(like, s->host.bytes));
    for (int i = 0; i < s->n_tensor; i++) WEFT_GO(weft_state_add(like, &s->tensor[i]));
    for (int k = 0; k < s->n_standby; k++) {
        WEFT_GO(weft_state_add_standby(like, &standby));
        for (int i = 0; i < s->standby[k]->n_tensor; i++)
            WEFT_GO(weft_state_add(standby, &s->standby[k]->tensor[i]));
    }
    *out = like;
    like = NULL;
out:
    weft_state_destroy(like);
    return st;
}

static weft_status add_standby_alias(weft_state *s, const weft_state *of)
{
    weft_state *standby;
    WEFT_TRY(weft_state_add_standby(s, &standby));
    standby->n_tensor = of->n_tensor;
    standby->tensor   = of->tensor;
    return WEFT_OK;
}

weft_status weft_state_create_alias(const weft_state *of, const weft_memory *memory,
                                    weft_state **out)
{
    weft_state *s = NULL;
    if (memory->bytes != of->memory.bytes || of->host.bytes)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "two states of different tensors");
    WEFT_TRY(weft_state_create_over(memory, keep_memory, NULL, &s));
    s->n_tensor    = of->n_tensor;
    s->tensor      = of->tensor;
    weft_status st = WEFT_OK;
    for (int k = 0; st == WEFT_OK && k < of->n_standby; k++)
        st = add_standby_alias(s, of->standby[k]);
    if (st != WEFT_OK)
        weft_state_destroy(s);
    else
        *out = s;
    return st;
}

weft_status weft_state_copy(const weft_state *from, weft_state *to, weft_stream *stream)
{
    weft_device *d = from->memory.device;
    if (to->memory.bytes != from->memory.bytes || to->host.bytes != from->host.bytes ||
        to->n_tensor != from->n_tensor)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "two states of different tensors");
    if (from->memory.bytes) WEFT_TRY(d->copy(d, stream, &to->memory, &from->memory));
    if (from->host.bytes) WEFT_TRY(d->copy(d, stream, &to->host, &from->host));
    to->step = from->step;
    return WEFT_OK;
}

weft_status weft_state_make_empty(const weft_state *like, weft_state **out)
{
    weft_state *e;
    WEFT_TRY(weft_state_create(NULL, 0, &e));
    weft_status st = WEFT_OK;
    for (int i = 0; st == WEFT_OK && i < weft_state_count(like); i++) {
        weft_state_tensor t = *weft_state_at(like, i);
        t.part              = NULL;
        st                  = weft_state_add(e, &t);
    }
    if (st == WEFT_OK)
        *out = e;
    else
        weft_state_destroy(e);
    return st;
}

weft_status weft_state_clone(const weft_state *s, weft_state **out)
{
    weft_state *clone = NULL;
    WEFT_TRY(weft_state_create_like(s, WEFT_SPACE_DEVICE, &clone));
    weft_status st = weft_state_copy(s, clone, NULL);
    if (st == WEFT_OK)
        *out = clone;
    else
        weft_state_destroy(clone);
    return st;
}

int weft_state_count(const weft_state *s)
{
    return s->n_tensor;
}

const weft_state_tensor *weft_state_at(const weft_state *s, int tensor)
{
    return &s->tensor[tensor];
}

int weft_state_find(const weft_state *s, const char *name)
{
    for (int i = 0; i < s->n_tensor; i++)
        if (!strcmp(s->tensor[i].name, name)) return i;
    return -1;
}

const weft_memory *weft_state_memory(const weft_state *s)
{
    return &s->memory;
}

const weft_memory *weft_state_host_memory(const weft_state *s)
{
    return &s->host;
}

const weft_memory *weft_state_memory_of(const weft_state *s, int tensor)
{
    return s->tensor[tensor].on_host ? &s->host : &s->memory;
}

int64_t weft_state_step(const weft_state *s)
{
    return s->step;
}

void weft_state_set_step(weft_state *s, int64_t step)
{
    s->step = step;
}

/* ---- numbers ---- */

/* Between a tensor's memory and a region in host memory: one of to and from is NULL. */
typedef struct region_copy {
    const weft_memory *memory;
    int64_t            offset, size; /* of the tensor in memory; bytes of an element */
    char              *to;
    const char        *from;
    weft_stream       *stream; /* NULL: done on return */
} region_copy;

/* Memory that host code reaches needs no device. */
static weft_status read_run(const region_copy *c, int64_t at, char *to, int64_t bytes)
{
    const char *host = weft_memory_host(c->memory);
    if (!c->stream) return weft_device_read(to, c->memory, at, bytes);
    if (!host) return weft_device_read_in(c->stream, to, c->memory, at, bytes);
    memcpy(to, host + at, (size_t)bytes);
    return WEFT_OK;
}

static weft_status copy_run(void *arg, int64_t at, int64_t index, int64_t n)
{
    const region_copy *c = arg;
    int64_t            k = c->offset + at * c->size, bytes = n * c->size;
    if (c->to) return read_run(c, k, c->to + index * c->size, bytes);
    return weft_device_write(c->memory, k, c->from + index * c->size, bytes);
}

static weft_status copy_region(const weft_state *s, weft_stream *stream, int tensor,
                               const weft_region *r, void *to, const void *from)
{
    const weft_state_tensor *t = &s->tensor[tensor];
    region_copy              c = {.memory = weft_state_memory_of(s, tensor),
                                  .offset = t->offset,
                                  .size   = weft_dtype_bytes(t->dtype),
                                  .to     = to,
                                  .from   = from,
                                  .stream = stream};
    if (!t->part) return WEFT_OK;
    return weft_part_walk(t->part, r, 0, weft_region_count(r), copy_run, &c);
}

static weft_status zero_memory(const weft_memory *m)
{
    static const char zero[1 << 16];
    for (int64_t at = 0; at < m->bytes; at += (int64_t)sizeof zero) {
        int64_t left = m->bytes - at;
        if (left > (int64_t)sizeof zero) left = (int64_t)sizeof zero;
        WEFT_TRY(weft_device_write(m, at, zero, left));
    }
    return WEFT_OK;
}

weft_status weft_state_zero(weft_state *s)
{
    WEFT_TRY(zero_memory(&s->memory));
    return zero_memory(&s->host);
}

weft_status weft_state_read(const weft_state *s, int tensor, const weft_region *r,
                            void *host)
{
    return copy_region(s, NULL, tensor, r, host, NULL);
}

weft_status weft_state_read_in(const weft_state *s, weft_stream *stream, int tensor,
                               const weft_region *r, void *host)
{
    return copy_region(s, stream, tensor, r, host, NULL);
}

weft_status weft_state_write(weft_state *s, int tensor, const weft_region *r,
                             const void *host)
{
    return copy_region(s, NULL, tensor, r, NULL, host);
}
