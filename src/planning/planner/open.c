/* What a search needs, out of a question: machines, sizes, rows. */
#include <string.h>

#include "engine/engine.h"
#include "planner/planner_priv.h"
#include "planner/rows.h"

enum {
    MANY      = 32,   /* devices */
    FEW       = 3,    /* candidates to check on these */
    THOUSANDS = 2048, /* devices on which one is, unless another may be faster */
    /* kernels' scratch, messages, the program itself: below 40 MiB in every run of the tests */
    PROCESSOR_BYTES = 64 << 20
};

/* Measured steps over what weft's programs take by its prices with the same plan on the same GPUs,
 * the 95 % quantile: 34 steps of Megatron-LM, torchtitan and PyTorch on A100, H100 and H200, each
 * simulated as a program of ours (bench/predict/own.py, bench/results/own-gpu-2026-11-16.csv:
 * median 1.33).  Until weft has been timed there its steps may be as long.  The lower end stays
 * that of prices alone: one of the 34 was shorter, by 3 %. */
#define LONGEST_UNTIMED 2.0

static const char *engine_of(const weft_planner_workspace *w)
{
    return w->request.engine ? w->request.engine : "weft";
}

bool weft_planner__is_ours(const weft_planner_workspace *w)
{
    return !strcmp(engine_of(w), "weft");
}

/* Was it timed there: by a calibration through the plugin, which runs steps of its own? */
static bool is_timed(const weft_cluster *c, int device)
{
    int n;
    return weft_cluster_is_cpu(&c->device[device]) ||
           weft_cluster_timings_like(c, device, "matmul", &n);
}

bool weft_planner_has_run_on(const weft_cluster *c)
{
    for (int i = 0; i < c->n_node; i++)
        if (!is_timed(c, c->node[i].device)) return false;
    return true;
}

void weft_planner_print_never_ran(const weft_cluster *c, weft_text *t)
{
    const char *glue = "weft was not timed on these GPUs (";
    for (int i = 0; i < c->n_device; i++) {
        bool used = false;
        for (int k = 0; k < c->n_node; k++) used = used || c->node[k].device == i;
        if (!used || is_timed(c, i)) continue;
        weft_text_add(t, "%s%s", glue, c->device[i].name);
        glue = ", ";
    }
    if (glue[0] == ',')
        weft_text_add(
            t,
            "): weft cluster calibrate times it; without, measured steps of other "
            "engines took up to %g times what is simulated of the same plans",
            LONGEST_UNTIMED);
}

/* Ours, planned for devices that it never ran on: all but CPUs. */
static bool is_untimed(const weft_planner_workspace *w)
{
    return weft_planner__is_ours(w) && !weft_planner_has_run_on(w->request.cluster);
}

bool weft_planner__ran_there(const weft_planner_workspace *w)
{
    const weft_cluster *c = w->request.cluster;
    if (weft_planner__is_ours(w)) return !is_untimed(w);
    for (int i = 0; i < c->n_node; i++)
        if (!weft_cost_was_measured(w->constants, w->config.framework,
                                    c->device[c->node[i].device].name))
            return false;
    return true;
}

void weft_planner_print_untimed(const weft_planner_workspace *w, weft_text *t)
{
    if (weft_planner__is_ours(w))
        weft_planner_print_never_ran(w->request.cluster, t);
    else
        weft_engine_tell_unmeasured(w->request.cluster, w->constants, w->config.framework,
                                    t);
}

/* The name that the engine's constants stand under. */
static const char *framework_of(const weft_planner_workspace *w)
{
    const char *e = engine_of(w);
    return !strcmp(e, "megatron")    ? "Megatron-Core"
           : !strcmp(e, "deepspeed") ? "DeepSpeed"
                                     : e;
}

/* What all of the devices do of 16 bits, else 32. */
static const char *usual_precision(const weft_search_machines *m)
{
    const char *out = "bf16";
    for (int i = 0; i < m->n; i++) {
        bool bf16 = false, f16 = false;
        for (int r = 0; r < m->kind[i].device.n_rate; r++) {
            bf16 = bf16 || !strcmp(m->kind[i].rate[r].dtype, "bf16");
            f16  = f16 || !strcmp(m->kind[i].rate[r].dtype, "f16");
        }
        if (!bf16 && f16 && strcmp(out, "fp32")) out = "fp16";
        if (!bf16 && !f16) out = "fp32";
    }
    return out;
}

