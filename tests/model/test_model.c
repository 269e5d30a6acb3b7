/* Models: sizes as published, tables that tile, round trips, complaints. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "model/model.h"
#include "store/hf_dir.h"
#include "support/same_graph.h"

static weft_model *load(const char *what, weft_model_options o)
{
    weft_model *m;
    if (weft_model_load(what, &o, &m) != WEFT_OK)
        fail_msg("%s: %s", what, weft_error_text());
    return m;
}

/* ---- published sizes, and layers found by structure ---- */
static const struct {
    const char *name;
    int64_t     weights;
    int         layers; /* of the longest repetition */
} published[] = {
    {"gpt2", 124439808, 12},           {"gpt2-medium", 354823168, 24},
    {"gpt2-large", 774030080, 36},     {"gpt2-xl", 1557611200, 48},
    {"gpt3-175b", 174604259328, 96},   {"mtnlg-530b", 529600819200, 105},
    {"gpt-1t", 1008038758400, 128},    {"llama3-8b", 8030261248, 32},
    {"llama3-70b", 70553706496, 80},   {"llama3-405b", 405853388800, 126},
    {"mixtral-8x7b", 46702792704, 32}, {"bert-large", 335174458, 24},
    {"t5-large", 737668096, 24},       {"ernie3-titan-260b", 261557098816, 48},
    {"resnet50", 25557032, 5},         {"mlp", 3962890, 3},
};

static void sizes_as_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(published); i++) {
        weft_model_options o = {.with_loss = true, .seq = 128};
        weft_model        *m = load(published[i].name, o);
        weft_graph_layers  l;
        assert_int_equal(weft_graph_find_layers(m->graph, &l), WEFT_OK);
        if (weft_model_weights(m) != published[i].weights)
            fail_msg("%s: %lld weights", published[i].name,
                     (long long)weft_model_weights(m));
        if (l.count != published[i].layers)
            fail_msg("%s: %d layers found", published[i].name, l.count);
        weft_model_destroy(m);
    }
}

/* ---- every preset ---- */
static void every_parameter_is_tiled(const weft_model *m)
{
    int n_param = 0;
    for (weft_vid v = 0; v < m->graph->n_value; v++)
        n_param += m->graph->value[v].kind == WEFT_VALUE_PARAM;
    assert_int_equal(n_param, m->n_param);
    for (int i = 0; i < m->n_param; i++) {
        const weft_model_param *p     = &m->param[i];
        const weft_shape       *s     = &m->graph->value[p->value].type.shape;
        int64_t                 count = 0;
        assert_string_equal(p->name, m->graph->value[p->value].name);
        for (int k = 0; k < p->n_tensor; k++) {
            const weft_model_tensor *t = &p->tensor[k], *found;
            const weft_model_param  *owner;
            assert_true(weft_shape_equal(&t->region.global, s));
            assert_int_equal(weft_region_count(&t->region), weft_shape_count(&t->shape));
            assert_int_equal(p->decay, t->shape.n >= 2);
            assert_true(weft_model_find_tensor(m, t->name, &owner, &found));
            assert_ptr_equal(found, t);
            count += weft_shape_count(&t->shape);
        }
        assert_int_equal(count, weft_shape_count(s));
    }
}

static void every_preset_loads(void **state)
{
    (void)state;
    for (int i = 0; weft_model_preset(i); i++)
        for (int loss = 0; loss < 2; loss++) {
            weft_model_options o = {.batch     = 2,
                                    .seq       = 32,
                                    .with_loss = loss,
                                    .dtype     = loss ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32};
            weft_model        *m = load(weft_model_preset(i), o);
            weft_graph        *h;
            char              *text;
            assert_int_equal(m->graph->n_output, 1);
            assert_int_equal(m->graph->output[0], loss ? m->loss_sum : m->logits);
            assert_true(weft_model_flops(m) > 0);
            if (loss) every_parameter_is_tiled(m);
            assert_int_equal(weft_graph_to_text(m->graph, &text), WEFT_OK);
            if (weft_graph_from_text("p", text, strlen(text), &h) != WEFT_OK)
                fail_msg("%s: %s", weft_model_preset(i), weft_error_text());
            test_same_graph(m->graph, h);
            assert_true(weft_graph_hash(m->graph) == weft_graph_hash(h));
            weft_graph_destroy(h);
            free(text);
            weft_model_destroy(m);
        }
}

