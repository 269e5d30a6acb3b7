/* The training graph.  In: a forward graph.  Out: a new graph with backward and update. */
#include "graph/train.h"

#include <string.h>

#include "graph/build.h"
#include "graph/copy_priv.h"
#include "graph/grad.h"
#include "graph/recompute.h"

typedef struct maker {
    const weft_train_options *o;
    weft_graph__copy          c;
    weft_builder              b;
    weft_vid                 *half; /* value of the model -> its bf16 copy, -1 none */
    weft_vid                 *grad; /* parameter -> its accumulated gradient, -1 none */
    weft_training_graph       t;
    weft_vid                  scale; /* from clip */
    weft_vid                 *load;  /* accumulated, of each of o->load */
} maker;

/* ---- forward ---- */

/* Weights of norms stay f32: they are vectors, and the kernels add in f32 anyway. */
static bool stays_f32(weft_op op, int k)
{
    return k > 0 && (op == WEFT_OP_LAYER_NORM || op == WEFT_OP_RMS_NORM ||
                     op == WEFT_OP_BATCH_NORM || op == WEFT_OP_BATCH_NORM_INFER);
}

static bool is_param(const weft_graph *g, weft_vid v)
{
    return g->value[v].kind == WEFT_VALUE_PARAM;
}

/* The bf16 copy of a leaf: a state of a parameter, a cast of an input. */
static weft_vid make_half(maker *k, weft_vid v)
{
    const weft_graph_value *x  = &k->c.from->value[v];
    weft_vid                in = k->c.map[v];
    if (x->kind == WEFT_VALUE_INPUT)
        return weft_buildf(&k->b, WEFT_OP_CAST, x->name, 1, &in, "dtype=bf16");
    const char *name = weft_arena_printf(k->c.tmp, "%s.bf16", x->name);
    weft_vid    copy = weft_build_state(&k->b, name ? name : "bf16", WEFT_DTYPE_BF16,
                                        x->type.shape.n, x->type.shape.d);
    if (k->b.st == WEFT_OK) k->b.st = weft_graph_set_copy(k->c.to, copy, in);
    return copy;
}

/* Operand i of a forward node: with bf16 storage, the copy of an f32 parameter or input. */
static weft_vid operand(maker *k, const weft_graph_node *n, int i)
{
    weft_vid                v = n->in[i];
    const weft_graph_value *x = &k->c.from->value[v];
    bool                    copied =
        k->o->dtype == WEFT_DTYPE_BF16 && x->type.dtype == WEFT_DTYPE_F32 &&
        (x->kind == WEFT_VALUE_PARAM || (x->kind == WEFT_VALUE_INPUT && !x->per_step)) &&
        !stays_f32(n->op, i);
    if (!copied) return k->c.map[v];
    if (k->half[v] < 0) k->half[v] = make_half(k, v);
    return k->half[v];
}

static weft_status copy_forward(maker *k)
{
    const weft_graph *g = k->c.from;
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].kind != WEFT_VALUE_NODE)
            WEFT_TRY(weft_graph__copy_leaf(&k->c, v));
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n  = &g->node[i];
        weft_vid              *in = WEFT_ARENA_ARRAY(k->c.tmp, weft_vid, n->n_in + 1);
        if (!in) return weft_arena_status(k->c.tmp);
        if (n->phase != WEFT_PHASE_FORWARD)
            return WEFT_FAIL(WEFT_ERR_ARG, "training: graph %s is not a forward graph",
                             g->name);
        for (int j = 0; j < n->n_in; j++) in[j] = operand(k, n, j);
        WEFT_TRY(k->b.st);
        WEFT_TRY(weft_graph__copy_node(&k->c, i, WEFT_PHASE_FORWARD, in, NULL, NULL));
    }
    return WEFT_OK;
}

/* ---- backward ---- */

static weft_vid step_input(maker *k, const char *name)
{
    weft_vid v = weft_build_input(&k->b, name, WEFT_DTYPE_F32, 0, NULL);
    if (v >= 0) k->c.to->value[v].per_step = true;
    return v;
}

/* The sum of all of x, as a scalar. */
static weft_vid sum_all(maker *k, weft_vid x)
{
    weft_attr  attr[WEFT_MAX_ATTR];
    weft_vid   out = -1;
    weft_shape s   = weft_build_type(&k->b, x).shape;
    if (s.n == 0 || k->b.st != WEFT_OK) return x;
    weft_op_attr_defaults(WEFT_OP_REDUCE, attr);
    weft_attr *axes = &attr[weft_op_attr_index(WEFT_OP_REDUCE, "axes")];
    for (axes->n = 0; axes->n < s.n; axes->n++) axes->l[axes->n] = axes->n;
    k->b.st =
        weft_graph_add_node(k->c.to, WEFT_OP_REDUCE, attr, 1, &x, "loss_sum", 1, &out);
    return out;
}

