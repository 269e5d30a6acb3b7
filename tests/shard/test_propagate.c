/* Propagation: the well-known ways to train in parallel come out of a few marks; every sharding
 * reads back; random graphs settle within 2|V| sweeps; mistakes and conflicts are put in words. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "support/shard_case.h"

#define DP "mesh m [dp=2] from 0 mark \"input_ids\" [dp, ?] "
#define TP                                                                               \
    "mark \"transformer.h.*.attn.c_attn.weight\" [?, ?, tp, ?] "                         \
    "mark \"transformer.h.*.mlp.c_fc.weight\" [?, tp] "                                  \
    "mark \"transformer.wte.weight\" [tp, ?] "
#define EQUAL(c, value, want) assert_string_equal(test_shard_text(&(c), value), want)
#define USED(c, node, k, want)                                                           \
    assert_string_equal(test_shard_use_text(&(c), node, k), want)

/* Reshards from v's maker to its users in a phase: how many of them reduce. */
static int reductions(const test_shard *c, weft_phase phase, const char *prefix)
{
    const weft_graph *g = c->t.graph;
    int               n = 0;
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in && g->node[i].phase == phase; k++) {
            weft_vid           v    = g->node[i].in[k];
            const weft_layout *from = &c->s->value[v],
                              *to   = &c->s->use[c->s->first[i] + k];
            bool open               = false;
            for (int a = 0; a < WEFT_MAX_AXIS; a++)
                open = open || (from->unreduced[a] && !to->unreduced[a]);
            if (open && !strncmp(g->value[v].name, prefix, strlen(prefix))) n++;
        }
    return n;
}

static void reads_back(const test_shard *c)
{
    weft_text      t = {0};
    weft_sharding *s;
    assert_ok(weft_sharding_print(c->s, c->t.graph, &t));
    assert_ok(weft_sharding_parse("text", t.s, t.n, c->t.graph, &s));
    assert_true(weft_sharding_equal(c->s, s));
    weft_sharding_destroy(s);
    weft_text_fini(&t);
}

/* ---- one mark: data parallel ---- */

static void one_mark_is_data_parallel(void **state)
{
    (void)state;
    test_shard c;
    test_shard_open(&c, "gpt2", 4, 64);
    test_shard_mark(&c, DP);
    const weft_graph *g = c.t.graph;
    for (weft_vid v = 0; v < g->n_value; v++) {
        const weft_graph_value *x = &g->value[v];
        const weft_layout      *l = &c.s->value[v];
        bool update = x->node >= 0 && g->node[x->node].phase == WEFT_PHASE_UPDATE;
        if (x->kind == WEFT_VALUE_PARAM || x->kind == WEFT_VALUE_STATE)
            assert_int_equal(l->n, 0);
        if (x->node < 0 || update || x->type.shape.n < 3) continue;
        if (x->type.shape.d[0] == 4 && x->type.shape.d[1] == 64) { /* an activation */
            if (l->n != 1 || l->split[0].dim != 0 || l->unreduced[0])
                fail_msg("%s: %s", x->name, test_shard_text(&c, x->name));
        }
    }
    for (int i = 0; i < c.m->n_param; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s.grad", c.m->param[i].name);
        weft_layout l = test_shard_value(&c, name);
        assert_int_equal(l.n, 0);
        assert_int_equal(l.unreduced[0], WEFT_UNREDUCED_SUM);
    }
    EQUAL(c, "step.loss", "[] sum(dp)");
    assert_int_equal(c.s->output[0].unreduced[0], 0);
    assert_int_equal(reductions(&c, WEFT_PHASE_FORWARD, ""), 0);
    assert_int_equal(reductions(&c, WEFT_PHASE_BACKWARD, ""), 0);
    assert_int_equal(c.s->n_conflict, 0);
    reads_back(&c);
    test_shard_close(&c);
}

/* ---- three marks: Megatron ---- */

