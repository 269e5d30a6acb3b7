/* The life of a job.  In: a job.  Out: weights, checkpoints, metrics.
 *
 *     open                                   the session
 *     for each membership
 *         open a generation                  connect, decide, compile, memory, state
 *         run its steps                      until nothing is left, a signal, another membership
 *         react                              one row for each kind of ending
 *         close the generation
 *     close */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm/membership.h"
#include "session/plans_priv.h"

enum {
    MAX_NO_MEMORY = 3 /* views that a rank has no memory for, after one step */
};

/* ---- reactions ---- */

typedef struct reaction {
    bool save;    /* a checkpoint, and the hash of the weights */
    bool publish; /* trained weights as a model, the timeline */
    bool abort;   /* others wait for this rank: they are told why it ends */
    bool next;    /* another generation follows */
} reaction;

static const reaction reactions[WEFT_N_ENDING] = {
    [WEFT_ENDING_DONE]       = {.save = true, .publish = true},
    [WEFT_ENDING_STOP]       = {.save = true},
    [WEFT_ENDING_MEMBERSHIP] = {.next = true},
    [WEFT_ENDING_PEER_LOST]  = {0}, /* the others know; the checkpoints so far stay */

    [WEFT_ENDING_LOST_REPLACED] =
        {.next = true}, /* state is kept by weft_session__keep_for_next */

    [WEFT_ENDING_NO_MEMORY] = {.abort = true, .next = true}, /* as is that one's */

    [WEFT_ENDING_NOT_FINITE] = {.abort = true},
    [WEFT_ENDING_REFUSED]    = {0},
    [WEFT_ENDING_FAILED]     = {.abort = true},
};

/* A rank that has no memory for a view of another number of ranks: nothing of the state is lost
 * before all have theirs, and the ranks that there were had the memory that they need.  Of several
 * hosts some of these may be gone. */
static bool may_go_back(const weft_session *s)
{
    const weft_generation *g = s->now;
    return g->opened_s <= 0 && s->n_settled && s->n_settled != g->n_rank &&
           g->n_rank == g->local;
}

/* What it has done of the view is as lost as with a process, and it has one: so a few times after
 * each step, as others may have given memory back. */
static bool may_try_again(const weft_session *s)
{
    int n = s->no_memory.step == s->r.steps ? s->no_memory.n : 0;
    return weft_session__has_agent(s) && !s->over && !s->now->saves_only &&
           (s->started || s->now->continues) && n < MAX_NO_MEMORY;
}

/* How a generation ended that did so with this status. */
static weft_ending find_ending(const weft_session *s, weft_status st, weft_ending ran)
{
    if (st == WEFT_OK) return ran;
    if (st == WEFT_ERR_MEM && may_try_again(s)) return WEFT_ENDING_NO_MEMORY;
    if (st == WEFT_ERR_PEER && weft_session__has_agent(s) && !s->over)
        return WEFT_ENDING_LOST_REPLACED;
    if (st == WEFT_ERR_PEER) return WEFT_ENDING_PEER_LOST;
    if (s->now->refused) return WEFT_ENDING_REFUSED;
    return st == WEFT_ERR_NUMERIC ? WEFT_ENDING_NOT_FINITE : WEFT_ENDING_FAILED;
}

/* ---- results ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sum_up(weft_session *s)
{
    int64_t n = s->times.n_step < WEFT_SESSION__MAX_TIMED ? s->times.n_step
                                                          : WEFT_SESSION__MAX_TIMED;
    if (!n) return;
    s->r.tokens_per_s =
        (double)(s->times.n_step * s->job.batch * s->job.seq) / s->times.total_s;
    qsort(s->times.step_s, (size_t)n, sizeof *s->times.step_s, by_size);
    s->r.step_ms_median = 1e3 * s->times.step_s[n / 2];
}

static weft_status hash(weft_session *s)
{
    return weft_weights_hash(&s->now->weights, &s->r.weights_xxh64);
}

static bool traces(const weft_session *s)
{
    return s->o->trace && s->times.n_step;
}

/* All is written.  Before others hear of it: once one has ended, none of their agents starts this
 * rank once more. */
