/* Candidates: their plans, the programs of all unlike ranks, their exact memory, a simulated step.
 *
 * What a check needs of the workspace's caches is looked up first, by the thread that called; then
 * candidates are checked on several threads, which read the workspace and write to their own
 * candidate alone. */
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "cost/cost.h"
#include "planner/planner_priv.h"

enum {
    MANY = 32 /* ranks */
};

typedef weft_planner__checked checked;

/* ---- memory ---- */

/* Bytes of its program, and what plans may fill: on CPUs the engine's own bytes count as the
 * program's; of a GPU, whose driver and libraries take them, as not there. */
static void weigh_rank(const weft_planner_workspace *w, const weft_program *p,
                       const weft_device_kind *d, int64_t *need, int64_t *have)
{
    int64_t engine = weft_planner__engine_bytes(w, d);
    *need          = weft_cost_program_bytes(p, d);
    *have          = weft_cluster_usable_bytes(d);
    if (weft_cluster_is_cpu(d))
        *need += engine;
    else
        *have -= engine;
}

/* The largest thing that the fullest rank holds. */
static weft_status name_largest(checked *c, const weft_program *p)
{
    weft_planner_tried *x    = &c->tried;
    int64_t             most = 0;
    for (int i = 0; i < p->n_buffer; i++) {
        int64_t n = p->buffer[i].bytes * p->buffer[i].n_slot;
        if (n <= most || weft_slab_kind_is_host(p->slab[p->buffer[i].slab].kind))
            continue;
        most             = n;
        x->largest       = p->buffer[i].name;
        x->largest_bytes = n;
    }
    x->largest = weft_arena_strdup(c->arena, x->largest ? x->largest : "");
    return weft_arena_status(c->arena);
}

/* What the host holds and does for the rank that has most of it. */
static weft_status measure_host(checked *c, const weft_program *p)
{
    weft_planner_tried *x     = &c->tried;
    double              all   = 0, s;
    int64_t             bytes = weft_program_bytes(p, WEFT_SLAB_HOST_STATE) +
                    weft_program_bytes(p, WEFT_SLAB_HOST_WORK);
    if (bytes <= x->host_bytes) return WEFT_OK;
    x->host_bytes = bytes;
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++) {
            const weft_instr *i = &p->actor[a].instr[n];
            if (i->kind != WEFT_INSTR_COMPUTE || !weft_instr_is_on_host(p, i)) continue;
            WEFT_TRY(weft_cost_instr(p, i, c->view, &s));
            all += s;
        }
    x->host_s = all;
    return WEFT_OK;
}

static weft_status measure(const weft_planner_workspace *w, checked *c)
{
    weft_planner_tried *x     = &c->tried;
    double              worst = -1;
    c->mem_bytes              = WEFT_ARENA_ARRAY(c->plan->arena, int64_t, c->n_rank);
    WEFT_TRY(weft_arena_status(c->plan->arena));
    for (int r = 0; r < c->n_rank; r++) {
        const weft_device_kind *d = weft_cluster_device(c->view, r);
        int64_t                 need, have;
        weigh_rank(w, c->world->world.like[r], d, &need, &have);
        c->mem_bytes[r] = need;
        WEFT_TRY(measure_host(c, c->world->world.like[r]));
        if ((double)need / (double)have <= worst) continue;
        worst        = (double)need / (double)have;
        x->fullest   = r;
        x->mem_bytes = need;
        x->mem_limit = have;
        x->device    = weft_arena_strdup(c->arena, d->name);
    }
    x->end = x->mem_bytes <= x->mem_limit ? WEFT_PLANNER_FITS : WEFT_PLANNER_TOO_FULL;
    return name_largest(c, c->world->world.like[x->fullest]);
}

