/* A job that leaves it to us is planned for: the machines there are, the ranks there are.
 *
 * Sums that are to be bitwise are cut only in ways that keep every bit: replicas, stages, ZeRO, recomputation.  With
 * sums: fast, or where nothing fits so, tensor, context and expert parallelism are open too. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "planner/planner.h"
#include "probe/probe.h"
#include "session/session_priv.h"

enum {
    CANDIDATES  = 3,
    SMALL       = 256 << 20, /* bytes of a program that nobody needs to worry about */
    SPARE       = 64 << 20,  /* of a rank, beside its program */
    MAX_STARTED = 8          /* ranks that weft train starts of itself */
};

bool weft_job_is_open(const weft_job *j)
{
    const weft_job_plan *p = &j->plan;
    return !p->word && !p->mesh && p->pp == 1 && !p->zero && !p->later && !p->sp &&
           !p->ring && !p->shares && !p->whole && p->chunks == 1 &&
           !strcmp(p->schedule, "1f1b");
}

/* ---- machines ---- */

static bool is_measured(int n_host, int local, char *path, size_t n)
{
    return weft_probe_cache_path(n_host, local, path, n) == WEFT_OK &&
           weft_io_exists(path);
}

static weft_status find_machines(const weft_job *j, int world, int local,
                                 weft_cluster **out)
{
    char path[1024];
    if (j->plan.cluster) return weft_cluster_load(j->plan.cluster, NULL, out);
    if (is_measured(world / local, local, path, sizeof path))
        return weft_cluster_load(path, NULL, out);
    return weft_probe_divided(world / local, local, out);
}

/* ---- the plan ---- */

static void ask(const weft_job *j, const weft_cluster *c, int world, weft_planner_ask *q)
{
    *q = (weft_planner_ask){
        .spec = weft_job_spec(j), .cluster = c, .world = world, .n_best = CANDIDATES};
    if (!j->given_micro_batch) q->spec.micro_batch = 0;
    if (!j->given_lanes) q->spec.lanes = 0;
    if (!strcmp(j->recompute, "none")) q->spec.recompute = NULL;
    weft_search_open(&q->pins);
    if (strcmp(j->sums, "bitwise")) return;
    q->pins.tp = q->pins.cp = q->pins.ep = 1;
    q->pins.sp                           = 0;
}

static weft_status decide(const weft_job *j, const weft_cluster *c, int world,
                          weft_planner_answer **out)
{
    weft_planner_ask q;
    ask(j, c, world, &q);
    weft_status st = weft_planner_decide(&q, out);
    if (st != WEFT_ERR_NOFIT || q.pins.tp < 0) return st;
    weft_search_open(&q.pins);
    return weft_planner_decide(&q, out);
}

static weft_status decide_on(const weft_job *j, const weft_cluster *c, int world,
                             weft_text *line, weft_plan **out)
{
    weft_planner_answer *a;
    WEFT_TRY(decide(j, c, world, &a));
    if (line) weft_planner_print_line(a, line);
    *out    = a->plan;
    a->plan = NULL;
    weft_planner_destroy(a);
    return WEFT_OK;
}

weft_status weft_session__plan_choose(const weft_job *j, int world, int local,
                                      weft_text *line, weft_plan **out)
{
    weft_cluster *c;
    WEFT_TRY(find_machines(j, world, local > 0 ? local : world, &c));
    weft_status st = decide_on(j, c, world, line, out);
    weft_cluster_destroy(c);
    return st;
}

/* ---- how many ranks ---- */

static weft_status step_of(const weft_job *j, int n, double *step_s)
{
    weft_cluster        *c  = NULL;
    weft_planner_answer *a  = NULL;
    weft_status          st = WEFT_OK;
    WEFT_GO(find_machines(j, n, n, &c));
    WEFT_GO(decide(j, c, n, &a));
    *step_s = a->step_s;
out:
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
    return st;
}

/* On the job's own machines: as many as help. */
static weft_status ranks_of(weft_job *j, int most, int *n)
{
    weft_cluster *c = NULL;
    weft_plan    *p = NULL;
    WEFT_TRY(weft_cluster_load(j->plan.cluster, NULL, &c));
    weft_status st = weft_session__find_seq(j);
    if (st == WEFT_OK && decide_on(j, c, 0, NULL, &p) == WEFT_OK &&
        weft_plan_world(p) <= most)
        *n = weft_plan_world(p);
    weft_plan_destroy(p);
    weft_cluster_destroy(c);
    return st;
}

weft_status weft_job_ranks(const weft_job *job, int *n)
{
    weft_job j = *job;
    char     path[1024];
    double   best = 0, one;
    int      most = weft_runner_cores();
    *n            = 1;
    if (!weft_job_is_open(&j) || j.threads) return WEFT_OK;
    if (most > MAX_STARTED) most = MAX_STARTED;
    if (j.plan.cluster) return ranks_of(&j, most, n);
    for (int k = 2; k <= most; k *= 2) {
        if (!is_measured(1, k, path, sizeof path) ||
            !is_measured(1, 1, path, sizeof path))
            continue;
        WEFT_TRY(weft_session__find_seq(&j));
        if (!(best > 0) && step_of(&j, 1, &best) != WEFT_OK) return WEFT_OK;
        if (step_of(&j, k, &one) != WEFT_OK || one > 0.95 * best) continue;
        best = one;
        *n   = k;
    }
    return WEFT_OK;
}

