/* What was written for another engine is read as that engine's file is read: the same model and
 * the same plan come back, or the engine has no words for them and nothing is written. */
#include <stddef.h>
#include <string.h>

#include "engine/engine_priv.h"

#define AT(field) offsetof(weft_config, field)

/* Sizes that decide what is trained.  What an engine's file does not say is taken from its
 * starter, not from it. */
static const struct number {
    const char *name;
    size_t      at; /* of an int in weft_config */
} numbers[] = {
    {"layers", AT(layers)},
    {"hidden", AT(hidden)},
    {"heads", AT(heads)},
    {"kv_heads", AT(kv_heads)},
    {"head_dim", AT(head_dim)},
    {"ffn_hidden", AT(ffn_hidden)},
    {"gated_mlp", AT(gated_mlp)},
    {"vocab", AT(vocab)},
    {"tied_embedding", AT(tied_embedding)},
    {"experts", AT(experts)},
    {"experts_topk", AT(experts_topk)},
    {"moe_ffn_hidden", AT(moe_ffn_hidden)},
    {"seq", AT(seq)},
};

/* Keys of the strategy that every file is read for. */
static const weft_strategy_key keys[] = {WEFT_KEY_tp,  WEFT_KEY_cp, WEFT_KEY_ep,
                                         WEFT_KEY_pp,  WEFT_KEY_dp, WEFT_KEY_sp,
                                         WEFT_KEY_zero};

/* Does what is written for the engine say which model it is? */
static bool names_model(weft_engine e, const weft_config *c)
{
    return e == WEFT_ENGINE_MEGATRON ||
           (e == WEFT_ENGINE_TORCHTITAN && weft_engine__has_flavour(c));
}

static int number_at(const weft_config *c, size_t at)
{
    int x;
    memcpy(&x, (const char *)c + at, sizeof x);
    return x;
}

static weft_status compare_number(weft_engine e, const char *name, int want, int got)
{
    if (want < 0 || want == got) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s cannot be told of this plan: %s is %d, and %d where what "
                     "was written is read back",
                     weft_engine_name(e), name, want, got);
}

static weft_status compare_plans(weft_engine e, const weft_engine_plan *p,
                                 const weft_engine_plan *q)
{
    for (size_t i = 0; i < WEFT_COUNT(keys); i++)
        WEFT_TRY(compare_number(e, weft_strategy_rows[keys[i]].key,
                                weft_engine__value(p, keys[i]),
                                weft_engine__value(q, keys[i])));
    WEFT_TRY(compare_number(e, "micro_batch", p->micro_batch, q->micro_batch));
    return compare_number(e, "global_batch", p->global_batch, q->global_batch);
}

static weft_status compare_modes(weft_engine e, const weft_config *c,
                                 const weft_engine_plan *p, const weft_config *b)
{
    const char *mode = weft_cost_recompute_name((int)p->recompute);
    if (*c->precision && strcmp(c->precision, b->precision))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s has no words for %s: what was written is read as %s; give "
                         "another --precision",
                         weft_engine_name(e), c->precision, b->precision);
    if (*b->recompute && strcmp(mode, b->recompute)) /* DeepSpeed's says nothing of it */
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s has no words for recompute=%s, what was written is read as "
                         "%s",
                         weft_engine_name(e), mode, b->recompute);
    return WEFT_OK;
}

weft_status weft_engine__check_written(weft_engine e, const weft_config *c,
                                       const weft_engine_plan *p, const char *text,
                                       size_t n)
{
    weft_arena      *a;
    weft_engine_plan q;
    weft_config      b, full = *c;
    weft_status      st    = WEFT_OK;
    double           world = (double)p->dp * weft_engine__value(p, WEFT_KEY_tp) *
                   weft_engine__value(p, WEFT_KEY_cp) * p->strategy.pp;
    if (world < 1 || world > 1 << 24)
        return WEFT_FAIL(WEFT_ERR_ARG, "a plan of %.0f devices", world);
    WEFT_TRY(weft_arena_create(&a));
    weft_engine_open(&b);
    if (!names_model(e, c)) b = *c;
    b.recompute = "";
    b.dp        = -1; /* c may be of all devices, the plan of some */
    WEFT_GO(weft_engine_read(e, "what was written", text, n, (int)world, a, &b, NULL));
    if (b.dp < 0) b.dp = p->dp;
    full.dp           = p->dp;
    full.global_batch = p->global_batch;
    WEFT_GO(weft_config_complete("what was written", &b));
    WEFT_GO(weft_config_complete("the plan", &full));
    for (size_t i = 0; i < WEFT_COUNT(numbers); i++)
        WEFT_GO(compare_number(e, numbers[i].name, number_at(&full, numbers[i].at),
                               number_at(&b, numbers[i].at)));
    WEFT_GO(weft_engine_plan_of(&b, a, &q));
    WEFT_GO(compare_plans(e, p, &q));
    WEFT_GO(compare_modes(e, &full, p, &b));
out:
    weft_arena_destroy(a);
    return st;
}
