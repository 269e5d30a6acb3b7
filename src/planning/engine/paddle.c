/* Paddle's fleet: hybrid_configs and the trainer's words, as one JSON object. */
#include <limits.h>
#include <string.h>

#include "engine/engine_priv.h"

enum {
    DEGREES,
    REST
};

static const weft_engine__option options[] = {
    {WEFT_KEY_tp, 1, INT_MAX, DEGREES, ", \"mp_degree\": ", ""},
    {WEFT_KEY_pp, 1, INT_MAX, DEGREES, ", \"pp_degree\": ", ""},
    {WEFT_KEY_cp, 1, INT_MAX, REST, ", \"sep_degree\": ", "},\n"},
    {WEFT_KEY_zero, 1, 3, REST, "  \"sharding\": \"stage", "\",\n"},
    {WEFT_KEY_ep, 2, INT_MAX, REST, "  \"expert_parallel_degree\": ", ",\n"},
    {WEFT_KEY_chunks, 2, INT_MAX, REST, "  \"virtual_pp_degree\": ", ",\n"},
    {WEFT_KEY_schedule, WEFT_STRATEGY_INTERLEAVED, WEFT_STRATEGY_INTERLEAVED, REST, "",
     NULL}, /* it follows from chunks */
    {WEFT_KEY_sp, 0, 0, REST, "  \"sequence_parallel\": false,\n", NULL},
    {WEFT_KEY_sp, 1, 1, REST, "  \"sequence_parallel\": true,\n", NULL},
};

const weft_engine__options weft_engine__paddle = {WEFT_COUNT(options), options};

weft_status weft_engine__emit_paddle(const weft_config *c, const weft_engine_plan *p,
                                     weft_text *t)
{
    int  micro = p->micro_batch > 0 ? p->micro_batch : 1;
    int  steps = p->global_batch / (p->dp * micro);
    bool zero  = p->strategy.zero > 0; /* replicas are then ranks of sharding */
    weft_text_add(t, "{\n  \"hybrid_configs\": {\"dp_degree\": %d", zero ? 1 : p->dp);
    weft_engine__put_options(&weft_engine__paddle, DEGREES, p, t);
    weft_text_add(t, ", \"sharding_degree\": %d", zero ? p->dp : 1);
    weft_engine__put_options(&weft_engine__paddle, REST, p, t);
    if (p->recompute != WEFT_RECOMPUTE_NONE)
        weft_text_add(t, "  \"recompute\": true,\n  \"recompute_granularity\": \"%s\",\n",
                      p->recompute == WEFT_RECOMPUTE_FULL ? "full" : "core_attn");
    if (!strcmp(c->precision, "bf16") || !strcmp(c->precision, "fp16"))
        weft_text_add(t, "  \"%s\": true,\n", c->precision);
    weft_text_add(t,
                  "  \"per_device_train_batch_size\": %d,\n"
                  "  \"gradient_accumulation_steps\": %d\n}\n",
                  micro, steps > 0 ? steps : 1);
    return weft_text_status(t);
}
