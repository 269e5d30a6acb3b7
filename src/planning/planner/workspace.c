/* The workspace of a request: made once, used by one thread at a time; steps on parts of its
 * cluster. */
#include <stdlib.h>
#include <string.h>

#include "estimate/hardware.h"
#include "planner/planner_priv.h"
#include "planner/rows.h"

static void fini(weft_planner_workspace *w)
{
    weft_planner_workspace_destroy(w->fixed);
    weft_planner_workspace_destroy(w->offload);
    weft_planner__free_trainings(w, 0);
    weft_cluster_destroy(w->priced);
    if (!w->borrows) {
        if (w->is_rows) weft_planner_rows_fini(&w->problem.model);
        weft_hardware_destroy(w->hardware);
        weft_cost_constants_destroy(w->constants);
    }
    weft_arena_destroy(w->arena);
}

/* auto becomes fixed where the devices ask for it; else it stays open. */
static void resolve_reduction(weft_planner_workspace *w)
{
    weft_planner_request *q = &w->request;
    weft_device_run       r;
    int                   at = 0, n_cpu = 0, n_gpu = 0;
    if (q->spec.reduction != WEFT_REDUCTION_AUTO || q->on_cpus || q->world == 1 ||
        !weft_planner__is_ours(w))
        return;
    while (weft_cluster_next_run(q->cluster, &at, &r)) {
        bool cpu    = weft_cluster_is_cpu(r.device);
        bool shared = !cpu && r.node->n_oversubscription > 0; /* one GPU of many ranks */
        *(cpu ? &n_cpu : &n_gpu) += r.cordoned ? 0 : shared ? 1 : r.n;
    }
    if (weft_reduction_on(q->spec.reduction, n_cpu, n_gpu) != WEFT_REDUCTION_FIXED)
        return;
    q->spec.reduction   = WEFT_REDUCTION_FIXED;
    w->fixed_on_devices = true;
}

/* Programs are lowered as jobs on these devices lower them (weft_job_spec). */
static void set_rows(weft_planner_workspace *w)
{
    if (weft_cluster_is_cuda(w->request.cluster) && weft_planner__is_ours(w) &&
        !w->request.on_cpus)
        weft_compile_for_cuda(&w->request.spec);
}

/* The constraint is the spec's. */
static weft_status resolve_offload(weft_planner_workspace *w)
{
    weft_planner_request *q     = &w->request;
    int                   given = weft_search_given(&q->constraints, WEFT_KEY_offload);
    if (given >= 0) q->spec.offload = (weft_strategy_offload)given;
    if (!q->spec.offload) return WEFT_OK;
    if (!weft_planner__is_ours(w))
        return WEFT_FAIL(WEFT_ERR_ARG, "offload=optimizer: only plans of our own engine "
                                       "have it, not those of another one");
    if (q->on_cpus || !weft_cluster_is_cuda(q->cluster))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "offload=optimizer takes states from GPUs' memory "
                         "to the host's, and the cluster has other devices");
    return WEFT_OK;
}

static weft_status check_copies(const weft_planner_workspace *w)
{
    int n = weft_search_given(&w->request.constraints, WEFT_KEY_copies);
    if (n < 2 || weft_planner__is_ours(w)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "copies=%d: only plans of our own engine have them, "
                     "not those of another one",
                     n);
}

weft_status weft_planner_workspace_create(const weft_planner_request *q,
                                          weft_planner_workspace    **out)
{
    weft_planner_workspace *w = calloc(1, sizeof *w);
    if (!w) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to plan in");
    w->request = *q;
    resolve_reduction(w);
    set_rows(w);
    weft_status st = weft_arena_create(&w->arena);
    if (st == WEFT_OK) st = resolve_offload(w);
    if (st == WEFT_OK) st = check_copies(w);
    if (st == WEFT_OK) st = weft_planner__open(w);
    if (st == WEFT_OK)
        *out = w;
    else
        weft_planner_workspace_destroy(w);
    return st;
}

void weft_planner_workspace_destroy(weft_planner_workspace *w)
{
    if (!w) return;
    fini(w);
    free(w);
}

weft_status weft_planner_plan(const weft_planner_request *q, weft_planner_answer **out)
{
    weft_planner_workspace *w;
    WEFT_TRY(weft_planner_workspace_create(q, &w));
    weft_status st = weft_planner_decide(w, out);
    weft_planner_workspace_destroy(w);
    return st;
}

