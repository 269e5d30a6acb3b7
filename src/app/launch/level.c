#include "launch/level.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double SLOW_WORTH = 1.1; /* what is gained at least, in steps */

weft_status weft_launch_levels_init(weft_launch_levels *v, const char *text, int n,
                                    double now_s)
{
    *v = (weft_launch_levels){.n = n, .begun_s = now_s, .allowed = WEFT_LEVEL_ALL};
    if (text) WEFT_TRY(weft_levels_parse(text, &v->allowed));
    v->step_s = calloc((size_t)n + 1, sizeof *v->step_s);
    v->ratio  = calloc((size_t)n + 1, sizeof *v->ratio);
    v->move_s = calloc((size_t)n + 1, sizeof *v->move_s);
    return v->step_s && v->ratio && v->move_s ? WEFT_OK
                                              : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

void weft_launch_levels_fini(weft_launch_levels *v)
{
    free(v->step_s);
    free(v->ratio);
    free(v->move_s);
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

void weft_launch_levels_note_predicted(weft_launch_levels *v, int n_now, const char *text)
{
    v->n_now = n_now;
    memset(v->ratio, 0, sizeof *v->ratio * ((size_t)v->n + 1));
    memset(v->move_s, 0, sizeof *v->move_s * ((size_t)v->n + 1));
    for (const char *p = text; *p;) {
        char  *end;
        long   n      = strtol(p, &end, 10);
        double ratio  = *end == ':' ? strtod(end + 1, &end) : 0;
        double move_s = *end == ':' ? strtod(end + 1, &end) : 0;
        if (n > 0 && n <= v->n && ratio > 0 && ratio < 1e6) {
            v->ratio[n]  = ratio;
            v->move_s[n] = move_s > 0 && move_s < 1e6 ? move_s : 0;
        }
        p = end + strcspn(end, " ");
        p += strspn(p, " ");
    }
}

/* Of n ranks: measured, predicted, or in proportion to the ranks that there are. */
static double find_step(const weft_launch_levels *v, int n, int now)
{
    if (now > v->n) return (double)now / n; /* of several hosts */
    if (v->step_s[n] > 0) return v->step_s[n];
    if (n != now && now == v->n_now && v->ratio[n] > 0)
        return v->ratio[n] * (v->step_s[now] > 0 ? v->step_s[now] : 1);
    return v->step_s[now] > 0 ? v->step_s[now] * now / n : (double)now / n;
}

/* From now to one rank less: as it took, else a usual time and what is predicted of the move. */
static double find_shrink_pause(const weft_launch_levels *v, int now)
{
    double pause_s = weft_level_pause(&v->history, WEFT_LEVEL_SHRINK);
    bool   known   = now > 1 && now <= v->n && now == v->n_now;
    if (v->history.n_pause[WEFT_LEVEL_SHRINK] || !known) return pause_s;
    return pause_s + v->move_s[now - 1];
}

static const char *object_to_shrink(const weft_launch_loss *loss)
{
    if (loss->of_host && loss->n_rank <= loss->min_rank)
        return "fewer hosts than MIN would be left";
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
    if (!loss->other_bits) {
        c.option[WEFT_LEVEL_RETRY].why_not = "its process is gone";
        c.option[WEFT_LEVEL_WAIT].why_not  = "its process does not come back";
    } else {
        /* the step is done; what is left to decide is whether the machine stays */
        c.option[WEFT_LEVEL_RETRY].why_not   = "its hardware is in doubt";
        c.option[WEFT_LEVEL_WAIT].why_not    = "nothing is waited for";
        c.option[WEFT_LEVEL_REPLACE].why_not = "another process has the same hardware";
    }
    c.option[WEFT_LEVEL_HOST].why_not = "its host is there";
    /* ranks find out which state is left, and go back where one part has no holder */
    c.option[WEFT_LEVEL_CHECKPOINT].why_not = "only where no rank holds the state";
    if (loss->too_often)
        c.option[WEFT_LEVEL_REPLACE].why_not = "its slot was lost too often";
    c.option[WEFT_LEVEL_SHRINK].why_not = object_to_shrink(loss);
    if (loss->is_resizing && !loss->too_often)
        c.option[WEFT_LEVEL_SHRINK].why_not = "the number of ranks is about to change";
    if (loss->is_stopping)
        c.option[WEFT_LEVEL_SHRINK].why_not = "the job is about to stop";
    c.option[WEFT_LEVEL_SHRINK].pause_s = find_shrink_pause(v, n);
    if (n > 1) c.option[WEFT_LEVEL_SHRINK].step_s = find_step(v, n - 1, n);
    weft_level_choose(&c, out);
}

bool weft_launch_slow_parse(const char *text, weft_launch_slow *out, const char **what)
{
    weft_launch_slow x = {0};
    int              n = 0;
    if (sscanf(text, "%d %d %lf %lf %lf %n", &x.rank, &x.n_rank, &x.without, &x.fewer,
               &x.left_s, &n) != 5 ||
        !n || x.rank < 0 || x.n_rank < 1 || !(x.without > 0 && x.without <= 1) ||
        !(x.fewer > 0 && x.fewer < 1e6) || !(x.left_s >= 0 && x.left_s < 1e12))
        return false;
    *out  = x;
    *what = text + n;
    return true;
}

/* Of n - 1 ranks to those of n: measured or predicted; 0: neither. */
static double find_fewer(const weft_launch_levels *v, int n)
{
    if (n < 2 || n > v->n) return 0;
    if (v->step_s[n] > 0 && v->step_s[n - 1] > 0) return v->step_s[n - 1] / v->step_s[n];
    return v->n_now == n ? v->ratio[n - 1] : 0;
}

void weft_launch_levels_choose_slow(weft_launch_levels *v, const weft_launch_slow *slow,
                                    const weft_launch_loss *loss, weft_level_choice *out)
{
    double          known = loss->of_host ? 0 : find_fewer(v, loss->n_rank);
    double          fewer = slow->without * (known > 0 ? known : slow->fewer);
    weft_level_case c     = {.best_step_s = slow->without,
                             .allowed     = v->allowed | 1u << WEFT_LEVEL_RETRY};
    /* left_s is not 0, which would mean that it is not known */
    c.horizon_s = weft_level_horizon(&v->history, loss->now_s - v->begun_s, loss->n_rank,
                                     slow->left_s > 0 ? slow->left_s : 1e-3);
    c.option[WEFT_LEVEL_RETRY].step_s       = 1;
    c.option[WEFT_LEVEL_REPLACE].why_not    = "another process has the same hardware";
    c.option[WEFT_LEVEL_HOST].why_not       = "its host is there";
    c.option[WEFT_LEVEL_WAIT].why_not       = "nothing is waited for";
    c.option[WEFT_LEVEL_CHECKPOINT].why_not = "no state is lost";
    c.option[WEFT_LEVEL_SHRINK].pause_s     = find_shrink_pause(v, loss->n_rank);
    c.option[WEFT_LEVEL_SHRINK].step_s      = fewer;
    c.option[WEFT_LEVEL_SHRINK].why_not     = object_to_shrink(loss);
    if (loss->is_stopping)
        c.option[WEFT_LEVEL_SHRINK].why_not = "the job is about to stop";
    else if (!c.option[WEFT_LEVEL_SHRINK].why_not && fewer * SLOW_WORTH > 1)
        c.option[WEFT_LEVEL_SHRINK].why_not = "it would save less than 10 % of a step";
    weft_level_choose(&c, out);
}

void weft_launch_levels_choose_host(weft_launch_levels          *v,
                                    const weft_launch_host_loss *loss, double now_s,
                                    weft_level_choice *out)
{
    int  left = loss->n_host - loss->n_lost;
    bool less = left + loss->n_joined < loss->min_host;
    bool few  = less || left + loss->n_joined < loss->least;
    /* hosts may join at any time: one that waits takes the place of a lost one */
    weft_level_case c = {.best_step_s = 1, .allowed = v->allowed | 1u << WEFT_LEVEL_HOST};
    v->history.n_failure++;
    c.horizon_s = weft_level_horizon(&v->history, now_s - v->begun_s, loss->n_host,
                                     0 /* not known */);
    for (int l = 0; l < WEFT_N_LEVEL; l++)
        c.option[l].pause_s = weft_level_pause(&v->history, (weft_level)l);
    c.option[WEFT_LEVEL_RETRY].why_not      = "its host is gone";
    c.option[WEFT_LEVEL_REPLACE].why_not    = "the memory of its host is gone";
    c.option[WEFT_LEVEL_CHECKPOINT].why_not = "only where no rank holds the state";
    if (less) c.option[WEFT_LEVEL_SHRINK].why_not = "fewer than MIN hosts are left";
    if (few)
        c.option[WEFT_LEVEL_HOST].why_not = "too few hosts wait";
    else if (!loss->n_joined)
        c.option[WEFT_LEVEL_HOST].why_not = "no host waits";
    /* until a host is there: it is not known when */
    if (!few) c.option[WEFT_LEVEL_WAIT].why_not = "the others can go on meanwhile";
    if (left > 0) c.option[WEFT_LEVEL_SHRINK].step_s = (double)loss->n_host / left;
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
        weft_text_put_string_member(t, "why", r->why_not ? r->why_not : "it costs more");
        weft_text_add(t, "}");
    }
    weft_text_add(t, "]");
}