static const char *named(maker *k, weft_vid v, const char *suffix)
{
    const char *s = weft_arena_printf(k->c.tmp, "%s%s", k->c.to->value[v].name, suffix);
    return s ? s : suffix;
}

/* The uses of parameter i (directly, then of its copy), each summed over micro-batches, then
 * added. */
static void accumulate_uses(maker *k, weft_vid p, const weft_grad_uses *own,
                            const weft_grad_uses *half, weft_vid *out)
{
    const weft_grad_uses *both[2] = {own, half};
    *out                          = -1;
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < both[h]->n; i++) {
            weft_vid g = weft_build(&k->b, WEFT_OP_ACCUMULATE, named(k, p, ".grad"), NULL,
                                    1, both[h]->grad[i]);
            *out       = *out < 0 ? g
                                  : weft_build(&k->b, WEFT_OP_ADD, named(k, p, ".grad"), NULL,
                                               2, *out, g);
        }
}

/* Backward nodes, then the accumulators: of the loss, of each use of each parameter. */
static weft_status make_backward(maker *k)
{
    int             n = k->o->n_param, n_wrt = 0;
    weft_vid        loss = sum_all(k, k->c.map[k->o->loss]);
    weft_vid       *wrt  = WEFT_ARENA_ARRAY(k->c.tmp, weft_vid, 2 * n + 1);
    weft_grad_uses *uses = WEFT_ARENA_ARRAY(k->c.tmp, weft_grad_uses, 2 * n + 1);
    WEFT_TRY(weft_arena_status(k->c.tmp));
    for (int i = 0; i < n; i++) wrt[n_wrt++] = k->c.map[k->o->param[i].value];
    for (int i = 0; i < n; i++)
        if (k->half[k->o->param[i].value] >= 0)
            wrt[n_wrt++] = k->half[k->o->param[i].value];
    k->t.lr    = step_input(k, "lr");
    k->t.step  = step_input(k, "step");
    k->t.inv_n = step_input(k, "inv_n");
    WEFT_TRY(k->b.st);
    WEFT_TRY(weft_graph_differentiate_uses(k->c.to, loss, k->t.inv_n, n_wrt, wrt, uses));

    k->c.to->phase = WEFT_PHASE_UPDATE;
    k->t.loss      = weft_build(&k->b, WEFT_OP_ACCUMULATE, "step.loss", NULL, 1, loss);
    for (int i = 0, h = n; i < n; i++) {
        static const weft_grad_uses none;
        bool                        copied = k->half[k->o->param[i].value] >= 0;
        accumulate_uses(k, wrt[i], &uses[i], copied ? &uses[h++] : &none, &k->grad[i]);
    }
    return k->b.st;
}

/* ---- update ---- */

static weft_status make_norm(maker *k)
{
    int       n = 0;
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid *s = WEFT_ARENA_ARRAY(k->c.tmp, weft_vid, k->o->n_param + 1), out[2];
    if (!s) return weft_arena_status(k->c.tmp);
    for (int i = 0; i < k->o->n_param; i++)
        if (k->grad[i] >= 0)
            s[n++] = weft_build(&k->b, WEFT_OP_SUMSQ, named(k, k->grad[i], ".sq"), NULL,
                                1, k->grad[i]);
    WEFT_TRY(k->b.st);
    weft_op_attr_defaults(WEFT_OP_CLIP, attr);
    attr[weft_op_attr_index(WEFT_OP_CLIP, "max_norm")].f = k->o->clip;
    WEFT_TRY(
        weft_graph_add_node(k->c.to, WEFT_OP_CLIP, attr, n, s, "step.grad_norm", 2, out));
    k->t.grad_norm = out[0];
    k->scale       = out[1];
    return WEFT_OK;
}

static void set_float(weft_op op, weft_attr *attr, const char *name, double x)
{
    int i = weft_op_attr_index(op, name);
    if (i >= 0) attr[i].f = x;
}

