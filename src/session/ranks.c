/* Several ranks of one job: what they agree on, and who writes.
 *
 * Data parallel: every rank holds all weights and runs its lanes of each step; sums over ranks make their
 * weights equal to the last bit, so rank 0 alone writes metrics, checkpoints and the result.
 * A rank that fails says so to the others, which then end with WEFT_ERR_PEER instead of waiting. */
#include <signal.h>

#include "session/job_priv.h"
#include "session/session_priv.h"

static int world(const weft_session *s)
{
    return s->o->comm ? s->o->comm->world : 1;
}

bool weft_session__writes(const weft_session *s)
{
    return world(s) == 1 || s->o->comm->rank == 0;
}

int weft_session__threads(const weft_session *s)
{
    int n = weft_runner_cores() / world(s);
    if (s->job.threads) return (int)s->job.threads;
    return n > 0 ? n : 1;
}

/* Where the job does not cut the batch, every rank gets one micro-batch a step. */
static weft_status cut_for_ranks(weft_session *s)
{
    int64_t n = world(s);
    if (s->job.given_micro_batch) return WEFT_OK;
    if (s->job.batch % n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "batch %lld is no multiple of %lld ranks; set micro_batch",
                         (long long)s->job.batch, (long long)n);
    s->job.micro_batch = s->job.batch / n;
    return weft_job__check_cut(&s->job);
}

weft_status weft_session__join(weft_session *s)
{
    int32_t rank[WEFT_SESSION__MAX_RANK];
    if (world(s) == 1) return WEFT_OK;
    if (world(s) > WEFT_SESSION__MAX_RANK)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d ranks, at most %d", world(s),
                         WEFT_SESSION__MAX_RANK);
    for (int r = 0; r < world(s); r++) rank[r] = r;
    WEFT_TRY(
        weft_comm_open_group(s->o->comm, world(s), rank, WEFT_SESSION__TAG, &s->group));
    return cut_for_ranks(s);
}

weft_status weft_session__meet(weft_session *s)
{
    if (world(s) == 1) return WEFT_OK;
    return weft_comm_collective(s->o->comm, s->group, WEFT_COMM_BARRIER, WEFT_DTYPE_F32,
                                NULL, NULL, 0);
}

/* All stop when one is told to. */
weft_status weft_session__agree_stop(weft_session *s)
{
    int   own = s->o->stop ? s->o->stop(s->o->arg) : 0;
    float any = own ? 1.0f : 0.0f;
    if (world(s) > 1)
        WEFT_TRY(weft_comm_collective(s->o->comm, s->group, WEFT_COMM_ALL_REDUCE,
                                      WEFT_DTYPE_F32, &any, &any, 1));
    if (any > 0) s->r.stopped = own ? own : SIGTERM;
    return WEFT_OK;
}

void weft_session__give_up(weft_session *s, weft_status st)
{
    if (world(s) > 1 && st != WEFT_ERR_PEER)
        weft_comm_abort(s->o->comm, weft_error_text());
}
