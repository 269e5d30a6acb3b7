/* Ranks leave a membership together, after a step: hosts or ranks come or go. */
#include "base/failpoint.h"
#include "comm/hosts.h"
#include "comm/membership.h"
#include "session/session_priv.h"
#include "session/snapshots_priv.h"

/* Has every part of the state a holder on a second host?  Holder h is of rank h % world. */
static bool is_on_two_hosts(const weft_holders *h, const int32_t *host, int world)
{
    for (int i = 0; i < h->n_tensor; i++)
        for (int k = 0; k < h->tensor[i].n_holder; k++) {
            const weft_holder *x   = &h->tensor[i].holder[k];
            bool               two = false;
            for (int r = 1; r < x->n_rank; r++)
                two = two || host[x->rank[r] % world] != host[x->rank[0] % world];
            if (!two) return false;
        }
    return true;
}

/* A host goes, with what it alone holds: all write a checkpoint of this step, from which the others
 * go on. */
static weft_status save_for_others(weft_session *s)
{
    const weft_membership_source *m    = s->o->member;
    weft_generation              *g    = s->now;
    const int32_t                *host = weft_comm_hosts_of(g->comm);
    int32_t                       any = 0, drains = m->drains && m->drains(m->arg);
    if (!host) return WEFT_OK;
    int32_t *all = WEFT_ARENA_ARRAY(g->arena, int32_t, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(weft_session__gather(s, &drains, sizeof drains, all));
    for (int r = 0; r < g->comm->world; r++) any |= all[r];
    const weft_holders *held = g->all_holders ? g->all_holders : g->holders;
    if (!any || is_on_two_hosts(held, host, g->comm->world)) return WEFT_OK;
    WEFT_TRY(weft_session__save(s));
    return weft_session__settle_save(s);
}

/* Does each rank hold all that any rank holds? */
static bool is_on_all_ranks(const weft_holders *h, int world)
{
    for (int i = 0; h && i < h->n_tensor; i++)
        for (int k = 0; k < h->tensor[i].n_holder; k++)
            if (h->tensor[i].holder[k].n_rank < world) return false;
    return true;
}

/* Ranks go, and their device memory with them: what they alone hold is in a snapshot of this step,
 * or else in a checkpoint. */
static weft_status snap_for_others(weft_session *s)
{
    const weft_membership_source *m = s->o->member;
    weft_generation              *g = s->now;
    bool                          whole;
    int32_t                       any = 0, fewer = m->shrinks && m->shrinks(m->arg);
    if (!weft_session__has_snapshots(s)) return WEFT_OK;
    int32_t *all = WEFT_ARENA_ARRAY(g->arena, int32_t, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(weft_session__gather(s, &fewer, sizeof fewer, all));
    for (int r = 0; r < g->comm->world; r++) any |= all[r];
    if (!any || is_on_all_ranks(g->holders, g->comm->world)) return WEFT_OK;
    WEFT_TRY(weft_session__make_snapshot(s, &whole));
    if (whole) return WEFT_OK;
    WEFT_TRY(weft_session__save(s));
    return weft_session__settle_save(s);
}

weft_status weft_session__leave(weft_session *s)
{
    weft_failpoint("resize.leave");
    WEFT_TRY(weft_session__meet(s));
    weft_session__drop_save(s);
    WEFT_TRY(save_for_others(s));
    WEFT_TRY(snap_for_others(s));
    weft_failpoint("resize.left");
    weft_say_info(&s->say, "after step %lld: another number of ranks",
                  (long long)s->r.steps);
    return weft_session__keep_for_next(s);
}
