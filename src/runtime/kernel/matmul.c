/* matmul: a spec such as "bsd,dche->bsche" over strided views becomes products of matrices.
 *
 * Letters fall into four groups: batch (in a, b and y), rows (a, y), columns (b, y), summed (not in
 * y).  A group whose letters are one run in every operand is one dimension of weft_gemm; where it
 * is not, its largest run is taken and the others are looped over here, outermost first, sums
 * going on in y.  Steps behind the product become weft_gemm's. */
#include "kernel/cpu_priv.h"
#include "kernel/fp8.h"
#include "kernel/gemm.h"
#include "kernel/nd.h"
#include "kernel/posts.h"
#include "kernel/rows.h"

enum {
    A,
    B,
    Y,
    FIRST_POST
}; /* operands of a group */
enum {
    BATCH,
    ROWS,
    COLS,
    SUMMED,
    N_GROUP
};
enum {
    MAX_STEP = WEFT_KERNEL__STEPS
};

typedef struct plan {
    weft_gemm        g;
    weft_gemm_post   post[MAX_STEP];
    float            alpha[MAX_STEP];
    int              n_op;
    const weft_view *view[FIRST_POST + MAX_STEP]; /* of each operand */
    char            *base[FIRST_POST + MAX_STEP];
    /* outer: batch, rows, columns; inner: summed */
    weft_kernel__nd group[N_GROUP], outer, inner;
} plan;

/* ---- steps ---- */

weft_status weft_kernel__post_kind(const weft_kernel_post *p, weft_post_kind *out)
{
    static const struct {
        weft_op        op;
        weft_post_kind kind;
    } map[] = {{WEFT_OP_ADD, WEFT_POST_ADD},
               {WEFT_OP_MUL, WEFT_POST_MUL},
               {WEFT_OP_SCALE, WEFT_POST_MUL},
               {WEFT_OP_GELU, WEFT_POST_GELU_TANH},
               {WEFT_OP_GELU_GRAD, WEFT_POST_GELU_TANH_GRAD},
               {WEFT_OP_SILU, WEFT_POST_SILU},
               {WEFT_OP_SILU_GRAD, WEFT_POST_SILU_GRAD},
               {WEFT_OP_RELU, WEFT_POST_RELU},
               {WEFT_OP_RELU_GRAD, WEFT_POST_RELU_GRAD},
               {WEFT_OP_TANH, WEFT_POST_TANH},
               {WEFT_OP_TANH_GRAD, WEFT_POST_TANH_GRAD}};
    for (size_t i = 0; i < WEFT_COUNT(map); i++) {
        if (map[i].op != p->op) continue;
        *out = map[i].kind;
        if (p->op != WEFT_OP_GELU && p->op != WEFT_OP_GELU_GRAD) return WEFT_OK;
        bool erf = strcmp(p->attr[weft_op_attr_index(p->op, "approx")].s, "tanh") != 0;
        if (erf)
            *out = p->op == WEFT_OP_GELU ? WEFT_POST_GELU_ERF : WEFT_POST_GELU_ERF_GRAD;
        return WEFT_OK;
    }
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s cannot be a step behind a product",
                     weft_op_get(p->op)->name);
}

static weft_status step(plan *p, weft_post_kind kind, const weft_view *v)
{
    if (p->g.n_post == MAX_STEP)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "matmul: more than %d steps", MAX_STEP);
    int i           = p->g.n_post++;
    p->post[i].kind = kind;
    if (v) p->post[i].p = v->p, p->post[i].dtype = v->dtype;
    p->view[FIRST_POST + i] = v;
    return WEFT_OK;
}

/* A stage's value meets its result: the last one is C, the others are stored on the way. */
static weft_status stage(plan *p, const weft_kernel_call *c, int out, bool last)
{
    if (out < 0 || !c->out[out].p) return WEFT_OK;
    bool add = weft_kernel__adds(c, out);
    if (add && c->n_post == 0)
        p->g.accumulate = 1;
    else if (add)
        WEFT_TRY(step(p, WEFT_POST_ADD, &c->out[out]));
    if (last)
        p->view[Y] = &c->out[out];
    else
        WEFT_TRY(step(p, WEFT_POST_STORE, &c->out[out]));
    return WEFT_OK;
}

static weft_status steps(plan *p, const weft_kernel_call *c)
{
    WEFT_TRY(stage(p, c, 0, c->n_post == 0));
    for (int i = 0; i < c->n_post; i++) {
        const weft_kernel_post *s    = &c->post[i];
        weft_post_kind          kind = WEFT_POST_ADD;
        WEFT_TRY(weft_kernel__post_kind(s, &kind));
        WEFT_TRY(step(p, kind, s->in >= 0 ? &c->in[s->in] : NULL));
        if (s->op == WEFT_OP_SCALE) {
            weft_gemm_post *q = &p->post[p->g.n_post - 1];
            p->alpha[p->g.n_post - 1] =
                (float)s->attr[weft_op_attr_index(s->op, "alpha")].f;
            q->p     = &p->alpha[p->g.n_post - 1];
            q->dtype = WEFT_DTYPE_F32;
        }
        WEFT_TRY(stage(p, c, s->out, i == c->n_post - 1));
    }
    if (!p->view[Y])
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "matmul: its last value is not kept");
    return WEFT_OK;
}

