/* Building a model from its source: which family makes it, and what can be asked of it. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "model/model_priv.h"

static const struct {
    const char         *type;
    weft_model__make_fn make;
    weft_model_kind     kind;
} family[] = {
    {"gpt2", weft_model__make_gpt2, WEFT_MODEL_LM},
    {"llama", weft_model__make_llama, WEFT_MODEL_LM},
    {"mistral", weft_model__make_llama, WEFT_MODEL_LM},
    {"qwen2", weft_model__make_llama, WEFT_MODEL_LM},
    {"mixtral", weft_model__make_llama, WEFT_MODEL_LM},
    {"bert", weft_model__make_bert, WEFT_MODEL_LM},
    {"ernie", weft_model__make_bert, WEFT_MODEL_LM},
    {"t5", weft_model__make_t5, WEFT_MODEL_ENCDEC},
    {"ernie3-titan", weft_model__make_titan, WEFT_MODEL_LM},
    {"resnet", weft_model__make_resnet, WEFT_MODEL_IMAGES},
    {"mlp", weft_model__make_mlp, WEFT_MODEL_VECTORS},
};

/* ---- a configuration becomes a model ---- */

/* "llama, mistral, ..." of the table, for the complaint about a type that is not in it. */
static weft_status unknown_type(const weft_doc *doc, const weft_node *at,
                                const char *type)
{
    const char *word[WEFT_COUNT(family)];
    weft_text   list = {0};
    for (size_t i = 0; i < WEFT_COUNT(family); i++) {
        word[i] = family[i].type;
        weft_text_add(&list, "%s%s", i ? ", " : "", word[i]);
    }
    const char *near = weft_suggest(type, word, (int)WEFT_COUNT(word));
    weft_status st   = WEFT_FAIL(
          WEFT_ERR_ARG, "%s:%d: model_type: '%s' is not known%s%s%s; known are %s",
          weft_doc_file(doc), at->line, type, near ? ", did you mean '" : "",
        near ? near : "", near ? "'?" : "", list.s);
    weft_text_fini(&list);
    return st;
}

/* torch_dtype or dtype: what the file holds, not what we compute in. */
static void read_dtype(weft_model__maker *mk)
{
    const char *key  = "dtype|torch_dtype";
    const char *word = weft_model__word(mk, key, "float32");
    if (mk->b.st == WEFT_OK && !strcmp(word, "auto")) word = "float32";
    if (mk->b.st == WEFT_OK && !weft_dtype_parse(word, &mk->m->file_dtype))
        weft_model__refuse(mk, key, "'%s' is no data type (float32, bfloat16, ...)",
                           word);
}

weft_status weft_model__find_family(const weft_doc *doc, int *out)
{
    const weft_node *root = weft_doc_root(doc), *type;
    if (root->kind != WEFT_NODE_MAP)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: is no configuration: expected { ... }",
                         weft_doc_file(doc));
    type = weft_node_get(root, "model_type");
    if (!type || type->kind != WEFT_NODE_STRING)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: model_type: is missing; it says which family this is",
                         weft_doc_file(doc));
    for (size_t i = 0; i < WEFT_COUNT(family); i++)
        if (!strcmp(family[i].type, type->u.s)) {
            *out = (int)i;
            return WEFT_OK;
        }
    return unknown_type(doc, type, type->u.s);
}

static weft_status make_from_config(weft_model *m, const weft_model_source *s,
                                    const weft_model_options *o)
{
    weft_model__maker mk = {.m         = m,
                            .doc       = s->doc,
                            .cfg       = weft_doc_root(s->doc),
                            .o         = *o,
                            .batch     = m->batch,
                            .more_loss = -1};
    m->type              = family[s->family].type;
    m->kind              = family[s->family].kind;
    if (!m->name) m->name = m->type;
    WEFT_TRY(weft_graph_create(m->name, &m->graph));
    mk.b = weft_build_start(m->graph);
    read_dtype(&mk);
    family[s->family].make(&mk);
    if (mk.b.st != WEFT_OK) return mk.b.st;
    WEFT_TRY(weft_arena_status(m->arena));
    return weft_graph_verify(m->graph);
}