static void announce(weft_session *s)
{
    weft_say_info(&s->say, "done: %lld steps, weights in %s/final", (long long)s->r.steps,
                  s->out.folder);
    weft_say_end(&s->say);
    weft_session__end_status(s, WEFT_OK);
    if (s->o->finished) s->o->finished(s->o->finished_arg, &s->r);
    weft_session__tell_agent(s, WEFT_MEMBERSHIP_FINISHED);
    weft_failpoint("end.announced");
}

static weft_status export_final(weft_session *s)
{
    WEFT_TRY(weft_session__export(s));
    s->exported = true;
    weft_failpoint("end.exported");
    if (!traces(s)) announce(s);
    return WEFT_OK;
}

/* Once all is written, a rank that is lost before it heard of that is not missed: others have
 * ended, and there may be no next view with them. */
static weft_status publish(weft_session *s)
{
    weft_status st = weft_session__lead(s, export_final);
    if (st == WEFT_ERR_PEER && s->exported && !s->o->trace) st = WEFT_OK;
    WEFT_TRY(st);
    weft_failpoint("end.published");
    if (traces(s)) WEFT_TRY(weft_session__trace(s));
    if (traces(s) && weft_session__writes(s)) announce(s);
    if (!traces(s) && !weft_session__writes(s))
        weft_session__tell_agent(s, WEFT_MEMBERSHIP_FINISHED);
    return WEFT_OK;
}

static weft_status finish(weft_session *s, const reaction *r)
{
    int count[WEFT_SESSION__MAX_RANK];
    if (!r->save) return WEFT_OK;
    weft_failpoint("end.save");
    sum_up(s);
    WEFT_TRY(weft_session__save(s));
    weft_failpoint("end.hash");
    WEFT_TRY(weft_session__lead(s, hash));
    WEFT_TRY(weft_session__share(s, &s->r.weights_xxh64, sizeof s->r.weights_xxh64));
    weft_failpoint("end.publish");
    if (r->publish) return publish(s);
    if (s->now->saves_only) {
        weft_say_info(&s->say, "%s saved the state after step %lld",
                      weft_session__count_by_host(s, count) > 1
                          ? "hosts that are no majority have together"
                          : "this host alone has",
                      (long long)s->r.steps);
        return WEFT_OK;
    }
    weft_say_info(
        &s->say,
        "stopped by signal %d after step %lld; the same command goes on from there",
        s->r.stopped, (long long)s->r.steps);
    return WEFT_OK;
}

/* ---- the loop ---- */

/* The agent hears how many ranks are to be in the next view, and why, before peers leave. */
static void note_no_memory(weft_session *s)
{
    const weft_membership_source *m    = s->o->member;
    weft_say                      say  = s->say;
    bool                          back = may_go_back(s);
    int                           n    = back ? s->n_settled : s->now->n_rank;
    if (s->no_memory.step != s->r.steps) s->no_memory.n = 0;
    s->no_memory.step = s->r.steps;
    s->no_memory.n++;
    say.mute = false; /* any rank's line */
    weft_say_warn(&say, "%s: %s %d rank%s", weft_error_text(),
                  back ? "back to" : "once more with", n, n == 1 ? "" : "s");
    if (back) m->tell(m->arg, WEFT_MEMBERSHIP_WANTS, n, weft_error_text());
}

