#include "plan/plan.h"

#include <string.h>

void weft_plan_destroy(weft_plan *p)
{
    if (p) weft_arena_destroy(p->arena);
}

int weft_plan_places(const weft_plan *p)
{
    int n = 1;
    for (int i = 0; i < p->n_axis; i++) n *= p->axis[i].size;
    return n;
}

int weft_plan_world(const weft_plan *p)
{
    return weft_plan_places(p) * p->strategy.pp;
}

int weft_plan_lane_ranks(const weft_plan *p)
{
    return p->lane_axis < 0 ? 1 : p->axis[p->lane_axis].size;
}

int weft_plan_copies(const weft_plan *p)
{
    return p->lane_axis < 0 ? 1 : weft_strategy_shard_copies(&p->strategy);
}

int weft_plan_n_standby(const weft_plan *p)
{
    return weft_strategy_n_standby(&p->strategy);
}

/* ---- verify ---- */

static weft_status check_axes(const weft_plan *p)
{
    int64_t n = p->strategy.pp;
    for (int i = 0; i < p->n_axis; i++) {
        if (p->axis[i].size < 1)
            return WEFT_FAIL(WEFT_ERR_ARG, "axis %s has size %d", p->axis[i].name,
                             p->axis[i].size);
        for (int k = 0; k < i; k++)
            if (!strcmp(p->axis[i].name, p->axis[k].name))
                return WEFT_FAIL(WEFT_ERR_ARG, "mesh: axis %s stands there twice",
                                 p->axis[i].name);
        n *= p->axis[i].size;
        if (n > 1 << 24)
            return WEFT_FAIL(WEFT_ERR_ARG, "mesh: more than %d ranks", 1 << 24);
    }
    return WEFT_OK;
}

static weft_status check_copies(const weft_plan *p)
{
    if (weft_plan_lane_ranks(p) % weft_plan_copies(p) == 0) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "copies=%d does not divide %s=%d", p->strategy.copies,
                     p->axis[p->lane_axis].name, weft_plan_lane_ranks(p));
}

static weft_status check_batch(const weft_plan *p)
{
    const weft_plan_of *o = &p->of;
    if (o->batch < 1 || o->micro_batch < 1 || o->seq < 0 || o->lanes < 1)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "batch, seq, micro_batch and lanes are whole numbers from 1");
    if (o->batch % o->micro_batch)
        return WEFT_FAIL(WEFT_ERR_ARG, "micro_batch %lld does not divide batch %lld",
                         (long long)o->micro_batch, (long long)o->batch);
    if (o->lanes & (o->lanes - 1))
        return WEFT_FAIL(WEFT_ERR_ARG, "lanes %lld is not a power of two",
                         (long long)o->lanes);
    if (o->lanes > o->batch / o->micro_batch)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "lanes %lld is more than the %lld micro-batches of a step",
                         (long long)o->lanes, (long long)(o->batch / o->micro_batch));
    int need = 1;
    while (need < weft_plan_lane_ranks(p)) need *= 2;
    if (need > o->batch)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s=%d needs a batch of at least %d, not %lld: take a larger one, "
            "or fewer ranks along %s",
            p->axis[p->lane_axis].name, weft_plan_lane_ranks(p), need,
            (long long)o->batch, p->axis[p->lane_axis].name);
    if (weft_plan_lane_ranks(p) > o->lanes)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s=%d is more than the %lld lanes of the gradient's sum; set lanes to "
            "at least %d (and micro_batch to at most %lld)",
            p->axis[p->lane_axis].name, weft_plan_lane_ranks(p), (long long)o->lanes,
            need, (long long)(o->batch / need));
    return WEFT_OK;
}

static weft_status check_split(const weft_plan *p)
{
    int64_t sum = 0;
    if (!p->share) return WEFT_OK;
    if (p->lane_axis < 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "batch_split is of the lane axis, and there is none");
    const weft_mesh_axis *a = &p->axis[p->lane_axis];
    for (int k = 0; k < a->size; k++) {
        if (p->share[k] < 1)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "batch_split: %s %d has %d lanes: at least 1, or fewer ranks", a->name, k,
                p->share[k]);
        sum += p->share[k];
    }
    if (sum != p->of.lanes)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "batch_split has %lld lanes, but the gradient's sum has %lld (lanes)",
            (long long)sum, (long long)p->of.lanes);
    return WEFT_OK;
}

