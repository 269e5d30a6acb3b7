/* One candidate: its plan, the programs of all unlike ranks, their exact memory, a simulated
 * step. */
#include <stdlib.h>
#include <string.h>

#include "compile/world.h"
#include "planner/planner_priv.h"
#include "sim/fold.h"

enum {
    MANY = 32 /* ranks */
};

typedef struct weft_planner_replay {
    weft_training        training;
    weft_plan           *plan;
    weft_compiled_world *world;
    weft_cluster        *view;
    weft_sim_folded     *fold;
    int                 *device, n_rank;
    int64_t             *mem_bytes; /* [rank], in the plan's arena */
} checked;

static void fini(checked *c)
{
    weft_sim_folded_destroy(c->fold);
    weft_compiled_world_destroy(c->world);
    weft_cluster_destroy(c->view);
    weft_plan_destroy(c->plan);
    weft_training_fini(&c->training);
}

/* ---- memory ---- */

static int64_t slabs(const weft_program *p)
{
    int64_t n = 0;
    for (int k = 0; k < p->n_slab; k++) n += p->slab[k].bytes;
    return n;
}

/* The largest thing that the fullest rank holds. */
static weft_status name_largest(weft_planner_answer *a, const weft_program *p,
                                weft_planner_tried *x)
{
    int64_t most = 0;
    for (int i = 0; i < p->n_buffer; i++) {
        int64_t n = p->buffer[i].bytes * p->buffer[i].n_slot;
        if (n <= most) continue;
        most             = n;
        x->largest       = p->buffer[i].name;
        x->largest_bytes = n;
    }
    x->largest = weft_arena_strdup(a->arena, x->largest ? x->largest : "");
    return weft_arena_status(a->arena);
}

static weft_status measure(const weft_planner_ask *q, weft_planner_answer *a, checked *c,
                           weft_planner_tried *x)
{
    double worst = -1;
    c->mem_bytes = WEFT_ARENA_ARRAY(c->plan->arena, int64_t, c->n_rank);
    WEFT_TRY(weft_arena_status(c->plan->arena));
    for (int r = 0; r < c->n_rank; r++) {
        const weft_device_kind *d = weft_cluster_device(c->view, r);
        int64_t                 need =
            slabs(c->world->world.like[r]) + weft_planner__engine_bytes(q, a, d);
        int64_t have    = weft_cluster_usable_bytes(d);
        c->mem_bytes[r] = need;
        if ((double)need / (double)have <= worst) continue;
        worst        = (double)need / (double)have;
        x->fullest   = r;
        x->mem_bytes = need;
        x->mem_limit = have;
        x->device    = weft_arena_strdup(a->arena, d->name);
    }
    x->end = x->mem_bytes <= x->mem_limit ? WEFT_PLANNER_FITS : WEFT_PLANNER_TOO_FULL;
    return name_largest(a, c->world->world.like[x->fullest], x);
}

