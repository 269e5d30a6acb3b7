/* What the ranks of a job compare before the first step, each as soon as it is known.  Ranks may
 * have been started by hand, by srun or mpirun, on hosts with other files, other builds or other
 * words. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "session/agree.h"
#include "session/session_priv.h"

static weft_agree all_of(const weft_session *s)
{
    return (weft_agree){s->now->comm, s->now->group};
}

/* WEFT_ERR_ARG comes from all ranks at once. */
static weft_status note(weft_session *s, weft_status st)
{
    s->now->refused = st == WEFT_ERR_ARG;
    return st;
}

weft_status weft_session__refuse(weft_session *s, weft_status st)
{
    weft_agree a = all_of(s);
    if (!s->now->group) return st;
    s->now->refused = true;
    return weft_agree_refuse(&a, st);
}

weft_status weft_session__outcome(weft_session *s, weft_status st)
{
    weft_agree a = all_of(s);
    return s->now->group ? weft_agree_outcome(&a, st, &s->now->refused) : st;
}

/* The lines of t, which are cut apart. */
static weft_status compare_lines(weft_session *s, const char *what, weft_text *t)
{
    weft_agree   a = all_of(s);
    int          n = 0;
    const char **line;
    WEFT_TRY(weft_text_status(t));
    for (size_t k = 0; k < t->n; k++) n += t->s[k] == '\n';
    line = malloc(sizeof *line * ((size_t)n + 1));
    if (!line) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to compare %d lines", n);
    n = 0;
    for (char *x = t->s, *end; x && (end = strchr(x, '\n')); x = end + 1) {
        *end      = 0;
        line[n++] = x;
    }
    weft_status st = note(s, weft_agree_texts(&a, what, n, line));
    free(line);
    return st;
}

weft_status weft_session__compare_jobs(weft_session *s)
{
    weft_text t = {0};
    if (!s->now->group) return WEFT_OK;
    weft_text_add(&t, "weft is %s\n", WEFT_VERSION);
    /* as it came: a new rank has not decided what others have */
    weft_job_print_common(weft_session__has_agent(s) ? s->asked : &s->job, &t);
    weft_text_add(&t, "--fresh is %s\n", s->o->fresh ? "given" : "left out");
    weft_text_add(&t, "--allow is %s\n", s->o->allow ? s->o->allow : "left out");
    weft_text_add(&t, "--trace is %s\n", s->o->trace ? "given" : "left out");
    weft_status st = compare_lines(s, "what to run", &t);
    weft_text_fini(&t);
    return st;
}

weft_status weft_session__compare_plans(weft_session *s)
{
    weft_text   t  = {0};
    weft_status st = WEFT_OK;
    if (!s->now->group) return WEFT_OK;
    weft_text_add(&t, "step %lld", (long long)s->r.first_step);
    if (s->resume)
        weft_text_add(&t, " (weights %016llx)",
                      (unsigned long long)s->checkpoint.weights_xxh64);
    weft_text_add(&t, "\n");
    WEFT_GO(compare_lines(s, "where to go on (all hosts must see the same output folder)",
                          &t));
    t.n = 0;
    WEFT_GO(weft_plan_print(s->now->plan, &t));
    weft_text_add(&t, "\n");
    WEFT_GO(compare_lines(s, "the plan", &t));
out:
    weft_text_fini(&t);
    return st;
}

/* Names, sizes, and of each tensor the first and the last bytes: as good as all of them for files
 * of other models, and no more than a page or two of each is read. */
static weft_status hash_source(const weft_store_dir *d, uint64_t *out)
{
    enum {
        SOME = 64
    };
    weft_hash_state h;
    char            buf[SOME];
    weft_hash_init(&h, 0);
    for (int i = 0; i < weft_store_dir_count(d); i++) {
        const weft_store_tensor *t = weft_store_dir_at(d, i);
        size_t                   n = t->bytes < SOME ? (size_t)t->bytes : SOME;
        weft_hash_add(&h, t->name, strlen(t->name) + 1);
        weft_hash_add(&h, &t->bytes, sizeof t->bytes);
        WEFT_TRY(weft_store_read(t, 0, buf, n));
        weft_hash_add(&h, buf, n);
        WEFT_TRY(weft_store_read(t, t->bytes - (int64_t)n, buf, n));
        weft_hash_add(&h, buf, n);
    }
    *out = weft_hash_value(&h);
    return WEFT_OK;
}

weft_status weft_session__compare_weights(weft_session *s)
{
    weft_text t    = {0};
    uint64_t  hash = 0;
    if (!s->now->group || s->resume) return WEFT_OK;
    if (s->source) WEFT_TRY(hash_source(s->source, &hash));
    if (s->source)
        weft_text_add(&t, "%d tensors (%016llx)\n", weft_store_dir_count(s->source),
                      (unsigned long long)hash);
    else
        weft_text_add(&t, "drawn from the seed\n");
    weft_status st = compare_lines(s, "the weights to begin with", &t);
    weft_text_fini(&t);
    return st;
}

weft_status weft_session__compare_programs(weft_session *s, const weft_compiled *made,
                                           const weft_data *data)
{
    weft_agree  a  = all_of(s);
    weft_text   t  = {0};
    weft_status st = WEFT_OK;
    if (!s->now->group) return WEFT_OK;
    weft_text_add(&t, "its graph is %016llx\n",
                  (unsigned long long)made->model->graph_hash);
    WEFT_GO(compare_lines(s, "the model", &t));
    t.n = 0;
    weft_text_add(&t, "%lld tokens (%016llx)\n", (long long)weft_data_tokens(data),
                  (unsigned long long)weft_data_content_id(data));
    WEFT_GO(compare_lines(s, "the data", &t));
    WEFT_GO(note(s, weft_agree_programs(&a, made->program)));
out:
    weft_text_fini(&t);
    return st;
}