/* ---- made once, for all ---- */

enum {
    MOST_PLAN = 64 << 20 /* bytes of text */
};

static weft_status share_text(weft_session *s, weft_text *t)
{
    int64_t n = (int64_t)t->n;
    WEFT_TRY(weft_session__share(s, &n, sizeof n));
    if (n < 1) return WEFT_OK;
    if (n > MOST_PLAN)
        return WEFT_FAIL(WEFT_ERR_PEER, "rank 0 failed: it sent a plan of %lld bytes",
                         (long long)n);
    int64_t n_word = (n + 3) / 4;
    float  *word   = calloc((size_t)n_word, sizeof *word);
    if (!word) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a plan");
    if (weft_session__writes(s)) memcpy(word, t->s, t->n);
    weft_status st = weft_comm_collective(s->o->comm, s->group, WEFT_COMM_BROADCAST,
                                          WEFT_DTYPE_F32, word, word, n_word);
    if (st == WEFT_OK && !weft_session__writes(s))
        weft_text_put(t, (const char *)word, (size_t)n);
    free(word);
    return st == WEFT_OK ? weft_text_status(t) : st;
}

/* Rank 0's part; an empty text: there is none. */
static weft_status make_text(weft_session *s, weft_text *t)
{
    weft_text   line  = {0};
    weft_plan  *p     = NULL;
    const char *where = s->job.plan.cluster; /* which need not be those it runs on */
    int         n = s->o->comm->world, local = s->o->local_ranks;
    weft_status st = weft_session__plan_choose(&s->job, n, local, &line, &p);
    if (st == WEFT_OK) {
        st = weft_plan_print(p, t);
        weft_say_info(&s->say,
                      "plan%s%s: %s; --print-plan shows it, plan=FILE pins it, "
                      "plan=off is data parallel",
                      where ? " for the machines of " : "", where ? where : "",
                      line.s ? line.s : "");
    } else if (st == WEFT_ERR_NOFIT) {
        weft_say_warn(&s->say, "no plan, so data parallel: %s", weft_error_text());
        st = WEFT_OK;
    } else if (st == WEFT_ERR_ARG) {
        st = WEFT_OK; /* the job's own words have the better message */
    }
    weft_text_fini(&line);
    weft_plan_destroy(p);
    return st;
}

weft_status weft_session__choose(weft_session *s)
{
    weft_text   t  = {0};
    weft_status st = WEFT_OK;
    if (!s->o->comm || s->o->comm->world == 1 || !weft_job_is_open(&s->job))
        return WEFT_OK;
    if (weft_session__writes(s)) WEFT_GO(make_text(s, &t));
    WEFT_GO(share_text(s, &t));
    if (!t.n)
        WEFT_GO(weft_session__plan_open(&s->job, s->o->comm->world, &s->words, &s->plan));
    if (!t.n) goto out;
    WEFT_GO(weft_plan_parse("the plan made here", t.s, t.n, &s->plan));
    WEFT_GO(weft_session__take_cut(&s->job, s->plan));
    s->chosen = true;
out:
    weft_text_fini(&t);
    return st;
}

/* ---- one rank ---- */

/* On one rank the whole batch at once is fastest, as long as it fits. */
weft_status weft_session__fit(weft_session *s, bool *again)
{
    weft_cluster *c     = NULL;
    weft_plan    *p     = NULL;
    weft_text     line  = {0};
    int64_t       bytes = 0;
    weft_status   st    = WEFT_OK;
    *again              = false;
    for (int k = 0; k < s->made.program->n_slab; k++)
        bytes += s->made.program->slab[k].bytes;
    if (s->o->comm || !weft_job_is_open(&s->job) || s->job.given_micro_batch ||
        s->resume || bytes < SMALL)
        return WEFT_OK;
    WEFT_GO(find_machines(&s->job, 1, 1, &c));
    if (bytes + SPARE <= weft_cluster_device(c, 0)->mem_bytes) goto out;
    st = decide_on(&s->job, c, 1, &line, &p);
    if (st == WEFT_ERR_NOFIT) weft_say_warn(&s->say, "%s", weft_error_text());
    if (st == WEFT_ERR_NOFIT || st == WEFT_ERR_ARG) st = WEFT_OK;
    if (st != WEFT_OK || !p) goto out;
    WEFT_GO(weft_session__take_cut(&s->job, p));
    weft_say_info(&s->say, "plan: %s; the whole batch at once does not fit",
                  line.s ? line.s : "");
    *again = true;
out:
    weft_text_fini(&line);
    weft_plan_destroy(p);
    weft_cluster_destroy(c);
    return st;
}

/* ---- a plan of the job's ---- */

weft_status weft_session__check_machines(weft_session *s)
{
    const weft_job_plan *p = &s->job.plan;
    weft_plan_machines   have;
    weft_cluster        *c;
    bool                 other;
    if (!p->file || !p->cluster || !s->plan) return WEFT_OK;
    WEFT_TRY(weft_cluster_load(p->cluster, NULL, &c));
    weft_status st = weft_planner_name_machines(c, s->arena, &have);
    if (st == WEFT_OK) st = weft_plan_check_machines(s->plan, p->file, &have, &other);
    if (st == WEFT_OK && other)
        weft_say_warn(
            &s->say,
            "%s was made with other numbers for %s: weft plan may find a better "
            "one",
            p->file, have.name);
    weft_cluster_destroy(c);
    return st;
}
