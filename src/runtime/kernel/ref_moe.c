/* Reference kernels: experts.  Rows are sorted by expert and none is dropped. */
#include <stdlib.h>

#include "kernel/ref_priv.h"

static double row_lse(const double *x, int64_t n)
{
    double max = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++) max = fmax(max, x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

/* What decides a choice: the logit, or its probability with a bias. */
static double score_expert(const double *logits, const double *bias, int64_t e,
                           double lse)
{
    return bias ? exp(logits[e] - lse) + bias[e] : logits[e];
}

/* p = softmax(logits); the k largest (of p + bias), the lower index first among equals; norm: w
 * sums to 1 */
WEFT_REF(route)
{
    int64_t X = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    int64_t k = weft_kernel__last(&u->out[0]);
    for (int64_t r = 0; r < rows; r++) {
        const double *l = in[0] + r * X, *bias = u->n_in > 1 ? in[1] : NULL;
        double *w = out[0] + r * k, *idx = out[1] + r * k, lse = row_lse(l, X), sum = 0;
        for (int64_t s = 0; s < k; s++) {
            int64_t best = -1;
            for (int64_t e = 0; e < X; e++) {
                bool taken = false;
                for (int64_t q = 0; q < s; q++) taken = taken || (int64_t)idx[q] == e;
                if (!taken && (best < 0 || score_expert(l, bias, e, lse) >
                                               score_expert(l, bias, best, lse)))
                    best = e;
            }
            idx[s] = (double)best;
            w[s]   = exp(l[best] - lse);
            sum += w[s];
        }
        for (int64_t s = 0; s < k && weft_use_int(u, "norm"); s++) w[s] /= sum;
    }
    return WEFT_OK;
}

/* norm: a softmax over the chosen, dl_s = w_s (dw_s - sum w dw), 0 for the others;
 * else p is a softmax over all: dl_e = p_e ((dw_e if chosen) - sum w dw) */
WEFT_REF(route_grad)
{
    int64_t X = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    int64_t k    = weft_kernel__last(&u->in[1]);
    bool    norm = weft_use_int(u, "norm") != 0;
    for (int64_t r = 0; r < rows; r++) {
        const double *l = in[0] + r * X, *w = in[1] + r * k, *idx = in[2] + r * k,
                     *dw = in[3] + r * k;
        double *dl = out[0] + r * X, sum = 0, lse = row_lse(l, X);
        for (int64_t s = 0; s < k; s++) sum += w[s] * dw[s];
        for (int64_t e = 0; e < X; e++) dl[e] = norm ? 0 : -exp(l[e] - lse) * sum;
        for (int64_t s = 0; s < k; s++)
            dl[(int64_t)idx[s]] += w[s] * (norm ? dw[s] - sum : dw[s]);
    }
    return WEFT_OK;
}

/* Rows by expert, within an expert by (token, slot); src = token * k + slot; offsets a prefix sum.
 * An index outside the experts (another part's) has no row: rows past the last offset are 0 and
 * their src is -1. */
WEFT_REF(dispatch)
{
    int64_t n = u->in[0].shape.d[0], d = u->in[0].shape.d[1], k = u->in[1].shape.d[1],
            r = 0;
    int64_t X = u->out[1].shape.d[0] - 1, first = weft_use_int(u, "first_expert"),
            own = weft_use_int(u, "own");
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t e = 0; e < X; e++) {
        out[1][e] = (double)r;
        bool kept = own < 0 || (e >= first && e < first + own);
        for (int64_t i = 0; i < n * k && kept; i++)
            if ((int64_t)in[1][i] == e) {
                memcpy(out[0] + r * d, in[0] + i / k * d, sizeof(double) * (size_t)d);
                out[2][r++] = (double)i;
            }
    }
    out[1][X] = (double)r;
    for (; r < n * k; r++) out[2][r] = -1;
    return WEFT_OK;
}

/* offsets of the own experts' rows of all parts together */
WEFT_REF(own_offsets)
{
    int64_t parts = u->in[0].shape.d[0], X = u->in[0].shape.d[1] - 1;
    int64_t first = weft_use_int(u, "first_expert"), own = weft_use_int(u, "own");
    out[0][0] = 0;
    for (int64_t e = 0; e < X; e++) {
        bool kept     = own < 0 || (e >= first && e < first + own);
        out[0][e + 1] = out[0][e];
        for (int64_t p = 0; p < parts && kept; p++)
            out[0][e + 1] += in[0][p * (X + 1) + e + 1] - in[0][p * (X + 1) + e];
    }
    return WEFT_OK;
}

/* dx[token] = sum over its rows of drows */
WEFT_REF(dispatch_grad)
{
    int64_t R = u->in[0].shape.d[0], d = u->in[0].shape.d[1], k = weft_use_int(u, "k");
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t r = 0; r < R; r++)
        for (int64_t i = 0; i < d && in[1][r] >= 0; i++)
            out[0][(int64_t)in[1][r] / k * d + i] += in[0][r * d + i];
    return WEFT_OK;
}

/* y[token] = sum over its rows of w[token, slot] rows */
WEFT_REF(combine)
{
    int64_t R = u->in[0].shape.d[0], d = u->in[0].shape.d[1], k = u->in[1].shape.d[1];
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t r = 0; r < R; r++)
        for (int64_t i = 0; i < d && in[2][r] >= 0; i++)
            out[0][(int64_t)in[2][r] / k * d + i] +=
                in[1][(int64_t)in[2][r]] * in[0][r * d + i];
    return WEFT_OK;
}

/* drows[r] = w dy[token], dw[token, slot] = dy[token].rows[r] */
WEFT_REF(combine_grad)
{
    int64_t R = u->in[1].shape.d[0], d = u->in[1].shape.d[1], k = u->in[2].shape.d[1];
    weft_kernel__zero(out[0], &u->out[0]);
    weft_kernel__zero(out[1], &u->out[1]);
    for (int64_t r = 0; r < R; r++)
        for (int64_t i = 0; i < d && in[3][r] >= 0; i++) {
            int64_t src       = (int64_t)in[3][r];
            double  dy        = in[0][src / k * d + i];
            out[0][r * d + i] = in[2][src] * dy;
            out[1][src] += dy * in[1][r * d + i];
        }
    return WEFT_OK;
}