/* Every parameter of every preset gets a gradient, and the graph still holds together. */
static void every_preset_differentiates(void **state)
{
    (void)state;
    for (int i = 0; weft_model_preset(i); i++) {
        weft_model *m    = load(weft_model_preset(i),
                                (weft_model_options){.seq = 32, .with_loss = true});
        weft_vid   *wrt  = calloc((size_t)m->n_param, sizeof *wrt);
        weft_vid   *grad = calloc((size_t)m->n_param, sizeof *grad);
        for (int k = 0; k < m->n_param; k++) wrt[k] = m->param[k].value;
        if (weft_graph_differentiate(m->graph, m->loss_sum, -1, m->n_param, wrt, grad) !=
            WEFT_OK)
            fail_msg("%s: %s", weft_model_preset(i), weft_error_text());
        for (int k = 0; k < m->n_param; k++) {
            if (grad[k] < 0)
                fail_msg("%s: %s has no gradient", m->name, m->param[k].name);
            assert_true(weft_shape_equal(&m->graph->value[grad[k]].type.shape,
                                         &m->graph->value[wrt[k]].type.shape));
        }
        if (weft_graph_verify(m->graph) != WEFT_OK)
            fail_msg("%s: %s", m->name, weft_error_text());
        free(wrt);
        free(grad);
        weft_model_destroy(m);
    }
}

/* 6 flops for each weight of a product and token, plus attention: the usual estimate. */
static void flops_are_the_usual(void **state)
{
    (void)state;
    weft_model_options o        = {.batch = 4, .seq = 64, .with_loss = true};
    weft_model        *m        = load("gpt2", o);
    double             products = 12.0 * 12 * 768 * 768 + 50257.0 * 768, tokens = 4 * 64;
    double scores = 12 * 4 * 12 * 64 * (64 * 65 / 2) * 4.0; /* layers b h e (s,t) */
    assert_true(weft_model_flops(m) == 6 * tokens * products + 3 * scores);
    weft_model_destroy(m);
}

/* ---- configurations as files ---- */
static char folder[] = "/tmp/weft-model-XXXXXX";