/* ---- letters ---- */

/* The step of a letter in an operand whose letters are `in`. */
static int64_t stride_of(const weft_view *v, const char *in, size_t n_in, char letter)
{
    const char *at = memchr(in, letter, n_in);
    return at ? v->stride[at - in] : 0;
}

/* The same for a view that is spread over y's letters. */
static int64_t spread_of(const weft_view *v, const char *y, size_t n_y, char letter)
{
    const char *at = memchr(y, letter, n_y);
    if (!v || !at) return 0;
    int d = (int)(at - y) - ((int)n_y - v->shape.n);
    return d < 0 || v->shape.d[d] == 1 ? 0 : v->stride[d];
}

typedef struct spec {
    const char *part[3];
    size_t      n[3];
} spec;

static spec take_apart(const char *s)
{
    spec r;
    for (int i = 0; i < 3; i++) {
        r.part[i] = s;
        r.n[i]    = strspn(s, "abcdefghijklmnopqrstuvwxyz");
        s += r.n[i];
        s += *s == ',' ? 1 : *s == '-' ? 2 : 0;
    }
    return r;
}

static void add_letter(plan *p, const spec *s, char letter)
{
    bool a = memchr(s->part[A], letter, s->n[A]), b = memchr(s->part[B], letter, s->n[B]);
    bool y     = memchr(s->part[Y], letter, s->n[Y]);
    int  group = !y ? SUMMED : a && b ? BATCH : a ? ROWS : COLS;
    int64_t st[FIRST_POST + MAX_STEP];
    int     from = a ? A : B;
    int64_t size =
        p->view[from]->shape.d[(const char *)memchr(s->part[from], letter, s->n[from]) -
                               s->part[from]];

    for (int o = A; o <= Y; o++)
        st[o] = stride_of(p->view[o], s->part[o], s->n[o], letter);
    for (int o = FIRST_POST; o < p->n_op; o++)
        st[o] = spread_of(p->view[o], s->part[Y], s->n[Y], letter);
    weft_kernel__nd_dim(&p->group[group], size, st);
}

/* Takes the largest run out of a group for the product; the others go to `rest`. */
static int64_t largest(weft_kernel__nd *g, weft_kernel__nd *rest, int64_t *st)
{
    int best = 0;
    weft_kernel__nd_merge(g);
    for (int d = 1; d < g->n; d++)
        if (g->size[d] > g->size[best]) best = d;
    for (int d = 0; d < g->n; d++) {
        int64_t t[FIRST_POST + MAX_STEP];
        for (int o = 0; o < g->n_op; o++) t[o] = g->step[o][d];
        if (d == best)
            memcpy(st, t, sizeof t);
        else
            weft_kernel__nd_dim(rest, g->size[d], t);
    }
    return g->size[best];
}

static void fill(plan *p)
{
    int64_t    st[N_GROUP][FIRST_POST + MAX_STEP], size[N_GROUP];
    weft_gemm *g = &p->g;

    for (int i = 0; i < N_GROUP; i++)
        size[i] = largest(&p->group[i], i == SUMMED ? &p->inner : &p->outer, st[i]);
    /* C wants its columns side by side */
    int  r = ROWS, c = COLS, a = A, b = B;
    bool turn = st[COLS][Y] != 1 && st[ROWS][Y] == 1 && size[ROWS] > 1;
    if (turn) r = COLS, c = ROWS, a = B, b = A;
    g->batch = size[BATCH], g->m = size[r], g->n = size[c], g->k = size[SUMMED];
    g->a_rs = st[r][a], g->a_cs = st[SUMMED][a], g->a_bs = st[BATCH][a];
    g->b_rs = st[SUMMED][b], g->b_cs = st[c][b], g->b_bs = st[BATCH][b];
    g->c_rs = st[r][Y], g->c_cs = st[c][Y], g->c_bs = st[BATCH][Y];
    g->a = p->view[a]->p, g->b = p->view[b]->p, g->c = p->view[Y]->p;
    g->ta = p->view[a]->dtype, g->tb = p->view[b]->dtype, g->tc = p->view[Y]->dtype;
    p->base[A] = p->view[a]->p, p->base[B] = p->view[b]->p, p->base[Y] = p->view[Y]->p;
    if (turn) {
        const weft_view *v = p->view[A];
        p->view[A] = p->view[B], p->view[B] = v;
        weft_kernel__nd *nd[2] = {&p->outer, &p->inner};
        for (int i = 0; i < 2; i++)
            for (int d = 0; d < nd[i]->n; d++) {
                int64_t t         = nd[i]->step[A][d];
                nd[i]->step[A][d] = nd[i]->step[B][d], nd[i]->step[B][d] = t;
            }
    }
    for (int i = 0; i < g->n_post; i++) {
        int o         = FIRST_POST + i;
        p->post[i].rs = st[r][o], p->post[i].cs = st[c][o], p->post[i].bs = st[BATCH][o];
        p->base[o] = p->post[i].p;
    }
    g->post = p->post;
}

