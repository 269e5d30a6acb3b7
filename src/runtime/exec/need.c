/* What an executor will take of a device's memory, before anything of it is there.
 *
 * Kernels say how much scratch a call needs by shapes, types and addresses alone (kernel.h), so
 * slabs at addresses that nobody has do for asking. */
#include <stdlib.h>

#include "exec/exec_priv.h"

enum {
    ALIGN = 4096 /* of slabs */
};

/* Firings of an actor whose calls differ: by whether they add. */
typedef struct asked_actor {
    bool first, later;
} asked_actor;

static weft_status place_slabs(weft_exec *e)
{
    uintptr_t at = ALIGN;
    e->slab      = WEFT_ARENA_ARRAY(e->arena, weft_memory, e->p->n_slab);
    e->host_slab = WEFT_ARENA_ARRAY(e->arena, weft_memory, e->p->n_slab);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int i = 0; i < e->p->n_slab; i++) {
        int64_t bytes = e->p->slab[i].bytes;
        if (!bytes) continue;
        e->slab[i].address = (void *)at;
        e->slab[i].bytes   = bytes;
        at += ((uintptr_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    return WEFT_OK;
}

static bool is_issued(const weft_instr *i)
{
    return !weft_instr_is_comm(i) && i->kind != WEFT_INSTR_READ &&
           i->kind != WEFT_INSTR_COMMIT;
}

/* As find_runs() of prepare.c has them. */
static bool are_of_a_run(const weft_program *p, const weft_instr *a, const weft_instr *b)
{
    return is_issued(a) && is_issued(b) &&
           weft_instr_writes_state(p, a) == weft_instr_writes_state(p, b);
}

/* The instructions of one firing, and the calls of theirs that run as one. */
static weft_status ask_firing(weft_exec *e, weft_exec__stream *s, const weft_firing *f,
                              bool first)
{
    const weft_actor   *a = &e->p->actor[f->actor];
    weft_exec__variant *v = WEFT_ARENA_NEW(e->arena, weft_exec__variant);
    weft_view          *results;
    int                 n_task;
    WEFT_TRY(weft_arena_status(e->arena));
    v->instr   = WEFT_ARENA_ARRAY(e->arena, weft_exec__instr, a->n_instr);
    v->task    = WEFT_ARENA_ARRAY(e->arena, weft_task, a->n_instr);
    v->grouped = WEFT_ARENA_ARRAY(e->arena, weft_task, a->n_instr);
    WEFT_TRY(weft_arena_status(e->arena));
    for (int n = 0; n < a->n_instr; n++) {
        v->instr[n].s = s;
        WEFT_TRY(weft_exec__bind_call(e, f, first, &a->instr[n], &v->instr[n], &results));
        WEFT_TRY(weft_exec__find_kernel(&v->instr[n]));
    }
    for (int n = 0, k; n < a->n_instr; n = k) {
        for (k = n + 1; k < a->n_instr && are_of_a_run(e->p, &a->instr[n], &a->instr[k]);)
            k++;
        WEFT_TRY(weft_exec__group_run(v, n, k - n, e->arena, &n_task));
    }
    return WEFT_OK;
}

static weft_status ask_stream(weft_exec *e, int k, int64_t *bytes)
{
    const weft_stream_spec *spec = &e->p->stream[k];
    asked_actor      *asked      = WEFT_ARENA_ARRAY(e->arena, asked_actor, e->p->n_actor);
    weft_exec__stream s          = {.e = e, .number = k, .device = e->o.device[0]};
    if (spec->device != 0) return WEFT_OK; /* the host's */
    WEFT_TRY(weft_arena_status(e->arena));
    if (!spec->threads) s.ctx.pool = e->o.pool;
    for (int i = 0; i < spec->n_firing; i++) {
        const weft_firing *f = &spec->firing[i];
        bool *seen           = f->first ? &asked[f->actor].first : &asked[f->actor].later;
        if (*seen) continue;
        *seen = true;
        WEFT_TRY(ask_firing(e, &s, f, f->first));
    }
    if (s.has_kernel) *bytes += s.scratch_bytes + (int64_t)sizeof(weft_step_scalars);
    return WEFT_OK;
}

weft_status weft_exec_need(const weft_program *p, weft_device *d, weft_pool *pool,
                           int64_t *bytes)
{
    weft_status st    = WEFT_OK;
    int64_t     total = 0;
    weft_exec  *e     = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    e->p           = p;
    e->o.device[0] = d;
    e->o.pool      = pool;
    WEFT_GO(weft_arena_create(&e->arena));
    WEFT_GO(place_slabs(e));
    for (int k = 0; k < p->n_stream; k++) WEFT_GO(ask_stream(e, k, &total));
    for (int i = 0; i < p->n_slab && !d->host_access; i++)
        if (p->slab[i].kind == WEFT_SLAB_STAGING) total += p->slab[i].bytes;
    *bytes = total;
out:
    weft_arena_destroy(e->arena);
    free(e);
    return st;
}
