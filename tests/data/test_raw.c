/* u16 or u32: what is looked at, where it is sure, and where it is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "support/files.h"

enum {
    MAX = 4096
};

static uint32_t token(int i, uint32_t below)
{
    uint32_t x = (uint32_t)i * 2654435761u + 12345u;

    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return x % below;
}

/* "u16", "u32", or the words of the refusal. */
static const char *taken_for(const void *p, size_t n)
{
    weft_data     *d;
    weft_data_info x;
    const char    *path = test_files_path("x.bin");

    test_files_write(path, p, n);
    if (weft_data_open(path, &(weft_data_options){.seq = 1}, &d) != WEFT_OK)
        return weft_error_text();
    assert_int_equal(weft_data_inspect(d, &x), WEFT_OK);
    weft_data_close(d);
    return weft_dtype_name(x.dtype);
}

static void want(const void *p, size_t n, const char *text)
{
    const char *got = taken_for(p, n);

    if (!strstr(got, text)) fail_msg("'%s', not '%s'", got, text);
}

/* Any vocabulary up to 2^20 in 32 bits, any in 16 bits. */
static void u16_and_u32_are_distinguished(void **state)
{
    static uint16_t       narrow[MAX];
    static uint32_t       wide[MAX];
    static const uint32_t vocab[] = {3, 8, 17, 61, 256, 2048, 50257, 65536};
    (void)state;

    for (size_t v = 0; v < WEFT_COUNT(vocab); v++) {
        for (int i = 0; i < MAX; i++)
            narrow[i] = (uint16_t)(wide[i] = token(i, vocab[v]));
        want(narrow, sizeof narrow, "u16");
        want(wide, sizeof wide, "u32");
        want(wide, sizeof wide - 2, "no multiple of 4");
    }
    for (int i = 0; i < MAX; i++) wide[i] = token(i, 151936);
    want(wide, sizeof wide, "u32");
    for (int i = 0; i < MAX; i++) wide[i] = token(i, 1u << 20);
    want(wide, sizeof wide, "u32");
}

static void zeros_do_not_mislead(void **state)
{
    static uint16_t narrow[MAX];
    uint64_t        word64[MAX / 8];
    (void)state;

    want(narrow, sizeof narrow, "u16"); /* nothing but zeros */
    for (int i = 0; i < MAX; i++)       /* mostly padding */
        narrow[i] = (uint16_t)(i % 50 < 3 ? 1 + token(i, 50000) : 0);
    want(narrow, sizeof narrow, "u16");
    for (int i = 0; i < MAX; i++) /* nine of ten zero */
        narrow[i] = (uint16_t)(token(i, 10) ? 0 : token(i + MAX, 60000));
    want(narrow, sizeof narrow, "u16");
    /* every second one zero, all but a few */
    for (int i = 0; i < MAX; i++)
        narrow[i] = (uint16_t)(i % 2 ? 0 : 20 + token(i, 60000));
    narrow[2001] = narrow[777] = 4000;
    want(narrow, sizeof narrow, "most of its tokens look like u32, but not all");
    for (int i = 0; i < MAX / 8; i++) word64[i] = token(i, 50257);
    want(word64, sizeof word64, "64-bit");
}

/* Fewer than 32 words that could tell: refused where they all point to u32, else u16. */
static void short_files_are_refused_or_u16(void **state)
{
    uint32_t wide[64];
    uint16_t narrow[64];
    (void)state;

    for (int i = 0; i < 64; i++) wide[i] = 100 + token(i, 1000);
    for (int i = 0; i < 64; i++) narrow[i] = (uint16_t)wide[i];
    want(wide, 4 * 32, "u32");
    want(wide, 4 * 31, "too short to tell whether its tokens are u16 or u32");
    want(wide, 4 * 8, "too short to tell");
    want(narrow, 2 * 16, "u16");
    want(narrow, 2 * 2, "u16");
}

static void the_format_decides_where_it_is_given(void **state)
{
    uint32_t   wide[64];
    weft_data *d;
    (void)state;

    for (int i = 0; i < 64; i++) wide[i] = 100 + token(i, 1000);
    test_files_write(test_files_path("y.bin"), wide, sizeof wide);
    assert_int_equal(weft_data_open(test_files_path("y.bin"),
                                    &(weft_data_options){.seq = 1, .format = "u16"}, &d),
                     WEFT_OK);
    assert_int_equal(weft_data_tokens(d), 128);
    weft_data_close(d);
    test_files_write(test_files_path("y.dat"), wide, 4 * 8);
    assert_int_equal(weft_data_open(test_files_path("y.dat"),
                                    &(weft_data_options){.seq = 1, .format = "u32"}, &d),
                     WEFT_OK);
    assert_int_equal(weft_data_tokens(d), 8);
    weft_data_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u16_and_u32_are_distinguished),
        cmocka_unit_test(zeros_do_not_mislead),
        cmocka_unit_test(short_files_are_refused_or_u16),
        cmocka_unit_test(the_format_decides_where_it_is_given),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
