/* The steps of a generation: count labels, run the step, in which ranks agree on it and on what
 * comes next, write it down; evaluate, save. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "session/plans_priv.h"
#include "session/snapshots_priv.h"

static bool due(int64_t step, int64_t every, int64_t last)
{
    return step == last || (every > 0 && step % every == 0);
}

/* May the checkpoint of the step wait until the device has the next one to do?  It is of the same
 * state then, which changes after the next commit point. */
static bool may_put_off(const weft_session *s)
{
    return weft_exec_overlaps(weft_runner_exec(s->now->runner)) &&
           s->job.checkpoint.async && s->now->sees_output >= 0 &&
           s->ending == WEFT_ENDING_DONE && s->row.step < s->job.steps;
}

/* Do others than the next step use the state of this one? */
static bool needs_state(const weft_session *s)
{
    return (s->now->eval.runner && due(s->row.step, s->job.eval.every, s->job.steps)) ||
           (due(s->row.step, s->job.checkpoint.every, s->job.steps) && !may_put_off(s)) ||
           weft_session__is_snapshot_due(s);
}

/* The checkpoint that is being written, and the step's own where it is due. */
static weft_status save_step(weft_session *s)
{
    s->out.put_off = false;
    WEFT_TRY(weft_session__poll_save(s));
    if (!due(s->row.step, s->job.checkpoint.every, s->job.steps)) return WEFT_OK;
    return s->row.step == s->job.steps ? weft_session__save(s)
                                       : weft_session__start_save(s);
}

weft_status weft_session__work_meanwhile(void *session, int64_t step)
{
    weft_session *s = session;
    (void)step;
    if (!s->out.put_off) return WEFT_OK;
    WEFT_TRY(weft_exec_await_updates(weft_runner_exec(s->now->runner)));
    return save_step(s);
}

/* No step is given to the device now. */
static weft_status settle_and_save(weft_session *s)
{
    WEFT_TRY(weft_runner_settle(s->now->runner));
    WEFT_TRY(save_step(s));
    weft_session__free_spent(s);
    return WEFT_OK;
}

/* One step; N labels count.  N = 0 runs nothing: loss 0, no update.  Ranks agree on it in the
 * middle, before anything is written (commit.c). */
static weft_status run_step(weft_session *s, weft_metrics_row *row)
{
    int64_t first = (row->step - 1) * s->job.batch;
    double  begin = weft_clock_s();
    weft_failpoint("step.begin");
    WEFT_TRY(weft_data_count_labels(s->data, first, s->job.batch, &row->labels));
    row->lr      = weft_job_lr(&s->job, row->step);
    row->skipped = row->labels == 0;
    row->loss = row->grad_norm = 0;
    s->running                 = *row;
    s->running_s               = begin;
    if (!row->skipped) {
        weft_failpoint("step.labels");
        weft_runner_put(s->now->runner, "lr", row->lr);
        weft_runner_put(s->now->runner, "step", (double)row->step);
        weft_runner_put(s->now->runner, "inv_n", 1 / (double)row->labels);
        /* an update that is broken off leaves a state of no step (commit.c) */
        WEFT_TRY(weft_runner_step(s->now->runner, row->step - 1));
        row->loss = weft_runner_get(s->now->runner, "step.loss") / (double)row->labels;
        row->grad_norm = weft_runner_get(s->now->runner, "step.grad_norm");
    } else {
        if (s->out.put_off) WEFT_TRY(settle_and_save(s));
        WEFT_TRY(weft_session__agree_skipped(s, row->step - 1));
    }
    double seconds    = weft_clock_s() - begin;
    row->step_ms      = 1e3 * seconds;
    row->tokens_per_s = (double)(s->job.batch * s->job.seq) / seconds;
    s->times.step_s[s->times.n_step++ % WEFT_SESSION__MAX_TIMED] = seconds;
    s->times.total_s += seconds;
    weft_session__limit_gpu_waits(s, seconds);
    return WEFT_OK;
}

