/* Gradients: every differentiable operator against central differences in double precision, over
 * the op-test table; then whole small graphs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "graph/build.h"
#include "graph/grad.h"
#include "support/eval.h"
#include "support/fixture.h"
#include "support/op_cases.h"

#define OK(call)                                                                         \
    do                                                                                   \
        if ((call) != WEFT_OK) fail_msg("%s: %s", what, weft_error_text());              \
    while (0)

static const weft_ref_ctx ctx = {.seed = 5, .step = 2, .first_sample = 11};

static int64_t count_of(const weft_graph *g, weft_vid v)
{
    return weft_shape_count(&g->value[v].type.shape);
}

static double loss_of(weft_test_eval *e, weft_vid loss, const char *what)
{
    OK(weft_test_eval_run(e, WEFT_PHASE_FORWARD, WEFT_PHASE_FORWARD, false, &ctx));
    return e->data[loss][0];
}

/* Compares the gradient values of wrt with central differences at up to 24 elements of each. */
static void check_gradients(weft_test_eval *e, weft_vid loss, int n, const weft_vid *wrt,
                            const weft_vid *grad, const char *what)
{
    OK(weft_test_eval_run(e, WEFT_PHASE_FORWARD, WEFT_PHASE_BACKWARD, false, &ctx));
    for (int i = 0; i < n; i++) {
        int64_t size = count_of(e->g, wrt[i]), step = size > 24 ? size / 23 : 1;
        double *x = e->data[wrt[i]], *dx = e->data[grad[i]];
        assert_int_equal(count_of(e->g, grad[i]), size);
        for (int64_t k = 0; k < size; k += step) {
            double keep = x[k], h = 1e-5 * fmax(1, fabs(keep));
            x[k]        = keep + h;
            double up   = loss_of(e, loss, what);
            x[k]        = keep - h;
            double down = loss_of(e, loss, what), fd = (up - down) / (2 * h);
            x[k] = keep;
            if (!(fabs(fd - dx[k]) <= 2e-6 * fmax(1, fabs(fd))))
                fail_msg("%s: d/d%s[%ld] is %.9g, differences say %.9g", what,
                         e->g->value[wrt[i]].name, (long)k, dx[k], fd);
        }
    }
}

/* Which rows have a gradient to test: not those that are gradients themselves, nor once-a-step
 * ones. */
static bool differentiable(const weft_test_case *c)
{
    const weft_op_row *row = weft_op_get(c->op);
    if (row->flags & (WEFT_OP_NODIFF | WEFT_OP_UPDATE)) return false;
    if (c->op == WEFT_OP_ACCUMULATE || c->op == WEFT_OP_SUMSQ || c->op == WEFT_OP_CLIP)
        return false;
    if (c->op == WEFT_OP_SUMSQ_PARTS || c->op == WEFT_OP_SUMSQ_TREE) return false;
    if (c->op == WEFT_OP_SLICE_GRAD) return true;
    if (c->op == WEFT_OP_CROSS_ENTROPY && strstr(c->attr, "first=")) return false;
    return !strstr(row->name, "grad") && !strstr(c->attr, "kind=max");
}