/* What the table says for this ending; *next: another generation follows. */
static weft_status react(weft_session *s, weft_status st, weft_ending ran, bool *next)
{
    if (st == WEFT_OK) st = finish(s, &reactions[ran]);
    if (st == WEFT_OK) st = weft_session__settle_save(s);
    if (st == WEFT_OK && reactions[ran].next)
        st = weft_session__has_agent(s) ? weft_session__leave(s)
                                        : weft_generation_keep_state(s);
    weft_ending ending = find_ending(s, st, ran);
    if (ending == WEFT_ENDING_NO_MEMORY) note_no_memory(s);
    if (ending == WEFT_ENDING_LOST_REPLACED || ending == WEFT_ENDING_NO_MEMORY) {
        snprintf(s->left_why, sizeof s->left_why, "%s", weft_error_text());
        weft_session__drop_save(s); /* it reads the state */
        if (s->now->comm && weft_error_text()[0])
            weft_say_info(&s->say, "after step %lld: %s; waiting for the next view",
                          (long long)s->r.steps, weft_error_text());
        st = weft_session__keep_for_next(s);
    }
    if (st != WEFT_OK) ending = find_ending(s, st, ran);
    const reaction *r = &reactions[ending];
    if (r->abort && s->now->comm)
        weft_comm_abort(s->now->comm, r->next ? s->left_why : weft_error_text());
    *next = r->next;
    return st;
}

static weft_status run_generation(weft_session *s, bool *next)
{
    weft_generation g;
    weft_ending     ran = WEFT_ENDING_FAILED;
    weft_status     st  = weft_generation_open(s, &g);
    if (st == WEFT_OK) st = weft_generation_run(s, &ran);
    st = react(s, st, ran, next);
    weft_generation_close(s, &g);
    weft_failpoint("view.left");
    if (*next) weft_session__tell_agent(s, WEFT_MEMBERSHIP_LEFT);
    return s->released ? WEFT_OK : st;
}

weft_status weft_session__open(const weft_job *j, const weft_session_options *o,
                               weft_session *s)
{
    static const weft_session_options none;
    *s             = (weft_session){.job   = *j,
                                    .asked = j,
                                    .o     = o ? o : &none,
                                    .out   = {.claim = -1, .saved_step = -1}};
    s->say         = (weft_say){.quiet = s->o->quiet};
    s->r.eval_loss = s->r.loss = s->r.grad_norm = NAN;
    return weft_arena_create(&s->arena);
}

weft_status weft_session__close(weft_session *s)
{
    weft_say_end(&s->say);
    weft_status a = weft_metrics_close(s->out.metrics),
                b = weft_events_close(s->out.events);
    weft_ckpt_close(s->resume);
    weft_ckpt_state_fini(&s->checkpoint);
    weft_ckpt_findings_fini(&s->out.found);
    weft_state_destroy(s->computed);
    weft_state_destroy(s->state);
    weft_session__forget_program(s);
    weft_session__stop_ahead(s);
    weft_session__close_teaching(s);
    weft_session__forget_replans(s);
    weft_training_fini(&s->training);
    weft_model_source_destroy(s->model_source);
    weft_store_dir_close(s->source);
    weft_data_close(s->data);
    weft_data_close(s->eval.data);
    weft_pool_destroy(s->pool);
    weft_session_close_device(s->device);
    weft_text_fini(&s->status.members);
    weft_slow_fini(&s->times.slow);
    weft_links_fini(&s->links);
    weft_arena_destroy(s->arena);
    weft_session__give_up_claim(s);
    return a != WEFT_OK ? a : b;
}

weft_status weft_session_run(const weft_job *job, const weft_session_options *o,
                             weft_session_result *out)
{
    weft_session s;
    weft_status  st = weft_session__open(job, o, &s);
    if (st == WEFT_OK) st = weft_session__read_replay(&s);
    if (st == WEFT_OK) st = weft_session__prepare(&s);
    bool next = st == WEFT_OK, runs = next;
    while (next) st = run_generation(&s, &next);
    if (runs && st != WEFT_OK && st != WEFT_ERR_PEER)
        weft_session__report(&s, weft_session__find_cause(&s, st), "end", "%s",
                             weft_error_text());
    weft_failpoint("end.close");
    weft_session__end_status(&s, st);
    weft_status closed = weft_session__close(&s);
    if (st == WEFT_OK) st = closed;
    if (st == WEFT_OK) *out = s.r;
    return st;
}
