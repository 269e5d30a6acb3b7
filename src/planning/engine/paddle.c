/* Paddle's fleet: hybrid_configs and the trainer's words, as one JSON object. */
#include <string.h>

#include "engine/engine_priv.h"

weft_status weft_engine__emit_paddle(const weft_config *c, weft_text *t)
{
    int  micro = c->micro_batch > 0 ? c->micro_batch : 1;
    bool zero  = c->zero > 0;
    weft_text_add(t,
                  "{\n  \"hybrid_configs\": {\"dp_degree\": %d, \"mp_degree\": %d, "
                  "\"pp_degree\": %d, \"sharding_degree\": %d, \"sep_degree\": %d},\n",
                  zero ? 1 : c->dp, c->tp, c->pp, zero ? c->dp : 1, c->cp);
    if (zero) weft_text_add(t, "  \"sharding\": \"stage%d\",\n", c->zero);
    if (c->ep > 1) weft_text_add(t, "  \"expert_parallel_degree\": %d,\n", c->ep);
    if (c->pp > 1 && c->vpp > 1)
        weft_text_add(t, "  \"virtual_pp_degree\": %d,\n", c->vpp);
    weft_text_add(t, "  \"sequence_parallel\": %s,\n", c->sp > 0 ? "true" : "false");
    if (*c->recompute && strcmp(c->recompute, "none"))
        weft_text_add(t, "  \"recompute\": true,\n  \"recompute_granularity\": \"%s\",\n",
                      !strcmp(c->recompute, "full") ? "full" : "core_attn");
    if (!strcmp(c->precision, "bf16") || !strcmp(c->precision, "fp16"))
        weft_text_add(t, "  \"%s\": true,\n", c->precision);
    weft_text_add(
        t,
        "  \"per_device_train_batch_size\": %d,\n"
        "  \"gradient_accumulation_steps\": %d\n}\n",
        micro,
        c->global_batch / (c->dp * micro) > 0 ? c->global_batch / (c->dp * micro) : 1);
    return weft_text_status(t);
}
