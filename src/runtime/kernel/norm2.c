/* Norms of gradients: sums of squares in f64, and the factor that clips them.
 *
 * Order of the sum, so that a tensor split along dimension 0 gives the same bits:
 * (1) one partial for each index of dimension 0; a tensor of one dimension has one for each 256
 *     elements
 * (2) within a partial 16 sums, element i in sum i mod 16, folded in halves (8, 4, 2, 1)
 * (3) over partials the binary tree: neighbours (0,1), (2,3), ... are added, then those, until
 *     one is left; a last one without a neighbour goes up as it is */
#include <math.h>
#include <string.h>

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

enum {
    TASK = 65536,
    RUN  = 256
};

typedef struct job {
    const weft_view *x;
    double          *part;
    int64_t n, row, n_part, grain; /* elements; of a partial; partials; of a task */
} job;

static void task_fn(void *arg, int64_t task, int thread)
{
    const job               *j = arg;
    const weft_kernel__rows *f = weft_kernel__rows_now();
    float                    tmp[WEFT_KERNEL__PIECE];

    (void)thread;
    for (int64_t i = task * j->grain; i < (task + 1) * j->grain && i < j->n_part; i++) {
        int64_t at = i * j->row, n = j->n - at < j->row ? j->n - at : j->row;
        if (j->x->dtype == WEFT_DTYPE_F32) {
            j->part[i] = f->sumsq((const float *)j->x->p + at, n);
            continue;
        }
        double sum = 0.0; /* other storage in pieces, each folded by itself */
        for (int64_t k = 0; k < n; k += WEFT_KERNEL__PIECE) {
            int64_t m = n - k < WEFT_KERNEL__PIECE ? n - k : WEFT_KERNEL__PIECE;
            sum +=
                f->sumsq(weft_kernel__read(j->x->p, j->x->dtype, at + k, 1, m, tmp), m);
        }
        j->part[i] = sum;
    }
}

static job make(const weft_view *x)
{
    job     j = {.x = x, .n = weft_shape_count(&x->shape)};
    int64_t d = x->shape.n ? x->shape.d[0] : 1;
    j.row     = x->shape.n > 1 && d > 0 ? j.n / d : RUN;
    j.n_part  = j.row > 0 ? weft_kernel__ceil(j.n, j.row) : 0;
    j.grain   = weft_kernel__grain(j.row, TASK);
    return j;
}

/* The binary tree over n partials, in place. */
static double tree(double *part, int64_t n_part)
{
    for (int64_t n = n_part; n > 1; n = (n + 1) / 2)
        for (int64_t i = 0; i < (n + 1) / 2; i++)
            part[i] = 2 * i + 1 < n ? part[2 * i] + part[2 * i + 1] : part[2 * i];
    return n_part ? part[0] : 0.0;
}

KERNEL(sumsq)
{
    job j  = make(&c->in[0]);
    j.part = x->scratch;
    weft_pool_run(x->pool, weft_kernel__ceil(j.n_part, j.grain), task_fn, &j);
    *(double *)c->out[0].p = tree(j.part, j.n_part);
    return WEFT_OK;
}

KERNEL(sumsq_parts)
{
    job j  = make(&c->in[0]);
    j.part = c->out[0].p;
    weft_pool_run(x->pool, weft_kernel__ceil(j.n_part, j.grain), task_fn, &j);
    return WEFT_OK;
}

KERNEL(sumsq_tree)
{
    int64_t n = weft_shape_count(&c->in[0].shape);
    if (n) memcpy(x->scratch, c->in[0].p, sizeof(double) * (size_t)n);
    *(double *)c->out[0].p = tree(x->scratch, n);
    return WEFT_OK;
}
SCRATCH(sumsq_tree)
{
    (void)n_thread;
    return sizeof(double) * (size_t)(weft_shape_count(&c->in[0].shape) + 1);
}

SCRATCH(sumsq)
{
    (void)n_thread;
    return sizeof(double) * (size_t)(make(&c->in[0]).n_part + 1);
}

KERNEL(clip)
{
    double sum = 0.0, max = weft_kernel__attr(c, "max_norm")->f;
    (void)x;
    for (int i = 0; i < c->n_in; i++) sum += weft_kernel__scalar(&c->in[i]);
    double norm = sqrt(sum), scale = max > 0.0 ? max / (norm + 1e-6) : 1.0;
    if (c->out[0].p) *(float *)c->out[0].p = (float)norm;
    /* a norm that is no number must reach the update, not be hidden by min(1, ..) */
    if (c->out[1].p) *(float *)c->out[1].p = scale > 1.0 ? 1.0f : (float)scale;
    return WEFT_OK;
}
