/* Devices that a plan leaves idle, and why: the best plan of all of them, by the same prices, is no faster, or there is
 * none. */
#include <string.h>

#include "planner/planner_priv.h"

/* Usable devices with the name of kind i, and how many of them the plan has; false: an earlier kind has the name. */
static bool count_kind(const weft_planner_ask *q, const weft_planner_answer *a, int i,
                       const int *device, int n, int *have, int *used)
{
    const char *name = a->machines.kind[i].device.name;
    *have = *used = 0;
    for (int k = 0; k < a->machines.n; k++) {
        const weft_search_machine *m = &a->machines.kind[k];
        if (strcmp(m->device.name, name) != 0) continue;
        if (k < i) return false;
        *have += m->n_node * m->per_node;
        for (int p = 0; p < m->n_part; p++) *have += m->part[p];
    }
    for (int r = 0; r < n; r++)
        *used += !strcmp(weft_cluster_device(q->cluster, device[r])->name, name);
    return true;
}

static weft_status put_kinds(const weft_planner_ask *q, const weft_planner_answer *a,
                             weft_text *t)
{
    weft_arena *tmp  = NULL;
    const char *glue = "";
    int        *device, n, have, used;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    WEFT_GO(weft_planner__devices(q, a, &a->tried[0]->choice, a->tried[0]->plain, tmp,
                                  &device, &n));
    for (int i = 0; i < a->machines.n; i++) {
        if (!count_kind(q, a, i, device, n, &have, &used) || used >= have) continue;
        weft_text_add(t, "%s%d x %s", glue, have - used, a->machines.kind[i].device.name);
        glue = ", ";
    }
out:
    weft_arena_destroy(tmp);
    return st;
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

weft_status weft_planner__put_idle(const weft_planner_ask    *q,
                                   const weft_planner_answer *a, weft_text *t)
{
    const weft_search_choice *win = &a->tried[0]->choice;
    int                       all = a->search->n_device;
    weft_search_problem       p   = a->problem;
    weft_search_result       *r;
    if (weft_search_ranks(win) >= all || q->world > 0) return WEFT_OK;
    WEFT_TRY(put_kinds(q, a, t));
    for (int i = 1; i < a->n_tried; i++) { /* simulated ones come in order */
        const weft_planner_tried *x = a->tried[i];
        if (weft_search_ranks(&x->choice) != all || !(x->step_s > 0)) continue;
        put_all(all, x->step_s, a->step_s, "", &x->choice, t);
        return WEFT_OK;
    }
    p.n_best       = 1;
    p.pins.world   = all;
    weft_status st = weft_search_run(&p, &r);
    if (st == WEFT_ERR_ARG) {
        weft_text_add(
            t, " idle: no tp x cp x dp x pp that goes with batch and pins is %d", all);
        return WEFT_OK;
    }
    if (st == WEFT_ERR_NOFIT) {
        const char *why = weft_error_text();
        weft_text_add(t, " idle: with all %d devices nothing fits: %.*s", all,
                      (int)strcspn(why, ";"), why);
        return WEFT_OK;
    }
    WEFT_TRY(st);
    put_all(all, r->choice[0].score.step_s, win->score.step_s, " by rows", &r->choice[0],
            t);
    weft_search_destroy(r);
    return WEFT_OK;
}
