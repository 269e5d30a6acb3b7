#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/test.h"
#include "base/doc.h"
#include "base/io.h"

static weft_doc *d;

static int setup(void **state)
{
    (void)state;
    const char *s = "steps: 10\nlr: 1e-3\nname: tiny\nfresh: true\nnone: null\n"
                    "optimizer: {name: adamw, betas: [0.9, 0.95]}\n";
    return weft_doc_parse_yaml("job.yaml", s, strlen(s), &d) != WEFT_OK;
}

static int teardown(void **state)
{
    (void)state;
    weft_doc_destroy(d);
    d = NULL;
    return 0;
}

static void typed_reads(void **state)
{
    (void)state;
    const weft_node *m = weft_doc_root(d);
    int64_t          i = 0;
    double           x = 0;
    bool             b = false;
    const char      *s = NULL;
    assert_ok(weft_doc_get_int(d, m, "steps", &i));
    assert_int_equal(i, 10);
    assert_ok(weft_doc_get_double(d, m, "lr", &x));
    assert_true(x == 1e-3);
    assert_ok(weft_doc_get_double(d, m, "steps", &x)); /* an integer is a number */
    assert_true(x == 10);
    assert_ok(weft_doc_get_bool(d, m, "fresh", &b));
    assert_true(b);
    assert_ok(weft_doc_get_string(d, m, "name", &s));
    assert_string_equal(s, "tiny");
    assert_string_equal(weft_doc_file(d), "job.yaml");
}

static void absent_and_null_keep(void **state)
{
    (void)state;
    const weft_node *m = weft_doc_root(d);
    int64_t          i = 77;
    const char      *s = "kept";
    assert_ok(weft_doc_get_int(d, m, "absent", &i));
    assert_ok(weft_doc_get_int(d, m, "none", &i));
    assert_ok(weft_doc_get_int(d, NULL, "steps", &i));
    assert_ok(weft_doc_get_string(d, m, "none", &s));
    assert_int_equal(i, 77);
    assert_string_equal(s, "kept");
    assert_null(weft_node_get(NULL, "x"));
    assert_null(weft_node_get(weft_node_get(m, "name"), "x"));
}

static void wrong_types(void **state)
{
    (void)state;
    const weft_node *m = weft_doc_root(d);
    int64_t          i = 7;
    double           x;
    bool             b;
    const char      *s;
    assert_fails(weft_doc_get_int(d, m, "name", &i), WEFT_ERR_ARG,
                 "job.yaml:3: name: expected an integer, got a string");
    assert_fails(weft_doc_get_int(d, m, "lr", &i), WEFT_ERR_ARG, "integer, got a number");
    assert_fails(weft_doc_get_double(d, m, "fresh", &x), WEFT_ERR_ARG,
                 "a number, got true or");
    assert_fails(weft_doc_get_bool(d, m, "steps", &b), WEFT_ERR_ARG, "got an integer");
    assert_fails(weft_doc_get_string(d, m, "optimizer", &s), WEFT_ERR_ARG, "got a map");
    assert_int_equal(i, 7);
}

static void check_keys(void **state)
{
    (void)state;
    static const char *const all[] = {"steps", "lr",   "name",
                                      "fresh", "none", "optimizer"};
    const weft_node         *m     = weft_doc_root(d);
    assert_ok(weft_doc_check_keys(d, m, all, 6));
    assert_ok(weft_doc_check_keys(d, NULL, all, 6));
    assert_ok(weft_doc_check_keys(d, weft_node_get(m, "none"), all, 6));
    assert_fails(weft_doc_check_keys(d, weft_node_get(m, "name"), all, 6), WEFT_ERR_ARG,
                 "job.yaml:3: name: expected a map");
    assert_ok(weft_doc_override(d, "stesp=3"));
    assert_fails(weft_doc_check_keys(d, m, all, 6), WEFT_ERR_ARG,
                 "unknown key 'stesp', did you mean 'steps'?");
    static const char *const few[] = {"steps"};
    assert_fails(weft_doc_check_keys(d, m, few, 1), WEFT_ERR_ARG,
                 "job.yaml:2: unknown key 'lr'");
}

static void overrides(void **state)
{
    (void)state;
    assert_ok(weft_doc_override(d, "steps=20"));
    assert_ok(weft_doc_override(d, "optimizer.name=sgd"));
    assert_ok(weft_doc_override(d, "optimizer.betas=[0.8, 0.99]"));
    assert_ok(weft_doc_override(d, "eval.data.path=a=b")); /* at the first '=' */
    assert_ok(weft_doc_override(d, "none.x={y: 1}"));
    assert_ok(weft_doc_override(d, "name='8'"));
    assert_ok(weft_doc_override(d, "lr="));
    assert_ok(weft_doc_override(d, "path=*x,#y"));
    weft_text t = {0};
    weft_node_print_json(weft_doc_root(d), &t);
    assert_string_equal(
        t.s, "{\"steps\": 20, \"lr\": null, \"name\": \"8\", \"fresh\": true, "
             "\"none\": {\"x\": {\"y\": 1}}, \"optimizer\": {\"name\": \"sgd\", "
             "\"betas\": [0.8, 0.99]}, \"eval\": {\"data\": {\"path\": \"a=b\"}}, "
             "\"path\": \"*x,#y\"}");
    weft_text_fini(&t);
    int64_t i;
    assert_fails(weft_doc_get_int(d, weft_doc_root(d), "name", &i), WEFT_ERR_ARG,
                 "name: expected an integer, got a string");
}

static void bad_overrides(void **state)
{
    (void)state;
    assert_fails(weft_doc_override(d, "steps"), WEFT_ERR_ARG, "expected key=value");
    assert_fails(weft_doc_override(d, "=3"), WEFT_ERR_ARG, "expected key=value");
    assert_fails(weft_doc_override(d, "a..b=3"), WEFT_ERR_ARG, "an empty key");
    assert_fails(weft_doc_override(d, "steps.x=3"), WEFT_ERR_ARG, "'steps' is no map");
    assert_fails(weft_doc_override(d, "a=[1"), WEFT_ERR_ARG, "has no end");
    assert_fails(weft_doc_override(d, "a='x' y"), WEFT_ERR_ARG, "unexpected text");
    assert_fails(weft_doc_override(d, "a=\xff"), WEFT_ERR_ARG, "UTF-8");
    assert_fails(weft_doc_override(d, "a=1e999"), WEFT_ERR_ARG, "too large");
}

static void load_by_ending(void **state)
{
    (void)state;
    char      path[64];
    weft_doc *f;
    snprintf(path, sizeof path, "/tmp/weft-doc-%ld.json", (long)getpid());
    assert_ok(weft_io_replace_file(path, "{\"a\": 1}", 8));
    assert_ok(weft_doc_load(path, &f));
    weft_doc_destroy(f);
    assert_ok(weft_io_replace_file(path, "a: 1", 4));
    assert_fails(weft_doc_load(path, &f), WEFT_ERR_ARG, path);
    assert_ok(weft_io_remove_tree(path));
    assert_fails(weft_doc_load(path, &f), WEFT_ERR_ARG, "No such file");
    snprintf(path, sizeof path, "/tmp/weft-doc-%ld.yml", (long)getpid());
    assert_ok(weft_io_replace_file(path, "a: 1", 4));
    assert_ok(weft_doc_load(path, &f));
    weft_doc_destroy(f);
    assert_ok(weft_io_remove_tree(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(typed_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(absent_and_null_keep, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_types, setup, teardown),
        cmocka_unit_test_setup_teardown(check_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(overrides, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_overrides, setup, teardown),
        cmocka_unit_test(load_by_ending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