/* The first rank of a large plan alone: what does not fit there fits nowhere. */
static weft_status look_first(const weft_planner_workspace *w, checked *c)
{
    weft_planner_tried     *x   = &c->tried;
    weft_compiled           one = {0};
    const weft_device_kind *d   = weft_cluster_device(c->view, 0);
    WEFT_TRY(weft_compile_program(&c->shared->t, c->plan, 0, &one));
    weigh_rank(w, one.program, d, &x->mem_bytes, &x->mem_limit);
    x->device      = weft_arena_strdup(c->arena, d->name);
    weft_status st = name_largest(c, one.program);
    if (st == WEFT_OK && x->mem_bytes > x->mem_limit) x->end = WEFT_PLANNER_TOO_FULL;
    weft_compiled_fini(&one);
    return st;
}

/* ---- time ---- */

static bool is_update(const weft_program *p, const weft_slice *s)
{
    return s->micro < 0 && p->actor[s->actor].instr[s->instr].kind == WEFT_INSTR_COMPUTE;
}

/* The last step of class k, by what its compute stream did. */
static void add_up(const weft_timeline *t, int k, weft_plan_time *out)
{
    double busy = 0;
    *out        = (weft_plan_time){0};
    for (int i = 0; i < t->n_slice; i++) {
        const weft_slice *s = &t->slice[i];
        if (s->program != k ||
            t->program[k]->stream[s->stream].kind != WEFT_STREAM_COMPUTE ||
            s->step != t->n_step - 1)
            continue;
        const weft_program *p = t->program[k];
        double              x = s->end_s - s->start_s;
        busy += x;
        if (weft_instr_is_comm(&p->actor[s->actor].instr[s->instr]))
            out->comm_s += x;
        else if (is_update(p, s))
            out->update_s += x;
        else
            out->compute_s += x;
    }
    out->idle_s = t->step_s > busy ? t->step_s - busy : 0;
}

/* A step on a view of the cluster; *fold is the caller's. */
static weft_status simulate(const weft_compiled_world *world, const weft_cluster *view,
                            weft_planner_tried *x, weft_sim_folded **fold)
{
    weft_sim_folded *f;
    WEFT_TRY(weft_sim_fold(&world->world, view, NULL, &f));
    x->step_s  = f->timeline->step_s;
    x->n_class = f->n_class;
    x->n_made  = world->n_made;
    for (int k = 0; k < f->n_class; k++) {
        weft_plan_time one;
        add_up(f->timeline, k, &one);
        if (!k || one.compute_s > x->time.compute_s) x->time = one;
    }
    *fold = f;
    return WEFT_OK;
}

/* Ranks are placed where their traffic is quickest, and that does not know what is overlapped with
 * compute.  So where a step takes longer than by layer costs, it is simulated with devices as the
 * search counts them out, too. */
static weft_status compare_plain(const weft_planner_workspace *w, checked *c)
{
    weft_planner_tried y    = c->tried;
    weft_cluster      *view = NULL;
    weft_sim_folded   *fold = NULL;
    weft_status        st   = WEFT_OK;
    if (!c->plain || y.step_s <= 1.01 * y.choice.score.step_s) return WEFT_OK;
    if (!memcmp(c->device, c->plain, sizeof *c->device * (size_t)c->n_rank))
        return WEFT_OK;
    WEFT_GO(weft_planner__view(w->request.cluster, weft_planner__priced_as(w), c->plain,
                               c->n_rank, &view));
    WEFT_GO(simulate(c->world, view, &y, &fold));
    if (y.step_s < c->tried.step_s) {
        weft_sim_folded *slower = c->fold;
        weft_cluster    *other  = c->view;
        y.plain                 = true;
        c->tried                = y;
        c->device               = c->plain;
        c->view                 = view;
        c->fold                 = fold;
        view                    = other;
        fold                    = slower;
    }
out:
    weft_sim_folded_destroy(fold);
    weft_cluster_destroy(view);
    return st;
}

/* ---- one candidate ---- */

