#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_priv.h"

/* Parameters that a description may have more or less than the model. */
#define PARAMS_OFF 0.02

static const char *const names[WEFT_N_ENGINE] = {"megatron", "deepspeed", "torchtitan",
                                                 "paddle"};

const char *weft_engine_name(weft_engine e)
{
    return names[e];
}

bool weft_engine_find(const char *name, weft_engine *out)
{
    for (int i = 0; i < WEFT_N_ENGINE; i++)
        if (!strcmp(name, names[i])) {
            *out = (weft_engine)i;
            return true;
        }
    return false;
}

weft_status weft_engine_know(const weft_cost_constants *k, const char *name)
{
    weft_engine e;
    char        others[512];
    if (!strcmp(name, "weft") || weft_engine_find(name, &e)) return WEFT_OK;
    if (weft_cost_know_engine(k, name) == WEFT_OK) return WEFT_OK;
    const char *list = strstr(weft_error_text(), "none of: ");
    snprintf(others, sizeof others, "%s", list ? list + 9 : "");
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "engine '%.40s' is none of: weft, megatron, deepspeed, torchtitan, "
                     "paddle; nor of those whose constants are known: %s",
                     name, others);
}

weft_status weft_engine_know_precision(const weft_device_kind *d, const char *precision)
{
    const char *want = !strcmp(precision, "fp8")   ? "f8"
                       : !strcmp(precision, "fp4") ? "f4"
                                                   : NULL;
    for (int i = 0; want && i < d->n_rate; i++)
        if (!strncmp(d->rate[i].dtype, want, 2)) return WEFT_OK;
    if (!want) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s has no %s products: take bf16 or fp16", d->name,
                     precision);
}

static bool has_rate(const weft_device_kind *d, const char *dtype)
{
    for (int i = 0; i < d->n_rate; i++)
        if (!strcmp(d->rate[i].dtype, dtype)) return true;
    return false;
}

/* torchtitan v0.2.2, components/quantization/mx.py: compute capability 10.0 or later, or gfx950.
 * Those have 4-bit products, earlier ones do not. */
weft_status weft_engine_know_formats(const weft_device_kind *d, const weft_config *c)
{
    WEFT_TRY(weft_engine_know_precision(d, c->precision));
    if (!weft_engine__has(c, WEFT_ENGINE__MX) || has_rate(d, "f4")) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s has no MX formats, which take a Blackwell (b200, gb200, ...): "
                     "torchtitan stops there; take its float8 converter",
                     d->name);
}

void weft_engine_put_uncounted(const weft_config *c, weft_text *t)
{
    const char *glue = "", *s = c->features;
    size_t      n = strlen(WEFT_ENGINE__OFFLOAD);
    while ((s = strstr(s, WEFT_ENGINE__OFFLOAD))) {
        s += n;
        weft_text_add(t, "%s%.*s", glue, (int)strcspn(s, " "), s);
        glue = ", ";
    }
}

/* The kinds in use that lack `want` and have, or have not, `other`; false: there are none. */
static bool put_lacking(const weft_cluster *c, const char *want, const char *other,
                        bool have, weft_text *t)
{
    bool any = false;
    for (int i = 0; i < c->n_device; i++) {
        bool used = false;
        for (int k = 0; k < c->n_node; k++) used = used || c->node[k].device == i;
        if (!used || has_rate(&c->device[i], want)) continue;
        if (has_rate(&c->device[i], other) != have) continue;
        weft_text_add(t, "%s%s", any ? ", " : "", c->device[i].name);
        any = true;
    }
    return any;
}

void weft_engine_tell_precision(const weft_cluster *c, const char *precision, bool ours,
                                weft_text *t)
{
    bool        bf16 = !strcmp(precision, "bf16");
    const char *want = bf16 ? "bf16" : "f16", *other = bf16 ? "f16" : "bf16";
    const char *name = bf16 ? "fp16" : "bf16";
    if (!bf16 && strcmp(precision, "fp16") != 0) return;
    for (int have = 0; have < 2; have++) {
        weft_text kinds = {0};
        if (put_lacking(c, want, other, have, &kinds))
            weft_text_add(t, "warning: no %s on %s: counted at the rate of %s%s%s%s\n",
                          precision, kinds.s, ours || !have ? "fp32" : name,
                          ours && have ? " (" : "", ours && have ? name : "",
                          ours && have ? " they have)" : "");
        weft_text_fini(&kinds);
    }
}