static void set_attr(maker *k, weft_op op, bool decay, weft_attr *attr)
{
    weft_op_attr_defaults(op, attr);
    set_float(op, attr, "beta1", k->o->beta[0]);
    set_float(op, attr, "beta2", k->o->beta[1]);
    set_float(op, attr, "eps", k->o->eps);
    set_float(op, attr, "momentum", k->o->momentum);
    set_float(op, attr, "weight_decay", decay ? k->o->weight_decay : 0);
}

/* A state of the parameter's shape, kept in f32. */
static weft_vid state_of(maker *k, weft_vid p, const char *suffix)
{
    weft_shape s = weft_build_type(&k->b, p).shape;
    return weft_build_state(&k->b, named(k, p, suffix), WEFT_DTYPE_F32, s.n, s.d);
}

static void emit(maker *k, weft_op op, const weft_attr *attr, int n_in,
                 const weft_vid *in, const char *name, int n_out, weft_vid *out)
{
    for (int j = 0; j < n_out; j++) out[j] = -1;
    if (k->b.st == WEFT_OK)
        k->b.st = weft_graph_add_node(k->c.to, op, attr, n_in, in, name, n_out, out);
}

static void set_next(maker *k, weft_vid state, weft_vid next)
{
    if (k->b.st == WEFT_OK) k->b.st = weft_graph_set_next(k->c.to, state, next);
}

/* Which operator an optimizer is, and its states in operand order. */
typedef struct optimizer {
    const char *name;
    weft_op     op;
    const char *state[2]; /* suffixes */
    bool        step;     /* takes the step's number */
} optimizer;

static const optimizer optimizers[] = {
    {"sgd", WEFT_OP_SGD, {NULL, NULL}, false},
    {"momentum", WEFT_OP_SGD_MOMENTUM, {".m", NULL}, false},
    {"adam", WEFT_OP_ADAM, {".m", ".v"}, true},
    {"adamw", WEFT_OP_ADAMW, {".m", ".v"}, true},
    {"adagrad", WEFT_OP_ADAGRAD, {".h", NULL}, false},
    {"lamb", WEFT_OP_LAMB, {".m", ".v"}, true},
};

static weft_status find_optimizer(const weft_train_options *o, const optimizer **out)
{
    const char *name = o->optimizer ? o->optimizer : "adamw";
    if (!strcmp(name, "sgd") && o->momentum != 0) name = "momentum";
    for (size_t i = 0; i < WEFT_COUNT(optimizers); i++)
        if (!strcmp(optimizers[i].name, name)) {
            *out = &optimizers[i];
            return WEFT_OK;
        }
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "unknown optimizer '%s': sgd, adam, adamw, adagrad or lamb", name);
}

/* The update of one parameter while it is made. */
typedef struct param_update {
    weft_vid p, g, state[2];
    bool     decay;
    weft_vid p_sq, u_sq; /* lamb: squares of the norms of p and of its direction */
} param_update;

static void add_states(maker *k, const optimizer *opt, param_update *u)
{
    for (int j = 0; j < 2 && opt->state[j]; j++)
        u->state[j] = state_of(k, u->p, opt->state[j]);
}

/* LAMB: the norms of all parameters are known before any state is written (graph/commit.h). */
static void add_norms(maker *k, param_update *u)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  in[] = {u->p, u->g, u->state[0], u->state[1], k->scale, k->t.step}, dir;
    set_attr(k, WEFT_OP_LAMB_DIR, u->decay, attr);
    emit(k, WEFT_OP_LAMB_DIR, attr, 6, in, named(k, u->p, ".dir"), 1, &dir);
    u->p_sq = weft_build(&k->b, WEFT_OP_SUMSQ, named(k, u->p, ".sq"), NULL, 1, u->p);
    u->u_sq = weft_build(&k->b, WEFT_OP_SUMSQ, named(k, u->p, ".dir.sq"), NULL, 1, dir);
}

/* p, g, states, [squares of norms], lr, scale, step -> p's next, states' next */
static weft_vid update_param(maker *k, const optimizer *opt, const param_update *u)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  in[10] = {u->p, u->g}, out[3];
    int       n_in = 2, n_state = 0;
    for (; n_state < 2 && opt->state[n_state]; n_state++) in[n_in++] = u->state[n_state];
    if (opt->op == WEFT_OP_LAMB) in[n_in++] = u->p_sq, in[n_in++] = u->u_sq;
    in[n_in++] = k->t.lr;
    in[n_in++] = k->scale;
    if (opt->step) in[n_in++] = k->t.step;
    set_attr(k, opt->op, u->decay, attr);
    emit(k, opt->op, attr, n_in, in, named(k, u->p, ".next"), 1 + n_state, out);
    for (int i = 0; i < n_state; i++) set_next(k, u->state[i], out[1 + i]);
    return out[0];
}

