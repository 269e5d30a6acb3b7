/* Evaluation on held-out data: the same batches every time, by a forward-only program that shares
 * the parameters of the training program. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/doc.h"
#include "base/failpoint.h"
#include "session/session_priv.h"

/* ---- is there anything to evaluate? ---- */

/* What the checkpoint says of the evaluation after its last step, held against the request: the
 * same tokens and labels, as many batches of them.  Its loss; NaN: there was no such one. */
static double find_same_eval(const weft_session *s, uint64_t content_id)
{
    weft_doc   *d       = NULL;
    const char *id      = NULL;
    int64_t     batches = 0;
    double      loss    = NAN;
    char        hex[17];
    if (!s->checkpoint.extra ||
        weft_doc_parse_json("state.json", s->checkpoint.extra,
                            strlen(s->checkpoint.extra), &d) != WEFT_OK)
        return NAN;
    const weft_node *eval = weft_node_get(weft_doc_root(d), "eval");
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)content_id);
    if (!eval || eval->kind != WEFT_NODE_MAP ||
        weft_doc_get_string(d, eval, "content_id", &id) != WEFT_OK || !id ||
        strcmp(id, hex) || weft_doc_get_int(d, eval, "batches", &batches) != WEFT_OK ||
        batches != s->job.eval.batches ||
        weft_doc_get_double(d, eval, "loss", &loss) != WEFT_OK)
        loss = NAN;
    weft_doc_destroy(d);
    return loss;
}

static weft_status read_last_eval(const weft_session *s, double *loss)
{
    uint64_t id;
    WEFT_TRY(weft_session__content_id(&s->job, s->job.eval.data, &id));
    *loss = find_same_eval(s, id);
    return WEFT_OK;
}

void weft_session__eval_print(const weft_session *s, weft_text *t)
{
    if (!s->now->eval.runner || s->eval.step != s->r.steps || !isfinite(s->r.eval_loss))
        return;
    weft_text_add(t,
                  ", \"eval\": {\"content_id\": \"%016llx\", \"batches\": %lld, "
                  "\"loss\": ",
                  (unsigned long long)weft_data_content_id(s->eval.data),
                  (long long)s->job.eval.batches);
    weft_text_put_double(t, s->r.eval_loss);
    weft_text_add(t, "}");
}

/* What rank 0 finds: others may not see the folder. */
weft_status weft_session__eval_check(weft_session *s)
{
    struct {
        int64_t done; /* no step is left */
        double  loss; /* the same request, answered before; NaN: it was not */
    } x = {.done = s->resume && s->checkpoint.step >= s->job.steps, .loss = NAN};
    weft_status st = WEFT_OK;
    if (!s->job.eval.data) return WEFT_OK;
    if (x.done && weft_session__writes(s)) st = read_last_eval(s, &x.loss);
    if (st != WEFT_OK && st != WEFT_ERR_ARG && st != WEFT_ERR_IO) return st;
    WEFT_TRY(weft_session__share(s, &x, sizeof x));
    if (!x.done) return WEFT_OK;
    s->r.eval_loss = x.loss;
    if (!isnan(x.loss)) {
        weft_say_info(&s->say,
                      "eval_loss %.6g is that of step %lld, evaluated before on the same "
                      "data",
                      x.loss, (long long)s->checkpoint.step);
        return WEFT_OK;
    }
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

weft_status weft_session__eval_open_data(weft_session *s)
{
    if (!s->job.eval.data) return WEFT_OK;
    WEFT_TRY(weft_session__open_data(s, s->job.eval.data, false, &s->eval.data));
    /* once; a peer that was lost before may have come between */
    return s->eval.n_batch ? WEFT_OK : count_batches(s);
}

/* Every parameter from where the training program has it to where this one has it. */
static weft_status open_mover(weft_session *s)
{
    weft_generation      *g    = s->now;
    weft_generation_eval *e    = &g->eval;
    weft_holders         *from = g->holders, *to = NULL;
    weft_status           st = WEFT_OK;
    if (!g->comm && weft_program_state_is_shared(e->state, s->state)) return WEFT_OK;
    if (!from) WEFT_GO(weft_holders_exchange(s->state, g->comm, g->group, &from));
    WEFT_GO(weft_holders_exchange(e->state, g->comm, g->group, &to));
    WEFT_GO(weft_mover_open(&(weft_mover_side){s->state, from},
                            &(weft_mover_side){e->state, to}, g->comm,
                            WEFT_SESSION__TAG_EVAL, &e->mover));
out:
    if (from != g->holders) weft_holders_destroy(from);
    weft_holders_destroy(to);
    return st;
}

weft_status weft_session__eval_open(weft_session *s)
{
    weft_generation      *g = s->now;
    weft_generation_eval *e = &g->eval;
    if (!s->job.eval.data) return WEFT_OK;
    WEFT_TRY(weft_session__eval_open_data(s));
    WEFT_TRY(weft_compile_eval(&s->training.spec, s->training.model,
                               g->comm ? g->plan : NULL, g->comm ? g->comm->rank : 0,
                               &g->made, &e->made));
    WEFT_TRY(weft_session__compare_programs(s, &e->made, s->eval.data));
    WEFT_TRY(weft_program_state_share(&e->made, s->state, g->comm, &e->state));
    weft_runner_options o = {.made     = &e->made,
                             .pool     = s->pool,
                             .device   = s->device,
                             .seed     = (uint64_t)s->job.seed,
                             .data     = s->eval.data,
                             .comm     = g->comm,
                             .gpu_comm = g->gpu_comm,
                             .state    = e->state};
    WEFT_TRY(weft_runner_create(&o, &e->runner));
    return open_mover(s);
}

weft_status weft_session__eval_run(weft_session *s, double *loss)
{
    weft_generation_eval *e      = &s->now->eval;
    double                sum    = 0;
    int64_t               labels = 0;
    weft_failpoint("eval.begin");
    if (e->mover) WEFT_TRY(weft_mover_run(e->mover));
    for (int64_t b = 0; b < s->eval.n_batch; b++) {
        int64_t first = b * s->job.batch;
        int64_t n;
        WEFT_TRY(weft_data_count_labels(s->eval.data, first, s->job.batch, &n));
        if (!n) continue;
        weft_failpoint("eval.batch");
        WEFT_TRY(weft_runner_step(e->runner, b));
        sum += weft_runner_get(e->runner, "eval.loss");
        labels += n;
    }
    weft_failpoint("eval.end");
    *loss        = labels ? sum / (double)labels : 0;
    s->eval.step = s->r.steps;
    return WEFT_OK;
}

void weft_session__eval_close(weft_generation *g)
{
    weft_mover_close(g->eval.mover);
    weft_runner_destroy(g->eval.runner);
    weft_state_destroy(g->eval.state);
    weft_compiled_fini(&g->eval.made);
}