void weft_engine_tell_unmeasured(const weft_cluster *k, const weft_cost_constants *c,
                                 const char *framework, weft_text *t)
{
    bool any = false;
    for (int i = 0; i < k->n_device; i++) {
        bool used = false;
        for (int n = 0; n < k->n_node; n++) used = used || k->node[n].device == i;
        if (!used || weft_cost_was_measured(c, framework, k->device[i].name)) continue;
        if (!any) weft_text_add(t, "no step of %s was measured on ", framework);
        weft_text_add(t, "%s%s", any ? ", " : "", k->device[i].name);
        any = true;
    }
    if (any)
        weft_text_add(t,
                      ": the interval is as wide as measured steps are from predictions "
                      "of engines and devices that nothing was fitted to");
}

void weft_engine_open(weft_config *c)
{
    *c = (weft_config){.id           = "",
                       .framework    = "",
                       .hw           = "",
                       .net          = "",
                       .family       = "",
                       .attn         = "",
                       .precision    = "",
                       .features     = "",
                       .stage_layers = "",
                       .stage_hw     = "",
                       .recompute    = "",
                       .grad_dtype   = ""};
#define NUMBER(name, low, high) c->name = -1;
#include "estimate/row_fields.def"
#undef NUMBER
}

weft_status weft_engine_read(weft_engine e, const char *file, const char *text, size_t n,
                             int world, weft_arena *a, weft_config *c, weft_text *ignored)
{
    switch (e) {
    case WEFT_ENGINE_MEGATRON:
        return weft_engine__read_megatron(file, text, n, a, c, ignored);
    case WEFT_ENGINE_DEEPSPEED:
        return weft_engine__read_deepspeed(file, text, n, world, a, c, ignored);
    case WEFT_ENGINE_TORCHTITAN:
        return weft_engine__read_torchtitan(file, text, n, world, a, c, ignored);
    default: return WEFT_FAIL(WEFT_ERR_ARG, "%s's files are not read", names[e]);
    }
}

void weft_engine__ignore(weft_text *ignored, const char *what)
{
    if (ignored) weft_text_add(ignored, "%s%s", ignored->n ? " " : "", what);
}

bool weft_engine__has(const weft_config *c, const char *feature)
{
    return strstr(c->features, feature) != NULL;
}

weft_status weft_engine__feature(weft_arena *a, weft_config *c, const char *word)
{
    if (weft_engine__has(c, word)) return WEFT_OK;
    c->features =
        weft_arena_printf(a, "%s%s%s", c->features, *c->features ? " " : "", word);
    return weft_arena_status(a);
}

/* ---- a model's sizes ---- */

/* What rotates positions, as the first layer has it. */
static void describe_rotary(const weft_graph *g, weft_config *c)
{
    for (int i = 0; i < g->n_node; i++) {
        weft_op_use u = {.op = g->node[i].op, .attr = g->node[i].attr};
        if (u.op != WEFT_OP_ROTARY) continue;
        c->rotary_base = weft_use_float(&u, "theta");
        if (!strcmp(weft_use_string(&u, "kind"), "llama3"))
            c->rotary_factor = weft_use_float(&u, "factor");
        return;
    }
}

static bool has_tensor(const weft_model *m, const char *part)
{
    for (int p = 0; p < m->n_param; p++)
        for (int k = 0; k < m->param[p].n_tensor; k++)
            if (strstr(m->param[p].tensor[k].name, part)) return true;
    return false;
}

/* Tables of positions are no part of what other engines are told: they have their own, or none. */
static bool is_position(const weft_model_param *p)
{
    for (int k = 0; k < p->n_tensor; k++) {
        const char *name = p->tensor[k].name;
        if (strstr(name, "wpe") || strstr(name, "position") || strstr(name, "token_type"))
            return true;
    }
    return false;
}

static double count_params(const weft_model *m)
{
    double n = 0;
    for (int p = 0; p < m->n_param; p++)
        if (!is_position(&m->param[p]))
            n += (double)weft_shape_count(&m->graph->value[m->param[p].value].type.shape);
    return n;
}

static bool is_masked(const weft_model *m)
{
    return !strcmp(m->type, "bert") || !strcmp(m->type, "ernie");
}

/* Layers of two widths, a stack that is not there: then these sizes are of another model.  Heads
 * of masked models (but for small ones) and biases that differ are within the limit. */
