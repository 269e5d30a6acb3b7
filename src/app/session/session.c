/* The training loop.  In: a job.  Out: weights, checkpoints, metrics.
 *
 *     place      the output folder; is there a checkpoint to go on from?
 *     decide     micro_batch, lanes, the plan
 *     compile    model -> training graph -> program
 *     start      threads, memory, weights: from the checkpoint, the model's files, or drawn
 *     loop       count labels, run the step, write it down; evaluate, save, stop
 *     finish     last checkpoint, final/ */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "session/peak.h"
#include "session/session_priv.h"

enum {
    MAX_TIMED = 1 << 16
}; /* the median is over the last that many steps */

/* ---- compile ---- */

static weft_status make_program(weft_session *s)
{
    weft_compile_spec spec  = weft_job_spec(&s->job);
    bool              ranks = s->o->comm && s->plan;
    if (!s->training.graph) WEFT_TRY(weft_compile_training(&spec, &s->training));
    return weft_compile_program(&s->training, ranks ? s->plan : NULL,
                                ranks ? s->o->comm->rank : 0, &s->made);
}

weft_status weft_session__compile_program(weft_session *s)
{
    bool again;
    WEFT_TRY(weft_session__outcome(s, make_program(s)));
    WEFT_TRY(weft_session__fit(s, &again));
    if (!again) return WEFT_OK;
    weft_compiled_fini(&s->made);
    weft_training_fini(&s->training); /* its micro-batch is another now */
    return make_program(s);
}

static weft_status compile(weft_session *s)
{
    WEFT_TRY(weft_session__check_machines(s));
    if (s->plan) WEFT_TRY(weft_session__compare_plans(s));
    WEFT_TRY(weft_session__compile_program(s));
    WEFT_TRY(weft_session__check_model(s));
    const weft_model *m = s->made.model;
    if (m->kind != WEFT_MODEL_LM && m->kind != WEFT_MODEL_ENCDEC)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "model: %s takes no tokens; weft train reads tokens only",
                         s->job.model);
    return weft_session__open_data(s, s->job.data, s->job.shuffle, &s->data);
}

/* ---- start ---- */

/* The model's own weights, unless the job says to draw new ones. */
static weft_status open_source(weft_session *s)
{
    static const char *const other[] = {"pytorch_model.bin",
                                        "pytorch_model.bin.index.json"};
    const char              *dir     = s->made.model->dir;
    if (strcmp(s->job.init, "random") == 0 || !dir) return WEFT_OK;
    if (weft_store_dir_has_weights(dir)) return weft_store_dir_open(dir, &s->source);
    for (size_t i = 0; i < WEFT_COUNT(other); i++) {
        char path[4352];
        snprintf(path, sizeof path, "%s/%s", dir, other[i]);
        if (weft_io_exists(path))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s is no safetensors file: save the model with "
                             "safe_serialization, or set init: false to draw new weights",
                             path);
    }
    return WEFT_OK;
}

static weft_status fill_state(weft_session *s)
{
    WEFT_TRY(open_source(s));
    WEFT_TRY(weft_session__compare_weights(s));
    if (s->resume) {
        WEFT_TRY(weft_session__restore(s));
    } else if (s->source) {
        WEFT_TRY(weft_weights_read_dir(&s->weights, s->source));
    } else {
        WEFT_TRY(weft_weights_init(&s->weights, (uint64_t)s->job.seed));
    }
    weft_ckpt_close(s->resume);
    s->resume = NULL;
    weft_state_set_step(s->state, s->r.first_step);
    return WEFT_OK;
}

static weft_status open_outputs(weft_session *s)
{
    char        path[4352];
    weft_text   t = {0};
    weft_status st;
    WEFT_TRY(weft_session__check_copies(s));
    WEFT_TRY(weft_ckpt_tidy(s->ckpt_dir, &s->found));
    weft_session__show_findings(s);
    snprintf(path, sizeof path, "%s/job.json", s->output);
    weft_job_print(&s->job, &t);
    weft_text_put(&t, "\n", 1);
    st = weft_text_status(&t);
    if (st == WEFT_OK) st = weft_io_replace_file(path, t.s, t.n);
    weft_text_fini(&t);
    if (st == WEFT_OK) st = weft_metrics_open(s->output, s->r.first_step, &s->metrics);
    if (st == WEFT_OK) st = weft_events_open(s->output, s->r.first_step, &s->events);
    /* can it be written?  A pipe or a device gets the trace alone. */
    if (st == WEFT_OK && s->o->trace && !weft_io_is_stream(s->o->trace))
        st = weft_io_replace_file(s->o->trace, "{}\n", 3);
    return st;
}

