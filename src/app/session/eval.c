/* Evaluation on held-out data: the same batches every time, by a forward-only program that shares
 * the parameters of the training program. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "session/session_priv.h"

/* ---- is there anything to evaluate? ---- */

/* Did the run that wrote the folder evaluate the same batches? */
static bool has_same_eval(const weft_session *s)
{
    char      path[4352];
    weft_job *was = NULL;
    snprintf(path, sizeof path, "%s/job.json", s->output);
    if (weft_job_load(path, 0, NULL, &was) != WEFT_OK) return false;
    bool same = was->eval.data && !strcmp(was->eval.data, s->job.eval.data) &&
                was->eval.batches == s->job.eval.batches;
    weft_job_destroy(was);
    return same;
}

/* The eval_loss of the last line of metrics.jsonl, if that is the checkpoint's step; NaN: there
 * is none. */
static double read_last_eval(const weft_session *s)
{
    char      path[4352], *text = NULL;
    size_t    n    = 0;
    double    loss = NAN;
    int64_t   step = -1;
    weft_doc *d    = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->output);
    if (weft_io_read_file(path, &text, &n) != WEFT_OK) return NAN;
    while (n && text[n - 1] == '\n') text[--n] = 0;
    const char *last = strrchr(text, '\n');
    last             = last ? last + 1 : text;
    if (weft_doc_parse_json(path, last, strlen(last), &d) == WEFT_OK) {
        const weft_node *root = weft_doc_root(d);
        if (weft_doc_get_int(d, root, "step", &step) != WEFT_OK ||
            step != s->state.step ||
            weft_doc_get_double(d, root, "eval_loss", &loss) != WEFT_OK)
            loss = NAN;
    }
    weft_doc_destroy(d);
    free(text);
    return loss;
}

/* What rank 0 finds: others may not see the folder. */
weft_status weft_session__eval_check(weft_session *s)
{
    struct {
        int64_t done; /* no step is left */
        double  loss; /* the same request, answered before; NaN: it was not */
    } x = {.done = s->resume && s->state.step >= s->job.steps, .loss = NAN};
    if (!s->job.eval.data) return WEFT_OK;
    if (x.done && weft_session__writes(s) && has_same_eval(s)) x.loss = read_last_eval(s);
    WEFT_TRY(weft_session__share(s, &x, sizeof x));
    if (!x.done) return WEFT_OK;
    s->r.eval_loss = x.loss;
    if (!isnan(x.loss)) return WEFT_OK;
    return weft_session__refuse(
        s, WEFT_FAIL(WEFT_ERR_ARG,
                     "%s: all %lld steps are done, so nothing of eval.data is evaluated: "
                     "evaluation alone does not exist yet; a larger steps trains on and "
                     "evaluates, eval=null ends without evaluation",
                     s->job.output, (long long)s->job.steps));
}

/* How many of the batches that are asked for the data have: each sample counts once. */
static weft_status count_batches(weft_session *s)
{
    weft_session__eval *e = &s->eval;
    const weft_job     *j = &s->job;
    int64_t             n = weft_data_samples(e->data), have = n / j->batch;
    int64_t             labels = 0;
    if (have < 1)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "eval.data: %s has %lld sequence%s of %lld tokens, less than a "
                         "batch of %lld: nothing would be evaluated; take a larger file "
                         "or a smaller batch",
                         j->eval.data, (long long)n, n > 1 ? "s" : "", (long long)j->seq,
                         (long long)j->batch);
    e->n_batch = j->eval.batches < have ? j->eval.batches : have;
    for (int64_t b = 0; b < e->n_batch && !labels; b++)
        WEFT_TRY(weft_data_count_labels(e->data, b * j->batch, j->batch, &labels));
    if (!labels)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "eval.data: %s: no label of its first %lld batches counts (all "
                         "are %d): nothing would be evaluated",
                         j->eval.data, (long long)e->n_batch, WEFT_DATA_IGNORE);
    if (e->n_batch < j->eval.batches)
        weft_say_warn(&s->say,
                      "eval.data: %s has %lld batches of %lld sequences, not the %lld of "
                      "eval.batches: an evaluation is these, each once",
                      j->eval.data, (long long)have, (long long)j->batch,
                      (long long)j->eval.batches);
    return WEFT_OK;
}

/* ---- the program ---- */

weft_status weft_session__eval_open(weft_session *s)
{
    weft_session__eval *e = &s->eval;
    if (!s->job.eval.data) return WEFT_OK;
    WEFT_TRY(weft_session__open_data(s, s->job.eval.data, false, &e->data));
    WEFT_TRY(count_batches(s));
    weft_compile_spec spec = weft_job_spec(&s->job);
    if (s->o->comm) spec.plan = s->plan, spec.rank = s->o->comm->rank;
    spec.kept = &s->made;
    WEFT_TRY(weft_compile_eval(&spec, &e->made));
    WEFT_TRY(weft_session__compare_programs(s, &e->made, e->data));
    weft_runner_options o = {.made     = &e->made,
                             .pool     = s->pool,
                             .seed     = (uint64_t)s->job.seed,
                             .data     = e->data,
                             .comm     = s->o->comm,
                             .state_of = s->runner};
    WEFT_TRY(weft_runner_create(&o, &e->runner));
    if (!s->parts) return WEFT_OK;
    WEFT_TRY(weft_parts_create(&e->made, e->runner, s->o->comm, s->group, 0, &e->parts));
    return weft_loans_create(s->parts, e->parts, WEFT_SESSION__TAG_LOANS, &e->loans);
}

weft_status weft_session__eval_run(weft_session *s, double *loss)
{
    weft_session__eval *e      = &s->eval;
    double              sum    = 0;
    int64_t             labels = 0;
    weft_runner_take_state(e->runner);
    if (e->loans) WEFT_TRY(weft_loans_renew(e->loans));
    for (int64_t b = 0; b < e->n_batch; b++) {
        int64_t first = b * s->job.batch;
        int64_t n;
        WEFT_TRY(weft_data_count_labels(e->data, first, s->job.batch, &n));
        if (!n) continue;
        WEFT_TRY(weft_runner_step(e->runner, b));
        sum += weft_runner_get(e->runner, "eval.loss");
        labels += n;
    }
    *loss = labels ? sum / (double)labels : 0;
    return WEFT_OK;
}

void weft_session__eval_close(weft_session *s)
{
    weft_loans_destroy(s->eval.loans);
    weft_parts_destroy(s->eval.parts);
    weft_runner_destroy(s->eval.runner);
    weft_compiled_fini(&s->eval.made);
    weft_data_close(s->eval.data);
}
