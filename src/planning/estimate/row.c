/* Reading a row, and what follows from what it says. */
#include "estimate/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static weft_status complain(const char *file, const weft_config *c, const char *what,
                            const char *column)
{
    return c->line ? WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s: %s", file, c->line, column, what)
                   : WEFT_FAIL(WEFT_ERR_ARG, "%s: %s: %s", file, column, what);
}

static weft_status read_number(const weft_csv *t, int row, const char *column, int low,
                               int high, int *out)
{
    const char *s = weft_csv_cell(t, row, weft_csv_column(t, column));
    double      x;
    *out = -1;
    if (!*s) return WEFT_OK;
    if (!weft_text_read_double(s, &x) || !isfinite(x) || x != floor(x))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s: expected a whole number, got '%.40s'",
                         t->file, t->line[row], column, s);
    if (x < low || x > high)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s: %.40s is not from %d to %d", t->file,
                         t->line[row], column, s, low, high);
    *out = (int)x;
    return WEFT_OK;
}

static void otherwise(int *x, int value)
{
    if (*x < 0) *x = value;
}

/* Sizes that the table may leave out; see SCHEMA: an empty cell is not known, never 0. */
weft_status weft_config_complete(const char *file, weft_config *c)
{
    if (c->layers < 0) return complain(file, c, "missing", "layers");
    if (c->hidden < 0) return complain(file, c, "missing", "hidden");
    if (c->seq < 0) return complain(file, c, "missing", "seq");
    if (c->global_batch < 0) return complain(file, c, "missing", "global_batch");
    bool llama = strcmp(c->family, "gpt") && strcmp(c->family, "bert");
    otherwise(&c->heads, c->hidden >= 128 ? c->hidden / 128 : 1);
    otherwise(&c->kv_heads, c->heads);
    otherwise(&c->head_dim, c->hidden / c->heads > 0 ? c->hidden / c->heads : 1);
    otherwise(&c->gated_mlp, llama);
    otherwise(&c->ffn_hidden, c->gated_mlp ? (8 * c->hidden + 2) / 3 : 4 * c->hidden);
    otherwise(&c->vocab, llama ? 128256 : 51200);
    otherwise(&c->tied_embedding, !llama);
    otherwise(&c->experts, 0);
    otherwise(&c->experts_topk, c->experts ? 1 : 0);
    otherwise(&c->moe_ffn_hidden, c->ffn_hidden);
    otherwise(&c->experts_shared, 0);
    otherwise(&c->moe_first_dense, 0);
    otherwise(&c->tp, 1);
    otherwise(&c->pp, 1);
    otherwise(&c->cp, 1);
    otherwise(&c->ep, 1);
    otherwise(&c->sp, 0);
    otherwise(&c->zero, 0);
    otherwise(&c->flash_attention, 1);
    otherwise(&c->dev_per_node, 8);
    int64_t cut = (int64_t)c->tp * c->pp * c->cp, n = c->n_node;
    if (n < 0) n = c->dp < 0 ? 1 : (cut * c->dp + c->dev_per_node - 1) / c->dev_per_node;
    n *= c->dev_per_node;
    if (c->dp < 0) {
        if ((n % cut || n < cut) && !c->line)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "tp * pp * cp = %lld does not divide %lld devices",
                             (long long)cut, (long long)n);
        if (n % cut || n < cut)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s:%d: tp * pp * cp = %lld does not divide %lld devices",
                             file, c->line, (long long)cut, (long long)n);
        c->dp = (int)(n / cut);
    }
    if (cut * c->dp > 1 << 24)
        return complain(file, c, "tp * pp * cp * dp is more than 2^24", "dp");
    if (c->zero_group > c->dp * c->cp) c->zero_group = -1;
    return WEFT_OK;
}

weft_status weft_config_read(const weft_csv *t, int i, weft_config *c)
{
#define TEXT(name) .name = weft_csv_cell(t, i, weft_csv_column(t, #name))
    *c                   = (weft_config){TEXT(id),          TEXT(framework), TEXT(hw),
                                         TEXT(net),         TEXT(family),    TEXT(attn),
                                         TEXT(precision),   TEXT(features),  TEXT(stage_layers),
                                         TEXT(stage_hw),    TEXT(recompute), TEXT(grad_dtype),
                                         .line = t->line[i]};
#undef TEXT
#define NUMBER(name, low, high) WEFT_TRY(read_number(t, i, #name, low, high, &c->name));
#include "estimate/row_fields.def"
#undef NUMBER
    return weft_config_complete(t->file, c);
}

/* ---- stages ---- */

bool weft_config_cut(const weft_config *c, uint16_t *cut)
{
    const char *s   = c->stage_layers;
    int         sum = 0, n = 0;
    while (*s && n < c->pp) {
        char *end;
        long  x = strtol(s, &end, 10);
        if (end == s || x < 0 || x > 10000) return false;
        cut[n++] = (uint16_t)x;
        sum += (int)x;
        s = *end == '-' ? end + 1 : end;
        if (*end && *end != '-') return false;
    }
    return n == c->pp && !*s && sum == c->layers;
}

/* ---- parameters ---- */

/* Matrices, and biases where the family has them (gpt). */
static double ffn_params(const weft_config *c, double ffn)
{
    double h = c->hidden;
    return c->gated_mlp > 0 ? 3 * h * ffn : 2 * h * ffn + ffn + h;
}

static double attention_params(const weft_config *c)
{
    double h = c->hidden, q = (double)c->heads * c->head_dim,
           kv   = (double)c->kv_heads * c->head_dim;
    double bias = c->gated_mlp > 0 ? 0 : h;
    if (c->gated_mlp < 1 || c->qkv_bias) bias += q + 2 * kv;
    return h * (q + 2 * kv) + q * h + bias;
}

double weft_config_params(const weft_config *c)
{
    double h = c->hidden, norm = c->gated_mlp > 0 ? h : 2 * h, all = 0;
    int    experts = c->experts + (c->experts_shared > 0 ? c->experts_shared : 0);
    for (int i = 0; i < c->layers; i++) {
        all += attention_params(c) + 2 * norm;
        if (c->experts > 0 && i >= c->moe_first_dense)
            all += experts * ffn_params(c, c->moe_ffn_hidden) + h * c->experts;
        else
            all += ffn_params(c, c->ffn_hidden);
    }
    return all + norm + (double)c->vocab * h * (c->tied_embedding > 0 ? 1 : 2);
}