enum {
    MAX_CONFLICT = 4 /* that are told; layers are alike */
};

/* Marks of a plan file that could not all have their way; what words of a job make is as it
 * should be. */
static void say_conflicts(weft_session *s)
{
    const weft_sharding *x = s->made.sharding;
    if (!x || !s->job.plan_file) return;
    for (int i = 0; i < x->n_conflict && i < MAX_CONFLICT; i++)
        weft_say_info(&s->say, "%s", x->conflict[i].text);
    if (x->n_conflict > MAX_CONFLICT)
        weft_say_info(&s->say, "and %d values more are resharded for such reasons",
                      x->n_conflict - MAX_CONFLICT);
}

/* Values that are taken as they are, though a slip is likely. */
static void warn_of_slips(weft_session *s)
{
    int64_t warmup = s->job.lr_schedule.warmup, steps = s->job.steps;
    if (warmup > steps)
        weft_say_warn(
            &s->say,
            "lr_schedule.warmup is %lld, of %lld steps: the learning rate never "
            "reaches optimizer.lr",
            (long long)warmup, (long long)steps);
    if (s->job.threads > weft_runner_cores())
        weft_say_warn(&s->say, "%lld threads on the %d cores that this process may use",
                      (long long)s->job.threads, weft_runner_cores());
}

static void say_plan(weft_session *s)
{
    const weft_program *p = s->made.program;
    weft_say_info(&s->say,
                  "model %s, %lld weights; batch %lld x %lld tokens, micro_batch %lld, "
                  "lanes %lld, %d threads",
                  s->made.model->name, (long long)weft_model_weights(s->made.model),
                  (long long)s->job.batch, (long long)s->job.seq,
                  (long long)s->job.micro_batch, (long long)s->job.lanes,
                  weft_pool_threads(s->pool));
    weft_say_info(
        &s->say,
        "memory %lld bytes: state %lld, work %lld, staging %lld, tables %lld, the rest "
        "scratch%s",
        (long long)s->r.mem_peak_bytes, (long long)weft_program_bytes(p, WEFT_SLAB_STATE),
        (long long)weft_program_bytes(p, WEFT_SLAB_WORK),
        (long long)weft_program_bytes(p, WEFT_SLAB_STAGING),
        (long long)s->r.mem_table_bytes, s->eval.runner ? " and evaluation" : "");
    if (s->made.model->notice) weft_say_warn(&s->say, "%s", s->made.model->notice);
    warn_of_slips(s);
    weft_session__say_data(s, s->job.data, s->data);
    if (s->eval.data) weft_session__say_data(s, s->job.eval.data, s->eval.data);
    if (s->r.first_step)
        weft_say_info(&s->say, "resumed from %s, step %lld", s->ckpt_dir,
                      (long long)s->r.first_step);
    if (s->r.first_step && s->r.first_step >= s->job.steps)
        weft_say_info(&s->say,
                      "nothing left to train: steps is %lld; a larger one goes on",
                      (long long)s->job.steps);
    if (s->r.first_step) return;
    if (s->source)
        weft_say_info(&s->say, "weights from %s", s->made.model->dir);
    else
        weft_say_info(&s->say, "new weights from seed %lld", (long long)s->job.seed);
}

/* The session's own, and those of states. */
static int64_t own_tables(const weft_session *s)
{
    return weft_arena_bytes(s->arena) +
           weft_arena_bytes(s->plan ? s->plan->arena : NULL) +
           weft_state_bytes(s->state) + weft_holders_bytes(s->holders) +
           weft_gather_bytes(s->gather) + weft_state_bytes(s->eval.state) +
           weft_mover_bytes(s->eval.mover);
}

