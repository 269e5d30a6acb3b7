/* The choice of experts, and the losses of routers beside the loss of the labels.
 *
 * Balancing by biases (router_bias_update_rate; auxiliary-loss-free balancing as DeepSeek-V3 has
 * it): experts are chosen by probability plus bias, their weights are of the probabilities alone.
 * After a step the bias of an expert that had less than the mean of the load rises by the rate,
 * that of one that had more falls by it.  Loads are whole numbers in f32, so their sums are exact:
 * biases are the same for any number of ranks.
 *
 * Load balancing, as Hugging Face defines it, for each sequence alone: with N tokens (of all layers
 * together) and E experts, E times the sum over experts of (how often it was chosen / N) times (the
 * mean of its probability).  z-loss: the mean of the square of the logits' log-sum-exp over tokens
 * and layers.
 *
 * Sequences, not micro-batches: a sequence's loss is the same whatever batch it is in, so the sum
 * over a step is the same for any data parallelism, accumulation and batch split.  A step's loss is
 * divided by its labels, so each sequence counts as often as it has labels.
 *
 * Sums go from layer to layer as activations do, so stages of a pipeline pass them on to the next
 * one.  Everything is in f32. */
#include <stdio.h>

#include "model/model_priv.h"

/* Ones on the diagonal, (n,n): buckets of distances between positions are 0 only where both are the
 * same, and bucket 0 of the table is 1. */
static weft_vid make_identity(weft_model__maker *mk, int64_t n)
{
    char       attr[96];
    weft_shape square = {.n = 2, .d = {n, n}};
    weft_vid   one =
        weft_build(&mk->b, WEFT_OP_FILL, "router.one", "shape=[1,1] value=1", 0);
    weft_vid zeros = weft_build(&mk->b, WEFT_OP_FILL, "router.zeros", "shape=[3,1]", 0);
    weft_vid table =
        weft_build(&mk->b, WEFT_OP_CONCAT, "router.table", "axis=0", 2, one, zeros);
    snprintf(attr, sizeof attr, "s=%lld t=%lld buckets=4", (long long)n, (long long)n);
    weft_vid ids = weft_build(&mk->b, WEFT_OP_REL_BUCKET, "router.ids", attr, 0);
    weft_vid y =
        weft_build(&mk->b, WEFT_OP_EMBEDDING, "router.identity", NULL, 2, table, ids);
    return weft_build_reshape(&mk->b, y, &square);
}

static weft_vid add_to(weft_model__maker *mk, const char *name, weft_vid sum, weft_vid x)
{
    return weft_build(&mk->b, WEFT_OP_ADD, name, NULL, 2, sum, x);
}

static bool has_losses(const weft_model__maker *mk, const weft_model__router *r)
{
    return mk->o.with_loss && (r->balance != 0 || r->z_coef != 0);
}

/* Sums begin as zeros, so that all layers are alike. */
void weft_model__route_start(weft_model__maker *mk, weft_model__router *r)
{
    char attr[64];
    if (!has_losses(mk, r)) return;
    snprintf(attr, sizeof attr, "shape=[%lld,%lld]", (long long)mk->batch,
             (long long)r->experts);
    if (r->balance != 0) {
        r->p    = weft_build(&mk->b, WEFT_OP_FILL, "router.p_none", attr, 0);
        r->load = weft_build(&mk->b, WEFT_OP_FILL, "router.load_none", attr, 0);
    }
    if (r->z_coef != 0)
        r->z = weft_buildf(&mk->b, WEFT_OP_FILL, "router.z_none", 0, NULL, "shape=[%lld]",
                           (long long)mk->batch);
}

/* (b s, ...) -> (b, s, ...) */
static weft_vid split_tokens(weft_model__maker *mk, weft_vid x)
{
    weft_shape s = weft_build_type(&mk->b, x).shape, y = {.n = s.n + 1};
    y.d[0] = mk->batch;
    y.d[1] = mk->seq;
    for (int d = 1; d < s.n; d++) y.d[d + 1] = s.d[d];
    return weft_build_reshape(&mk->b, x, &y);
}

static void add_balance(weft_model__maker *mk, weft_model__router *r, weft_vid logits,
                        weft_vid chosen)
{
    weft_vid p   = weft_build(&mk->b, WEFT_OP_SOFTMAX, "router.p", NULL, 1, logits);
    weft_vid one = weft_build(&mk->b, WEFT_OP_EMBEDDING, "router.chosen", NULL, 2,
                              make_identity(mk, r->experts), chosen);
    p            = weft_build(&mk->b, WEFT_OP_REDUCE, "router.p_sum", "axes=[1]", 1,
                              split_tokens(mk, p));
    one          = weft_build(&mk->b, WEFT_OP_REDUCE, "router.load", "axes=[1,2]", 1,
                              split_tokens(mk, one));
    r->p         = add_to(mk, "router.p_all", r->p, p);
    r->load      = add_to(mk, "router.load_all", r->load, one);
}

