/* The planner for graphs that somebody built: include/weft/plan.h. */
#include "weft/plan.h"

#include <stdlib.h>
#include <string.h>

#include "planner/planner.h"

static weft_status read_constraints(const char *words, weft_arena *a,
                                    weft_search_constraints *p)
{
    char *save = NULL, *copy = weft_arena_strdup(a, words ? words : "");
    if (!copy) return weft_arena_status(a);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        WEFT_TRY(weft_search_constrain(p, w, a));
    return WEFT_OK;
}

static weft_status answer(const weft_planner_request *q, weft_text *words,
                          weft_text *plan)
{
    weft_planner_workspace *w  = NULL, *used;
    weft_planner_answer    *a  = NULL;
    weft_status             st = WEFT_OK;
    WEFT_GO(weft_planner_workspace_create(q, &w));
    WEFT_GO(weft_planner_decide(w, &a));
    WEFT_GO(weft_planner_workspace_for(w, a, &used));
    WEFT_GO(weft_planner_print(used, a, false, words));
    WEFT_GO(weft_plan_print(a->plan, plan));
out:
    weft_planner_destroy(a);
    weft_planner_workspace_destroy(w);
    return st;
}

static void give(weft_text *t, char **out)
{
    if (out)
        *out = t->s;
    else
        weft_text_fini(t);
}

weft_status weft_plan_for(const weft_graph *g, const weft_plan_request *r, char **words,
                          char **plan)
{
    weft_model_source   *source = NULL;
    weft_planner_request q      = {.spec = weft_compile_spec_default(NULL, r->batch, 0)};
    weft_text            t[2]   = {{0}};
    weft_cluster        *c      = NULL;
    weft_arena          *a      = NULL;
    weft_status          st     = WEFT_OK;
    if (!r->cluster || r->batch < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "a plan is for a cluster and a batch from 1");
    WEFT_TRY(weft_arena_create(&a));
    WEFT_GO(weft_cluster_load(r->cluster, NULL, &c));
    WEFT_GO(weft_model_source_of_graph(g, &source));
    q.cluster          = c;
    q.spec.source      = source;
    q.spec.dtype       = r->dtype;
    q.spec.micro_batch = q.spec.lanes = 0;
    q.spec.reduction                  = WEFT_REDUCTION_AUTO;
    if (r->optimizer) q.spec.optimizer.name = r->optimizer;
    weft_search_open(&q.constraints);
    WEFT_GO(read_constraints(r->constraints, a, &q.constraints));
    WEFT_GO(answer(&q, &t[0], &t[1]));
    give(&t[0], words);
    give(&t[1], plan);
    t[0] = t[1] = (weft_text){0};
out:
    weft_text_fini(&t[0]);
    weft_text_fini(&t[1]);
    weft_model_source_destroy(source);
    weft_cluster_destroy(c);
    weft_arena_destroy(a);
    return st;
}
