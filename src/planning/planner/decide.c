/* Search, check, search again while something that is left may be faster, decide.
 *
 * The search knows time and memory by rows, the check by the programs' own steps and slabs.  As
 * many of the best as were asked for are checked.  More are
 *     where one that is faster by rows than the best that holds did not fit: the next search is
 *     told that devices have as much less memory as the closest of these was too large by, and
 *     finds their slimmer sisters, where all that were found are faster by rows than the best
 *     that holds: the next search is asked for twice as many,
 * until what is left is slower by rows, or so many were checked (z->most).  Where the search
 * finds nothing at all, it may have counted too much, and is told of more memory.  Where the best
 * leaves devices idle, the best plan of all devices is checked as well.  Only what was checked is
 * returned. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "estimate/estimate.h"
#include "estimate/hardware.h"
#include "planner/planner_priv.h"
#include "planner/rows.h"

enum {
    MAX_ROUND = 10
};

typedef struct trial {
    double      memory;       /* of what there is, that the search is told of */
    const char *nothing;      /* what the search said when it found nothing that fits */
    int         n_best;       /* candidates that it is asked for */
    int         n_check;      /* of them are checked whatever comes out */
    int         most;         /* that are checked in all, once something fits */
    weft_planner_tried *best; /* that fits */
    weft_plan          *plan;
} trial;

/* ---- candidates ---- */

static bool was_tried(const weft_planner_answer *a, const weft_search_choice *x)
{
    for (int i = 0; i < a->n_tried; i++)
        if (weft_search_same_choice(&a->tried[i]->choice, x)) return true;
    return false;
}

static weft_status add_tried(weft_planner_answer *a, const weft_search_choice *x,
                             weft_planner_tried **out)
{
    size_t n = (size_t)x->point.pp;
    if (a->n_tried == a->cap_tried)
        WEFT_TRY(weft_arena_grow(a->arena, (void **)&a->tried, &a->cap_tried,
                                 a->n_tried + 1, sizeof *a->tried));
    weft_planner_tried *t = WEFT_ARENA_NEW(a->arena, weft_planner_tried);
    if (!t) return weft_arena_status(a->arena);
    *t = (weft_planner_tried){.choice = *x, .end = WEFT_PLANNER_UNTRIED, .why = ""};
    t->choice.point.cut = weft_arena_memdup(a->arena, x->point.cut, n * sizeof(uint16_t));
    t->choice.point.kinds  = weft_arena_memdup(a->arena, x->point.kinds, n);
    t->choice.why          = weft_arena_strdup(a->arena, x->why);
    a->tried[a->n_tried++] = *out = t;
    return weft_arena_status(a->arena);
}

static weft_status try_one(const weft_planner_ask *q, weft_planner_answer *a,
                           const weft_search_choice *found, trial *z)
{
    weft_planner_tried *t;
    weft_plan          *plan;
    weft_search_choice  x = *found;
    int                 gather =
        weft_search_given(&a->problem.constraints, WEFT_KEY_overlap_param_gather);
    if (gather > 0) weft_planner__set_later(&x, gather);
    if (was_tried(a, &x)) return WEFT_OK;
    WEFT_TRY(add_tried(a, &x, &t));
    t->choice.score.mem_limit /= z->memory; /* what there is, not what was told */
    if (x.strategy.overlap_param_gather) t->bucket = weft_planner__bucket(&t->choice);
    WEFT_TRY(weft_planner__check(q, a, t, &plan));
    if (plan && (!z->best || t->step_s < z->best->step_s)) {
        weft_plan_destroy(z->plan);
        z->best      = t;
        z->plan      = plan;
        a->best_slot = a->last_slot;
    } else {
        weft_plan_destroy(plan);
    }
    return WEFT_OK;
}

/* ---- rounds ---- */

/* Devices as the search is told of them. */
static void tell_memory(const weft_planner_answer *a, const weft_search_machines *all,
                        double memory)
{
    weft_search_machines *m = (weft_search_machines *)a->problem.machines;
    for (int i = 0; i < m->n; i++)
        m->kind[i].device.mem_bytes =
            (int64_t)(memory * (double)all->kind[i].device.mem_bytes);
}

/* By rows, nothing that holds is as fast. */
static bool may_win(const trial *z, const weft_search_choice *x)
{
    return !z->best || x->score.step_s < z->best->step_s;
}

/* What to tell the next search; first: of this one's candidates.  *end: nothing is left that may
 * win. */
