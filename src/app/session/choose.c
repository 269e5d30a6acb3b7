/* A job that leaves it to us is planned for: the machines there are, the ranks there are.
 *
 * Invariant sums are split only in ways that keep every bit: replicas, stages, ZeRO,
 * recomputation.  With reduction: fixed, and with auto where nothing fits so, tensor, context and
 * expert parallelism are open too, and ZeRO 2 and 3 sum gradients in shards. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "comm/hosts.h"
#include "planner/planner.h"
#include "probe/probe.h"
#include "session/session.h"
#include "session/plans_priv.h"

enum {
    CANDIDATES  = 3,
    SMALL       = 256 << 20, /* bytes of a program that nobody needs to worry about */
    SPARE       = 64 << 20,  /* of a rank, beside its program */
    MAX_STARTED = 8          /* ranks that weft train starts of itself */
};

/* A pipeline with one micro-batch is worth its ranks where one rank takes so many times as long:
 * all that such a pipeline saves is a part of the update, and predictions are some 10 % off. */
#define WORTH 1.1

/* ---- machines ---- */

static bool is_measured(int n_host, int local, char *path, size_t n)
{
    return weft_probe_cache_path(n_host, local, path, n) == WEFT_OK &&
           weft_io_exists(path);
}

/* This host's GPUs, where all ranks are on some: one each, or one together. */
static weft_status find_gpus(const weft_job *j, int n_host, const int *count,
                             weft_cluster **out)
{
    weft_session__devices d;
    WEFT_TRY(weft_session__expect_devices(j, count[0], count[0], &d));
    if (d.n_cpu)
        return WEFT_FAIL(WEFT_ERR_ARG, "some ranks are on CPUs, and some on GPUs");
    if (d.n_gpu != count[0] && d.n_gpu != 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d ranks share %d GPUs", count[0], d.n_gpu);
    return weft_probe_gpu_hosts(n_host, count, d.n_gpu < count[0], out);
}

/* count: ranks of each host.  n_core: as of weft_probe_divided().  why, of 200: a job on GPUs is
 * planned for CPUs, as their numbers are not known; "" elsewhere. */
static weft_status find_machines(const weft_job *j, int n_host, const int *count,
                                 int n_core, char *why, weft_cluster **out)
{
    char path[1024];
    bool alike = true;
    *why       = 0;
    for (int i = 0; i < n_host; i++) alike = alike && count[i] == count[0];
    if (j->cluster) return weft_cluster_load(j->cluster, NULL, out);
    if (!weft_job_is_on_cpus(j)) {
        if (find_gpus(j, n_host, count, out) == WEFT_OK) return WEFT_OK;
        snprintf(why, 200, "%s", weft_error_text());
    }
    if (!alike) return weft_probe_unlike(n_host, count, n_core, out);
    if (is_measured(n_host, count[0], path, sizeof path))
        return weft_cluster_load(path, NULL, out);
    return weft_probe_divided(n_host, count[0], n_core, out);
}

/* The same of world / local equal hosts. */
static weft_status find_alike(const weft_job *j, int world, int local, int n_core,
                              char *why, weft_cluster **out)
{
    int         n_host = world / local;
    int        *count  = calloc((size_t)n_host + 1, sizeof *count);
    weft_status st     = WEFT_ERR_MEM;
    if (!count) return WEFT_FAIL(st, "out of memory");
    for (int i = 0; i < n_host; i++) count[i] = local;
    st = find_machines(j, n_host, count, n_core, why, out);
    free(count);
    return st;
}

int weft_session__count_by_host(const weft_session *s, int *count)
{
    const int32_t *host  = s->now->comm ? weft_comm_hosts_of(s->now->comm) : NULL;
    int            world = s->now->n_rank, local = s->now->local, n = 0;
    if (!host && s->now->n_host > 0) {
        memcpy(count, s->now->host_ranks, sizeof *count * (size_t)s->now->n_host);
        return s->now->n_host;
    }
    for (int r = 0; r < world; r++) {
        bool first = host ? host[r] == r : !local || r % local == 0;
        if (first) count[n++] = 0;
        if (n) count[n - 1]++;
    }
    return n;
}

weft_status weft_session__machines_of(const weft_job *j, int n_host, const int *count,
                                      int n_core, weft_cluster **out)
{
    char why[200];
    return find_machines(j, n_host, count, n_core, why, out);
}

/* ---- the plan ---- */

/* fixed: micro_batch, lanes and recompute stay as the job has them, whether or not it gives them.
 */
static void ask(const weft_job *j, const weft_cluster *c, int world, bool fixed,
                weft_planner_request *q)
{
    *q = (weft_planner_request){.spec      = weft_job_spec(j),
                                .cluster   = c,
                                .on_cpus   = weft_job_is_on_cpus(j),
                                .keep_bits = true,
                                .world     = world,
                                .n_best    = CANDIDATES};
    if (j->strategy.bucket_bytes > 0) q->bucket_bytes = j->strategy.bucket_bytes;
    bool follows = j->given_lanes && j->lanes > 1; /* then micro_batch is a lane's part */
    if (!fixed && !j->given_micro_batch && !follows) q->spec.micro_batch = 0;
    if (!fixed && !j->given_lanes) q->spec.lanes = 0;
    weft_search_open(&q->constraints);
    /* strategies and the planner number none, selective and full alike */
    if (fixed || j->strategy.recompute)
        weft_search_fix(&q->constraints, WEFT_KEY_recompute, j->strategy.recompute);
    if (fixed || j->strategy.offload)
        weft_search_fix(&q->constraints, WEFT_KEY_offload, j->strategy.offload);
    if (j->strategy.copies > 1 && world != 1)
        weft_search_fix(&q->constraints, WEFT_KEY_copies, j->strategy.copies);
}

static bool is_no_way(weft_status st)
{
    return st == WEFT_ERR_NOFIT || st == WEFT_ERR_ARG;
}

/* With so many copies: on as many hosts where that can be, else on one. */
static weft_status find_plan_with(weft_planner_request *q, int copies, int n_host,
                                  weft_planner_answer **out)
{
    weft_search_fix(&q->constraints, WEFT_KEY_copies, copies);
    q->constraints.n_host = n_host;
    weft_status st        = weft_planner_plan(q, out);
    if (n_host < 2 || !is_no_way(st)) return st;
    q->constraints.n_host = 0;
    return weft_planner_plan(q, out);
}

/* local: ranks of a host; 0: all.  Where there cannot be as many copies as the job asks for there
 * are as many as can be: the start says what a lost host or rank would cost. */
static weft_status find_plan(weft_planner_request *q, int local,
                             weft_planner_answer **out)
{
    int host_ranks[WEFT_SESSION__MAX_RANK], n_host = 0;
    if (local > 0 && q->world <= WEFT_SESSION__MAX_RANK) {
        n_host                    = q->world / local;
        q->constraints.host_ranks = host_ranks;
        for (int k = 0; k < n_host; k++) host_ranks[k] = local;
    }
    int copies = weft_search_given(&q->constraints, WEFT_KEY_copies);
    if (q->world > 0 && copies > q->world) copies = q->world;
    for (; copies > 1; copies--) {
        weft_status st = find_plan_with(q, copies, n_host, out);
        if (!is_no_way(st)) return st;
    }
    weft_search_fix(&q->constraints, WEFT_KEY_copies, -1);
    return weft_planner_plan(q, out);
}

static weft_status decide(const weft_job *j, const weft_cluster *c, int world, int local,
                          bool fixed, weft_planner_answer **out)
{
    weft_planner_request q;
    ask(j, c, world, fixed, &q);
    return find_plan(&q, local, out);
}

/* Takes a's plan and its training. */
static void take_answer(weft_planner_answer *a, weft_session__choice *out)
{
    weft_text line = {0};
    weft_planner_print_line(a, &line);
    *out = (weft_session__choice){.plan = a->plan, .step_s = a->step_s};
    weft_planner_take_training(a, &out->training);
    snprintf(out->line, sizeof out->line, "%s", line.s ? line.s : "");
    a->plan = NULL;
    weft_text_fini(&line);
}

void weft_session__choice_fini(weft_session__choice *x)
{
    weft_plan_destroy(x->plan);
    weft_training_fini(&x->training);
    x->plan = NULL;
}

static weft_status decide_on(const weft_job *j, const weft_cluster *c, int world,
                             int local, bool fixed, weft_session__choice *out)
{
    weft_planner_answer *a;
    WEFT_TRY(decide(j, c, world, local, fixed, &a));
    int missing = weft_planner_missing_micro(a);
    take_answer(a, out);
    out->sequential = missing > 0 && missing == out->plan->strategy.pp - 1;
    out->idle       = missing > 0;
    weft_planner_destroy(a);
    return WEFT_OK;
}

/* Predicted for n ranks on this host, or on the job's machines. */
static weft_status find_step(const weft_job *j, int n, int n_core, double *step_s)
{
    weft_cluster        *c  = NULL;
    weft_planner_answer *a  = NULL;
    weft_status          st = WEFT_OK;
    char                 why[200];
    WEFT_GO(find_alike(j, n, n, n_core, why, &c));
    WEFT_GO(decide(j, c, n, 0, false, &a));
    *step_s = a->step_s;
out:
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
    return st;
}

weft_status weft_session__plan_choose(const weft_job *j, int world, int local, int n_core,
                                      weft_session__choice *out)
{
    weft_cluster *c;
    char          why[200];
    WEFT_TRY(find_alike(j, world, local > 0 ? local : world, n_core, why, &c));
    weft_status st = decide_on(j, c, world, local, false, out);
    weft_cluster_destroy(c);
    snprintf(out->for_cpus, sizeof out->for_cpus, "%s", why);
    if (st != WEFT_OK || !out->idle) return st;
    if (find_step(j, 1, n_core, &out->alone_s) != WEFT_OK) /* it does not fit */
        out->alone_s = INFINITY;
    out->sequential = out->sequential && out->alone_s < WORTH * out->step_s;
    out->idle       = out->alone_s < out->step_s;
    return st;
}

weft_status weft_session__plan_alone(const weft_job *j, weft_session__choice *out)
{
    weft_cluster *c;
    char          why[200];
    WEFT_TRY(find_alike(j, 1, 1, 0, why, &c));
    weft_status st = decide_on(j, c, 1, 0, true, out);
    weft_cluster_destroy(c);
    if (st != WEFT_ERR_NOFIT || j->cluster || weft_job_is_on_cpus(j)) return st;
    WEFT_TRY(weft_probe_divided(1, 1, 0, &c)); /* what a GPU holds is looked at later */
    st = decide_on(j, c, 1, 0, true, out);
    weft_cluster_destroy(c);
    return st;
}

/* ---- other numbers of ranks ---- */

/* Its keys stay, but for dp. */
static void fix_keys(const weft_strategy *y, weft_search_constraints *p)
{
    const struct {
        weft_strategy_key key;
        int               size;
    } list[] = {{WEFT_KEY_tp, y->tp},
                {WEFT_KEY_cp, y->cp},
                {WEFT_KEY_ep, y->ep},
                {WEFT_KEY_pp, y->pp}};
    for (size_t k = 0; k < WEFT_COUNT(list); k++)
        weft_search_fix(p, list[k].key, list[k].size > 1 ? list[k].size : 1);
    weft_search_fix(p, WEFT_KEY_zero, y->zero);
}

/* Without a planner micro_batch and lanes follow from dp. */
static weft_status cut_for(weft_job *j, int world)
{
    const weft_strategy *y     = &j->strategy;
    const int            of[]  = {y->tp, y->cp, y->ep, y->pp};
    int                  other = 1;
    for (size_t k = 0; k < WEFT_COUNT(of); k++) other *= of[k] > 1 ? of[k] : 1;
    int dp = world / other > 1 ? world / other : 1;
    weft_job_default_cut(j);
    if (!j->given_micro_batch && !j->given_lanes) j->micro_batch = j->batch / dp;
    return weft_job_check_cut(j, dp);
}

weft_status weft_session__predict(const weft_job *job, int world, int local, int n_core,
                                  bool keeps, weft_session__predicted *out)
{
    weft_job             j    = *job;
    bool                 open = weft_job_is_open(&j);
    weft_cluster        *c    = NULL;
    weft_planner_answer *a    = NULL;
    weft_status          st   = WEFT_OK;
    weft_planner_request q;
    char                 why[200];
    if (j.plan_file) return WEFT_FAIL(WEFT_ERR_ARG, "nothing predicts it");
    if (!keeps && !open) WEFT_TRY(cut_for(&j, world));
    WEFT_GO(find_alike(&j, world, local, n_core, why, &c));
    if (*why) WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "nothing predicts it: %s", why));
    ask(&j, c, world, keeps || !open, &q);
    if (!open) fix_keys(&j.strategy, &q.constraints);
    WEFT_GO(find_plan(&q, local, &a));
    *out = (weft_session__predicted){.step_s      = a->step_s,
                                     .mem_bytes   = a->tried[0]->mem_bytes,
                                     .micro_batch = a->plan->of.micro_batch,
                                     .lanes       = a->plan->of.lanes};
