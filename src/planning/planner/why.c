/* In words: why a candidate lost, what is wrong when none fits. */
#include "planner/planner_priv.h"

typedef struct part {
    const char *name;
    double      more; /* than the winner */
} part;

static void slower(const weft_planner_tried *w, const weft_planner_tried *x, weft_text *t)
{
    const part p[]  = {{"compute", x->time.compute_s - w->time.compute_s},
                       {"waiting for sums and gathers", x->time.comm_s - w->time.comm_s},
                       {"of the update", x->time.update_s - w->time.update_s},
                       {"idle", x->time.idle_s - w->time.idle_s}};
    int        most = 0;
    for (int i = 1; i < (int)WEFT_COUNT(p); i++)
        if (p[i].more > p[most].more) most = i;
    weft_text_add(t, "%.1f %% slower in simulation", 100 * (x->step_s / w->step_s - 1));
    if (p[most].more > 0)
        weft_text_add(t, ": %.3g s more %s", p[most].more, p[most].name);
}

static void too_full(const weft_planner_tried *x, weft_text *t)
{
    weft_text_add(t,
                  "does not fit: rank %d needs %.4g GB of %.4g on its %s, %.3g of it %s",
                  x->fullest, 1e-9 * (double)x->mem_bytes, 1e-9 * (double)x->mem_limit,
                  x->device, 1e-9 * (double)x->largest_bytes, x->largest);
}

weft_status weft_planner__why(weft_planner_answer *a, const weft_planner_tried *winner,
                              weft_planner_tried *x)
{
    weft_text t = {0};
    switch (x->end) {
    case WEFT_PLANNER_FITS: slower(winner, x, &t); break;
    case WEFT_PLANNER_TOO_FULL: too_full(x, &t); break;
    case WEFT_PLANNER_NO_PLAN: weft_text_add(&t, "cannot be run: %s", x->why); break;
    case WEFT_PLANNER_UNTRIED: weft_text_add(&t, "%s", x->choice.why); break;
    }
    x->why         = weft_arena_strdup(a->arena, t.s ? t.s : "");
    weft_status st = weft_text_status(&t);
    weft_text_fini(&t);
    return st == WEFT_OK ? weft_arena_status(a->arena) : st;
}

/* ---- nothing fits ---- */

static weft_status say_closest(const weft_planner_workspace *w,
                               const weft_planner_tried     *x)
{
    weft_text t = {0};
    weft_search_print_choice(&x->choice, &t);
    weft_text_add(&t,
                  ", needs %.4g GB of %.4g on rank %d (%s), the largest part %s (%.3g "
                  "GB); it takes "
                  "more devices, devices with %.0f %% more memory",
                  1e-9 * (double)x->mem_bytes, 1e-9 * (double)x->mem_limit, x->fullest,
                  x->device, x->largest, 1e-9 * (double)x->largest_bytes,
                  100 * ((double)x->mem_bytes / (double)x->mem_limit - 1) + 1);
    if (w->problem.constraints.given) weft_text_add(&t, ", fewer constraints");
    weft_text_add(&t, ", shorter sequences or a smaller batch");
    weft_status st =
        WEFT_FAIL(WEFT_ERR_NOFIT, "nothing fits: the closest plan, %s", t.s ? t.s : "?");
    weft_text_fini(&t);
    return st;
}

weft_status weft_planner__nofit(const weft_planner_workspace *w,
                                const weft_planner_answer    *a)
{
    const weft_planner_tried *close = NULL, *odd = NULL;
    double                    least = 0;
    for (int i = 0; i < a->n_tried; i++) {
        const weft_planner_tried *x = a->tried[i];
        if (x->end == WEFT_PLANNER_NO_PLAN && !odd) odd = x;
        if (x->end != WEFT_PLANNER_TOO_FULL) continue;
        double full = (double)x->mem_bytes / (double)x->mem_limit;
        if (!close || full < least) close = x, least = full;
    }
    if (close) return say_closest(w, close);
    if (!odd) return WEFT_FAIL(WEFT_ERR_NOFIT, "nothing fits, whatever the plan");
    weft_text t = {0};
    weft_search_print_choice(&odd->choice, &t);
    weft_status st = WEFT_FAIL(WEFT_ERR_ARG, "no plan can be run: of %s, %s",
                               t.s ? t.s : "?", odd->why);
    weft_text_fini(&t);
    return st;
}