static void write_config(const char *text)
{
    char  path[64];
    FILE *f;
    snprintf(path, sizeof path, "%s/config.json", folder);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void complains(const char *config, weft_model_options o, const char *why)
{
    weft_model *m = NULL;
    write_config(config);
    assert_int_equal(weft_model_load(folder, &o, &m), WEFT_ERR_ARG);
    assert_null(m);
    if (!strstr(weft_error_text(), why))
        fail_msg("%s\nexpected: %s", weft_error_text(), why);
    assert_null(strchr(weft_error_text(), '\n'));
}

#define GPT2(more)                                                                       \
    "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_head\": 4, \"n_layer\": 2,\n"        \
    " \"vocab_size\": 50, \"n_positions\": 16" more "}"
#define LLAMA(more)                                                                      \
    "{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_attention_heads\": 4,\n"     \
    " \"num_hidden_layers\": 2, \"intermediate_size\": 40, \"vocab_size\": 50" more "}"

#define MIXTRAL(more)                                                                    \
    "{\"model_type\": \"mixtral\", \"hidden_size\": 32, \"num_attention_heads\": 4,\n"   \
    " \"num_hidden_layers\": 2, \"intermediate_size\": 40, \"vocab_size\": 50" more "}"

static void bad_configurations(void **state)
{
    (void)state;
    weft_model_options o = {.with_loss = true}, drop = {.dropout = true};
    complains("[1]", o, "no configuration");
    complains("{}", o, "model_type: is missing");
    complains("{\"model_type\": \"gpt3\"}", o,
              "config.json:1: model_type: 'gpt3' is not known, "
              "did you mean 'gpt2'?; known are gpt2, llama");
    complains("{\"model_type\": \"gpt2\"}", o, "n_embd: is missing");
    complains("{\"model_type\": \"gpt2\", \"n_embd\": \"x\"}", o, "expected an integer");
    complains("{\"model_type\": \"gpt2\",\n \"n_embd\": -3}", o,
              "config.json:2: n_embd: -3 is impossible");
    complains("{\"model_type\": \"gpt2\", \"n_embd\": 99999999999}", o, "impossible");
    complains(
        "{\"model_type\": \"gpt2\", \"n_embd\": 33, \"n_head\": 4, \"n_layer\": 2,\n"
        "\"vocab_size\": 50}",
        o, "n_head: 4 does not divide n_embd 33");
    complains(
        "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_head\": 4, \"vocab_size\": 50,\n"
        "\"n_layer\": 1000000}",
        o, "config.json:2: n_layer: 1000000 layers");
    complains(GPT2(", \"activation_function\": \"gelo\""), o, "did you mean 'gelu'?");
    complains(GPT2(", \"layer_norm_epsilon\": 0"), o, "must be above 0");
    complains(GPT2(", \"dtype\": \"float31\""), o, "no data type");
    complains(
        GPT2(""), (weft_model_options){.seq = 17},
        "config.json:2: n_positions: seq 17 is longer than the model's 16 positions");
    complains(GPT2(", \"attn_pdrop\": 0.1"), drop, "attn_pdrop: dropout of attention");
    complains(GPT2(", \"resid_pdrop\": 1.5"), drop, "no probability");
    complains(GPT2(""), (weft_model_options){.batch = -1}, "batch -1");
    complains(GPT2(""), (weft_model_options){.dtype = WEFT_DTYPE_I32}, "dtype i32");
    complains(LLAMA(", \"num_key_value_heads\": 3"), o,
              "3 does not divide num_attention_heads 4");
    complains(LLAMA(", \"head_dim\": 7"), o, "odd size 7");
    complains(MIXTRAL(", \"output_router_logits\": true, \"router_aux_loss_coef\": -1"),
              o, "router_aux_loss_coef: -1 must not be below 0");
    complains(MIXTRAL(", \"router_z_loss_coef\": -0.1"), o, "must not be below 0");
    complains(LLAMA(", \"rope_scaling\": {\"type\": \"yarn\"}"), o,
              "'yarn' is not supported");
    complains("{\"model_type\": \"gpt2\", \"model_type\": 1}", o, "config.json:1");
    complains("{", o, "config.json");
    assert_int_equal(weft_model_load("gpt2-mediun", &o, &(weft_model *){NULL}),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "did you mean 'gpt2-medium'?"));
}

/* The attributes of the first node of an operator, as text. */
static void first_attr(const char *config, weft_model_options o, weft_op op,
                       const char *want)
{
    weft_text t = {0};
    write_config(config);
    weft_model *m = load(folder, o);
    for (int i = 0; i < m->graph->n_node && !t.n; i++)
        if (m->graph->node[i].op == op)
            weft_op_print_attr(op, m->graph->node[i].attr, &t);
    assert_string_equal(t.s ? t.s : "", want);
    weft_text_fini(&t);
    weft_model_destroy(m);
}

