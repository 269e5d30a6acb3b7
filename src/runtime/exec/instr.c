/* What the device calls for one instruction; reading samples; the commit point. */
#include <string.h>

#include "exec/exec_priv.h"

/* ---- copy: any strides, the same shape ---- */

static void copy_dims(const weft_view *from, const weft_view *to, int d, const char *x,
                      char *y)
{
    size_t  size = (size_t)weft_dtype_bytes(from->dtype);
    int64_t n    = from->shape.d[d];
    int64_t dx = from->stride[d] * (int64_t)size, dy = to->stride[d] * (int64_t)size;
    if (d == from->shape.n - 1 && from->stride[d] == 1 && to->stride[d] == 1) {
        memcpy(y, x, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++, x += dx, y += dy) {
        if (d == from->shape.n - 1)
            memcpy(y, x, size);
        else
            copy_dims(from, to, d + 1, x, y);
    }
}

static void copy(const weft_view *from, const weft_view *to)
{
    int64_t n = weft_shape_count(&from->shape);
    if (!n) return;
    if (weft_view_contiguous(from) && weft_view_contiguous(to))
        memcpy(to->p, from->p, (size_t)n * (size_t)weft_dtype_bytes(from->dtype));
    else
        copy_dims(from, to, 0, from->p, to->p);
}

/* ---- merge: out += in, left lane first ---- */

enum {
    GRAIN = 1 << 15
};

typedef struct merge {
    const weft_view *in, *out;
    int64_t          n;
} merge;

static void merge_task(void *arg, int64_t task, int thread)
{
    const merge *m  = arg;
    int64_t      lo = task * GRAIN, n = m->n - lo < GRAIN ? m->n - lo : GRAIN;
    size_t       size = (size_t)weft_dtype_bytes(m->in->dtype);
    (void)thread;
    if (m->in->dtype == WEFT_DTYPE_F32) {
        const float *x = (const float *)m->in->p + lo;
        float       *y = (float *)m->out->p + lo;
        for (int64_t i = 0; i < n; i++) y[i] += x[i];
        return;
    }
    char       *y     = (char *)m->out->p + (size_t)lo * size;
    const void *in[2] = {y, (const char *)m->in->p + (size_t)lo * size};
    (void)weft_comm_sum(m->in->dtype, 2, in, y, n);
}

static weft_status do_merge(const weft_exec__instr *x)
{
    merge m = {
        .in = x->call.in, .out = x->call.out, .n = weft_shape_count(&x->call.in->shape)};
    /* says so where a type cannot be summed */
    WEFT_TRY(weft_comm_sum(m.in->dtype, 1, (const void *[]){m.out->p}, m.out->p, 0));
    weft_pool_run(x->s->ctx.pool, (m.n + GRAIN - 1) / GRAIN, merge_task, &m);
    return WEFT_OK;
}

/* ---- one instruction ---- */

static weft_status run(const weft_exec__instr *x)
{
    switch (x->i->kind) {
    case WEFT_INSTR_COMPUTE: return x->kernel->run(&x->call, &x->s->ctx);
    case WEFT_INSTR_COPY: copy(x->call.in, x->call.out); return WEFT_OK;
    case WEFT_INSTR_MERGE: return do_merge(x);
    default: return WEFT_OK;
    }
}

/* Only errors ask. */
const char *weft_exec__actor_name(const weft_exec__instr *x)
{
    const weft_program *p = x->s->e->p;
    for (int i = 0; i < p->n_actor; i++)
        if (x->i >= p->actor[i].instr && x->i < p->actor[i].instr + p->actor[i].n_instr)
            return p->actor[i].name;
    return "?";
}

static weft_status named(const weft_exec__instr *x, weft_status st)
{
    if (st == WEFT_OK) return st;
    return weft_fail_in(st, "%s, %s '%s': ", weft_exec__actor_name(x),
                        weft_instr_kind_name(x->i->kind), x->i->name);
}

weft_status weft_exec__task(void *arg)
{
    const weft_exec__instr *x = arg;
    return named(x, run(x));
}

weft_status weft_exec__read(weft_exec__stream *s, const weft_exec__instr *x)
{
    const weft_exec_options *o = &s->e->o;
    /* what fails here is the user's file: the error names it, and no instruction */
    return o->read(o->user, s->job_step, s->firing->micro, x->call.n_out, x->call.out);
}

static weft_status read_scalar(const weft_exec__stream *s, const weft_instr *i, int k,
                               double *out)
{
    const weft_operand *o    = &i->in[k];
    const weft_buffer  *b    = &s->e->p->buffer[o->buffer];
    int64_t             slot = weft_program_slot(s->e->p, i, false, o->buffer, s->firing);
    int64_t             size = weft_dtype_bytes(o->type.dtype);
    float               x;
    bool                single = o->type.dtype == WEFT_DTYPE_F32;
    WEFT_TRY(weft_device_read(single ? (void *)&x : out, &s->e->slab[b->slab],
                              b->offset + slot * b->bytes + o->offset * size, size));
    if (single) *out = x;
    return WEFT_OK;
}

weft_status weft_exec__commit(weft_exec__stream *s, const weft_exec__instr *x)
{
    weft_exec *e = s->e;
    double     value[WEFT_MAX_OUTCOME];
    bool       hold = false;
    if (!e->o.commit) return WEFT_OK;
    if (x->i->n_in > WEFT_MAX_OUTCOME)
        return WEFT_FAIL(WEFT_ERR_ARG, "commit '%s': %d operands, at most %d", x->i->name,
                         x->i->n_in, WEFT_MAX_OUTCOME);
    for (int k = 0; k < x->i->n_in; k++) WEFT_TRY(read_scalar(s, x->i, k, &value[k]));
    WEFT_TRY(e->o.commit(e->o.user, s->job_step, x->i->n_in, value, &hold));
    e->held_step = hold ? s->job_step : -1; /* a step that was held back may run again */
    return WEFT_OK;
}