/* The first rank of a large plan alone: what does not fit there fits nowhere. */
static weft_status look_first(const weft_planner_ask *q, weft_planner_answer *a,
                              checked *c, weft_planner_tried *x)
{
    weft_compiled           one = {0};
    const weft_device_kind *d   = weft_cluster_device(c->view, 0);
    WEFT_TRY(weft_compile_program(&c->training, c->plan, 0, &one));
    x->mem_bytes   = slabs(one.program) + weft_planner__engine_bytes(q, a, d);
    x->mem_limit   = weft_cluster_usable_bytes(d);
    x->device      = weft_arena_strdup(a->arena, d->name);
    weft_status st = name_largest(a, one.program, x);
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

static weft_status simulate(checked *c, weft_planner_tried *x)
{
    WEFT_TRY(weft_sim_fold(&c->world->world, c->view, NULL, &c->fold));
    const weft_timeline *t = c->fold->timeline;
    x->step_s              = t->step_s;
    x->n_class             = c->fold->n_class;
    x->n_made              = c->world->n_made;
    for (int k = 0; k < c->fold->n_class; k++) {
        weft_plan_time one;
        add_up(t, k, &one);
        if (!k || one.compute_s > x->time.compute_s) x->time = one;
    }
    return WEFT_OK;
}

/* Ranks lie where their traffic is quickest, and that does not know what hides behind work.  So
 * where a step takes longer than by rows, it is simulated with devices as the search counts them
 * out, too. */
static weft_status compare_plain(const weft_planner_ask *q, const weft_planner_answer *a,
                                 checked *c, weft_planner_tried *x)
{
    checked            other = {.world = c->world};
    weft_planner_tried y     = *x;
    weft_status        st    = WEFT_OK;
    if (x->step_s <= 1.01 * x->choice.score.step_s) return WEFT_OK;
    WEFT_TRY(weft_planner__devices(q, a, &x->choice, true, c->plan->arena, &other.device,
                                   &other.n_rank));
    if (!memcmp(c->device, other.device, sizeof *c->device * (size_t)c->n_rank))
        return WEFT_OK;
    WEFT_GO(weft_planner__view(q->cluster, a->config.precision, other.device, c->n_rank,
                               &other.view));
    WEFT_GO(simulate(&other, &y));
    if (y.step_s < x->step_s) {
        checked was = *c;
        c->device   = other.device;
        c->view     = other.view;
        c->fold     = other.fold;
        other.view  = was.view;
        other.fold  = was.fold;
        y.plain     = true;
        *x          = y;
    }
out:
    weft_sim_folded_destroy(other.fold);
    weft_cluster_destroy(other.view);
    return st;
}

/* ---- all of it ---- */

/* Rank r has device r of the cluster where that is so. */
static weft_status note_devices(const weft_planner_ask *q, checked *c)
{
    weft_plan_machines *m    = &c->plan->machines;
    bool                same = true;
    WEFT_TRY(weft_planner_name_machines(q->cluster, c->plan->arena, m));
    for (int r = 0; r < c->n_rank; r++) same = same && c->device[r] == r;
    m->n_device = same ? 0 : c->n_rank;
    m->device   = same ? NULL
                       : weft_arena_memdup(c->plan->arena, c->device,
                                           sizeof *c->device * (size_t)c->n_rank);
    return weft_arena_status(c->plan->arena);
}

static weft_status run(const weft_planner_ask *q, weft_planner_answer *a, checked *c,
                       weft_planner_tried *x)
{
    WEFT_TRY(weft_planner__make(q, a, &x->choice, &c->training, &c->plan));
    c->plan->strategy.bucket_bytes = x->bucket;
    WEFT_TRY(weft_planner__devices(q, a, &x->choice, x->plain, c->plan->arena, &c->device,
                                   &c->n_rank));
    WEFT_TRY(weft_planner__view(q->cluster, a->config.precision, c->device, c->n_rank,
                                &c->view));
    if (c->n_rank > MANY) WEFT_TRY(look_first(q, a, c, x));
    if (x->end == WEFT_PLANNER_TOO_FULL) return WEFT_OK;
    WEFT_TRY(weft_compile_world(
        &c->training, c->plan,
        x->quick || c->n_rank > MANY ? WEFT_RANKS_ENDS : WEFT_RANKS_FOLDED, &c->world));
    WEFT_TRY(measure(q, a, c, x));
    if (x->end == WEFT_PLANNER_TOO_FULL) return WEFT_OK;
    WEFT_TRY(simulate(c, x));
    WEFT_TRY(compare_plain(q, a, c, x));
    WEFT_TRY(note_devices(q, c));
    c->plan->predicted = (weft_plan_predicted){.step_s    = x->step_s,
                                               .time      = x->time,
                                               .n_mem     = c->n_rank,
                                               .mem_bytes = c->mem_bytes};
    return WEFT_OK;
}

weft_status weft_planner__check(const weft_planner_ask *q, weft_planner_answer *a,
                                weft_planner_tried *x, weft_plan **plan)
{
    checked     c  = {0};
    weft_status st = run(q, a, &c, x);
    *plan          = NULL;
    if (st != WEFT_OK && st != WEFT_ERR_MEM) {
        x->end = WEFT_PLANNER_NO_PLAN;
        x->why = weft_arena_strdup(a->arena, weft_error_text());
        st     = weft_arena_status(a->arena);
    } else if (st == WEFT_OK && x->end == WEFT_PLANNER_FITS) {
        *plan  = c.plan;
        c.plan = NULL;
    }
    weft_compiled_world_destroy(c.world); /* before its training goes on */
    c.world = NULL;
    weft_planner__keep_training(a, &c.training);
    fini(&c);
    return st;
}

/* ---- once more ---- */

weft_status weft_planner_replay_create(const weft_planner_ask *q, weft_planner_answer *a,
                                       weft_planner_replay **out)
{
    weft_planner_tried x;
    if (!a->checked) return WEFT_FAIL(WEFT_ERR_ARG, "nothing was simulated");
    checked *c = calloc(1, sizeof *c);
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to simulate in");
    x              = *a->tried[0];
    weft_status st = run(q, a, c, &x);
    if (st == WEFT_OK)
        *out = c;
    else
        weft_planner_replay_destroy(c);
    return st;
}

const weft_timeline *weft_planner_replay_timeline(const weft_planner_replay *r)
{
    return r->fold->timeline;
}

void weft_planner_replay_destroy(weft_planner_replay *r)
{
    if (!r) return;
    fini(r);
    free(r);
}
