#include "session/cut.h"

#include <stdio.h>
#include <string.h>

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

/* ---- the history ---- */

void weft_session__put_history(const weft_session *s, weft_kept_card *c)
{
    const weft_ckpt_state *from = &s->checkpoint;
    int                    more = from->n_history > WEFT_KEPT_MAX_CHANGE
                                      ? from->n_history - WEFT_KEPT_MAX_CHANGE
                                      : 0;
    c->n_change                 = from->n_history;
    for (int i = more; i < from->n_history; i++) c->change[i - more] = from->history[i];
}

weft_status weft_session__take_history(weft_session *s, const weft_kept_card *c)
{
    int n = c->n_change < WEFT_KEPT_MAX_CHANGE ? c->n_change : WEFT_KEPT_MAX_CHANGE;
    weft_ckpt_state_fini(&s->checkpoint);
    s->checkpoint = (weft_ckpt_state){0};
    if (n < c->n_change)
        weft_say_warn(
            &s->say,
            "checkpoints of this run lack the oldest %d of %d changes of keys in "
            "their history: ranks that are replaced know the newest %d",
            c->n_change - n, c->n_change, n);
    for (int i = 0; i < n; i++)
        WEFT_TRY(weft_ckpt_state_add_change(&s->checkpoint, &c->change[i]));
    return WEFT_OK;
}

/* Changes of the key after the step are none any more; *was: what it was before them. */
static void drop_changes(weft_ckpt_state *c, int64_t step, const char *key, int64_t *was)
{
    int n = 0;
    for (int i = c->n_history - 1; i >= 0; i--)
        if (c->history[i].step > step && !strcmp(c->history[i].key, key))
            *was = c->history[i].from;
    for (int i = 0; i < c->n_history; i++)
        if (c->history[i].step <= step || strcmp(c->history[i].key, key) != 0)
            c->history[n++] = c->history[i];
    c->n_history = n;
}

static weft_status go_back_with_key(weft_ckpt_state *c, int64_t step, const char *key,
                                    int64_t was, int64_t now)
{
    weft_ckpt_change change = {.step = step, .to = now};
    drop_changes(c, step, key, &was);
    if (was == now || !step) return WEFT_OK; /* from the beginning: it had no other */
    snprintf(change.key, sizeof change.key, "%s", key);
    change.from = was;
    return weft_ckpt_state_add_change(c, &change);
}

weft_status weft_session__go_back_in_history(weft_ckpt_state *c, int64_t step,
                                             bool is_read, const weft_job *now)
{
    WEFT_TRY(go_back_with_key(c, step, "micro_batch",
                              is_read ? c->micro_batch : now->micro_batch,
                              now->micro_batch));
    return go_back_with_key(c, step, "lanes", is_read ? c->lanes : now->lanes,
                            now->lanes);
}
