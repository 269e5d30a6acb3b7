/* TOML in, the same tree as from JSON out; what is wrong is said with its line. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/doc.h"
#include "support/test.h"

static void reads_as(const char *toml, const char *json)
{
    weft_doc *d;
    weft_text t = {0};
    assert_ok(weft_doc_parse_toml("f", toml, strlen(toml), &d));
    weft_node_print_json(weft_doc_root(d), &t);
    assert_string_equal(t.s, json);
    weft_text_fini(&t);
    weft_doc_destroy(d);
}

static void values(void **state)
{
    (void)state;
    reads_as("", "{}");
    reads_as("# only this", "{}");
    reads_as("a = 1\nb = 1_000 # k\r\nc = 0x0f\nd=0b101\ne = 0o17",
             "{\"a\": 1, \"b\": 1000, \"c\": 15, \"d\": 5, \"e\": 15}");
    reads_as("a = +1.5\nb = -2\nc = 3e2\nd = true\ne = false",
             "{\"a\": 1.5, \"b\": -2, \"c\": 300.0, \"d\": true, \"e\": false}");
    reads_as("a = \"x\\ty\\u00e9\\U0001F600\"\nb = 'no \\escape'",
             "{\"a\": \"x\\ty\u00e9\U0001F600\", \"b\": \"no \\\\escape\"}");
    reads_as("a = \"\"\"\none\ntwo \\\n   three\"\"\"\"",
             "{\"a\": \"one\\ntwo three\\\"\"}");
    reads_as("a = 1979-05-27\nb = 07:32:00",
             "{\"a\": \"1979-05-27\", \"b\": \"07:32:00\"}");
    reads_as("a = [ 1, # one\n 2, ]\nb = [[], {x = 1, y.z = 'w'}]",
             "{\"a\": [1, 2], \"b\": [[], {\"x\": 1, \"y\": {\"z\": \"w\"}}]}");
}

static void tables(void **state)
{
    (void)state;
    reads_as("x = 1\n[a.b]\nc = 2\n[a]\nd = 3\n[a.b.e]\n",
             "{\"x\": 1, \"a\": {\"b\": {\"c\": 2, \"e\": {}}, \"d\": 3}}");
    reads_as("[[l]]\nk = 1\n[[l]]\nk = 2\n[l.m]\nn = 3",
             "{\"l\": [{\"k\": 1}, {\"k\": 2, \"m\": {\"n\": 3}}]}");
    reads_as("a.\"b c\".d = 1", "{\"a\": {\"b c\": {\"d\": 1}}}");
}

static void refused(const char *toml, const char *text)
{
    weft_doc *d;
    assert_int_equal(weft_doc_parse_toml("f", toml, strlen(toml), &d), WEFT_ERR_ARG);
    if (!strstr(weft_error_text(), text)) fail_msg("%s: %s", toml, weft_error_text());
}

static void mistakes(void **state)
{
    (void)state;
    refused("a = 1\na = 2", "f:2: 'a' stands twice");
    refused("a = 1\n[a]", "f:2: 'a' stands twice");
    refused("\n\na 1", "f:3: expected '=', got '1'");
    refused("a = ", "f:1: expected a value, got the end of the text");
    refused("a = \nb = 1", "f:1: expected a value, got the end of the line");
    refused("a = 1 b", "f:1: expected the end of the line, got 'b'");
    refused("a = \"x", "f:1: a string has no end");
    refused("a = [1 2]", "f:1: expected ',' or ']', got '2'");
    refused("a = {x = 1", "f:1: expected ',' or '}', got the end of the text");
    refused("a = 01", "f:1: expected a value, got '01'");
    refused("a = inf", "f:1: expected a value, got 'inf'");
    refused("a = 1e999", "f:1: expected a value, got '1e999'");
    refused("a = 0xzz", "f:1: 0xzz is no number");
    refused("[a", "f:1: expected ']', got the end of the text");
    refused("a = \"\\q\"", "f:1: a bad escape");
    refused("a = \"\\/\"", "f:1: a bad escape");
}

/* Keys of one table, and tables: seconds where each is compared with all others (80,000: 20 s). */
static void many_keys(void **state)
{
    (void)state;
    static const char *const line[] = {"key%d = 1\n", "[table%d]\n", "[[x.y%d]]\n",
                                       "a.b%d.c = 1\n"};
    enum {
        N = 80000
    };
    for (size_t k = 0; k < WEFT_COUNT(line); k++) {
        weft_text t = {0};
        weft_doc *d;
        for (int i = 0; i < N; i++) {
            char one[64];
            snprintf(one, sizeof one, line[k], i);
            weft_text_add(&t, "%s", one);
        }
        clock_t start = clock();
        assert_ok(weft_doc_parse_toml("f", t.s, t.n, &d));
        assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 2);
        weft_doc_destroy(d);
        weft_text_add(&t, "[z]\nkey1 = 1\nkey2 = 2\nkey1 = 3\n");
        assert_fails(weft_doc_parse_toml("f", t.s, t.n, &d), WEFT_ERR_ARG,
                     "f:80004: 'key1' stands twice");
        weft_text_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(tables),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
