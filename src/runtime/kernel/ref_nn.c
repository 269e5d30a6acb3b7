/* Reference kernels: norms, softmax, attention, tables, losses. */
#include "kernel/ref_priv.h"
#include "kernel/rotary.h"

/* ---- norms: rows of d ---- */

/* y = (x - mean) rstd w + b, rstd = 1 / sqrt(var + eps), var over the row (biased) */
WEFT_REF(layer_norm)
{
    int64_t d = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    double  eps = weft_use_float(u, "eps");
    for (int64_t r = 0; r < rows; r++) {
        const double *x    = in[0] + r * d;
        double        mean = 0, var = 0;
        for (int64_t i = 0; i < d; i++) mean += x[i] / (double)d;
        for (int64_t i = 0; i < d; i++) var += (x[i] - mean) * (x[i] - mean) / (double)d;
        double rstd = 1 / sqrt(var + eps);
        for (int64_t i = 0; i < d; i++)
            out[0][r * d + i] = (x[i] - mean) * rstd * in[1][i] + in[2][i];
        out[1][r] = mean;
        out[2][r] = rstd;
    }
    return WEFT_OK;
}

/* h = (x - mean) rstd;  dx = rstd (w dy - mean(w dy) - h mean(w dy h)), dw = sum dy h, db = sum
 * dy */
WEFT_REF(layer_norm_grad)
{
    int64_t       d = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    const double *w = in[2];
    weft_kernel__zero(out[1], &u->out[1]);
    weft_kernel__zero(out[2], &u->out[2]);
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = in[0] + r * d, *x = in[1] + r * d;
        double        mean = in[3][r], rstd = in[4][r], a = 0, b = 0;
        for (int64_t i = 0; i < d; i++) {
            double h = (x[i] - mean) * rstd;
            a += w[i] * dy[i] / (double)d;
            b += w[i] * dy[i] * h / (double)d;
            out[1][i] += dy[i] * h;
            out[2][i] += dy[i];
        }
        for (int64_t i = 0; i < d; i++)
            out[0][r * d + i] = rstd * (w[i] * dy[i] - a - (x[i] - mean) * rstd * b);
    }
    return WEFT_OK;
}

/* y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps) */
WEFT_REF(rms_norm)
{
    int64_t d = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    for (int64_t r = 0; r < rows; r++) {
        const double *x  = in[0] + r * d;
        double        ms = 0;
        for (int64_t i = 0; i < d; i++) ms += x[i] * x[i] / (double)d;
        double rstd = 1 / sqrt(ms + weft_use_float(u, "eps"));
        for (int64_t i = 0; i < d; i++) out[0][r * d + i] = x[i] * rstd * in[1][i];
        out[1][r] = rstd;
    }
    return WEFT_OK;
}

/* h = x rstd;  dx = rstd (w dy - h mean(w dy h)), dw = sum dy h */
WEFT_REF(rms_norm_grad)
{
    int64_t d = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    weft_kernel__zero(out[1], &u->out[1]);
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = in[0] + r * d, *x = in[1] + r * d, *w = in[2];
        double        rstd = in[3][r], b = 0;
        for (int64_t i = 0; i < d; i++) {
            b += w[i] * dy[i] * x[i] * rstd / (double)d;
            out[1][i] += dy[i] * x[i] * rstd;
        }
        for (int64_t i = 0; i < d; i++)
            out[0][r * d + i] = rstd * (w[i] * dy[i] - x[i] * rstd * b);
    }
    return WEFT_OK;
}

static double log_sum_exp(const double *x, int64_t n)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, x[i]);
    if (max == -INFINITY) return max;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - max);
    return max + log(sum);
}

WEFT_REF(softmax)
{
    int64_t d = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    for (int64_t r = 0; r < rows; r++) {
        double lse = log_sum_exp(in[0] + r * d, d);
        for (int64_t i = 0; i < d; i++) out[0][r * d + i] = exp(in[0][r * d + i] - lse);
    }
    return WEFT_OK;
}

/* dx = y (dy - sum dy y) */
WEFT_REF(softmax_grad)
{
    int64_t d = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = in[0] + r * d, *y = in[1] + r * d;
        double        sum = 0;
        for (int64_t i = 0; i < d; i++) sum += dy[i] * y[i];
        for (int64_t i = 0; i < d; i++) out[0][r * d + i] = y[i] * (dy[i] - sum);
    }
    return WEFT_OK;
}

/* ---- attention ---- */