/* loss = sum over results of sum(weight * result); side results (statistics, indices) stay out. */
static void check_case(const weft_test_case *c)
{
    weft_graph    *g;
    weft_op_use    u;
    weft_test_eval e;
    char           what[256];
    weft_vid       in[16], out[16], wrt[16], grad[16], loss = -1;
    int            n_wrt = 0;

    weft_test_case_text(c, what, sizeof what);
    OK(weft_test_case_make(c, arena, &u));
    OK(weft_graph_create("case", &g));
    weft_builder b = weft_build_start(g);
    for (int k = 0; k < u.n_in; k++) {
        bool index = u.in[k].dtype == WEFT_DTYPE_I32;
        in[k]      = index ? weft_build_input(&b, "i", u.in[k].dtype, u.in[k].shape.n,
                                              u.in[k].shape.d)
                           : weft_build_param(&b, "p", u.in[k].dtype, u.in[k].shape.n,
                                              u.in[k].shape.d);
        /* a router's bias decides which experts are taken, and nothing else */
        bool choice = c->op == WEFT_OP_ROUTE && k == 1;
        if (!index && !choice) wrt[n_wrt++] = in[k];
    }
    OK(b.st);
    OK(weft_graph_add_node(g, c->op, u.attr, u.n_in, in, "y", u.n_out, out));
    for (int j = 0; j < (c->op == WEFT_OP_SPLIT ? u.n_out : 1); j++) {
        weft_vid w =
            weft_build_input(&b, "w", WEFT_DTYPE_F32, u.out[j].shape.n, u.out[j].shape.d);
        weft_vid   y    = weft_build(&b, WEFT_OP_MUL, NULL, NULL, 2, out[j], w);
        weft_shape flat = {1, {weft_shape_count(&u.out[j].shape)}};
        y               = weft_build_reshape(&b, y, &flat);
        y               = weft_build(&b, WEFT_OP_REDUCE, NULL, "axes=[0]", 1, y);
        loss = loss < 0 ? y : weft_build(&b, WEFT_OP_ADD, NULL, NULL, 2, loss, y);
    }
    OK(b.st);
    OK(weft_graph_differentiate(g, loss, -1, n_wrt, wrt, grad));
    OK(weft_graph_verify(g));
    OK(weft_test_eval_make(g, arena, &e));
    for (int k = 0; k < u.n_in; k++) weft_test_case_fill(c, &u, k, 77, e.data[in[k]]);
    for (weft_vid v = 0; v < g->n_value; v++) /* the weights */
        if (g->value[v].kind == WEFT_VALUE_INPUT &&
            g->value[v].type.dtype == WEFT_DTYPE_F32)
            for (int64_t i = 0; i < count_of(g, v); i++)
                e.data[v][i] = 0.5 + 0.37 * (double)((i * 7 + v) % 5);
    check_gradients(&e, loss, n_wrt, wrt, grad, what);
    weft_graph_destroy(g);
}

static void every_operator(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < weft_n_test_case; i++) /* rounding to fp8 has no slope */
        if (differentiable(&weft_test_cases[i]) &&
            !strstr(weft_test_cases[i].attr, "fp8=")) {
            check_case(&weft_test_cases[i]);
            n++;
        }
    assert_true(n > 70);
}

/* ---- whole graphs ---- */

static void fill_all(weft_test_eval *e, uint64_t seed)
{
    for (weft_vid v = 0; v < e->g->n_value; v++) {
        const weft_graph_value *x = &e->g->value[v];
        if (x->kind == WEFT_VALUE_NODE || x->type.dtype == WEFT_DTYPE_I32) continue;
        for (int64_t i = 0; i < count_of(e->g, v); i++) {
            uint32_t w[4];
            float    z[2];
            weft_random_philox((uint32_t[]){(uint32_t)seed, 0},
                               (uint32_t[]){(uint32_t)i, (uint32_t)v, 0, 0}, w);
            weft_random_normal2(w[0], w[1], z);
            e->data[v][i] = 0.3 * (double)z[0];
        }
    }
}
static void fill_ids(weft_test_eval *e, weft_vid v, int below)
{
    for (int64_t i = 0; i < count_of(e->g, v); i++)
        e->data[v][i] = (double)((i * 5 + 3) % below);
}

#define DIMS(...)                                                                        \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])               \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }

/* A one-layer language model with a tied table, residuals, dropout: every kind of joint there is.
 */
typedef struct model {
    weft_graph *g;
    weft_vid    ids, labels, loss;
    int         n_param;
    weft_vid    param[16];
} model;

static weft_vid param(model *m, weft_builder *b, const char *name, int n,
                      const int64_t *d)
{
    return m->param[m->n_param++] = weft_build_param(b, name, WEFT_DTYPE_F32, n, d);
}

