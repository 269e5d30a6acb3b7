/* Training graphs: every optimizer against a loop written by hand, micro-batches, bf16 copies,
 * recomputation that changes no number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graph/build.h"
#include "graph/recompute.h"
#include "graph/train.h"
#include "support/eval.h"
#include "support/fixture.h"
#include "support/same_graph.h"

#define OK(call)                                                                         \
    do                                                                                   \
        if ((call) != WEFT_OK) fail_msg("%s", weft_error_text());                        \
    while (0)
#define DIMS(...)                                                                        \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])               \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * fmax(1, fabs(b)))) fail_msg("%.17g is not %.17g", a, b);
}

static int64_t count_of(const weft_graph *g, weft_vid v)
{
    return weft_shape_count(&g->value[v].type.shape);
}

/* ---- optimizers ---- */

enum {
    N     = 3,
    MICRO = 2,
    STEPS = 6
};

/* loss = sum of p x: the gradient is x, so an optimizer can be followed by hand. */
static weft_graph *linear_model(weft_vid *p, weft_vid *x, weft_vid *loss)
{
    weft_graph *g;
    OK(weft_graph_create("linear", &g));
    weft_builder b = weft_build_start(g);
    *x             = weft_build_input(&b, "x", WEFT_DTYPE_F32, DIMS(N));
    *p             = weft_build_param(&b, "p", WEFT_DTYPE_F32, DIMS(N));
    weft_vid y     = weft_build(&b, WEFT_OP_MUL, "y", NULL, 2, *p, *x);
    *loss          = weft_build(&b, WEFT_OP_REDUCE, "loss", "axes=[0]", 1, y);
    OK(b.st);
    return g;
}

static double sample(int step, int micro, int i)
{
    return sin(1.0 + 3 * step + 7 * micro + 11 * i) * (i == 1 ? 4 : 1);
}
static double rate(int step)
{
    return 0.1 / step;
}

typedef struct by_hand {
    double p[N], m[N], v[N];
    double norm;
} by_hand;

/* One step of each optimizer as its paper (and torch) writes it. */
static void step_by_hand(by_hand *s, const weft_train_options *o, int step)
{
    double g[N], u[N], sq = 0, p_sq = 0, u_sq = 0, lr = rate(step), wd = o->weight_decay;
    double b1 = o->beta[0], b2 = o->beta[1], c1 = 1 - pow(b1, step),
           c2 = 1 - pow(b2, step);
    bool lamb = !strcmp(o->optimizer, "lamb");
    for (int i = 0; i < N; i++) {
        g[i] = 0.25 * (sample(step, 0, i) + sample(step, 1, i));
        sq += g[i] * g[i];
    }
    s->norm = sqrt(sq);
    if (o->clip > 0 && s->norm + 1e-6 > o->clip)
        for (int i = 0; i < N; i++) g[i] *= o->clip / (s->norm + 1e-6);
    for (int i = 0; i < N; i++) {
        double *p = &s->p[i], *m = &s->m[i], *v = &s->v[i];
        if (!strcmp(o->optimizer, "sgd")) {
            double d = g[i] + wd * *p;
            *m       = o->momentum * *m + d;
            *p -= lr * (o->momentum != 0 ? *m : d);
        } else if (!strcmp(o->optimizer, "adagrad")) {
            double d = g[i] + wd * *p;
            *v += d * d;
            *p -= lr * d / (sqrt(*v) + o->eps);
        } else {
            bool   l2 = !strcmp(o->optimizer, "adam");
            double d  = g[i] + (l2 ? wd * *p : 0);
            if (!strcmp(o->optimizer, "adamw")) *p *= 1 - lr * wd;
            *m   = b1 * *m + (1 - b1) * d;
            *v   = b2 * *v + (1 - b2) * d * d;
            u[i] = *m / c1 / (sqrt(*v / c2) + o->eps) + (lamb ? wd * *p : 0);
            p_sq += *p * *p;
            u_sq += u[i] * u[i];
            if (!lamb) *p -= lr * u[i];
        }
    }
    if (lamb)
        for (int i = 0; i < N; i++)
            s->p[i] -= lr * (p_sq > 0 && u_sq > 0 ? sqrt(p_sq / u_sq) : 1) * u[i];
}

