/* Slabs for callers that have none of their own, and the way to bindings from outside. */
#include <string.h>

#include "exec/exec_priv.h"

weft_status weft_exec_alloc_slabs(const weft_program *p, weft_device *d,
                                  weft_memory *slab)
{
    bool mine[64] = {0}; /* programs have a handful of slabs */
    if (p->n_slab > (int)WEFT_COUNT(mine))
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s has %d slabs, the most is %d", p->name,
                         p->n_slab, (int)WEFT_COUNT(mine));
    for (int i = 0; i < p->n_slab; i++) {
        if (slab[i].address) continue;
        bool pinned = p->slab[i].kind == WEFT_SLAB_STAGING ||
                      weft_slab_kind_is_host(p->slab[i].kind);
        weft_status st =
            weft_device_alloc(d, pinned ? WEFT_SPACE_PINNED : WEFT_SPACE_DEVICE,
                              p->slab[i].bytes, &slab[i]);
        mine[i] = st == WEFT_OK;
        if (st == WEFT_OK) continue;
        for (int k = 0; k < i; k++)
            if (mine[k]) weft_device_free(&slab[k]);
        return weft_fail_in(st, "program %s, slab %s: ", p->name, p->slab[i].name);
    }
    return WEFT_OK;
}

/* ---- bindings ---- */

static weft_status find_binding(const weft_exec *e, const char *name, int micro,
                                weft_view *v, const weft_memory **m)
{
    const weft_binding *b = weft_program_find(e->p, name);
    if (!b) return WEFT_FAIL(WEFT_ERR_ARG, "program %s binds no '%s'", e->p->name, name);
    const weft_buffer *f = &e->p->buffer[b->at.buffer];
    if (micro < 0 || (f->slot_by == WEFT_SLOT_LANE && micro >= f->n_slot))
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s' has %d slots, there is no slot %d", name,
                         f->n_slot, micro);
    *v = weft_exec__view(e, &b->at, f->n_slot > 1 ? micro % f->n_slot : 0);
    memcpy(v->origin, b->origin, sizeof v->origin);
    *m = &e->slab[f->slab];
    return WEFT_OK;
}

weft_status weft_exec_binding(const weft_exec *e, const char *name, int micro,
                              weft_view *out)
{
    const weft_memory *m;
    WEFT_TRY(find_binding(e, name, micro, out, &m));
    out->p = weft_exec__host_address(e, (int)(m - e->slab), out->p);
    if (e->host_slab[m - e->slab].address) return WEFT_OK;
    if (m->address && !weft_memory_host(m))
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s' is in memory that only the device reaches",
                         name);
    return WEFT_OK;
}

/* A copy between a binding and host memory, run by run. */
typedef struct binding_copy {
    const weft_memory *m;
    const weft_view   *v;
    const weft_region *r; /* NULL: all */
    char              *to;
    const char        *from;  /* one of both is NULL */
    int64_t            done;  /* bytes of host memory */
    weft_stream       *order; /* writes in its order; NULL: done on return */
    const weft_memory *host;  /* of these: the slab's pinned memory */
} binding_copy;

/* By pinned memory, so that nothing waits for the stream.  A write to the same place that is under
 * way takes the new value, too, and is followed by this one. */
static weft_status write_in_order(const binding_copy *c, int64_t at, int64_t bytes)
{
    weft_device *d = c->m->device;
    weft_memory  to, from;
    WEFT_TRY(weft_memory_part(c->host, at, bytes, &from));
    WEFT_TRY(weft_memory_part(c->m, at, bytes, &to));
    memcpy(from.address, c->from + c->done, (size_t)bytes);
    return d->copy(d, c->order, &to, &from);
}

static weft_status copy_run(binding_copy *c, int64_t at, int64_t bytes)
{
    WEFT_TRY(c->to      ? weft_device_read(c->to + c->done, c->m, at, bytes)
             : c->order ? write_in_order(c, at, bytes)
                        : weft_device_write(c->m, at, c->from + c->done, bytes));
    c->done += bytes;
    return WEFT_OK;
}

/* at: of the first element, in bytes of the slab. */
static weft_status copy_region(binding_copy *c, int d, int64_t at)
{
    int64_t size  = weft_dtype_bytes(c->v->dtype);
    int     n_dim = c->v->shape.n;
    if (d == n_dim) return copy_run(c, at, size);
    int64_t step = c->v->stride[d] * size, n = c->r ? c->r->extent[d] : c->v->shape.d[d];
    if (c->r) at += c->r->offset[d] * step;
    if (d == n_dim - 1 && c->v->stride[d] == 1)
        return n ? copy_run(c, at, n * size) : WEFT_OK;
    for (int64_t i = 0; i < n; i++) WEFT_TRY(copy_region(c, d + 1, at + i * step));
    return WEFT_OK;
}

static weft_status copy_binding(const weft_exec *e, const char *name, int micro,
                                binding_copy *c)
{
    weft_view v;
    WEFT_TRY(find_binding(e, name, micro, &v, &c->m));
    for (int d = 0; c->r && d < v.shape.n; d++)
        if (c->r->global.n != v.shape.n || c->r->offset[d] < 0 || c->r->extent[d] < 0 ||
            c->r->extent[d] > v.shape.d[d] - c->r->offset[d])
            return WEFT_FAIL(WEFT_ERR_ARG, "'%s': the region is not inside its shape",
                             name);
    if (!c->m->address) return WEFT_OK; /* it has no elements */
    c->host = &e->host_slab[c->m - e->slab];
    if (!c->host->address) c->order = NULL; /* others look at it, too */
    c->v       = &v;
    int64_t at = (char *)v.p - (char *)c->m->address;
    if (!c->r && weft_view_contiguous(&v))
        return copy_run(c, at, weft_shape_count(&v.shape) * weft_dtype_bytes(v.dtype));
    return copy_region(c, 0, at);
}

weft_status weft_exec_read(const weft_exec *e, const char *name, int micro,
                           const weft_region *r, void *host)
{
    const void         *there = r ? NULL : weft_exec__find_output(e, name);
    const weft_binding *b     = there ? weft_program_find(e->p, name) : NULL;
    if (b) {
        memcpy(host, there,
               (size_t)(weft_dtype_bytes(b->at.type.dtype) *
                        weft_shape_count(&b->at.type.shape)));
        return WEFT_OK;
    }
    if (e->graph) { /* after what was written in its order */
        weft_stream s = *weft_exec__graph_order(e);
        WEFT_TRY(s.device->finish(&s));
    }
    return copy_binding(e, name, micro, &(binding_copy){.r = r, .to = host});
}

weft_status weft_exec_write(weft_exec *e, const char *name, int micro,
                            const weft_region *r, const void *host)
{
    weft_exec__forget_outputs(e);
    return copy_binding(
        e, name, micro,
        &(binding_copy){.r = r, .from = host, .order = weft_exec__graph_order(e)});
}
