#include "session/gpu_memory.h"

#include <stdio.h>
#include <string.h>

#include "base/lanes.h"
#include "exec/exec.h"

weft_status weft_gpu_need(const weft_program *p, weft_device *d, weft_gpu_bytes *out)
{
    weft_gpu_bytes need = {.state = weft_program_bytes(p, WEFT_SLAB_STATE),
                           .work  = weft_program_bytes(p, WEFT_SLAB_WORK)};
    WEFT_TRY(weft_exec_need(p, d, NULL, &need.scratch));
    *out = need;
    return WEFT_OK;
}

int64_t weft_gpu_sum(const weft_gpu_bytes *x)
{
    return x->state + x->work + x->scratch;
}

weft_status weft_gpu_check_offload(int offload, const weft_device *d)
{
    if (!offload || !d || !d->host_access) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "offload=optimizer takes states from a GPU's memory to the host's: on "
        "device %s they are there already, leave it out",
        d->name);
}

/* ---- what would fit ---- */

static weft_status compile_trial(const weft_gpu_fit *f, int64_t *bytes)
{
    weft_training  t = {0};
    weft_compiled  c = {0};
    weft_plan     *p = NULL;
    weft_gpu_bytes need;
    weft_status    st = WEFT_OK;
    WEFT_GO(weft_compile_training(&f->spec, &t));
    if (f->strategy) WEFT_GO(weft_compile_plan(&t, f->strategy, f->n_rank, &p));
    WEFT_GO(weft_compile_program(&t, p, f->rank, &c));
    WEFT_GO(weft_gpu_need(c.program, f->device, &need));
    *bytes = weft_gpu_sum(&need);
out:
    weft_compiled_fini(&c);
    weft_plan_destroy(p);
    weft_training_fini(&t);
    return st;
}

static bool fits(weft_gpu_fit *f, int64_t have, int64_t *bytes)
{
    int64_t n_micro = f->spec.batch / f->spec.micro_batch;
    int     dp      = f->strategy ? f->strategy->dp : 1;
    if (f->spec.batch % f->spec.micro_batch) return false;
    if (!f->given_lanes) f->spec.lanes = weft_lanes_default(dp, n_micro);
    if (f->spec.lanes > n_micro) return false;
    return compile_trial(f, bytes) == WEFT_OK && *bytes <= have;
}

/* The largest micro-batch that fits; 0: none. */
static int64_t find_micro_batch(const weft_gpu_fit *f, int64_t have)
{
    int64_t bytes;
    for (int64_t m = f->spec.micro_batch / 2; m > 0; m /= 2) {
        while (f->spec.batch % m) m--;
        weft_gpu_fit x     = *f;
        x.spec.micro_batch = m;
        if (fits(&x, have, &bytes)) return m;
    }
    return 0;
}

/* The least recomputation that fits; NULL: none. */
static const char *find_recompute(const weft_gpu_fit *f, int64_t have, int64_t *bytes)
{
    for (int r = (int)f->spec.recompute + 1; r <= WEFT_STRATEGY_FULL; r++) {
        weft_gpu_fit  x = *f;
        weft_strategy y = f->strategy ? *f->strategy : weft_strategy_default();
        y.recompute     = r;
        if (f->strategy) x.strategy = &y;
        x.spec.recompute = (weft_strategy_recompute)r;
        if (fits(&x, have, bytes)) return weft_strategy_recompute_name(&y);
    }
    return NULL;
}

/* Does it fit with the optimizer's states in the host's memory? */
static bool fits_offloaded(const weft_gpu_fit *f, int64_t have, int64_t *bytes)
{
    weft_gpu_fit  x = *f;
    weft_strategy y = f->strategy ? *f->strategy : weft_strategy_default();
    if (f->strategy ? y.offload : (int)f->spec.offload) return false;
    y.offload = WEFT_OFFLOAD_OPTIMIZER;
    if (f->strategy) x.strategy = &y;
    x.spec.offload = WEFT_OFFLOAD_OPTIMIZER;
    return fits(&x, have, bytes);
}