/* A graph: its own inputs and outputs; each parameter is a tensor of its own name. */
static weft_status describe_graph(weft_model *m)
{
    m->type      = "graph";
    m->kind      = WEFT_MODEL_TEXT;
    m->name      = m->graph->name;
    m->ids       = weft_graph_find(m->graph, "input_ids");
    m->labels    = weft_graph_find(m->graph, "labels");
    m->logits    = weft_graph_find(m->graph, "logits");
    m->loss_rows = weft_graph_find(m->graph, "loss_rows");
    m->loss_sum = m->label_sum = m->graph->n_output ? m->graph->output[0] : -1;
    if (m->labels >= 0)
        m->n_label = weft_shape_count(&m->graph->value[m->labels].type.shape);
    for (weft_vid v = 0; v < m->graph->n_value; v++) {
        weft_graph_value *x = &m->graph->value[v];
        if (x->kind != WEFT_VALUE_PARAM) continue;
        WEFT_TRY(weft_arena_grow(m->arena, (void **)&m->param, &m->cap_param,
                                 m->n_param + 1, sizeof *m->param));
        weft_model_tensor *t = WEFT_ARENA_NEW(m->arena, weft_model_tensor);
        if (!t) return weft_arena_status(m->arena);
        *t                     = (weft_model_tensor){x->name, x->type.shape,
                                                     weft_region_whole(&x->type.shape)};
        m->param[m->n_param++] = (weft_model_param){.value    = v,
                                                    .name     = x->name,
                                                    .decay    = x->type.shape.n >= 2,
                                                    .init     = WEFT_INIT_NORMAL,
                                                    .init_std = 0.02,
                                                    .n_tensor = 1,
                                                    .tensor   = t};
    }
    return WEFT_OK;
}

static weft_status make_from_text(weft_model *m, const weft_model_source *s)
{
    WEFT_TRY(weft_graph_from_text(s->file, s->text, s->n_text, &m->graph));
    return describe_graph(m);
}

weft_status weft_model__check_options(const weft_model_options *o)
{
    const int64_t most = INT32_MAX;
    if (o->batch < 0 || o->batch > most || o->seq < 0 || o->seq > most)
        return WEFT_FAIL(WEFT_ERR_ARG, "model: batch %lld x seq %lld is impossible",
                         (long long)o->batch, (long long)o->seq);
    if (o->dtype != WEFT_DTYPE_F32 && o->dtype != WEFT_DTYPE_BF16 &&
        o->dtype != WEFT_DTYPE_F64)
        return WEFT_FAIL(WEFT_ERR_ARG, "model: dtype %s is not one of f32, bf16, f64",
                         weft_dtype_name(o->dtype));
    return WEFT_OK;
}

static weft_status start(int64_t batch, weft_model **out)
{
    weft_arena *a;
    WEFT_TRY(weft_arena_create(&a));
    *out = WEFT_ARENA_NEW(a, weft_model);
    if (!*out) {
        weft_arena_destroy(a);
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a model");
    }
    **out = (weft_model){.arena       = a,
                         .batch       = batch ? batch : 1,
                         .ids         = -1,
                         .labels      = -1,
                         .decoder_ids = -1,
                         .logits      = -1,
                         .loss_rows   = -1,
                         .label_sum   = -1,
                         .loss_sum    = -1};
    return WEFT_OK;
}

/* A model outlives its source. */
static weft_status copy_description(const weft_model_source *s, weft_model *m)
{
    if (s->name) m->name = weft_arena_strdup(m->arena, s->name);
    if (s->dir) m->dir = weft_arena_strdup(m->arena, s->dir);
    if (s->doc) m->config = weft_arena_strdup(m->arena, s->text);
    m->source = weft_arena_strdup(m->arena, s->file);
    return weft_arena_status(m->arena);
}

