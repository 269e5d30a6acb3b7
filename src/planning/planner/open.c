/* What a search needs, out of a question: machines, sizes, rows. */
#include <string.h>

#include "engine/engine.h"
#include "planner/planner_priv.h"
#include "planner/rows.h"

enum {
    MANY            = 32,      /* devices */
    FEW             = 3,       /* candidates to check on these */
    THOUSANDS       = 2048,    /* devices on which one is, unless another may be faster */
    PROCESSOR_BYTES = 64 << 20 /* kernels' scratch, messages, the program itself: below 40
                                * MiB in every run of the tests */
};

/* Measured steps over what weft's programs take by its prices with the same plan on the same GPUs,
 * the 95 % quantile: 34 steps of Megatron-LM, torchtitan and PyTorch on A100, H100 and H200, each
 * simulated as a program of ours (bench/predict/own.py, bench/results/own-gpu-2026-11-16.csv:
 * median 1.33).  Until weft has been timed there its steps may be as long.  The lower end stays
 * that of prices alone: one of the 34 was shorter, by 3 %. */
#define LONGEST_UNTIMED 2.0

static const char *engine_of(const weft_planner_ask *q)
{
    return q->engine ? q->engine : "weft";
}

bool weft_planner__is_ours(const weft_planner_ask *q)
{
    return !strcmp(engine_of(q), "weft");
}

bool weft_planner_has_run_on(const weft_cluster *c)
{
    for (int i = 0; i < c->n_node; i++)
        if (!weft_cluster_is_cpu(&c->device[c->node[i].device])) return false;
    return true;
}

void weft_planner_print_never_ran(const weft_cluster *c, weft_text *t)
{
    const char *glue = "weft has not run on GPUs yet (";
    for (int i = 0; i < c->n_device; i++) {
        bool used = false;
        for (int k = 0; k < c->n_node; k++) used = used || c->node[k].device == i;
        if (!used || weft_cluster_is_cpu(&c->device[i])) continue;
        weft_text_add(t, "%s%s", glue, c->device[i].name);
        glue = ", ";
    }
    if (glue[0] == ',')
        weft_text_add(
            t,
            "): none of its steps has been timed there; measured steps of other "
            "engines took up to %g times what is simulated of the same plans",
            LONGEST_UNTIMED);
}

bool weft_planner__is_untimed(const weft_planner_ask *q)
{
    return weft_planner__is_ours(q) && !weft_planner_has_run_on(q->cluster);
}

bool weft_planner__ran_there(const weft_planner_ask *q, const weft_planner_answer *a)
{
    const weft_cluster *c = q->cluster;
    if (weft_planner__is_ours(q)) return !weft_planner__is_untimed(q);
    for (int i = 0; i < c->n_node; i++)
        if (!weft_cost_was_measured(a->constants, a->config.framework,
                                    c->device[c->node[i].device].name))
            return false;
    return true;
}

void weft_planner_print_untimed(const weft_planner_ask *q, const weft_planner_answer *a,
                                weft_text *t)
{
    if (weft_planner__is_ours(q))
        weft_planner_print_never_ran(q->cluster, t);
    else
        weft_engine_tell_unmeasured(q->cluster, a->constants, a->config.framework, t);
}