static void next_round(const weft_planner_answer *a, const weft_search_result *r,
                       int first, trial *z, bool *end)
{
    double close = 0;
    for (int i = first; i < a->n_tried; i++) {
        const weft_planner_tried *t = a->tried[i];
        if (t->end == WEFT_PLANNER_TOO_FULL && may_win(z, &t->choice))
            close = fmax(close, (double)t->mem_limit / (double)t->mem_bytes);
    }
    *end = false;
    if (close > 0)
        z->memory *= close * 0.99 < 0.95 ? close * 0.99 : 0.95;
    else if (!z->best || (r->n == z->n_best && may_win(z, &r->choice[r->n - 1])))
        z->n_best *= 2; /* look further down */
    else
        *end = true;
    if ((first == a->n_tried && z->n_best > 64) || (z->best && a->n_tried >= z->most))
        *end = true;
}

/* Nothing found, by rows: once more with a little more memory than there is, in case they count
 * too much. */
static weft_status find_more(weft_planner_answer *a, trial *z, bool *end)
{
    *end = z->nothing || a->n_tried; /* nothing is slimmer than what was tried */
    if (*end) return WEFT_OK;
    z->nothing = weft_arena_strdup(a->arena, weft_error_text());
    z->memory *= 1.5;
    return weft_arena_status(a->arena);
}

static weft_status look(const weft_planner_ask *q, weft_planner_answer *a, trial *z,
                        bool *end)
{
    weft_search_result *r;
    int                 first = a->n_tried;
    a->problem.n_best         = z->n_best;
    weft_status st            = weft_search_run(&a->problem, &r);
    *end                      = st != WEFT_OK;
    if (st == WEFT_ERR_NOFIT) return find_more(a, z, end);
    WEFT_TRY(st);
    if (a->search) {
        double bound = fmin(a->bound_s, r->bound_s);
        weft_search_destroy(a->search);
        a->bound_s = bound;
    } else {
        a->bound_s = r->bound_s;
    }
    a->search = r;
    for (int i = 0; i < r->n; i++) {
        bool asked = a->n_round == 1 && i < z->n_check;
        if (!asked && (!may_win(z, &r->choice[i]) || (z->best && a->n_tried >= z->most)))
            break; /* the fastest by rows come first */
        WEFT_TRY(try_one(q, a, &r->choice[i], z));
    }
    *end = z->nothing;
    if (!*end) next_round(a, r, first, z, end);
    return WEFT_OK;
}

static weft_status search_and_check(const weft_planner_ask *q, weft_planner_answer *a,
                                    trial *z)
{
    weft_search_machines all = a->machines;
    weft_status          st  = WEFT_OK;
    bool                 end = false;
    while (!end && a->n_round < MAX_ROUND && st == WEFT_OK) {
        tell_memory(a, &all, z->memory);
        a->n_round++;
        st = look(q, a, z, &end);
    }
    tell_memory(a, &all, 1);
    return st;
}

/* ---- all devices ---- */

enum {
    ALL_ROUNDS = 4
};

/* By how much the closest plan of all devices is too large; 0: none was. */
static double closest_of_all(const weft_planner_answer *a)
{
    double close = 0;
    for (int i = 0; i < a->n_tried; i++) {
        const weft_planner_tried *t = a->tried[i];
        if (t->end == WEFT_PLANNER_TOO_FULL &&
            weft_search_ranks(&t->choice) == a->search->n_device)
            close = fmax(close, (double)t->mem_limit / (double)t->mem_bytes);
    }
    return close;
}

static weft_status try_all_once(const weft_planner_ask *q, weft_planner_answer *a,
                                trial *z, bool *end)
{
    weft_search_result *r;
    *end = true;
    WEFT_TRY(weft_planner__search_all(a, a->arena, &r, &a->not_all));
    if (a->not_all) return WEFT_OK;
    weft_status st    = try_one(q, a, &r->choice[0], z);
    double      close = closest_of_all(a);
    *end              = !weft_planner__wants_all(q, a, &z->best->choice) || !(close > 0);
    z->memory *= close > 0 && close * 0.99 < 0.95 ? close * 0.99 : 0.95;
    weft_search_destroy(r);
    return st;
}

/* Where the best leaves devices idle, the best plan of all of them is simulated too; with less
 * memory where it does not fit. */
static weft_status try_all(const weft_planner_ask *q, weft_planner_answer *a, trial *z)
{
    weft_search_machines all = a->machines;
    weft_status          st  = WEFT_OK;
    bool                 end = !weft_planner__wants_all(q, a, &z->best->choice);
    if (end) return WEFT_OK;
    z->memory = 1;
    for (int k = 0; k < ALL_ROUNDS && !end && st == WEFT_OK; k++) {
        tell_memory(a, &all, z->memory);
        st = try_all_once(q, a, z, &end);
    }
    tell_memory(a, &all, 1);
    if (st == WEFT_OK && !a->not_all && weft_planner__wants_all(q, a, &z->best->choice))
        a->not_all = "no plan of all devices that was tried holds";
    return st;
}

