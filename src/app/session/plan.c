/* The plan of a job: from its keys or its file, for the ranks there are. */
#include <string.h>

#include "base/lanes.h"
#include "session/plans_priv.h"

/* Without dp, tp, cp, ep and pp all ranks are data parallel. */
static weft_status complete_strategy(const weft_job *j, int world, weft_strategy *out)
{
    *out = j->strategy;
    if (out->pp == 1 && !out->dp && !out->tp && !out->cp && !out->ep)
        out->dp = world ? world : 1;
    return weft_strategy_check(out);
}

/* More data-parallel ranks than the lanes that the job gives: where sums may follow the plan it
 * gets as many as are needed, and where a step has too few micro-batches for them a smaller one. */
static void raise_lanes(weft_job *j, const weft_strategy *y)
{
    int64_t lanes = weft_lanes_default(y->dp, j->batch);
    if (weft_job_is_invariant(j) || !j->given_lanes || y->n_batch_split ||
        y->dp <= j->lanes || lanes < y->dp)
        return;
    j->lanes = lanes;
    if (j->given_micro_batch)
        j->micro_batch = weft_lanes_fit_micro(j->batch, j->micro_batch, lanes);
}

/* Where the job does not cut the batch: one micro-batch a step for each stage of each pipeline. */
static weft_status cut_batch(weft_job *j, const weft_strategy *y)
{
    int64_t n = (y->dp ? y->dp : 1) * (int64_t)y->pp, lanes = 1;
    if (y->n_batch_split && !j->given_lanes) {
        j->lanes       = weft_strategy_lanes(y);
        j->given_lanes = true;
    }
    raise_lanes(j, y);
    if (j->given_micro_batch) return weft_job_check_cut(j, y->dp);
    if (y->dp && n > 1) { /* lanes are a power of two, at least dp of them */
        lanes = weft_strategy_lanes(y);
        if (!lanes) lanes = weft_lanes_default(y->dp, INT32_MAX);
        if (j->batch % (lanes * y->pp) == 0) n = lanes * y->pp;
    }
    if (j->given_lanes && n < j->lanes && j->batch % (j->lanes * y->pp) == 0)
        n = j->lanes * y->pp;
    if (j->batch < lanes)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "dp=%d needs a batch of at least %lld, not %lld: take a larger one, "
            "fewer ranks, or tp, cp or pp for some of them",
            y->dp, (long long)lanes, (long long)j->batch);
    if (j->batch % n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "batch %lld is no multiple of %lld (dp * pp); set micro_batch",
                         (long long)j->batch, (long long)n);
    j->micro_batch = j->batch / n;
    return weft_job_check_cut(j, y->dp);
}

/* A plan file says how the batch is cut and in which order gradients are summed, where the job
 * does not. */
weft_status weft_session__take_cut(weft_job *j, const weft_plan *p)
{
    if (!j->given_micro_batch) j->micro_batch = p->of.micro_batch;
    if (!j->given_lanes) j->lanes = p->of.lanes;
    if (!strcmp(j->reduction, "auto"))
        j->reduction = weft_reduction_name(p->of.reduction);
    j->given_micro_batch = j->given_lanes = true;
    const char *there                     = weft_strategy_recompute_name(&p->strategy);
    if (j->strategy.recompute && j->strategy.recompute != p->strategy.recompute)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "recompute is %s, but the plan %s says %s; set recompute=%s",
                         weft_strategy_recompute_name(&j->strategy),
                         j->plan_file ? j->plan_file : "made here", there, there);
    if (j->strategy.offload && !p->strategy.offload)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "offload is optimizer, but the plan %s says none; set offload=none",
            j->plan_file ? j->plan_file : "made here");
    if (j->plan_file && j->strategy.copies > 1 &&
        j->strategy.copies != p->strategy.copies)
        return WEFT_FAIL(
            WEFT_ERR_ARG, "copies is %d, but the plan %s says %d; set copies=%d",
            j->strategy.copies, j->plan_file, p->strategy.copies, p->strategy.copies);
    if (j->plan_file) j->strategy.copies = p->strategy.copies;
    j->strategy.recompute = p->strategy.recompute;
    j->strategy.offload   = p->strategy.offload;
    return weft_job_check_cut(j, p->strategy.dp);
}

weft_status weft_session__plan_open(weft_job *j, int world, weft_strategy *y,
                                    weft_plan **file)
{
    *file = NULL;
    if (j->plan_file) {
        WEFT_TRY(weft_plan_load(j->plan_file, file));
        if (world && weft_plan_world(*file) != world)
            return weft_plan_check(*file, j->plan_file, &(*file)->of, world);
        return weft_session__take_cut(j, *file);
    }
    WEFT_TRY(complete_strategy(j, world, y));
    if (world && weft_strategy_world(y) != world) {
        weft_text t = {0};
        weft_strategy_print(y, &t);
        weft_status st =
            WEFT_FAIL(WEFT_ERR_ARG,
                      "%s makes %d ranks, but there %s %d; weft run --nproc-per-node %d "
                      "starts them on one host",
                      t.s ? t.s : "the plan", weft_strategy_world(y),
                      world == 1 ? "is" : "are", world, weft_strategy_world(y));
        weft_text_fini(&t);
        return st;
    }
    return cut_batch(j, y);
}

weft_status weft_session__plan_make(const weft_training *t, const weft_job *j, int world,
                                    const weft_strategy *y, weft_plan **p)
{
    weft_plan_of of;
    if (!*p) return weft_compile_plan(t, y, world, p);
    weft_compile_plan_of(t, &of);
    of.kernels = strncmp(j->device, "cuda", 4) ? weft_session__kernel_set(j)
                                               : NULL; /* a warning, at the start */
    return weft_plan_check(*p, j->plan_file, &of, world);
}
