#include "support/test.h"
#include "support/count_alloc.h"
#include "base/doc.h"

static weft_status parse(const char *s, weft_doc **out)
{
    return weft_doc_parse_yaml("t.yaml", s, strlen(s), out);
}

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

static void plain_scalars(void **state)
{
    (void)state;
    check("", "null");
    check("# nothing\n\n", "null");
    check("~", "null");
    check("True", "true");
    check("yes", "\"yes\"");
    check("12", "12");
    check("+12", "12");
    check("0x1f", "31");
    check("0o17", "15");
    check("1e-4", "0.0001");
    check(".5", "0.5");
    check("3.", "3.0");
    check("1.2.3", "\"1.2.3\"");
    check("1_000", "\"1_000\"");
    check("9223372036854775808", "9.223372036854776e+18");
    check("-.inf", "null"); /* a number, but JSON has no word for it */
    check("a#b: c", "{\"a#b\": \"c\"}");
    check("http://x:80/y", "\"http://x:80/y\"");
    check("8 x (8 x h100-80g)", "\"8 x (8 x h100-80g)\"");
    check("a b  # comment", "\"a b\"");
    check("-1", "-1");
    check("-x", "\"-x\"");
}

static void quoted_scalars(void **state)
{
    (void)state;
    check("'it''s # no comment'", "\"it's # no comment\"");
    check("\"a\\tb\\u00e9\\ud83d\\ude00\"", "\"a\\tb\xc3\xa9\xf0\x9f\x98\x80\"");
    check("\"\\x41\\e\\ \\U0001F600\\_\"", "\"A\\u001b \xf0\x9f\x98\x80\xc2\xa0\"");
    check("\"12\"", "\"12\"");
    check("''", "\"\"");
    check("'one\n  two\n\n  three'", "\"one two\\nthree\"");
    check("\"one \\\n   two\"", "\"one two\"");
    check("'a: b': 1", "{\"a: b\": 1}");
    check("'a''b' : 1", "{\"a'b\": 1}");
    check("\"k\\\"\": 1", "{\"k\\\"\": 1}");
}

static void block_maps_and_lists(void **state)
{
    (void)state;
    check("a: 1\nb:\n  c: 2\n  d:\n    e: 3\nf: 4",
          "{\"a\": 1, \"b\": {\"c\": 2, \"d\": {\"e\": 3}}, \"f\": 4}");
    check("a:\nb: ~\n", "{\"a\": null, \"b\": null}");
    check("- 1\n- a: 2\n  b: 3\n- - x\n  - y\n-\n  k: v\n-\n",
          "[1, {\"a\": 2, \"b\": 3}, [\"x\", \"y\"], {\"k\": \"v\"}, null]");
    check("a:\n- 1\n- 2\nb: 3", "{\"a\": [1, 2], \"b\": 3}");
    check("a:\n  - 1\n  - 2\nb: 3", "{\"a\": [1, 2], \"b\": 3}");
    check("a:   # comment\n\n  # more\n  b: 1 # end\n# last\nc: 2\n",
          "{\"a\": {\"b\": 1}, \"c\": 2}");
    check("---\na: 1\r\nb: 2\r\n", "{\"a\": 1, \"b\": 2}");
    check("\xef\xbb\xbf"
          "a: 1",
          "{\"a\": 1}");
    check("a: this goes\n  on here\nb: 1", "{\"a\": \"this goes on here\", \"b\": 1}");
    check("a b c: 1", "{\"a b c\": 1}");
    check("a:\n  word", "{\"a\": \"word\"}");
    check("a:\t1", "{\"a\": 1}");
}

static void block_scalars(void **state)
{
    (void)state;
    check("a: |\n  one\n    two\n\n  three\n\n\nb: 1",
          "{\"a\": \"one\\n  two\\n\\nthree\\n\", \"b\": 1}");
    check("a: |-\n  one\n  two\n", "{\"a\": \"one\\ntwo\"}");
    check("a: |+\n  one\n\n\nb: 1", "{\"a\": \"one\\n\\n\\n\", \"b\": 1}");
    check("a: >\n  one\n  two\n\n  three\n    deep\n  four\n",
          "{\"a\": \"one two\\nthree\\n  deep\\nfour\\n\"}");
    check("a: |2-\n    two in\nb: 1", "{\"a\": \"  two in\", \"b\": 1}");
    check("a: |\nb: 1", "{\"a\": \"\", \"b\": 1}");
    check("- |\n a # no comment\n- 2", "[\"a # no comment\\n\", 2]");
    check("|\n x", "\"x\"");
    check("a: | # about it\n  x: y\n", "{\"a\": \"x: y\\n\"}");
}

