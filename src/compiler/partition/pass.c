/* What the passes over programs share: the copy that they change, which gets more actors and
 * edges. */
#include "partition/partition_priv.h"

typedef weft_partition__more more;

weft_status weft_partition__edit_copy(const weft_program *in, weft_partition__edit *edit,
                                      const void *options, weft_program **out)
{
    weft_program *p  = NULL;
    weft_status   st = WEFT_OK;
    WEFT_TRY(weft_program_copy(in, &p));
    WEFT_GO(edit(p, options));
    *out = p;
    p    = NULL;
out:
    weft_program_destroy(p);
    return st;
}

weft_status weft_partition__more_start(weft_program *p, more *m)
{
    *m = (more){.p = p, .cap_actor = p->n_actor + 1, .cap_edge = p->n_edge + 1};
    weft_actor *actor = WEFT_ARENA_ARRAY(p->arena, weft_actor, m->cap_actor);
    weft_edge  *edge  = WEFT_ARENA_ARRAY(p->arena, weft_edge, m->cap_edge);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < p->n_actor; i++) actor[i] = p->actor[i];
    for (int i = 0; i < p->n_edge; i++) edge[i] = p->edge[i];
    p->actor = actor;
    p->edge  = edge;
    return WEFT_OK;
}

weft_status weft_partition__more_actor(more *m, const char *name, int32_t stream,
                                       const weft_instr *instr, int n, int *out)
{
    weft_program *p = m->p;
    WEFT_TRY(weft_arena_grow(p->arena, (void **)&p->actor, &m->cap_actor, p->n_actor + 1,
                             sizeof *p->actor));
    weft_actor *a = &p->actor[p->n_actor];
    *a            = (weft_actor){.name = name, .stream = stream};
    a->instr      = WEFT_ARENA_ARRAY(p->arena, weft_instr, n + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (; instr && a->n_instr < n; a->n_instr++)
        a->instr[a->n_instr] = instr[a->n_instr];
    *out = p->n_actor++;
    return WEFT_OK;
}

weft_status weft_partition__meet(weft_program *p, weft_instr *list, int *n)
{
    const weft_instr **of   = WEFT_ARENA_ARRAY(p->arena, const weft_instr *, *n + 1);
    weft_instr        *all  = WEFT_ARENA_ARRAY(p->arena, weft_instr, *n + 1);
    bool              *done = WEFT_ARENA_ARRAY(p->arena, bool, *n + 1);
    int                kept = 0;
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < *n; i++) all[i] = list[i];
    for (int i = 0; i < *n; i++) {
        int m = 0;
        for (int k = i; k < *n; k++) {
            if (done[k] || (m && !weft_instr_can_join(of[0], &all[k]))) continue;
            done[k] = true;
            of[m++] = &all[k];
        }
        if (m) WEFT_TRY(weft_instr_join(of, m, p->arena, &list[kept++]));
    }
    *n = kept;
    return WEFT_OK;
}

weft_status weft_partition__more_edge(more *m, weft_edge e)
{
    weft_program *p = m->p;
    WEFT_TRY(weft_arena_grow(p->arena, (void **)&p->edge, &m->cap_edge, p->n_edge + 1,
                             sizeof *p->edge));
    p->edge[p->n_edge++] = e;
    return WEFT_OK;
}
