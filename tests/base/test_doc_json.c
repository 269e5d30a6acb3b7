#include <stdlib.h>

#include "support/test.h"
#include "support/count_alloc.h"
#include "base/doc.h"

static weft_status parse(const char *s, weft_doc **out)
{
    return weft_doc_parse_json("t.json", s, strlen(s), out);
}

/* Parses and prints again. */
static void check(const char *text, const char *want)
{
    weft_doc *d;
    weft_text t = {0};
    assert_ok(parse(text, &d));
    weft_node_print_json(weft_doc_root(d), &t);
    assert_string_equal(t.s, want);
    weft_doc_destroy(d);
    weft_text_fini(&t);
}

static void values(void **state)
{
    (void)state;
    check("null", "null");
    check(" true\r\n", "true");
    check("[ ]", "[]");
    check("{\t}", "{}");
    check("[1, -2.5 ,\"x\", false,{\"a\":[]}]", "[1, -2.5, \"x\", false, {\"a\": []}]");
    check("{\"b\":1,\"a\":2}", "{\"b\": 1, \"a\": 2}"); /* in the order written */
}

static void numbers(void **state)
{
    (void)state;
    check("9223372036854775807", "9223372036854775807");
    check("-9223372036854775808", "-9223372036854775808");
    check("9223372036854775808", "9.223372036854776e+18");
    check("1e2", "100.0");
    check("1E-05", "1e-05");
    check("-0.0", "-0.0");
    check("0.1", "0.1");
    check("0.30000000000000004", "0.30000000000000004");
}

static void strings(void **state)
{
    (void)state;
    check("\"\\u00e9\\n\\/\\\"\"", "\"\xc3\xa9\\n/\\\"\"");
    check("\"\\ud83d\\uDE00\"", "\"\xf0\x9f\x98\x80\"");
    check("\"\\u20ac\\u0001\"", "\"\xe2\x82\xac\\u0001\"");
}

static void malformed(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "[",
        "[1,]",
        "{\"a\":1,}",
        "[1 2]",
        "{\"a\" 1}",
        "{a:1}",
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "-",
        "--1",
        "nul",
        "True",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"a\nb\"",
        "\"\x01\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "[1] x",
        "1 2",
        "{\"a\":}",
        "[,]",
        "//c\n1",
        "'a'",
        "NaN",
        "Infinity",
        "\"\\u0000\"",
        "1e999",
        "-1e400",
        "{\"a\":1,\"a\":2}",
        "\xef\xbb\xbf{}",
        "]",
        "\"\\ud800\\u0041\"",
        "0x10",
        "{\"a\":1]",
        "[1}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_doc *d = NULL;
        if (parse(bad[i], &d) != WEFT_ERR_ARG) fail_msg("accepted: %s", bad[i]);
        assert_null(d);
        assert_int_equal(strncmp(weft_error_text(), "t.json:", 7), 0);
    }
    weft_doc *d;
    assert_int_equal(weft_doc_parse_json("t.json", "1\0", 2, &d), WEFT_ERR_ARG);
    assert_fails(parse("{\n\"a\": 1,\n\"b\": x}", &d), WEFT_ERR_ARG,
                 "t.json:3: expected a value");
    assert_fails(parse("{\n\"a\": 1,\n\"a\": 2}", &d), WEFT_ERR_ARG,
                 "t.json:3: key 'a' stands");
}

static void depth_is_bounded(void **state)
{
    (void)state;
    char      deep[300];
    weft_doc *d;
    memset(deep, '[', 128);
    memset(deep + 128, ']', 128);
    assert_ok(weft_doc_parse_json("t", deep, 256, &d));
    weft_doc_destroy(d);
    memset(deep, '[', sizeof deep);
    assert_fails(weft_doc_parse_json("t", deep, sizeof deep, &d), WEFT_ERR_ARG,
                 "deeper than 128");
}

/* 10^5 keys: finding a duplicate among them takes no quadratic time. */
static void large_map(void **state)
{
    (void)state;
    weft_text t = {0};
    weft_doc *d;
    weft_text_add(&t, "{");
    for (int i = 0; i < 100000; i++) weft_text_add(&t, "\"key%d\":%d,", i, i);
    size_t n = t.n;
    weft_text_add(&t, "\"last\":0}");
    assert_ok(weft_doc_parse_json("t", t.s, t.n, &d));
    assert_int_equal(weft_doc_root(d)->u.list.n, 100001);
    weft_doc_destroy(d);
    t.n = n;
    weft_text_add(&t, "\"key77\":0}");
    assert_fails(weft_doc_parse_json("t", t.s, t.n, &d), WEFT_ERR_ARG,
                 "key 'key77' stands twice");
    weft_text_fini(&t);
}

/* Whichever allocation fails, the answer is "out of memory" and nothing is leaked. */
static void no_memory(void **state)
{
    (void)state;
    const char *s = "{\"a\":[1,2.5,\"text\",{\"b\":null}],\"c\":{\"d\":1,\"e\":2}}";
    int         n = 1;
    for (;; n++) {
        weft_doc *d;
        if (!weft_test_alloc_fail_at(n)) skip();
        weft_status st = parse(s, &d);
        weft_test_alloc_fail_at(0);
        if (st == WEFT_OK) {
            weft_doc_destroy(d);
            break;
        }
        assert_int_equal(st, WEFT_ERR_MEM);
    }
    assert_true(n > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),           cmocka_unit_test(numbers),
        cmocka_unit_test(strings),          cmocka_unit_test(malformed),
        cmocka_unit_test(depth_is_bounded), cmocka_unit_test(large_map),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