static void run_step(weft_test_eval *e, const weft_training_graph *t, weft_vid x,
                     int step)
{
    e->data[t->lr][0]    = rate(step);
    e->data[t->step][0]  = step;
    e->data[t->inv_n][0] = 0.25;
    for (int m = 0; m < MICRO; m++) {
        for (int i = 0; i < N; i++) e->data[x][i] = sample(step, m, i);
        OK(weft_test_eval_run(e, WEFT_PHASE_FORWARD, WEFT_PHASE_BACKWARD, m > 0, NULL));
    }
    OK(weft_test_eval_run(e, WEFT_PHASE_UPDATE, WEFT_PHASE_UPDATE, false, NULL));
}

static void follow(weft_train_options o)
{
    weft_vid            p, x, loss;
    weft_training_graph t;
    weft_test_eval      e;
    by_hand             s     = {.p = {0.5, -2, 0}};
    weft_graph         *model = linear_model(&p, &x, &loss);
    o.loss                    = loss;
    o.n_param                 = 1;
    o.param                   = &(weft_train_param){p, true};
    OK(weft_graph_make_training(model, &o, &t));
    OK(weft_graph_verify(t.graph));
    p = weft_graph_find(t.graph, "p");
    x = weft_graph_find(t.graph, "x");
    OK(weft_test_eval_make(t.graph, arena, &e));
    memcpy(e.data[p], s.p, sizeof s.p);
    for (int step = 1; step <= STEPS; step++) {
        double want = 0;
        for (int m = 0; m < MICRO; m++)
            for (int i = 0; i < N; i++) want += s.p[i] * sample(step, m, i);
        run_step(&e, &t, x, step);
        step_by_hand(&s, &o, step);
        near(e.data[t.loss][0], want);
        near(e.data[t.grad_norm][0], s.norm);
        weft_test_eval_next(&e);
        for (int i = 0; i < N; i++) near(e.data[p][i], s.p[i]);
    }
    weft_graph_destroy(t.graph);
    weft_graph_destroy(model);
}

static void optimizers(void **state)
{
    (void)state;
    const char *name[] = {"sgd", "adam", "adamw", "adagrad", "lamb"};
    for (size_t i = 0; i < WEFT_COUNT(name); i++)
        for (int k = 0; k < 8; k++)
            follow((weft_train_options){.optimizer    = name[i],
                                        .beta         = {0.8, 0.95},
                                        .eps          = 1e-3,
                                        .weight_decay = k & 1 ? 0.1 : 0,
                                        .clip         = k & 2 ? 0.5 : 0,
                                        .momentum     = k & 4 ? 0.9 : 0});
}

static void unknown_optimizer(void **state)
{
    (void)state;
    weft_vid            p, x, loss;
    weft_training_graph t;
    weft_graph         *model = linear_model(&p, &x, &loss);
    weft_train_options  o     = {.optimizer = "adamv", .loss = loss};
    assert_int_equal(weft_graph_make_training(model, &o, &t), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "adamv"));
    o = (weft_train_options){.optimizer = "sgd", .loss = -1};
    assert_int_equal(weft_graph_make_training(model, &o, &t), WEFT_ERR_ARG);
    weft_graph_destroy(model);
}

/* ---- a model of three equal layers, with a tied table ---- */

typedef struct model {
    weft_graph      *g;
    weft_vid         ids, labels, loss;
    int              n_param;
    weft_train_param param[32];
} model;

static weft_vid param(model *m, weft_builder *b, const char *name, int n,
                      const int64_t *d)
{
    weft_vid v             = weft_build_param(b, name, WEFT_DTYPE_F32, n, d);
    m->param[m->n_param++] = (weft_train_param){v, n > 1};
    return v;
}

enum {
    B = 2,
    S = 3,
    D = 4,
    H = 2,
    V = 7
};