/* The tensors of states; *shared: those in memory that ranks share. */
static int64_t state_memory(const weft_session *s, int64_t *shared)
{
    const weft_memory *m     = weft_state_memory(s->state);
    int64_t            bytes = m->bytes;
    *shared                  = m->space == WEFT_SPACE_SHARED ? m->bytes : 0;
    if (!s->eval.state || weft_program_state_is_shared(s->eval.state, s->state))
        return bytes;
    m = weft_state_memory(s->eval.state);
    *shared += m->space == WEFT_SPACE_SHARED ? m->bytes : 0;
    return bytes + m->bytes;
}

/* What this rank will hold, and what the others will. */
static weft_status plan_memory(weft_session *s)
{
    weft_runner_memory m = weft_runner_mem(s->runner), e = {0};
    if (s->eval.runner) e = weft_runner_mem(s->eval.runner);
    int64_t shared, tables = weft_training_bytes(&s->training) + own_tables(s);
    s->r.mem_table_bytes = m.table_bytes + e.table_bytes + tables;
    s->r.mem_peak_bytes  = m.bytes + e.bytes + tables + state_memory(s, &shared);
    s->r.mem_peak_bytes += MAX_TIMED * (int64_t)sizeof *s->step_s;
    if (weft_session__writes(s)) /* checkpoints are written by blocks */
        s->r.mem_peak_bytes += WEFT_STORE_BLOCK;
    s->r.mem_shared_bytes = m.shared_bytes + e.shared_bytes + shared;
    if (s->o->comm) { /* once, whatever runs over it */
        s->r.mem_peak_bytes += s->o->comm->bytes;
        if (!strcmp(s->o->comm->transport, "shm"))
            s->r.mem_shared_bytes += s->o->comm->bytes;
    }
    int64_t *of = WEFT_ARENA_ARRAY(s->arena, int64_t, s->o->comm ? s->o->comm->world : 1);
    WEFT_TRY(weft_arena_status(s->arena));
    WEFT_TRY(weft_session__gather(s, &s->r.mem_peak_bytes, sizeof *of, of));
    for (int k = 0; k < (s->o->comm ? s->o->comm->world : 1); k++)
        if (of[k] > s->r.mem_most_bytes) s->r.mem_most_bytes = of[k];
    return WEFT_OK;
}

/* The program's state, who holds what of it, and the way of all of it to files. */
static weft_status open_state(weft_session *s)
{
    weft_comm *comm = s->group ? s->o->comm : NULL;
    WEFT_TRY(weft_program_state_create(&s->made, s->o->comm, &s->state));
    if (comm) WEFT_TRY(weft_holders_exchange(s->state, comm, s->group, &s->holders));
    WEFT_TRY(weft_gather_open(s->state, s->holders, comm, WEFT_SESSION__TAG_GATHER,
                              &s->gather));
    s->weights = (weft_weights){.model  = s->made.model,
                                .graph  = s->made.graph,
                                .state  = s->state,
                                .gather = s->gather};
    return WEFT_OK;
}

static weft_status start(weft_session *s)
{
    int n_thread;
    WEFT_TRY(weft_session__compare_programs(s, &s->made, s->data));
    WEFT_TRY(weft_session__check_memory(s));
    WEFT_TRY(weft_session__threads(s, &n_thread));
    WEFT_TRY(weft_pool_create(n_thread, 0, &s->pool));
    WEFT_TRY(open_state(s));
    weft_runner_options o = {
        .made  = &s->made,
        .pool  = s->pool,
        .seed  = (uint64_t)s->job.seed,
        .data  = s->data,
        .comm  = s->o->comm,
        .state = s->state,
        .trace = s->o->trace ? weft_runner_instructions(s->made.program) : 0};
    WEFT_TRY(weft_runner_create(&o, &s->runner));
    WEFT_TRY(weft_session__eval_open(s));
    say_conflicts(s);
    weft_sharding_destroy(s->made.sharding); /* the states have it now */
    s->made.sharding = NULL;
    WEFT_TRY(plan_memory(s));
    WEFT_TRY(fill_state(s));
    s->step_s = WEFT_ARENA_ARRAY(s->arena, double, MAX_TIMED);
    WEFT_TRY(weft_arena_status(s->arena));
    if (s->say.progress)
        WEFT_TRY(weft_peak_gflops(s->pool, n_thread, 1024, 3, &s->peak_gflops));
    WEFT_TRY(weft_session__lead(s, open_outputs));
#ifdef __GLIBC__
    malloc_trim(0); /* what compiling held */
#endif
    say_plan(s); /* the first words: what was named wrongly has failed by now */
    return WEFT_OK;
}

