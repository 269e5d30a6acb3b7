/* One training, many programs: each is what it is alone, and the training stays as it was. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "compile/world.h"
#include "graph/eval.h"
#include "support/test.h"

static const char *const plans[] = {
    "dp=2",
    "dp=4",
    "dp=4 zero=3",
    "tp=2",
    "dp=2 tp=2 zero=1",
    "dp=2 pp=2",
    "dp=1 pp=2 schedule=interleaved chunks=2",
};

static weft_compile_spec spec_of(const char *dtype)
{
    weft_compile_spec s = weft_compile_spec_default("tiny256", 8, 16);
    s.micro_batch       = 2;
    s.lanes             = 4;
    s.dtype             = dtype;
    return s;
}

static weft_plan *make_plan(const weft_training *t, const char *text)
{
    weft_strategy y;
    weft_plan    *p;
    assert_ok(weft_strategy_parse(text, &y));
    if (weft_compile_plan(t, &y, 0, &p) != WEFT_OK)
        fail_msg("%s: %s", text, weft_error_text());
    return p;
}

static char *text_of(const weft_graph *g)
{
    char *text;
    assert_ok(weft_graph_to_text(g, &text));
    return text;
}

static void same_programs(const weft_program *a, const weft_program *b)
{
    weft_text x = {0}, y = {0};
    assert_ok(weft_program_verify(a));
    assert_ok(weft_program_print(a, &x));
    assert_ok(weft_program_print(b, &y));
    assert_string_equal(x.s, y.s);
    weft_text_fini(&x);
    weft_text_fini(&y);
}

/* Every rank of a plan: alone with a training of its own, of the shared one, and of all ranks. */
static void compare_ranks(const weft_training *t, const char *text)
{
    weft_plan           *p = make_plan(t, text);
    weft_compiled_world *w;
    assert_ok(weft_compile_world(t, p, WEFT_RANKS_EACH, &w));
    for (int r = 0; r < w->world.n; r++) {
        weft_training own;
        weft_compiled a, b, eval;
        assert_ok(weft_compile_training(&t->spec, &own));
        assert_ok(weft_compile_program(&own, p, r, &a));
        assert_ok(weft_compile_program(t, p, r, &b));
        same_programs(a.program, b.program);
        same_programs(b.program, w->like[r]);
        assert_ok(weft_compile_eval(&t->spec, t->model, p, r, &b, &eval));
        assert_ok(weft_program_verify(eval.program));
        weft_compiled_fini(&eval);
        weft_compiled_fini(&b);
        weft_compiled_fini(&a);
        weft_training_fini(&own);
    }
    weft_compiled_world_destroy(w);
    weft_plan_destroy(p);
}

static void programs_share_a_training(void **state)
{
    static const char *const dtype[] = {"fp32", "bf16"};
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(dtype); k++) {
        weft_compile_spec s = spec_of(dtype[k]);
        weft_training     t;
        assert_ok(weft_compile_training(&s, &t));
        char   *graph = text_of(t.graph), *model = text_of(t.model->graph);
        int64_t bytes = weft_training_bytes(&t);
        for (size_t i = 0; i < WEFT_COUNT(plans); i++) compare_ranks(&t, plans[i]);
        char *graph_after = text_of(t.graph), *model_after = text_of(t.model->graph);
        assert_string_equal(graph, graph_after);
        assert_string_equal(model, model_after);
        assert_int_equal(bytes, weft_training_bytes(&t));
        free(graph);
        free(model);
        free(graph_after);
        free(model_after);
        weft_training_fini(&t);
    }
}

static void is_for_one_spec(void **state)
{
    weft_compile_spec s = spec_of("fp32");
    weft_training     t, none = {0};
    char              name[] = "tiny256";
    (void)state;
    assert_ok(weft_compile_training(&s, &t));
    assert_false(weft_training_is_for(&none, &s));
    assert_true(weft_training_is_for(&t, &s));
    s.model = name; /* by text, not by address */
    assert_true(weft_training_is_for(&t, &s));
    s.micro_batch = 4;
    assert_false(weft_training_is_for(&t, &s));
    s                = t.spec;
    s.optimizer.clip = 0;
    assert_false(weft_training_is_for(&t, &s));
    s       = t.spec;
    s.dtype = "bf16";
    assert_false(weft_training_is_for(&t, &s));
    weft_training_fini(&t);
}

/* A model with dropout evaluates as one that was built without it. */
static void evaluation_has_no_dropout(void **state)
{
    static const char *const model[] = {
        "{\"model_type\": \"gpt2\", \"vocab_size\": 64, \"n_positions\": 32, \"n_embd\": "
        "32, \"n_layer\": 2, \"n_head\": 2, \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.1, "
        "\"attn_pdrop\": 0}",
        "{\"model_type\": \"t5\", \"vocab_size\": 64, \"d_model\": 32, \"d_kv\": 16, "
        "\"d_ff\": 64, \"num_layers\": 2, \"num_heads\": 2, \"dropout_rate\": 0}",
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(model); i++) {
        weft_compile_spec s = weft_compile_spec_default(model[i], 2, 16);
        weft_model       *with, *without;
        weft_compiled     a, b;
        s.dropout = true;
        assert_ok(weft_compile_model(&s, &with));
        s.dropout = false;
        assert_ok(weft_compile_model(&s, &without));
        if (!i)
            assert_true(weft_graph_hash(with->graph) != weft_graph_hash(without->graph));
        assert_ok(weft_compile_eval(&s, with, NULL, 0, NULL, &a));
        assert_ok(weft_compile_eval(&s, without, NULL, 0, NULL, &b));
        assert_true(weft_graph_hash(a.graph) == weft_graph_hash(b.graph));
        assert_true(weft_program_likeness(a.program) == weft_program_likeness(b.program));
        weft_compiled_fini(&a);
        weft_compiled_fini(&b);
        weft_model_destroy(with);
        weft_model_destroy(without);
    }
}