/* The name that the engine's constants stand under. */
static const char *framework_of(const weft_planner_ask *q)
{
    const char *e = engine_of(q);
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

int64_t weft_planner__engine_bytes(const weft_planner_ask    *q,
                                   const weft_planner_answer *a,
                                   const weft_device_kind    *d)
{
    weft_cost_engine usual;
    if (q->engine_bytes > 0) return q->engine_bytes;
    if (weft_cluster_is_cpu(d)) return PROCESSOR_BYTES;
    weft_cost_constants_engine(a->constants, "weft", &usual);
    return (int64_t)usual.mem_fixed;
}

/* Our own engine plans its memory: what it needs besides is known, and the devices' reserve is not
 * planned with. */
static void set_engine_overheads(const weft_planner_ask *q, weft_planner_answer *a)
{
    int64_t most = 0;
    for (int i = 0; i < a->machines.n; i++) {
        weft_device_kind *d = &a->machines.kind[i].device;
        int64_t           x = weft_planner__engine_bytes(q, a, d);
        if (x > most) most = x;
        d->mem_bytes = weft_cluster_usable_bytes(d);
    }
    a->problem.best_case = weft_planner__is_untimed(q);
    if (a->problem.best_case) a->problem.model.shape.engine.longest = LONGEST_UNTIMED;
    a->problem.model.shape.engine.mem_fixed = (double)most;
    a->problem.model.shape.engine.mem_limit = 1;
    a->problem.model.shape.engine.expert_room =
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
static weft_status set_overlap(const weft_planner_ask *q, weft_search_constraints *p)
{
    int gather = weft_search_given(p, WEFT_KEY_overlap_param_gather);
    if (gather < 1) return WEFT_OK;
    if (q->fast || !weft_planner__is_ours(q))
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

static weft_status set_constraints(const weft_planner_ask *q, weft_reduction reduction,
                                   weft_search_constraints *p)
{
    *p = q->constraints;
    if (q->keep_bits && reduction == WEFT_REDUCTION_INVARIANT) {
        weft_search_fix(p, WEFT_KEY_tp, 1);
        weft_search_fix(p, WEFT_KEY_cp, 1);
        weft_search_fix(p, WEFT_KEY_ep, 1);
        weft_search_fix(p, WEFT_KEY_sp, 0);
    }
    if (q->world > 0) p->world = q->world;
    if (q->spec.micro_batch > 0) {
        if (p->micro_batch > 0 && p->micro_batch != q->spec.micro_batch)
            return WEFT_FAIL(WEFT_ERR_ARG, "micro_batch=%d, but the job says %lld",
                             p->micro_batch, (long long)q->spec.micro_batch);
        p->micro_batch = (int)q->spec.micro_batch;
    }
    WEFT_TRY(set_overlap(q, p));
    return find_nodes(q->cluster, p);
}

static weft_status known_engine(const weft_planner_ask *q, const weft_planner_answer *a)
{
    return weft_engine_know(a->constants, engine_of(q));
}

/* Kernels, casts and scales of 8 and 4 bits are not there: a price without them would be of
 * another engine. */
static weft_status check_precision(const weft_planner_ask    *q,
                                   const weft_planner_answer *a)
{
    const char *p = a->config.precision;
    if (weft_planner__is_ours(q) && (!strcmp(p, "fp8") || !strcmp(p, "fp4")))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "weft does not train in %s yet: take --precision bf16, or plan "
                         "for an engine that does, as with --engine megatron",
                         p);
    for (int i = 0; i < a->machines.n; i++)
        WEFT_TRY(weft_engine_know_precision(&a->machines.kind[i].device, p));
    return WEFT_OK;
}

/* Sizes of a transformer; other engines know no other models. */
static weft_status describe(const weft_planner_ask *q, weft_planner_answer *a,
                            const weft_model *m)
{
    weft_config *c = &a->config;
    if (!weft_planner__is_ours(q)) WEFT_TRY(weft_engine_can_train(engine_of(q), m));
    WEFT_TRY(weft_engine_cluster(q->cluster, a->arena, c, &a->hardware));
    WEFT_TRY(weft_engine_model(m, a->arena, c));
    c->seq          = (int)m->seq;
    c->global_batch = (int)q->spec.batch;
    if (!strcmp(engine_of(q), "torchtitan"))
        c->features = "compile"; /* as it is emitted */
    c->tp = c->pp = c->cp = 1;
    return weft_config_complete("plan", c);
}

static weft_status open_ours(const weft_planner_ask *q, weft_planner_answer *a,
                             const weft_model *m, const weft_search_limits *l)
{
    weft_compile_spec s = q->spec;
    s.dtype             = strcmp(a->config.precision, "fp32") ? "bf16" : "fp32";
    s.recompute         = WEFT_STRATEGY_KEEP;
    s.reduction         = a->reduction;
    WEFT_TRY(weft_planner__priced(q, a->config.precision, &a->own_cluster));
    const weft_cluster *c = a->own_cluster ? a->own_cluster : q->cluster;
    WEFT_TRY(weft_planner_machines(c, a->arena, &a->machines));
    WEFT_TRY(weft_planner_rows(&s, m, c, l, a->arena, &a->problem.model));
    a->is_rows = true;
    set_engine_overheads(q, a);
    return WEFT_OK;
}

/* Rows of programs take a program for each way to cut a layer: on many devices there are hundreds
 * of ways, and seconds of work.  Who is in a hurry gets a transformer's rows by its sizes there. */
static bool by_sizes(const weft_planner_ask *q)
{
    return q->fast && weft_cluster_usable(q->cluster) > MANY;
}

/* Candidates to check: a check is the longer the more ranks there are. */
static int how_many(const weft_planner_ask *q)
{
    int n = weft_cluster_usable(q->cluster);
    if (q->n_best > 0) return q->n_best;
    return n > THOUSANDS && !q->fast ? 1 : n > MANY && !q->fast ? FEW : 5;
}

weft_status weft_planner__open(const weft_planner_ask *q, weft_planner_answer *a)
{
    weft_search_limits l  = weft_search_limits_of(engine_of(q));
    weft_model        *m  = NULL;
    weft_config       *c  = &a->config;
    weft_status        st = WEFT_OK;
    weft_engine_open(c);
    WEFT_TRY(weft_cost_constants_create(&a->constants));
    WEFT_TRY(known_engine(q, a));
    WEFT_TRY(weft_search_machines_of(q->cluster, a->constants, a->arena, &a->machines));
    weft_compile_spec one = q->spec;
    one.batch = one.micro_batch = 1;
    WEFT_TRY(weft_compile_model(&one, &m));
    a->flops     = weft_model_flops(m);
    c->framework = framework_of(q);
    c->precision = q->precision    ? q->precision
                   : q->spec.dtype ? q->spec.dtype
                                   : usual_precision(&a->machines);
    c->seq       = (int)m->seq;
    WEFT_GO(check_precision(q, a));
    a->problem = (weft_search_problem){.machines = &a->machines,
                                       .batch    = (int)q->spec.batch,
                                       .lanes    = (int)q->spec.lanes,
                                       .n_best   = how_many(q)};
    WEFT_GO(set_constraints(q, a->reduction, &a->problem.constraints));
    if (weft_planner__is_ours(q) && by_sizes(q) && describe(q, a, m) == WEFT_OK) {
        WEFT_GO(
            weft_search_transformer(c, a->constants, &l, a->arena, &a->problem.model));
        set_engine_overheads(q, a);
    } else if (weft_planner__is_ours(q)) {
        WEFT_GO(open_ours(q, a, m, &l));
    } else {
        WEFT_GO(describe(q, a, m));
        WEFT_GO(
            weft_search_transformer(c, a->constants, &l, a->arena, &a->problem.model));
        for (int i = 0; i < a->machines.n; i++)
            weft_cost_widen(a->constants, c->framework, a->machines.kind[i].device.name,
                            &a->problem.model.shape.engine);
    }
out:
    weft_model_destroy(m);
    return st;
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
