/* The kernels of a stream: found when its instructions are bound, prepared when all of them are,
 * released with the stream; and the scalars of a step, which they read. */
#include <string.h>

#include "exec/exec_priv.h"

weft_status weft_exec__find_kernel(weft_exec__instr *x)
{
    weft_exec__stream *s    = x->s;
    weft_pool         *pool = s->ctx.pool;
    if (x->i->kind == WEFT_INSTR_COPY)
        return weft_kernel_find_copy(s->device->kernels, &x->move);
    if (x->i->kind == WEFT_INSTR_MERGE)
        return weft_kernel_find_merge(s->device->kernels, &x->move);
    if (x->i->kind != WEFT_INSTR_COMPUTE) return WEFT_OK;
    weft_status st = weft_kernel_find(s->device->kernels, &x->call, &x->kernel);
    if (st != WEFT_OK) return weft_fail_in(st, "compute '%s': ", x->i->name);
    int64_t n = (int64_t)weft_kernel_scratch(x->kernel, &x->call,
                                             pool ? weft_pool_threads(pool) : 1);
    if (n > s->scratch_bytes) s->scratch_bytes = n;
    s->has_kernel = true;
    return WEFT_OK;
}

static bool has_kernel(const weft_exec__instr *x)
{
    return x->i && x->i->kind == WEFT_INSTR_COMPUTE && x->kernel;
}

/* Firings may share a variant: prepared once. */
static weft_status prepare_variant(weft_exec__stream *s, const weft_actor *a,
                                   weft_exec__variant *v)
{
    if (v->prepared) return WEFT_OK;
    v->prepared = true;
    for (int n = 0; n < a->n_instr; n++) {
        weft_exec__instr *x = &v->instr[n];
        if (!has_kernel(x)) continue;
        weft_status st = weft_kernel_prepare(x->kernel, &s->ctx, s->e->arena, &x->call);
        if (st != WEFT_OK)
            return weft_fail_in(st, "program %s, actor %s, compute '%s': ", s->e->p->name,
                                a->name, x->i->name);
    }
    return WEFT_OK;
}

weft_status weft_exec__prepare_kernels(weft_exec__stream *s)
{
    const weft_stream_spec *spec = &s->e->p->stream[s->number];
    if (!s->has_kernel) return WEFT_OK;
    WEFT_TRY(
        weft_device_alloc(s->device, WEFT_SPACE_DEVICE, s->scratch_bytes, &s->scratch));
    WEFT_TRY(weft_device_alloc(s->device, WEFT_SPACE_DEVICE, sizeof(weft_step_scalars),
                               &s->scalars));
    s->ctx.scratch = s->scratch.address;
    s->ctx.scalars = s->scalars.address;
    for (int i = 0; i < spec->n_firing; i++)
        WEFT_TRY(
            prepare_variant(s, &s->e->p->actor[spec->firing[i].actor], s->variant[i]));
    return WEFT_OK;
}

void weft_exec__release_kernels(weft_exec__stream *s)
{
    const weft_stream_spec *spec = &s->e->p->stream[s->number];
    for (int i = 0; s->variant && i < spec->n_firing; i++) {
        weft_exec__variant *v = s->variant[i];
        for (int n = 0;
             v && v->prepared && n < s->e->p->actor[spec->firing[i].actor].n_instr; n++)
            if (has_kernel(&v->instr[n]))
                weft_kernel_release(v->instr[n].kernel, &v->instr[n].call);
    }
    weft_device_free(&s->scratch);
    weft_device_free(&s->scalars);
}

weft_step_scalars weft_exec__step_scalars(const weft_exec__stream *s)
{
    const weft_exec_options *o     = &s->e->o;
    int64_t                  micro = s->firing->micro < 0 ? 0 : s->firing->micro;
    return (weft_step_scalars){.seed         = o->seed,
                               .step         = s->job_step,
                               .sample       = s->job_step * o->batch,
                               .micro_sample = micro * o->micro_batch};
}

weft_status weft_exec__write_scalars(weft_exec__stream *s)
{
    weft_step_scalars now = weft_exec__step_scalars(s);
    if (!s->has_kernel || !memcmp(&now, &s->written, sizeof now)) return WEFT_OK;
    s->written       = now;
    weft_memory from = {.device  = s->device,
                        .space   = WEFT_SPACE_HOST,
                        .address = &s->written,
                        .bytes   = sizeof s->written};
    return s->device->copy(s->device, &s->dev, &s->scalars, &from);
}