/* A label's loss is log-sum-exp minus its logit: of label 0, whatever that is. */
static void add_z(weft_model__maker *mk, weft_model__router *r, weft_vid logits)
{
    weft_shape s = weft_build_type(&mk->b, logits).shape;
    weft_shape n = {.n = 1, .d = {s.d[0]}};
    char       attr[64];
    weft_vid   in[2] = {logits, -1}, out[2];
    snprintf(attr, sizeof attr, "shape=[%lld] dtype=i32", (long long)s.d[0]);
    in[1] = weft_build(&mk->b, WEFT_OP_FILL, "router.label", attr, 0);
    weft_build_many(&mk->b, WEFT_OP_CROSS_ENTROPY, "router.nll", NULL, 2, in, 2, out);
    weft_vid first = weft_build(&mk->b, WEFT_OP_SLICE, "router.first",
                                "axis=1 start=0 stop=1", 1, logits);
    weft_vid z     = weft_build(&mk->b, WEFT_OP_ADD, "router.lse", NULL, 2, out[0],
                                weft_build_reshape(&mk->b, first, &n));
    z              = weft_build(&mk->b, WEFT_OP_MUL, "router.z", NULL, 2, z, z);
    z              = weft_build(&mk->b, WEFT_OP_REDUCE, "router.z_sum", "axes=[1]", 1,
                                split_tokens(mk, z));
    r->z           = add_to(mk, "router.z_all", r->z, z);
}

/* How often each expert was chosen (x). */
static weft_vid add_load(weft_model__maker *mk, const weft_model__router *r,
                         weft_vid chosen)
{
    weft_model *m   = mk->m;
    weft_vid    one = weft_build(&mk->b, WEFT_OP_EMBEDDING, "router.sent", NULL, 2,
                                 make_identity(mk, r->experts), chosen);
    one = weft_build(&mk->b, WEFT_OP_REDUCE, "router.counts", "axes=[0,1]", 1, one);
    if (mk->b.st != WEFT_OK) return -1;
    mk->b.st = weft_arena_grow(m->arena, (void **)&m->load, &m->cap_load, m->n_load + 1,
                               sizeof *m->load);
    if (mk->b.st == WEFT_OK) m->load[m->n_load++] = one;
    return one;
}

static void choose_experts(weft_model__maker *mk, const weft_model__router *r,
                           const char *gate, weft_vid logits, weft_vid pick[2])
{
    char     attr[48];
    weft_vid in[2] = {logits, -1};
    snprintf(attr, sizeof attr, "k=%lld", (long long)r->top_k);
    if (r->bias_rate > 0)
        in[1] =
            weft_model__stat(mk, weft_model__name(mk, "%s.e_score_correction_bias", gate),
                             r->experts, WEFT_INIT_ZEROS);
    weft_build_many(&mk->b, WEFT_OP_ROUTE, "moe.route", attr, in[1] < 0 ? 1 : 2, in, 2,
                    pick);
    if (!mk->o.with_loss || mk->b.st != WEFT_OK) return;
    if (in[1] < 0 && !r->reports) return;
    weft_vid load = add_load(mk, r, pick[1]);
    if (in[1] < 0 || mk->b.st != WEFT_OK) return;
    mk->m->stat[mk->m->n_stat - 1].stat = load;
    mk->m->stat[mk->m->n_stat - 1].rate = r->bias_rate;
}

void weft_model__route(weft_model__maker *mk, weft_model__router *r, const char *gate,
                       weft_vid logits, weft_vid pick[2])
{
    choose_experts(mk, r, gate, logits, pick);
    if (!has_losses(mk, r)) return;
    weft_vid x =
        weft_build(&mk->b, WEFT_OP_CAST, "router.logits", "dtype=f32", 1, logits);
    r->layers++;
    if (r->balance != 0) add_balance(mk, r, x, pick[1]);
    if (r->z_coef != 0) add_z(mk, r, x);
}

static void add_term(weft_model__maker *mk, const char *name, weft_vid x, double alpha)
{
    x             = weft_buildf(&mk->b, WEFT_OP_SCALE, name, 1, &x, "alpha=%.17g", alpha);
    mk->more_loss = mk->more_loss < 0 ? x : add_to(mk, "router.loss", mk->more_loss, x);
}

void weft_model__route_loss(weft_model__maker *mk, const weft_model__router *r)
{
    double n = (double)r->layers * (double)mk->seq;
    if (!r->layers || mk->b.st != WEFT_OK) return;
    if (r->balance != 0) {
        weft_vid x =
            weft_build(&mk->b, WEFT_OP_MUL, "router.balance", NULL, 2, r->p, r->load);
        x = weft_build(&mk->b, WEFT_OP_REDUCE, "router.balance_sum", "axes=[1]", 1, x);
        add_term(mk, "router.balance_loss", x, r->balance * (double)r->experts / (n * n));
    }
    if (r->z_coef != 0) add_term(mk, "router.z_loss", r->z, r->z_coef / n);
}
