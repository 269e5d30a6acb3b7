/* Transformers as models to search over, by the descriptions of estimate. */
#include <stdio.h>
#include <string.h>

#include "estimate/describe.h"
#include "search/search_priv.h"

weft_search_limits weft_search_limits_of(const char *engine)
{
    weft_search_limits l     = {.zero      = 15,
                                .zero_pp   = 15,
                                .schedules = 1u << WEFT_COST_1F1B | 1u << WEFT_COST_GPIPE |
                                             1u << WEFT_COST_ZERO_BUBBLE,
                                .recompute            = 7,
                                .cuts                 = WEFT_CUT_ANY,
                                .cp                   = true,
                                .ep                   = true,
                                .sp                   = true,
                                .pp                   = true,
                                .chunks               = true,
                                .whole                = !strcmp(engine, "weft"),
                                .shares               = !strcmp(engine, "weft"),
                                .ep_of_dp             = !strcmp(engine, "weft"),
                                .overlap_param_gather = !strcmp(engine, "weft")};
    unsigned           plain = 1u << WEFT_COST_1F1B;
    if (!strcmp(engine, "Megatron-LM 2021")) { /* as of the SC'21 paper */
        l.zero = l.zero_pp = 1;
        l.schedules        = plain;
        l.recompute        = 1u << WEFT_RECOMPUTE_NONE | 1u << WEFT_RECOMPUTE_FULL;
        l.cuts             = WEFT_CUT_EQUAL;
        l.cp = l.ep = l.sp = false;
    } else if (strstr(engine,
                      "egatron")) { /* states of stages: --use-distributed-optimizer */
        l.zero_pp   = 3;
        l.schedules = plain;
        l.cuts      = WEFT_CUT_ENDS;
        l.partial   = true;                        /* --recompute-method block */
        l.recompute |= 1u << WEFT_RECOMPUTE_LIGHT; /* --recompute-modules */
    } else if (!strcmp(engine, "deepspeed")) {
        l.pp = l.cp = l.sp = l.chunks = false;
        l.schedules                   = plain;
    } else if (!strcmp(engine, "torchtitan")) { /* shard degree 1 or all */
        l.zero = l.zero_pp = 1u << 0 | 1u << 3;
        l.schedules        = plain;
        l.cuts             = WEFT_CUT_ENDS;
        l.chunks           = false;
        /* v0.2.2, distributed/parallel_dims.py: the fsdp axis is dp_shard * cp */
        l.cp_shards = true;
    } else if (!strcmp(engine, "paddle")) {
        l.zero_pp   = 3;
        l.schedules = plain;
        l.cuts      = WEFT_CUT_ENDS;
    }
    return l;
}

static void fill(void *arg, const weft_cost_engine *e, const weft_cost_variant *v,
                 const weft_device_kind *d, const weft_cost_fabric *f, weft_cost_row *row)
{
    weft_estimate_fill(arg, e, v, d, f, row);
}

static bool refuse(char *why, size_t n, const char *what, int size, const char *key,
                   int by)
{
    if (why)
        snprintf(why, n, "%s=%d does not divide the model's %d %s", key, by, size, what);
    return false;
}

static bool allows(void *arg, const weft_cost_variant *v, char *why, size_t n)
{
    const weft_config *c = arg;
    if (c->heads % v->tp) return refuse(why, n, "attention heads", c->heads, "tp", v->tp);
    if (c->kv_heads % v->tp && v->tp % c->kv_heads)
        return refuse(why, n, "heads of keys and values", c->kv_heads, "tp", v->tp);
    if (c->ffn_hidden % v->tp)
        return refuse(why, n, "hidden units of the feed-forward", c->ffn_hidden, "tp",
                      v->tp);
    if (v->cp > 1 && c->seq % (2 * v->cp)) {
        if (why)
            snprintf(why, n,
                     "cp=%d: a sequence of %d tokens is not cut in %d equal pieces",
                     v->cp, c->seq, 2 * v->cp);
        return false;
    }
    if (v->sp && c->seq % (v->tp * v->cp)) {
        if (why)
            snprintf(why, n, "sp=true: tp=%d x cp=%d does not divide %d tokens", v->tp,
                     v->cp, c->seq);
        return false;
    }
    if (v->ep > 1 && (c->experts < 1 || c->experts % v->ep)) {
        if (why)
            snprintf(why, n,
                     c->experts < 1 ? "ep=%d: the model has no experts"
                                    : "ep=%d does not divide the model's %d experts",
                     v->ep, c->experts);
        return false;
    }
    return true;
}

weft_status weft_search_transformer(const weft_config *c, const weft_cost_constants *k,
                                    const weft_search_limits *l, weft_arena *a,
                                    weft_search_model *out)
{
    weft_cost_segment *segment = WEFT_ARENA_ARRAY(a, weft_cost_segment, 2);
    weft_config       *own     = weft_arena_memdup(a, c, sizeof *c);
    WEFT_TRY(weft_arena_status(a));
    *out = (weft_search_model){
        .name      = c->id,
        .unit      = "sequences",
        .arg       = own,
        .limits    = *l,
        .max_tp    = c->heads,
        .max_cp    = l->cp && c->seq >= 512 ? c->seq / 256 : 1,
        .max_ep    = l->ep && c->experts > 0 ? c->experts : 1,
        .max_micro = 64,
        .fill      = fill,
        .allows    = allows,
    };
    weft_cost_constants_engine(k, c->framework, &out->shape.engine);
    weft_estimate_table(c, segment, &out->shape);
    return WEFT_OK;
}