int64_t weft_planner__engine_bytes(const weft_planner_workspace *w,
                                   const weft_device_kind       *d)
{
    weft_cost_engine usual;
    if (w->request.engine_bytes > 0) return w->request.engine_bytes;
    if (weft_cluster_is_cpu(d)) return PROCESSOR_BYTES;
    weft_cost_constants_engine(w->constants, "weft", &usual);
    return (int64_t)usual.mem_fixed;
}

/* Our own engine plans its memory: what it needs besides is known, and the devices' reserve is not
 * planned with. */
static void set_engine_overheads(weft_planner_workspace *w)
{
    int64_t most = 0;
    for (int i = 0; i < w->machines.n; i++) {
        weft_device_kind *d = &w->machines.kind[i].device;
        int64_t           x = weft_planner__engine_bytes(w, d);
        if (x > most) most = x;
        d->mem_bytes = weft_cluster_usable_bytes(d);
    }
    w->problem.best_case = is_untimed(w);
    if (w->problem.best_case) w->problem.model.shape.engine.longest = LONGEST_UNTIMED;
    w->problem.model.shape.engine.mem_fixed = (double)most;
    w->problem.model.shape.engine.mem_limit = 1;
    w->problem.model.shape.engine.expert_room =
        1; /* slabs are planned: no token may be dropped */
}

/* The kinds of nodes that layers are constrained to. */
static weft_status find_nodes(const weft_cluster *c, weft_search_constraints *p)
{
    for (int i = 0; i < p->n_on; i++) {
        weft_search_on *x    = &p->on[i];
        int             host = 0;
        if (x->node < 0) continue;
        if (x->node >= weft_cluster_n_node(c))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "layers %d..%d on node %d: the cluster has nodes 0 to %d",
                             x->first, x->last, x->node, weft_cluster_n_node(c) - 1);
        while (host + 1 < c->n_node && x->node >= c->node[host + 1].first_node) host++;
        x->host = host;
        for (int k = 0; k < c->n_health; k++)
            if (c->health[k].cordoned && x->node >= c->health[k].node &&
                x->node < c->health[k].node + c->health[k].n_node)
                return WEFT_FAIL(WEFT_ERR_ARG,
                                 "layers %d..%d on node %d: it is cordoned, or some of "
                                 "its devices are",
                                 x->first, x->last, x->node);
    }
    return WEFT_OK;
}

/* It is no part of the space: rows do not price it, simulation does. */
static weft_status set_overlap(const weft_planner_workspace *w,
                               weft_search_constraints      *p)
{
    int gather = weft_search_given(p, WEFT_KEY_overlap_param_gather);
    if (gather < 1) return WEFT_OK;
    if (w->request.fast || !weft_planner__is_ours(w))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "overlap_param_gather=%g: only plans of our own that are simulated have it, "
            "not those of --fast or of another engine",
            gather / 100.0);
    int zero = weft_search_given(p, WEFT_KEY_zero);
    if (zero < 0) weft_search_fix(p, WEFT_KEY_zero, 1);
    if (zero == 0 || zero > 2)
        return WEFT_FAIL(WEFT_ERR_ARG, "overlap_param_gather goes with zero=1 or zero=2");
    return WEFT_OK;
}

static weft_status set_constraints(const weft_planner_workspace *w,
                                   weft_search_constraints      *p)
{
    weft_reduction sums = weft_compile_reduction(&w->request.spec);
    *p                  = w->request.constraints;
    if (w->request.keep_bits && sums == WEFT_REDUCTION_INVARIANT) {
        weft_search_fix(p, WEFT_KEY_tp, 1);
        weft_search_fix(p, WEFT_KEY_cp, 1);
        weft_search_fix(p, WEFT_KEY_ep, 1);
        weft_search_fix(p, WEFT_KEY_sp, 0);
    }
    if (w->request.world > 0) p->world = w->request.world;
    if (w->request.spec.micro_batch > 0) {
        if (p->micro_batch > 0 && p->micro_batch != w->request.spec.micro_batch)
            return WEFT_FAIL(WEFT_ERR_ARG, "micro_batch=%d, but the job says %lld",
                             p->micro_batch, (long long)w->request.spec.micro_batch);
        p->micro_batch = (int)w->request.spec.micro_batch;
    }
    WEFT_TRY(set_overlap(w, p));
    return find_nodes(w->request.cluster, p);
}