/* ---- gathers in the next step ---- */

/* The one that later may help most to be the fastest; NULL: none. */
static const weft_planner_tried *find_later(const weft_planner_answer *a, const trial *z)
{
    const weft_planner_tried *best  = NULL;
    double                    least = WEFT_PLANNER__SHORTER * z->best->step_s;
    for (int i = 0; i < a->n_tried; i++) {
        double hide = weft_planner__may_hide(a, a->tried[i]);
        if (hide <= 0 || a->tried[i]->step_s - hide >= least) continue;
        best  = a->tried[i];
        least = best->step_s - hide;
    }
    return best;
}

/* Rows and search do not know of it, so one is simulated with it where it may matter. */
static weft_status try_later(const weft_planner_ask *q, weft_planner_answer *a, trial *z)
{
    const weft_planner_tried *x = find_later(a, z);
    weft_planner_tried        y, *t;
    weft_plan                *plan;
    if (!x) return WEFT_OK;
    WEFT_TRY(weft_planner__check_later(q, a, x, z->best->step_s, &y, &plan));
    if (!plan) return WEFT_OK;
    weft_plan_destroy(z->plan);
    z->plan      = plan;
    a->best_slot = a->last_slot;
    WEFT_TRY(add_tried(a, &y.choice, &t));
    y.choice = t->choice;
    *t       = y;
    z->best  = t;
    return WEFT_OK;
}

/* ---- the answer ---- */

static int rank_of(const weft_planner_tried *t)
{
    return t->end == WEFT_PLANNER_FITS ? 0 : t->end == WEFT_PLANNER_TOO_FULL ? 1 : 2;
}

static int by_outcome(const void *a, const void *b)
{
    const weft_planner_tried *x = *(weft_planner_tried *const *)a,
                             *y = *(weft_planner_tried *const *)b;
    if (rank_of(x) != rank_of(y)) return rank_of(x) - rank_of(y);
    if (x->step_s != y->step_s) return x->step_s < y->step_s ? -1 : 1;
    return x->number - y->number;
}

static weft_status tell_others(weft_planner_answer *a)
{
    weft_plan_predicted *p    = &a->plan->predicted;
    weft_text            t    = {0};
    weft_arena          *into = a->plan->arena;
    p->other                  = WEFT_ARENA_ARRAY(into, const char *, a->n_tried);
    WEFT_TRY(weft_arena_status(into));
    for (int i = 1; i < a->n_tried; i++) {
        t.n = 0;
        weft_search_print_choice(&a->tried[i]->choice, &t);
        weft_text_add(&t, ": %s", a->tried[i]->why);
        p->other[p->n_other++] = weft_arena_strdup(into, t.s ? t.s : "");
    }
    weft_status st = weft_text_status(&t);
    weft_text_fini(&t);
    return st == WEFT_OK ? weft_arena_status(into) : st;
}

/* The search's answer in our order and words: those that hold. */
static weft_status retell(weft_planner_answer *a)
{
    weft_search_result *r = a->search;
    r->n                  = 0;
    r->choice             = WEFT_ARENA_ARRAY(r->arena, weft_search_choice, a->n_tried);
    WEFT_TRY(weft_arena_status(r->arena));
    for (int i = 0; i < a->n_tried; i++) {
        if (a->tried[i]->end != WEFT_PLANNER_FITS) continue;
        r->choice[r->n]       = a->tried[i]->choice;
        r->choice[r->n++].why = a->tried[i]->why;
    }
    r->bound_s = fmin(a->bound_s, r->choice[0].score.step_s);
    r->gap     = r->bound_s > 0 ? r->choice[0].score.step_s / r->bound_s - 1 : 0;
    return WEFT_OK;
}

static weft_status conclude(weft_planner_answer *a, trial *z)
{
    a->plan    = z->plan;
    a->checked = true;
    z->plan    = NULL;
    for (int i = 0; i < a->n_tried; i++) a->tried[i]->number = i;
    qsort(a->tried, (size_t)a->n_tried, sizeof *a->tried, by_outcome);
    for (int i = 1; i < a->n_tried; i++)
        WEFT_TRY(weft_planner__why(a, a->tried[0], a->tried[i]));
    a->step_s = a->tried[0]->step_s;
    weft_estimate_interval(&a->problem.model.shape.engine, a->step_s, a->machines.known,
                           0, &a->lo, &a->hi);
    a->plan->predicted.step_lo = a->lo;
    a->plan->predicted.step_hi = a->hi;
    /* The bound is by fast estimates, which know no overlapped gathers and are off by a little:
     * one that the simulated step refutes is none. */
    if (a->bound_s > a->step_s) a->bound_s = 0;
    a->plan->predicted.bound_s = a->bound_s;
    WEFT_TRY(retell(a));
    return tell_others(a);
}