static void three_marks_are_megatron(void **state)
{
    (void)state;
    test_shard c;
    test_shard_open(&c, "gpt2", 4, 64);
    test_shard_mark(&c, "mesh m [tp=2] from 0 " TP);
    for (int i = 0; i < 12; i++) {
        char n[96];
#define NAME(...) (snprintf(n, sizeof n, __VA_ARGS__), n)
        EQUAL(c, NAME("transformer.h.%d.attn.c_attn.bias", i), "[*, tp, *]");
        EQUAL(c, NAME("transformer.h.%d.attn.c_proj.weight", i), "[tp, *, *]");
        EQUAL(c, NAME("transformer.h.%d.attn.c_proj.bias", i), "[*]");
        EQUAL(c, NAME("transformer.h.%d.mlp.c_fc.bias", i), "[tp]");
        EQUAL(c, NAME("transformer.h.%d.mlp.c_proj.weight", i), "[tp, *]");
        EQUAL(c, NAME("transformer.h.%d.ln_1.weight", i), "[*]");
        EQUAL(c, NAME("h.%d.attn", i), "[*, *, tp, *]");
        EQUAL(c, NAME("h.%d.attn.c_proj.mm", i), "[*, *, *] sum(tp)");
        EQUAL(c, NAME("h.%d.mlp.act", i), "[*, *, tp]");
        EQUAL(c, NAME("h.%d.mlp.c_proj.mm", i), "[*, *, *] sum(tp)");
        EQUAL(c, NAME("h.%d.sum", i), "[*, *, *]");
        EQUAL(c, NAME("transformer.h.%d.attn.c_attn.weight.m", i), "[*, *, tp, *]");
        EQUAL(c, NAME("transformer.h.%d.attn.c_proj.weight.grad", i), "[tp, *, *]");
        /* two reductions a layer forward, two backward */
        assert_int_equal(reductions(&c, WEFT_PHASE_FORWARD, NAME("h.%d.", i)), 2);
        assert_int_equal(reductions(&c, WEFT_PHASE_BACKWARD, NAME("h.%d.", i)), 2);
    }
    EQUAL(c, "logits", "[*, *, tp]");
    EQUAL(c, "loss_rows.lse", "[*, *] pair(tp)");
    EQUAL(c, "wte", "[*, *, *] sum(tp)");
    assert_int_equal(c.s->n_conflict, 0);
    reads_back(&c);
    test_shard_close(&c);
}

static void sequence_between_blocks(void **state)
{
    (void)state;
    test_shard c;
    test_shard_open(&c, "gpt2", 4, 64);
    test_shard_mark(&c, "mesh m [dp=2, tp=2] from 0 mark \"input_ids\" [dp, ?] " TP
                        "mark \"h.*.sum\" [?, tp, ?]");
    for (int i = 0; i < 12; i++) {
        char n[96];
        EQUAL(c, NAME("h.%d.attn.c_proj.mm", i), "[dp, *, *] sum(tp)");
        USED(c, NAME("h.%d.attn.c_proj", i), 0, "[dp, tp, *]"); /* reduce-scatter */
        EQUAL(c, NAME("h.%d.ln_2", i), "[dp, tp, *]");
        USED(c, NAME("h.%d.mlp.c_fc.mm", i), 0, "[dp, *, *]"); /* all-gather */
        USED(c, NAME("h.%d.mlp.c_proj", i), 0, "[dp, tp, *]");
        USED(c, NAME("h.%d.attn.c_attn.mm", i), 0, "[dp, *, *]");
        EQUAL(c, NAME("transformer.h.%d.ln_1.weight.grad", i), "[*] sum(dp) sum(tp)");
    }
    EQUAL(c, "input_ids", "[dp, *]");
    EQUAL(c, "transformer.wte.weight.grad.1", "[tp, *] sum(dp)");
    EQUAL(c, "transformer.wte.weight.grad.2",
          "[tp, *]"); /* uses are added when reduced */
    assert_true(c.s->n_conflict > 0);
    const char *text = c.s->conflict[0].text;
    assert_non_null(
        strstr(text, "transformer.h.0.mlp.c_fc.weight wants its dimension 1 cut by tp"));
    assert_non_null(strstr(text, "h.0.ln_2 its dimension 1"));
    assert_non_null(strstr(text, "as marked"));
    assert_non_null(strstr(text, "to choose otherwise mark"));
    reads_back(&c);
    test_shard_close(&c);
}

