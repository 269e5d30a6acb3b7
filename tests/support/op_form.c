#include "support/op_form.h"

#include <stdio.h>
#include <string.h>

/* ---- fused steps ---- */

#define S(ID, attr, other, kept)                                                         \
    {                                                                                    \
        WEFT_OP_##ID, attr, other, kept                                                  \
    }
static const op_chain behind_product[] = {
    {false, 1, {S(ADD, "", 'r', true)}},
    {false, 2, {S(ADD, "", 'r', true), S(GELU, "", 0, true)}},
    {false, 2, {S(ADD, "", 'r', true), S(GELU, "approx=erf", 0, true)}},
    {false, 2, {S(ADD, "", 'r', false), S(ADD, "", 'f', true)}},
    {true,
     3,
     {S(SCALE, "alpha=-0.5", 0, true), S(MUL, "", 'f', true), S(RELU, "", 0, true)}},
    {true, 1, {S(SILU, "", 0, true)}},
    {false, 2, {S(SILU, "", 0, false), S(MUL, "", 'f', true)}},
    {false, 1, {S(TANH, "", 0, true)}},
    {true, 1, {S(MUL, "", 'f', true)}},
    {false, 2, {S(SCALE, "alpha=-0.5", 0, false), S(GELU_GRAD, "", 'f', true)}},
    {false, 1, {S(GELU_GRAD, "approx=erf", 'f', true)}},
    {true, 1, {S(SILU_GRAD, "", 'f', true)}},
    {false, 2, {S(MUL, "", 'f', false), S(SILU_GRAD, "", 'f', true)}},
    {false, 1, {S(RELU_GRAD, "", 'f', true)}},
    {false, 1, {S(TANH_GRAD, "", 'f', true)}},
    {false,
     6,
     {S(ADD, "", 'r', false), S(ADD, "", 'f', false), S(ADD, "", 'f', false),
      S(ADD, "", 'f', true), S(MUL, "", 'f', false), S(ADD, "", 'f', true)}},
};
static const op_chain behind_norm_grad[] = {
    {false, 1, {S(ADD, "", 'f', true)}},
    {false, 2, {S(ADD, "", 'f', true), S(REDUCE, NULL, 0, true)}},
    {true, 1, {S(REDUCE, NULL, 0, true)}},
};
static const op_chain behind_update[] = {{true, 1, {S(CAST, "dtype=bf16", 0, true)}}};

static const op_chain *find_chains(weft_op op, int *n)
{
#define CHAINS(list) (*n = (int)WEFT_COUNT(list), list)
    if (weft_op_get(op)->flags & WEFT_OP_POSTS) return CHAINS(behind_product);
    if (weft_op_fusion(op, WEFT_OP_ADD)) return CHAINS(behind_norm_grad);
    if (weft_op_fusion(op, WEFT_OP_CAST)) return CHAINS(behind_update);
#undef CHAINS
    *n = 0;
    return NULL;
}

const op_chain *op_chain_of(weft_op op, int i)
{
    int n;
    return find_chains(op, &n) + i;
}

int op_n_chain(weft_op op)
{
    int n;
    find_chains(op, &n);
    return op == WEFT_OP_CROSS_ENTROPY ? OP_N_LOSS : n;
}

unsigned op_form_fusions(weft_op op, const op_form *f)
{
    unsigned need = 0;
    if (f->chain < 0 || op == WEFT_OP_CROSS_ENTROPY) return 0;
    const op_chain *c = op_chain_of(op, f->chain);
    for (int i = 0; i < c->n; i++) need |= weft_op_fusion(op, c->s[i].op);
    return need;
}

/* ---- which forms a row promises ---- */

static bool is_norm(weft_op op)
{
    switch (op) {
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_LAYER_NORM_GRAD:
    case WEFT_OP_RMS_NORM:
    case WEFT_OP_RMS_NORM_GRAD:
    case WEFT_OP_BATCH_NORM:
    case WEFT_OP_BATCH_NORM_GRAD:
    case WEFT_OP_BATCH_NORM_INFER: return true;
    default: return false;
    }
}