static void flow(void **state)
{
    (void)state;
    check("[]", "[]");
    check("{}", "{}");
    check("[1, 'two', \"three\", four five,]", "[1, \"two\", \"three\", \"four five\"]");
    check(
        "{a: 1, \"b\":2, c: [x, {y: z}], d, e: }",
        "{\"a\": 1, \"b\": 2, \"c\": [\"x\", {\"y\": \"z\"}], \"d\": null, \"e\": null}");
    check("a: [1,\n  2, # two\n  3\n]\nb: {x: 1,\n y: 2}",
          "{\"a\": [1, 2, 3], \"b\": {\"x\": 1, \"y\": 2}}");
    check("[one\n  two, three\n]", "[\"one two\", \"three\"]");
    check("- {a: http://x:1}\n- [a:b]", "[{\"a\": \"http://x:1\"}, [\"a:b\"]]");
    check("{\"json\": [true, null, 1.5e3]}", "{\"json\": [true, null, 1500.0]}");
}

static void malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"a: 1\na: 2", "t.yaml:2: key 'a' stands twice"},
        {"{a: 1, a: 2}", "stands twice"},
        {"a: 1\n\tb: 2", "t.yaml:2: a tab"},
        {"a:\n\t- b", "t.yaml:2: a tab"},
        {"a: &x 1", "anchors"},
        {"a: *x", "anchors"},
        {"&x a: 1", "anchors"},
        {"a: !!int 1", "tags"},
        {"a: 1\n---\nb: 2", "t.yaml:2: several documents"},
        {"a: 1\n...\n", "several documents"},
        {"? a\n: b", "complex keys"},
        {"? a: b", "complex keys"},
        {"%YAML 1.2\n---\na: 1", "cannot start with '%'"},
        {"a: @x", "cannot start with '@'"},
        {"a: b: c", "second ':'"},
        {"a: - b", "a list starts on a line of its own"},
        {"a: 1\n  b: 2", "does not belong"},
        {"a:\n    b: 1\n  c: 2", "t.yaml:3: "},
        {"a: 1\nb", "t.yaml:2: expected 'key: value'"},
        {"- a\nb: 1", "t.yaml:2: "},
        {"a: 1\n- b", "t.yaml:2: "},
        {"  a: 1\nb: 2", "t.yaml:2: "},
        {"a: 'open", "no end"},
        {"a: \"open\n", "no end"},
        {"a: \"\\q\"", "bad escape"},
        {"a: \"\\0\"", "bad escape"},
        {"a: \"\\x4\"", "bad escape"},
        {"a: \"\\UFFFFFFFF\"", "bad escape"},
        {"a: 'x' y", "unexpected text"},
        {"a: [1, 2", "has no end"},
        {"a: {b: 1", "has no end"},
        {"a: ['1' 2\n3]", "expected ','"},
        {"a: [1, 2]]", "unexpected text"},
        {"a: ]", "unexpected ']'"},
        {"[a: b]", "expected ','"},
        {"a: | x\n y", "below '|'"},
        {": 1", "key is missing"},
        {"a: 1e999", "too large"},
        {"a: \xff", "not valid UTF-8"},
        {"[", "has no end"},
        {"{,}", "unexpected ','"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_doc *d = NULL;
        if (parse(bad[i].text, &d) != WEFT_ERR_ARG) fail_msg("accepted: %s", bad[i].text);
        if (!strstr(weft_error_text(), bad[i].words))
            fail_msg("%s: said '%s'", bad[i].text, weft_error_text());
        assert_null(d);
    }
}

static void depth_is_bounded(void **state)
{
    (void)state;
    char      deep[2000];
    weft_doc *d;
    memset(deep, '[', sizeof deep);
    assert_fails(weft_doc_parse_yaml("t", deep, sizeof deep, &d), WEFT_ERR_ARG, "deeper");
    for (size_t i = 0; i < sizeof deep; i++) deep[i] = i % 2 ? ' ' : '-';
    assert_fails(weft_doc_parse_yaml("t", deep, sizeof deep, &d), WEFT_ERR_ARG, "deeper");
}

static void lines_are_kept(void **state)
{
    (void)state;
    weft_doc *d;
    assert_ok(parse("# head\na: 1\nb:\n  c: 2\n\n  d: [x,\n    y]\n", &d));
    const weft_node *root = weft_doc_root(d), *b = weft_node_get(root, "b");
    assert_int_equal(weft_node_get(root, "a")->line, 2);
    assert_int_equal(b->line, 3);
    assert_int_equal(weft_node_get(b, "c")->line, 4);
    assert_int_equal(weft_node_get(b, "d")->line, 6);
    assert_int_equal(weft_node_get(b, "d")->u.list.node[1]->line, 7);
    weft_doc_destroy(d);
}

static void no_memory(void **state)
{
    (void)state;
    const char *s = "a: [1, 'x', {b: c}]\nd: |\n  text\ne: plain\n  more\nf:\n- 1\n- 2\n";
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
    assert_true(n > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_scalars),
        cmocka_unit_test(quoted_scalars),
        cmocka_unit_test(block_maps_and_lists),
        cmocka_unit_test(block_scalars),
        cmocka_unit_test(flow),
        cmocka_unit_test(malformed),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(lines_are_kept),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