out:
    weft_planner_destroy(a);
    weft_cluster_destroy(c);
    return st;
}

/* ---- how many ranks ---- */

/* On the job's own machines: as many as help. */
static weft_status count_useful(const weft_job *j, int most, int *n)
{
    weft_cluster        *c = NULL;
    weft_session__choice x = {0};
    WEFT_TRY(weft_cluster_load(j->cluster, NULL, &c));
    if (decide_on(j, c, 0, 0, false, &x) == WEFT_OK && weft_plan_world(x.plan) <= most)
        *n = weft_plan_world(x.plan);
    weft_session__choice_fini(&x);
    weft_cluster_destroy(c);
    return WEFT_OK;
}

/* On this host: as long as twice as many are predicted to be faster. */
static weft_status count_measured(const weft_job *j, int most, int *n)
{
    char   path[1024];
    double best = 0, step_s;
    for (int k = 2; k <= most; k *= 2) {
        if (!is_measured(1, k, path, sizeof path) ||
            !is_measured(1, 1, path, sizeof path))
            continue;
        if (!(best > 0) && find_step(j, 1, 0, &best) != WEFT_OK) return WEFT_OK;
        if (find_step(j, k, 0, &step_s) != WEFT_OK || step_s > 0.95 * best) continue;
        best = step_s;
        *n   = k;
    }
    return WEFT_OK;
}