enum {
    MOST_GPUS = 8
};

/* The fewest data-parallel GPUs like this one that do; *zero: with their states sharded.  0: none
 * of up to eight. */
static int find_gpus(const weft_gpu_fit *f, int64_t have, bool *zero)
{
    int64_t bytes;
    for (int n = 2; n <= MOST_GPUS && !f->keeps_ranks; n *= 2)
        for (int z = 0; z <= 3; z += 3) {
            weft_strategy y = weft_strategy_default();
            weft_gpu_fit  x = *f;
            if (f->spec.batch % n) continue;
            y.dp          = n;
            y.zero        = z;
            y.recompute   = (int)f->spec.recompute;
            y.offload     = (int)f->spec.offload;
            x.strategy    = &y;
            x.n_rank      = n;
            x.rank        = 0;
            x.given_lanes = false;
            if (x.spec.micro_batch > f->spec.batch / n)
                x.spec.micro_batch = f->spec.batch / n;
            *zero = z > 0;
            if (fits(&x, have, &bytes)) return n;
        }
    return 0;
}

/* GB with one digit, more where that would be 0. */
typedef struct gb {
    char text[24];
} gb;

static gb print_gb(int64_t bytes)
{
    gb x;
    snprintf(x.text, sizeof x.text, "%.*f", bytes && bytes < 100000000 ? 4 : 1,
             1e-9 * (double)bytes);
    return x;
}

void weft_gpu_find_remedies(const weft_gpu_fit *f, int64_t have, weft_gpu_remedies *out)
{
    size_t  size  = sizeof out->text[0];
    int64_t bytes = 0, m = f->keeps_micro_batch ? 0 : find_micro_batch(f, have);
    bool    zero = false;
    *out         = (weft_gpu_remedies){0};
    if (m)
        snprintf(out->text[out->n++], size, "%s%lld",
                 f->as_options ? "--micro-batch " : "micro_batch=", (long long)m);
    const char *recompute = find_recompute(f, have, &bytes);
    if (recompute)
        snprintf(out->text[out->n++], size, "%s%s (needs %s)",
                 f->as_options ? "--recompute " : "recompute=", recompute,
                 print_gb(bytes).text);
    if (fits_offloaded(f, have, &bytes))
        snprintf(out->text[out->n++], size, "%s (needs %s)",
                 f->as_options ? "--offload optimizer" : "offload=optimizer",
                 print_gb(bytes).text);
    int n = find_gpus(f, have, &zero);
    if (n)
        snprintf(out->text[out->n++], size, "%d GPUs%s", n, zero ? " with zero=3" : "");
}

/* ---- the line ---- */

static void join_remedies(const weft_gpu_remedies *r, char *text, size_t n)
{
    size_t at = 0;
    text[0]   = 0;
    for (int i = 0; i < r->n && at < n; i++)
        at += (size_t)snprintf(text + at, n - at, "%s%s",
                               !i              ? ""
                               : i == r->n - 1 ? " or "
                                               : ", ",
                               r->text[i]);
    if (!r->n) snprintf(text, n, "a smaller model or a larger GPU");
}

weft_status weft_gpu_refuse(const weft_gpu_shortage *x, const weft_gpu_remedies *r)
{
    char remedies[320], ranks[48] = "", first[24] = "", others[64] = "";
    if (x->n_rank > 1) {
        snprintf(ranks, sizeof ranks, "for the %d ranks ", x->n_rank);
        snprintf(first, sizeof first, "of the first: ");
    }
    if (x->others > 0)
        snprintf(others, sizeof others, " (other processes hold %s)",
                 print_gb(x->others).text);
    join_remedies(r, remedies, sizeof remedies);
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "%s needs %s GB %son %s (%sstate %s, work %s, scratch %s), %s are free%s: %s "
        "would do",
        x->model, print_gb(x->need).text, ranks, x->where, first,
        print_gb(x->part.state).text, print_gb(x->part.work).text,
        print_gb(x->part.scratch).text, print_gb(x->have).text, others, remedies);
}
