/* The next plan of a running job: how long it takes, and how good it is beside a search from
 * nothing under the same constraints.
 *
 *     build/bench_replan > bench/results/replan-DATE.csv
 *
 * A row for each job, number of hosts before and after.  quick: what a fault is answered with
 * where no plan was made ahead, by a re-planner that knows nothing yet (quick_ms, median of 5);
 * hit_ms: the same request again, from the plan cache.  late_ms: the answer where no time is left
 * for a search; longest_ms: between two questions whether there is, which is what a decision may
 * take beyond its limit.  better: weft_replanner_search, as plans are made ahead.  anew:
 * weft_planner_plan, which knows no running plan, under the same constraints (micro_batch, lanes,
 * recompute, tp, cp, the devices that are left).  Steps are simulated, milliseconds are of the
 * thread's processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compile/world.h"
#include "planner/planner.h"
#include "planner/replan.h"
#include "sim/fold.h"

enum {
    ROUNDS = 5
};

typedef struct bench_job {
    const char *model, *dtype, *was, *device;
    int         batch, seq, micro, lanes;
    int         hosts, local; /* before */
    int         then;         /* hosts after */
    bool        simulate;
} bench_job;

static const bench_job jobs[] = {
    {"gpt2", "bf16", "dp=64", "a100-80g", 64, 1024, 1, 64, 64, 1, 63, true},
    {"gpt2", "bf16", "dp=64 zero=1", "a100-80g", 64, 1024, 1, 64, 64, 1, 62, true},
    {"gpt2-xl", "bf16", "dp=64 zero=1", "a100-80g", 256, 1024, 2, 64, 64, 1, 63, true},
    {"gpt2-xl", "bf16", "dp=16 pp=4", "a100-40g", 256, 1024, 2, 64, 64, 1, 63, true},
    {"gpt2-xl", "bf16", "dp=16 pp=4", "a100-40g", 256, 1024, 2, 64, 64, 1, 48, true},
    {"llama3-8b", "bf16", "dp=16 pp=4 zero=1", "a100-80g", 256, 2048, 1, 64, 64, 1, 63,
     true},
    {"llama3-8b", "bf16", "dp=64 tp=8 zero=1", "a100-80g", 512, 2048, 1, 64, 64, 8, 63,
     false},
    {"gpt2", "fp32", "dp=8", "epyc-7763", 32, 256, 1, 8, 8, 1, 7, true},
    {"gpt2", "fp32", "dp=4 pp=2", "epyc-7763", 32, 256, 1, 8, 8, 1, 7, true},
    {"gpt2", "bf16", "dp=4 pp=4", "a100-40g", 64, 1024, 1, 16, 16, 1, 15, true},
    {"gpt2-medium", "bf16", "dp=16 zero=1", "a100-40g", 64, 1024, 1, 16, 16, 1, 13, true},
    {"gpt2-medium", "bf16", "dp=4 pp=4", "a100-40g", 64, 1024, 1, 16, 4, 4, 3, true},
};

