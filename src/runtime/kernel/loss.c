/* Softmax cross-entropy: loss, log-sum-exp and gradient, row by row in pieces.
 *
 * One visit finds maximum and sum together: a piece (in the first-level cache) is searched for its
 * maximum, the sum so far is rescaled if that grew, and the piece's sum is added. */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/nd.h"
#include "kernel/rows.h"

enum {
    TASK = 16384
};

typedef struct job {
    const weft_view         *logits, *labels, *dloss, *loss, *lse, *dlogits;
    const weft_view         *lse_in; /* known from the forward pass */
    const weft_kernel__rows *f;
    /* the leading dimensions: logits, labels, dloss, lse_in, dlogits */
    weft_kernel__nd nd;
    int64_t         ignore, v, grain;
    /* logits are this column and the next ones of the vocabulary; -1: all of it */
    int64_t first;
} job;

#define EACH_PIECE(d) for (int64_t k = 0, n; n = piece(d, k), k < (d); k += n)

static int64_t piece(int64_t d, int64_t k)
{
    return d - k < WEFT_KERNEL__PIECE ? d - k : WEFT_KERNEL__PIECE;
}

static const float *logits_at(const job *j, int64_t at, int64_t k, int64_t n, float *tmp)
{
    int64_t step = j->logits->stride[j->logits->shape.n - 1];
    return weft_kernel__read(j->logits->p, j->logits->dtype, at + k * step, step, n, tmp);
}

static float find_lse(const job *j, int64_t at)
{
    float  tmp[WEFT_KERNEL__PIECE], m = -INFINITY;
    double sum = 0.0;
    EACH_PIECE(j->v)
    {
        const float *x   = logits_at(j, at, k, n, tmp);
        float        now = j->f->max(x, n, m);
        if (now == -INFINITY) continue;
        if (now != m) sum *= exp((double)m - (double)now);
        m = now;
        sum += (double)j->f->exp_sum(NULL, x, n, m);
    }
    return sum > 0.0 || sum != sum ? (float)((double)m + log(sum)) : -INFINITY;
}

static void write_grad(const job *j, int64_t at, int64_t to, int64_t label, float lse,
                       float s)
{
    float            tmp[WEFT_KERNEL__PIECE], out[WEFT_KERNEL__PIECE];
    const weft_view *d       = j->dlogits;
    int64_t          step    = d->stride[d->shape.n - 1];
    bool             ignored = label == j->ignore;
    if (j->first > 0) label -= j->first;
    EACH_PIECE(j->v)
    {
        float *y = weft_kernel__room(d->p, d->dtype, to + k * step, step, 0, out);
        if (ignored) {
            memset(y, 0, sizeof(float) * (size_t)n);
        } else {
            j->f->exp_scale(y, logits_at(j, at, k, n, tmp), n, lse, s);
            if (label >= k && label < k + n) y[label - k] -= s;
        }
        weft_kernel__write(d->p, d->dtype, to + k * step, step, n, y, 0);
    }
}

static void row(const job *j, int64_t i)
{
    enum {
        LOGITS,
        LABELS,
        DLOSS,
        LSE,
        DLOGITS
    };
    int64_t at[WEFT_KERNEL__ND_OP];
    float   lse = 0.0f, tmp;

    weft_kernel__nd_at(&j->nd, j->nd.n, i, at);
    int64_t label = weft_kernel__id(j->labels->p, j->labels->dtype, at[LABELS]);
    if (j->lse_in)
        lse = ((const float *)j->lse_in->p)[at[LSE]];
    else if (label != j->ignore || (j->lse && j->lse->p))
        lse = find_lse(j, at[LOGITS]);
    if (j->lse && j->lse->p) ((float *)j->lse->p)[i] = lse;
    if (j->loss && j->loss->p) {
        float   own = 0.0f;
        int64_t col = j->first > 0 ? label - j->first : label;
        if (label != j->ignore && col >= 0 && col < j->v)
            own = (j->first < 0 ? lse : 0.0f) - *logits_at(j, at[LOGITS], col, 1, &tmp);
        ((float *)j->loss->p)[i] = own;
    }
    if (j->dlogits) {
        float s = *weft_kernel__read(j->dloss->p, j->dloss->dtype, at[DLOSS], 1, 1, &tmp);
        write_grad(j, at[LOGITS], at[DLOGITS], label, lse, s);
    }
}

static void task_fn(void *arg, int64_t task, int thread)
{
    const job *j   = arg;
    int64_t    end = (task + 1) * j->grain, rows = weft_kernel__nd_count(&j->nd, j->nd.n);
    (void)thread;
    for (int64_t i = task * j->grain; i < end && i < rows; i++) row(j, i);
}

static weft_view lead(const weft_view *v)
{
    weft_view r = *v;
    r.shape.n--;
    return r;
}

static weft_status check_labels(const job *j)
{
    int64_t n = weft_shape_count(&j->labels->shape);
    if (!weft_view_contiguous(j->labels)) return WEFT_OK;
    for (int64_t i = 0; i < n; i++) {
        int64_t l = weft_kernel__id(j->labels->p, j->labels->dtype, i);
        if (l != j->ignore && (l < 0 || (l >= j->v && j->first < 0)))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cross_entropy: label %ld at %ld is not below %ld", (long)l,
                             (long)i, (long)j->v);
    }
    return WEFT_OK;
}