weft_status weft_session_count_ranks(const weft_job *job, const weft_session_options *o,
                                     int *n)
{
    weft_job j = *job;
    char     path[1024];
    int      most = weft_runner_cores();
    bool     any  = j.cluster != NULL;
    *n            = 1;
    if (!weft_job_is_open(&j) || j.threads || strcmp(j.device, "cpu") != 0)
        return WEFT_OK; /* what was measured is of CPUs */
    if (most > MAX_STARTED) most = MAX_STARTED;
    for (int k = 2; k <= most; k *= 2) any = any || is_measured(1, k, path, sizeof path);
    if (!any) return WEFT_OK;
    WEFT_TRY(weft_session__find_seq(&j));
    weft_model_source *source;
    if (weft_session__kept_job(job, o, &j) != WEFT_OK ||
        weft_model_source_open(j.model, &source) != WEFT_OK)
        return WEFT_OK; /* the run says it */
    j.source       = source;
    weft_status st = j.cluster ? count_useful(&j, most, n) : count_measured(&j, most, n);
    weft_model_source_destroy(source);
    return st;
}

/* ---- one rank ---- */

/* On one rank the whole batch at once is fastest, as long as it fits. */
weft_status weft_session__fit(weft_session *s, bool *again)
{
    weft_cluster        *c     = NULL;
    weft_session__choice x     = {0};
    int64_t              bytes = 0;
    weft_status          st    = WEFT_OK;
    char                 why[200];
    *again = false;
    for (int k = 0; k < s->now->made.program->n_slab; k++)
        bytes += s->now->made.program->slab[k].bytes;
    if (s->now->n_rank > 1 || !weft_job_is_open(&s->job) || s->job.given_micro_batch ||
        s->resume || bytes < SMALL || (s->device && s->device->facts))
        return WEFT_OK; /* a GPU's memory is looked at later, and the line says what fits */
    WEFT_GO(find_alike(&s->job, 1, 1, 0, why, &c));
    if (bytes + SPARE <= weft_cluster_device(c, 0)->mem_bytes) goto out;
    st = decide_on(&s->job, c, 1, 0, false, &x);
    if (st == WEFT_ERR_NOFIT) weft_say_warn(&s->say, "%s", weft_error_text());
    if (st == WEFT_ERR_NOFIT || st == WEFT_ERR_ARG) st = WEFT_OK;
    if (st != WEFT_OK || !x.plan) goto out;
    WEFT_GO(weft_session__take_cut(&s->job, x.plan));
    weft_say_info(&s->say, "plan: %s; the whole batch at once does not fit", x.line);
    *again = true;
out:
    weft_session__choice_fini(&x);
    weft_cluster_destroy(c);
    return st;
}

/* ---- a plan of the job's ---- */

weft_status weft_session__check_machines(weft_session *s)
{
    const weft_job    *j = &s->job;
    weft_plan_machines have;
    weft_cluster      *c;
    bool               other;
    if (!j->plan_file || !j->cluster || !s->now->plan) return WEFT_OK;
    WEFT_TRY(weft_cluster_load(j->cluster, NULL, &c));
    weft_status st = weft_planner_name_machines(c, s->now->arena, &have);
    if (st == WEFT_OK)
        st = weft_plan_check_machines(s->now->plan, j->plan_file, &have, &other);
    if (st == WEFT_OK && other)
        weft_say_warn(
            &s->say,
            "%s was made with other numbers for %s: weft plan may find a better "
            "one",
            j->plan_file, have.name);
    weft_cluster_destroy(c);
    return st;
}