static void both_spellings(void **state)
{
    (void)state;
    weft_model_options o = {.seq = 8};
    first_attr(LLAMA(", \"rope_theta\": 5e5"), o, WEFT_OP_ROTARY, "theta=500000");
    first_attr(
        LLAMA(", \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"default\"}"),
        o, WEFT_OP_ROTARY, "theta=500000");
    const char *llama3 = "theta=500000 kind=llama3 factor=8 low=2 high=5 orig=4096";
    first_attr(
        LLAMA(", \"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\","
              "\"factor\": 8, \"low_freq_factor\": 2, \"high_freq_factor\": 5,"
              "\"original_max_position_embeddings\": 4096}"),
        o, WEFT_OP_ROTARY, llama3);
    first_attr(
        LLAMA(", \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"llama3\","
              "\"factor\": 8, \"low_freq_factor\": 2, \"high_freq_factor\": 5,"
              "\"original_max_position_embeddings\": 4096}"),
        o, WEFT_OP_ROTARY, llama3);
    first_attr(LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}"), o,
               WEFT_OP_ROTARY, "kind=linear factor=4");
    first_attr(
        "{\"model_type\": \"mistral\", \"hidden_size\": 32, \"num_attention_heads\": 4,"
        "\"num_hidden_layers\": 2, \"intermediate_size\": 40, \"vocab_size\": 50,"
        "\"sliding_window\": 4, \"num_key_value_heads\": 2}",
        o, WEFT_OP_ATTENTION, "window=4");
    first_attr(GPT2(", \"activation_function\": \"gelu\""), o, WEFT_OP_GELU,
               "approx=erf");
    first_attr(GPT2(", \"scale_attn_weights\": false"), o, WEFT_OP_ATTENTION, "scale=1");
    write_config(GPT2(
        ", \"torch_dtype\": \"bfloat16\", \"resid_pdrop\": 0.25, \"attn_pdrop\": 0"));
    weft_model *m = load(folder, o);
    assert_int_equal(m->file_dtype, WEFT_DTYPE_BF16);
    assert_non_null(strstr(m->notice, "dropout"));
    weft_model_destroy(m);
    first_attr(GPT2(", \"embd_pdrop\": 0.25, \"attn_pdrop\": 0"),
               (weft_model_options){.seq = 8, .dropout = true}, WEFT_OP_DROPOUT,
               "p=0.25 id=1");
}

static void graph_text_is_a_model(void **state)
{
    (void)state;
    char  path[64];
    FILE *f;
    snprintf(path, sizeof path, "%s/m.graph", folder);
    f = fopen(path, "w");
    fputs("graph m {\n input x: f32[2,3]\n param w: f32[3,4]\n"
          " y: f32[2,4] = matmul(x, w) {spec=bd,dn->bn}\n loss: f32[] = reduce(y) "
          "{axes=[0,1]}\n"
          " output loss\n}\n",
          f);
    fclose(f);
    weft_model *m = load(path, (weft_model_options){0});
    assert_int_equal(m->kind, WEFT_MODEL_TEXT);
    assert_int_equal(weft_model_weights(m), 12);
    assert_string_equal(weft_graph_value_name(m->graph, m->loss_sum), "loss");
    every_parameter_is_tiled(m);
    weft_model_destroy(m);
    remove(path);
}

/* ---- initial weights ---- */
typedef struct moments {
    int64_t n;
    double  sum, sum_sq;
    bool    whole; /* pieces came in order without a gap */
    int64_t next;
} moments;

static weft_status collect(void *arg, const weft_model_param *p,
                           const weft_model_tensor *t, int64_t first, int64_t n,
                           const float *x)
{
    moments *s = arg;
    float    y[3];
    if (first == 0) s->next = 0;
    s->whole = s->whole && first == s->next;
    s->next += n;
    s->n += n;
    if (n > 10) { /* any piece alone gives the same bits */
        weft_model_init_values(p, t, 7, first + 5, 3, y);
        assert_memory_equal(y, x + 5, sizeof y);
    }
    if (strstr(t->name, "ln_")) {
        for (int64_t i = 0; i < n; i++)
            assert_true(x[i] == (strstr(t->name, "weight") ? 1 : 0));
    } else if (strstr(t->name, "wte")) {
        for (int64_t i = 0; i < n; i++) s->sum += x[i], s->sum_sq += (double)x[i] * x[i];
    } else if (strstr(t->name, "c_proj.weight")) {
        assert_true(p->init_std == 0.02 / 2.8284271247461903); /* sqrt(2 * 4 layers) */
    }
    return WEFT_OK;
}

