/* The plan of a job: from its keys or its file, for the ranks there are. */
#include <stdio.h>
#include <string.h>

#include "session/job_priv.h"
#include "session/session_priv.h"

/* Keys as the shorthand's words.  Without mesh and pp: all ranks are data parallel. */
static weft_status read_words(const weft_job *j, int world, weft_shorthand *out)
{
    const weft_job_plan *p = &j->plan;
    char                 text[1500];
    int                  n = 0;
    if (p->mesh && strlen(p->mesh) > 400)
        return WEFT_FAIL(WEFT_ERR_ARG, "mesh: more than 400 characters");
    if (p->mesh && strpbrk(p->mesh, " \t\n"))
        return WEFT_FAIL(WEFT_ERR_ARG, "mesh: '%s' has blanks; write dp=2,tp=2", p->mesh);
    if (p->mesh)
        n = snprintf(text, sizeof text, "mesh=%s ", p->mesh);
    else if (p->pp == 1)
        n = snprintf(text, sizeof text, "mesh=dp=%d ", world ? world : 1);
    if (p->shares && (strlen(p->shares) > 400 || strpbrk(p->shares, " \t\n")))
        return WEFT_FAIL(WEFT_ERR_ARG, "shares: '%.40s': write 3,1", p->shares);
    if (p->whole && (strlen(p->whole) > 400 || strpbrk(p->whole, " \t\n")))
        return WEFT_FAIL(WEFT_ERR_ARG, "whole: '%.40s': write input,0..3,head", p->whole);
    snprintf(text + n, sizeof text - (size_t)n,
             "pp=%lld zero=%lld later=%lld sp=%lld ring=%lld%s%s%s%s", (long long)p->pp,
             (long long)p->zero, (long long)p->later, (long long)p->sp,
             (long long)p->ring, p->shares ? " shares=" : "", p->shares ? p->shares : "",
             p->whole ? " whole=" : "", p->whole ? p->whole : "");
    return weft_shorthand_parse(text, out);
}

/* Where the job does not cut the batch: one micro-batch a step for each stage of each pipeline. */
static weft_status cut_batch(weft_job *j, const weft_shorthand *h)
{
    int     lane = weft_shorthand_lane_axis(h);
    int64_t n = (lane < 0 ? 1 : h->axis[lane].size) * (int64_t)h->pp, lanes = 1;
    if (h->n_share && !j->given_lanes) {
        j->lanes       = weft_shorthand_lanes(h);
        j->given_lanes = true;
    }
    if (j->given_micro_batch) return weft_job__check_cut(j);
    if (lane >= 0 && n > 1) { /* lanes are a power of two, at least dp of them */
        while (lanes < h->axis[lane].size || lanes < weft_shorthand_lanes(h)) lanes *= 2;
        if (j->batch % (lanes * h->pp) == 0) n = lanes * h->pp;
    }
    if (j->given_lanes && n < j->lanes && j->batch % (j->lanes * h->pp) == 0)
        n = j->lanes * h->pp;
    if (j->batch < lanes)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "dp=%d needs a batch of at least %lld, not %lld: take a larger one, "
            "fewer ranks, or tp, cp or pp for some of them",
            h->axis[lane].size, (long long)lanes, (long long)j->batch);
    if (j->batch % n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "batch %lld is no multiple of %lld (dp * pp); set micro_batch",
                         (long long)j->batch, (long long)n);
    j->micro_batch = j->batch / n;
    return weft_job__check_cut(j);
}

/* A plan file says how the batch is cut where the job does not. */
weft_status weft_session__take_cut(weft_job *j, const weft_plan *p)
{
    if (!j->given_micro_batch) j->micro_batch = p->of.micro_batch;
    if (!j->given_lanes) j->lanes = p->of.lanes;
    j->given_micro_batch = j->given_lanes = true;
    if (strcmp(j->recompute, "none") && strcmp(j->recompute, p->recompute))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "recompute is %s, but the plan %s says %s; set recompute=%s",
                         j->recompute, j->plan.file ? j->plan.file : "made here",
                         p->recompute, p->recompute);
    j->recompute = p->recompute;
    return weft_job__check_cut(j);
}

weft_status weft_session__plan_open(weft_job *j, int world, weft_shorthand *h,
                                    weft_plan **file)
{
    *file = NULL;
    if (j->plan.file) {
        WEFT_TRY(weft_plan_load(j->plan.file, file));
        if (world && weft_plan_world(*file) != world)
            return weft_plan_check(*file, j->plan.file, &(*file)->of, world);
        return weft_session__take_cut(j, *file);
    }
    WEFT_TRY(read_words(j, world, h));
    if (world && weft_shorthand_world(h) != world) {
        weft_text t = {0};
        weft_shorthand_print(h, &t);
        weft_status st =
            WEFT_FAIL(WEFT_ERR_ARG,
                      "%s makes %d ranks, but there %s %d; weft run --nproc-per-node %d "
                      "starts them on one host",
                      t.s ? t.s : "the plan", weft_shorthand_world(h),
                      world == 1 ? "is" : "are", world, weft_shorthand_world(h));
        weft_text_fini(&t);
        return st;
    }
    return cut_batch(j, h);
}

weft_status weft_session__plan_make(const weft_training *t, const weft_job *j, int world,
                                    const weft_shorthand *h, weft_plan **p)
{
    weft_plan_of of;
    if (!*p)
        return weft_compile_plan(t, h, j->plan.schedule, (int)j->plan.chunks, world, p);
    weft_compile_plan_of(t, &of);
    of.kernels = weft_session__kernel_set();
    return weft_plan_check(*p, j->plan.file, &of, world);
}
