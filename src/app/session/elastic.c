/* A job whose ranks may become more or fewer (--nnodes or --nproc-per-node MIN:MAX): what its
 * numbers of ranks are, and micro_batch and lanes for all of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/elastic.h"
#include "session/plans_priv.h"

/* From MIN to MAX, in hosts or in ranks of one host. */
typedef struct span {
    int  min, max, local; /* local: ranks of each host */
    bool hosts;
} span;

/* While the job is decided for MAX. */
static span find_span(const weft_session *s)
{
    const weft_generation *g     = s->now;
    int                    local = g->local > 0 ? g->local : g->n_rank;
    if (s->o->min_host > 0 && local > 0)
        return (span){s->o->min_host, (g->n_rank + local - 1) / local, local, true};
    return (span){s->o->min_rank, g->n_rank, g->n_rank, false};
}

bool weft_session__is_elastic(const weft_session *s)
{
    span x = find_span(s);
    return x.min > 0 && x.min < x.max;
}

int weft_session__least_ranks(int min_host, int min_rank, int n_host, const int *count)
{
    int n = 0;
    if (min_host <= 0) return min_rank;
    for (int k = 0; k < n_host && k + 1 < min_host; k++) n += count[k];
    return n + 1; /* one on the last of them */
}

/* All sizes, or where they are many some from MIN to MAX, each so many times the one before. */
static int list_sizes(const span *x, int *size)
{
    int n = 0, all = x->max - x->min + 1, most = WEFT_ELASTIC_MAX_SIZE;
    for (int k = 0; all <= most && k < all; k++) size[n++] = x->min + k;
    for (int k = 0; all > most && k < most; k++) {
        double part = (double)k / (most - 1);
        int    at   = (int)(x->min * pow((double)x->max / x->min, part) + 0.5);
        if (!n || at > size[n - 1]) size[n++] = at;
    }
    return n;
}

typedef struct sizes {
    span              of;
    int               n, at[WEFT_ELASTIC_MAX_SIZE];
    int              *count[WEFT_ELASTIC_MAX_SIZE];
    weft_cluster     *machines[WEFT_ELASTIC_MAX_SIZE];
    weft_elastic_size size[WEFT_ELASTIC_MAX_SIZE];
} sizes;

static weft_status open_sizes(const weft_session *s, const weft_job *j, sizes *x)
{
    const span *of = &x->of;
    x->n           = list_sizes(of, x->at);
    for (int i = 0; i < x->n; i++) {
        int n_host  = of->hosts ? x->at[i] : 1;
        x->count[i] = WEFT_ARENA_ARRAY(s->now->arena, int, n_host);
        WEFT_TRY(weft_arena_status(s->now->arena));
        for (int k = 0; k < n_host; k++)
            x->count[i][k] = of->hosts ? of->local : x->at[i];
        WEFT_TRY(weft_session__machines_of(j, n_host, x->count[i], s->now->n_core,
                                           &x->machines[i]));
        x->size[i] =
            (weft_elastic_size){.n_host     = n_host,
                                .host_ranks = x->count[i],
                                .cluster    = x->machines[i],
                                .n_least    = weft_session__least_ranks(
                                       s->o->min_host, s->o->min_rank, n_host, x->count[i])};
    }
    return WEFT_OK;
}

static void close_sizes(sizes *x)
{
    for (int i = 0; i < x->n; i++) weft_cluster_destroy(x->machines[i]);
}

static void print_choice(const sizes *x, const weft_elastic_answer *a, char *line,
                         size_t size)
{
    weft_text   t    = {0};
    const char *unit = x->of.hosts ? "host" : "rank";
    weft_text_add(&t, "lanes %lld and micro_batch %lld, which stay, for %d to %d %ss:",
                  (long long)a->lanes, (long long)a->micro_batch, x->of.min, x->of.max,
                  unit);
    for (int i = 0; i < x->n; i++) {
        weft_text_add(&t, "%s with %d ", i ? "," : "", x->at[i]);
        if (isinf(a->step_s[i]))
            weft_text_add(&t, "nothing fits");
        else
            weft_text_add(&t, "%.3g s", a->step_s[i]);
    }
    snprintf(line, size, "%s a step, by fast estimates", t.s ? t.s : "");
    weft_text_fini(&t);
}

static void take_choice(const weft_elastic_answer *a, weft_job *j)
{
    j->micro_batch       = a->micro_batch;
    j->lanes             = a->lanes;
    j->given_micro_batch = j->given_lanes = true;
    j->strategy.recompute                 = a->recompute;
}

weft_status weft_session__choose_cut(const weft_session *s, weft_job *j, char *line,
                                     size_t size)
{
    weft_training        t    = {0};
    weft_elastic_answer  a    = {0};
    sizes                x    = {.of = find_span(s)};
    weft_status          st   = WEFT_OK;
    weft_job             open = *j; /* priced by one micro-batch of one sequence */
    bool                 cpus = !strstr(j->device, "cuda") && !strstr(j->device, "auto");
    weft_elastic_request q    = {.on_cpus     = cpus,
                                 .micro_batch = j->given_micro_batch ? j->micro_batch : 0,
                                 .lanes       = j->given_lanes ? j->lanes : 0,
                                 .recompute =
                                  j->strategy.recompute ? j->strategy.recompute : -1};
    *line                     = 0;
    if (!weft_session__is_elastic(s) || !weft_job_is_open(j) ||
        !weft_job_is_invariant(j) || (j->given_micro_batch && j->given_lanes))
        return WEFT_OK;
    open.micro_batch = open.lanes = 1;
    weft_compile_spec spec        = weft_job_spec(&open);
    WEFT_GO(weft_compile_training(&spec, &t));
    WEFT_GO(open_sizes(s, j, &x));
    q.training = &t;
    q.n_size   = x.n;
    q.size     = x.size;
    st         = weft_elastic_choose(&q, &a);
    if (st == WEFT_ERR_NOFIT || st == WEFT_ERR_ARG) { /* the planner says why */
        st = WEFT_OK;
        goto out;
    }
    WEFT_GO(st);
    take_choice(&a, j);
    print_choice(&x, &a, line, size);
out:
    close_sizes(&x);
    weft_training_fini(&t);
    return st;
}
