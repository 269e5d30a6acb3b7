/* A program of its own that says the same: what passes over programs begin with. */
#include "program/program.h"

weft_status weft_instr_copy(const weft_instr *from, weft_arena *a, weft_instr *to)
{
    *to      = *from;
    to->name = weft_arena_strdup(a, from->name ? from->name : "");
    to->in   = weft_arena_memdup(a, from->in, sizeof *from->in * (size_t)from->n_in);
    to->out  = weft_arena_memdup(a, from->out, sizeof *from->out * (size_t)from->n_out);
    if (from->units)
        to->units =
            weft_arena_memdup(a, from->units, sizeof *from->units * (size_t)from->n_in);
    to->post = from->n_post ? WEFT_ARENA_ARRAY(a, weft_post, from->n_post) : NULL;
    WEFT_TRY(weft_arena_status(a));
    if (from->attr) WEFT_TRY(weft_op_copy_attr(from->op, from->attr, a, &to->attr));
    for (int k = 0; k < from->n_post; k++) {
        to->post[k] = from->post[k];
        WEFT_TRY(weft_op_copy_attr(from->post[k].op, from->post[k].attr, a,
                                   &to->post[k].attr));
    }
    return weft_arena_status(a);
}

static weft_status copy_actors(const weft_program *p, weft_program *q)
{
    q->actor = WEFT_ARENA_ARRAY(q->arena, weft_actor, p->n_actor + 1);
    WEFT_TRY(weft_arena_status(q->arena));
    for (int k = 0; k < p->n_actor; k++) {
        weft_actor *a = &q->actor[k];
        *a            = p->actor[k];
        a->name       = weft_arena_strdup(q->arena, a->name);
        a->instr      = WEFT_ARENA_ARRAY(q->arena, weft_instr, a->n_instr + 1);
        WEFT_TRY(weft_arena_status(q->arena));
        for (int i = 0; i < a->n_instr; i++)
            WEFT_TRY(weft_instr_copy(&p->actor[k].instr[i], q->arena, &a->instr[i]));
    }
    return WEFT_OK;
}

#define COPY(array, n)                                                                   \
    (q->array = weft_arena_memdup(q->arena, p->array, sizeof *p->array * (size_t)(n)))

static weft_status copy_tables(const weft_program *p, weft_program *q)
{
    COPY(slab, p->n_slab);
    COPY(buffer, p->n_buffer);
    COPY(edge, p->n_edge);
    COPY(group, p->n_group);
    COPY(binding, p->n_binding);
    COPY(stream, p->n_stream);
    WEFT_TRY(weft_arena_status(q->arena));
    for (int k = 0; k < p->n_stream; k++) {
        COPY(stream[k].firing, p->stream[k].n_firing);
        q->stream[k].name = weft_arena_strdup(q->arena, p->stream[k].name);
    }
    for (int k = 0; k < p->n_slab; k++)
        q->slab[k].name = weft_arena_strdup(q->arena, p->slab[k].name);
    for (int k = 0; k < p->n_buffer; k++)
        q->buffer[k].name = weft_arena_strdup(q->arena, p->buffer[k].name);
    for (int k = 0; k < p->n_binding; k++)
        q->binding[k].name = weft_arena_strdup(q->arena, p->binding[k].name);
    for (int k = 0; k < p->n_group; k++) {
        size_t bytes = sizeof(int32_t) * (size_t)p->group[k].n_rank;
        COPY(group[k].rank, p->group[k].n_rank);
        if (p->group[k].share)
            q->group[k].share = weft_arena_memdup(q->arena, p->group[k].share, bytes);
    }
    return weft_arena_status(q->arena);
}

weft_status weft_program_copy(const weft_program *p, weft_program **out)
{
    weft_program *q  = NULL;
    weft_status   st = WEFT_OK;
    WEFT_TRY(weft_program_create(p->name, &q));
    weft_arena *arena = q->arena;
    const char *name  = q->name;
    *q                = *p;
    q->arena          = arena;
    q->name           = name;
    WEFT_GO(copy_tables(p, q));
    WEFT_GO(copy_actors(p, q));
    *out = q;
    q    = NULL;
out:
    weft_program_destroy(q);
    return st;
}
