/* What ranks agree on at the commit point of a step, before anything writes state: is the outcome
 * finite, is the norm the same on all of them, does one of them want to stop or know of another
 * membership.
 *
 * One sum over all ranks of a few counts, which are exact.  Ranks have the same norm if each of its
 * bits is set on none or on all of them.  A step that is not as it should be is held back: state
 * stays that of the step before, on every rank. */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "comm/membership.h"
#include "session/session_priv.h"

enum {
    STOP,       /* ranks that want to stop */
    INTERRUPT,  /* ... because of SIGINT */
    NEWER,      /* ranks that know of a newer membership */
    NOT_FINITE, /* ranks whose loss or norm is not */
    NORM,       /* ranks that have bit 0, 1, ... of the norm set */
    N_COUNT = NORM + 32
};

static void count_bits(double norm, float *count)
{
    float    x = (float)norm;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    for (int k = 0; k < 32; k++) count[k] = (float)(bits >> k & 1);
}

static bool is_same(const float *count, int world)
{
    for (int k = 0; k < 32; k++)
        if (count[k] > 0 && count[k] < (float)world) return false;
    return true;
}

weft_status weft_session__agree_step(weft_session *s, double loss, double norm,
                                     bool *hold)
{
    const weft_membership_source *source = s->o->member;

    weft_comm *comm           = s->now->comm;
    int        world          = comm ? comm->world : 1;
    int        own            = s->o->stop ? s->o->stop(s->o->arg) : 0;
    bool       newer          = source && source->changed && source->changed(source->arg);
    float      count[N_COUNT] = {[STOP]      = own ? 1.0f : 0.0f,
                                 [INTERRUPT] = own == SIGINT ? 1.0f : 0.0f,
                                 [NEWER]     = newer ? 1.0f : 0.0f,
                                 [NOT_FINITE] =
                                isfinite(loss) && isfinite(norm) ? 0.0f : 1.0f};
    count_bits(norm, count + NORM);
    if (world > 1)
        WEFT_TRY(weft_comm_collective(comm, s->now->group, WEFT_ALL_REDUCE,
                                      WEFT_DTYPE_F32, count, count, N_COUNT));
    if (count[STOP] > 0)
        s->r.stopped = world == 1 ? own : count[INTERRUPT] > 0 ? SIGINT : SIGTERM;
    s->ending = s->r.stopped       ? WEFT_ENDING_STOP
                : count[NEWER] > 0 ? WEFT_ENDING_MEMBERSHIP
                                   : WEFT_ENDING_DONE;
    s->fault  = count[NOT_FINITE] > 0          ? WEFT_SESSION__NOT_FINITE
                : is_same(count + NORM, world) ? WEFT_SESSION__NO_FAULT
                                               : WEFT_SESSION__DIFFERS;
    *hold     = s->fault != WEFT_SESSION__NO_FAULT;

    s->committed = !*hold;
    if (s->committed) weft_session__mark_state(s, -1); /* until its update is done */
    return WEFT_OK;
}

weft_status weft_session__commit(void *session, int64_t step, int n, const double *value,
                                 bool *hold)
{
    (void)step;
    if (n != 2)
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "a commit point of %d values, not loss and norm", n);
    return weft_session__agree_step(session, value[0], value[1], hold);
}

weft_status weft_session__check_step(const weft_session *s, const weft_metrics_row *r)
{
    const char *kept = s->out.saved_step >= 0 ? "; the last checkpoint is whole" : "";
    if (s->fault == WEFT_SESSION__NO_FAULT) return WEFT_OK;
    if (s->fault == WEFT_SESSION__DIFFERS)
        return WEFT_FAIL(
            WEFT_ERR_NUMERIC,
            "step %lld: ranks have different gradient norms (%.9g here): a machine "
            "or a library computes other bits than the others; the step was "
            "held back%s",
            (long long)r->step, r->grad_norm, kept);
    return WEFT_FAIL(
        WEFT_ERR_NUMERIC,
        "step %lld: %s is not finite (lr %g); lower optimizer.lr or set optimizer.clip%s",
        (long long)r->step, isfinite(r->loss) ? "the gradient" : "the loss", r->lr, kept);
}