/* x (b,s,h,e); pairs (i, i + e/2) are turned by the angle position * f_i */
WEFT_REF(rotary)
{
    const int64_t *d = u->in[0].shape.d;
    int64_t        e = d[3], half = e / 2;
    double         sign = weft_use_int(u, "inverse") ? -1 : 1;
    for (int64_t r = 0; r < d[0] * d[1] * d[2]; r++) {
        double pos = (double)(r / d[2] % d[1] + weft_use_int(u, "first"));
        for (int64_t i = 0; i < half; i++) {
            double a = pos * weft_rotary_freq(u, i, e), co = cos(a), si = sign * sin(a);
            double x0 = in[0][r * e + i], x1 = in[0][r * e + i + half];
            out[0][r * e + i]        = x0 * co - x1 * si;
            out[0][r * e + i + half] = x1 * co + x0 * si;
        }
    }
    return WEFT_OK;
}

/* One attention's sizes: q (b,s,h,e), k (b,t,g,e), v (b,t,g,f), bias (h,s,t). */
typedef struct heads {
    int64_t       b, s, h, e, t, g, f;
    double        scale;
    bool          causal;
    int64_t       window, q_pos, k_pos; /* positions of query 0 and of key 0 */
    const double *q, *k, *v, *bias;
} heads;

static heads heads_of(const weft_op_use *u, const double *const *in, int first, int bias)
{
    const int64_t *q = u->in[first].shape.d, *k = u->in[first + 1].shape.d;
    heads          a = {q[0],
                        q[1],
                        q[2],
                        q[3],
                        k[1],
                        k[2],
                        u->in[first + 2].shape.d[3],
                        weft_use_float(u, "scale"),
                        weft_use_int(u, "causal") != 0,
                        weft_use_int(u, "window"),
                        weft_use_int(u, "q_first"),
                        weft_use_int(u, "k_first"),
                        in[first],
                        in[first + 1],
                        in[first + 2],
               u->n_in > bias ? in[bias] : NULL};
    if (a.q_pos < 0) { /* the last query stands at the last key */
        a.q_pos = a.t - a.s;
        a.k_pos = 0;
    }
    if (a.scale == 0) a.scale = 1 / sqrt((double)a.e);
    return a;
}
/* Offsets of query row (b,i,h) in q (times e) and of its key row (b,j,g) in k and v. */
static int64_t q_row(const heads *a, int64_t b, int64_t i, int64_t h)
{
    return (b * a->s + i) * a->h + h;
}
static int64_t k_row(const heads *a, int64_t b, int64_t j, int64_t h)
{
    return (b * a->t + j) * a->g + h / (a->h / a->g);
}

/* scale q.k + bias, or -inf where query i does not see key j */
static double score(const heads *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t       behind = (a->q_pos + i) - (a->k_pos + j);
    const double *q      = a->q + q_row(a, b, i, h) * a->e,
                 *k      = a->k + k_row(a, b, j, h) * a->e;
    double dot           = 0;
    if (a->causal && behind < 0) return -INFINITY;
    if (a->window > 0 && behind >= a->window) return -INFINITY;
    for (int64_t x = 0; x < a->e; x++) dot += q[x] * k[x];
    return a->scale * dot + (a->bias ? a->bias[(h * a->s + i) * a->t + j] : 0);
}

/* p_ij = exp(score_ij - lse_i), o_i = sum_j p_ij v_j; a query that sees nothing: o 0, lse -inf */
WEFT_REF(attention)
{
    heads a = heads_of(u, in, 0, 3);
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t b = 0; b < a.b; b++)
        for (int64_t h = 0; h < a.h; h++)
            for (int64_t i = 0; i < a.s; i++) {
                double max = -INFINITY, sum = 0, lse;
                for (int64_t j = 0; j < a.t; j++) max = fmax(max, score(&a, b, h, i, j));
                for (int64_t j = 0; j < a.t && max > -INFINITY; j++)
                    sum += exp(score(&a, b, h, i, j) - max);
                lse = max > -INFINITY ? max + log(sum) : -INFINITY;
                for (int64_t j = 0; j < a.t && max > -INFINITY; j++) {
                    double        p = exp(score(&a, b, h, i, j) - lse);
                    const double *v = a.v + k_row(&a, b, j, h) * a.f;
                    for (int64_t x = 0; x < a.f; x++)
                        out[0][q_row(&a, b, i, h) * a.f + x] += p * v[x];
                }
                out[1][q_row(&a, b, i, h)] = lse;
            }
    return WEFT_OK;
}