static void make_lm(model *m)
{
    const char *what = "lm";
    OK(weft_graph_create("lm", &m->g));
    weft_builder b = weft_build_start(m->g);
    m->ids         = weft_build_input(&b, "ids", WEFT_DTYPE_I32, DIMS(2, 3));
    m->labels      = weft_build_input(&b, "labels", WEFT_DTYPE_I32, DIMS(2, 3));
    weft_vid wte = param(m, &b, "wte", DIMS(7, 4)), wpe = param(m, &b, "wpe", DIMS(3, 4));
    weft_vid x = weft_build(&b, WEFT_OP_EMBEDDING, NULL, NULL, 2, wte, m->ids);
    x          = weft_build(&b, WEFT_OP_ADD, NULL, NULL, 2, x, wpe);
    x          = weft_build(&b, WEFT_OP_DROPOUT, NULL, "p=0.2 id=1", 1, x);
    weft_vid n1[3], qkv[3], o[2];
    weft_build_many(
        &b, WEFT_OP_LAYER_NORM, "ln", NULL, 3,
        (weft_vid[]){x, param(m, &b, "ln.w", DIMS(4)), param(m, &b, "ln.b", DIMS(4))}, 3,
        n1);
    weft_vid h = weft_build(&b, WEFT_OP_MATMUL, NULL, "spec=bsd,dche->bsche", 2, n1[0],
                            param(m, &b, "qkv", DIMS(4, 3, 2, 2)));
    h          = weft_build(&b, WEFT_OP_ADD, NULL, NULL, 2, h,
                            param(m, &b, "qkv.b", DIMS(3, 2, 2)));
    weft_build_many(&b, WEFT_OP_SPLIT, "qkv.part", "axis=2 sizes=[1,1,1]", 1, &h, 3, qkv);
    weft_shape s = weft_shape_make(DIMS(2, 3, 2, 2));
    for (int i = 0; i < 3; i++) qkv[i] = weft_build_reshape(&b, qkv[i], &s);
    weft_build_many(&b, WEFT_OP_ATTENTION, "attn", "causal=1", 3, qkv, 2, o);
    h = weft_build(&b, WEFT_OP_MATMUL, NULL, "spec=bshe,hed->bsd", 2, o[0],
                   param(m, &b, "proj", DIMS(2, 2, 4)));
    x = weft_build(&b, WEFT_OP_ADD, NULL, NULL, 2, x, h);
    h = weft_build(&b, WEFT_OP_MATMUL, NULL, "spec=bsd,dn->bsn", 2, x,
                   param(m, &b, "fc", DIMS(4, 5)));
    h = weft_build(&b, WEFT_OP_GELU, NULL, NULL, 1, h);
    h = weft_build(&b, WEFT_OP_MATMUL, NULL, "spec=bsn,dn->bsd", 2, h,
                   param(m, &b, "fc2", DIMS(4, 5)));
    x = weft_build(&b, WEFT_OP_ADD, NULL, NULL, 2, x, h);
    weft_vid logits =
                 weft_build(&b, WEFT_OP_MATMUL, "logits", "spec=bsd,vd->bsv", 2, x, wte),
             ce[2];
    weft_build_many(&b, WEFT_OP_CROSS_ENTROPY, "loss", NULL, 2,
                    (weft_vid[]){logits, m->labels}, 2, ce);
    m->loss = weft_build(&b, WEFT_OP_REDUCE, "loss_sum", "axes=[0,1]", 1, ce[0]);
    OK(b.st);
}

static void tied_language_model(void **state)
{
    (void)state;
    const char    *what = "lm";
    model          m    = {0};
    weft_vid       grad[16];
    weft_test_eval e;
    make_lm(&m);
    OK(weft_graph_differentiate(m.g, m.loss, -1, m.n_param, m.param, grad));
    OK(weft_graph_verify(m.g));
    OK(weft_test_eval_make(m.g, arena, &e));
    fill_all(&e, 3);
    fill_ids(&e, m.ids, 7);
    fill_ids(&e, m.labels, 7);
    check_gradients(&e, m.loss, m.n_param, m.param, grad, what);
    weft_graph_destroy(m.g);
}

/* The tied table's uses come apart, in graph order: the lookup first, the logits second. */
static void uses_stay_apart(void **state)
{
    (void)state;
    const char    *what = "uses";
    model          m    = {0};
    weft_grad_uses uses[16];
    make_lm(&m);
    OK(weft_graph_differentiate_uses(m.g, m.loss, -1, m.n_param, m.param, uses));
    assert_int_equal(uses[0].n, 2);
    assert_int_equal(m.g->node[m.g->value[uses[0].grad[0]].node].op,
                     WEFT_OP_EMBEDDING_GRAD);
    assert_int_equal(m.g->node[m.g->value[uses[0].grad[1]].node].op, WEFT_OP_MATMUL);
    for (int i = 1; i < m.n_param; i++) assert_int_equal(uses[i].n, 1);
    weft_graph_destroy(m.g);
}