weft_status weft_model_build(const weft_model_source *s, const weft_model_options *o,
                             weft_model **out)
{
    weft_model *m;
    if (s->graph) return weft_model_of_graph(s->graph, o->batch, out);
    WEFT_TRY(weft_model__check_options(o));
    WEFT_TRY(start(o->batch, &m));
    weft_status st = copy_description(s, m);
    if (st == WEFT_OK) st = s->doc ? make_from_config(m, s, o) : make_from_text(m, s);
    if (st == WEFT_OK)
        *out = m;
    else
        weft_model_destroy(m);
    return st;
}

weft_status weft_model_of_graph(const weft_graph *g, int64_t batch, weft_model **out)
{
    weft_model *m;
    if (!batch) batch = weft_graph_batch(g);
    WEFT_TRY(weft_graph_verify(g));
    WEFT_TRY(start(batch, &m));
    weft_status st = weft_graph_rebatch(g, batch, &m->graph);
    m->source      = "a graph";
    if (st == WEFT_OK) st = describe_graph(m);
    if (st == WEFT_OK)
        *out = m;
    else
        weft_model_destroy(m);
    return st;
}

void weft_model_destroy(weft_model *m)
{
    if (!m) return;
    weft_graph_destroy(m->graph);
    weft_arena_destroy(m->arena);
}

/* ---- what can be asked ---- */
weft_graph *weft_model_graph(const weft_model *m)
{
    return m->graph;
}

int64_t weft_model_weights(const weft_model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_param; i++)
        n += weft_shape_count(&m->graph->value[m->param[i].value].type.shape);
    return n;
}

static bool is_product(weft_op op)
{
    return op == WEFT_OP_MATMUL || op == WEFT_OP_GROUPED_MATMUL ||
           op == WEFT_OP_ATTENTION || op == WEFT_OP_CONV2D;
}

double weft_model_flops(const weft_model *m)
{
    double sum = 0;
    for (int i = 0; i < m->graph->n_node; i++) {
        const weft_graph_node *n = &m->graph->node[i];
        weft_type              in[4], out[4];
        if (n->phase != WEFT_PHASE_FORWARD || !is_product(n->op)) continue;
        weft_op_use u = weft_graph_use(m->graph, n, in, out);
        sum += weft_op_flops(&u);
    }
    return 3 * sum;
}

static bool same_name(const weft_model *m, const char *ours, const char *file)
{
    size_t n = m->prefix ? strlen(m->prefix) : 0;
    return !strcmp(ours, file) ||
           (n && !strncmp(ours, m->prefix, n) && !strcmp(ours + n, file));
}

static bool find_in(const weft_model *m, const weft_model_param *p, const char *name,
                    const weft_model_tensor **t)
{
    for (int k = 0; k < p->n_tensor; k++)
        if (same_name(m, p->tensor[k].name, name)) {
            *t = &p->tensor[k];
            return true;
        }
    for (int k = 0; p->alias[k]; k++)
        if (same_name(m, p->alias[k], name)) {
            *t = &p->tensor[0];
            return true;
        }
    return false;
}

static bool find(const weft_model *m, const char *name, const weft_model_param **p,
                 const weft_model_tensor **t)
{
    for (int i = 0; i < m->n_param + m->n_stat; i++) {
        *p = i < m->n_param ? &m->param[i] : &m->stat[i - m->n_param].p;
        if (find_in(m, *p, name, t)) return true;
    }
    return false;
}

/* Norms of the oldest files call weight and bias gamma and beta. */
bool weft_model_find_tensor(const weft_model *m, const char *file_name,
                            const weft_model_param **p, const weft_model_tensor **t)
{
    char        name[256];
    const char *dot = strrchr(file_name, '.');
    if (find(m, file_name, p, t)) return true;
    if (!dot || (strcmp(dot, ".gamma") && strcmp(dot, ".beta"))) return false;
    snprintf(name, sizeof name, "%.*s.%s", (int)(dot - file_name), file_name,
             strcmp(dot, ".beta") ? "weight" : "bias");
    return find(m, name, p, t);
}
