/* Flops and bytes: what a use of an operator costs on any machine, before fusion. */
#include <string.h>

#include "op/op_priv.h"

static double count(const weft_type *t)
{
    return (double)weft_shape_count(&t->shape);
}
static double bytes(const weft_type *t)
{
    return count(t) * weft_dtype_bytes(t->dtype);
}

double weft_op__flops_zero(const weft_op_use *u)
{
    (void)u;
    return 0;
}

/* k flops for each element of the first result, or of the first operand. */
#define ELEM(k)                                                                          \
    double weft_op__flops_elem##k(const weft_op_use *u)                                  \
    {                                                                                    \
        return (k)*count(&u->out[0]);                                                    \
    }
#define ELEM_IN(k)                                                                       \
    double weft_op__flops_elem##k##_in(const weft_op_use *u)                             \
    {                                                                                    \
        return (k)*count(&u->in[0]);                                                     \
    }
ELEM(1)
ELEM(2)
ELEM(4)
ELEM(8)
ELEM(12)
ELEM(16)
ELEM_IN(1)
ELEM_IN(2)
ELEM_IN(4)
ELEM_IN(8)

/* A product: two flops for each point of the space that all its letters span. */
double weft_op__flops_spec(const weft_op_use *u)
{
    weft_op__spec s;
    double        n         = 2;
    char          seen[128] = {0};
    if (weft_op__parse_spec(weft_use_string(u, "spec"), &s) != WEFT_OK) return 0;
    for (int i = 0; i < 2; i++)
        for (int d = 0; s.part[i][d]; d++) {
            unsigned char c = (unsigned char)s.part[i][d];
            if (!seen[c & 127]) n *= (double)u->in[i].shape.d[d];
            seen[c & 127] = 1;
        }
    return n;
}

static double expected(const weft_op_use *u, double rows)
{
    return rows / (double)(weft_use_int(u, "share") < 1 ? 1 : weft_use_int(u, "share"));
}
double weft_op__flops_grouped(const weft_op_use *u)
{
    return expected(u, 2 * count(&u->in[0]) * (double)u->out[0].shape.d[1]);
}
double weft_op__flops_grouped_wgrad(const weft_op_use *u)
{
    return expected(u, 2 * count(&u->in[0]) * (double)u->in[1].shape.d[1]);
}

/* Keys seen by all queries before the one that would see n of t: the sum of min(i, t), i <= n. */
static double seen(double n, double t)
{
    if (n <= 0) return 0;
    return n <= t ? n * (n + 1) / 2 : t * (t + 1) / 2 + (n - t) * t;
}

/* q.k and p.v, under a causal mask only where a query sees the key. */
static double attention_points(const weft_op_use *u, const weft_type *q,
                               const weft_type *k)
{
    double  s = (double)q->shape.d[1], t = (double)k->shape.d[1], points = s * t;
    int64_t q_first = weft_use_int(u, "q_first"), k_first = weft_use_int(u, "k_first");
    double  ahead = q_first < 0 ? t - s : (double)(q_first - k_first);
    if (weft_use_int(u, "causal")) points = seen(ahead + s, t) - seen(ahead, t);
    return (double)q->shape.d[0] * (double)q->shape.d[2] * (double)q->shape.d[3] * points;
}
double weft_op__flops_attention(const weft_op_use *u)
{
    return 4 * attention_points(u, &u->in[0], &u->in[1]);
}
/* Five products of the same size: scores again, dp, dv, dq, dk. */
double weft_op__flops_attention_grad(const weft_op_use *u)
{
    return 10 * attention_points(u, &u->in[1], &u->in[2]);
}

/* out elements x c x kh x kw x 2 */
static double conv_flops(const weft_type *y, const weft_shape *w)
{
    return 2 * count(y) * (double)(w->d[1] * w->d[2] * w->d[3]);
}
double weft_op__flops_conv2d(const weft_op_use *u)
{
    return conv_flops(&u->out[0], &u->in[1].shape);
}
double weft_op__flops_conv2d_grad_x(const weft_op_use *u)
{
    return conv_flops(&u->in[0], &u->in[1].shape);
}
double weft_op__flops_conv2d_grad_w(const weft_op_use *u)
{
    return conv_flops(&u->in[0], &u->out[0].shape);
}
double weft_op__flops_pool(const weft_op_use *u)
{
    const weft_attr *k = weft_use_attr(u, "kernel");
    return count(&u->out[0]) * (double)(k->l[0] * k->l[1]);
}

double weft_op__bytes_none(const weft_op_use *u)
{
    (void)u;
    return 0;
}
double weft_op__bytes_io(const weft_op_use *u)
{
    double n = 0;
    for (int i = 0; i < u->n_in; i++) n += bytes(&u->in[i]);
    for (int j = 0; j < u->n_out; j++) n += bytes(&u->out[j]);
    return n;
}
/* Only the rows that are looked up are read. */
double weft_op__bytes_rows(const weft_op_use *u)
{
    return bytes(&u->in[1]) + 2 * bytes(&u->out[0]);
}
/* Rows that are not there are not read; those of the result are zero. */
double weft_op__bytes_grouped(const weft_op_use *u)
{
    double rows = bytes(&u->in[0]);
    if (u->op == WEFT_OP_GROUPED_MATMUL_WGRAD) rows += bytes(&u->in[1]);
    return weft_op__bytes_io(u) - rows + expected(u, rows);
}
