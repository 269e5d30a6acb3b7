/* Products of runs of rows with each run's own matrix: the experts.  offsets[e] .. offsets[e+1]
 * are the rows of expert e; rows past the last offset are nobody's: 0 in results, whatever the
 * steps behind the product. */
#include "kernel/cpu_priv.h"
#include "kernel/gemm.h"
#include "kernel/posts.h"
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

/* ---- steps ---- */

typedef struct chain {
    weft_gemm_post   post[WEFT_KERNEL__STEPS];
    float            alpha[WEFT_KERNEL__STEPS];
    int              n;
    const weft_view *y; /* the last value */
} chain;

static weft_status add_step(chain *s, weft_post_kind kind, const weft_view *v, int64_t n)
{
    if (s->n == WEFT_KERNEL__STEPS)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "grouped_matmul: more than %d steps", s->n);
    s->post[s->n] = (weft_gemm_post){.kind = kind};
    if (v)
        s->post[s->n] = (weft_gemm_post){
            .kind = kind, .p = v->p, .dtype = v->dtype, .rs = n, .cs = 1};
    s->n++;
    return WEFT_OK;
}

static weft_status make_chain(const weft_kernel_call *c, int64_t n, chain *s)
{
    s->n = 0;
    s->y = &c->out[0];
    if (c->n_post && c->out[0].p) WEFT_TRY(add_step(s, WEFT_POST_STORE, s->y, n));
    for (int i = 0; i < c->n_post; i++) {
        const weft_kernel_post *p = &c->post[i];
        weft_post_kind          kind;
        WEFT_TRY(weft_kernel__post_kind(p, &kind));
        WEFT_TRY(add_step(s, kind, p->in >= 0 ? &c->in[p->in] : NULL, n));
        if (p->op == WEFT_OP_SCALE) {
            weft_gemm_post *q  = &s->post[s->n - 1];
            s->alpha[s->n - 1] = (float)p->attr[weft_op_attr_index(p->op, "alpha")].f;
            q->p               = &s->alpha[s->n - 1];
            q->dtype           = WEFT_DTYPE_F32;
        }
        if (i == c->n_post - 1)
            s->y = p->out >= 0 ? &c->out[p->out] : NULL;
        else if (p->out >= 0)
            WEFT_TRY(add_step(s, WEFT_POST_STORE, &c->out[p->out], n));
    }
    if (!s->y)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "grouped_matmul: its last value is not kept");
    return WEFT_OK;
}

/* ---- products ---- */

static weft_gemm forward(const weft_kernel_call *c, const groups *g, const weft_view *y,
                         int64_t e, int64_t r0, int64_t r1)
{
    weft_gemm m = weft_gemm_make(r1 - r0, g->n, g->k, NULL, g->k, 1, NULL, g->w_k, g->w_n,
                                 NULL, g->n);
    m.ta = c->in[0].dtype, m.tb = c->in[1].dtype, m.tc = y->dtype;
    m.a = weft_kernel__ptr(c->in[0].p, m.ta, r0 * g->k);
    m.b = weft_kernel__ptr(c->in[1].p, m.tb, e * g->k * g->n);
    m.c = weft_kernel__ptr(y->p, m.tc, r0 * g->n);
    return m;
}

/* The rows of one expert, with the steps on them. */
static void run_rows(const weft_kernel_call *c, const groups *g, const chain *s,
                     int64_t e, int64_t r0, int64_t r1, const weft_kernel_ctx *x)
{
    weft_gemm_post post[WEFT_KERNEL__STEPS];
    weft_gemm      m = forward(c, g, s->y, e, r0, r1);
    for (int i = 0; i < s->n; i++) {
        post[i] = s->post[i];
        if (post[i].rs)
            post[i].p = weft_kernel__ptr(post[i].p, post[i].dtype, r0 * post[i].rs);
    }
    m.post   = post;
    m.n_post = s->n;
    weft_gemm_run(&m, x->pool, x->scratch);
}

KERNEL(grouped_matmul)
{
    groups  g    = make(c, &c->in[0], &c->in[1]);
    int64_t last = offset(&c->in[2], g.experts, g.rows);
    chain   s;
    WEFT_TRY(make_chain(c, g.n, &s));
    for (int64_t e = 0; e < g.experts; e++) {
        int64_t r0 = offset(&c->in[2], e, g.rows), r1 = offset(&c->in[2], e + 1, g.rows);
        if (r1 > r0) run_rows(c, &g, &s, e, r0, r1, x);
    }
    for (int i = 0; i < c->n_out; i++) {
        weft_dtype t = c->out[i].dtype;
        if (!c->out[i].p) continue;
        weft_kernel__zero(weft_kernel__ptr(c->out[i].p, t, last * g.n),
                          (size_t)((g.rows - last) * g.n * weft_dtype_bytes(t)), x->pool);
    }
    return WEFT_OK;
}
SCRATCH(grouped_matmul)
{
    groups    g = make(c, &c->in[0], &c->in[1]);
    weft_gemm m = forward(c, &g, &c->out[c->n_out - 1], 0, 0, g.rows);
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