/* Results from this one on may have nobody who keeps them. */
static int first_optional(weft_op op, int n_out)
{
    switch (op) {
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_RMS_NORM:
    case WEFT_OP_BATCH_NORM:
    case WEFT_OP_MAX_POOL:
    case WEFT_OP_ATTENTION:
    case WEFT_OP_ATTENTION_MERGE: return 1;
    case WEFT_OP_LAYER_NORM_GRAD:
    case WEFT_OP_RMS_NORM_GRAD:
    case WEFT_OP_BATCH_NORM_GRAD:
    case WEFT_OP_ATTENTION_GRAD:
    case WEFT_OP_CROSS_ENTROPY:
    case WEFT_OP_CROSS_ENTROPY_MERGE:
    case WEFT_OP_ROUTE:
    case WEFT_OP_DISPATCH:
    case WEFT_OP_COMBINE_GRAD:
    case WEFT_OP_CLIP: return 0;
    default: return n_out;
    }
}

static int count_operands(const weft_test_case *c)
{
    int n = 0;
    for (const char *p = strchr(c->in, '['); p; p = strchr(p + 1, '[')) n++;
    return n;
}

bool op_has_base(const weft_test_case *c)
{
    return c->op == WEFT_OP_EMBEDDING_GRAD && count_operands(c) > 2;
}

bool op_form_fits(const weft_test_case *c, const op_form *f)
{
    unsigned flags = weft_op_get(c->op)->flags;
    if (f->storage == OP_STORAGE_MIXED && !is_norm(c->op)) return false;
    if (f->layout != OP_DENSE && !(flags & WEFT_OP_STRIDED)) return false;
    if (f->layout == OP_SPREAD && !*c->in) return false;
    if (f->add && (!(flags & WEFT_OP_ADDS) || f->add >> c->n_out || op_has_base(c)))
        return false;
    for (int j = 0; j < 32; j++)
        if (f->unkept >> j & 1 && (j < first_optional(c->op, c->n_out) || j >= c->n_out))
            return false;
    if (f->in_place && !(flags & (WEFT_OP_ELEM | WEFT_OP_UPDATE)) && !op_has_base(c))
        return false;
    if (f->chain >= 0 && c->op == WEFT_OP_CROSS_ENTROPY && strstr(c->attr, "first"))
        return false;
    if (f->add_sums && !weft_op_fusion(c->op, WEFT_OP_REDUCE)) return false;
    return f->chain < op_n_chain(c->op);
}

void op_form_text(const weft_test_case *c, const op_form *f, char *buf, size_t n)
{
    static const char *const storage[] = {"f32", "bf16", "bf16 with f32 weights"};
    static const char *const layout[]  = {"", ", shifted", ", padded", ", turned",
                                          ", spread"};
    size_t at = (size_t)snprintf(buf, n, "%s%s", storage[f->storage], layout[f->layout]);
    for (int j = 0; j < 32 && at < n; j++) {
        if (f->add >> j & 1)
            at += (size_t)snprintf(buf + at, n - at, ", added to result %d", j);
        if (f->unkept >> j & 1 && at < n)
            at += (size_t)snprintf(buf + at, n - at, ", without result %d", j);
    }
    if (f->in_place && at < n) at += (size_t)snprintf(buf + at, n - at, ", in place");
    if (f->chain < 0 || at >= n) return;
    if (c->op == WEFT_OP_CROSS_ENTROPY) {
        snprintf(buf + at, n - at, ", with its gradient%s",
                 f->chain == OP_LOSS_IN_PLACE ? " in place" : "");
        return;
    }
    const op_chain *chain = op_chain_of(c->op, f->chain);
    for (int i = 0; i < chain->n && at < n; i++)
        at += (size_t)snprintf(buf + at, n - at, "%s%s", i ? " " : ", then ",
                               weft_op_get(chain->s[i].op)->name);
    if (f->add_sums && at < n) snprintf(buf + at, n - at, ", sums added");
}
