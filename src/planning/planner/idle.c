/* Devices that a plan leaves idle, and why: the best plan of all of them, simulated too, is no
 * faster, or there is none. */
#include <string.h>

#include "planner/planner_priv.h"

/* Usable devices with the name of kind i, and how many of them the plan has; false: an earlier
 * kind has the name. */
static bool count_kind(const weft_planner_workspace *w, int i, const int *device, int n,
                       int *have, int *used)
{
    const char *name = w->machines.kind[i].device.name;
    *have = *used = 0;
    for (int k = 0; k < w->machines.n; k++) {
        const weft_search_machine *m = &w->machines.kind[k];
        if (strcmp(m->device.name, name) != 0) continue;
        if (k < i) return false;
        *have += m->n_node * m->per_node;
        for (int p = 0; p < m->n_part; p++) *have += m->part[p];
    }
    for (int r = 0; r < n; r++)
        *used += !strcmp(weft_cluster_device(w->request.cluster, device[r])->name, name);
    return true;
}

static void put_kinds(const weft_planner_workspace *w, const weft_planner_answer *a,
                      weft_text *t)
{
    const weft_placement *p    = &a->placement.p;
    const char           *glue = "";
    int                   have, used;
    for (int i = 0; i < w->machines.n; i++) {
        if (!count_kind(w, i, p->device, p->n_rank, &have, &used) || used >= have)
            continue;
        weft_text_add(t, "%s%d x %s", glue, have - used, w->machines.kind[i].device.name);
        glue = ", ";
    }
}

static void put_all(int all, double step_s, double than_s, const char *how,
                    const weft_search_choice *x, weft_text *t)
{
    weft_text_add(t,
                  " idle: with all %d devices the best step is %.4g s%s, %.2f times as "
                  "long (",
                  all, step_s, how, step_s / than_s);
    weft_search_print_choice(x, t);
    weft_text_add(t, ")");
}

/* ---- the best plan of all devices ---- */

int weft_planner__n_device(const weft_planner_workspace *w)
{
    int n = 0;
    for (int i = 0; i < w->machines.n; i++)
        n += weft_search_usable(&w->machines.kind[i], 1);
    return n;
}

static bool uses_all(const weft_planner_workspace *w, const weft_search_choice *x)
{
    return weft_search_ranks(x) >= weft_planner__n_device(w);
}

weft_status weft_planner__search_all(weft_planner_workspace     *w,
                                     const weft_search_machines *m, weft_arena *arena,
                                     weft_search_result **out, const char **why)
{
    weft_search_problem p   = w->problem;
    int                 all = weft_planner__n_device(w);
    *out                    = NULL;
    *why                    = NULL;
    p.machines              = m;
    p.n_best                = 1;
    p.constraints.world     = all;
    weft_status st          = weft_search_run(&p, out);
    if (st == WEFT_ERR_ARG) {
        *why = weft_arena_printf(
            arena, "no tp x cp x dp x pp that goes with batch and constraints is %d",
            all);
    } else if (st == WEFT_ERR_NOFIT) {
        const char *text = weft_error_text();
        *why = weft_arena_printf(arena, "with all %d devices nothing fits: %.*s", all,
                                 (int)strcspn(text, ";"), text);
    } else {
        return st;
    }
    return weft_arena_status(arena);
}

bool weft_planner__wants_all(const weft_planner_workspace *w,
                             const weft_planner_answer *a, const weft_search_choice *best)
{
    if (uses_all(w, best) || w->request.world > 0 || w->problem.constraints.world > 0)
        return false;
    for (int i = 0; i < a->n_tried; i++)
        if (uses_all(w, &a->tried[i]->choice) && a->tried[i]->step_s > 0) return false;
    return true;
}

/* Where nothing is simulated: by the fast estimate. */
static weft_status put_estimated(weft_planner_workspace *w, const weft_planner_answer *a,
                                 weft_text *t)
{
    weft_search_result *r   = NULL;
    weft_arena         *tmp = NULL;
    const char         *why;
    weft_status         st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    WEFT_GO(weft_planner__search_all(w, &w->machines, tmp, &r, &why));
    if (why)
        weft_text_add(t, " idle: %s", why);
    else
        put_all(weft_planner__n_device(w), r->choice[0].score.step_s,
                a->tried[0]->choice.score.step_s, " by the fast estimate", &r->choice[0],
                t);
out:
    weft_search_destroy(r);
    weft_arena_destroy(tmp);
    return st;
}

weft_status weft_planner__put_idle(weft_planner_workspace    *w,
                                   const weft_planner_answer *a, weft_text *t)
{
    if (uses_all(w, &a->tried[0]->choice) || w->request.world > 0 ||
        w->problem.constraints.world > 0)
        return WEFT_OK;
    put_kinds(w, a, t);
    for (int i = 1; i < a->n_tried && a->checked; i++) { /* the fastest comes first */
        const weft_planner_tried *x = a->tried[i];
        if (!uses_all(w, &x->choice) || !(x->step_s > 0)) continue;
        put_all(weft_planner__n_device(w), x->step_s, a->step_s, "", &x->choice, t);
        return WEFT_OK;
    }
    if (!a->checked) return put_estimated(w, a, t);
    weft_text_add(t, " idle: %s", a->not_all ? a->not_all : "");
    return weft_text_status(t);
}
