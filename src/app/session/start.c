/* What a job does once, in its first generation: the state gets its first numbers (from the
 * checkpoint, the model's files, or drawn), outputs are opened, the log says what is run. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "session/plans_priv.h"

/* The model's own weights, unless the job says to draw new ones. */
weft_status weft_session__open_source(weft_session *s)
{
    static const char *const other[] = {"pytorch_model.bin",
                                        "pytorch_model.bin.index.json"};
    const char              *dir     = s->now->made.model->dir;
    if (strcmp(s->job.init, "random") == 0 || !dir || s->source) return WEFT_OK;
    if (weft_store_dir_has_weights(dir)) return weft_store_dir_open(dir, &s->source);
    for (size_t i = 0; i < WEFT_COUNT(other); i++) {
        char path[4352];
        snprintf(path, sizeof path, "%s/%s", dir, other[i]);
        if (weft_io_exists(path))
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "%s is no safetensors file: save the model with "
                "safe_serialization, or set init: random to draw new weights",
                path);
    }
    return WEFT_OK;
}

weft_status weft_session__fill_state(weft_session *s)
{
    WEFT_TRY(weft_session__open_source(s));
    WEFT_TRY(weft_session__compare_weights(s));
    if (s->resume) {
        WEFT_TRY(weft_session__restore(s));
    } else if (s->source) {
        WEFT_TRY(weft_weights_read_dir(&s->now->weights, s->source));
    } else {
        WEFT_TRY(weft_weights_init(&s->now->weights, (uint64_t)s->job.seed));
    }
    weft_ckpt_close(s->resume);
    s->resume = NULL;
    WEFT_TRY(weft_session__fill_standby(s, s->state));
    weft_session__mark_state(s, s->r.first_step);
    return WEFT_OK;
}

/* The row of the step that is resumed from, where a host alone has saved it and could not write it
 * (checkpoint: of that host). */
static weft_status fill_row(weft_session *s)
{
    weft_doc   *d  = NULL;
    weft_text   t  = {0};
    weft_status st = WEFT_OK;
    if (weft_metrics_kept(s->out.metrics) != s->r.first_step - 1 || !s->checkpoint.extra)
        return WEFT_OK;
    WEFT_TRY(weft_doc_parse_json("state.json", s->checkpoint.extra,
                                 strlen(s->checkpoint.extra), &d));
    const weft_node *row = weft_node_get(weft_doc_root(d), "row");
    if (row && row->kind == WEFT_NODE_MAP) {
        weft_node_print_json(row, &t);
        st = weft_text_status(&t);
        if (st == WEFT_OK) st = weft_metrics_add_text(s->out.metrics, t.s, t.n);
    }
    weft_text_fini(&t);
    weft_doc_destroy(d);
    return st;
}