static weft_vid layer(model *m, weft_builder *b, weft_vid x, int i)
{
    weft_vid   n[2], qkv[3], o[2];
    weft_shape head = weft_shape_make(DIMS(B, S, H, D / H));
    char       attr[32];
    weft_build_many(b, WEFT_OP_RMS_NORM, "ln", NULL, 2,
                    (weft_vid[]){x, param(m, b, "ln.w", DIMS(D))}, 2, n);
    weft_vid h = weft_build(b, WEFT_OP_MATMUL, NULL, "spec=bsd,dche->bsche", 2, n[0],
                            param(m, b, "qkv", DIMS(D, 3, H, D / H)));
    weft_build_many(b, WEFT_OP_SPLIT, "part", "axis=2 sizes=[1,1,1]", 1, &h, 3, qkv);
    for (int k = 0; k < 3; k++) qkv[k] = weft_build_reshape(b, qkv[k], &head);
    for (int k = 0; k < 2; k++)
        qkv[k] = weft_build(b, WEFT_OP_ROTARY, NULL, NULL, 1, qkv[k]);
    weft_build_many(b, WEFT_OP_ATTENTION, "attn", NULL, 3, qkv, 2, o);
    h = weft_build(b, WEFT_OP_MATMUL, NULL, "spec=bshe,hed->bsd", 2, o[0],
                   param(m, b, "proj", DIMS(H, D / H, D)));
    snprintf(attr, sizeof attr, "p=0.25 id=%d", i);
    h          = weft_build(b, WEFT_OP_DROPOUT, NULL, attr, 1, h);
    x          = weft_build(b, WEFT_OP_ADD, "mid", NULL, 2, x, h);
    weft_vid u = weft_build(b, WEFT_OP_MATMUL, "up", "spec=bsd,dn->bsn", 2, x,
                            param(m, b, "up.w", DIMS(D, 5)));
    weft_vid a = weft_build(b, WEFT_OP_SILU, NULL, NULL, 1,
                            weft_build(b, WEFT_OP_MATMUL, "gate", "spec=bsd,dn->bsn", 2,
                                       x, param(m, b, "gate.w", DIMS(D, 5))));
    h          = weft_build(b, WEFT_OP_MUL, NULL, NULL, 2, a, u);
    h          = weft_build(b, WEFT_OP_MATMUL, NULL, "spec=bsn,nd->bsd", 2, h,
                            param(m, b, "down", DIMS(5, D)));
    return weft_build(b, WEFT_OP_ADD, "x", NULL, 2, x, h);
}

static void make_model(model *m, int n_layer)
{
    weft_vid ce[2];
    OK(weft_graph_create("m", &m->g));
    weft_builder b = weft_build_start(m->g);
    m->ids         = weft_build_input(&b, "ids", WEFT_DTYPE_I32, DIMS(B, S));
    m->labels      = weft_build_input(&b, "labels", WEFT_DTYPE_I32, DIMS(B, S));
    weft_vid wte   = param(m, &b, "wte", DIMS(V, D));
    weft_vid x     = weft_build(&b, WEFT_OP_EMBEDDING, "x", NULL, 2, wte, m->ids);
    for (int i = 0; i < n_layer; i++) x = layer(m, &b, x, i);
    x = weft_build(&b, WEFT_OP_MATMUL, "logits", "spec=bsd,vd->bsv", 2, x, wte);
    weft_build_many(&b, WEFT_OP_CROSS_ENTROPY, "rows", NULL, 2,
                    (weft_vid[]){x, m->labels}, 2, ce);
    m->loss = weft_build(&b, WEFT_OP_REDUCE, "loss", "axes=[0,1]", 1, ce[0]);
    OK(weft_graph_set_output(m->g, m->loss));
    OK(b.st);
}

static weft_train_options adamw(const model *m)
{
    return (weft_train_options){.loss         = m->loss,
                                .optimizer    = "adamw",
                                .beta         = {0.9, 0.99},
                                .eps          = 1e-8,
                                .weight_decay = 0.1,
                                .clip         = 1,
                                .n_param      = m->n_param,
                                .param        = m->param};
}