/* A rank updates the parameters whose copies it computes with, also where ZeRO shards them: no
 * copy is sent from one stage to another. */
static void copies_are_with_their_parameters(void **state)
{
    static const char *const text[] = {"dp=2 pp=2", "dp=2 pp=2 zero=1",
                                       "dp=2 pp=2 zero=3"};
    weft_compile_spec        s      = spec_of("bf16");
    weft_training            t;
    (void)state;
    assert_ok(weft_compile_training(&s, &t));
    for (size_t i = 0; i < WEFT_COUNT(text); i++) {
        weft_plan *p = make_plan(&t, text[i]);
        for (int r = 0; r < weft_plan_world(p); r++) {
            weft_compiled c;
            assert_ok(weft_compile_program(&t, p, r, &c));
            for (weft_vid v = 0; v < t.graph->n_value; v++) {
                const weft_graph_value *x = &t.graph->value[v];
                if (x->copy_of < 0) continue;
                const char *of = t.graph->value[x->copy_of].name;
                if (!weft_program_find(c.program, x->name) !=
                    !weft_program_find(c.program, of))
                    fail_msg("%s: rank %d has one of %s and %s", text[i], r, of, x->name);
            }
            weft_compiled_fini(&c);
        }
        weft_plan_destroy(p);
    }
    weft_training_fini(&t);
}

/* Under ZeRO 1 and 2 the ranks that gather a parameter compute each element of it once; with copies
 * each copy does.  Under ZeRO 3, and where nothing is gathered, no part is named. */
static void computed_parts_are_the_parameter(void **state)
{
    static const struct {
        const char *text;
        int         copies; /* of each element that is computed; 0: nothing is gathered */
    } plan[]            = {{"dp=2 zero=1", 1},
                           {"dp=4 zero=2", 1},
                           {"dp=4 zero=1 copies=2", 2},
                           {"dp=2", 0},
                           {"dp=2 zero=3", 0}};
    weft_compile_spec s = spec_of("f32");
    weft_training     t;
    weft_arena       *a;
    (void)state;
    assert_ok(weft_compile_training(&s, &t));
    assert_ok(weft_arena_create(&a));
    for (size_t i = 0; i < WEFT_COUNT(plan); i++) {
        weft_plan    *p = make_plan(&t, plan[i].text);
        weft_compiled c[4];
        for (int r = 0; r < weft_plan_world(p); r++)
            assert_ok(weft_compile_program(&t, p, r, &c[r]));
        for (weft_vid v = 0; v < t.graph->n_value; v++) {
            const weft_graph_value *x   = &t.graph->value[v];
            int64_t                 sum = 0;
            weft_part               part;
            if (x->kind != WEFT_VALUE_PARAM) continue;
            for (int r = 0; r < weft_plan_world(p); r++) {
                assert_ok(weft_compiled_computed_part_of(&c[r], x->name, a, &part));
                sum += weft_part_count(&part);
            }
            if (sum != plan[i].copies * weft_shape_count(&x->type.shape))
                fail_msg("%s: %lld elements of %s are computed", plan[i].text,
                         (long long)sum, x->name);
        }
        for (int r = 0; r < weft_plan_world(p); r++) weft_compiled_fini(&c[r]);
        weft_plan_destroy(p);
    }
    weft_arena_destroy(a);
    weft_training_fini(&t);
}

/* Another plan costs milliseconds.  The limit is loose: others use the machine, too. */
static void another_plan_is_cheap(void **state)
{
    enum {
        N_TRY = 5
    };
    weft_compile_spec s = weft_compile_spec_default("gpt2", 8, 1024);
    weft_training     t;
    (void)state;
    s.micro_batch  = 1;
    s.lanes        = 8;
    double start_s = weft_clock_s();
    assert_ok(weft_compile_training(&s, &t));
    print_message("gpt2: model and training graph in %.1f ms\n",
                  1e3 * (weft_clock_s() - start_s));
    for (size_t i = 0; i < WEFT_COUNT(plans); i++) {
        weft_plan *p    = make_plan(&t, plans[i]);
        double     best = 1e9;
        for (int k = 0; k < N_TRY; k++) {
            weft_compiled c;
            start_s = weft_clock_s();
            assert_ok(weft_compile_program(&t, p, 0, &c));
            double took_s = weft_clock_s() - start_s;
            if (took_s < best) best = took_s;
            weft_compiled_fini(&c);
        }
        print_message("gpt2 %s: program in %.1f ms\n", plans[i], 1e3 * best);
        if (!WEFT_TEST_SANITIZED) assert_true(best < 0.5);
        weft_plan_destroy(p);
    }
    weft_training_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(programs_share_a_training),
        cmocka_unit_test(is_for_one_spec),
        cmocka_unit_test(evaluation_has_no_dropout),
        cmocka_unit_test(copies_are_with_their_parameters),
        cmocka_unit_test(computed_parts_are_the_parameter),
        cmocka_unit_test(another_plan_is_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