static weft_status check_params(const weft_model *m, const weft_config *c)
{
    double has = count_params(m), told = weft_config_params(c);
    if (fabs(told - has) <= PARAMS_OFF * has) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s has %.4g billion parameters, but the sizes that other engines "
                     "are told (%d layers, hidden %d, ffn %d, %d heads) are those of a "
                     "model with %.4g: %s; plan for weft",
                     m->name, has / 1e9, c->layers, c->hidden, c->ffn_hidden, c->heads,
                     told / 1e9,
                     is_masked(m) ? "the head of a masked model is not among them"
                                  : "its layers are not all alike");
}

/* Positions that a token attends to, itself among them, where that is fewer than all before it. */
static int64_t find_window(const weft_model *m)
{
    for (int i = 0; i < m->graph->n_node; i++) {
        weft_op_use u = {.op = m->graph->node[i].op, .attr = m->graph->node[i].attr};
        if (u.op == WEFT_OP_ATTENTION && weft_use_int(&u, "window") > 0)
            return weft_use_int(&u, "window");
    }
    return 0;
}

/* Files of DeepSpeed and Paddle say nothing of the model.  Megatron-LM as of core_v0.19.0:
 * pretrain_gpt.py trains causal models, BERT has a program of its own (examples/bert); windows are
 * --window-size, which estimates do not count.  torchtitan as of v0.2.2 (models/__init__.py):
 * deepseek_v3, flux, gpt_oss, llama3, llama4, qwen3; llama3 has no window and no biases. */
weft_status weft_engine_can_train(const char *engine, const weft_model *m)
{
    weft_engine e;
    int64_t     window = find_window(m);
    bool        titan  = weft_engine_find(engine, &e) && e == WEFT_ENGINE_TORCHTITAN;
    if (!titan && strcmp(engine, "megatron")) return WEFT_OK;
    if (is_masked(m))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s is a masked language model: %s; plan for weft",
                         m->name,
                         titan ? "torchtitan has none"
                               : "Megatron-LM trains those with another program "
                                 "(examples/bert), whose arguments are not written");
    if (window)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s attends to the last %lld tokens, fewer than the sequence has: "
            "%s; plan for weft, or with a shorter --seq",
            m->name, (long long)window,
            titan ? "torchtitan's llama3 has no such window"
                  : "what is written for Megatron-LM has no such window");
    if (titan && (!strcmp(m->type, "gpt2") || has_tensor(m, "q_proj.bias")))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "torchtitan has no model like %s (%s); plan for weft or megatron", m->name,
            !strcmp(m->type, "gpt2") ? "GPT-2" : "llama with biases of q, k and v");
    return WEFT_OK;
}

weft_status weft_engine_model(const weft_model *m, weft_arena *a, weft_config *c)
{
    const weft_model_info *i = &m->info;
    if (m->kind != WEFT_MODEL_LM || !i->layers || !i->hidden || !i->heads)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s is no transformer language model: estimates for other engines "
            "are made for those only",
            m->name);
    bool gpt          = !strcmp(m->type, "gpt2") || is_masked(m);
    c->family         = i->experts ? "moe" : gpt ? "gpt" : "llama";
    c->attn           = "full";
    c->layers         = (int)i->layers;
    c->hidden         = (int)i->hidden;
    c->heads          = (int)i->heads;
    c->kv_heads       = (int)(i->kv_heads ? i->kv_heads : i->heads);
    c->head_dim       = (int)(i->head_dim ? i->head_dim : i->hidden / i->heads);
    c->ffn_hidden     = (int)i->ffn;
    c->gated_mlp      = !gpt;
    c->vocab          = (int)i->vocab;
    c->experts        = (int)i->experts;
    c->experts_topk   = (int)i->top_k;
    c->moe_ffn_hidden = (int)i->ffn;
    c->tied_embedding =
        !has_tensor(m, "lm_head"); /* a head of its own is a second table of its rows */
    c->qkv_bias = has_tensor(m, "q_proj.bias");
    describe_rotary(m->graph, c);
    WEFT_TRY(check_params(m, c));
    if (m->seq && c->seq < 0) c->seq = (int)m->seq;
    c->id = weft_arena_strdup(a, m->name);
    return weft_arena_status(a);
}

/* ---- a cluster as tables ---- */

/* Devices joined by links of their own: a node, or the nodes under a switch that has a link. */
static int fast_domain(const weft_cluster *k, const weft_host_kind *node)
{
    for (int i = k->n_switch - 1; i >= 0; i--)
        if (k->sw[i].link >= 0)
            return (k->sw[i].span ? k->sw[i].span : weft_cluster_n_node(k)) *
                   node->n_device;
    return node->n_device;
}

