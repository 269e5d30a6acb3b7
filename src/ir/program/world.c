/* Programs up to whom they talk to. */
#include "program/world.h"

#include "base/hash.h"

static void add_int(weft_hash_state *h, int64_t x)
{
    weft_hash_add(h, &x, sizeof x);
}

static void add_operand(weft_hash_state *h, const weft_operand *o)
{
    add_int(h, o->buffer < 0);
    add_int(h, (int64_t)o->type.dtype);
    add_int(h, o->type.shape.n);
    for (int d = 0; d < o->type.shape.n; d++) {
        add_int(h, o->type.shape.d[d]);
        add_int(h, o->stride[d]);
    }
}

static void add_instr(weft_hash_state *h, const weft_instr *i)
{
    double number[] = {i->seconds, weft_instr_flops(i), weft_instr_bytes(i)};
    weft_hash_add(h, number, sizeof number);
    add_int(h, (int64_t)i->kind);
    if (i->kind == WEFT_INSTR_COMPUTE) add_int(h, (int64_t)i->op);
    add_int(h, i->n_in);
    add_int(h, i->n_out);
    for (int k = 0; k < i->n_in; k++) add_operand(h, &i->in[k]);
    for (int k = 0; k < i->n_out; k++) add_operand(h, &i->out[k]);
    if (!weft_instr_is_comm(i)) return;
    add_int(h, (int64_t)i->coll);
    add_int(h, i->kind == WEFT_INSTR_COLLECTIVE ? i->group : -1);
    add_int(h, i->unit);
    for (int k = 0; i->units && k < i->n_in; k++) add_int(h, i->units[k]);
    add_int(h, i->lanes);
    add_int(h, i->tag);
    add_int(h, i->credits);
}

static int32_t first_micro(const weft_program *p)
{
    int32_t least = INT32_MAX;
    for (int s = 0; s < p->n_stream; s++)
        for (int k = 0; k < p->stream[s].n_firing; k++) {
            int32_t m = p->stream[s].firing[k].micro;
            if (m >= 0 && m < least) least = m;
        }
    return least;
}

static void add_firings(weft_hash_state *h, const weft_program *p)
{
    int32_t first = first_micro(p);
    for (int s = 0; s < p->n_stream; s++) {
        add_int(h, p->stream[s].kind);
        add_int(h, p->stream[s].device);
        add_int(h, p->stream[s].threads);
        add_int(h, p->stream[s].n_firing);
        for (int k = 0; k < p->stream[s].n_firing; k++) {
            const weft_firing *f = &p->stream[s].firing[k];
            add_int(h, f->actor);
            add_int(h, f->micro < 0 ? -1 : f->micro - first);
        }
    }
}

uint64_t weft_program_likeness(const weft_program *p)
{
    weft_hash_state h;
    weft_hash_init(&h, 0);
    add_int(&h, p->world);
    for (int k = 0; k < p->n_slab; k++) {
        add_int(&h, (int64_t)p->slab[k].kind);
        add_int(&h, p->slab[k].bytes);
    }
    add_int(&h, p->n_actor);
    for (int a = 0; a < p->n_actor; a++) {
        add_int(&h, (int64_t)p->actor[a].stream);
        add_int(&h, p->actor[a].n_instr);
        for (int k = 0; k < p->actor[a].n_instr; k++)
            add_instr(&h, &p->actor[a].instr[k]);
    }
    add_int(&h, p->n_edge);
    for (int k = 0; k < p->n_edge; k++) {
        const weft_edge *e = &p->edge[k];
        add_int(&h, e->from);
        add_int(&h, e->to);
        add_int(&h, e->credits);
        add_int(&h, e->per_step);
        add_int(&h, e->delay);
    }
    add_int(&h, p->n_group);
    for (int k = 0; k < p->n_group; k++) {
        const weft_group *g = &p->group[k];
        add_int(&h, g->n_rank);
        for (int m = 0; m < g->n_rank && g->share; m++) add_int(&h, g->share[m]);
    }
    add_firings(&h, p);
    return weft_hash_value(&h);
}

static bool is_message(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_SEND || i->kind == WEFT_INSTR_RECV;
}

weft_status weft_program_peers(const weft_program *p, weft_arena *a, int32_t **peer,
                               int *n)
{
    int cap = 0;
    *peer   = NULL;
    *n      = 0;
    for (int k = 0; k < p->n_actor; k++)
        for (int m = 0; m < p->actor[k].n_instr; m++) {
            const weft_instr *i = &p->actor[k].instr[m];
            void             *v = *peer;
            int               at;
            if (!is_message(i)) continue;
            for (at = 0; at < *n && (*peer)[at] != i->peer; at++) {
            }
            if (at < *n) continue;
            WEFT_TRY(weft_arena_grow(a, &v, &cap, *n + 1, sizeof **peer));
            *peer           = v;
            (*peer)[(*n)++] = i->peer;
        }
    return WEFT_OK;
}

weft_status weft_world_program(const weft_world *w, int r, weft_arena *a,
                               weft_program **out)
{
    const weft_program *l = w->like[r];
    weft_program       *p = weft_arena_memdup(a, l, sizeof *l);
    if (!p) return weft_arena_status(a);
    p->rank  = r;
    p->group = weft_arena_memdup(a, l->group, sizeof *l->group * (size_t)l->n_group);
    p->actor = weft_arena_memdup(a, l->actor, sizeof *l->actor * (size_t)l->n_actor);
    WEFT_TRY(weft_arena_status(a));
    for (int k = 0; k < p->n_group; k++) {
        weft_group *g = &p->group[k];
        int32_t    *x = WEFT_ARENA_ARRAY(a, int32_t, g->n_rank);
        if (!x) return weft_arena_status(a);
        for (int m = 0; m < g->n_rank; m++) x[m] = weft_world_other(w, r, g->rank[m]);
        g->rank = x;
    }
    for (int k = 0; k < p->n_actor; k++) {
        weft_actor *x = &p->actor[k];
        x->instr = weft_arena_memdup(a, x->instr, sizeof *x->instr * (size_t)x->n_instr);
        if (x->n_instr && !x->instr) return weft_arena_status(a);
        for (int m = 0; m < x->n_instr; m++)
            if (is_message(&x->instr[m]))
                x->instr[m].peer = weft_world_other(w, r, x->instr[m].peer);
    }
    *out = p;
    return weft_arena_status(a);
}