/* Of this thread: the machine may be busy. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(weft_status st, const char *what)
{
    if (st == WEFT_OK) return;
    fprintf(stderr, "%s: %s\n", what, weft_error_text());
    exit(1);
}

static weft_cluster *open_hosts(const bench_job *j, int n)
{
    char          text[128];
    weft_cluster *c;
    snprintf(text, sizeof text, "%d x (%d x %s)", n, j->local, j->device);
    check(weft_cluster_load(text, NULL, &c), text);
    return c;
}

/* 0: it cannot be simulated. */
static double simulate_plan(const weft_training *t, const weft_plan *p,
                            const weft_cluster *c)
{
    weft_compiled_world *w      = NULL;
    weft_sim_folded     *f      = NULL;
    double               step_s = 0;
    if (weft_compile_world(t, p, WEFT_RANKS_FOLDED, &w) == WEFT_OK &&
        weft_sim_fold(&w->world, c, NULL, &f) == WEFT_OK)
        step_s = f->timeline->step_s;
    else
        fprintf(stderr, "not simulated: %s\n", weft_error_text());
    weft_sim_folded_destroy(f);
    weft_compiled_world_destroy(w);
    return step_s;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double find_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

/* The longest time between two questions, the first one after the planner was made. */
typedef struct late_watch {
    bool   is_late;
    double asked_s, longest_s;
} late_watch;

static bool watch_late(void *arg)
{
    late_watch *w   = arg;
    double      now = cpu_s();
    if (now - w->asked_s > w->longest_s) w->longest_s = now - w->asked_s;
    w->asked_s = now;
    return w->is_late;
}

/* ms: longest_ms, late_ms. */
static void time_limit(const weft_replan_job *of, weft_replan_request q, double ms[2])
{
    for (int late = 0; late < 2; late++) {
        weft_replanner    *r       = NULL;
        weft_replan_answer a       = {0};
        late_watch         w       = {.is_late = late, .asked_s = cpu_s()};
        double             begun_s = w.asked_s;
        q.is_late                  = watch_late;
        q.late_arg                 = &w;
        check(weft_replanner_create(of, &r), "create");
        check(weft_replanner_decide(r, &q, &a), "decide");
        ms[late] = 1e3 * (late ? cpu_s() - begun_s : w.longest_s);
        weft_replan_answer_fini(&a);
        weft_replanner_destroy(r);
    }
}

static void time_replan(const bench_job *j, const weft_training *t, const weft_plan *was,
                        const weft_cluster *c, weft_replan_answer *out, double ms[4])
{
    double cold[ROUNDS], hit[ROUNDS];
    int    host[4096];
    for (int k = 0; k < j->then; k++) host[k] = j->local;
    weft_replan_request q = {
        .was = was, .n_rank = j->then * j->local, .n_host = j->then, .host_ranks = host};
    for (int k = 0; k < ROUNDS; k++) {
        weft_replanner *r  = NULL;
        weft_replan_job of = {.training = t, .cluster = c};
        double          t0 = cpu_s();
        check(weft_replanner_create(&of, &r), "create");
        weft_replan_answer_fini(out);
        check(weft_replanner_decide(r, &q, out), "decide");
        double t1 = cpu_s();
        weft_replan_answer_fini(out);
        check(weft_replanner_decide(r, &q, out), "again");
        double t2 = cpu_s();
        if (!out->from_cache) fprintf(stderr, "not from the cache\n"), exit(1);
        cold[k] = t1 - t0;
        hit[k]  = t2 - t1;
        weft_replanner_destroy(r);
    }
    ms[0] = 1e3 * find_median(cold, ROUNDS);
    ms[1] = 1e3 * find_median(hit, ROUNDS);
    time_limit(&(weft_replan_job){.training = t, .cluster = c}, q, ms + 2);
}

/* The planner's plan under the same constraints; NULL: it finds none. */
static weft_plan *search_anew(const weft_training *t, const weft_plan *was,
                              const weft_cluster *c, double *ms, double *step_s)
{
    weft_planner_request q = {
        .spec = t->spec, .cluster = c, .keep_bits = true, .n_best = 3};
    weft_planner_answer *a  = NULL;
    weft_plan           *p  = NULL;
    double               t0 = cpu_s();
    weft_search_open(&q.constraints);
    weft_search_fix(&q.constraints, WEFT_KEY_recompute, was->strategy.recompute);
    weft_search_fix(&q.constraints, WEFT_KEY_tp,
                    was->strategy.tp > 1 ? was->strategy.tp : 1);
    weft_search_fix(&q.constraints, WEFT_KEY_cp,
                    was->strategy.cp > 1 ? was->strategy.cp : 1);
    weft_search_fix(&q.constraints, WEFT_KEY_ep, 1);
    if (weft_planner_plan(&q, &a) == WEFT_OK) {
        p       = a->plan;
        *step_s = a->step_s;
        a->plan = NULL;
    } else {
        fprintf(stderr, "no plan from nothing: %s\n", weft_error_text());
    }
    weft_planner_destroy(a);
    *ms = 1e3 * (cpu_s() - t0);
    return p;
}

static void print_strategy(const weft_plan *p)
{
    weft_text t = {0};
    if (p) weft_strategy_print(&p->strategy, &t);
    printf("\"%s\",", t.s ? t.s : "");
    weft_text_fini(&t);
}

/* With time: the plan that is made ahead, or found later. */
static void search_better(const bench_job *j, const weft_training *t,
                          const weft_plan *was, const weft_cluster *c,
                          weft_replan_answer *out, double *ms)
{
    weft_replanner *r  = NULL;
    weft_replan_job of = {.training = t, .cluster = c};
    double          t0 = cpu_s();
    check(weft_replanner_create(&of, &r), "create");
    check(weft_replanner_search(
              r, &(weft_replan_request){.was = was, .n_rank = j->then * j->local}, out),
          "search");
    *ms = 1e3 * (cpu_s() - t0);
    weft_replanner_destroy(r);
}

static void open_training(const bench_job *j, weft_training *t)
{
    weft_compile_spec s = weft_compile_spec_default(j->model, j->batch, j->seq);
    s.lanes             = j->lanes;
    s.micro_batch       = j->micro;
    s.reduction         = WEFT_REDUCTION_INVARIANT;
    s.dtype             = j->dtype;
    if (strcmp(j->dtype, "bf16") == 0) weft_compile_for_cuda(&s);
    check(weft_compile_training(&s, t), j->model);
}

static void run_job(const bench_job *j)
{
    weft_training      t = {0};
    weft_strategy      y;
    weft_plan         *was;
    weft_replan_answer quick = {0}, better = {0};
    double             ms[4], better_ms = 0, anew_ms = 0, quick_s = 0, anew_s = 0;
    weft_plan         *anew = NULL;
    open_training(j, &t);
    check(weft_strategy_parse(j->was, &y), j->was);
    check(weft_compile_plan(&t, &y, 0, &was), j->was);
    weft_cluster *c = open_hosts(j, j->then);
    time_replan(j, &t, was, c, &quick, ms);
    if (j->simulate) {
        search_better(j, &t, was, c, &better, &better_ms);
        anew    = search_anew(&t, was, c, &anew_ms, &anew_s);
        quick_s = simulate_plan(&t, quick.plan, c);
    }
    printf("%s,%d,%d,%d,%s,\"%s\",", j->model, j->hosts, j->then, j->local, j->device,
           j->was);
    print_strategy(quick.plan);
    print_strategy(better.plan);
    print_strategy(anew);
    printf("%.2f,%.3f,%.2f,%.2f,%.0f,%.0f,%.5g,%.5g,%.5g,", ms[0], ms[1], ms[2], ms[3],
           better_ms, anew_ms, quick_s, better.step_s, anew_s);
    if (anew_s > 0) printf("%.3f,%.3f", quick_s / anew_s, better.step_s / anew_s);
    if (!(anew_s > 0)) printf(",");
    printf("\n");
    fflush(stdout);
    weft_plan_destroy(anew);
    weft_plan_destroy(was);
    weft_replan_answer_fini(&quick);
    weft_replan_answer_fini(&better);
    weft_cluster_destroy(c);
    weft_training_fini(&t);
}

int main(int argc, char **argv)
{
    printf("model,hosts_before,hosts_after,ranks_per_host,device,was,quick,better,anew,"
           "quick_ms,hit_ms,longest_ms,late_ms,better_ms,anew_ms,quick_step_s,better_"
           "step_s,anew_step_s,"
           "quick_ratio,better_ratio\n");
    for (size_t k = 0; k < WEFT_COUNT(jobs); k++)
        if (argc < 2 || atoi(argv[1]) == (int)k) run_job(&jobs[k]);
    return 0;
}