/* What switches leave of the ports' bandwidth while all talk to all. */
static double taper(const weft_cluster *k)
{
    double out = 1;
    for (int i = 0; i < k->n_switch; i++) {
        if (k->sw[i].link < 0 && k->sw[i].taper < out) out = k->sw[i].taper;
        if (!k->sw[i].span || k->sw[i].span >= weft_cluster_n_node(k)) break;
    }
    return out;
}

static weft_status add_kind(const weft_cluster *k, const weft_host_kind *node, int i,
                            weft_hardware *h)
{
    const weft_device_kind *from = &k->device[node->device];
    weft_device_kind       *d    = &h->device[i];
    weft_hw_net            *n    = &h->net[i];
    const weft_link_kind   *in   = node->link >= 0 ? &k->link[node->link] : NULL;
    const weft_link_kind   *out  = node->net >= 0 ? &k->link[node->net] : NULL;
    *d                           = *from;
    d->name                      = weft_arena_strdup(h->arena, from->name);
    d->vendor                    = "";
    d->source                    = "";
    d->point                     = NULL;
    d->n_point                   = 0;
    d->rate                      = weft_arena_memdup(h->arena, from->rate,
                                                     sizeof *from->rate * (size_t)from->n_rate);
    WEFT_TRY(weft_arena_status(h->arena));
    if (!from->n_point) { /* a data sheet's: the fitted constants of its kind are better */
        d->efficiency = d->half_size = d->attention = d->stream = 0;
        d->launch_s                                             = 0;
        for (int r = 0; r < d->n_rate; r++) d->rate[r].efficiency = 0;
    }
    n->name         = weft_arena_printf(h->arena, "%s_%s", from->name, node->name);
    n->dev_per_node = node->n_device;
    n->fast_domain  = fast_domain(k, node);
    n->intra_kind   = weft_arena_strdup(h->arena, in ? in->name : "pcie");
    n->intra_Bps    = in ? in->Bps : 0;
    /* "ib-hdr", "eth-50g" by the constants' patterns */
    n->inter_kind =
        weft_arena_printf(h->arena, "%s%s", out ? out->name : "ethernet",
                          out && !strncmp(out->name, "ib-", 3)    ? " infiniband"
                          : out && !strncmp(out->name, "eth-", 4) ? " ethernet"
                                                                  : "");
    n->inter_Bps = out && node->n_device ? out->Bps * node->n_port / node->n_device : 0;
    n->inter_Bps *= taper(k);
    n->mix            = "";
    h->default_net[i] = n->name;
    return weft_arena_status(h->arena);
}

weft_status weft_engine_cluster(const weft_cluster *k, weft_arena *a, weft_config *c,
                                weft_hardware **out)
{
    weft_arena    *own = NULL;
    weft_hardware *h   = NULL;
    weft_text      hw  = {0};
    weft_status    st  = WEFT_OK;
    WEFT_GO(weft_arena_create(&own));
    h = WEFT_ARENA_NEW(own, weft_hardware);
    WEFT_GO(weft_arena_status(own));
    h->arena    = own;
    h->n_device = h->n_net = k->n_node;
    h->device              = WEFT_ARENA_ARRAY(own, weft_device_kind, k->n_node + 1);
    h->default_net         = WEFT_ARENA_ARRAY(own, const char *, k->n_node + 1);
    h->net                 = WEFT_ARENA_ARRAY(own, weft_hw_net, k->n_node + 1);
    WEFT_GO(weft_arena_status(own));
    c->n_node = c->dev_per_node = 0;
    for (int i = 0; i < k->n_node; i++) {
        const weft_host_kind *n = &k->node[i];
        WEFT_GO(add_kind(k, n, i, h));
        weft_text_add(&hw, "%s%s*%d", i ? "+" : "", h->device[i].name,
                      n->count * n->n_device);
        c->n_node += n->count;
        if (n->n_device > c->dev_per_node) c->dev_per_node = n->n_device;
    }
    WEFT_GO(weft_text_status(&hw));
    c->hw  = k->n_node == 1 ? weft_arena_strdup(a, h->device[0].name)
                            : weft_arena_strdup(a, hw.s);
    c->net = weft_arena_strdup(a, k->n_node == 1 ? h->net[0].name : "");
    WEFT_GO(weft_arena_status(a));
    *out = h;
    own  = NULL;
out:
    weft_text_fini(&hw);
    weft_arena_destroy(own);
    return st;
}
