/* The helper process that makes plans ahead: in idle time of the cores, with nothing of the
 * rank that has started it but the request on its standard input, and with its end. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "planner/replan.h"
#include "session/ahead.h"
#include "session/session.h"
#include "session/plans_priv.h"

enum {
    NICE   = 19,
    MAX_FD = 1024 /* that a rank may have left open */
};

bool weft_session_is_planner(void)
{
    return getenv(WEFT_SESSION__PLANNER) != NULL;
}

/* Off the cores that its rank is pinned to: on those of its agent, where time is left. */
static void use_all_cores(void)
{
    const char *agent = strchr(getenv(WEFT_SESSION__PLANNER), ' ');
    cpu_set_t   cores;
    if (agent && !sched_getaffinity(atoi(agent), sizeof cores, &cores))
        (void)sched_setaffinity(0, sizeof cores, &cores);
}

/* false: that rank is gone. */
static bool step_back(void)
{
    for (int fd = 3; fd < MAX_FD; fd++) (void)close(fd);
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* where SCHED_IDLE is not known */
    (void)sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
    use_all_cores();
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    return getppid() == atoi(getenv(WEFT_SESSION__PLANNER));
}

static weft_status read_input(weft_text *t)
{
    char    piece[4096];
    ssize_t n;
    while ((n = read(STDIN_FILENO, piece, sizeof piece)) > 0)
        weft_text_put(t, piece, (size_t)n);
    return weft_text_status(t);
}

static void write_output(const weft_text *t)
{
    for (size_t at = 0; at < t->n;) {
        ssize_t n = write(STDOUT_FILENO, t->s + at, t->n - at);
        if (n <= 0) return;
        at += (size_t)n;
    }
}

/* What all views share. */
typedef struct ahead_job {
    const weft_ahead_request *q;
    weft_job                 *job;
    weft_training             training;
    weft_plan                *was; /* NULL: one rank without a plan */
} ahead_job;

static weft_status find_plan(const ahead_job *x, int k, const weft_cluster *c,
                             weft_replan_answer *out)
{
    const weft_ahead_view *v = &x->q->view[k];
    weft_replanner        *r = NULL;
    weft_replan_request    q = {.was        = x->was,
                                .n_host     = v->n_host,
                                .host_ranks = v->count,
                                .n_least    = weft_session__least_ranks(
                                       x->q->min_host, x->q->min_rank, v->n_host, v->count),
                                .horizon_s = x->q->horizon_s,
                                .pause_s   = k ? 0 : x->q->pause_s};
    for (int i = 0; i < v->n_host; i++) q.n_rank += v->count[i];
    bool on_cpus = weft_job_is_on_cpus(x->job);
    if (!on_cpus && !weft_cluster_is_cuda(c))
        return WEFT_FAIL(WEFT_ERR_ARG, "nothing is known of this host's GPUs");
    WEFT_TRY(weft_replanner_create(
        &(weft_replan_job){.training = &x->training, .cluster = c, .on_cpus = on_cpus},
        &r));
    weft_status st = weft_replanner_search(r, &q, out);
    weft_replanner_destroy(r);
    return st;
}

/* Bytes that each rank gets: it has memory for them and for its old state at once. */
static double count_pages(const weft_replan_answer *a)
{
    return a->n_rank > 0 ? (double)a->move_bytes / a->n_rank : 0;
}

static weft_status answer_view(const ahead_job *x, int k)
{
    const weft_ahead_view *v    = &x->q->view[k];
    weft_cluster          *c    = NULL;
    weft_replan_answer     a    = {0};
    weft_text              plan = {0}, t = {0};
    weft_status            st = WEFT_OK;
    WEFT_GO(weft_session__machines_of(x->job, v->n_host, v->count, x->q->n_core, &c));
    WEFT_GO(find_plan(x, k, c, &a));
    WEFT_GO(weft_plan_print(a.plan, &plan));
    weft_ahead_print_answer(&(weft_ahead_answer){.n_host     = v->n_host,
                                                 .count      = v->count,
                                                 .changes    = a.kind != WEFT_REPLAN_SAME,
                                                 .step_s     = a.step_s,
                                                 .was_step_s = a.was_step_s,
                                                 .move_s     = a.move_s,
                                                 .pages      = count_pages(&a),
                                                 .plan       = plan.s,
                                                 .plan_bytes = plan.n},
                            &t);
    WEFT_GO(weft_text_status(&t));
    write_output(&t);
out:
    weft_text_fini(&t);
    weft_text_fini(&plan);
    weft_replan_answer_fini(&a);
    weft_cluster_destroy(c);
    return st;
}

static weft_status serve(const weft_ahead_request *q)
{
    ahead_job          x      = {.q = q};
    weft_model_source *source = NULL;
    weft_status        st     = WEFT_OK;
    WEFT_GO(weft_job_parse("job.json", q->job, q->job_bytes, 0, NULL, &x.job));
    WEFT_GO(weft_model_source_open(x.job->model, &source));
    x.job->source          = source;
    weft_compile_spec spec = weft_job_spec(x.job);
    WEFT_GO(weft_compile_training(&spec, &x.training));
    if (q->plan_bytes)
        WEFT_GO(weft_plan_parse("the running plan", q->plan, q->plan_bytes, &x.was));
    for (int k = 0; k < q->n_view; k++)
        (void)answer_view(&x, k); /* others may have one */
out:
    weft_plan_destroy(x.was);
    weft_training_fini(&x.training);
    weft_model_source_destroy(source);
    weft_job_destroy(x.job);
    return st;
}

weft_status weft_session_serve_plans(void)
{
    weft_ahead_request q  = {0};
    weft_text          t  = {0};
    weft_status        st = WEFT_OK;
    if (!step_back()) return WEFT_OK;
    WEFT_GO(read_input(&t));
    WEFT_GO(weft_ahead_parse_request(t.s ? t.s : "", t.n, &q));
    WEFT_GO(serve(&q));
out:
    weft_ahead_request_fini(&q);
    weft_text_fini(&t);
    return st;
}
