/* A GPU's memory before anything is allocated there: what a program will take of it, and what a
 * job that does not fit can change.  Remedies are named only after they were compiled here. */
#include <stdio.h>
#include <string.h>

#include "session/session_priv.h"

weft_status weft_session__gpu_need(const weft_program *p, weft_device *d,
                                   weft_session__gpu_bytes *out)
{
    weft_session__gpu_bytes need = {.state = weft_program_bytes(p, WEFT_SLAB_STATE),
                                    .work  = weft_program_bytes(p, WEFT_SLAB_WORK)};
    WEFT_TRY(weft_exec_need(p, d, NULL, &need.scratch));
    *out = need;
    return WEFT_OK;
}

int64_t weft_session__gpu_sum(const weft_session__gpu_bytes *x)
{
    return x->state + x->work + x->scratch;
}

/* ---- what would fit ---- */

/* Another way to run the job: its keys, and how ranks share it (NULL: one rank). */
typedef struct trial {
    weft_job             job;
    const weft_strategy *strategy;
    int                  n_rank, rank;
} trial;

static weft_status compile_trial(const weft_session *s, trial *x, int64_t *bytes)
{
    weft_training           t = {0};
    weft_compiled           c = {0};
    weft_plan              *p = NULL;
    weft_session__gpu_bytes need;
    weft_status             st = WEFT_OK;
    WEFT_TRY(weft_job_check_cut(&x->job, x->strategy ? x->strategy->dp : 1));
    weft_compile_spec spec = weft_job_spec(&x->job);
    WEFT_GO(weft_compile_training(&spec, &t));
    if (x->strategy) WEFT_GO(weft_compile_plan(&t, x->strategy, x->n_rank, &p));
    WEFT_GO(weft_compile_program(&t, p, x->rank, &c));
    WEFT_GO(weft_session__gpu_need(c.program, s->device, &need));
    *bytes = weft_session__gpu_sum(&need);
out:
    weft_compiled_fini(&c);
    weft_plan_destroy(p);
    weft_training_fini(&t);
    return st;
}

static bool fits(const weft_session *s, trial *x, int64_t have, int64_t *bytes)
{
    return compile_trial(s, x, bytes) == WEFT_OK && *bytes <= have;
}

/* The job as it runs now. */
static trial try_again(const weft_session *s)
{
    const weft_generation *g = s->now;
    trial                  x = {.job = s->job, .n_rank = g->n_rank};
    if (!g->comm || !g->plan) return x;
    x.strategy = &g->plan->strategy;
    x.rank     = g->comm->rank;
    return x;
}

/* The largest micro-batch that fits; 0: none. */
static int64_t find_micro_batch(const weft_session *s, int64_t have)
{
    int64_t bytes;
    for (int64_t m = s->job.micro_batch / 2; m > 0; m /= 2) {
        while (s->job.batch % m) m--;
        trial x           = try_again(s);
        x.job.micro_batch = m;
        if (fits(s, &x, have, &bytes)) return m;
    }
    return 0;
}

/* The least recomputation that fits; NULL: none. */
static const char *find_recompute(const weft_session *s, int64_t have, int64_t *bytes)
{
    for (int r = s->job.strategy.recompute + 1; r <= WEFT_STRATEGY_FULL; r++) {
        trial         x = try_again(s);
        weft_strategy y;
        if (x.strategy) {
            y           = *x.strategy;
            y.recompute = r;
            x.strategy  = &y;
        }
        x.job.strategy.recompute = r;
        if (fits(s, &x, have, bytes))
            return weft_strategy_recompute_name(&x.job.strategy);
    }
    return NULL;
}

enum {
    MOST_GPUS = 8
};

/* The fewest data-parallel GPUs like this one that do; *zero: with their states sharded.  0: none
 * of up to eight. */
static int find_gpus(const weft_session *s, int64_t have, bool *zero)
{
    int64_t bytes;
    for (int n = 2; n <= MOST_GPUS && !s->now->plan; n *= 2)
        for (int z = 0; z <= 3; z += 3) {
            weft_strategy y = weft_strategy_default();
            trial         x = {.job = s->job, .strategy = &y, .n_rank = n};
            y.dp            = n;
            y.zero          = z;
            y.recompute     = s->job.strategy.recompute;
            if (s->job.batch % n) continue;
            if (x.job.micro_batch > s->job.batch / n)
                x.job.micro_batch = s->job.batch / n;
            x.job.given_lanes = false;
            *zero             = z > 0;
            if (fits(s, &x, have, &bytes)) return n;
        }
    return 0;
}

static void add_remedy(weft_session__remedies *r, const char *text)
{
    snprintf(r->text[r->n++], sizeof r->text[0], "%s", text);
}

void weft_session__gpu_remedies(const weft_session *s, int64_t have,
                                weft_session__remedies *out)
{
    char    text[sizeof out->text[0]];
    int64_t bytes = 0, m = 0;
    bool    zero = false;
    int     n;
    *out = (weft_session__remedies){0};
    if (s->job.plan_file) return; /* it says all of this itself */
    if (!s->resume) m = find_micro_batch(s, have);
    if (m) {
        snprintf(text, sizeof text, "micro_batch=%lld", (long long)m);
        add_remedy(out, text);
    }
    const char *recompute = find_recompute(s, have, &bytes);
    if (recompute) {
        snprintf(text, sizeof text, "recompute=%s (needs %.*f)", recompute,
                 bytes < 100000000 ? 4 : 1, 1e-9 * (double)bytes);
        add_remedy(out, text);
    }
    n = find_gpus(s, have, &zero);
    if (n) {
        snprintf(text, sizeof text, "%d GPUs%s", n, zero ? " with zero=3" : "");
        add_remedy(out, text);
    }
}