static weft_status check_stages(const weft_plan *p)
{
    int n = p->strategy.pp * p->strategy.chunks;
    for (int i = 1; i < n; i++)
        if (!p->first[i] || !p->first[i][0])
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "stage %d: first is missing: the value it begins with", i);
    for (int i = 1; i < n; i++)
        for (int k = 1; k < i; k++)
            if (!strcmp(p->first[i], p->first[k]))
                return WEFT_FAIL(
                    WEFT_ERR_ARG,
                    "stages %d and %d both begin with %s: a stage without layers", k, i,
                    p->first[i]);
    return WEFT_OK;
}

static weft_status check_marks(const weft_plan *p)
{
    for (int i = 0; i < p->n_mark; i++) {
        const weft_mark *k    = &p->mark[i];
        uint32_t         seen = 0;
        for (int s = 0; s < k->layout.n; s++) {
            int a = k->layout.split[s].axis;
            if (a < 0 || a >= p->n_axis)
                return WEFT_FAIL(WEFT_ERR_ARG, "mark on %s: no such axis", k->name);
            if (seen >> a & 1)
                return WEFT_FAIL(WEFT_ERR_ARG, "mark on %s: axis %s cuts it twice",
                                 k->name, p->axis[a].name);
            seen |= 1u << a;
        }
    }
    return WEFT_OK;
}

static weft_status check_devices(const weft_plan *p)
{
    const weft_plan_machines *m = &p->machines;
    if (m->n_device && m->n_device != weft_plan_world(p))
        return WEFT_FAIL(WEFT_ERR_ARG, "devices has %d numbers for %d ranks", m->n_device,
                         weft_plan_world(p));
    return WEFT_OK;
}

weft_status weft_plan_verify(const weft_plan *p)
{
    if (p->strategy.pp < 1 || p->strategy.pp > 1 << 16 || p->strategy.chunks < 1 ||
        p->strategy.chunks > 1 << 16)
        return WEFT_FAIL(WEFT_ERR_ARG, "stages: from 1 to 65536 ranks and chunks");
    if (p->lane_axis < -1 || p->lane_axis >= p->n_axis)
        return WEFT_FAIL(WEFT_ERR_ARG, "lane_axis: no such axis");
    if (p->strategy.zero < 0 || p->strategy.zero > 3)
        return WEFT_FAIL(WEFT_ERR_ARG, "zero: %d is not 0 to 3", p->strategy.zero);
    if (p->strategy.overlap_param_gather &&
        (p->strategy.zero < 1 || p->strategy.zero > 2))
        return WEFT_FAIL(WEFT_ERR_ARG, "overlap_param_gather: it goes with zero 1 or 2");
    WEFT_TRY(check_axes(p));
    WEFT_TRY(check_copies(p));
    WEFT_TRY(check_batch(p));
    WEFT_TRY(check_split(p));
    WEFT_TRY(check_stages(p));
    WEFT_TRY(check_marks(p));
    if (p->predicted.n_mem && p->predicted.n_mem != weft_plan_world(p))
        return WEFT_FAIL(WEFT_ERR_ARG, "predicted.mem_bytes has %d numbers for %d ranks",
                         p->predicted.n_mem, weft_plan_world(p));
    return check_devices(p);
}

/* ---- is it for this job? ---- */

weft_status weft_plan_check(const weft_plan *p, const char *where,
                            const weft_plan_of *want, int world)
{
    const weft_plan_of *o = &p->of;
    const struct {
        const char *name;
        int64_t     is, want;
    } number[] = {{"batch", o->batch, want->batch},
                  {"seq", o->seq, want->seq},
                  {"micro_batch", o->micro_batch, want->micro_batch},
                  {"lanes", o->lanes, want->lanes}};
    if (world && weft_plan_world(p) != world)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s is a plan for %d ranks, but there %s %d; weft run "
                         "--nproc-per-node %d starts them on one host",
                         where, weft_plan_world(p), world == 1 ? "is" : "are", world,
                         weft_plan_world(p));
    for (size_t i = 0; i < WEFT_COUNT(number); i++)
        if (number[i].is != number[i].want)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s is a plan of another job: %s is %lld there and %lld "
                             "here; set %s=%lld, or --print-plan without plan= makes one",
                             where, number[i].name, (long long)number[i].is,
                             (long long)number[i].want, number[i].name,
                             (long long)number[i].is);
    if (o->reduction != want->reduction)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s is a plan of another job: reduction is %s there and %s here; "
            "set reduction=%s",
            where, weft_reduction_name(o->reduction),
            weft_reduction_name(want->reduction), weft_reduction_name(o->reduction));
    if (o->graph_hash != want->graph_hash)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s is a plan of another model: graph %016llx (%s) there, %016llx (%s) here",
            where, (unsigned long long)o->graph_hash, o->model,
            (unsigned long long)want->graph_hash, want->model);
    if (o->dtype && want->dtype && strcmp(o->dtype, want->dtype))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s is a plan of another job: dtype is %s there and %s here; "
                         "set dtype=%s, or plan with --precision %s",
                         where, o->dtype, want->dtype, o->dtype, want->dtype);
    if (o->kernels && want->kernels && strcmp(o->kernels, want->kernels))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s is a plan of another build: kernels '%s' there, '%s' here; without its "
            "line \"kernels\" any build takes it",
            where, o->kernels, want->kernels);
    return WEFT_OK;
}

