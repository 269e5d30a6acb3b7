/* A plan once more: a copy of its own, and whether two say the same. */
#include <string.h>

#include "plan/plan.h"

/* ---- copy ---- */

/* NULL stays NULL; without memory the arena says so. */
static const char *copy_text(weft_arena *a, const char *s)
{
    return s ? weft_arena_strdup(a, s) : NULL;
}

static void *copy_array(weft_arena *a, const void *p, int64_t n, size_t size)
{
    return p && n ? weft_arena_memdup(a, p, size * (size_t)n) : NULL;
}

static void copy_texts(weft_arena *a, const char *const *s, int n, const char ***out)
{
    const char **copy = s && n ? WEFT_ARENA_ARRAY(a, const char *, n) : NULL;
    for (int i = 0; copy && i < n; i++) copy[i] = copy_text(a, s[i]);
    *out = copy;
}

static void copy_marks(const weft_plan *p, weft_plan *q)
{
    q->mark = copy_array(q->arena, p->mark, p->n_mark, sizeof *p->mark);
    for (int i = 0; q->mark && i < p->n_mark; i++)
        q->mark[i].name = copy_text(q->arena, p->mark[i].name);
}

/* What p points to, into the arena of q, which has p's numbers. */
static weft_status copy_parts(const weft_plan *p, weft_plan *q)
{
    weft_arena                *a = q->arena;
    const weft_plan_predicted *x = &p->predicted;
    q->of.model                  = copy_text(a, p->of.model);
    q->of.kernels                = copy_text(a, p->of.kernels);
    q->of.dtype                  = copy_text(a, p->of.dtype);
    for (int i = 0; i < p->n_axis; i++) q->axis[i].name = copy_text(a, p->axis[i].name);
    q->share = copy_array(a, p->share, weft_plan_lane_ranks(p), sizeof *p->share);
    copy_texts(a, p->first, p->strategy.pp * p->strategy.chunks, &q->first);
    copy_marks(p, q);
    q->machines.name       = copy_text(a, p->machines.name);
    q->machines.device     = copy_array(a, p->machines.device, p->machines.n_device,
                                        sizeof *p->machines.device);
    q->predicted.mem_bytes = copy_array(a, x->mem_bytes, x->n_mem, sizeof *x->mem_bytes);
    copy_texts(a, x->other, x->n_other, &q->predicted.other);
    return weft_arena_status(a);
}

weft_status weft_plan_copy(const weft_plan *p, weft_plan **out)
{
    weft_arena *a = NULL;
    WEFT_TRY(weft_arena_create(&a));
    weft_plan  *q  = weft_arena_memdup(a, p, sizeof *p);
    weft_status st = weft_arena_status(a);
    if (st == WEFT_OK) {
        q->arena = a;
        st       = copy_parts(p, q);
    }
    if (st == WEFT_OK)
        *out = q;
    else
        weft_arena_destroy(a);
    return st;
}

/* ---- equal ---- */

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool is_same_array(const void *a, const void *b, int64_t n, size_t size)
{
    return !n || !memcmp(a, b, size * (size_t)n);
}

static bool are_same_texts(const char *const *a, const char *const *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!is_same_text(a[i], b[i])) return false;
    return true;
}

static bool is_of_same(const weft_plan_of *a, const weft_plan_of *b)
{
    return is_same_text(a->model, b->model) && is_same_text(a->kernels, b->kernels) &&
           is_same_text(a->dtype, b->dtype) && a->graph_hash == b->graph_hash &&
           a->batch == b->batch && a->seq == b->seq && a->micro_batch == b->micro_batch &&
           a->lanes == b->lanes && a->reduction == b->reduction;
}

static bool has_same_mesh(const weft_plan *a, const weft_plan *b)
{
    if (a->n_axis != b->n_axis || a->lane_axis != b->lane_axis) return false;
    for (int i = 0; i < a->n_axis; i++)
        if (!is_same_text(a->axis[i].name, b->axis[i].name) ||
            a->axis[i].size != b->axis[i].size || a->axis[i].link != b->axis[i].link)
            return false;
    if (!a->share || !b->share) return !a->share && !b->share;
    return is_same_array(a->share, b->share, weft_plan_lane_ranks(a), sizeof *a->share);
}

/* Order and batch split are those of the mesh and of share. */
static bool has_same_options(const weft_strategy *a, const weft_strategy *b)
{
    for (int i = 0; i < weft_strategy_n_row; i++) {
        const weft_strategy_row *row = &weft_strategy_rows[i];
        if (row->kind == WEFT_STRATEGY_ORDER || row->kind == WEFT_STRATEGY_SPLIT)
            continue;
        if (!weft_strategy_row_equal(a, b, row)) return false;
    }
    return true;
}

static bool is_same_mark(const weft_mark *a, const weft_mark *b)
{
    return is_same_text(a->name, b->name) && weft_layout_equal(&a->layout, &b->layout) &&
           a->open == b->open && a->never == b->never && a->rest == b->rest &&
           a->priority == b->priority;
}

static bool has_same_marks(const weft_plan *a, const weft_plan *b)
{
    if (a->n_mark != b->n_mark) return false;
    for (int i = 0; i < a->n_mark; i++)
        if (!is_same_mark(&a->mark[i], &b->mark[i])) return false;
    return true;
}

static bool are_same_machines(const weft_plan_machines *a, const weft_plan_machines *b)
{
    if (!a->name && !b->name) return true; /* nothing is said */
    return is_same_text(a->name, b->name) && a->shape == b->shape &&
           a->constants == b->constants && a->n_device == b->n_device &&
           is_same_array(a->device, b->device, a->n_device, sizeof *a->device);
}

/* Numbers from 0 are not known. */
static bool is_same_number(double a, double b)
{
    return a > 0 || b > 0 ? a == b : true;
}

static bool is_time_known(const weft_plan_predicted *x)
{
    return x->step_s > 0 && x->time.compute_s > 0;
}

static bool is_same_time(const weft_plan_predicted *a, const weft_plan_predicted *b)
{
    if (!is_time_known(a) && !is_time_known(b)) return true;
    return is_same_number(a->time.compute_s, b->time.compute_s) &&
           is_same_number(a->time.update_s, b->time.update_s) &&
           is_same_number(a->time.comm_s, b->time.comm_s) &&
           is_same_number(a->time.idle_s, b->time.idle_s);
}

static bool is_predicted(const weft_plan_predicted *x)
{
    return x->step_s > 0 || x->n_mem;
}

static bool is_same_prediction(const weft_plan_predicted *a, const weft_plan_predicted *b)
{
    if (!is_predicted(a) && !is_predicted(b)) return true;
    return is_same_number(a->step_s, b->step_s) &&
           is_same_number(a->step_lo, b->step_lo) &&
           is_same_number(a->step_hi, b->step_hi) &&
           is_same_number(a->bound_s, b->bound_s) && is_same_time(a, b) &&
           a->n_mem == b->n_mem &&
           is_same_array(a->mem_bytes, b->mem_bytes, a->n_mem, sizeof *a->mem_bytes) &&
           a->n_other == b->n_other && are_same_texts(a->other, b->other, a->n_other);
}

bool weft_plan_equal(const weft_plan *a, const weft_plan *b)
{
    return is_of_same(&a->of, &b->of) && has_same_options(&a->strategy, &b->strategy) &&
           has_same_mesh(a, b) &&
           are_same_texts(a->first, b->first, a->strategy.pp * a->strategy.chunks) &&
           has_same_marks(a, b) && are_same_machines(&a->machines, &b->machines) &&
           is_same_prediction(&a->predicted, &b->predicted);
}
