/* A source is read once: the models built from it are those that loading gives, also when its file
 * is gone. */
#include <unistd.h>

#include "base/io.h"
#include "model/model.h"
#include "support/files.h"
#include "support/same_graph.h"
#include "support/test.h"

static const weft_model_options options[] = {
    {.batch = 1, .seq = 16, .with_loss = true},
    {.batch = 4, .seq = 8, .with_loss = true, .dropout = true},
    {.batch = 3, .dtype = WEFT_DTYPE_BF16},
    {0},
};

static void same_text(const char *a, const char *b)
{
    assert_int_equal(!a, !b);
    if (a) assert_string_equal(a, b);
}

static void same_models(const weft_model *a, const weft_model *b)
{
    test_same_graph(a->graph, b->graph);
    same_text(a->name, b->name);
    same_text(a->type, b->type);
    same_text(a->source, b->source);
    same_text(a->dir, b->dir);
    same_text(a->config, b->config);
    same_text(a->notice, b->notice);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->file_dtype, b->file_dtype);
    assert_int_equal(a->batch, b->batch);
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->n_param, b->n_param);
    for (int i = 0; i < a->n_param; i++)
        assert_string_equal(a->param[i].tensor[0].name, b->param[i].tensor[0].name);
}

/* gone: a file to delete after the source was read; NULL: none. */
static void compare_builds(const char *what, const char *gone)
{
    weft_model_source *s;
    weft_model        *loaded[WEFT_COUNT(options)], *built;
    assert_ok(weft_model_source_open(what, &s));
    for (size_t i = 0; i < WEFT_COUNT(options); i++)
        assert_ok(weft_model_load(what, &options[i], &loaded[i]));
    int64_t bytes = weft_model_source_bytes(s);
    assert_true(bytes > 0);
    if (gone) assert_int_equal(unlink(gone), 0);
    for (size_t i = 0; i < WEFT_COUNT(options); i++) {
        assert_ok(weft_model_build(s, &options[i], &built));
        same_models(built, loaded[i]);
        weft_model_destroy(built);
    }
    assert_int_equal(weft_model_source_bytes(s), bytes);
    assert_ok(weft_model_build(s, &options[0], &built));
    weft_model_source_destroy(s); /* a model outlives it */
    same_models(built, loaded[0]);
    weft_model_destroy(built);
    for (size_t i = 0; i < WEFT_COUNT(options); i++) weft_model_destroy(loaded[i]);
}

static const char config[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 64, \"n_positions\": 32, \"n_embd\": 32, "
    "\"n_layer\": 2, \"n_head\": 2, \"resid_pdrop\": 0.1, \"attn_pdrop\": 0}";

static void builds_are_as_loaded(void **state)
{
    static const char *const preset[] = {"tiny256", "llama3-8b", "mixtral-8x7b",
                                         "resnet50"};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(preset); i++) compare_builds(preset[i], NULL);
    compare_builds(config, NULL);
}

/* Where it comes from: NULL: nothing. */
static void check_description(const char *what, const char *name, const char *source,
                              const char *dir, const char *text)
{
    weft_model_source *s;
    weft_model        *m;
    assert_ok(weft_model_source_open(what, &s));
    assert_ok(weft_model_build(s, &options[0], &m));
    weft_model_source_destroy(s);
    same_text(m->name, name);
    same_text(m->source, source);
    same_text(m->dir, dir);
    same_text(m->config, text);
    weft_model_destroy(m);
}

static const char graph[] = "graph g {\n  input x: f32[2,3]\n  param w: f32[3,4]\n"
                            "  forward\n  y: f32[2,4] = matmul(x, w) "
                            "{spec=bd,dn->bn}\n  output y\n}\n";

static void models_know_where_they_come_from(void **state)
{
    const char *dir = test_files_path("m"), *path = test_files_path("m/config.json");
    (void)state;
    assert_ok(weft_io_mkdirs(dir));
    test_files_write(path, config, strlen(config));
    check_description(config, "model", "model", NULL, config);
    check_description(dir, "gpt2", path, dir, config);
    check_description(path, "gpt2", path, test_files_path("m/"), config);
    path = test_files_path("a.graph");
    test_files_write(path, graph, strlen(graph));
    check_description(path, "g", path, test_files_path("%s", ""), NULL);
}

static void no_file_is_read_again(void **state)
{
    const char *path = test_files_path("m/config.json");
    (void)state;
    assert_ok(weft_io_mkdirs(test_files_path("m")));
    test_files_write(path, config, strlen(config));
    compare_builds(test_files_path("m"), path);
    test_files_write(path, config, strlen(config));
    compare_builds(path, path);
    path = test_files_path("a.graph");
    test_files_write(path, graph, strlen(graph));
    compare_builds(path, path);
}

static void graphs_are_borrowed(void **state)
{
    weft_model_source *s;
    weft_model        *m, *a, *b;
    (void)state;
    assert_ok(weft_model_load("tiny256", &options[0], &m));
    assert_ok(weft_model_source_of_graph(m->graph, &s));
    for (int64_t batch = 0; batch < 3; batch++) {
        weft_model_options o = {.batch = batch};
        assert_ok(weft_model_of_graph(m->graph, batch, &a));
        assert_ok(weft_model_build(s, &o, &b));
        same_models(a, b);
        weft_model_destroy(a);
        weft_model_destroy(b);
    }
    weft_model_source_destroy(s);
    weft_model_source_destroy(NULL);
    assert_int_equal(weft_model_source_bytes(NULL), 0);
    weft_model_destroy(m);
}

/* What is wrong whatever is built is said at once, what is wrong with a build by that build. */
static void complaints(void **state)
{
    weft_model_source *s = NULL;
    weft_model        *m = NULL;
    weft_model_options o = {.seq = 64};
    (void)state;
    assert_fails(weft_model_source_open("gpt2-mediun", &s), WEFT_ERR_ARG,
                 "did you mean 'gpt2-medium'?");
    assert_fails(weft_model_source_open("{", &s), WEFT_ERR_ARG, "model:1");
    assert_fails(weft_model_source_open("{\"model_type\": \"gpt3\"}", &s), WEFT_ERR_ARG,
                 "model:1: model_type: 'gpt3' is not known");
    assert_fails(weft_model_source_open("{}", &s), WEFT_ERR_ARG,
                 "model_type: is missing");
    assert_fails(weft_model_source_open(test_files_path("no.graph"), &s), WEFT_ERR_ARG,
                 "no.graph");
    assert_null(s);
    assert_ok(weft_model_source_open(config, &s));
    assert_fails(weft_model_build(s, &o, &m), WEFT_ERR_ARG, "seq 64 is longer");
    o.seq = -1;
    assert_fails(weft_model_build(s, &o, &m), WEFT_ERR_ARG, "is impossible");
    assert_null(m);
    weft_model_source_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_are_as_loaded),
        with_files(models_know_where_they_come_from),
        with_files(no_file_is_read_again),
        cmocka_unit_test(graphs_are_borrowed),
        with_files(complaints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
