/* Strategies on graphs: marks are placed on the right weights of every family, found by what
 * operators do with them. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/shard_case.h"

/* ---- marks ---- */

static const weft_mark *mark_of(const test_shard *c, const weft_shard_options *o,
                                const char *name)
{
    for (int i = 0; i < o->n_mark; i++)
        if (!strcmp(c->t.graph->value[o->mark[i].value].name, name)) return &o->mark[i];
    return NULL;
}

static void expand(test_shard *c, const char *model, const char *text,
                   weft_shard_options *o)
{
    weft_strategy h;
    test_shard_open(c, model, 4, 8);
    assert_ok(weft_strategy_parse(text, &h));
    assert_ok(weft_shard_expand(&h, c->t.graph, NULL, 0, c->a, o));
}

/* Exactly these weights, each on this dimension; "name dim name dim ..." */
static void marks_are(const char *model, const char *text, const char *const *name,
                      const int *dim, int n)
{
    test_shard         c;
    weft_shard_options o;
    expand(&c, model, text, &o);
    for (int i = 0; i < n; i++) {
        const weft_mark *k = mark_of(&c, &o, name[i]);
        if (!k) fail_msg("%s %s: no mark on %s", model, text, name[i]);
        if (k->layout.split[0].dim != dim[i])
            fail_msg("%s %s: mark on dimension %d of %s", model, text,
                     k->layout.split[0].dim, name[i]);
    }
    if (o.n_mark != n) {
        for (int i = 0; i < o.n_mark; i++)
            print_message("%s\n", c.t.graph->value[o.mark[i].value].name);
        fail_msg("%s %s: %d marks, expected %d", model, text, o.n_mark, n);
    }
    test_shard_close(&c);
}

static void tensor_parallel(void **state)
{
    (void)state;
    static const char *const gpt2[] = {"transformer.h.0.attn.c_attn.weight",
                                       "transformer.h.1.attn.c_attn.weight",
                                       "transformer.h.0.mlp.c_fc.weight",
                                       "transformer.h.1.mlp.c_fc.weight",
                                       "transformer.h.0.attn.c_attn.bias",
                                       "transformer.h.1.attn.c_attn.bias",
                                       "transformer.wte.weight"};
    marks_are("tests/fixtures/families/gpt2", "tp=2", gpt2, (int[]){2, 2, 1, 1, 1, 1, 0},
              7);
}

/* The weights that lie cut by tp, whoever found them. */
static int cut_weights(const test_shard *c, int axis, char *names, size_t n)
{
    int count = 0;
    names[0]  = 0;
    for (int i = 0; i < c->m->n_param; i++) {
        weft_vid v = weft_graph_find(c->t.graph, c->m->param[i].name);
        if (!weft_layout_find(&c->s->value[v], axis)) continue;
        count++;
        if (strlen(names) + strlen(c->m->param[i].name) + 2 < n) {
            strcat(names, c->m->param[i].name);
            strcat(names, " ");
        }
    }
    return count;
}

static void families(void **state)
{
    (void)state;
    static const struct {
        const char *model, *has[6];
    } family[] = {
        {"llama",
         {"layers.0.self_attn.q_proj.weight", "layers.0.self_attn.o_proj.weight",
          "layers.0.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight",
          "layers.0.mlp.down_proj.weight", "embed_tokens.weight"}},
        {"bert",
         {"attention.self.query.weight", "attention.self.value.bias",
          "attention.output.dense.weight", "intermediate.dense.weight",
          "intermediate.dense.bias", "word_embeddings.weight"}},
        {"mixtral",
         {"q_proj.weight", "o_proj.weight", "experts.w1.weight", "experts.w2.weight",
          "embed_tokens", "lm_head.weight"}},
        {"t5",
         {"SelfAttention.q.weight", "EncDecAttention.v.weight", "SelfAttention.o.weight",
          "DenseReluDense.wi.weight", "DenseReluDense.wo.weight", "shared.weight"}},
    };
    for (size_t i = 0; i < sizeof family / sizeof family[0]; i++) {
        test_shard         c;
        weft_shard_options o;
        char               path[96], names[8192];
        snprintf(path, sizeof path, "tests/fixtures/families/%s", family[i].model);
        expand(&c, path, "tp=2", &o);
        test_shard_apply(&c, &o);
        cut_weights(&c, 0, names, sizeof names);
        for (int k = 0; k < 6; k++)
            if (!strstr(names, family[i].has[k]))
                fail_msg("%s: %s is not cut; cut are %s", family[i].model,
                         family[i].has[k], names);
        assert_null(strstr(names, "norm"));
        assert_null(strstr(names, "token_type"));
        assert_null(strstr(names, "position"));
        test_shard_close(&c);
    }
}

static void inputs_and_zero(void **state)
{
    (void)state;
    test_shard         c;
    weft_shard_options o;
    expand(&c, "tests/fixtures/families/gpt2", "dp=2 cp=2 zero=3", &o);
    assert_int_equal(o.mesh[0].n_rank, 4);
    test_shard_apply(&c, &o);
    assert_string_equal(test_shard_text(&c, "input_ids"), "[dp, cp zigzag]"); /* causal */
    assert_string_equal(test_shard_text(&c, "transformer.h.0.mlp.c_fc.weight"),
                        "[dp, *]");
    assert_string_equal(test_shard_text(&c, "transformer.h.0.mlp.c_fc.weight.v"),
                        "[dp, *]");
    assert_string_equal(test_shard_text(&c, "transformer.h.0.mlp.c_fc.weight.grad"),
                        "[dp, *] sum(cp)");
    assert_string_equal(test_shard_text(&c, "transformer.h.0.ln_1.weight.m"),
                        "[dp unit 256]");
    test_shard_close(&c);
    expand(&c, "tests/fixtures/families/bert", "cp=2", &o);
    test_shard_apply(&c, &o);
    assert_string_equal(test_shard_text(&c, "input_ids"), "[*, cp]");
    test_shard_close(&c);
}