static void sequence_of_the_inputs(void **state)
{
    (void)state;
    test_shard c;
    test_shard_open(&c, "gpt2", 4, 64);
    test_shard_mark(&c, "mesh m [cp=2] from 0 mark \"input_ids\" [?, cp zigzag]");
    EQUAL(c, "labels", "[*, cp zigzag]");
    EQUAL(c, "h.7.attn", "[*, cp zigzag, *, *]");
    USED(c, "h.7.attn", 0,
         "[*, cp zigzag, *, *]"); /* s keeps the axis, k and v are gathered */
    USED(c, "h.7.attn", 1, "[*, *, *, *]");
    EQUAL(c, "h.7.reshape.d.dk", "[*, *, *, *] sum(cp)");
    EQUAL(c, "transformer.h.3.mlp.c_fc.weight.grad", "[*, *] sum(cp)");
    EQUAL(c, "transformer.wpe.weight", "[*, *]");
    assert_non_null(strstr(c.s->conflict[0].text, "bytes a rank against"));
    reads_back(&c);
    test_shard_close(&c);
}

static void experts(void **state)
{
    (void)state;
    test_shard c;
    test_shard_open(&c, "tests/fixtures/families/mixtral", 4, 8);
    test_shard_mark(&c, "mesh m [dp=2, ep=2] from 0 mark \"input_ids\" [dp, ?] "
                        "mark \"*experts.w*.weight\" [ep, ?, ?]");
    EQUAL(c, "layers.1.moe.rows", "[dp ragged ep own, *]");
    EQUAL(c, "layers.1.moe.rows.offsets", "[dp own ep own]");
    EQUAL(c, "layers.1.moe.gated", "[dp ragged ep own, *]");
    EQUAL(c, "layers.1.moe", "[dp, *] sum(ep)");
    EQUAL(c, "model.layers.1.block_sparse_moe.experts.w1.weight.grad",
          "[ep, *, *] sum(dp)");
    EQUAL(c, "model.layers.1.block_sparse_moe.gate.weight.grad", "[*, *] sum(dp)");
    /* one reduction a layer forward: what the experts give */
    assert_int_equal(reductions(&c, WEFT_PHASE_FORWARD, "layers.1."), 1);
    reads_back(&c);
    test_shard_close(&c);
}

/* ---- ZeRO ---- */

static void zero(void **state)
{
    (void)state;
    test_shard  c;
    const char *w   = "transformer.h.3.mlp.c_fc.weight";
    const char *one = "mark \"transformer.h.*.mlp.c_fc.weight.m\" [dp, ?] priority 1 ";
    char        marks[512], n[96];
    test_shard_open(&c, "gpt2", 4, 64);

    snprintf(marks, sizeof marks, DP "%s", one);
    test_shard_mark(&c, marks);
    EQUAL(c, w, "[*, *]");
    EQUAL(c, NAME("%s.m", w), "[dp, *]");
    EQUAL(c, NAME("%s.v", w), "[dp, *]"); /* follows */
    EQUAL(c, NAME("%s.grad", w), "[*, *] sum(dp)");
    USED(c, NAME("%s.next", w), 1, "[dp, *]");    /* reduce-scatter */
    USED(c, NAME("%s.next", w), 0, "[dp, *]");    /* a slice */
    EQUAL(c, NAME("%s.next", w), "[dp, *]");      /* gathered into the parameter */
    USED(c, NAME("%s.grad.sq", w), 0, "[dp, *]"); /* the norm takes what is there */
    EQUAL(c, NAME("%s.d", w), "[*, *] sum(dp)");

    snprintf(marks, sizeof marks,
             DP "%smark \"transformer.h.*.mlp.c_fc.weight.grad\" [dp, ?] priority 1 ",
             one);
    test_shard_mark(&c, marks);
    EQUAL(c, NAME("%s.grad", w), "[dp, *]");
    USED(c, NAME("%s.grad", w), 0, "[dp, *]"); /* reduced for each micro-batch */
    EQUAL(c, w, "[*, *]");

    snprintf(marks, sizeof marks,
             DP "%smark \"transformer.h.*.mlp.c_fc.weight\" [dp, ?] rest priority 1 ",
             one);
    test_shard_mark(&c, marks);
    EQUAL(c, w, "[dp, *]");
    USED(c, "h.3.mlp.c_fc.mm", 1, "[*, *]"); /* gathered at its use */
    USED(c, "h.3.mlp.c_fc.mm", 0, "[dp, *, *]");
    EQUAL(c, NAME("%s.next", w), "[dp, *]");
    reads_back(&c);

    /* behind tensor parallel cuts: the vocabulary is cut by tp, then by dp */
    test_shard_mark(&c, "mesh m [dp=2, tp=2] from 0 mark \"input_ids\" [dp, ?] " TP
                        "mark \"transformer.wte.weight.m\" [dp, ?] priority 1");
    EQUAL(c, "transformer.wte.weight", "[tp, *]");
    EQUAL(c, "transformer.wte.weight.m", "[tp dp, *]");
    test_shard_close(&c);
}