static weft_status known_engine(const weft_planner_workspace *w)
{
    return weft_engine_know(w->constants, engine_of(w));
}

/* Kernels, casts and scales of 4 bits are not there: a price without them would be of another
 * engine.  CPUs round operands to fp8, GPUs multiply them in it. */
static weft_status check_precision(const weft_planner_workspace *w)
{
    const char *p    = w->config.precision;
    bool        ours = weft_planner__is_ours(w);
    if (ours && !strcmp(p, "fp4"))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "weft does not train in fp4: take --precision bf16 or fp8, or "
                         "plan for an engine that does, as with --engine megatron");
    for (int i = 0; i < w->machines.n; i++) {
        const weft_device_kind *d = &w->machines.kind[i].device;
        if (!ours || !weft_cluster_is_cpu(d)) WEFT_TRY(weft_engine_know_precision(d, p));
    }
    return WEFT_OK;
}

/* Sizes of a transformer; other engines know no other models. */
static weft_status describe(weft_planner_workspace *w, const weft_model *m)
{
    weft_config *c = &w->config;
    if (!weft_planner__is_ours(w)) WEFT_TRY(weft_engine_can_train(engine_of(w), m));
    WEFT_TRY(weft_engine_cluster(w->request.cluster, w->arena, c, &w->hardware));
    WEFT_TRY(weft_engine_model(m, w->arena, c));
    c->seq          = (int)m->seq;
    c->global_batch = (int)w->request.spec.batch;
    if (!strcmp(engine_of(w), "torchtitan"))
        c->features = "compile"; /* as it is emitted */
    c->tp = c->pp = c->cp = 1;
    return weft_config_complete("plan", c);
}

static weft_status open_ours(weft_planner_workspace *w, const weft_model *m,
                             const weft_search_limits *l)
{
    weft_compile_spec s = w->request.spec;
    s.dtype             = weft_compile_dtype_of(w->config.precision);
    s.recompute         = WEFT_STRATEGY_KEEP;
    s.reduction         = weft_compile_reduction(&s);
    w->is_rows          = true; /* programs, which say what is in fp8 */
    WEFT_TRY(
        weft_planner__priced(w->request.cluster, weft_planner__priced_as(w), &w->priced));
    const weft_cluster *c = w->priced ? w->priced : w->request.cluster;
    WEFT_TRY(weft_planner_machines(c, w->arena, &w->machines));
    WEFT_TRY(weft_planner_rows(&s, m, c, l, w->request.bucket_bytes, w->arena,
                               &w->problem.model));
    set_engine_overheads(w);
    return WEFT_OK;
}

/* Rows of programs take a program for each way to cut a layer: on many devices there are hundreds
 * of ways, and seconds of work.  Who is in a hurry gets a transformer's rows by its sizes there. */
static bool by_sizes(const weft_planner_workspace *w)
{
    return w->request.fast && weft_cluster_usable(w->request.cluster) > MANY;
}

/* Candidates to check: a check is the longer the more ranks there are. */
static int how_many(const weft_planner_workspace *w)
{
    int n = weft_cluster_usable(w->request.cluster);
    if (w->request.n_best > 0) return w->request.n_best;
    return n > THOUSANDS && !w->request.fast ? 1 : n > MANY && !w->request.fast ? FEW : 5;
}

static weft_status open_problem(weft_planner_workspace *w)
{
    w->problem = (weft_search_problem){.machines = &w->machines,
                                       .batch    = (int)w->request.spec.batch,
                                       .lanes    = (int)w->request.spec.lanes,
                                       .n_best   = how_many(w)};
    return set_constraints(w, &w->problem.constraints);
}

