/* Evaluation on held-out data: the same batches every time, by a forward-only program that shares the
 * parameters of the training program. */
#include <math.h>
#include <string.h>

#include "session/session_priv.h"

weft_status weft_session__eval_open(weft_session *s)
{
    weft_session__eval *e = &s->eval;
    if (!s->job.eval.data) return WEFT_OK;
    WEFT_TRY(weft_session__open_data(s, s->job.eval.data, false, &e->data));
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
    for (int64_t b = 0; b < s->job.eval.batches; b++) {
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