weft_status weft_session__open_outputs(weft_session *s)
{
    char        path[4352];
    weft_text   t = {0};
    weft_status st;
    WEFT_TRY(weft_session__check_copies(s));
    WEFT_TRY(weft_session__begin_epoch(s));
    WEFT_TRY(weft_ckpt_tidy(s->out.checkpoints, true, &s->out.found));
    weft_session__show_findings(s);
    snprintf(path, sizeof path, "%s/job.json", s->out.folder);
    weft_job_print(&s->job, &t);
    weft_text_put(&t, "\n", 1);
    st = weft_text_status(&t);
    if (st == WEFT_OK) st = weft_io_replace_file(path, t.s, t.n);
    weft_text_fini(&t);
    if (st == WEFT_OK)
        st = weft_metrics_open(s->out.folder, s->r.first_step,
                               weft_session__may_be_stale(s), &s->out.metrics);
    if (st == WEFT_OK) st = fill_row(s);
    if (st == WEFT_OK)
        st = weft_events_open(s->out.folder, s->r.first_step, &s->out.events);
    /* can it be written?  A pipe or a device gets the trace alone. */
    if (st == WEFT_OK && s->o->trace && !weft_io_is_stream(s->o->trace))
        st = weft_io_replace_file(s->o->trace, "{}\n", 3);
    return st;
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

static void say_device(weft_session *s)
{
    weft_device_facts f;
    if (!s->device->facts || s->device->facts(s->device, &f) != WEFT_OK) return;
    weft_say_info(&s->say, "device %s: %s, compute capability %d.%d, %.1f GB, %s",
                  s->device->name, f.name, f.capability / 10, f.capability % 10,
                  1e-9 * (double)f.total_bytes, f.versions);
    if (*f.warning) weft_say_warn(&s->say, "%s: %s", s->device->name, f.warning);
    const char *of = s->now->plan ? s->now->plan->of.kernels : NULL;
    if (of && strcmp(of, weft_kernel_set_id(s->device->kernels)) != 0)
        weft_say_warn(&s->say,
                      "%s is a plan for kernels '%s', these are '%s': the numbers may "
                      "differ in their last bits",
                      s->job.plan_file ? s->job.plan_file : "the plan", of,
                      weft_kernel_set_id(s->device->kernels));
}

/* The fewest ranks that the job may have, and the unit that they are counted in. */
typedef struct fewest {
    int         n_rank, local; /* of each host */
    int         n, most;       /* of units */
    const char *unit;
} fewest;

static fewest find_fewest(const weft_session *s)
{
    const weft_generation *g = s->now;
    int                    n = s->o->min_host, local = g->max_local;
    if (n > 0 && local > 0)
        return (fewest){n * local, local, n, (g->max_rank + local - 1) / local, "host"};
    return (fewest){s->o->min_rank, s->o->min_rank, s->o->min_rank, g->max_rank, "rank"};
}

/* A step of the fewest ranks as the job is, beside one of a job of these alone. */
static void say_predicted(weft_session *s, const fewest *f)
{
    weft_session__predicted as_is, alone;
    weft_job                j         = s->job;
    char                    ranks[32] = "";
    if (s->say.mute || s->say.quiet ||
        weft_session__predict(&j, f->n_rank, f->local, s->now->n_core, true, &as_is) !=
            WEFT_OK)
        return;
    j.given_micro_batch = s->asked->given_micro_batch;
    j.given_lanes       = s->asked->given_lanes;
    if (weft_session__predict(&j, f->n_rank, f->local, s->now->n_core, false, &alone) !=
        WEFT_OK)
        return;
    if (!strcmp(f->unit, "host"))
        snprintf(ranks, sizeof ranks, " (%d rank%s)", f->n_rank,
                 f->n_rank > 1 ? "s" : "");
    weft_say_info(&s->say,
                  "predicted for %d %s%s%s: %.4g s a step and %.4g MB a rank with lanes "
                  "%lld, micro_batch %lld, which are for %d; chosen for %d alone, lanes "
                  "%lld, micro_batch %lld: %.4g s and %.4g MB",
                  f->n, f->unit, f->n > 1 ? "s" : "", ranks, as_is.step_s,
                  1e-6 * (double)as_is.mem_bytes, (long long)as_is.lanes,
                  (long long)as_is.micro_batch, f->most, f->n, (long long)alone.lanes,
                  (long long)alone.micro_batch, alone.step_s,
                  1e-6 * (double)alone.mem_bytes);
}

/* What the lanes of the most ranks cost the fewest: sums of gradients that a rank holds at once,
 * one for each level of the tree over its lanes (base/lanes.h). */
static void say_elastic(weft_session *s)
{
    fewest  f  = find_fewest(s);
    int     pp = s->now->plan ? s->now->plan->strategy.pp : 1;
    int     dp = f.n_rank / pp > 1 ? f.n_rank / pp : 1, level = 0;
    int64_t each = (s->job.lanes + dp - 1) / dp;
    double  sum  = 4 * (double)weft_model_weights(s->now->made.model);
    if (!f.n_rank || f.n >= f.most) return;
    while (INT64_C(1) << (level + 1) <= each) level++;
    bool keeps = weft_job_is_invariant(&s->job), one = s->job.lanes == 1;
    weft_say_info(&s->say,
                  "%ss from %d to %d: %lld lane%s %s; with %d a rank has %lld of them, "
                  "and holds up "
                  "to %d sums of gradients more (%.3g MB)",
                  f.unit, f.n, f.most, (long long)s->job.lanes, one ? "" : "s",
                  !keeps ? "until more ranks are data parallel (reduction: fixed)"
                  : one  ? "keeps every bit"
                         : "keep every bit",
                  f.n, (long long)each, level,
                  1e-6 * sum * level / (f.n_rank < pp ? f.n_rank : pp));
    say_predicted(s, &f);
}

void weft_session__log_start(weft_session *s)
{
    const weft_program *p = s->now->made.program;
    weft_say_info(&s->say,
                  "model %s, %lld weights; batch %lld x %lld tokens, micro_batch %lld, "
                  "lanes %lld, %d thread%s",
                  s->now->made.model->name,
                  (long long)weft_model_weights(s->now->made.model),
                  (long long)s->job.batch, (long long)s->job.seq,
                  (long long)s->job.micro_batch, (long long)s->job.lanes,
                  weft_pool_threads(s->pool), weft_pool_threads(s->pool) == 1 ? "" : "s");
    say_device(s);
    say_elastic(s);
    weft_session__say_gpu_comm(s);
    weft_session__say_reduction(s);
    weft_say_info(
        &s->say,
        "memory %lld bytes: state %lld, work %lld, staging %lld, tables %lld, the rest "
        "scratch%s",
        (long long)s->r.mem_peak_bytes, (long long)weft_program_bytes(p, WEFT_SLAB_STATE),
        (long long)weft_program_bytes(p, WEFT_SLAB_WORK),
        (long long)weft_program_bytes(p, WEFT_SLAB_STAGING),
        (long long)s->r.mem_table_bytes, s->now->eval.runner ? " and evaluation" : "");
    if (s->now->made.model->notice)
        weft_say_warn(&s->say, "%s", s->now->made.model->notice);
    warn_of_slips(s);
    weft_session__say_data(s, s->job.data, s->data);
    if (s->eval.data) weft_session__say_data(s, s->job.eval.data, s->eval.data);
    if (s->r.first_step)
        weft_say_info(&s->say, "resumed from %s, step %lld", s->out.checkpoints,
                      (long long)s->r.first_step);
    if (s->r.first_step && s->r.first_step >= s->job.steps)
        weft_say_info(&s->say,
                      "nothing left to train: steps is %lld; a larger one goes on",
                      (long long)s->job.steps);
    if (s->r.first_step) return;
    if (s->source)
        weft_say_info(&s->say, "weights from %s", s->now->made.model->dir);
    else
        weft_say_info(&s->say, "new weights from seed %lld", (long long)s->job.seed);
}