/* ---- loop ---- */

/* One step; N labels count.  N = 0 runs nothing: loss 0, no update. */
static weft_status run_step(weft_session *s, weft_metrics_row *row)
{
    int64_t first = (row->step - 1) * s->job.batch;
    double  begin = weft_clock_s();
    WEFT_TRY(weft_data_count_labels(s->data, first, s->job.batch, &row->labels));
    row->lr      = weft_job_lr(&s->job, row->step);
    row->skipped = row->labels == 0;
    row->loss = row->grad_norm = 0;
    if (!row->skipped) {
        weft_runner_put(s->runner, "lr", row->lr);
        weft_runner_put(s->runner, "step", (double)row->step);
        weft_runner_put(s->runner, "inv_n", 1 / (double)row->labels);
        WEFT_TRY(weft_runner_step(s->runner, row->step - 1));
        row->loss      = weft_runner_get(s->runner, "step.loss") / (double)row->labels;
        row->grad_norm = weft_runner_get(s->runner, "step.grad_norm");
    }
    double seconds                       = weft_clock_s() - begin;
    row->step_ms                         = 1e3 * seconds;
    row->tokens_per_s                    = (double)(s->job.batch * s->job.seq) / seconds;
    s->step_s[s->n_step_s++ % MAX_TIMED] = seconds;
    s->total_s += seconds;
    return WEFT_OK;
}

static weft_status check_finite(const weft_session *s, const weft_metrics_row *r)
{
    if (isfinite(r->loss) && isfinite(r->grad_norm)) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_NUMERIC,
        "step %lld: %s is not finite (lr %g); lower optimizer.lr or set optimizer.clip%s",
        (long long)r->step, isfinite(r->loss) ? "the gradient" : "the loss", r->lr,
        s->saved_step >= 0 ? "; the last checkpoint is whole" : "");
}

static weft_status write_row(weft_session *s, const weft_metrics_row *r)
{
    if (!weft_session__writes(s)) return WEFT_OK;
    WEFT_TRY(weft_metrics_add(s->metrics, r));
    WEFT_TRY(weft_events_add(s->events, r->step, "loss", r->loss));
    WEFT_TRY(weft_events_add(s->events, r->step, "grad_norm", r->grad_norm));
    WEFT_TRY(weft_events_add(s->events, r->step, "lr", r->lr));
    WEFT_TRY(weft_events_add(s->events, r->step, "tokens_per_s", r->tokens_per_s));
    if (!isnan(r->eval_loss))
        WEFT_TRY(weft_events_add(s->events, r->step, "eval_loss", r->eval_loss));
    return WEFT_OK;
}