/* One step from fixed numbers; gives the evaluator. */
static weft_test_eval run_once(const weft_training_graph *t)
{
    weft_test_eval    e;
    const weft_graph *g   = t->graph;
    weft_ref_ctx      ctx = {.seed = 9, .step = 1};
    OK(weft_test_eval_make(g, arena, &e));
    for (weft_vid v = 0; v < g->n_value; v++) {
        if (g->value[v].kind != WEFT_VALUE_PARAM) continue;
        for (int64_t i = 0; i < count_of(g, v); i++)
            e.data[v][i] =
                0.4 * sin((double)(i * 13 + (int64_t)strlen(g->value[v].name) * 5 + 1));
    }
    for (int i = 0; i < B * S; i++) {
        e.data[weft_graph_find(g, "ids")][i]    = (i * 3) % V;
        e.data[weft_graph_find(g, "labels")][i] = i == 2 ? -100 : (i * 5 + 1) % V;
    }
    e.data[t->lr][0] = 0.01, e.data[t->step][0] = 1, e.data[t->inv_n][0] = 0.2;
    OK(weft_test_eval_run(&e, WEFT_PHASE_FORWARD, WEFT_PHASE_UPDATE, false, &ctx));
    return e;
}

/* Bytes of forward results that backward nodes read, views counted as what they look at. */
static int64_t kept_elements(const weft_graph *g)
{
    bool   *kept = WEFT_ARENA_ARRAY(arena, bool, g->n_value);
    int64_t n    = 0;
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in && g->node[i].phase == WEFT_PHASE_BACKWARD;
             k++) {
            weft_vid v = g->node[i].in[k];
            if (weft_op_get(g->node[i].op)->flags & WEFT_OP_VIEW) continue;
            while (g->value[v].node >= 0 &&
                   weft_op_get(g->node[g->value[v].node].op)->flags & WEFT_OP_VIEW)
                v = g->node[g->value[v].node].in[0];
            if (g->value[v].node >= 0 &&
                g->node[g->value[v].node].phase == WEFT_PHASE_FORWARD)
                kept[v] = true;
        }
    for (weft_vid v = 0; v < g->n_value; v++) n += kept[v] ? count_of(g, v) : 0;
    return n;
}

static void same_after_text(const weft_graph *g)
{
    char       *text;
    weft_graph *back;
    OK(weft_graph_to_text(g, &text));
    OK(weft_graph_from_text("graph", text, strlen(text), &back));
    assert_true(weft_graph_hash(g) == weft_graph_hash(back));
    test_same_graph(g, back);
    weft_graph_destroy(back);
    free(text);
}

static void recompute_changes_no_number(void **state)
{
    (void)state;
    const weft_strategy_recompute policy[] = {WEFT_STRATEGY_KEEP, WEFT_STRATEGY_SELECTIVE,
                                              WEFT_STRATEGY_FULL};
    model                         m        = {0};
    weft_training_graph           t[3];
    weft_test_eval                e[3];
    int64_t                       kept[3];
    make_model(&m, 3);
    for (int i = 0; i < 3; i++) {
        weft_train_options o = adamw(&m);
        o.recompute          = policy[i];
        OK(weft_graph_make_training(m.g, &o, &t[i]));
        OK(weft_graph_verify(t[i].graph));
        same_after_text(t[i].graph);
        e[i]    = run_once(&t[i]);
        kept[i] = kept_elements(t[i].graph);
        assert_true(e[i].data[t[i].loss][0] == e[0].data[t[0].loss][0]);
        assert_true(e[i].data[t[i].grad_norm][0] == e[0].data[t[0].grad_norm][0]);
        for (weft_vid v = 0; v < t[0].graph->n_value; v++) {
            if (t[0].graph->value[v].kind != WEFT_VALUE_PARAM) continue;
            weft_vid w = weft_graph_find(t[i].graph, t[0].graph->value[v].name);
            weft_vid a = t[0].graph->value[v].next, c = t[i].graph->value[w].next;
            assert_memory_equal(e[0].data[a], e[i].data[c],
                                sizeof(double) * (size_t)count_of(t[0].graph, v));
        }
    }
    assert_true(e[0].data[t[0].grad_norm][0] > 0.1);
    assert_true(kept[1] < kept[0] && kept[2] < kept[1]);
    /* full: the two seams, the first layer's input, and what the head needs */
    assert_true(kept[2] <= 3 * B * S * D + B * S * D + B * S * V + 2 * B * S);
    assert_true(kept[1] <=
                kept[0] - 3 * (B * S * D + 2 * B * S * 5)); /* norm, silu, mul */
    for (int i = 0; i < 3; i++) weft_graph_destroy(t[i].graph);
    weft_graph_destroy(m.g);
}

