/* What the ranks of a job compare before the first step, each as soon as it is known.  Ranks may have been started
 * by hand, by srun or mpirun, on hosts with other files, other builds or other words. */
#include <string.h>

#include "session/agree.h"
#include "session/job_priv.h"
#include "session/session_priv.h"

static weft_agree all_of(const weft_session *s)
{
    return (weft_agree){s->o->comm, s->group};
}

/* WEFT_ERR_ARG comes from all ranks at once. */
static weft_status note(weft_session *s, weft_status st)
{
    s->refused = st == WEFT_ERR_ARG;
    return st;
}

weft_status weft_session__refuse(weft_session *s, weft_status st)
{
    weft_agree a = all_of(s);
    if (!s->group) return st;
    s->refused = true;
    return weft_agree_refuse(&a, st);
}

/* The lines of t, which are cut apart. */
static weft_status compare_lines(weft_session *s, const char *what, weft_text *t)
{
    weft_agree   a = all_of(s);
    int          n = 0;
    const char **line;
    WEFT_TRY(weft_text_status(t));
    for (size_t k = 0; k < t->n; k++) n += t->s[k] == '\n';
    line = WEFT_ARENA_ARRAY(s->arena, const char *, n + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    n = 0;
    for (char *x = t->s, *end; x && (end = strchr(x, '\n')); x = end + 1) {
        *end      = 0;
        line[n++] = x;
    }
    return note(s, weft_agree_texts(&a, what, n, line));
}

weft_status weft_session__compare_jobs(weft_session *s)
{
    weft_text t = {0};
    if (!s->group) return WEFT_OK;
    weft_text_add(&t, "weft is %s\n", WEFT_VERSION);
    for (int i = 0; i < weft_job__n_key; i++)
        if (weft_job__print_common(&s->job, i, &t)) weft_text_add(&t, "\n");
    weft_text_add(&t, "--fresh is %s\n", s->o->fresh ? "given" : "left out");
    weft_text_add(&t, "--trace is %s\n", s->o->trace ? "given" : "left out");
    weft_status st = compare_lines(s, "what to run", &t);
    weft_text_fini(&t);
    return st;
}

weft_status weft_session__compare_plans(weft_session *s)
{
    weft_text   t  = {0};
    weft_status st = WEFT_OK;
    if (!s->group) return WEFT_OK;
    weft_text_add(&t, "the checkpoint to go on from is of step %lld\n",
                  (long long)s->r.first_step);
    WEFT_GO(weft_plan_print(s->plan, &t));
    weft_text_add(&t, "\n");
    WEFT_GO(compare_lines(s, "the plan", &t));
out:
    weft_text_fini(&t);
    return st;
}

weft_status weft_session__compare_programs(weft_session *s, const weft_compiled *made,
                                           const weft_data *data)
{
    weft_agree  a  = all_of(s);
    weft_text   t  = {0};
    weft_status st = WEFT_OK;
    if (!s->group) return WEFT_OK;
    weft_text_add(&t, "its graph is %016llx\n",
                  (unsigned long long)weft_graph_hash(made->model->graph));
    WEFT_GO(compare_lines(s, "the model", &t));
    t.n = 0;
    weft_text_add(&t, "%lld tokens (%016llx)\n", (long long)weft_data_tokens(data),
                  (unsigned long long)weft_data_id(data));
    WEFT_GO(compare_lines(s, "the data", &t));
    WEFT_GO(note(s, weft_agree_programs(&a, made->program)));
out:
    weft_text_fini(&t);
    return st;
}
