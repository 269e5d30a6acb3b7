#include <math.h>

#include "support/test.h"
#include "base/lex.h"

static weft_arena *arena;

static int setup(void **state)
{
    (void)state;
    return weft_arena_create(&arena) != WEFT_OK;
}

static int teardown(void **state)
{
    (void)state;
    weft_arena_destroy(arena);
    return 0;
}

static weft_lex start(const char *text)
{
    weft_lex l;
    weft_lex_init(&l, arena, "f.txt", text, strlen(text));
    return l;
}

static void check(weft_lex *l, weft_tok tok, const char *text)
{
    assert_int_equal(l->tok, tok);
    assert_string_equal(l->text, text);
    weft_lex_next(l);
}

static void tokens(void **state)
{
    (void)state;
    weft_lex l = start(
        "%3 = mat-mul(h.0/w', -1.5e-3)->x-y->z # rest\n\"a\\n\\u00e9\" 0x1F [4,64]");
    check(&l, WEFT_TOK_WORD, "%3");
    check(&l, WEFT_TOK_PUNCT, "=");
    check(&l, WEFT_TOK_WORD, "mat-mul");
    check(&l, WEFT_TOK_PUNCT, "(");
    check(&l, WEFT_TOK_WORD, "h.0/w'");
    check(&l, WEFT_TOK_PUNCT, ",");
    check(&l, WEFT_TOK_NUMBER, "-1.5e-3");
    check(&l, WEFT_TOK_PUNCT, ")");
    check(&l, WEFT_TOK_PUNCT, "->");
    check(&l, WEFT_TOK_WORD, "x-y");
    check(&l, WEFT_TOK_PUNCT, "->");
    assert_int_equal(l.line, 1);
    check(&l, WEFT_TOK_WORD, "z");
    assert_int_equal(l.line, 2);
    check(&l, WEFT_TOK_STRING, "a\n\xc3\xa9");
    check(&l, WEFT_TOK_NUMBER, "0x1F");
    check(&l, WEFT_TOK_PUNCT, "[");
    check(&l, WEFT_TOK_NUMBER, "4");
    check(&l, WEFT_TOK_PUNCT, ",");
    check(&l, WEFT_TOK_NUMBER, "64");
    check(&l, WEFT_TOK_PUNCT, "]");
    check(&l, WEFT_TOK_END, "");
    check(&l, WEFT_TOK_END, "");
}

static void values(void **state)
{
    (void)state;
    int64_t     i;
    double      x;
    const char *w;
    weft_lex    l =
        start("op 9223372036854775807 -9223372036854775808 0xff 1e-05 -inf nan 3 end");
    assert_false(weft_lex_accept(&l, "x"));
    assert_true(weft_lex_accept(&l, "op"));
    assert_ok(weft_lex_int(&l, &i));
    assert_true(i == INT64_MAX);
    assert_ok(weft_lex_int(&l, &i));
    assert_true(i == INT64_MIN);
    assert_ok(weft_lex_int(&l, &i));
    assert_int_equal(i, 255);
    assert_ok(weft_lex_double(&l, &x));
    assert_true(x == 1e-05);
    assert_ok(weft_lex_double(&l, &x));
    assert_true(x == -INFINITY);
    assert_ok(weft_lex_double(&l, &x));
    assert_true(isnan(x));
    assert_ok(weft_lex_double(&l, &x));
    assert_true(x == 3);
    assert_ok(weft_lex_word(&l, &w));
    assert_string_equal(w, "end");
}

static void complaints(void **state)
{
    (void)state;
    int64_t     i;
    double      x;
    const char *w;
    weft_lex    l = start("\n\n  abc");
    assert_fails(weft_lex_expect(&l, "{"), WEFT_ERR_ARG,
                 "f.txt:3: expected '{', got 'abc'");
    assert_fails(weft_lex_int(&l, &i), WEFT_ERR_ARG, "expected an integer");
    assert_fails(weft_lex_double(&l, &x), WEFT_ERR_ARG, "expected a number");
    l = start("1.5 99999999999999999999");
    assert_fails(weft_lex_int(&l, &i), WEFT_ERR_ARG, "integer, got '1.5'");
    assert_fails(weft_lex_word(&l, &w), WEFT_ERR_ARG, "expected a word");
    weft_lex_next(&l);
    assert_fails(weft_lex_int(&l, &i), WEFT_ERR_ARG, "64 bits");
    l = start("");
    assert_fails(weft_lex_expect(&l, "x"), WEFT_ERR_ARG, "end of the text");
    assert_fails(weft_lex_fail(&l, "no %d", 7), WEFT_ERR_ARG, "f.txt:1: no 7");
}

static void bad_tokens(void **state)
{
    (void)state;
    static const char *const text[] = {"\"open", "\"a\nb\"", "\"\\q\"", "\"\\ud800\"",
                                       "\x01",   "\xff",     "\"\\",    "\"\\u0000\""};
    for (size_t k = 0; k < sizeof text / sizeof *text; k++) {
        weft_lex l = start(text[k]);
        assert_int_equal(l.tok, WEFT_TOK_BAD);
        assert_int_equal(weft_lex_expect(&l, "x"), WEFT_ERR_ARG);
        for (int n = 0; n < 10; n++) weft_lex_next(&l); /* comes to an end */
        assert_int_equal(l.tok, WEFT_TOK_END);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens),
        cmocka_unit_test(values),
        cmocka_unit_test(complaints),
        cmocka_unit_test(bad_tokens),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