static void weights_at_first(void **state)
{
    (void)state;
    moments     s = {.whole = true};
    weft_model *m = load("tiny256", (weft_model_options){.seq = 16});
    assert_int_equal(weft_model_init(m, 7, collect, &s), WEFT_OK);
    double n = 256 * 128, mean = s.sum / n, std = s.sum_sq / n - mean * mean;
    assert_true(s.whole);
    assert_int_equal(s.n, weft_model_weights(m));
    assert_true(mean * mean < 1e-6 && std > 0.95 * 0.0004 && std < 1.05 * 0.0004);
    float a[8], b[8];
    weft_model_init_values(&m->param[0], &m->param[0].tensor[0], 7, 0, 8, a);
    weft_model_init_values(&m->param[0], &m->param[0].tensor[0], 8, 0, 8, b);
    assert_memory_not_equal(a, b, sizeof a);
    weft_model_destroy(m);
}

/* Files differ in how they call a tensor: without the prefix, by a tied name, by an old one. */
static void names_in_files(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *file, *ours;
    } same[] = {
        {"gpt2", "h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.weight"},
        {"gpt2", "lm_head.weight", "transformer.wte.weight"},
        {"gpt2", "h.0.attn.bias", NULL},
        {"bert-large", "embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"},
        {"bert-large", "bert.embeddings.LayerNorm.beta",
         "bert.embeddings.LayerNorm.bias"},
        {"bert-large", "cls.predictions.decoder.bias", "cls.predictions.bias"},
        {"bert-large", "bert.pooler.dense.weight", NULL},
        {"t5-large", "decoder.embed_tokens.weight", "shared.weight"},
        {"t5-large", "lm_head.weight", "shared.weight"},
        {"llama3-8b", "lm_head.weight", "lm_head.weight"},
        {"mixtral-8x7b", "model.layers.3.block_sparse_moe.experts.7.w2.weight",
         "model.layers.3.block_sparse_moe.experts.7.w2.weight"},
        {"resnet50", "resnet.embedder.embedder.normalization.running_var",
         "resnet.embedder.embedder.normalization.running_var"},
    };
    for (size_t i = 0; i < WEFT_COUNT(same); i++) {
        weft_model              *m = load(same[i].preset, (weft_model_options){.seq = 8});
        const weft_model_param  *p;
        const weft_model_tensor *t;
        bool                     found = weft_model_find_tensor(m, same[i].file, &p, &t);
        if (found != (same[i].ours != NULL)) fail_msg("%s", same[i].file);
        if (found) assert_string_equal(t->name, same[i].ours);
        weft_model_destroy(m);
    }
}

/* ---- the reference models: exactly the tensors of their files ---- */
static void reference_files_fit(void **state)
{
    (void)state;
    static const char *const name[] = {"gpt2",    "llama", "qwen2",
                                       "mixtral", "bert",  "ernie"};
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        char            path[96];
        weft_store_dir *d;
        snprintf(path, sizeof path, "../shared/reference/%s/init", name[i]);
        if (!weft_store_dir_has_weights(path)) {
            print_message("%s is absent: skipped\n", path);
            skip();
        }
        weft_model *m = load(path, (weft_model_options){.with_loss = true});
        assert_int_equal(weft_store_dir_open(path, &d), WEFT_OK);
        int used = 0;
        for (int k = 0; k < weft_store_dir_count(d); k++) {
            const weft_store_tensor *t = weft_store_dir_at(d, k);
            const weft_model_param  *p;
            const weft_model_tensor *mine;
            if (!weft_model_find_tensor(m, t->name, &p, &mine))
                fail_msg("%s unused", t->name);
            assert_true(weft_shape_equal(&t->shape, &mine->shape));
            used++;
        }
        for (int k = 0; k < m->n_param; k++) used -= m->param[k].n_tensor;
        assert_int_equal(used, 0);
        weft_store_dir_close(d);
        weft_model_destroy(m);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return weft_io_remove_tree(folder) == WEFT_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_as_published),
        cmocka_unit_test(every_preset_loads),
        cmocka_unit_test(every_preset_differentiates),
        cmocka_unit_test(flops_are_the_usual),
        cmocka_unit_test(bad_configurations),
        cmocka_unit_test(both_spellings),
        cmocka_unit_test(graph_text_is_a_model),
        cmocka_unit_test(weights_at_first),
        cmocka_unit_test(names_in_files),
        cmocka_unit_test(reference_files_fit),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
