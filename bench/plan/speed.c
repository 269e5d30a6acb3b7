/* How fast plans are found, by the thread's processor time (the model and the cluster are there
 * already).
 *
 *     build/bench_plan_speed */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"
#include "search/search.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct sizes {
    const char *name;
    int         layers, hidden, heads, seq, batch;
} sizes;

static weft_status search(const char *what, const weft_cluster *k, const sizes *z,
                          const char *engine, bool exhaustive, double *step_s)
{
    weft_arena          *a = NULL;
    weft_cost_constants *c = NULL;
    weft_search_machines m;
    weft_search_result  *r  = NULL;
    weft_search_limits   l  = weft_search_limits_of(engine);
    weft_status          st = WEFT_OK;
    weft_config          x;
    double               begin = now(), best = INFINITY;
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(weft_cost_constants_create(&c));
    WEFT_GO(weft_search_machines_of(k, c, a, &m));
    weft_engine_open(&x);
    x.id           = z->name;
    x.family       = "gpt";
    x.attn         = "full";
    x.layers       = z->layers;
    x.hidden       = z->hidden;
    x.heads        = z->heads;
    x.seq          = z->seq;
    x.global_batch = z->batch;
    x.precision    = "bf16";
    x.framework    = engine;
    x.tp = x.pp = x.cp = 1;
    x.n_node           = 1;
    WEFT_GO(weft_config_complete("bench", &x));
    for (int i = 0; i < (exhaustive ? 1 : 3) && (i == 0 || best < 1); i++) {
        weft_search_problem p = {
            .machines = &m, .batch = z->batch, .exhaustive = exhaustive};
        weft_search_destroy(r);
        r = NULL;
        weft_search_open(&p.constraints);
        WEFT_GO(weft_search_transformer(&x, c, &l, a, &p.model));
        begin = now();
        WEFT_GO(weft_search_run(&p, &r));
        best = fmin(best, now() - begin);
    }
    weft_text t = {0};
    weft_search_print_choice(&r->choice[0], &t);
    char *cut = strstr(t.s, " stages=");
    if (cut && strlen(cut) > 40) strcpy(cut, " stages uneven");
    printf("%-44s %8.1f ms %9lld points %5.2f million/s  step %.4g s, gap %.2f %%: %s\n",
           what, 1e3 * best, (long long)r->n_scored, (double)r->n_scored / best / 1e6,
           r->choice[0].score.step_s, 100 * r->gap, t.s);
    if (step_s) *step_s = r->choice[0].score.step_s;
    weft_text_fini(&t);
out:
    weft_search_destroy(r);
    weft_cost_constants_destroy(c);
    weft_arena_destroy(a);
    return st;
}

static weft_status on(const char *what, const char *cluster, const char *event,
                      const sizes *z, const char *engine, bool exhaustive)
{
    weft_cluster *k = NULL, *after = NULL;
    weft_status   st = WEFT_OK;
    WEFT_GO(weft_cluster_load(cluster, NULL, &k));
    if (event) WEFT_GO(weft_cluster_change(k, event, &after));
    WEFT_GO(search(what, after ? after : k, z, engine, exhaustive, NULL));
out:
    weft_cluster_destroy(k);
    weft_cluster_destroy(after);
    return st;
}

static weft_status all(void)
{
    static const sizes gpt175 = {"175B", 96, 12288, 96, 2048, 1536},
                       mt530  = {"530B", 105, 20480, 128, 2048, 1920},
                       gpt1t  = {"1T", 128, 25600, 160, 2048, 3072};
    const char *four = "320 x (8 x a100-80g) + 320 x (8 x h100-80g) + 320 x (8 x "
                       "v100-32g) + 320 x (8 x h200-141g)";
    WEFT_TRY(on("175B, 1,024 a100-80g, nothing left out", "128 x (8 x a100-80g)", NULL,
                &gpt175, "megatron", true));
    WEFT_TRY(on("the same, with bounds", "128 x (8 x a100-80g)", NULL, &gpt175,
                "megatron", false));
    WEFT_TRY(on("530B, 5,128 a100-80g, Megatron", "641 x (8 x a100-80g)", NULL, &mt530,
                "megatron", false));
    WEFT_TRY(on("530B, 5,128 a100-80g, all there is", "641 x (8 x a100-80g)", NULL,
                &mt530, "weft", false));
    WEFT_TRY(on("1T, 3,072 a100-80g, Megatron", "384 x (8 x a100-80g)", NULL, &gpt1t,
                "megatron", false));
    WEFT_TRY(on("1T, 3,072 a100-80g, all there is", "384 x (8 x a100-80g)", NULL, &gpt1t,
                "weft", false));
    WEFT_TRY(on("1T after node 100 of 384 is lost", "384 x (8 x a100-80g)",
                "cordon node 100", &gpt1t, "weft", false));
    WEFT_TRY(on("1T after node 100 of 1,250 is lost", "1250 x (8 x h100-80g)",
                "cordon node 100", &gpt1t, "weft", false));
    return on("1T, 10,240 devices of 4 kinds", four, NULL, &gpt1t, "weft", false);
}

int main(void)
{
    if (all() == WEFT_OK) return 0;
    fprintf(stderr, "%s\n", weft_error_text());
    return 1;
}
