/* Standby replicas of a running job: who holds them, and how they are filled.  Programs update them
 * (partition/standby.c): they are always of the step of the rank's own state. */
#include <stdlib.h>

#include "comm/hosts.h"
#include "session/session_priv.h"

/* How many standby replicas have ranks of each other's state?  The same answer on all of them. */
static int count_standby(const weft_session *s)
{
    const weft_generation *g = s->now;
    return g->comm && g->plan ? weft_plan_n_standby(g->plan) : 0;
}

void weft_session__standby_sides_fini(weft_session__standby_sides *x)
{
    for (int k = 0; k < x->n; k++)
        weft_holders_destroy((weft_holders *)(uintptr_t)x->side[k].holders);
    weft_state_destroy(x->empty);
    *x = (weft_session__standby_sides){0};
}

/* What this rank has for the k-th of others, or (there is none, or it is whole) the same tensors
 * and nothing of them; who holds what of these. */
static weft_status list_side(weft_session *s, const weft_state *state, bool whole, int k,
                             weft_session__standby_sides *x)
{
    weft_generation *g       = s->now;
    weft_state      *standby = whole ? NULL : weft_state_standby(state, k);
    weft_holders    *holds   = NULL;
    if (!standby && !x->empty) WEFT_TRY(weft_state_make_empty(state, &x->empty));
    if (!standby) standby = x->empty;
    WEFT_TRY(weft_holders_exchange(standby, g->comm, g->group, &holds));
    x->side[x->n++] = (weft_mover_side){standby, holds};
    return WEFT_OK;
}

weft_status weft_session__list_standby(weft_session *s, weft_state *to, bool whole,
                                       weft_session__standby_sides *out)
{
    weft_status st = WEFT_OK;
    *out           = (weft_session__standby_sides){0};
    for (int k = 0; k < count_standby(s); k++) WEFT_GO(list_side(s, to, whole, k, out));
    return st;
out:
    weft_session__standby_sides_fini(out);
    return st;
}

/* As holders of all ranks: own states, then what they have for others. */
static weft_status exchange_all(weft_session *s, weft_state *state, weft_holders **out)
{
    weft_generation            *g                        = s->now;
    weft_holders               *own                      = NULL;
    const weft_holders         *of[1 + WEFT_MAX_STANDBY] = {NULL};
    weft_session__standby_sides x                        = {0};
    weft_status                 st                       = WEFT_OK;
    WEFT_GO(weft_holders_exchange(state, g->comm, g->group, &own));
    WEFT_GO(weft_session__list_standby(s, state, false, &x));
    of[0] = own;
    for (int k = 0; k < x.n; k++) of[1 + k] = x.side[k].holders;
    WEFT_GO(weft_holders_join(of, 1 + x.n, out));
out:
    weft_holders_destroy(own);
    weft_session__standby_sides_fini(&x);
    return st;
}

weft_status weft_session__find_all_holders(weft_session *s, weft_state *state)
{
    if (!count_standby(s)) return WEFT_OK;
    return exchange_all(s, state, &s->now->all_holders);
}

static weft_status run_mover(weft_mover *m)
{
    weft_status st = weft_mover_run(m);
    weft_mover_close(m);
    return st;
}

/* ---- filling ---- */

weft_status weft_session__fill_standby(weft_session *s, weft_state *to)
{
    weft_generation            *g = s->now;
    weft_session__standby_sides x;
    weft_status                 st = WEFT_OK;
    WEFT_TRY(weft_session__list_standby(s, to, false, &x));
    for (int k = 0; k < x.n; k++) {
        weft_mover *m;
        WEFT_GO(weft_mover_open(&(weft_mover_side){to, g->holders}, &x.side[k], g->comm,
                                WEFT_SESSION__TAG_STATE, &m));
        WEFT_GO(run_mover(m));
    }
out:
    weft_session__standby_sides_fini(&x);
    return st;
}

/* ---- where no memory outlives a rank ---- */

/* Every rank serves its own state and its replicas. */
static weft_status move_from_all(weft_session *s, weft_state *have,
                                 const weft_holders *from, weft_state *to)
{
    weft_generation *g     = s->now;
    int              world = g->comm->world, n = (1 + count_standby(s)) * world;
    weft_state     **source = WEFT_ARENA_ARRAY(g->arena, weft_state *, n);
    int32_t         *host   = WEFT_ARENA_ARRAY(g->arena, int32_t, n);
    weft_mover      *m;
    WEFT_TRY(weft_arena_status(g->arena));
    for (int h = 0; h < n; h++) host[h] = h % world;
    source[g->comm->rank] = have;
    for (int k = 1; k < n / world; k++)
        source[k * world + g->comm->rank] = weft_state_standby(have, k - 1);
    WEFT_TRY(weft_mover_open_hosts(source, from, &(weft_mover_side){to, g->holders}, host,
                                   g->comm, WEFT_SESSION__TAG_STATE, &m));
    return weft_session__run_move(s, m);
}

weft_status weft_session__move_sent(weft_session *s, weft_state *have, weft_state *to)
{
    weft_generation *g    = s->now;
    weft_holders    *from = NULL;
    weft_mover      *m;
    bool             complete;
    weft_status      st = WEFT_OK;
    if (count_standby(s))
        WEFT_GO(exchange_all(s, have, &from));
    else
        WEFT_GO(weft_holders_exchange(have, g->comm, g->group, &from));
    WEFT_GO(weft_session__find_complete(from, g->holders, &complete));
    g->restores = !complete;
    if (g->restores) goto out;
    if (count_standby(s)) {
        WEFT_GO(move_from_all(s, have, from, to));
        WEFT_GO(weft_session__fill_standby(s, to));
    } else {
        WEFT_GO(weft_mover_open(&(weft_mover_side){have, from},
                                &(weft_mover_side){to, g->holders}, g->comm,
                                WEFT_SESSION__TAG_STATE, &m));
        WEFT_GO(weft_session__run_move(s, m));
    }
out:
    weft_holders_destroy(from);
    return st;
}