/* Keeping nothing at all, the backward pass makes everything again from the inputs. */
static void keep_by_hand(void **state)
{
    (void)state;
    model               m = {0};
    weft_training_graph t, r;
    weft_graph         *g;
    make_model(&m, 2);
    weft_train_options o = adamw(&m);
    OK(weft_graph_make_training(m.g, &o, &t));
    bool *keep = WEFT_ARENA_ARRAY(arena, bool, t.graph->n_value);
    OK(weft_graph_recompute_but(t.graph, keep, &g));
    OK(weft_graph_verify(g));
    assert_int_equal(kept_elements(g), 0);
    r                = t;
    r.graph          = g;
    r.lr             = weft_graph_find(g, "lr");
    r.step           = weft_graph_find(g, "step");
    r.inv_n          = weft_graph_find(g, "inv_n");
    r.grad_norm      = weft_graph_find(g, t.graph->value[t.grad_norm].name);
    weft_test_eval a = run_once(&t), b = run_once(&r);
    assert_true(a.data[t.grad_norm][0] == b.data[r.grad_norm][0]);
    weft_graph_destroy(g);
    weft_graph_destroy(t.graph);
    weft_graph_destroy(m.g);
}

/* The tied table: each use has its accumulator; they are added in the update, the lookup first. */
static void uses_accumulate_apart(void **state)
{
    (void)state;
    model               m = {0};
    weft_training_graph t;
    make_model(&m, 1);
    weft_train_options o = adamw(&m);
    OK(weft_graph_make_training(m.g, &o, &t));
    const weft_graph *g            = t.graph;
    int               n_accumulate = 0;
    for (int i = 0; i < g->n_node; i++)
        n_accumulate += g->node[i].op == WEFT_OP_ACCUMULATE;
    assert_int_equal(n_accumulate, m.n_param + 1 /* tied */ + 1 /* loss */);
    weft_vid               wte   = weft_graph_find(g, "wte");
    const weft_graph_node *adam  = &g->node[g->value[g->value[wte].next].node];
    const weft_graph_node *add   = &g->node[g->value[adam->in[1]].node];
    const weft_graph_node *first = &g->node[g->value[add->in[0]].node];
    assert_int_equal(adam->op, WEFT_OP_ADAMW);
    assert_int_equal(add->op, WEFT_OP_ADD);
    assert_int_equal(add->phase, WEFT_PHASE_UPDATE);
    assert_int_equal(first->op, WEFT_OP_ACCUMULATE);
    assert_int_equal(g->node[g->value[first->in[0]].node].op, WEFT_OP_EMBEDDING_GRAD);
    /* decay where the caller said so */
    int wd = weft_op_attr_index(WEFT_OP_ADAMW, "weight_decay");
    assert_true(adam->attr[wd].f == 0.1);
    adam = &g->node[g->value[g->value[weft_graph_find(g, "ln.w")].next].node];
    assert_true(adam->attr[wd].f == 0);
    assert_int_equal(g->n_output, 2);
    weft_graph_destroy(t.graph);
    weft_graph_destroy(m.g);
}

