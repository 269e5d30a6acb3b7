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

/* Tokens that begin late: all of a file is looked at. */
static void padding_at_the_start_does_not_hide_u32(void **state)
{
    enum {
        N = (3 << 20) / 4
    };
    uint32_t *wide = calloc(N, sizeof *wide);
    (void)state;

    assert_non_null(wide);
    for (int i = N - 4096; i < N; i++) wide[i] = token(i, 50257);
    want(wide, N * sizeof *wide, "u32");
    free(wide);
}

static void other_integers_are_refused(void **state)
{
    static uint32_t wide[MAX];
    static uint64_t word64[MAX];
    static uint16_t narrow[MAX];
    (void)state;

    for (int i = 0; i < MAX; i++) wide[i] = __builtin_bswap32(token(i, 50257));
    want(wide, sizeof wide, "big-endian");
    for (int i = 0; i < MAX; i++) wide[i] = __builtin_bswap32(token(i, 151936));
    want(wide, sizeof wide, "big-endian");
    for (int i = 0; i < MAX; i++) word64[i] = __builtin_bswap64(token(i, 50257));
    want(word64, sizeof word64, "big-endian");
    /* negative ones: often, and once */
    for (int i = 0; i < MAX; i++)
        wide[i] = i % 3 ? token(i, 50257) : (uint32_t)(i % 2 ? -1 : -100);
    want(wide, sizeof wide, "32-bit integers, and 1366 of those looked at are negative");
    for (int i = 0; i < MAX; i++) wide[i] = i ? token(i, 50257) : (uint32_t)-1;
    want(wide, sizeof wide, "32-bit integers, and 1 of those looked at are negative");
    for (int i = 0; i < MAX; i++)
        word64[i] = i % 3 ? token(i, 50257) : (uint64_t)(int64_t)-100;
    want(word64, sizeof word64, "64-bit");
    /* 65535 as padding of u16 is no negative number */
    for (int i = 0; i < MAX; i++)
        narrow[i] = (uint16_t)(i % 50 < 20 ? token(i, 50257) : 65535);
    want(narrow, sizeof narrow, "u16");
}

static void other_files_are_refused(void **state)
{
    static const struct {
        int32_t     magic;
        const char *text;
    } llmc[] = {{20240522, "an evaluation set of llm.c"},
                {20240326, "weights of llm.c"},
                {20240328, "a tokenizer of llm.c"}};
    static const struct {
        const char *head;
        size_t      n;
        const char *text;
    } other[] = {{"\x1f\x8b\x08\0", 4, "gzip"},
                 {"\x80\x04\x95", 3, "Python pickle"},
                 {"\x80\x02}", 3, "Python pickle"},
                 {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46", 8, "weights of PyTorch"}};
    static uint16_t narrow[MAX];
    (void)state;

    for (size_t i = 0; i < WEFT_COUNT(llmc); i++) {
        for (int k = 0; k < MAX; k++) narrow[k] = (uint16_t)token(k, 50257);
        memcpy(narrow, &llmc[i].magic, 4);
        want(narrow, sizeof narrow, llmc[i].text);
    }
    for (size_t i = 0; i < WEFT_COUNT(other); i++) {
        for (int k = 0; k < MAX; k++) narrow[k] = (uint16_t)token(k, 50257);
        memcpy(narrow, other[i].head, other[i].n);
        ((char *)narrow)[sizeof narrow - 1] = '.';
        want(narrow, sizeof narrow, other[i].text);
    }
    /* tokens that begin like a pickle, and do not go on or end like one */
    for (int k = 0; k < MAX; k++) narrow[k] = (uint16_t)token(k, 50257);
    narrow[0] = 0x0280;
    narrow[1] = 7;
    want(narrow, sizeof narrow, "u16");
}

/* u16 for a vocabulary that it cannot hold; ids of bytes for a model of another vocabulary. */
static void suspicious_tokens_are_warned_of(void **state)
{
    static const struct {
        uint32_t    below;
        int64_t     vocab;
        bool        no_text;
        const char *text; /* NULL: no warning */
    } row[] = {
        {50257, 151936, true, "its tokens are u16, which holds ids below 65,536"},
        {50257, 65536, true, NULL},
        {200, 50257, true, "all its ids are below 256"},
        {200, 50257, false, NULL}, /* tokenizer: bytes */
        {257, 50257, true, NULL},
        {200, 256, true, NULL},
    };
    static uint16_t narrow[MAX];
    const char     *path = test_files_path("w.bin");
    (void)state;

    for (size_t r = 0; r < WEFT_COUNT(row); r++) {
        weft_data_options o = {
            .seq = 4, .vocab = row[r].vocab, .no_text = row[r].no_text, .model = "m"};
        weft_data *d;
        weft_text  t = {0};

        for (int i = 0; i < MAX; i++) narrow[i] = (uint16_t)token(i, row[r].below);
        test_files_write(path, narrow, sizeof narrow);
        assert_int_equal(weft_data_open(path, &o, &d), WEFT_OK);
        weft_data_warn(d, &t);
        if (row[r].text ? !t.s || !strstr(t.s, row[r].text) : t.n != 0)
            fail_msg("row %zu: '%s'", r, t.s ? t.s : "");
        weft_text_fini(&t);
        weft_data_close(d);
    }
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
        cmocka_unit_test(padding_at_the_start_does_not_hide_u32),
        cmocka_unit_test(other_integers_are_refused),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(suspicious_tokens_are_warned_of),
        cmocka_unit_test(short_files_are_refused_or_u16),
        cmocka_unit_test(the_format_decides_where_it_is_given),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
