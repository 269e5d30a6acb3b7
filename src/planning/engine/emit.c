/* A plan as another engine's flags or file.  Each engine has a table of options by key of the
 * strategy; a key that is set and has no option in the table is refused, never dropped. */
#include <string.h>

#include "engine/engine_priv.h"

/* ---- a configuration as a plan ---- */

static int size_or_none(int n)
{
    return n > 1 ? n : 0;
}

weft_status weft_engine_plan_of(const weft_config *c, weft_arena *a,
                                weft_engine_plan *out)
{
    weft_engine_plan p   = {.strategy          = weft_strategy_default(),
                            .dp                = c->dp,
                            .micro_batch       = c->micro_batch,
                            .global_batch      = c->global_batch,
                            .recompute_layers  = c->recompute_layers,
                            .recompute_modules = c->recompute_modules};
    weft_strategy   *y   = &p.strategy;
    uint16_t        *cut = WEFT_ARENA_ARRAY(a, uint16_t, c->pp);
    WEFT_TRY(weft_arena_status(a));
    y->dp   = c->dp % c->ep ? c->dp : c->dp / c->ep;
    y->tp   = size_or_none(c->tp);
    y->cp   = size_or_none(c->cp);
    y->ep   = size_or_none(c->ep);
    y->pp   = c->pp;
    y->sp   = c->sp > 0;
    y->zero = c->zero;
    if (c->pp > 1 && c->vpp > 1) {
        y->chunks   = c->vpp;
        y->schedule = WEFT_STRATEGY_INTERLEAVED;
    }
    for (int i = 0; i < WEFT_RECOMPUTE_N; i++)
        if (!strcmp(c->recompute, weft_cost_recompute_name(i)))
            p.recompute = (weft_cost_recompute)i;
    y->recompute =
        p.recompute == WEFT_RECOMPUTE_LIGHT ? WEFT_STRATEGY_SELECTIVE : (int)p.recompute;
    if (c->pp > 1 && weft_config_cut(c, cut)) p.cut = cut;
    *out = p;
    return WEFT_OK;
}

/* ---- keys as options ---- */

int weft_engine__value(const weft_engine_plan *p, weft_strategy_key key)
{
    int n = key == WEFT_KEY_dp ? p->dp : weft_strategy_number(&p->strategy, key);
    switch (key) {
    case WEFT_KEY_dp:
    case WEFT_KEY_tp:
    case WEFT_KEY_cp:
    case WEFT_KEY_ep: return n > 1 ? n : 1; /* no such axis: one rank */
    default: return n;
    }
}

static bool is_for(const weft_engine__option *o, const weft_engine_plan *p)
{
    int n = weft_engine__value(p, o->key);
    return n >= o->low && n <= o->high;
}

void weft_engine__put_options(const weft_engine__options *o, int part,
                              const weft_engine_plan *p, weft_text *t)
{
    for (int i = 0; i < o->n; i++) {
        const weft_engine__option *x = &o->option[i];
        if (x->part != part || !is_for(x, p)) continue;
        weft_text_add(t, "%s", x->before);
        if (x->after) weft_text_add(t, "%d%s", weft_engine__value(p, x->key), x->after);
    }
}

/* Is the value one that needs no option?  How many replicas there are and where their ranks are is
 * for who starts the engine, recomputation has modes of each engine's own. */
static bool needs_none(const weft_engine_plan *p, weft_strategy_key key)
{
    weft_engine_plan none = {.strategy = weft_strategy_default()};
    switch (weft_strategy_rows[key].kind) {
    case WEFT_STRATEGY_ORDER:
    case WEFT_STRATEGY_BYTES: return true;
    case WEFT_STRATEGY_SPLIT: return !p->strategy.n_batch_split;
    case WEFT_STRATEGY_LAYERS: return !p->strategy.n_tp_exclude;
    default:
        return key == WEFT_KEY_dp || key == WEFT_KEY_recompute ||
               weft_engine__value(p, key) == weft_engine__value(&none, key);
    }
}

static bool has_option(const weft_engine__options *o, const weft_engine_plan *p, int key)
{
    for (int i = 0; i < o->n; i++)
        if ((int)o->option[i].key == key && is_for(&o->option[i], p)) return true;
    return false;
}

static weft_status check_options(weft_engine e, const weft_engine__options *o,
                                 const weft_engine_plan *p)
{
    for (int k = 0; k < WEFT_N_STRATEGY_KEY; k++) {
        weft_text value = {0};
        if (needs_none(p, (weft_strategy_key)k) || has_option(o, p, k)) continue;
        weft_strategy_print_value(&p->strategy, &weft_strategy_rows[k], false, &value);
        weft_status st =
            WEFT_FAIL(WEFT_ERR_ARG, "%s has no option for %s=%s: plan with --engine %s",
                      weft_engine_name(e), weft_strategy_rows[k].key,
                      value.s ? value.s : "", weft_engine_name(e));
        weft_text_fini(&value);
        return st;
    }
    return WEFT_OK;
}

/* ---- all engines ---- */

weft_status weft_engine_emit(weft_engine e, const weft_config *model,
                             const weft_engine_plan *p, weft_text *t)
{
    static const struct {
        const weft_engine__options *options;
        weft_status (*emit)(const weft_config *, const weft_engine_plan *, weft_text *);
    } engine[WEFT_N_ENGINE] = {
        [WEFT_ENGINE_MEGATRON]   = {&weft_engine__megatron, weft_engine__emit_megatron},
        [WEFT_ENGINE_DEEPSPEED]  = {&weft_engine__deepspeed, weft_engine__emit_deepspeed},
        [WEFT_ENGINE_TORCHTITAN] = {&weft_engine__torchtitan,
                                    weft_engine__emit_torchtitan},
        [WEFT_ENGINE_PADDLE]     = {&weft_engine__paddle, weft_engine__emit_paddle},
    };
    size_t from = t->n;
    WEFT_TRY(engine[e].emit(model, p, t));
    WEFT_TRY(check_options(e, engine[e].options, p));
    if (e == WEFT_ENGINE_PADDLE) return WEFT_OK; /* nothing here reads its files */
    return weft_engine__check_written(e, model, p, t->s + from, t->n - from);
}