static bool is_float(const weft_view *v)
{
    return !v || v->dtype == WEFT_DTYPE_F32 || v->dtype == WEFT_DTYPE_BF16;
}

static weft_status make(plan *p, const weft_kernel_call *c)
{
    spec s = take_apart(weft_kernel__attr(c, "spec")->s);
    memset(p, 0, sizeof *p);
    p->g.alpha = 1.0f;
    p->view[A] = &c->in[0];
    p->view[B] = &c->in[1];
    WEFT_TRY(steps(p, c));
    p->n_op = FIRST_POST + p->g.n_post;
    for (int o = 0; o < p->n_op; o++)
        if (!is_float(p->view[o]))
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "matmul: operands must be f32 or bf16");
    for (int i = 0; i < N_GROUP; i++) p->group[i].n_op = p->n_op;
    p->outer.n_op = p->inner.n_op = p->n_op;
    for (size_t i = 0; i < s.n[Y]; i++) add_letter(p, &s, s.part[Y][i]);
    for (size_t i = 0; i < s.n[A]; i++)
        if (!memchr(s.part[Y], s.part[A][i], s.n[Y])) add_letter(p, &s, s.part[A][i]);
    for (size_t i = 0; i < s.n[B]; i++)
        if (!memchr(s.part[Y], s.part[B][i], s.n[Y]) &&
            !memchr(s.part[A], s.part[B][i], s.n[A]))
            add_letter(p, &s, s.part[B][i]);
    fill(p);
    return WEFT_OK;
}

static weft_status run_matmul(const weft_kernel_call *c, const weft_kernel_ctx *x,
                              void *scratch)
{
    plan    p;
    int64_t at[WEFT_KERNEL__ND_OP], add[WEFT_KERNEL__ND_OP];
    WEFT_TRY(make(&p, c));
    int     n_post = p.g.n_post, first = p.g.accumulate;
    int64_t n_outer = weft_kernel__nd_count(&p.outer, p.outer.n);
    int64_t n_inner = weft_kernel__nd_count(&p.inner, p.inner.n);

    if (!n_inner) p.inner.n = 0, p.g.k = 0, n_inner = 1; /* a sum of nothing is 0 */
    for (int64_t i = 0; i < n_outer; i++)
        for (int64_t k = 0; k < n_inner; k++) {
            weft_kernel__nd_at(&p.outer, p.outer.n, i, at);
            weft_kernel__nd_at(&p.inner, p.inner.n, k, add);
            for (int o = 0; o < p.n_op; o++) {
                if (!p.base[o]) continue;
                weft_dtype t =
                    o >= FIRST_POST ? p.post[o - FIRST_POST].dtype : p.view[o]->dtype;
                char *q = weft_kernel__ptr(p.base[o], t, at[o] + add[o]);
                if (o == A) p.g.a = q;
                if (o == B) p.g.b = q;
                if (o == Y) p.g.c = q;
                if (o >= FIRST_POST) p.post[o - FIRST_POST].p = q;
            }
            p.g.accumulate = k > 0 ? 1 : first;
            p.g.n_post     = k == n_inner - 1 ? n_post : 0;
            weft_gemm_run(&p.g, x->pool, scratch);
        }
    return WEFT_OK;
}

KERNEL(matmul)
{
    weft_kernel__fp8 f;
    if (!weft_kernel__is_fp8(c)) return run_matmul(c, x, x->scratch);
    WEFT_TRY(weft_kernel__fp8_call(c, x->scratch, &f));
    weft_kernel__fp8_round(c, &f, x->pool);
    weft_kernel__fp8_columns(c);
    return run_matmul(&f.call, x, (char *)x->scratch + f.bytes);
}

SCRATCH(matmul)
{
    plan             p;
    weft_kernel__fp8 f  = {.call = *c};
    weft_status      st = WEFT_OK;
    if (weft_kernel__is_fp8(c)) st = weft_kernel__fp8_call(c, &f, &f);
    if (st != WEFT_OK || make(&p, &f.call) != WEFT_OK) return 0;
    return f.bytes + weft_gemm_scratch(&p.g, n_thread);
}
