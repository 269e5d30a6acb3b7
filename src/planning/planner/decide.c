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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimate/estimate.h"
#include "planner/planner_priv.h"

enum {
    MAX_ROUND = 10
};

typedef struct trial {
    weft_planner_workspace *w;
    weft_planner_answer    *a;
    double                  memory;  /* of what there is, that the search counts with */
    const char             *nothing; /* why the search found nothing that fits */
    int                     n_best;  /* candidates that it is asked for */
    int                     n_check; /* of them are checked whatever comes out */
    int                     most;    /* that are checked in all, once something fits */
    weft_search_result     *found;   /* the last search's */
    weft_planner_tried     *best;    /* that fits, in the answer */
    weft_planner__checked  *made;    /* its plan */
} trial;

/* ---- candidates ---- */

static bool was_tried(const weft_planner_answer *a, const weft_search_choice *x)
{
    for (int i = 0; i < a->n_tried; i++)
        if (weft_search_same_choice(&a->tried[i]->choice, x)) return true;
    return false;
}

/* A copy of x in the answer. */
static weft_status add_tried(weft_planner_answer *a, const weft_planner_tried *x,
                             weft_planner_tried **out)
{
    size_t n = (size_t)x->choice.point.pp;
    if (a->n_tried == a->cap_tried)
        WEFT_TRY(weft_arena_grow(a->arena, (void **)&a->tried, &a->cap_tried,
                                 a->n_tried + 1, sizeof *a->tried));
    weft_planner_tried *t = weft_arena_memdup(a->arena, x, sizeof *x);
    if (!t) return weft_arena_status(a->arena);
    weft_cost_point *p     = &t->choice.point;
    p->cut                 = weft_arena_memdup(a->arena, p->cut, n * sizeof *p->cut);
    p->kinds               = weft_arena_memdup(a->arena, p->kinds, n * sizeof *p->kinds);
    t->choice.why          = weft_arena_strdup(a->arena, x->choice.why);
    t->why                 = weft_arena_strdup(a->arena, x->why);
    t->device              = x->device ? weft_arena_strdup(a->arena, x->device) : NULL;
    t->largest             = x->largest ? weft_arena_strdup(a->arena, x->largest) : NULL;
    a->tried[a->n_tried++] = *out = t;
    return weft_arena_status(a->arena);
}

/* What is checked of a choice of the search. */
static weft_planner_tried candidate_of(const trial *z, const weft_search_choice *found)
{
    weft_planner_tried t = {.choice = *found, .end = WEFT_PLANNER_UNTRIED, .why = ""};
    int                gather =
        weft_search_given(&z->w->problem.constraints, WEFT_KEY_overlap_param_gather);
    t.choice.strategy.offload = (int)z->w->request.spec.offload;
    t.bucket                  = z->w->request.bucket_bytes;
    weft_planner__set_copies(z->w, &t.choice);
    if (gather > 0) weft_planner__set_later(&t.choice, gather);
    t.choice.score.mem_limit /= z->memory; /* what there is, not what was counted with */
    if (t.choice.strategy.overlap_param_gather)
        t.bucket = weft_planner__bucket(z->w, &t.choice);
    return t;
}

/* c is the best so far; its programs stay where the answer is to have its timeline. */
static void take_best(trial *z, weft_planner_tried *t, weft_planner__checked *c)
{
    weft_planner__checked_destroy(z->made);
    if (!z->w->request.with_timeline) weft_planner__drop_programs(c);
    z->best = t;
    z->made = c;
}

/* c goes into the answer; takes c. */
static weft_status take_checked(trial *z, weft_planner__checked *c)
{
    weft_planner_tried *t;
    weft_status         st = add_tried(z->a, &c->tried, &t);
    if (st == WEFT_OK && weft_planner__fits(c) &&
        (!z->best || t->step_s < z->best->step_s))
        take_best(z, t, c);
    else
        weft_planner__checked_destroy(c);
    return st;
}

static weft_status try_one(trial *z, const weft_search_choice *found)
{
    weft_planner_tried     t = candidate_of(z, found);
    weft_planner__checked *c;
    if (was_tried(z->a, &t.choice)) return WEFT_OK;
    WEFT_TRY(weft_planner__check(z->w, &t, 1, &c));
    return take_checked(z, c);
}