/* Other engines, and ours in a hurry: layer costs by the sizes of a transformer. */
static weft_status open_sizes(weft_planner_workspace *w, const weft_search_limits *l)
{
    WEFT_TRY(weft_search_transformer(&w->config, w->constants, l, w->arena,
                                     &w->problem.model));
    if (weft_planner__is_ours(w)) {
        set_engine_overheads(w);
        return WEFT_OK;
    }
    for (int i = 0; i < w->machines.n; i++)
        weft_cost_widen(w->constants, w->config.framework,
                        w->machines.kind[i].device.name, &w->problem.model.shape.engine);
    return WEFT_OK;
}

weft_status weft_planner__open(weft_planner_workspace *w)
{
    weft_search_limits l  = weft_search_limits_of(engine_of(w));
    weft_model        *m  = NULL;
    weft_config       *c  = &w->config;
    weft_status        st = WEFT_OK;
    weft_engine_open(c);
    WEFT_TRY(weft_cost_constants_create(&w->constants));
    WEFT_TRY(known_engine(w));
    WEFT_TRY(weft_search_machines_of(w->request.cluster, w->constants, w->arena,
                                     &w->machines));
    weft_compile_spec one = w->request.spec;
    one.batch = one.micro_batch = 1;
    WEFT_TRY(weft_compile_model(&one, &m));
    w->flops     = weft_model_flops(m);
    c->framework = framework_of(w);
    c->precision = w->request.precision    ? w->request.precision
                   : w->request.spec.dtype ? w->request.spec.dtype
                                           : usual_precision(&w->machines);
    c->seq       = (int)m->seq;
    WEFT_GO(check_precision(w));
    WEFT_GO(open_problem(w));
    if (weft_planner__is_ours(w) && by_sizes(w) && describe(w, m) == WEFT_OK) {
        WEFT_GO(open_sizes(w, &l));
    } else if (weft_planner__is_ours(w)) {
        WEFT_GO(open_ours(w, m, &l));
    } else {
        WEFT_GO(describe(w, m));
        WEFT_GO(open_sizes(w, &l));
    }
out:
    weft_model_destroy(m);
    return st;
}

weft_status weft_planner__open_part(weft_planner_workspace *w, const weft_cluster *c,
                                    weft_planner_workspace *part)
{
    part->request           = w->request;
    part->request.cluster   = c;
    part->request.world     = 0;
    part->request.was       = NULL;
    part->request.with_plan = part->request.with_timeline = false;
    part->constants                                       = w->constants;
    part->hardware                                        = w->hardware;
    part->config                                          = w->config;
    part->flops                                           = w->flops;
    part->is_rows                                         = w->is_rows;
    part->borrows                                         = true;
    WEFT_TRY(open_problem(part));
    part->problem.model = w->problem.model;
    if (!w->is_rows) {
        WEFT_TRY(weft_search_machines_of(c, w->constants, part->arena, &part->machines));
        if (weft_planner__is_ours(w)) set_engine_overheads(part);
        return WEFT_OK;
    }
    WEFT_TRY(weft_planner__priced(c, weft_planner__priced_as(w), &part->priced));
    WEFT_TRY(weft_planner_machines(part->priced ? part->priced : c, part->arena,
                                   &part->machines));
    set_engine_overheads(part);
    return WEFT_OK;
}

weft_status weft_planner_name_machines(const weft_cluster *c, weft_arena *a,
                                       weft_plan_machines *out)
{
    weft_text t = {0};
    for (int i = 0; i < c->n_node; i++) {
        const weft_host_kind *k = &c->node[i];
        weft_text_add(&t, "%s%d x (%d x %s)", i ? " + " : "", k->count, k->n_device,
                      c->device[k->device].name);
    }
    *out           = (weft_plan_machines){.name      = weft_arena_strdup(a, t.s ? t.s : ""),
                                          .shape     = weft_cluster_hash_shape(c),
                                          .constants = weft_cluster_hash_constants(c),
                                          .n_device  = weft_cluster_usable(c)};
    weft_status st = weft_text_status(&t);
    weft_text_fini(&t);
    return st == WEFT_OK ? weft_arena_status(a) : st;
}
