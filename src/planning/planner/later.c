/* Parameters that the next step gathers (overlap_param_gather): rows do not price them,
 * simulation does.
 *
 * A candidate whose replicas are on several hosts and wait for each other is simulated with
 * zero=1 or 2 and overlap_param_gather too, sums in buckets overlapped with the backward pass; and
 * with such buckets alone, which is what a run between hosts does anyway.  Only what is shorter
 * than both counts. */
#include <math.h>
#include <string.h>

#include "planner/planner_priv.h"

enum {
    N_BUCKET  = 24,  /* of a small model, at least */
    FEW       = 8,   /* ranks, all of which are looked at */
    MOST_RANK = 256, /* checks of more take too long */
    ALL       = 100, /* percent: fewest bytes where parameters are gathered in 16 bits */
    MOST      = 66   /* where they have 32, both passes hide as much as they can */
};

int64_t weft_planner__bucket(const weft_planner_workspace *w, const weft_search_choice *x)
{
    double one = x->score.weight_bytes / N_BUCKET;
    if (w->request.bucket_bytes > 0) return w->request.bucket_bytes;
    return one < 1 ? 1 : one < WEFT_PLAN_BUCKET ? (int64_t)one : WEFT_PLAN_BUCKET;
}

/* The strategy of a choice and what cost scores agree. */
static void set_zero(weft_search_choice *x, int zero)
{
    x->strategy.zero = x->point.zero = zero;
}

void weft_planner__set_later(weft_search_choice *x, int n)
{
    if (x->point.dp / x->variant.ep < 2) return; /* nobody to gather from */
    x->strategy.overlap_param_gather = n;
    if (!x->point.zero) set_zero(x, 1);
}

void weft_planner__set_copies(const weft_planner_workspace *w, weft_search_choice *x)
{
    int n = weft_search_given(&w->problem.constraints, WEFT_KEY_copies);
    if (n > 0) x->strategy.copies = n;
}

static bool is_half(const weft_planner_workspace *w)
{
    return strcmp(w->config.precision, "fp32") != 0;
}

/* Are there ranks on more than one host? */
static bool on_hosts(const weft_planner_workspace *w, const weft_search_choice *x)
{
    int most = 0;
    for (int i = 0; i < w->machines.n; i++)
        if (w->machines.kind[i].per_node > most) most = w->machines.kind[i].per_node;
    return weft_search_ranks(x) > most;
}

double weft_planner__may_hide(const weft_planner_workspace *w,
                              const weft_planner_tried     *x)
{
    const weft_search_choice      *c   = &x->choice;
    const weft_search_constraints *pin = &w->problem.constraints;
    if (x->end != WEFT_PLANNER_FITS ||
        weft_search_given(pin, WEFT_KEY_overlap_param_gather) >= 0 ||
        weft_search_given(pin, WEFT_KEY_zero) == 0)
        return 0;
    if (c->point.dp / c->variant.ep < 2 || c->point.zero > 2) return 0;
    if (!weft_search_has_copies(pin, c->point.dp / c->variant.ep, 1, 1)) return 0;
    if (weft_search_ranks(c) > MOST_RANK || !on_hosts(w, c)) return 0;
    /* the first forward and the last backward pass are all that there is to hide behind */
    double room = x->time.compute_s / c->point.n_micro + x->time.idle_s;
    double hide = fmin(c->score.dp_s, room);
    return hide < 0.03 * x->step_s ? 0 : hide;
}

/* x with sums in buckets, and with these values of zero and overlap_param_gather; *out is the
 * caller's. */
static weft_status check_like(weft_planner_workspace *w, const weft_planner_tried *x,
                              int zero, int later, weft_planner__checked **out)
{
    weft_planner_tried y = {.choice = x->choice,
                            .end    = WEFT_PLANNER_UNTRIED,
                            .plain  = x->plain,
                            .quick  = weft_search_ranks(&x->choice) > FEW,
                            .why    = ""};
    set_zero(&y.choice, zero);
    y.bucket = weft_planner__bucket(w, &y.choice);
    if (later) weft_planner__set_later(&y.choice, later);
    return weft_planner__check(w, &y, 1, out);
}

/* The step of x in buckets alone, with what suits them best of zero; 0: it does not fit. */
static weft_status check_buckets(weft_planner_workspace *w, const weft_planner_tried *x,
                                 double *step_s)
{
    bool keep =
        is_half(w) || weft_search_given(&w->problem.constraints, WEFT_KEY_zero) >= 0;
    weft_planner__checked *c;
    WEFT_TRY(check_like(w, x, keep ? x->choice.point.zero : 0, 0, &c));
    *step_s = weft_planner__fits(c) ? c->tried.step_s : 0;
    weft_planner__checked_destroy(c);
    return WEFT_OK;
}

weft_status weft_planner__check_later(weft_planner_workspace   *w,
                                      const weft_planner_tried *x, double than_s,
                                      weft_planner__checked **out)
{
    weft_planner__checked *c;
    weft_status            st = WEFT_OK;
    *out                      = NULL;
    WEFT_TRY(check_like(w, x, x->choice.point.zero, is_half(w) ? ALL : MOST, &c));
    weft_planner_tried *y = &c->tried;
    y->without_s          = x->step_s;
    bool better = weft_planner__fits(c) && y->step_s < WEFT_PLANNER__SHORTER * than_s;
    if (better) st = check_buckets(w, x, &y->buckets_s);
    if (y->buckets_s > 0) than_s = fmin(than_s, y->buckets_s);
    if (better && st == WEFT_OK && y->step_s < WEFT_PLANNER__SHORTER * than_s) {
        *out = c;
        return WEFT_OK;
    }
    weft_planner__checked_destroy(c);
    return st;
}

void weft_planner_print_later(const weft_planner_tried *x, weft_text *t)
{
    if (!x->choice.strategy.overlap_param_gather) return;
    weft_text_add(t,
                  "overlap_param_gather=%g: this fraction of the parameters is gathered "
                  "during the next step's forward pass, sums run in buckets of %.3g MB",
                  x->choice.strategy.overlap_param_gather / 100.0,
                  1e-6 * (double)x->bucket);
    if (x->without_s > 0) weft_text_add(t, "; without, %.4g s a step", x->without_s);
    if (x->buckets_s > 0) weft_text_add(t, ", in buckets alone %.4g", x->buckets_s);
    weft_text_add(t, "\n");
}