/* The search's word, for other engines and for those in a hurry. */
static weft_status take_word(const weft_planner_ask *q, weft_planner_answer *a)
{
    weft_training       training = {0};
    weft_planner_tried *t;
    WEFT_TRY(weft_search_run(&a->problem, &a->search));
    for (int i = 0; i < a->search->n; i++) {
        WEFT_TRY(add_tried(a, &a->search->choice[i], &t));
        t->why = t->choice.why;
    }
    const weft_search_choice *x = &a->tried[0]->choice;
    a->bound_s                  = a->search->bound_s;
    a->step_s                   = x->score.step_s;
    a->lo                       = x->lo;
    a->hi                       = x->hi;
    if (!q->with_plan) return WEFT_OK;
    weft_status st = weft_planner__make(q, a, x, &training, &a->plan);
    weft_planner__keep_training(a, &training);
    a->best_slot = a->last_slot;
    WEFT_TRY(st);
    WEFT_TRY(weft_planner_name_machines(q->cluster, a->plan->arena, &a->plan->machines));
    a->plan->machines.n_device = 0;
    a->plan->predicted.step_s  = a->step_s;
    a->plan->predicted.step_lo = a->lo;
    a->plan->predicted.step_hi = a->hi;
    if (a->is_rows) a->plan->predicted.bound_s = a->bound_s; /* of programs, or none */
    return tell_others(a);
}

static weft_status decide(const weft_planner_ask *q, weft_planner_answer *a)
{
    trial       z = {.memory = 1};
    weft_status st;
    WEFT_TRY(weft_planner__open(q, a));
    z.n_best = z.n_check = a->problem.n_best;
    z.most               = 3 * z.n_check;
    if (q->fast || !weft_planner__is_ours(q)) return take_word(q, a);
    st = search_and_check(q, a, &z);
    if (st == WEFT_OK && z.best) st = try_all(q, a, &z);
    if (st == WEFT_OK && z.best) st = try_later(q, a, &z);
    if (st == WEFT_OK && !z.best)
        st = z.nothing ? WEFT_FAIL(WEFT_ERR_NOFIT, "%s", z.nothing)
                       : weft_planner__nofit(a);
    if (st == WEFT_OK) st = conclude(a, &z);
    weft_plan_destroy(z.plan);
    return st;
}

static weft_status decide_with(const weft_planner_ask *q, weft_reduction reduction,
                               weft_planner_answer **out)
{
    weft_arena *arena = NULL;
    WEFT_TRY(weft_arena_create(&arena));
    weft_planner_answer *a = WEFT_ARENA_NEW(arena, weft_planner_answer);
    if (!a) {
        weft_arena_destroy(arena);
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory to plan in");
    }
    a->arena       = arena;
    a->reduction   = reduction;
    weft_status st = decide(q, a);
    if (st == WEFT_OK)
        *out = a;
    else
        weft_planner_destroy(a);
    return st;
}

weft_status weft_planner_decide(const weft_planner_ask *q, weft_planner_answer **out)
{
    bool        open = q->spec.reduction == WEFT_REDUCTION_AUTO;
    weft_status st   = decide_with(q, weft_compile_reduction(&q->spec), out);
    if (st != WEFT_ERR_NOFIT || !open || q->world == 1 || !weft_planner__is_ours(q))
        return st;
    WEFT_TRY(decide_with(q, WEFT_REDUCTION_FIXED, out));
    (*out)->fixed_to_fit = true;
    return WEFT_OK;
}

int weft_planner_missing_micro(const weft_planner_answer *a)
{
    const weft_cost_point *p = &a->tried[0]->choice.point;
    return p->pp > p->n_micro ? p->pp - p->n_micro : 0;
}

void weft_planner_destroy(weft_planner_answer *a)
{
    if (!a) return;
    weft_plan_destroy(a->plan);
    for (int i = 0; i < 2; i++) weft_training_fini(&a->training[i]);
    weft_search_destroy(a->search);
    if (a->is_rows) weft_planner_rows_fini(&a->problem.model);
    weft_cluster_destroy(a->own_cluster);
    weft_hardware_destroy(a->hardware);
    weft_cost_constants_destroy(a->constants);
    weft_arena_destroy(a->arena);
}