/* Rank r has device r of the cluster where that is so. */
static weft_status note_devices(const weft_planner_workspace *w, checked *c)
{
    weft_plan_machines *m    = &c->plan->machines;
    bool                same = true;
    WEFT_TRY(weft_planner_name_machines(w->request.cluster, c->plan->arena, m));
    for (int r = 0; r < c->n_rank; r++) same = same && c->device[r] == r;
    m->n_device = same ? 0 : c->n_rank;
    m->device   = same ? NULL
                       : weft_arena_memdup(c->plan->arena, c->device,
                                           sizeof *c->device * (size_t)c->n_rank);
    return weft_arena_status(c->plan->arena);
}

static weft_status run_check(const weft_planner_workspace *w, checked *c)
{
    weft_planner_tried *x = &c->tried;
    if (c->shared->status != WEFT_OK)
        return WEFT_FAIL(c->shared->status, "%s",
                         c->shared->error ? c->shared->error : "no memory");
    WEFT_TRY(weft_planner__make(&c->shared->t, &x->choice, &c->plan));
    c->plan->strategy.bucket_bytes = x->bucket;
    WEFT_TRY(weft_planner__view(w->request.cluster, weft_planner__priced_as(w), c->device,
                                c->n_rank, &c->view));
    if (c->n_rank > MANY) WEFT_TRY(look_first(w, c));
    if (x->end == WEFT_PLANNER_TOO_FULL) return WEFT_OK;
    WEFT_TRY(weft_compile_world(
        &c->shared->t, c->plan,
        x->quick || c->n_rank > MANY ? WEFT_RANKS_ENDS : WEFT_RANKS_FOLDED, &c->world));
    WEFT_TRY(measure(w, c));
    if (x->end == WEFT_PLANNER_TOO_FULL) return WEFT_OK;
    WEFT_TRY(simulate(c->world, c->view, x, &c->fold));
    WEFT_TRY(compare_plain(w, c));
    WEFT_TRY(note_devices(w, c));
    c->plan->predicted = (weft_plan_predicted){.step_s    = x->step_s,
                                               .time      = x->time,
                                               .n_mem     = c->n_rank,
                                               .mem_bytes = c->mem_bytes};
    return WEFT_OK;
}

/* A candidate that cannot be compiled or placed has come to nothing, and why; no memory is a
 * failure of the check. */
static void note_status(checked *c, weft_status st)
{
    if (st == WEFT_OK) return;
    c->tried.end = WEFT_PLANNER_NO_PLAN;
    c->tried.why = weft_arena_strdup(c->arena, weft_error_text());
    c->status    = st == WEFT_ERR_MEM ? st : weft_arena_status(c->arena);
}

/* What needs the workspace: where ranks are placed (by layer costs), which training graph. */
static weft_status prepare(weft_planner_workspace *w, checked *c)
{
    weft_planner_tried *x = &c->tried;
    weft_compile_spec   s;
    weft_planner__spec_of(w, &x->choice, &s);
    WEFT_TRY(weft_planner__find_training(w, &s, &c->shared));
    c->shared->n_user++;
    WEFT_TRY(weft_planner__place(w, &x->choice, x->plain, c->arena, &c->placement));
    c->device = c->placement.p.device;
    c->n_rank = c->placement.p.n_rank;
    return weft_planner__plain_devices(w, &x->choice, c->arena, &c->plain);
}

static weft_status create(weft_planner_workspace *w, const weft_planner_tried *of,
                          checked **out)
{
    size_t   n = (size_t)of->choice.point.pp;
    checked *c = calloc(1, sizeof *c);
    *out       = c;
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to check a plan in");
    WEFT_TRY(weft_arena_create(&c->arena));
    c->tried            = *of;
    weft_cost_point *p  = &c->tried.choice.point;
    p->cut              = weft_arena_memdup(c->arena, p->cut, n * sizeof *p->cut);
    p->kinds            = weft_arena_memdup(c->arena, p->kinds, n * sizeof *p->kinds);
    c->tried.choice.why = weft_arena_strdup(c->arena, of->choice.why);
    WEFT_TRY(weft_arena_status(c->arena));
    note_status(c, prepare(w, c));
    return c->status;
}