/* Bytes of parameters that dp cuts at rest, of all. */
static double dealt(test_shard *c)
{
    double all = 0, cut = 0;
    for (weft_vid v = 0; v < c->t.graph->n_value; v++) {
        const weft_graph_value *x = &c->t.graph->value[v];
        if (x->kind != WEFT_VALUE_PARAM) continue;
        char moment[128];
        snprintf(moment, sizeof moment, "%s.m", x->name);
        double n  = (double)weft_shape_count(&x->type.shape);
        bool   is = strstr(test_shard_text(c, x->name), "dp") != NULL;
        all += n;
        if (is) cut += n;
        /* states lie as their parameter does */
        assert_int_equal(strstr(test_shard_text(c, moment), "dp") != NULL, is);
    }
    return cut / all;
}

static void later(void **state)
{
    static const struct {
        const char *words;
        double      least, most;
    } t[] = {{"dp=2 zero=1 overlap_param_gather=1", 1, 1},
             {"dp=2 zero=2 overlap_param_gather=0.66", 0.6, 0.72},
             {"dp=2 zero=1 overlap_param_gather=0.33", 0.27, 0.4}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(t); i++) {
        test_shard         c;
        weft_shard_options o;
        expand(&c, "tests/fixtures/deep", t[i].words, &o);
        test_shard_apply(&c, &o);
        double share = dealt(&c);
        print_message("%s: %.2f of all parameters\n", t[i].words, share);
        assert_true(share >= t[i].least && share <= t[i].most);
        test_shard_close(&c);
    }
}

/* Of some layers the samples are cut, of others the tensors. */
static void unlike_layers(void **state)
{
    (void)state;
    static const struct {
        const char *words, *value, *layout;
    } t[] = {
        {"tp_exclude=blocks", "transformer.wte.weight", "[tp, *]"},
        {"tp_exclude=blocks", "wte", "[*, *, *] sum(tp)"},
        {"tp_exclude=blocks", "transformer.h.0.mlp.c_fc.weight", "[*, *]"},
        {"tp_exclude=blocks", "h.0.ln_1", "[tp, *, *]"},
        {"tp_exclude=blocks", "h.3.sum", "[tp, *, *]"},
        {"tp_exclude=blocks", "logits", "[*, *, tp]"},
        {"tp_exclude=blocks", "transformer.h.0.mlp.c_fc.weight.grad", "[*, *] sum(tp)"},
        {"tp_exclude=input,head", "transformer.wte.weight", "[*, *]"},
        {"tp_exclude=input,head", "input_ids", "[tp, *]"},
        {"tp_exclude=input,head", "transformer.h.0.mlp.c_fc.weight", "[*, tp]"},
        {"tp_exclude=input,head", "h.0.mlp.c_fc", "[*, *, tp]"},
        {"tp_exclude=input,head", "logits", "[tp, *, *]"},
        {"tp_exclude=1..2", "transformer.h.0.mlp.c_fc.weight", "[*, tp]"},
        {"tp_exclude=1..2", "transformer.h.1.mlp.c_fc.weight", "[*, *]"},
        {"tp_exclude=1..2", "h.2.mlp.c_fc", "[tp, *, *]"},
        {"tp_exclude=1..2", "h.3.mlp.c_fc", "[*, *, tp]"},
    };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        test_shard         c;
        weft_shard_options o;
        char               text[64];
        snprintf(text, sizeof text, "tp=2 %s", t[i].words);
        expand(&c, "tiny256", text, &o);
        test_shard_apply(&c, &o);
        const char *is = test_shard_text(&c, t[i].value);
        if (strcmp(is, t[i].layout))
            fail_msg("%s: %s is %s, not %s", text, t[i].value, is, t[i].layout);
        test_shard_close(&c);
    }
}

static void what_is_not_there(void **state)
{
    (void)state;
    static const struct {
        const char *model, *text, *words;
        int         world;
    } bad[] = {
        {"tests/fixtures/families/gpt2", "ep=2", "ep: graph gpt2 has no experts", 0},
        {"tests/fixtures/families/gpt2", "dp=2 pp=2", "makes 4 ranks, but there are 8",
         8},
        {"tests/fixtures/families/gpt2", "tp=64", "take a smaller tp", 0},
        {"tiny256", "tp=8 tp_exclude=head", "tp=8 does not divide the 4 samples", 0},
        {"tiny256", "tp=2 tp_exclude=4", "layer 4 of tiny256, which has 4", 0},
        {"tiny256", "tp=2 tp_exclude=input,blocks,head", "take dp=2 instead", 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        test_shard         c;
        weft_strategy      h;
        weft_shard_options o;
        test_shard_open(&c, bad[i].model, 4, 8);
        assert_ok(weft_strategy_parse(bad[i].text, &h));
        assert_fails(weft_shard_expand(&h, c.t.graph, NULL, bad[i].world, c.a, &o),
                     WEFT_ERR_ARG, bad[i].words);
        test_shard_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_parallel), cmocka_unit_test(families),
        cmocka_unit_test(inputs_and_zero), cmocka_unit_test(later),
        cmocka_unit_test(unlike_layers),   cmocka_unit_test(what_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