/* Contributions to a value are added as its uses stand in the graph; nothing needless is made. */
static void sums_follow_graph_order(void **state)
{
    (void)state;
    const char *what = "order";
    weft_graph *g;
    OK(weft_graph_create("order", &g));
    weft_builder b      = weft_build_start(g);
    weft_vid     x      = weft_build_param(&b, "x", WEFT_DTYPE_F32, DIMS(3));
    weft_vid     y      = weft_build(&b, WEFT_OP_SCALE, NULL, "alpha=2", 1, x);
    weft_vid     t      = weft_build(&b, WEFT_OP_TANH, "t", NULL, 1, y);
    weft_vid     s      = weft_build(&b, WEFT_OP_SILU, "s", NULL, 1, y);
    weft_vid     unused = weft_build(&b, WEFT_OP_GELU, NULL, NULL, 1, y), grad, none;
    weft_vid     z      = weft_build(&b, WEFT_OP_MUL, NULL, NULL, 2, t, s);
    weft_vid     other  = weft_build_param(&b, "other", WEFT_DTYPE_F32, DIMS(3));
    (void)unused;
    OK(b.st);
    int before = g->n_node;
    OK(weft_graph_differentiate(g, z, -1, 1, &x, &grad));
    /* seed (fill, broadcast), two mul, tanh_grad, silu_grad, add, scale */
    assert_int_equal(g->n_node - before, 8);
    const weft_graph_node *add = &g->node[g->n_node - 2];
    assert_int_equal(add->op, WEFT_OP_ADD);
    assert_int_equal(g->node[g->value[add->in[0]].node].op, WEFT_OP_TANH_GRAD);
    assert_int_equal(g->node[g->value[add->in[1]].node].op, WEFT_OP_SILU_GRAD);
    OK(weft_graph_differentiate(g, z, -1, 1, &other, &none));
    assert_int_equal(none, -1);
    weft_graph_destroy(g);
}

/* Storage in bf16: parameters' gradients come out in f32, activations' in bf16. */
static void bf16_gradients_are_f32(void **state)
{
    (void)state;
    const char *what = "bf16";
    weft_graph *g;
    weft_vid    grad[3];
    OK(weft_graph_create("bf16", &g));
    weft_builder b   = weft_build_start(g);
    weft_vid     ids = weft_build_input(&b, "ids", WEFT_DTYPE_I32, DIMS(2, 3));
    weft_vid     e   = weft_build_param(&b, "e", WEFT_DTYPE_BF16, DIMS(7, 4));
    weft_vid     w   = weft_build_param(&b, "w", WEFT_DTYPE_BF16, DIMS(4, 5));
    weft_vid     c   = weft_build_param(&b, "c", WEFT_DTYPE_BF16, DIMS(5));
    weft_vid     x   = weft_build(&b, WEFT_OP_EMBEDDING, "x", NULL, 2, e, ids);
    weft_vid     y   = weft_build(&b, WEFT_OP_MATMUL, "y", "spec=bsd,dn->bsn", 2, x, w);
    y                = weft_build(&b, WEFT_OP_ADD, "y", NULL, 2, y, c);
    y = weft_build(&b, WEFT_OP_REDUCE, "y", "axes=[0,1,2] dtype=f32", 1, y);
    OK(b.st);
    OK(weft_graph_differentiate(g, y, -1, 3, (weft_vid[]){e, w, c}, grad));
    OK(weft_graph_verify(g));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(g->value[grad[i]].type.dtype, WEFT_DTYPE_F32);
        assert_int_not_equal(g->node[g->value[grad[i]].node].op, WEFT_OP_CAST);
    }
    weft_vid dx = weft_graph_find(g, "x.d");
    assert_int_equal(g->value[dx].type.dtype, WEFT_DTYPE_BF16);
    weft_graph_destroy(g);
}

static void says_what_has_no_gradient(void **state)
{
    (void)state;
    const char *what = "no gradient";
    weft_graph *g;
    weft_vid    grad;
    OK(weft_graph_create("no", &g));
    weft_builder b = weft_build_start(g);
    weft_vid     x = weft_build_param(&b, "x", WEFT_DTYPE_F32, DIMS(3));
    weft_vid     y = weft_build(&b, WEFT_OP_REDUCE, "top", "axes=[0] kind=max", 1, x);
    OK(b.st);
    assert_int_equal(weft_graph_differentiate(g, y, -1, 1, &x, &grad), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "top"));
    weft_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(every_operator),         with_arena(tied_language_model),
        with_arena(uses_stay_apart),        with_arena(sums_follow_graph_order),
        with_arena(bf16_gradients_are_f32), with_arena(says_what_has_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