/* ---- several at the same time ---- */

typedef struct check_batch {
    const weft_planner_workspace *w; /* read only by all threads */
    int                           n_training;
    weft_planner__training      **training;
    checked                     **candidate;
} check_batch;

static void build_one(void *arg, int64_t task, int thread)
{
    check_batch *b = arg;
    (void)thread;
    weft_planner__build_training(b->training[task]);
}

static void check_one(void *arg, int64_t task, int thread)
{
    check_batch *b = arg;
    checked     *c = b->candidate[task];
    (void)thread;
    if (c->tried.end == WEFT_PLANNER_NO_PLAN) return;
    note_status(c, run_check(b->w, c));
    if (!weft_planner__fits(c)) {
        weft_sim_folded_destroy(c->fold);
        weft_compiled_world_destroy(c->world);
        c->fold  = NULL;
        c->world = NULL;
    }
}

static weft_status run_batch(weft_planner_workspace *w, int n, checked **c)
{
    check_batch b       = {.w = w, .candidate = c};
    int         threads = w->request.n_thread < n ? w->request.n_thread : n;
    weft_pool  *pool    = NULL;
    b.training          = calloc(n > 0 ? (size_t)n : 1, sizeof *b.training);
    if (!b.training) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to check plans in");
    for (int i = 0; i < n; i++) {
        int k = 0;
        if (!c[i]->shared || c[i]->shared->is_built) continue;
        while (k < b.n_training && b.training[k] != c[i]->shared) k++;
        if (k == b.n_training) b.training[b.n_training++] = c[i]->shared;
    }
    weft_status st = threads > 1 ? weft_pool_create(threads, 0, &pool) : WEFT_OK;
    if (st == WEFT_OK) {
        weft_pool_run(pool, b.n_training, build_one, &b);
        weft_pool_run(pool, n, check_one, &b);
    }
    weft_pool_destroy(pool);
    free(b.training);
    for (int i = 0; i < n && st == WEFT_OK; i++)
        if (c[i]->status != WEFT_OK)
            st = WEFT_FAIL(c[i]->status, "%s", c[i]->tried.why ? c[i]->tried.why : "");
    return st;
}

weft_status weft_planner__check(weft_planner_workspace *w, const weft_planner_tried *of,
                                int n, checked **out)
{
    weft_status st = WEFT_OK;
    for (int i = 0; i < n; i++) out[i] = NULL;
    for (int i = 0; i < n && st == WEFT_OK; i++) st = create(w, &of[i], &out[i]);
    if (st == WEFT_OK) st = run_batch(w, n, out);
    for (int i = 0; i < n && st != WEFT_OK; i++) {
        weft_planner__checked_destroy(out[i]);
        out[i] = NULL;
    }
    return st;
}

bool weft_planner__fits(const checked *c)
{
    return c->tried.end == WEFT_PLANNER_FITS;
}

void weft_planner__drop_programs(checked *c)
{
    weft_sim_folded_destroy(c->fold);
    weft_compiled_world_destroy(c->world);
    weft_cluster_destroy(c->view);
    c->fold  = NULL;
    c->world = NULL;
    c->view  = NULL;
}

void weft_planner__own_training(weft_planner_workspace *w, checked *c)
{
    weft_planner__take_training(w, c->shared);
    c->owns = true;
}

void weft_planner__checked_destroy(checked *c)
{
    if (!c) return;
    weft_planner__drop_programs(c);
    if (c->owns) weft_planner__training_destroy(c->shared);
    if (c->shared && !c->owns) c->shared->n_user--;
    weft_plan_destroy(c->plan);
    weft_planner_placement_fini(&c->placement);
    weft_arena_destroy(c->arena);
    free(c);
}
