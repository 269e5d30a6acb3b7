/* Rotary embeddings: each position's cosines and sines are found once and serve all its rows. */
#include "kernel/rotary.h"

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

typedef struct job {
    const weft_view         *x, *y;
    const weft_kernel__rows *f;
    const double            *freq; /* e / 2 */
    double                   sign;
    int64_t                  first; /* position of index 0 */
    int64_t                  half;
} job;

static void position(void *arg, int64_t s, int thread)
{
    enum {
        MAX = WEFT_KERNEL__PIECE
    };
    const job       *j = arg;
    const weft_view *x = j->x, *y = j->y;
    float            c[MAX / 2], sn[MAX / 2], tx[MAX], ty[MAX];
    int64_t          e = 2 * j->half;

    (void)thread;
    for (int64_t i = 0; i < j->half; i++) {
        double angle = (double)(s + j->first) * j->freq[i];
        c[i]         = (float)cos(angle);
        sn[i]        = (float)(j->sign * sin(angle));
    }
    for (int64_t b = 0; b < x->shape.d[0]; b++)
        for (int64_t h = 0; h < x->shape.d[2]; h++) {
            int64_t      from = b * x->stride[0] + s * x->stride[1] + h * x->stride[2];
            int64_t      to   = b * y->stride[0] + s * y->stride[1] + h * y->stride[2];
            const float *px =
                weft_kernel__read(x->p, x->dtype, from, x->stride[3], e, tx);
            float *py = weft_kernel__room(y->p, y->dtype, to, y->stride[3], 0, ty);
            j->f->rotate(py, px, c, sn, j->half);
            weft_kernel__write(y->p, y->dtype, to, y->stride[3], e, py, 0);
        }
}

KERNEL(rotary)
{
    weft_op_use u = {.op = c->op, .attr = c->attr};
    int64_t     e = c->in[0].shape.d[3];
    double     *f = x->scratch;
    job j = {.x = &c->in[0], .y = &c->out[0], .f = weft_kernel__rows_now(), .freq = f};
    if (e % 2 || e > WEFT_KERNEL__PIECE)
        return WEFT_FAIL(WEFT_ERR_ARG, "rotary: head size %ld is odd or above %d",
                         (long)e, WEFT_KERNEL__PIECE);
    j.half  = e / 2;
    j.first = weft_kernel__attr(c, "first")->i;
    j.sign  = weft_kernel__attr(c, "inverse")->i ? -1.0 : 1.0;
    for (int64_t i = 0; i < j.half; i++) f[i] = weft_rotary_freq(&u, i, e);
    weft_pool_run(x->pool, c->in[0].shape.d[1], position, &j);
    return WEFT_OK;
}
SCRATCH(rotary)
{
    (void)n_thread;
    return sizeof(double) * (size_t)(c->in[0].shape.d[3] / 2);
}

/* T5's buckets of key position - query position: half of them exact, the rest logarithmic. */
KERNEL(rel_bucket)
{
    const weft_view *y   = &c->out[0];
    int32_t         *ids = y->p;
    int64_t          s = y->shape.d[0], t = y->shape.d[1];
    int64_t          two = weft_kernel__attr(c, "bidirectional")->i != 0;
    int64_t n = weft_kernel__attr(c, "buckets")->i / (two ? 2 : 1), exact = n / 2;
    int64_t ahead =
        weft_kernel__attr(c, "t_first")->i - weft_kernel__attr(c, "s_first")->i;
    double far = (double)weft_kernel__attr(c, "max_distance")->i;
    (void)x;
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < t; j++) {
            int64_t d = j - i + ahead, first = two && d > 0 ? n : 0, b;
            d = d < 0 ? -d : two ? d : 0;
            b = d;
            if (d >= exact && exact > 0) {
                double r = log((double)d / (double)exact) / log(far / (double)exact);
                b        = exact + (int64_t)(r * (double)(n - exact));
                if (b > n - 1) b = n - 1;
            }
            ids[i * t + j] = (int32_t)(first + b);
        }
    return WEFT_OK;
}