/* The same; one that was held back is run once more (again.c). */
static weft_status run_checked(weft_session *s, weft_metrics_row *row)
{
    weft_session__trial trial[2];
    for (int k = 0; k < 2; k++) {
        WEFT_TRY(run_step(s, row));
        trial[k] = s->trial;
        if (k) trial[k].sent_other = weft_runner_sent_other(s->now->runner);
        if (!k && trial[k].fault == WEFT_SESSION__NO_FAULT) return WEFT_OK;
        if (trial[k].fault == WEFT_SESSION__DIFFERS)
            WEFT_TRY(weft_session__name_differing(s, &trial[k], row->step));
        weft_runner_keep_numbers(s->now->runner);
    }
    return weft_session__compare_trials(s, trial, row);
}

static weft_status write_row(weft_session *s, const weft_metrics_row *r)
{
    if (!weft_session__writes(s) || s->row_written) return WEFT_OK;
    WEFT_TRY(weft_session__keep_place(s, false));
    weft_failpoint("row.begin");
    WEFT_TRY(weft_metrics_add(s->out.metrics, r));
    weft_failpoint("row.written");
    weft_events_scalar x[] = {{"loss", r->loss},
                              {"grad_norm", r->grad_norm},
                              {"lr", r->lr},
                              {"tokens_per_s", r->tokens_per_s},
                              {"eval_loss", r->eval_loss}};
    return weft_events_add(s->out.events, r->step, x,
                           (int)WEFT_COUNT(x) - (isnan(r->eval_loss) ? 1 : 0));
}

static double count_flops(const weft_session *s)
{
    return weft_model_flops(s->now->made.model) * s->now->made.program->n_micro;
}

static void say_step(weft_session *s, const weft_metrics_row *r)
{
    double            sec   = r->step_ms / 1e3;
    int64_t           tenth = s->job.steps / 10 ? s->job.steps / 10 : 1;
    weft_say_progress p     = {.step         = r->step,
                               .steps        = s->job.steps,
                               .loss         = r->loss,
                               .tokens_per_s = r->tokens_per_s,
                               .step_s       = sec};
    if (s->say.progress && s->times.peak_gflops > 0)
        p.share = count_flops(s) / sec / 1e9 / s->times.peak_gflops;
    if (r->skipped)
        weft_say_warn(&s->say, "step %lld: no label counts, update skipped",
                      (long long)r->step);
    weft_say_step(&s->say, &p);
    if (!s->say.progress &&
        (r->step % tenth == 0 || r->step == s->job.steps || r->step == 1))
        weft_say_info(&s->say,
                      "step %lld of %lld: loss %.6g, grad_norm %.4g, %.0f tokens/s",
                      (long long)r->step, (long long)s->job.steps, r->loss, r->grad_norm,
                      r->tokens_per_s);
    if (!isnan(r->eval_loss))
        weft_say_info(&s->say, "step %lld: eval_loss %.6g", (long long)r->step,
                      r->eval_loss);
}

/* What follows a step, whose row is s->row: after a lost rank it is done once more. */
static weft_status finish_step(weft_session *s)
{
    weft_metrics_row *row = &s->row;
    if (needs_state(s)) WEFT_TRY(weft_runner_settle(s->now->runner));
    if (s->now->eval.runner && due(row->step, s->job.eval.every, s->job.steps)) {
        WEFT_TRY(weft_session__eval_run(s, &row->eval_loss));
        s->r.eval_loss = row->eval_loss;
    }
    WEFT_TRY(write_row(s, row));
    if (!s->row_written) say_step(s, row);
    s->row_written = true;
    weft_session__name_slow(s);
    weft_session__rebalance(s);
    weft_session__step_ahead(s);
    weft_session__step_memory_ahead(s);
    weft_failpoint("row.noted");
    weft_session__write_status(s, false);
    WEFT_TRY(weft_session__step_snapshots(s));
    bool saves     = due(row->step, s->job.checkpoint.every, s->job.steps);
    s->out.put_off = (saves || s->out.saving) && may_put_off(s);
    return s->out.put_off ? WEFT_OK : save_step(s);
}

