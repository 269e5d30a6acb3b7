#include "launch/level.h"

#include <stdlib.h>

weft_status weft_launch_levels_init(weft_launch_levels *v, const char *text, int n,
                                    double now_s)
{
    *v = (weft_launch_levels){.n = n, .begun_s = now_s, .allowed = WEFT_LEVEL_ALL};
    if (text) WEFT_TRY(weft_levels_parse(text, &v->allowed));
    v->step_s = calloc((size_t)n + 1, sizeof *v->step_s);
    return v->step_s ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

void weft_launch_levels_fini(weft_launch_levels *v)
{
    free(v->step_s);
    *v = (weft_launch_levels){0};
}

void weft_launch_levels_note_steps(weft_launch_levels *v, int n_rank, int64_t n_step,
                                   double seconds)
{
    if (n_rank < 1 || n_rank > v->n || n_step < 2 || !(seconds > 0)) return;
    double step_s = seconds / (double)n_step;
    /* the fastest: others had faults that were noticed late in them */
    if (v->step_s[n_rank] <= 0 || step_s < v->step_s[n_rank]) v->step_s[n_rank] = step_s;
}

/* Of n ranks: measured, or in proportion to the ranks that there are. */
static double find_step(const weft_launch_levels *v, int n, int now)
{
    if (v->step_s[n] > 0) return v->step_s[n];
    return v->step_s[now] > 0 ? v->step_s[now] * now / n : (double)now / n;
}

static const char *object_to_shrink(const weft_launch_loss *loss)
{
    if (!loss->min_rank) return "the job has a fixed number of ranks";
    if (loss->n_rank <= loss->min_rank) return "the job has as few ranks as it may";
    return NULL;
}

void weft_launch_levels_choose(weft_launch_levels *v, const weft_launch_loss *loss,
                               weft_level_choice *out)
{
    int             n = loss->n_rank;
    weft_level_case c = {.best_step_s = find_step(v, n, n), .allowed = v->allowed};
    v->history.n_failure++;
    c.horizon_s =
        weft_level_horizon(&v->history, loss->now_s - v->begun_s, n, 0 /* not known */);
    for (int l = 0; l < WEFT_N_LEVEL; l++)
        c.option[l].pause_s = weft_level_pause(&v->history, (weft_level)l);
    c.option[WEFT_LEVEL_RETRY].why_not = "its process is gone";
    c.option[WEFT_LEVEL_WAIT].why_not  = "its process does not come back";
    /* ranks find out which state is left, and go back where one part has no holder */
    c.option[WEFT_LEVEL_CHECKPOINT].why_not = "only where no rank holds the state";
    if (loss->too_often)
        c.option[WEFT_LEVEL_REPLACE].why_not = "its slot was lost too often";
    c.option[WEFT_LEVEL_SHRINK].why_not = object_to_shrink(loss);
    if (loss->is_stopping)
        c.option[WEFT_LEVEL_SHRINK].why_not = "the job is about to stop";
    if (n > 1) c.option[WEFT_LEVEL_SHRINK].step_s = find_step(v, n - 1, n);
    weft_level_choose(&c, out);
}

void weft_launch_levels_print(const weft_level_choice *c, weft_text *t)
{
    weft_text_add(t, ", \"rejected\": [");
    for (int k = 0; k < c->n_rejected; k++) {
        const weft_level_rejected *r = &c->rejected[k];
        weft_text_add(t, "%s{\"level\": ", k ? ", " : "");
        weft_text_put_quoted(t, weft_level_name(r->level));
        if (r->cost_s >= 0) weft_text_add(t, ", \"cost_s\": %.3g", r->cost_s);
        weft_text_add(t, ", \"why\": ");
        weft_text_put_quoted(t, r->why_not ? r->why_not : "it costs more");
        weft_text_add(t, "}");
    }
    weft_text_add(t, "]");
}
