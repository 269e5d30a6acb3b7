/* Standby replicas of a running job: who holds them, and how they are filled.  Programs update them
 * (partition/standby.c): they are always of the step of the rank's own state. */
#include <stdlib.h>

#include "comm/hosts.h"
#include "session/session_priv.h"

/* Have ranks standby replicas of each other's state?  The same answer on all of them. */
static bool has_standby(const weft_session *s)
{
    const weft_generation *g = s->now;
    return g->comm && g->plan && weft_plan_has_standby(g->plan);
}

/* What this rank has for another one, or (NULL, or it is whole) the same tensors and nothing of
 * them.  *empty: the caller's. */
static weft_status take_standby(const weft_state *state, bool whole, weft_state **empty,
                                weft_state **out)
{
    *out   = state ? weft_state_standby(state) : NULL;
    *empty = NULL;
    if (*out && !whole) return WEFT_OK;
    WEFT_TRY(weft_state_make_empty(state, empty));
    *out = *empty;
    return WEFT_OK;
}

/* As holders of all ranks: own states, then what they have for others. */
static weft_status exchange_both(weft_session *s, const weft_state *state,
                                 weft_holders **out)
{
    weft_generation *g     = s->now;
    weft_holders    *of[2] = {NULL, NULL};
    weft_state      *empty = NULL, *standby;
    weft_status      st    = WEFT_OK;
    WEFT_GO(weft_holders_exchange(state, g->comm, g->group, &of[0]));
    WEFT_GO(take_standby(state, false, &empty, &standby));
    WEFT_GO(weft_holders_exchange(standby, g->comm, g->group, &of[1]));
    WEFT_GO(weft_holders_join((const weft_holders *const *)of, 2, out));
out:
    weft_holders_destroy(of[0]);
    weft_holders_destroy(of[1]);
    weft_state_destroy(empty);
    return st;
}

weft_status weft_session__find_all_holders(weft_session *s, const weft_state *state)
{
    if (!has_standby(s)) return WEFT_OK;
    return exchange_both(s, state, &s->now->all_holders);
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
    weft_generation *g     = s->now;
    weft_holders    *holds = NULL;
    weft_state      *empty = NULL, *standby;
    weft_mover      *m;
    weft_status      st = WEFT_OK;
    if (!has_standby(s)) return WEFT_OK;
    WEFT_GO(take_standby(to, false, &empty, &standby));
    WEFT_GO(weft_holders_exchange(standby, g->comm, g->group, &holds));
    WEFT_GO(weft_mover_open(&(weft_mover_side){to, g->holders},
                            &(weft_mover_side){standby, holds}, g->comm,
                            WEFT_SESSION__TAG_STATE, &m));
    WEFT_GO(run_mover(m));
out:
    weft_holders_destroy(holds);
    weft_state_destroy(empty);
    return st;
}

weft_status weft_session__list_standby(weft_session *s, weft_state *to, bool whole,
                                       weft_state **empty, weft_mover_side *side)
{
    weft_generation *g     = s->now;
    weft_holders    *holds = NULL;
    *side                  = (weft_mover_side){0};
    *empty                 = NULL;
    if (!has_standby(s)) return WEFT_OK;
    WEFT_TRY(take_standby(to, whole, empty, &side->state));
    WEFT_TRY(weft_holders_exchange(side->state, g->comm, g->group, &holds));
    side->holders = holds;
    return WEFT_OK;
}

/* ---- where no memory outlives a rank ---- */

/* Every rank serves its own state and its replica. */
static weft_status move_from_both(weft_session *s, weft_state *have,
                                  const weft_holders *from, weft_state *to)
{
    weft_generation *g      = s->now;
    int              world  = g->comm->world;
    weft_state     **source = WEFT_ARENA_ARRAY(g->arena, weft_state *, 2 * world);
    int32_t         *host   = WEFT_ARENA_ARRAY(g->arena, int32_t, 2 * world);
    weft_mover      *m;
    WEFT_TRY(weft_arena_status(g->arena));
    for (int h = 0; h < 2 * world; h++) host[h] = h % world;
    source[g->comm->rank]         = have;
    source[world + g->comm->rank] = weft_state_standby(have);
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
    if (has_standby(s))
        WEFT_GO(exchange_both(s, have, &from));
    else
        WEFT_GO(weft_holders_exchange(have, g->comm, g->group, &from));
    WEFT_GO(weft_session__find_complete(from, g->holders, &complete));
    g->restores = !complete;
    if (g->restores) goto out;
    if (has_standby(s)) {
        WEFT_GO(move_from_both(s, have, from, to));
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