weft_status weft_planner__open_fixed(weft_planner_workspace *w)
{
    weft_planner_request q = w->request;
    q.spec.reduction       = WEFT_REDUCTION_FIXED;
    return w->fixed ? WEFT_OK : weft_planner_workspace_create(&q, &w->fixed);
}

bool weft_planner__may_offload(const weft_planner_workspace *w)
{
    const weft_planner_request *q = &w->request;
    return weft_planner__is_ours(w) && !q->on_cpus && weft_cluster_is_cuda(q->cluster) &&
           !q->spec.offload && weft_search_given(&q->constraints, WEFT_KEY_offload) < 0 &&
           (!q->spec.optimizer.name || strcmp(q->spec.optimizer.name, "lamb") != 0);
}

weft_status weft_planner__open_offload(weft_planner_workspace *w)
{
    weft_planner_request q = w->request;
    q.spec.offload         = WEFT_OFFLOAD_OPTIMIZER;
    return w->offload ? WEFT_OK : weft_planner_workspace_create(&q, &w->offload);
}

weft_status weft_planner_workspace_for(weft_planner_workspace    *w,
                                       const weft_planner_answer *a,
                                       weft_planner_workspace   **out)
{
    if (a->offload_to_fit) {
        WEFT_TRY(weft_planner__open_offload(w));
        w = w->offload;
    }
    if (a->fixed_to_fit) WEFT_TRY(weft_planner__open_fixed(w));
    *out = a->fixed_to_fit ? w->fixed : w;
    return WEFT_OK;
}

/* ---- what it is about ---- */

const weft_search_problem *weft_planner_problem(const weft_planner_workspace *w)
{
    return &w->problem;
}

const weft_config *weft_planner_config(const weft_planner_workspace *w)
{
    return &w->config;
}

const weft_cost_constants *weft_planner_constants(const weft_planner_workspace *w)
{
    return w->constants;
}

double weft_planner_flops(const weft_planner_workspace *w)
{
    return w->flops;
}

bool weft_planner_is_rows(const weft_planner_workspace *w)
{
    return w->is_rows;
}

/* ---- steps on a part of the cluster ---- */

/* The first n devices that may be used, as a cluster of their own. */
static weft_status pick_first(const weft_cluster *c, int n, weft_cluster **out)
{
    weft_device_run r;
    int             at = 0, have = 0;
    int            *device = calloc((size_t)n, sizeof *device);
    if (!device) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d devices", n);
    while (have < n && weft_cluster_next_run(c, &at, &r))
        for (int i = 0; i < r.n && have < n && !r.cordoned; i++)
            device[have++] = r.first + i;
    weft_status st = weft_cluster_pick(c, device, n, out);
    free(device);
    return st;
}

static weft_status find_step(weft_planner_workspace *w, int n, double *step_s)
{
    weft_planner_workspace *part = calloc(1, sizeof *part);
    weft_planner_answer    *a    = NULL;
    weft_cluster           *c    = NULL;
    weft_status             st   = WEFT_OK;
    if (!part) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to plan in");
    WEFT_GO(weft_arena_create(&part->arena));
    WEFT_GO(pick_first(w->request.cluster, n, &c));
    WEFT_GO(weft_planner__open_part(w, c, part));
    part->seconds_only = true;
    WEFT_GO(weft_planner_decide(part, &a));
    *step_s = a->step_s;
out:
    weft_planner_destroy(a);
    part->borrows = true;
    weft_planner_workspace_destroy(part);
    weft_cluster_destroy(c);
    return st;
}

weft_status weft_planner_step_time(weft_planner_workspace *w, int n_device,
                                   double *seconds)
{
    int    most   = weft_cluster_usable(w->request.cluster);
    double step_s = 0;
    if (n_device < 1 || n_device > most)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d devices: the cluster has 1 to %d", n_device,
                         most);
    for (const weft_planner__point *p = w->points; p; p = p->next)
        if (p->n_device == n_device) {
            *seconds = p->step_s;
            return WEFT_OK;
        }
    WEFT_TRY(find_step(w, n_device, &step_s));
    weft_planner__point *p = WEFT_ARENA_NEW(w->arena, weft_planner__point);
    if (!p) return weft_arena_status(w->arena);
    *p        = (weft_planner__point){n_device, step_s, w->points};
    w->points = p;
    *seconds  = step_s;
    return WEFT_OK;
}
