/* Products of runs of rows with each run's own matrix: the experts.  offsets[e] .. offsets[e+1]
 * are the rows of expert e; rows past the last offset are nobody's. */
#include "kernel/cpu_priv.h"
#include "kernel/gemm.h"
#include "kernel/rows.h"

typedef struct groups {
    int64_t rows, k, n, experts;
    int64_t w_k, w_n; /* steps of an expert's matrix along k and n */
} groups;

static groups make(const weft_kernel_call *c, const weft_view *x, const weft_view *w)
{
    bool   trans = weft_kernel__attr(c, "trans")->i != 0;
    groups g     = {.rows = x->shape.d[0], .k = x->shape.d[1], .experts = w->shape.d[0]};
    g.n          = w->shape.d[trans ? 1 : 2];
    g.w_k        = trans ? 1 : g.n;
    g.w_n        = trans ? g.k : 1;
    return g;
}

static int64_t offset(const weft_view *v, int64_t e, int64_t rows)
{
    int64_t o = weft_kernel__id(v->p, v->dtype, e);
    return o < 0 ? 0 : o > rows ? rows : o;
}

static weft_gemm forward(const weft_kernel_call *c, const groups *g, int64_t e,
                         int64_t r0, int64_t r1)
{
    weft_gemm m = weft_gemm_make(r1 - r0, g->n, g->k, NULL, g->k, 1, NULL, g->w_k, g->w_n,
                                 NULL, g->n);
    m.ta = c->in[0].dtype, m.tb = c->in[1].dtype, m.tc = c->out[0].dtype;
    m.a = weft_kernel__ptr(c->in[0].p, m.ta, r0 * g->k);
    m.b = weft_kernel__ptr(c->in[1].p, m.tb, e * g->k * g->n);
    m.c = weft_kernel__ptr(c->out[0].p, m.tc, r0 * g->n);
    return m;
}

KERNEL(grouped_matmul)
{
    groups  g    = make(c, &c->in[0], &c->in[1]);
    int64_t last = offset(&c->in[2], g.experts, g.rows);
    for (int64_t e = 0; e < g.experts; e++) {
        int64_t r0 = offset(&c->in[2], e, g.rows), r1 = offset(&c->in[2], e + 1, g.rows);
        if (r1 <= r0) continue;
        weft_gemm m = forward(c, &g, e, r0, r1);
        weft_gemm_run(&m, x->pool, x->scratch);
    }
    weft_dtype t = c->out[0].dtype;
    weft_kernel__zero(weft_kernel__ptr(c->out[0].p, t, last * g.n),
                      (size_t)((g.rows - last) * g.n * weft_dtype_bytes(t)), x->pool);
    return WEFT_OK;
}
SCRATCH(grouped_matmul)
{
    groups    g = make(c, &c->in[0], &c->in[1]);
    weft_gemm m = forward(c, &g, 0, 0, g.rows);
    return weft_gemm_scratch(&m, n_thread);
}

/* dw[e] = x_e^T dy_e, (n,k) when trans */
static weft_gemm backward(const weft_kernel_call *c, const groups *g, int64_t e,
                          int64_t r0, int64_t r1)
{
    bool      trans = g->w_k == 1;
    int64_t   k = g->k, n = g->n;
    weft_gemm m =
        weft_gemm_make(trans ? n : k, trans ? k : n, r1 - r0, NULL, 1, trans ? n : k,
                       NULL, trans ? k : n, 1, NULL, trans ? k : n);
    int a = trans ? 1 : 0, b = 1 - a;
    m.ta = c->in[a].dtype, m.tb = c->in[b].dtype, m.tc = c->out[0].dtype;
    m.a          = weft_kernel__ptr(c->in[a].p, m.ta, r0 * (trans ? n : k));
    m.b          = weft_kernel__ptr(c->in[b].p, m.tb, r0 * (trans ? k : n));
    m.c          = weft_kernel__ptr(c->out[0].p, m.tc, e * k * n);
    m.accumulate = weft_kernel__adds(c, 0);
    return m;
}

KERNEL(grouped_matmul_wgrad)
{
    groups     g     = make(c, &c->in[0], &c->out[0]);
    weft_dtype t     = c->out[0].dtype;
    size_t     bytes = (size_t)(g.k * g.n * weft_dtype_bytes(t));
    for (int64_t e = 0; e < g.experts; e++) {
        int64_t r0 = offset(&c->in[2], e, g.rows), r1 = offset(&c->in[2], e + 1, g.rows);
        weft_gemm m = backward(c, &g, e, r0, r1 > r0 ? r1 : r0);
        if (r1 > r0)
            weft_gemm_run(&m, x->pool, x->scratch);
        else if (!m.accumulate)
            weft_kernel__zero(m.c, bytes, x->pool);
    }
    return WEFT_OK;
}
SCRATCH(grouped_matmul_wgrad)
{
    groups    g = make(c, &c->in[0], &c->out[0]);
    weft_gemm m = backward(c, &g, 0, 0, g.rows);
    return weft_gemm_scratch(&m, n_thread);
}