static weft_vid scale_by(maker *k, weft_vid x, double alpha, const char *name)
{
    return weft_buildf(&k->b, WEFT_OP_SCALE, name, 1, &x, "alpha=%.17g", alpha);
}

/* How far a bias moves: by the rate, up or down, or not at all.  Loads are whole numbers: where one
 * is not the mean of n of them, it is 1 / n off or more, and tanh of a million times that is 1 or
 * -1. */
static weft_vid find_move(maker *k, weft_vid state, weft_vid load, double rate)
{
    int64_t     n    = weft_build_type(&k->b, load).shape.d[0];
    const char *name = named(k, state, ".move");
    weft_vid    sum =
        weft_build(&k->b, WEFT_OP_REDUCE, named(k, state, ".all"), "axes=[0]", 1, load);
    weft_vid mean = weft_buildf(&k->b, WEFT_OP_BROADCAST, name, 1,
                                (weft_vid[]){scale_by(k, sum, 1 / (double)n, name)},
                                "shape=[%lld]", (long long)n);
    weft_vid less =
        weft_build(&k->b, WEFT_OP_ADD, name, NULL, 2, mean, scale_by(k, load, -1, name));
    weft_vid sign =
        weft_build(&k->b, WEFT_OP_TANH, name, NULL, 1, scale_by(k, less, 1e6, name));
    return scale_by(k, sign, rate, name);
}

/* Sums over the step, which biases are moved by and which are looked at. */
static weft_status sum_loads(maker *k)
{
    k->load = WEFT_ARENA_ARRAY(k->c.tmp, weft_vid, k->o->n_load + 1);
    WEFT_TRY(weft_arena_status(k->c.tmp));
    for (int i = 0; i < k->o->n_load; i++) {
        const char *name = weft_arena_printf(k->c.tmp, "step.load.%d", i);
        k->load[i] = weft_build(&k->b, WEFT_OP_ACCUMULATE, name ? name : "load", NULL, 1,
                                k->c.map[k->o->load[i]]);
        WEFT_TRY(k->b.st);
        WEFT_TRY(weft_graph_set_output(k->c.to, k->load[i]));
    }
    return WEFT_OK;
}

static weft_vid sum_stat(maker *k, const weft_train_stat *s)
{
    for (int i = 0; i < k->o->n_load; i++)
        if (k->o->load[i] == s->stat) return k->load[i];
    return weft_build(&k->b, WEFT_OP_ACCUMULATE, named(k, k->c.map[s->state], ".sum"),
                      NULL, 1, k->c.map[s->stat]);
}

/* Moves overwrite what they are made of, so they are found before the commit point: what comes
 * after it can be made again from its beginning (exec/journal.c). */
static weft_status find_moves(maker *k, weft_vid **out)
{
    weft_vid *move = WEFT_ARENA_ARRAY(k->c.tmp, weft_vid, k->o->n_stat + 1);
    WEFT_TRY(weft_arena_status(k->c.tmp));
    for (int i = 0; i < k->o->n_stat; i++) {
        const weft_train_stat *s = &k->o->stat[i];
        if (s->rate != 0)
            move[i] = find_move(k, k->c.map[s->state], sum_stat(k, s), s->rate);
    }
    *out = move;
    return k->b.st;
}

static void update_stat(maker *k, const weft_train_stat *s, weft_vid move)
{
    weft_vid state = k->c.map[s->state];
    if (s->rate != 0) {
        set_next(k, state,
                 weft_build(&k->b, WEFT_OP_ADD, named(k, state, ".next"), NULL, 2, state,
                            move));
        return;
    }
    set_next(k, state,
             weft_buildf(&k->b, WEFT_OP_EMA, named(k, state, ".next"), 2,
                         (weft_vid[]){state, sum_stat(k, s)},
                         "momentum=%.17g count=%lld unbias=%.17g", s->momentum,
                         (long long)(k->o->n_micro ? k->o->n_micro : 1), s->unbias));
}