static void bf16_copies(void **state)
{
    (void)state;
    model               m = {0};
    weft_training_graph t, f;
    make_model(&m, 2);
    weft_train_options o = adamw(&m);
    OK(weft_graph_make_training(m.g, &o, &f));
    o.dtype     = WEFT_DTYPE_BF16;
    o.recompute = WEFT_STRATEGY_SELECTIVE;
    OK(weft_graph_make_training(m.g, &o, &t));
    OK(weft_graph_verify(t.graph));
    same_after_text(t.graph);
    const weft_graph *g = t.graph;
    for (int i = 0; i < m.n_param; i++) {
        const char *name = m.g->value[m.param[i].value].name;
        char        copy[64];
        snprintf(copy, sizeof copy, "%s.bf16", name);
        weft_vid p = weft_graph_find(g, name), h = weft_graph_find(g, copy);
        bool     norm = !strncmp(name, "ln.w", 4);
        assert_int_equal(g->value[p].type.dtype, WEFT_DTYPE_F32);
        assert_true((h < 0) == norm);
        assert_int_equal(weft_graph_find_copy(g, p), h);
        if (norm) continue;
        assert_int_equal(g->value[h].kind, WEFT_VALUE_STATE);
        assert_int_equal(g->value[h].type.dtype, WEFT_DTYPE_BF16);
        const weft_graph_node *cast = &g->node[g->value[g->value[h].next].node];
        assert_int_equal(cast->op, WEFT_OP_CAST);
        assert_int_equal(cast->in[0], g->value[p].next);
    }
    assert_int_equal(g->value[weft_graph_find(g, "logits")].type.dtype, WEFT_DTYPE_BF16);
    assert_int_equal(g->value[t.loss].type.dtype, WEFT_DTYPE_F32);
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].op == WEFT_OP_ACCUMULATE)
            assert_int_equal(g->value[g->node[i].out[0]].type.dtype, WEFT_DTYPE_F32);

    /* with copies equal to the masters (the evaluator does not round) the numbers are the same */
    weft_test_eval a = run_once(&f), b = run_once(&t);
    for (weft_vid v = 0; v < g->n_value; v++) {
        if (g->value[v].copy_of < 0) continue;
        memcpy(b.data[v], b.data[g->value[v].copy_of],
               sizeof(double) * (size_t)count_of(g, v));
    }
    OK(weft_test_eval_run(&b, WEFT_PHASE_FORWARD, WEFT_PHASE_UPDATE, false,
                          &(weft_ref_ctx){.seed = 9, .step = 1}));
    near(b.data[t.grad_norm][0], a.data[f.grad_norm][0]);
    weft_graph_destroy(t.graph);
    weft_graph_destroy(f.graph);
    weft_graph_destroy(m.g);
}

/* Running statistics: the mean over micro-batches, once a step. */
static void statistics(void **state)
{
    (void)state;
    weft_graph         *g;
    weft_vid            y[3];
    weft_training_graph t;
    OK(weft_graph_create("bn", &g));
    weft_builder b    = weft_build_start(g);
    weft_vid     x    = weft_build_input(&b, "img", WEFT_DTYPE_F32, DIMS(2, 1, 1, 2));
    weft_vid     w    = weft_build_param(&b, "w", WEFT_DTYPE_F32, DIMS(1));
    weft_vid     c    = weft_build_param(&b, "c", WEFT_DTYPE_F32, DIMS(1));
    weft_vid     mean = weft_build_state(&b, "running", WEFT_DTYPE_F32, DIMS(1));
    weft_build_many(&b, WEFT_OP_BATCH_NORM, "y", NULL, 3, (weft_vid[]){x, w, c}, 3, y);
    OK(b.st);
    weft_train_options o = {.loss      = y[0],
                            .optimizer = "sgd",
                            .n_param   = 2,
                            .param     = (weft_train_param[]){{w, false}, {c, false}},
                            .n_stat    = 1,
                            .stat      = &(weft_train_stat){mean, y[1], 0.25, 1, 0},
                            .n_micro   = 2};
    OK(weft_graph_make_training(g, &o, &t));
    OK(weft_graph_verify(t.graph));
    weft_test_eval e;
    OK(weft_test_eval_make(t.graph, arena, &e));
    mean            = weft_graph_find(t.graph, "running");
    x               = weft_graph_find(t.graph, "img");
    e.data[mean][0] = 8;
    for (int m = 0; m < 2; m++) { /* means 2.5 and 12.5 */
        for (int i = 0; i < 4; i++) e.data[x][i] = 10 * m + i + 1;
        OK(weft_test_eval_run(&e, WEFT_PHASE_FORWARD, WEFT_PHASE_BACKWARD, m > 0, NULL));
    }
    OK(weft_test_eval_run(&e, WEFT_PHASE_UPDATE, WEFT_PHASE_UPDATE, false, NULL));
    weft_test_eval_next(&e);
    near(e.data[mean][0], 0.75 * 8 + 0.25 * 7.5);
    weft_graph_destroy(t.graph);
    weft_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(optimizers),
        with_arena(unknown_optimizer),
        with_arena(recompute_changes_no_number),
        with_arena(keep_by_hand),
        with_arena(uses_accumulate_apart),
        with_arena(bf16_copies),
        with_arena(statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
