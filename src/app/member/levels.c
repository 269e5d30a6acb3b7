#include "member/levels.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    /* Seconds until it is measured: bench/results/views-pause-2026-11-16.csv, fault-scale-pause.csv
     * for small states; larger ones are learnt after the first pause. */
    double pause_s;
} levels[WEFT_N_LEVEL] = {
    [WEFT_LEVEL_RETRY]      = {"retry", 0},
    [WEFT_LEVEL_REPLACE]    = {"replace", 0.2},
    [WEFT_LEVEL_HOST]       = {"replace_host", 0.5},
    [WEFT_LEVEL_SHRINK]     = {"shrink", 0.3},
    [WEFT_LEVEL_WAIT]       = {"wait", 10},
    [WEFT_LEVEL_CHECKPOINT] = {"checkpoint", 1},
    [WEFT_LEVEL_STOP]       = {"stop", 1},
};

static const double DEVICE_MTBF_S = 8000 * 3600.0; /* notes/fault_tolerance.md */

const char *weft_level_name(weft_level l)
{
    return levels[l].name;
}

static int find_level(const char *name, size_t n)
{
    for (int l = 0; l < WEFT_N_LEVEL; l++)
        if (strlen(levels[l].name) == n && !strncmp(levels[l].name, name, n)) return l;
    return -1;
}

weft_status weft_levels_parse(const char *text, unsigned *allowed)
{
    unsigned found = 1u << WEFT_LEVEL_STOP;
    if (!strcmp(text, "on")) {
        *allowed = WEFT_LEVEL_ALL;
        return WEFT_OK;
    }
    for (const char *p = text;;) {
        size_t n = strcspn(p, ",");
        int    l = find_level(p, n);
        if (l < 0)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "recover: '%.*s' is none of: retry, replace, replace_host, "
                             "shrink, wait, checkpoint, stop",
                             (int)(n < 40 ? n : 40), p);
        found |= 1u << l;
        if (!p[n]) break;
        p += n + 1;
    }
    *allowed = found;
    return WEFT_OK;
}

/* ---- what is known ---- */

void weft_level_note_pause(weft_level_history *h, weft_level l, double pause_s)
{
    if (!(pause_s >= 0)) return;
    h->pause_s[l][h->n_pause[l]++ % WEFT_LEVEL_HISTORY] = pause_s;
}

double weft_level_pause(const weft_level_history *h, weft_level l)
{
    int n = h->n_pause[l] < WEFT_LEVEL_HISTORY ? h->n_pause[l] : WEFT_LEVEL_HISTORY;
    if (!n) return levels[l].pause_s;
    for (int k = 0; k < n; k++) { /* the one with half of the others below it */
        int below = 0, equal = 0;
        for (int i = 0; i < n; i++) {
            below += h->pause_s[l][i] < h->pause_s[l][k];
            equal += h->pause_s[l][i] == h->pause_s[l][k];
        }
        if (below <= n / 2 && below + equal > n / 2) return h->pause_s[l][k];
    }
    return levels[l].pause_s;
}

double weft_level_horizon(const weft_level_history *h, double up_s, int n_device,
                          double left_s)
{
    double prior  = DEVICE_MTBF_S / (n_device > 0 ? n_device : 1);
    double mean_s = (prior + (up_s > 0 ? up_s : 0)) / (1 + h->n_failure);
    /* the prior counts as one failure, so that one seen early does not say everything */
    if (h->n_failure > 1 && up_s > 0 && up_s / h->n_failure < mean_s)
        mean_s = up_s / h->n_failure;
    return left_s > 0 && left_s < mean_s ? left_s : mean_s;
}

/* ---- the choice ---- */

static double find_cost(const weft_level_case *c, weft_level l)
{
    const weft_level_option *o      = &c->option[l];
    double                   slower = 0;
    if (o->step_s > 0 && c->best_step_s > 0) slower = o->step_s / c->best_step_s - 1;
    return o->pause_s + o->repeat_s + c->horizon_s * slower;
}

static const char *find_objection(const weft_level_case *c, weft_level l)
{
    if (c->option[l].why_not) return c->option[l].why_not;
    return c->allowed >> l & 1 ? NULL : "recover does not allow it";
}

static void reject(weft_level_choice *out, weft_level l, double cost_s, const char *why)
{
    out->rejected[out->n_rejected++] =
        (weft_level_rejected){.level = l, .cost_s = cost_s, .why_not = why};
}

void weft_level_choose(const weft_level_case *c, weft_level_choice *out)
{
    int best = -1;
    *out     = (weft_level_choice){.level = WEFT_LEVEL_STOP};
    for (int l = 0; l < WEFT_LEVEL_STOP; l++)
        if (!find_objection(c, (weft_level)l) &&
            (best < 0 || find_cost(c, (weft_level)l) < out->cost_s)) {
            best        = l;
            out->cost_s = find_cost(c, (weft_level)l);
        }
    if (best < 0) out->cost_s = find_cost(c, WEFT_LEVEL_STOP);
    out->level = best < 0 ? WEFT_LEVEL_STOP : (weft_level)best;
    for (int l = 0; l < WEFT_N_LEVEL; l++) {
        const char *why    = find_objection(c, (weft_level)l);
        bool        priced = l != WEFT_LEVEL_STOP && !c->option[l].why_not;
        if (l == (int)out->level) continue;
        if (l == WEFT_LEVEL_STOP && !why) why = "something else is possible";
        reject(out, (weft_level)l, priced ? find_cost(c, (weft_level)l) : -1, why);
    }
}