static void say_step(weft_session *s, const weft_metrics_row *r)
{
    double            flops = weft_model_flops(s->made.model) * s->made.program->n_micro;
    double            sec   = r->step_ms / 1e3;
    int64_t           tenth = s->job.steps / 10 ? s->job.steps / 10 : 1;
    weft_say_progress p     = {.step         = r->step,
                               .steps        = s->job.steps,
                               .loss         = r->loss,
                               .tokens_per_s = r->tokens_per_s,
                               .step_s       = sec};
    if (s->peak_gflops > 0) p.share = flops / sec / 1e9 / s->peak_gflops;
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

static bool due(int64_t step, int64_t every, int64_t last)
{
    return step == last || (every > 0 && step % every == 0);
}

static weft_status loop(weft_session *s)
{
    for (int64_t step = s->r.first_step + 1; step <= s->job.steps && !s->r.stopped;
         step++) {
        weft_metrics_row row = {.step = step, .eval_loss = NAN};
        WEFT_TRY(run_step(s, &row));
        WEFT_TRY(check_finite(s, &row));
        weft_state_set_step(s->state, step);
        s->r.steps     = step;
        s->r.loss      = row.loss;
        s->r.grad_norm = row.grad_norm;
        if (s->eval.runner && due(step, s->job.eval.every, s->job.steps)) {
            WEFT_TRY(weft_session__eval_run(s, &row.eval_loss));
            s->r.eval_loss = row.eval_loss;
        }
        WEFT_TRY(write_row(s, &row));
        say_step(s, &row);
        if (due(step, s->job.checkpoint.every, s->job.steps))
            WEFT_TRY(weft_session__save(s));
        WEFT_TRY(weft_session__agree_stop(s));
    }
    return WEFT_OK;
}

/* ---- finish ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sum_up(weft_session *s)
{
    int64_t n = s->n_step_s < MAX_TIMED ? s->n_step_s : MAX_TIMED;
    if (!n) return;
    s->r.tokens_per_s = (double)(s->n_step_s * s->job.batch * s->job.seq) / s->total_s;
    qsort(s->step_s, (size_t)n, sizeof *s->step_s, by_size);
    s->r.step_ms_median = 1e3 * s->step_s[n / 2];
}

static weft_status hash(weft_session *s)
{
    return weft_weights_hash(&s->weights, &s->r.weights_xxh64);
}

static weft_status finish(weft_session *s)
{
    sum_up(s);
    WEFT_TRY(weft_session__save(s));
    WEFT_TRY(weft_session__lead(s, hash));
    WEFT_TRY(weft_session__share(s, &s->r.weights_xxh64, sizeof s->r.weights_xxh64));
    if (s->r.stopped) {
        weft_say_info(
            &s->say,
            "stopped by signal %d after step %lld; the same command goes on from there",
            s->r.stopped, (long long)s->r.steps);
        return WEFT_OK;
    }
    WEFT_TRY(weft_session__lead(s, weft_session__export));
    if (s->o->trace && s->n_step_s) WEFT_TRY(weft_session__trace(s));
    if (!weft_session__writes(s)) return WEFT_OK;
    weft_say_info(&s->say, "done: %lld steps, weights in %s/final", (long long)s->r.steps,
                  s->output);
    return WEFT_OK;
}

static weft_status close_all(weft_session *s)
{
    weft_say_end(&s->say);
    weft_status a = weft_metrics_close(s->metrics), b = weft_events_close(s->events);
    weft_ckpt_close(s->resume);
    weft_ckpt_state_fini(&s->checkpoint);
    weft_ckpt_findings_fini(&s->found);
    weft_session__eval_close(s);
    weft_runner_destroy(s->runner);
    weft_gather_close(s->gather);
    weft_holders_destroy(s->holders);
    weft_state_destroy(s->state);
    weft_compiled_fini(&s->made);
    weft_training_fini(&s->training);
    weft_store_dir_close(s->source);
    weft_data_close(s->data);
    weft_pool_destroy(s->pool);
    weft_plan_destroy(s->plan);
    weft_arena_destroy(s->arena);
    if (s->claim >= 0) close(s->claim);
    return a != WEFT_OK ? a : b;
}

weft_status weft_session_run(const weft_job *job, const weft_session_options *o,
                             weft_session_result *out)
{
    static const weft_session_options none;
    weft_session                      s  = {.job = *job, .o = o ? o : &none, .claim = -1};
    weft_status                       st = WEFT_OK;
    bool                              talks = weft_session__writes(&s);

    s.say = (weft_say){
        .quiet = s.o->quiet, .mute = !talks, .progress = s.o->progress && talks};
    s.r.eval_loss = s.r.loss = s.r.grad_norm = NAN;
    WEFT_GO(weft_arena_create(&s.arena));
    WEFT_GO(weft_session__join(&s));
    WEFT_GO(weft_session__place(&s));
    WEFT_GO(weft_session__eval_check(&s));
    WEFT_GO(weft_session__decide(&s));
    WEFT_GO(weft_session__take_place(&s));
    WEFT_GO(compile(&s));
    WEFT_GO(start(&s));
    WEFT_GO(loop(&s));
    WEFT_GO(finish(&s));
out:
    if (st != WEFT_OK) weft_session__give_up(&s, st);
    weft_status closed = close_all(&s);
    if (st == WEFT_OK) st = closed;
    if (st == WEFT_OK) *out = s.r;
    return st;
}