static weft_status run(job *j, weft_pool *pool)
{
    weft_view x = lead(j->logits), y = j->dlogits ? lead(j->dlogits) : x;
    j->f = weft_kernel__rows_now();
    j->v = weft_kernel__last(j->logits);
    WEFT_TRY(check_labels(j));
    weft_kernel__nd_init(&j->nd, &x.shape);
    weft_kernel__nd_add(&j->nd, &x);
    weft_kernel__nd_add(&j->nd, j->labels);
    weft_kernel__nd_add(&j->nd, j->dloss ? j->dloss : j->labels);
    weft_kernel__nd_add(&j->nd, j->lse_in ? j->lse_in : j->labels);
    weft_kernel__nd_add(&j->nd, &y);
    weft_kernel__nd_merge(&j->nd);
    j->grain = weft_kernel__grain(j->v, TASK);
    weft_pool_run(pool,
                  weft_kernel__ceil(weft_kernel__nd_count(&j->nd, j->nd.n), j->grain),
                  task_fn, j);
    return WEFT_OK;
}

KERNEL(cross_entropy)
{
    job j = {.logits = &c->in[0],
             .labels = &c->in[1],
             .loss   = &c->out[0],
             .lse    = &c->out[1],
             .ignore = weft_kernel__attr(c, "ignore")->i,
             .first  = weft_kernel__attr(c, "first")->i};
    if (c->n_post) { /* fused by lowering: the gradient in the same visit */
        if (c->n_post != 1 || c->post[0].op != WEFT_OP_CROSS_ENTROPY_GRAD || j.first >= 0)
            return WEFT_FAIL(WEFT_ERR_INTERNAL,
                             "cross_entropy: only its gradient may follow, and only of "
                             "the whole vocabulary");
        return weft_kernel__cross_entropy_both(j.logits, j.labels, &c->in[c->post[0].in],
                                               j.loss, j.lse, &c->out[c->post[0].out],
                                               j.ignore, x->pool);
    }
    return run(&j, x->pool);
}

KERNEL(cross_entropy_grad)
{
    job j = {.logits  = &c->in[0],
             .labels  = &c->in[1],
             .lse_in  = &c->in[2],
             .dloss   = &c->in[3],
             .dlogits = &c->out[0],
             .ignore  = weft_kernel__attr(c, "ignore")->i,
             .first   = weft_kernel__attr(c, "first")->i};
    return run(&j, x->pool);
}

/* ---- parts of a vocabulary as one ---- */

typedef struct merge {
    const weft_view *loss_part, *lse_part, *labels, *loss, *lse;
    int64_t          n_part, rows, ignore;
} merge;

static void merge_row(const merge *m, int64_t r)
{
    const float *loss = m->loss_part->p, *lse = m->lse_part->p;
    float        most = -INFINITY, logit = 0.0f;
    double       sum = 0.0;
    for (int64_t p = 0; p < m->n_part; p++)
        most = lse[p * m->rows + r] > most ? lse[p * m->rows + r] : most;
    for (int64_t p = 0; p < m->n_part; p++) {
        if (most > -INFINITY) sum += exp((double)lse[p * m->rows + r] - (double)most);
        logit += loss[p * m->rows + r];
    }
    float all     = most > -INFINITY ? (float)((double)most + log(sum)) : -INFINITY;
    bool  ignored = weft_kernel__id(m->labels->p, m->labels->dtype, r) == m->ignore;
    if (m->lse->p) ((float *)m->lse->p)[r] = all;
    if (m->loss->p) ((float *)m->loss->p)[r] = ignored ? 0.0f : all + logit;
}

static void merge_task(void *arg, int64_t task, int thread)
{
    const merge *m   = arg;
    int64_t      end = (task + 1) * TASK;
    (void)thread;
    for (int64_t r = task * TASK; r < end && r < m->rows; r++) merge_row(m, r);
}

KERNEL(cross_entropy_merge)
{
    merge m = {.loss_part = &c->in[0],
               .lse_part  = &c->in[1],
               .labels    = &c->in[2],
               .loss      = &c->out[0],
               .lse       = &c->out[1],
               .n_part    = c->in[0].shape.d[0],
               .rows      = weft_shape_count(&c->in[2].shape),
               .ignore    = weft_kernel__attr(c, "ignore")->i};
    weft_pool_run(x->pool, weft_kernel__ceil(m.rows, TASK), merge_task, &m);
    return WEFT_OK;
}

weft_status weft_kernel__cross_entropy_both(const weft_view *logits,
                                            const weft_view *labels,
                                            const weft_view *dloss, const weft_view *loss,
                                            const weft_view *lse,
                                            const weft_view *dlogits, int64_t ignore,
                                            weft_pool *pool)
{
    job j = {.logits  = logits,
             .labels  = labels,
             .dloss   = dloss,
             .loss    = loss,
             .lse     = lse,
             .dlogits = dlogits,
             .ignore  = ignore,
             .first   = -1};
    return run(&j, pool);
}