/* weights e^(lse_a - lse), e^(lse_b - lse) */
WEFT_REF(attention_merge)
{
    int64_t e = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    for (int64_t r = 0; r < rows; r++) {
        double pair[2] = {in[1][r], in[3][r]}, lse = log_sum_exp(pair, 2);
        for (int64_t i = r * e; i < (r + 1) * e; i++)
            out[0][i] = lse == -INFINITY ? 0
                                         : exp(pair[0] - lse) * in[0][i] +
                                               exp(pair[1] - lse) * in[2][i];
        out[1][r] = lse;
    }
    return WEFT_OK;
}

/* ds_ij = p_ij (do_i.v_j - do_i.o_i); dq_i = scale sum ds k, dk_j = scale sum ds q,
 * dv_j = sum p do, dbias = ds summed over the batch */
WEFT_REF(attention_grad)
{
    heads         a   = heads_of(u, in, 1, 6);
    const double *all = in[0], *o = in[4], *lse = in[5];
    for (int j = 0; j < u->n_out; j++) weft_kernel__zero(out[j], &u->out[j]);
    for (int64_t b = 0; b < a.b; b++)
        for (int64_t h = 0; h < a.h; h++)
            for (int64_t i = 0; i < a.s; i++) {
                int64_t       qr  = q_row(&a, b, i, h);
                const double *dy  = all + qr * a.f;
                double        own = 0;
                for (int64_t x = 0; x < a.f; x++) own += dy[x] * o[qr * a.f + x];
                for (int64_t j = 0; j < a.t; j++) {
                    double  z = score(&a, b, h, i, j), dp = 0;
                    int64_t kr = k_row(&a, b, j, h);
                    if (z == -INFINITY) continue;
                    double p = exp(z - lse[qr]);
                    for (int64_t x = 0; x < a.f; x++) dp += dy[x] * a.v[kr * a.f + x];
                    double ds = p * (dp - own);
                    for (int64_t x = 0; x < a.e; x++) {
                        out[0][qr * a.e + x] += a.scale * ds * a.k[kr * a.e + x];
                        out[1][kr * a.e + x] += a.scale * ds * a.q[qr * a.e + x];
                    }
                    for (int64_t x = 0; x < a.f; x++) out[2][kr * a.f + x] += p * dy[x];
                    if (a.bias) out[3][(h * a.s + i) * a.t + j] += ds;
                }
            }
    return WEFT_OK;
}

/* T5's buckets of key position - query position: half of them exact, the rest logarithmic. */
WEFT_REF(rel_bucket)
{
    int64_t s = u->out[0].shape.d[0], t = u->out[0].shape.d[1];
    bool    two = weft_use_int(u, "bidirectional") != 0;
    int64_t n = weft_use_int(u, "buckets") / (two ? 2 : 1), exact = n / 2;
    double  far = (double)weft_use_int(u, "max_distance");
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < t; j++) {
            int64_t dist = (j + weft_use_int(u, "t_first")) -
                           (i + weft_use_int(u, "s_first")),
                    first = two && dist > 0 ? n : 0;
            dist          = two ? (dist < 0 ? -dist : dist) : (dist < 0 ? -dist : 0);
            int64_t b     = dist;
            if (dist >= exact && exact > 0) {
                b = exact + (int64_t)(log((double)dist / (double)exact) /
                                      log(far / (double)exact) * (double)(n - exact));
                if (b > n - 1) b = n - 1;
            }
            out[0][i * t + j] = (double)(first + b);
        }
    return WEFT_OK;
}

/* ---- tables and losses ---- */

static bool in_table(double id, int64_t rows)
{
    return id >= 0 && id < (double)rows;
}
/* Where a part of a table or of a vocabulary begins in the whole. */
static double first_of(const weft_op_use *u)
{
    int64_t first = weft_use_int(u, "first");
    return first < 0 ? 0 : (double)first;
}

/* y[r] = table[ids[r]]; an id outside the table gives zeros (a part of a split table) */
WEFT_REF(embedding)
{
    int64_t v = u->in[0].shape.d[0], d = u->in[0].shape.d[1],
            n = weft_kernel__count(&u->in[1]);
    for (int64_t r = 0; r < n; r++) {
        double id = in[1][r] - first_of(u);
        for (int64_t i = 0; i < d; i++)
            out[0][r * d + i] = in_table(id, v) ? in[0][(int64_t)id * d + i] : 0;
    }
    return WEFT_OK;
}
WEFT_REF(embedding_grad)
{
    int64_t v = u->out[0].shape.d[0], d = u->out[0].shape.d[1],
            n  = weft_kernel__count(&u->in[1]);
    double pad = (double)weft_use_int(u, "pad");
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t r = 0; r < n; r++) {
        double id = in[1][r] - first_of(u);
        for (int64_t i = 0; i < d && in_table(id, v) && in[1][r] != pad; i++)
            out[0][(int64_t)id * d + i] += in[0][r * d + i];
    }
    for (int64_t i = 0; u->n_in > 2 && i < v * d; i++) out[0][i] += in[2][i];
    return WEFT_OK;
}