/* ---- marks ---- */

static void marks_are_kept(void **state)
{
    (void)state;
    test_shard c;
    test_shard_open(&c, "gpt2", 4, 64);
    /* c_proj.weight would be cut by tp; here it is not */
    test_shard_mark(&c, "mesh m [tp=2] from 0 " TP
                        "mark \"transformer.h.0.mlp.c_proj.weight\" [*, *]");
    EQUAL(c, "transformer.h.0.mlp.c_proj.weight", "[*, *]");
    USED(c, "h.0.mlp.c_proj.mm", 1, "[tp, *]"); /* a slice at its use */
    EQUAL(c, "transformer.h.1.mlp.c_proj.weight", "[tp, *]");
    test_shard_mark(&c, "mesh m [tp=2] from 0 " TP
                        "mark \"transformer.h.0.mlp.c_proj.weight\" [?, ?] never(tp)");
    EQUAL(c, "transformer.h.0.mlp.c_proj.weight", "[*, *]");
    test_shard_close(&c);
}

static void mistakes(void **state)
{
    (void)state;
    test_shard     c;
    weft_mesh_axis axis = {"dp", 2, 0};
    weft_mesh      m;
    weft_sharding *s;
    test_shard_open(&c, "gpt2", 4, 64);
    assert_ok(weft_mesh_make(c.a, "m", 1, &axis, 0, &m));
    weft_mark          k = {.name = "inputs", .layout = weft_layout_replicated(0, 2)};
    weft_shard_options o = {.n_mesh = 1, .mesh = &m, .n_mark = 1, .mark = &k};
    assert_fails(weft_shard_propagate(c.t.graph, &o, &s), WEFT_ERR_ARG, "no such value");
    k.name         = "input_ids";
    k.layout.n_dim = 3;
    assert_fails(weft_shard_propagate(c.t.graph, &o, &s), WEFT_ERR_ARG,
                 "the value has 2");
    k.layout = weft_layout_replicated(0, 2);
    weft_layout_cut(&k.layout, 0, 1, WEFT_SPLIT_BLOCK);
    assert_fails(weft_shard_propagate(c.t.graph, &o, &s), WEFT_ERR_ARG,
                 "by axis 1 of mesh m");
    k.layout              = weft_layout_replicated(0, 2);
    k.layout.unreduced[0] = WEFT_UNREDUCED_SUM;
    assert_fails(weft_shard_propagate(c.t.graph, &o, &s), WEFT_ERR_ARG, "leave it out");
    o.n_mesh = 0;
    assert_fails(weft_shard_propagate(c.t.graph, &o, &s), WEFT_ERR_ARG, "no mesh");
    test_shard_close(&c);
}

/* ---- stages on meshes of their own ---- */

static void stages(void **state)
{
    (void)state;
    test_shard     c;
    weft_mesh_axis axis = {"dp", 2, 0};
    weft_mesh      m[2];
    test_shard_open(&c, "gpt2", 4, 64);
    assert_ok(weft_mesh_make(c.a, "s0", 1, &axis, 0, &m[0]));
    assert_ok(weft_mesh_make(c.a, "s1", 1, &axis, 2, &m[1]));
    const weft_graph *g    = c.t.graph;
    int16_t          *mesh = WEFT_ARENA_ARRAY(c.a, int16_t, g->n_node);
    int               cut  = g->value[weft_graph_find(g, "h.6.ln_1")].node;
    for (int i = 0; i < g->n_node; i++)
        mesh[i] = i >= cut && g->node[i].phase == WEFT_PHASE_FORWARD;
    weft_mark k = {
        .name = "input_ids", .layout = weft_layout_replicated(0, 2), .open = ~0u};
    weft_layout_cut(&k.layout, 0, 0, WEFT_SPLIT_BLOCK);
    weft_shard_options o = {
        .n_mesh = 2, .mesh = m, .node_mesh = mesh, .n_mark = 1, .mark = &k};
    test_shard_apply(&c, &o);
    assert_int_equal(test_shard_value(&c, "h.5.sum").mesh, 0);
    assert_int_equal(test_shard_use(&c, "h.6.ln_1", 0).mesh, 1);
    EQUAL(c, "h.6.ln_1", "[dp, *, *]"); /* alike meshes: the cut goes on */
    EQUAL(c, "h.11.sum", "[dp, *, *]");
    assert_int_equal(test_shard_value(&c, "transformer.h.9.mlp.c_fc.weight").mesh, 1);
    reads_back(&c);
    test_shard_close(&c);
}

