#include "session/cut.h"

#include <stdio.h>

#include "session/plans_priv.h"

/* A key that has another value from the next step on. */
static weft_status add_change(weft_session *s, const char *key, int64_t from, int64_t to)
{
    weft_ckpt_change c = {.step = s->r.steps, .from = from, .to = to};
    if (from == to) return WEFT_OK;
    snprintf(c.key, sizeof c.key, "%s", key);
    return weft_ckpt_state_add_change(&s->checkpoint, &c);
}

/* The bits of all that follows are others: one line of the log, and the checkpoint's history, say
 * so. */
static weft_status note_changes(weft_session *s, int64_t micro_batch, int64_t lanes,
                                const char *why)
{
    long long step = (long long)s->r.steps + 1, micro = (long long)s->job.micro_batch;
    long long next = (long long)s->job.lanes;
    char      what[200];
    if (micro == micro_batch && next == lanes) return WEFT_OK;
    if (micro != micro_batch && next != lanes)
        snprintf(what, sizeof what,
                 "micro_batch is %lld and lanes %lld from step %lld on, before they were "
                 "%lld and %lld",
                 micro, next, step, (long long)micro_batch, (long long)lanes);
    else
        snprintf(what, sizeof what, "%s is %lld from step %lld on, before it was %lld",
                 next == lanes ? "micro_batch" : "lanes", next == lanes ? micro : next,
                 step, (long long)(next == lanes ? micro_batch : lanes));
    weft_say_warn(&s->say,
                  "%s (%s): bits differ from a run that keeps it; the checkpoint's "
                  "history says so",
                  what, why);
    WEFT_TRY(add_change(s, "micro_batch", micro_batch, micro));
    return add_change(s, "lanes", lanes, next);
}

weft_status weft_session__note_cut(weft_session *s, const weft_job *given)
{
    bool invariant = weft_job_is_invariant(&s->job);
    if (s->resume)
        return note_changes(s, s->checkpoint.micro_batch, s->checkpoint.lanes,
                            invariant ? "--allow" : "reduction: fixed");
    if (!given->given_lanes || given->lanes == s->job.lanes || invariant) return WEFT_OK;
    weft_say_warn(&s->say,
                  "lanes is %lld and micro_batch %lld, as data-parallel ranks are more "
                  "than the %lld lanes of the job (reduction: fixed)",
                  (long long)s->job.lanes, (long long)s->job.micro_batch,
                  (long long)given->lanes);
    return WEFT_OK;
}

void weft_session__lower_lanes(weft_session *s, const weft_job *given)
{
    bool    is_resume = s->resume != NULL;
    int64_t lanes     = is_resume ? s->checkpoint.lanes : 0;
    int64_t micro     = is_resume ? s->checkpoint.micro_batch : 0;
    if (given->given_lanes) lanes = given->lanes;
    if (given->given_micro_batch) micro = given->micro_batch;
    if (weft_job_is_invariant(&s->job) || !lanes || lanes >= s->job.lanes) return;
    s->job.lanes = lanes;
    if (micro) s->job.micro_batch = micro;
}

weft_status weft_session__follow_cut(weft_session *s)
{
    int64_t micro = s->job.micro_batch, lanes = s->job.lanes;
    s->job.given_micro_batch = s->job.given_lanes = false;
    WEFT_TRY(weft_session__take_cut(&s->job, s->now->plan));
    if (!s->now->continues) return WEFT_OK;
    return note_changes(s, micro, lanes, s->replay.n ? "--replay" : "reduction: fixed");
}