/* loss = lse - logits[label]; 0 where the label is ignored.  Of a part: - logits[label], 0 where
 * the label lies elsewhere. */
WEFT_REF(cross_entropy)
{
    int64_t v = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    double  ignore = (double)weft_use_int(u, "ignore"), first = first_of(u);
    bool    part = weft_use_int(u, "first") >= 0;
    for (int64_t r = 0; r < rows; r++) {
        double label = in[1][r];
        out[1][r]    = log_sum_exp(in[0] + r * v, v);
        out[0][r]    = 0;
        if (label == ignore) continue;
        if (part ? label < 0 : !in_table(label, v))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cross_entropy: label %g of row %ld is not below %ld", label,
                             (long)r, (long)v);
        if (in_table(label - first, v))
            out[0][r] = (part ? 0 : out[1][r]) - in[0][r * v + (int64_t)(label - first)];
    }
    return WEFT_OK;
}
/* lse over the parts' lse; loss = lse - the label's logit, which one part has */
WEFT_REF(cross_entropy_merge)
{
    int64_t n_part = u->in[0].shape.d[0], rows = weft_kernel__count(&u->in[2]);
    double  ignore = (double)weft_use_int(u, "ignore");
    for (int64_t r = 0; r < rows; r++) {
        double max = -INFINITY, sum = 0, logit = 0;
        for (int64_t p = 0; p < n_part; p++) max = fmax(max, in[1][p * rows + r]);
        for (int64_t p = 0; p < n_part; p++) {
            if (max > -INFINITY) sum += exp(in[1][p * rows + r] - max);
            logit += in[0][p * rows + r];
        }
        out[1][r] = max > -INFINITY ? max + log(sum) : -INFINITY;
        out[0][r] = in[2][r] == ignore ? 0 : out[1][r] + logit;
    }
    return WEFT_OK;
}
/* dlogits = (softmax - one at the label) dloss; 0 where the label is ignored.  A label outside
 * (a part of a split vocabulary) subtracts nothing. */
WEFT_REF(cross_entropy_grad)
{
    int64_t v = weft_kernel__last(&u->in[0]), rows = weft_kernel__rows(&u->in[0]);
    double  ignore = (double)weft_use_int(u, "ignore"), first = first_of(u);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < v; i++) {
            double p = exp(in[0][r * v + i] - in[2][r]), label = in[1][r];
            out[0][r * v + i] =
                label == ignore ? 0
                                : (p - ((double)i == label - first ? 1 : 0)) * in[3][r];
        }
    return WEFT_OK;
}

/* y[.., r, ..] = x[.., idx[r], ..]; zeros where idx is outside */
WEFT_REF(gather)
{
    int64_t axis = weft_use_int(u, "axis"), before, behind;
    int64_t n_x = u->in[0].shape.d[axis], n_y = u->out[0].shape.d[axis];
    weft_kernel__around(&u->in[0].shape, axis, &before, &behind);
    for (int64_t b = 0; b < before; b++)
        for (int64_t r = 0; r < n_y; r++) {
            double id = in[1][r] - first_of(u);
            for (int64_t i = 0; i < behind; i++)
                out[0][(b * n_y + r) * behind + i] =
                    in_table(id, n_x) ? in[0][(b * n_x + (int64_t)id) * behind + i] : 0;
        }
    return WEFT_OK;
}
/* y[.., idx[r], ..] += src[.., r, ..] */
WEFT_REF(scatter_add)
{
    int64_t axis = weft_use_int(u, "axis"), before, behind;
    int64_t n_x = u->in[0].shape.d[axis], n_y = u->out[0].shape.d[axis];
    weft_kernel__around(&u->in[0].shape, axis, &before, &behind);
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t b = 0; b < before; b++)
        for (int64_t r = 0; r < n_x; r++) {
            double id = in[1][r] - first_of(u);
            for (int64_t i = 0; i < behind && in_table(id, n_y); i++)
                out[0][(b * n_y + (int64_t)id) * behind + i] +=
                    in[0][(b * n_x + r) * behind + i];
        }
    return WEFT_OK;
}
