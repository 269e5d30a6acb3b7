/* Host work on memory that only the device reaches: what an instruction reads and writes is copied
 * to host memory before it, and what it writes back after it.
 *
 * Operands that share bytes share them in host memory, too, so a collective in place stays one.  A
 * result is copied to the host as well: what the instruction leaves alone is left alone. */
#include <string.h>

#include "exec/exec_priv.h"

static void put_range(weft_exec__host *g, weft_exec__range r)
{
    for (int k = 0; k < g->n_range;) {
        weft_exec__range *x = &g->range[k];
        if (x->slab != r.slab || r.hi <= x->lo || x->hi <= r.lo) {
            k++;
            continue;
        }
        if (x->lo < r.lo) r.lo = x->lo;
        if (x->hi > r.hi) r.hi = x->hi;
        r.written = r.written || x->written;
        *x        = g->range[--g->n_range];
        k         = 0;
    }
    g->range[g->n_range++] = r;
}

/* Terms of a collective over lanes are in one slot each. */
static int count_terms(const weft_exec *e, const weft_instr *i, bool is_out)
{
    if (is_out || i->kind != WEFT_INSTR_COLLECTIVE || !i->lanes) return 1;
    const weft_group *g = &e->p->group[i->group];
    for (int k = 0; k < g->n_rank; k++)
        if (g->rank[k] == e->p->rank) return weft_instr_terms(i, g, k);
    return 1;
}

/* The bytes of the slab that operand o stands for, v its view. */
static bool find_range(const weft_exec *e, const weft_instr *i, const weft_operand *o,
                       const weft_view *v, bool is_out, weft_exec__range *r)
{
    int64_t lo, hi, size = weft_dtype_bytes(o->type.dtype);
    if (o->buffer < 0 || !v->p || !weft_operand_span(o, &lo, &hi) || lo == hi)
        return false;
    const weft_buffer *b = &e->p->buffer[o->buffer];
    const weft_memory *m = &e->slab[b->slab];
    if (weft_memory_host(m)) return false;
    int64_t slot = (char *)v->p - (char *)m->address - o->offset * size;
    *r           = (weft_exec__range){.slab = b->slab,
                                      .lo   = slot + lo,
                                      .hi = slot + hi + (count_terms(e, i, is_out) - 1) * b->bytes,
                                      .written = is_out};
    return true;
}

weft_status weft_exec__find_stage(weft_exec *e, weft_exec__instr *x)
{
    const weft_instr *i = x->i;
    weft_exec__host  *h = x->host;
    weft_exec__range  r;
    int64_t           bytes = 0;
    if (e->o.carry || i->kind == WEFT_INSTR_COMMIT)
        return WEFT_OK; /* commit reads by itself */
    h->range = WEFT_ARENA_ARRAY(e->arena, weft_exec__range, i->n_in + i->n_out);
    if (!h->range) return weft_arena_status(e->arena);
    for (int k = 0; k < i->n_in; k++)
        if (find_range(e, i, &i->in[k], &x->call.in[k], false, &r)) put_range(h, r);
    for (int k = 0; k < i->n_out; k++)
        if (find_range(e, i, &i->out[k], &x->call.out[k], true, &r)) put_range(h, r);
    for (int k = 0; k < h->n_range; k++) {
        h->range[k].at = bytes;
        bytes += (h->range[k].hi - h->range[k].lo + 63) / 64 * 64;
    }
    if (bytes > x->s->stage_bytes) x->s->stage_bytes = bytes;
    return WEFT_OK;
}

static const weft_view *place_views(weft_exec *e, const weft_exec__instr *x, int n,
                                    const weft_view *of)
{
    weft_view *v = WEFT_ARENA_ARRAY(e->arena, weft_view, n);
    for (int i = 0; v && i < n; i++) {
        v[i] = of[i];
        for (int k = 0; v[i].p && k < x->host->n_range; k++) {
            const weft_exec__range *r = &x->host->range[k];
            int64_t at = (char *)of[i].p - (char *)e->slab[r->slab].address;
            if (at >= r->lo && at < r->hi)
                v[i].p = (char *)x->s->stage.address + r->at + (at - r->lo);
        }
    }
    return v;
}

weft_status weft_exec__place_stage(weft_exec *e, weft_exec__instr *x)
{
    if (!x->host->n_range) return WEFT_OK;
    x->call.in  = place_views(e, x, x->call.n_in, x->call.in);
    x->call.out = place_views(e, x, x->call.n_out, x->call.out);
    return weft_arena_status(e->arena);
}

static weft_status copy_range(const weft_exec *e, const weft_exec__instr *x,
                              const weft_exec__range *r, bool back)
{
    weft_memory device, host;
    WEFT_TRY(weft_memory_part(&e->slab[r->slab], r->lo, r->hi - r->lo, &device));
    WEFT_TRY(weft_memory_part(&x->s->stage, r->at, r->hi - r->lo, &host));
    weft_device *d = x->s->device;
    return back ? d->copy(d, NULL, &device, &host) : d->copy(d, NULL, &host, &device);
}

weft_status weft_exec__stage_in(const weft_exec *e, const weft_exec__instr *x)
{
    for (int k = 0; k < x->host->n_range; k++)
        WEFT_TRY(copy_range(e, x, &x->host->range[k], false));
    return WEFT_OK;
}

weft_status weft_exec__stage_out(const weft_exec *e, const weft_exec__instr *x)
{
    for (int k = 0; k < x->host->n_range; k++)
        if (x->host->range[k].written)
            WEFT_TRY(copy_range(e, x, &x->host->range[k], true));
    return WEFT_OK;
}
