#include "session/computed_state.h"

#include "exec/exec.h"

static int64_t size_along(const weft_part *p, int d)
{
    int64_t size = 0;
    for (int k = 0; k < p->n[d]; k++) size += p->run[d][k].hi - p->run[d][k].lo;
    return size;
}

/* A part with one run of dimension d instead of those that it has. */
static weft_part cut_part(const weft_part *p, int d, const weft_interval *run)
{
    weft_part out = *p;
    out.n[d]      = 1;
    out.run[d]    = run;
    return out;
}

/* Where `part` begins in the memory of `all`, in elements; -1: it is no run of it. */
static int64_t find_start(const weft_part *all, const weft_part *part)
{
    int64_t inner = 1, at = 0;
    int     d = 0;
    if (weft_part_equal(all, part)) return 0;
    while (d < all->shape.n && size_along(all, d) == 1) d++;
    if (d == all->shape.n || part->n[d] != 1) return -1;
    for (int k = d + 1; k < all->shape.n; k++) inner *= size_along(all, k);
    weft_part cut = cut_part(all, d, part->run[d]);
    if (!weft_part_equal(&cut, part)) return -1;
    for (int k = 0; k < all->n[d]; k++) {
        const weft_interval *r = &all->run[d][k], *own = part->run[d];
        if (own->lo >= r->lo && own->hi <= r->hi) return (at + own->lo - r->lo) * inner;
        at += r->hi - r->lo;
    }
    return -1;
}

/* What this rank computes itself of a tensor that it has, which else is gathered. */
static weft_status cut_to_computed(const weft_compiled *made, weft_arena *a,
                                   weft_state_tensor *t)
{
    weft_part *part = WEFT_ARENA_NEW(a, weft_part);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(weft_compiled_computed_part_of(made, t->name, a, part));
    int64_t start = weft_part_count(part) ? find_start(t->part, part) : -1;
    t->part       = start < 0 ? NULL : part;
    if (t->part) t->offset += start * weft_dtype_bytes(t->dtype);
    return WEFT_OK;
}

/* Into out, of s, which is the program's: what this rank computes after the commit point itself.
 * standby from 1 on: what it has for another rank.  *all becomes false where something is
 * gathered. */
static weft_status make_computed(const weft_compiled *made, const weft_state *s,
                                 int standby, weft_arena *a, weft_state *out, bool *all)
{
    const weft_program *p    = made->program;
    bool               *late = WEFT_ARENA_ARRAY(a, bool, p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(weft_exec_find_late(p, a, late));
    for (int i = 0; i < weft_state_count(s); i++) {
        weft_state_tensor t    = *weft_state_at(s, i);
        const char       *name = t.name;
        if (standby) name = weft_standby_name(a, standby - 1, name);
        WEFT_TRY(weft_arena_status(a));
        if (t.on_host) t.part = NULL; /* no table has it */
        const weft_binding *b = t.part ? weft_program_find(p, name) : NULL;
        if (b && late[b->at.buffer]) {
            *all = false;
            if (standby)
                t.part = NULL;
            else
                WEFT_TRY(cut_to_computed(made, a, &t));
        }
        WEFT_TRY(weft_state_add(out, &t));
    }
    return WEFT_OK;
}

static void keep_memory(void *arg, weft_memory *m)
{
    (void)arg, (void)m;
}

weft_status weft_computed_state_make(const weft_compiled *made, const weft_state *s,
                                     weft_state **out)
{
    weft_state *own = NULL, *more;
    weft_arena *tmp = NULL;
    bool        all = true;
    weft_status st  = WEFT_OK;
    *out            = NULL;
    WEFT_GO(weft_arena_create(&tmp));
    WEFT_GO(weft_state_create_over(weft_state_memory(s), keep_memory, NULL, &own));
    WEFT_GO(make_computed(made, s, 0, tmp, own, &all));
    for (int k = 0; k < weft_state_n_standby(s); k++) {
        WEFT_GO(weft_state_add_standby(own, &more));
        WEFT_GO(make_computed(made, weft_state_standby(s, k), 1 + k, tmp, more, &all));
    }
    if (!all) {
        *out = own;
        own  = NULL;
    }
out:
    weft_state_destroy(own);
    weft_arena_destroy(tmp);
    return st;
}