/* ---- rounds ---- */

/* Devices with so much of their memory. */
static void limit_memory(const weft_search_machines *all, double memory,
                         weft_search_machines *out)
{
    *out = *all;
    for (int i = 0; i < out->n; i++)
        out->kind[i].device.mem_bytes =
            (int64_t)(memory * (double)all->kind[i].device.mem_bytes);
}

/* By layer costs, nothing that holds is as fast. */
static bool may_win(const trial *z, const weft_search_choice *x)
{
    return !z->best || x->score.step_s < z->best->step_s;
}

/* How the next search is asked; first: of this one's candidates.  *end: nothing is left that may
 * win. */
static void next_round(const weft_search_result *r, int first, trial *z, bool *end)
{
    const weft_planner_answer *a     = z->a;
    double                     close = 0;
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

/* Nothing found, by layer costs: once more with a little more memory than there is, in case they
 * count too much. */
static weft_status find_more(trial *z, bool *end)
{
    *end = z->nothing || z->a->n_tried; /* nothing is slimmer than what was tried */
    if (*end) return WEFT_OK;
    z->nothing = weft_arena_strdup(z->a->arena, weft_error_text());
    z->memory *= 1.5;
    return weft_arena_status(z->a->arena);
}

/* Is choice i of a search to be checked, `more` being under check? */
static bool is_wanted(const trial *z, const weft_search_result *r, int i, int more)
{
    if (z->a->n_round == 1 && i < z->n_check) return true;
    if (!may_win(z, &r->choice[i])) return false;
    return !z->best || z->a->n_tried + more < z->most;
}

enum {
    MAX_BATCH = 64
};

/* The next choices to check at the same time, from *at on; which[]: their numbers. */
static int pick_batch(const trial *z, const weft_search_result *r, int *at,
                      weft_planner_tried *out, int *which)
{
    int n = 0, most = z->w->request.n_thread;
    most = most < 1 ? 1 : most > MAX_BATCH ? MAX_BATCH : most;
    for (; *at < r->n && n < most && is_wanted(z, r, *at, n); (*at)++) {
        weft_planner_tried t = candidate_of(z, &r->choice[*at]);
        if (was_tried(z->a, &t.choice)) continue;
        out[n]     = t;
        which[n++] = *at;
    }
    return n;
}

/* Results count in the order of the choices, as if they were checked one by one: what an earlier
 * one has made needless is dropped (*end).  So the answer does not depend on the threads. */
static weft_status check_batch(trial *z, const weft_search_result *r, int *at, bool *end)
{
    weft_planner_tried     of[MAX_BATCH];
    weft_planner__checked *c[MAX_BATCH];
    int                    which[MAX_BATCH], n = pick_batch(z, r, at, of, which);
    weft_status            st = WEFT_OK;
    *end                      = !n;
    if (*end) return WEFT_OK;
    WEFT_TRY(weft_planner__check(z->w, of, n, c));
    for (int i = 0; i < n; i++) {
        *end = *end || !is_wanted(z, r, which[i], 0);
        if (st == WEFT_OK && !*end)
            st = take_checked(z, c[i]);
        else
            weft_planner__checked_destroy(c[i]);
    }
    weft_planner__free_trainings(z->w, 1);
    return st;
}

static weft_status search_round(trial *z, bool *end)
{
    weft_search_machines m;
    weft_search_problem  p = z->w->problem;
    weft_search_result  *r;
    int                  first = z->a->n_tried, at = 0;
    limit_memory(&z->w->machines, z->memory, &m);
    p.machines     = &m;
    p.n_best       = z->n_best;
    weft_status st = weft_search_run(&p, &r);
    *end           = st != WEFT_OK;
    if (st == WEFT_ERR_NOFIT) return find_more(z, end);
    WEFT_TRY(st);
    z->a->bound_s = z->found ? fmin(z->a->bound_s, r->bound_s) : r->bound_s;
    weft_search_destroy(z->found);
    z->found = r;
    while (!*end) WEFT_TRY(check_batch(z, r, &at, end));
    *end = z->nothing;
    if (!*end) next_round(r, first, z, end);
    return WEFT_OK;
}

static weft_status search_and_check(trial *z)
{
    bool end = false;
    while (!end && z->a->n_round < MAX_ROUND) {
        z->a->n_round++;
        WEFT_TRY(search_round(z, &end));
    }
    return WEFT_OK;
}

/* ---- all devices ---- */

enum {
    ALL_ROUNDS = 4
};

/* By how much the closest plan of all devices is too large; 0: none was. */
static double closest_of_all(const trial *z)
{
    double close = 0;
    for (int i = 0; i < z->a->n_tried; i++) {
        const weft_planner_tried *t = z->a->tried[i];
        if (t->end == WEFT_PLANNER_TOO_FULL &&
            weft_search_ranks(&t->choice) == weft_planner__n_device(z->w))
            close = fmax(close, (double)t->mem_limit / (double)t->mem_bytes);
    }
    return close;
}

static weft_status try_all_once(trial *z, bool *end)
{
    weft_search_machines m;
    weft_search_result  *r;
    limit_memory(&z->w->machines, z->memory, &m);
    *end = true;
    WEFT_TRY(weft_planner__search_all(z->w, &m, z->a->arena, &r, &z->a->not_all));
    if (z->a->not_all) return WEFT_OK;
    weft_status st    = try_one(z, &r->choice[0]);
    double      close = closest_of_all(z);
    *end = !weft_planner__wants_all(z->w, z->a, &z->best->choice) || !(close > 0);
    z->memory *= close > 0 && close * 0.99 < 0.95 ? close * 0.99 : 0.95;
    weft_search_destroy(r);
    return st;
}

/* Where the best leaves devices idle, the best plan of all of them is simulated too; with less
 * memory where it does not fit. */
static weft_status try_all(trial *z)
{
    bool end = !weft_planner__wants_all(z->w, z->a, &z->best->choice);
    if (end) return WEFT_OK;
    z->memory = 1;
    for (int k = 0; k < ALL_ROUNDS && !end; k++) WEFT_TRY(try_all_once(z, &end));
    if (!z->a->not_all && weft_planner__wants_all(z->w, z->a, &z->best->choice))
        z->a->not_all = "no plan of all devices that was tried holds";
    return WEFT_OK;
}

/* ---- gathers in the next step ---- */

/* The one that later may help most to be the fastest; NULL: none. */
static const weft_planner_tried *find_later(const trial *z)
{
    const weft_planner_tried *best  = NULL;
    double                    least = WEFT_PLANNER__SHORTER * z->best->step_s;
    for (int i = 0; i < z->a->n_tried; i++) {
        const weft_planner_tried *t    = z->a->tried[i];
        double                    hide = weft_planner__may_hide(z->w, t);
        if (hide <= 0 || t->step_s - hide >= least) continue;
        best  = t;
        least = t->step_s - hide;
    }
    return best;
}

/* Layer costs and search do not know of it, so one is simulated with it where it may matter. */
static weft_status try_later(trial *z)
{
    const weft_planner_tried *x = find_later(z);
    weft_planner__checked    *c;
    weft_planner_tried       *t;
    if (!x) return WEFT_OK;
    WEFT_TRY(weft_planner__check_later(z->w, x, z->best->step_s, &c));
    if (!c) return WEFT_OK;
    weft_status st = add_tried(z->a, &c->tried, &t);
    take_best(z, t, c);
    return st;
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

/* The other candidates in the plan, and why each lost. */
static weft_status list_others(weft_planner_answer *a)
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

/* A search's result in the order and words of the answer: those that hold. */
static weft_status order_result(weft_planner_answer *a, const weft_search_result *found)
{
    weft_arena *arena = NULL;
    WEFT_TRY(weft_arena_create(&arena));
    weft_search_result *r = WEFT_ARENA_NEW(arena, weft_search_result);
    weft_search_choice *x = WEFT_ARENA_ARRAY(arena, weft_search_choice, a->n_tried);
    if (weft_arena_status(arena) != WEFT_OK) {
        weft_arena_destroy(arena);
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for the answer");
    }
    *r = (weft_search_result){.arena    = arena,
                              .choice   = x,
                              .n_scored = found->n_scored,
                              .n_device = found->n_device};
    for (int i = 0; i < a->n_tried; i++) { /* arrays and texts are the answer's */
        if (a->tried[i]->end != WEFT_PLANNER_FITS) continue;
        x[r->n]       = a->tried[i]->choice;
        x[r->n++].why = a->tried[i]->why;
    }
    r->bound_s = fmin(a->bound_s, x[0].score.step_s);
    r->gap     = r->bound_s > 0 ? x[0].score.step_s / r->bound_s - 1 : 0;
    a->search  = r;
    return WEFT_OK;
}

/* The placement that the best one was simulated with. */
static weft_status take_placement(trial *z)
{
    weft_planner__checked *c = z->made;
    if (c->device == c->plain)
        return weft_planner__place(z->w, &c->tried.choice, true, z->a->arena,
                                   &z->a->placement);
    z->a->placement = c->placement; /* arrays in the winner's arena */
    c->placement    = (weft_planner_placement){0};
    c->device       = NULL;
    return WEFT_OK;
}

/* The best one's plan and training graph, its programs where its timeline is asked for. */
static void take_winner(trial *z)
{
    weft_planner_answer *a = z->a;
    weft_planner__own_training(z->w, z->made);
    a->plan       = z->made->plan;
    a->winner     = z->made;
    a->timeline   = z->made->fold ? z->made->fold->timeline : NULL;
    z->made->plan = NULL;
    z->made       = NULL;
}

static weft_status conclude(trial *z)
{
    const weft_planner_workspace *w = z->w;
    weft_planner_answer          *a = z->a;
    WEFT_TRY(take_placement(z));
    take_winner(z);
    a->checked = true;
    for (int i = 0; i < a->n_tried; i++) a->tried[i]->number = i;
    qsort(a->tried, (size_t)a->n_tried, sizeof *a->tried, by_outcome);
    for (int i = 1; i < a->n_tried; i++)
        WEFT_TRY(weft_planner__why(a, a->tried[0], a->tried[i]));
    a->step_s = a->tried[0]->step_s;
    weft_estimate_interval(&w->problem.model.shape.engine, a->step_s, w->machines.known,
                           0, &a->lo, &a->hi);
    a->plan->predicted.step_lo = a->lo;
    a->plan->predicted.step_hi = a->hi;
    /* The bound is by fast estimates, which know no overlapped gathers and are off by a little:
     * one that the simulated step refutes is none. */
    if (a->bound_s > a->step_s) a->bound_s = 0;
    a->plan->predicted.bound_s = a->bound_s;
    WEFT_TRY(order_result(a, z->found));
    return list_others(a);
}

static weft_status add_plan(weft_planner_workspace *w, weft_planner_answer *a)
{
    const weft_search_choice *x = &a->tried[0]->choice;
    weft_compile_spec         s;
    weft_planner__training   *t;
    weft_planner__spec_of(w, x, &s);
    WEFT_TRY(weft_planner__find_training(w, &s, &t));
    weft_planner__build_training(t);
    if (t->status != WEFT_OK) return WEFT_FAIL(t->status, "%s", t->error ? t->error : "");
    WEFT_TRY(weft_planner__make(&t->t, x, &a->plan));
    WEFT_TRY(weft_planner_name_machines(w->request.cluster, a->plan->arena,
                                        &a->plan->machines));
    a->plan->strategy.bucket_bytes = w->request.bucket_bytes;
    a->plan->machines.n_device     = 0;
    a->plan->predicted.step_s      = a->step_s;
    a->plan->predicted.step_lo     = a->lo;
    a->plan->predicted.step_hi     = a->hi;
    if (w->is_rows) a->plan->predicted.bound_s = a->bound_s; /* of programs, or none */
    return list_others(a);
}

/* Nothing is checked: for other engines, and in a hurry. */
static weft_status search_only(weft_planner_workspace *w, weft_planner_answer *a)
{
    weft_planner_tried *t;
    WEFT_TRY(weft_search_run(&w->problem, &a->search));
    for (int i = 0; i < a->search->n; i++) {
        weft_search_choice *x = &a->search->choice[i];
        x->strategy.offload   = (int)w->request.spec.offload;
        weft_planner__set_copies(w, x);
        WEFT_TRY(add_tried(a,
                           &(weft_planner_tried){
                               .choice = *x, .end = WEFT_PLANNER_UNTRIED, .why = x->why},
                           &t));
    }
    const weft_search_choice *x = &a->tried[0]->choice;
    a->bound_s                  = a->search->bound_s;
    a->step_s                   = x->score.step_s;
    a->lo                       = x->lo;
    a->hi                       = x->hi;
    if (!w->seconds_only)
        WEFT_TRY(weft_planner__place(w, x, false, a->arena, &a->placement));
    return w->request.with_plan ? add_plan(w, a) : WEFT_OK;
}

static weft_status decide(weft_planner_workspace *w, weft_planner_answer *a)
{
    trial       z  = {.w = w, .a = a, .memory = 1};
    weft_status st = WEFT_OK;
    z.n_best = z.n_check = w->problem.n_best;
    z.most               = 3 * z.n_check;
    if (w->request.fast || !weft_planner__is_ours(w)) return search_only(w, a);
    WEFT_GO(search_and_check(&z));
    if (z.best) WEFT_GO(try_all(&z));
    if (z.best) WEFT_GO(try_later(&z));
    if (!z.best)
        WEFT_GO(z.nothing ? WEFT_FAIL(WEFT_ERR_NOFIT, "%s", z.nothing)
                          : weft_planner__nofit(w, a));
    WEFT_GO(conclude(&z));
out:
    weft_planner__checked_destroy(z.made);
    weft_search_destroy(z.found);
    weft_planner__free_trainings(w, 1);
    return st;
}

static weft_status decide_once(weft_planner_workspace *w, weft_planner_answer **out)
{
    weft_arena *arena = NULL;
    WEFT_TRY(weft_arena_create(&arena));
    weft_planner_answer *a = WEFT_ARENA_NEW(arena, weft_planner_answer);
    if (!a) {
        weft_arena_destroy(arena);
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory to plan in");
    }
    a->arena            = arena;
    a->reduction        = weft_compile_reduction(&w->request.spec);
    a->fixed_on_devices = w->fixed_on_devices;
    weft_status st      = decide(w, a);
    if (st == WEFT_OK)
        *out = a;
    else
        weft_planner_destroy(a);
    return st;
}

static weft_status decide_reduction(weft_planner_workspace *w, weft_planner_answer **out)
{
    bool        open = w->request.spec.reduction == WEFT_REDUCTION_AUTO;
    weft_status st   = decide_once(w, out);
    if (st != WEFT_ERR_NOFIT || !open || w->request.world == 1 ||
        !weft_planner__is_ours(w))
        return st;
    WEFT_TRY(weft_planner__open_fixed(w));
    WEFT_TRY(decide_once(w->fixed, out));
    (*out)->fixed_to_fit = true;
    return WEFT_OK;
}

/* Where nothing fits: once more with optimizer states in the host's memory.  Where nothing fits so
 * either, the line is that of a plan without. */
weft_status weft_planner_decide(weft_planner_workspace *w, weft_planner_answer **out)
{
    weft_status st = decide_reduction(w, out);
    char        text[1024];
    if (st != WEFT_ERR_NOFIT || !weft_planner__may_offload(w)) return st;
    snprintf(text, sizeof text, "%s", weft_error_text());
    WEFT_TRY(weft_planner__open_offload(w));
    st = decide_reduction(w->offload, out);
    if (st == WEFT_ERR_NOFIT || st == WEFT_ERR_ARG)
        return WEFT_FAIL(WEFT_ERR_NOFIT, "%s", text);
    WEFT_TRY(st);
    (*out)->offload_to_fit = true;
    return WEFT_OK;
}

void weft_planner_take_training(weft_planner_answer *a, weft_training *out)
{
    *out = (weft_training){0};
    if (!a->winner || a->timeline) return;
    *out                 = a->winner->shared->t;
    a->winner->shared->t = (weft_training){0};
}

int weft_planner_missing_micro(const weft_planner_answer *a)
{
    const weft_cost_point *p = &a->tried[0]->choice.point;
    return p->pp > p->n_micro ? p->pp - p->n_micro : 0;
}

void weft_planner_destroy(weft_planner_answer *a)
{
    if (!a) return;
    weft_planner_placement_fini(&a->placement);
    weft_planner__checked_destroy(a->winner); /* its programs were made from the plan */
    weft_plan_destroy(a->plan);
    weft_search_destroy(a->search);
    weft_arena_destroy(a->arena);
}
