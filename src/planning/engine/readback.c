/* What was written for another engine is read as that engine's file is read: the same model and
 * the same plan come back, or the engine has no words for them and nothing is written. */
#include <stddef.h>
#include <string.h>

#include "engine/engine_priv.h"

#define AT(field) offsetof(weft_config, field)

/* Numbers that decide what is trained and how.  What an engine's file does not say is taken from
 * its starter, not from it. */
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
    {"tp", AT(tp)},
    {"cp", AT(cp)},
    {"ep", AT(ep)},
    {"pp", AT(pp)},
    {"dp", AT(dp)},
    {"sp", AT(sp)},
    {"zero", AT(zero)},
    {"micro_batch", AT(micro_batch)},
    {"global_batch", AT(global_batch)},
};

bool weft_engine__names_model(weft_engine e, const weft_config *c)
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

static weft_status compare(weft_engine e, const weft_config *c, const weft_config *b)
{
    for (size_t i = 0; i < WEFT_COUNT(numbers); i++) {
        int want = number_at(c, numbers[i].at), got = number_at(b, numbers[i].at);
        if (want >= 0 && want != got)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "%s cannot be told of this plan: %s is %d, and %d where what "
                "was written is read back",
                weft_engine_name(e), numbers[i].name, want, got);
    }
    if (*c->precision && strcmp(c->precision, b->precision))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s has no words for %s: what was written is read as %s; give "
                         "another --precision",
                         weft_engine_name(e), c->precision, b->precision);
    if (*c->recompute && strcmp(c->recompute, b->recompute))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s has no words for recompute=%s, what was written is read as "
                         "%s",
                         weft_engine_name(e), c->recompute, b->recompute);
    return WEFT_OK;
}

weft_status weft_engine__check_written(weft_engine e, const weft_config *c,
                                       const char *text, size_t n)
{
    weft_arena *a;
    weft_config b, full = *c;
    weft_status st    = WEFT_OK;
    int64_t     world = (int64_t)c->dp * c->tp * c->pp * c->cp; /* below 2^24: complete */
    if (world < 1 || world > 1 << 24)
        return WEFT_FAIL(WEFT_ERR_ARG, "a plan of %lld devices", (long long)world);
    WEFT_TRY(weft_arena_create(&a));
    weft_engine_open(&b);
    if (!weft_engine__names_model(e, c)) b = *c;
    WEFT_GO(weft_engine_read(e, "what was written", text, n, (int)world, a, &b, NULL));
    if (b.dp < 0) b.dp = c->dp;
    WEFT_GO(weft_config_complete("what was written", &b));
    WEFT_GO(weft_config_complete("the plan", &full));
    WEFT_GO(compare(e, &full, &b));
out:
    weft_arena_destroy(a);
    return st;
}