static weft_status run_steps(weft_session *s, weft_ending *ending)
{
    if (s->now->continues && s->row.step && s->row.step == s->r.steps)
        WEFT_TRY(finish_step(s));
    if (weft_session__is_late_for_replay(s)) *ending = WEFT_ENDING_MEMBERSHIP;
    for (int64_t step = s->r.steps + 1;
         step <= s->job.steps && *ending == WEFT_ENDING_DONE; step++) {
        weft_metrics_row row = {.step = step, .eval_loss = NAN};
        WEFT_TRY(run_checked(s, &row));
        weft_failpoint("update.end");
        WEFT_TRY(weft_session__read_loads(s, &row));
        /* another process may take over what this one leaves: it is whole, or marked as not */
        if (weft_generation_is_state_shared(s))
            WEFT_TRY(weft_runner_settle(s->now->runner));
        weft_failpoint("update.settled");
        weft_session__mark_state(s, step);
        weft_failpoint("update.marked");
        weft_session__teach_state(s, step);
        s->r.steps     = step;
        s->r.loss      = row.loss;
        s->r.grad_norm = row.grad_norm;
        s->row         = row;
        s->row_written = false;
        weft_session__keep_card(s);
        weft_failpoint("update.card");
        weft_session__tell_agent(s, WEFT_MEMBERSHIP_COMMITTED);
        if (s->now->trims) weft_generation_trim(s->now);
        weft_failpoint("update.told");
        WEFT_TRY(finish_step(s));
        weft_failpoint("step.finished");
        if (s->ending == WEFT_ENDING_MEMBERSHIP && step == s->job.steps) break;
        *ending = s->ending;
        if (*ending != WEFT_ENDING_DONE) break;
    }
    return WEFT_OK;
}

bool weft_session__measures_gaps(void)
{
    const char *x = getenv("WEFT_GAPS");
    return x && !strcmp(x, "1");
}

/* How long the GPU had nothing to do, of steps that were replayed. */
static void say_gaps(weft_session *s)
{
    weft_exec_gap between, commit;
    weft_exec_get_gaps(weft_runner_exec(s->now->runner), &between, &commit);
    if (!between.n) return;
    weft_say_info(&s->say,
                  "the device had nothing to do between %lld steps: median %.1f us, mean "
                  "%.1f, most %.0f; at their commit points: median %.1f us, mean %.1f, "
                  "most %.0f",
                  (long long)between.n, 1e6 * between.median_s, 1e6 * between.mean_s,
                  1e6 * between.most_s, 1e6 * commit.median_s, 1e6 * commit.mean_s,
                  1e6 * commit.most_s);
}

/* The state is whole when it ends, however it ends; or it is marked as not. */
weft_status weft_generation_run(weft_session *s, weft_ending *ending)
{
    char text[1024];
    if (s->now->saves_only) {
        *ending      = WEFT_ENDING_STOP;
        s->r.stopped = SIGTERM;
        return WEFT_OK;
    }
    *ending        = WEFT_ENDING_DONE;
    s->ending      = WEFT_ENDING_DONE;
    s->out.put_off = false;
    weft_status st = run_steps(s, ending);
    snprintf(text, sizeof text, "%s", weft_error_text());
    bool leaves = st == WEFT_OK && *ending == WEFT_ENDING_MEMBERSHIP;
    weft_session__end_teaching(s, leaves ? s->r.steps : -1);
    weft_session__close_memory_ahead(s->now); /* it reads the state's table */
    weft_status settled = weft_runner_settle(s->now->runner);
    if (settled == WEFT_OK) say_gaps(s);
    if (settled != WEFT_OK &&
        weft_runner_progress(s->now->runner).outcome == WEFT_EXEC_TORN)
        weft_session__mark_state(s, -1);
    if (st == WEFT_ERR_PEER) weft_session__end_alone(s);
    return st == WEFT_OK ? settled : WEFT_FAIL(st, "%s", text);
}
