#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"
#include "support/count_alloc.h"
#include "base/io.h"
#include "base/random.h"
#include "base/text.h"

static void check_double(double x, const char *want)
{
    weft_text t = {0};
    weft_text_put_double(&t, x);
    assert_string_equal(t.s, want);
    weft_text_fini(&t);
}

static void shortest_numbers(void **state)
{
    (void)state;
    check_double(0.1, "0.1");
    check_double(1e-5, "1e-05");
    check_double(3, "3");
    check_double(-0.0, "-0");
    check_double(1.0 / 3, "0.3333333333333333");
    check_double(5e-324, "5e-324");
    check_double(1.7976931348623157e308, "1.7976931348623157e+308");
    check_double(123456789, "123456789");
    check_double(1500, "1500");
    check_double(1e15, "1000000000000000");
    check_double(1e16, "1e+16");
    check_double(-20, "-20");
    check_double(INFINITY, "inf");
    check_double(-INFINITY, "-inf");
    check_double(NAN, "nan");
}

static void members_of_json(void **state)
{
    weft_text t = {0};
    (void)state;
    weft_text_put_member(&t, "loss", 0.1);
    weft_text_put_member(&t, "norm", NAN);
    weft_text_put_member(&t, "rate", -INFINITY);
    weft_text_put_string_member(&t, "why", "\"");
    assert_string_equal(
        t.s, ", \"loss\": 0.1, \"norm\": null, \"rate\": null, \"why\": \"\\\"\"");
    weft_text_fini(&t);
}

/* Any bits that are a number read back as those bits. */
static void random_bits_round_trip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t key[2] = {7, 7}, ctr[4] = {i, 0, 0, 0}, w[4];
        double   x, y;
        weft_random_philox(key, ctr, w);
        memcpy(&x, w, sizeof x);
        if (i % 2) x = (double)(w[0] >> (w[1] & 31)) * 100; /* round numbers too */
        if (!isfinite(x)) continue;
        weft_text t = {0};
        weft_text_put_double(&t, x);
        assert_true(weft_text_read_double(t.s, &y));
        assert_memory_equal(&x, &y, sizeof x);
        weft_text_fini(&t);
    }
}

/* One digit less is another number, so what is printed is the shortest. */
static void no_digit_too_many(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t key[2] = {9, 9}, ctr[4] = {i, 0, 0, 0}, w[4];
        double   x;
        char     shorter[400];
        weft_random_philox(key, ctr, w);
        memcpy(&x, w, sizeof x);
        if (i % 3 == 0) x = (double)(w[0] >> 12) / 1000;
        if (i % 3 == 1) x = ldexp(x, -1050);
        if (!isfinite(x)) continue;
        weft_text t = {0};
        weft_text_put_double(&t, x);
        int n = 0;
        for (const char *p = t.s; *p && *p != 'e'; p++)
            n += *p >= '1' && *p <= '9' ? 1 : *p == '0' && n > 0;
        if (strchr(t.s, '.') && n > 1) {
            snprintf(shorter, sizeof shorter, "%.*g", n - 1, x);
            assert_true(strtod(shorter, NULL) != x);
        }
        weft_text_fini(&t);
    }
}

static void read_double_refuses(void **state)
{
    (void)state;
    double x = 42;
    assert_false(weft_text_read_double("", &x));
    assert_false(weft_text_read_double(" 1", &x));
    assert_false(weft_text_read_double("1 ", &x));
    assert_false(weft_text_read_double("1,5", &x));
    assert_false(weft_text_read_double("x", &x));
    assert_true(x == 42);
    assert_true(weft_text_read_double("1e999", &x));
    assert_true(isinf(x));
}

/* A program that embeds us may live in a locale whose decimal point is a comma; one is made where
 * the system has none. */
static void any_locale(void **state)
{
    (void)state;
    char   dir[] = "/tmp/weft-locale-XXXXXX", make[200];
    double x;
    assert_non_null(mkdtemp(dir));
    snprintf(make, sizeof make, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null",
             dir);
    bool made = system(make) == 0;
    if (made) setenv("LOCPATH", dir, 1);
    bool comma = setlocale(LC_ALL, "de_DE.UTF-8") && *localeconv()->decimal_point == ',';
    if (comma) {
        check_double(0.1, "0.1");
        check_double(1234.5, "1234.5");
        assert_true(weft_text_read_double("2.5", &x));
        assert_true(x == 2.5);
        assert_false(weft_text_read_double("2,5", &x));
    }
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    assert_ok(weft_io_remove_tree(dir));
    if (!comma) skip();
}

static void quoted(void **state)
{
    (void)state;
    weft_text t = {0};
    weft_text_put_quoted(&t, "a\"b\\c\n\r\t\b\f\x01\xc3\xa9");
    assert_string_equal(t.s, "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\xc3\xa9\"");
    weft_text_fini(&t);
}

static void grows(void **state)
{
    (void)state;
    weft_text t = {0};
    for (int i = 0; i < 5000; i++) weft_text_add(&t, "%d,", i % 10);
    assert_int_equal(t.n, 10000);
    assert_int_equal(strlen(t.s), 10000);
    weft_text_put(&t, "", 0);
    assert_ok(weft_text_status(&t));
    weft_text_fini(&t);
    assert_null(t.s);
}

static void no_memory(void **state)
{
    (void)state;
    weft_text t = {0};
    weft_text_put(&t, "kept", 4);
    if (!weft_test_alloc_fail_at(1)) {
        weft_text_fini(&t);
        skip();
    }
    for (int i = 0; i < 100; i++) weft_text_put(&t, "0123456789", 10);
    weft_test_alloc_fail_at(0);
    assert_int_equal(weft_text_status(&t), WEFT_ERR_MEM);
    assert_int_equal(memcmp(t.s, "kept", 4), 0);
    weft_text_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shortest_numbers),
        cmocka_unit_test(members_of_json),
        cmocka_unit_test(random_bits_round_trip),
        cmocka_unit_test(read_double_refuses),
        cmocka_unit_test(no_digit_too_many),
        cmocka_unit_test(any_locale),
        cmocka_unit_test(quoted),
        cmocka_unit_test(grows),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