/* ---- random graphs ---- */

static uint32_t counter;
static int      below(int n)
{
    uint32_t key[2] = {77, 0}, ctr[4] = {counter++, 0, 0, 0}, w[4];
    weft_random_philox(key, ctr, w);
    return (int)(w[0] % (uint32_t)n);
}

/* Squares of 4 x 4 added, multiplied and turned at random. */
static weft_graph *random_graph(void)
{
    weft_graph *g;
    weft_vid    v[40];
    int         n = 0, n_op = 2 + below(20);
    assert_ok(weft_graph_create("random", &g));
    for (int i = 0; i < 2 + below(3); i++)
        assert_ok(
            weft_graph_add_input(g, "x", WEFT_DTYPE_F32, 2, (int64_t[]){4, 4}, &v[n++]));
    for (int i = 0; i < n_op; i++, n++) {
        weft_vid in[2] = {v[below(n)], v[below(n)]};
        switch (below(5)) {
        case 0: assert_ok(weft_graph_add_op(g, "add", "", 2, in, "y", 1, &v[n])); break;
        case 1:
            assert_ok(
                weft_graph_add_op(g, "transpose", "perm=[1,0]", 1, in, "y", 1, &v[n]));
            break;
        case 2: assert_ok(weft_graph_add_op(g, "gelu", "", 1, in, "y", 1, &v[n])); break;
        default:
            assert_ok(
                weft_graph_add_op(g, "matmul", "spec=ab,bc->ac", 2, in, "y", 1, &v[n]));
        }
    }
    assert_ok(weft_graph_set_output(g, v[n - 1]));
    return g;
}

static void random_graphs_settle(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        static const char *const name[] = {"a", "b", "c"};
        weft_graph              *g      = random_graph();
        weft_arena              *a;
        weft_mesh                m;
        weft_mesh_axis           axis[3];
        weft_mark                k[6];
        weft_sharding           *s;
        int                      n_axis = 1 + below(3);
        assert_ok(weft_arena_create(&a));
        for (int d = 0; d < n_axis; d++) axis[d] = (weft_mesh_axis){name[d], 2, below(2)};
        assert_ok(weft_mesh_make(a, "m", n_axis, axis, 0, &m));
        weft_shard_options o = {
            .n_mesh = 1, .mesh = &m, .n_mark = 1 + below(6), .mark = k};
        for (int j = 0; j < o.n_mark; j++) {
            k[j] = (weft_mark){.value    = below(g->n_value),
                               .layout   = weft_layout_replicated(0, 2),
                               .open     = (uint32_t)below(4),
                               .priority = below(2)};
            weft_layout_cut(&k[j].layout, below(2), below(n_axis), WEFT_SPLIT_BLOCK);
        }
        assert_ok(weft_shard_propagate(g, &o, &s));
        assert_ok(weft_sharding_verify(s, g));
        if (s->n_sweep > 2 * g->n_value)
            fail_msg("%d sweeps for %d values", s->n_sweep, g->n_value);
        for (int j = 0; j < o.n_mark; j++) /* inputs lie as marked */
            if (g->value[k[j].value].kind == WEFT_VALUE_INPUT)
                assert_non_null(
                    weft_layout_find(&s->value[k[j].value], k[j].layout.split[0].axis));
        weft_sharding_destroy(s);
        weft_graph_destroy(g);
        weft_arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_mark_is_data_parallel),
        cmocka_unit_test(three_marks_are_megatron),
        cmocka_unit_test(sequence_between_blocks),
        cmocka_unit_test(sequence_of_the_inputs),
        cmocka_unit_test(experts),
        cmocka_unit_test(zero),
        cmocka_unit_test(marks_are_kept),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(stages),
        cmocka_unit_test(random_graphs_settle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