weft_status weft_plan_check_machines(const weft_plan *p, const char *where,
                                     const weft_plan_machines *have, bool *warn)
{
    const weft_plan_machines *m = &p->machines;
    *warn                       = false;
    if (weft_plan_world(p) > have->n_device)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s is a plan for %d ranks, but %s has %d devices",
                         where, weft_plan_world(p), have->name, have->n_device);
    if (!m->name) return WEFT_OK;
    if (m->shape != have->shape)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s is a plan for other machines: %s there, %s here; weft plan "
                         "makes one for these",
                         where, m->name, have->name);
    *warn = m->constants != have->constants;
    return WEFT_OK;
}

/* ---- on a graph ---- */

weft_status weft_plan_cuts(const weft_plan *p, const weft_graph *g, int *cut)
{
    int before = 0;
    for (int k = 1; k < p->strategy.pp * p->strategy.chunks; k++) {
        weft_vid v = weft_graph_find(g, p->first[k]);
        int      n = v < 0 ? -1 : g->value[v].node;
        if (n < 0 || g->node[n].phase != WEFT_PHASE_FORWARD)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "plan: stage %d begins with %s, which %s does not compute going forward",
                k, p->first[k], g->name);
        if (n <= before)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "plan: stage %d begins with %s, not behind where stage %d "
                             "begins: a stage "
                             "without layers",
                             k, p->first[k], k - 1);
        cut[k - 1] = before = n;
    }
    return WEFT_OK;
}

weft_status weft_plan_check_marks(const weft_plan *p, const weft_graph *g)
{
    for (int i = 0; i < p->n_mark; i++) {
        const weft_mark *k = &p->mark[i];
        int              n = 0;
        for (weft_vid v = -1; (v = weft_mark_next(k, g, v + 1)) >= 0; n++)
            if (g->value[v].type.shape.n != k->layout.n_dim)
                return WEFT_FAIL(
                    WEFT_ERR_ARG, "plan: mark on %s has %d dimensions, %s has %d",
                    k->name, k->layout.n_dim, g->value[v].name, g->value[v].type.shape.n);
        if (!n)
            return WEFT_FAIL(WEFT_ERR_ARG, "plan: mark on %s: graph %s has no such value",
                             p->mark[i].name, g->name);
    }
    return WEFT_OK;
}

weft_status weft_plan_shard(const weft_plan *p, const weft_graph *g, weft_arena *a,
                            weft_shard_options *out)
{
    weft_mesh *m = WEFT_ARENA_NEW(a, weft_mesh);
    if (!m) return weft_arena_status(a);
    WEFT_TRY(weft_plan_check_marks(p, g));
    WEFT_TRY(weft_mesh_make(a, "stage", p->n_axis, p->axis, 0, m));
    *out = (weft_shard_options){
        .n_mesh = 1, .mesh = m, .n_mark = p->n_mark, .mark = p->mark};
    if (p->lane_axis >= 0) out->lanes = 1u << p->lane_axis;
    if (weft_plan_copies(p) == 1) return WEFT_OK;
    return weft_shard_split_lanes(out, p->lane_axis, weft_plan_copies(p), a);
}

bool weft_plan_lanes_only(const weft_plan *p, const weft_graph *g)
{
    for (int i = 0; i < p->n_mark; i++) {
        const weft_layout *l = &p->mark[i].layout;
        for (int s = 0; s < l->n; s++) {
            weft_vid v = weft_graph_find(g, p->mark[i].name);
            if (p->axis[l->split[s].axis].size == 1) continue;
            if (v < 0 || g->value[v].kind != WEFT_VALUE_INPUT || l->split[s].dim != 0 ||
                l->split[s].axis != p->lane_axis)
                return false;
        }
    }
    return weft_plan_lane_ranks(p) == weft_plan_places(p);
}