static weft_status make_updates(maker *k)
{
    const optimizer *opt  = NULL;
    param_update    *list = WEFT_ARENA_ARRAY(k->c.tmp, param_update, k->o->n_param + 1);
    weft_vid        *move = NULL;
    WEFT_TRY(weft_arena_status(k->c.tmp));
    WEFT_TRY(find_moves(k, &move));
    WEFT_TRY(find_optimizer(k->o, &opt));
    bool lamb = opt->op == WEFT_OP_LAMB;
    for (int i = 0; i < k->o->n_param; i++) {
        list[i] = (param_update){.p     = k->c.map[k->o->param[i].value],
                                 .g     = k->grad[i],
                                 .decay = k->o->param[i].decay};
        if (k->grad[i] < 0 || !lamb) continue;
        add_states(k, opt, &list[i]);
        add_norms(k, &list[i]);
    }
    for (int i = 0; i < k->o->n_param; i++) {
        weft_vid half = k->half[k->o->param[i].value];
        if (k->grad[i] < 0) continue;
        if (!lamb) add_states(k, opt, &list[i]);
        weft_vid next = update_param(k, opt, &list[i]);
        set_next(k, list[i].p, next);
        if (half >= 0)
            set_next(k, half,
                     weft_buildf(&k->b, WEFT_OP_CAST, named(k, half, ".next"), 1, &next,
                                 "dtype=bf16"));
    }
    for (int i = 0; i < k->o->n_stat; i++) update_stat(k, &k->o->stat[i], move[i]);
    return k->b.st;
}

static weft_status check_options(const weft_graph *g, const weft_train_options *o)
{
    if (o->loss < 0 || o->loss >= g->n_value)
        return WEFT_FAIL(WEFT_ERR_ARG, "training: graph %s has no loss", g->name);
    if (o->dtype != WEFT_DTYPE_F32 && o->dtype != WEFT_DTYPE_BF16)
        return WEFT_FAIL(WEFT_ERR_ARG, "training: dtype %s is not f32 or bf16",
                         weft_dtype_name(o->dtype));
    for (int i = 0; i < o->n_param; i++) {
        weft_vid v = o->param[i].value;
        if (v < 0 || v >= g->n_value || !is_param(g, v) ||
            g->value[v].type.dtype != WEFT_DTYPE_F32)
            return WEFT_FAIL(WEFT_ERR_ARG, "training: %s is no f32 parameter of graph %s",
                             weft_graph_value_name(g, v), g->name);
    }
    return WEFT_OK;
}

/* The same places in the graph with recomputation. */
static weft_status apply_recompute(maker *k)
{
    const weft_graph *old  = k->c.to;
    weft_graph       *g    = NULL;
    weft_vid *const   at[] = {&k->t.lr, &k->t.step, &k->t.inv_n, &k->t.loss,
                              &k->t.grad_norm};
    if (k->o->recompute == WEFT_STRATEGY_KEEP) return WEFT_OK;
    WEFT_TRY(weft_graph_recompute(old, k->o->recompute, &g));
    for (size_t i = 0; i < WEFT_COUNT(at); i++)
        *at[i] = weft_graph_find(g, old->value[*at[i]].name);
    weft_graph_destroy(k->c.to);
    k->c.to = g;
    return WEFT_OK;
}

static weft_status make(maker *k, const weft_graph *model)
{
    for (weft_vid v = 0; v < model->n_value; v++) k->half[v] = -1;
    k->b = weft_build_start(k->c.to);
    WEFT_TRY(copy_forward(k));
    WEFT_TRY(make_backward(k));
    WEFT_TRY(sum_loads(k));
    WEFT_TRY(make_norm(k));
    WEFT_TRY(make_updates(k));
    WEFT_TRY(weft_graph_set_output(k->c.to, k->t.loss));
    WEFT_TRY(weft_graph_set_output(k->c.to, k->t.grad_norm));
    return apply_recompute(k);
}

weft_status weft_graph_make_training(const weft_graph *model, const weft_train_options *o,
                                     weft_training_graph *out)
{
    maker       k   = {.o = o};
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;

    WEFT_TRY(check_options(model, o));
    WEFT_TRY(weft_arena_create(&tmp));
    k.half = WEFT_ARENA_ARRAY(tmp, weft_vid, model->n_value + 1);
    k.grad = WEFT_ARENA_ARRAY(tmp, weft_vid, o->n_param + 1);
    WEFT_GO(weft_arena_status(tmp));
    WEFT_GO(weft_graph__copy_start(&k.c, model, tmp));
    WEFT_GO(make(&k, model));
    k.t.graph = k.c.to;
    *out      = k.t;
    k.c.to    = NULL;
out:
    weft_graph_destroy(k.c.to);
    weft_arena_destroy(tmp);
    return st;
}
