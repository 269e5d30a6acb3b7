#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/status.h"
#include "data/data.h"
#include "data/idx.h"
#include "store/safetensors.h"
#include "support/count_alloc.h"
#include "support/files.h"

/* ---- the shuffle ---- */

static void permutes(void **state)
{
    static const int64_t size[] = {1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 100, 1000, 4097};
    (void)state;

    for (size_t k = 0; k < WEFT_COUNT(size); k++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            int64_t n    = size[k];
            char   *seen = calloc((size_t)n, 1);

            for (int64_t i = 0; i < n; i++) {
                int64_t j = weft_data_permute(42, epoch, n, i);

                assert_in_range(j, 0, n - 1);
                assert_int_equal(seen[j]++, 0);
                assert_int_equal(weft_data_permute(42, epoch, n, i), j);
            }
            free(seen);
        }
}

/* Different epochs and seeds differ, few points stay, neighbours part. */
static void permutes_well(void **state)
{
    const int64_t n     = 10000;
    int64_t       fixed = 0, same_epoch = 0, same_seed = 0, near = 0;
    double        mean = 0;
    (void)state;

    for (int64_t i = 0; i < n; i++) {
        int64_t j = weft_data_permute(1, 0, n, i);

        fixed += j == i;
        same_epoch += j == weft_data_permute(1, 1, n, i);
        same_seed += j == weft_data_permute(2, 0, n, i);
        near += llabs(j - weft_data_permute(1, 0, n, (i + 1) % n)) < 10;
        if (i < n / 2) mean += (double)j / (double)(n / 2);
    }
    assert_in_range(fixed, 0, 10); /* 1 expected of a random one */
    assert_in_range(same_epoch, 0, 10);
    assert_in_range(same_seed, 0, 10);
    assert_in_range(near, 0, 60); /* 19 expected */
    assert_true(mean > 0.48 * (double)n && mean < 0.52 * (double)n);
    /* the bits of a seed's shuffle are a promise to old checkpoints */
    assert_int_equal(weft_data_permute(1, 0, 1000, 0), 653);
    assert_int_equal(weft_data_permute(1, 0, 1000, 5), 193);
    assert_int_equal(weft_data_permute(1ull << 40 | 5, 3, (1ll << 40) + 7, 2),
                     960773437308);
}

static void permutes_huge(void **state)
{
    const int64_t n = (1ll << 40) + 12345;
    (void)state;

    for (int64_t i = 0; i < 1000; i++)
        assert_in_range(weft_data_permute(9, 7, n, n - 1 - i), 0, n - 1);
}

/* ---- streams ---- */

static const char *write_bin(const char *name, int n)
{
    const char *path = test_files_path("%s", name);
    uint8_t    *p    = malloc((size_t)n * 2);

    for (int i = 0; i < n; i++) {
        p[2 * i]     = (uint8_t)(i * 3);
        p[2 * i + 1] = (uint8_t)(i * 3 >> 8);
    }
    test_files_write(path, p, (size_t)n * 2);
    free(p);
    return path;
}

static int64_t count_labels(const weft_data *d, int64_t first, int64_t n)
{
    int64_t count = -1;

    assert_int_equal(weft_data_count_labels(d, first, n, &count), WEFT_OK);
    return count;
}

static weft_data *open_ok(const char *path, weft_data_options o)
{
    weft_data  *d  = NULL;
    weft_status st = weft_data_open(path, &o, &d);

    if (st != WEFT_OK) print_error("%s\n", weft_error_text());
    assert_int_equal(st, WEFT_OK);
    return d;
}

static void open_bad(const char *path, weft_data_options o, const char *say)
{
    weft_data *d = NULL;

    assert_int_equal(weft_data_open(path, &o, &d), WEFT_ERR_ARG);
    if (!strstr(weft_error_text(), say))
        print_error("'%s' has no '%s'\n", weft_error_text(), say);
    assert_non_null(strstr(weft_error_text(), say));
    assert_null(strchr(weft_error_text(), '\n'));
    assert_null(d);
}

static void stream_samples(void **state)
{
    const char *path = write_bin("a.bin", 101);
    weft_data  *d    = open_ok(path, (weft_data_options){.seq = 10, .vocab = 301});
    int32_t     ids[40], labels[40];
    int64_t     before;
    (void)state;

    assert_int_equal(weft_data_samples(d), 10);
    assert_int_equal(weft_data_tokens(d), 101);
    assert_string_equal(weft_data_format(d), "bin");
    assert_int_equal(weft_data_fill(d, 8, 4, ids, labels),
                     WEFT_OK); /* 8, 9, then 0, 1 again */
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 10; k++) {
            assert_int_equal(ids[i * 10 + k], 3 * ((8 + i) % 10 * 10 + k));
            assert_int_equal(labels[i * 10 + k], 3 * ((8 + i) % 10 * 10 + k + 1));
        }
    assert_int_equal(count_labels(d, 3, 4), 40);
    before = weft_test_allocs(); /* a step allocates nothing */
    assert_int_equal(weft_data_fill(d, 3, 4, ids, labels), WEFT_OK);
    assert_int_equal(weft_test_allocs() - before, 0);
    weft_data_close(d);
    d = open_ok(write_bin("b.bin", 100), (weft_data_options){.seq = 10});
    assert_int_equal(weft_data_samples(d), 9); /* the last has no 11th token */
    weft_data_close(d);
    d = open_ok(write_bin("c.bin", 2), (weft_data_options){.seq = 1});
    assert_int_equal(weft_data_fill(d, 12345678901ll, 1, ids, labels), WEFT_OK);
    assert_int_equal(ids[0], 0);
    assert_int_equal(labels[0], 3);
    weft_data_close(d);
}

/* Any cut of the job into calls gives the same samples, each epoch each of them once. */
static void shuffled_exactly_once(void **state)
{
    weft_data_options o = {.seq = 4, .shuffle = true, .seed = 7};
    weft_data        *d = open_ok(write_bin("s.bin", 4 * 37 + 1), o), *e;
    int32_t           ids[37 * 4], one[4];
    int               moved = 0;
    (void)state;

    assert_int_equal(weft_data_samples(d), 37);
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[37] = {0};

        assert_int_equal(weft_data_fill(d, epoch * 37, 37, ids, NULL), WEFT_OK);
        for (int i = 0; i < 37; i++) {
            int64_t at_epoch, index;

            assert_int_equal(ids[4 * i] % 12, 0);
            seen[ids[4 * i] / 12]++;
            assert_int_equal(weft_data_fill(d, epoch * 37 + i, 1, one, NULL), WEFT_OK);
            assert_memory_equal(one, ids + 4 * i, sizeof one);
            weft_data_locate(d, epoch * 37 + i, &at_epoch, &index);
            assert_int_equal(at_epoch, epoch);
            assert_int_equal(index, ids[4 * i] / 12);
            moved += index != i;
        }
        for (int i = 0; i < 37; i++) assert_int_equal(seen[i], 1);
    }
    assert_true(moved > 80);
    e = open_ok(test_files_path("s.bin"), o); /* another process, the same order */
    assert_int_equal(weft_data_fill(e, 100, 1, one, NULL), WEFT_OK);
    assert_int_equal(weft_data_fill(d, 100, 1, ids, NULL), WEFT_OK);
    assert_memory_equal(one, ids, sizeof one);
    assert_true(weft_data_id(d) == weft_data_id(e));
    weft_data_close(d);
    weft_data_close(e);
}

static void bad_streams(void **state)
{
    const char *path = write_bin("v.bin", 101);
    weft_data  *d;
    (void)state;

    open_bad(path, (weft_data_options){.seq = 10, .vocab = 300},
             "v.bin: token 100 is 300, but the vocabulary has 300 ids");
    open_bad(path, (weft_data_options){.seq = 10, .vocab = 150}, "token 50 is 150");
    open_bad(path, (weft_data_options){.seq = 101}, "101 tokens are too few");
    open_bad(path, (weft_data_options){.seq = 0}, "seq must be at least 1");
    open_bad(path, (weft_data_options){.seq = -1}, "impossible");
    open_bad(path, (weft_data_options){.seq = 1, .format = "parquet"},
             "'parquet' is unknown");
    open_bad(test_files_path("gone.bin"), (weft_data_options){.seq = 1}, "gone.bin");
    open_bad(test_files_path("gone.txt"), (weft_data_options){.seq = 1}, "gone.txt");
    open_bad(test_files_path("gone*.txt"), (weft_data_options){.seq = 1},
             "no file has such a name");
    test_files_write(test_files_path("odd.bin"), "abc", 3);
    open_bad(test_files_path("odd.bin"), (weft_data_options){.seq = 1},
             "no whole number of u16");
    test_files_write(test_files_path("zero.bin"), "", 0);
    open_bad(test_files_path("zero.bin"), (weft_data_options){.seq = 1}, "zero.bin");
    d = open_ok(path, (weft_data_options){.seq = 100});
    weft_data_close(d);
}

/* Past the size that open scans, fill still finds the bad id. */
static void bad_id_found_in_fill(void **state)
{
    size_t      n    = (64u << 20) + 2000;
    uint8_t    *p    = calloc(n, 1);
    const char *path = test_files_path("large.bin");
    int32_t     ids[500], labels[500];
    weft_data  *d;
    (void)state;

    p[n - 1998] = 9; /* token (n - 1998) / 2 = position 33554433 */
    test_files_write(path, p, n);
    free(p);
    d = open_ok(path, (weft_data_options){.seq = 500, .vocab = 9});
    assert_int_equal(weft_data_fill(d, 0, 1, ids, labels), WEFT_OK);
    assert_int_equal(weft_data_fill(d, 33554433 / 500, 1, ids, labels), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "token 33554433 is 9"));
    weft_data_close(d);
    unlink(path);
}

/* ---- text ---- */

static void text_file_and_folder(void **state)
{
    int32_t    ids[8], labels[8];
    weft_data *d;
    (void)state;

    test_files_write(test_files_path("t.txt"), "hello \xff world", 13);
    d = open_ok(test_files_path("t.txt"), (weft_data_options){.seq = 6, .vocab = 256});
    assert_string_equal(weft_data_format(d), "text");
    assert_int_equal(weft_data_fill(d, 0, 1, ids, labels), WEFT_OK);
    assert_int_equal(ids[0], 'h');
    assert_int_equal(labels[5], 255);
    weft_data_close(d);

    mkdir(test_files_path("dir"), 0777);
    mkdir(test_files_path("dir/b"), 0777);
    mkdir(test_files_path("dir/.git"), 0777);
    test_files_write(test_files_path("dir/c"), "ghi", 3);
    test_files_write(test_files_path("dir/b/z"), "def", 3);
    test_files_write(test_files_path("dir/a"), "abc", 3);
    test_files_write(test_files_path("dir/empty"), "", 0);
    test_files_write(test_files_path("dir/binary"), "x\0y", 3);
    test_files_write(test_files_path("dir/.git/x"), "no", 2);
    d = open_ok(test_files_path("dir"), (weft_data_options){.seq = 8});
    assert_int_equal(weft_data_tokens(d), 9);
    assert_int_equal(weft_data_fill(d, 0, 1, ids, labels), WEFT_OK);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ids[i], 'a' + i);
        assert_int_equal(labels[i], 'b' + i);
    }
    weft_data_close(d);
    d = open_ok(test_files_path("dir/[ac]"), (weft_data_options){.seq = 5});
    assert_int_equal(weft_data_fill(d, 0, 1, ids, labels), WEFT_OK);
    assert_int_equal(labels[4], 'i');
    weft_data_close(d);
    mkdir(test_files_path("none"), 0777);
    open_bad(test_files_path("none"), (weft_data_options){.seq = 1}, "no text");
}

/* ---- Megatron ---- */

static char *make_idx(size_t *n, uint8_t code, const int32_t *len, const int64_t *off,
                      uint64_t n_seq)
{
    char  *p  = calloc(1, 34 + 12 * n_seq + 8 * (n_seq + 1));
    size_t at = 34;

    memcpy(p, "MMIDIDX\0\0", 9);
    p[9]  = 1;
    p[17] = (char)code;
    memcpy(p + 18, &n_seq, 8);
    memcpy(p + 26, &(uint64_t){n_seq + 1}, 8);
    memcpy(p + at, len, 4 * n_seq);
    memcpy(p + (at += 4 * n_seq), off, 8 * n_seq);
    at += 8 * n_seq;
    for (uint64_t i = 0; i <= n_seq; i++) memcpy(p + at + 8 * i, &i, 8);
    *n = at + 8 * (n_seq + 1);
    return p;
}

/* Sequences out of order and with a hole, each integer type. */
static void megatron_types(void **state)
{
    static const struct {
        uint8_t code;
        int     bytes;
    } type[] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    (void)state;

    for (size_t t = 0; t < WEFT_COUNT(type); t++) {
        int           w       = type[t].bytes;
        const int32_t len[3]  = {4, 0, 3};
        const int64_t off[3]  = {5 * w, 0, 1 * w};
        uint8_t       bin[80] = {0};
        int32_t       ids[6], labels[6];
        size_t        n;
        char         *p = make_idx(&n, type[t].code, len, off, 3);
        weft_data    *d;

        for (int i = 0; i < 10; i++) bin[i * w] = (uint8_t)(i + 100);
        test_files_write(test_files_path("m.bin"), bin, (size_t)(10 * w));
        test_files_write(test_files_path("m.idx"), p, n);
        free(p);
        d = open_ok(test_files_path("m"), (weft_data_options){.seq = 6, .vocab = 200});
        assert_string_equal(weft_data_format(d), "megatron");
        assert_int_equal(weft_data_tokens(d), 7);
        assert_int_equal(weft_data_fill(d, 0, 1, ids, labels), WEFT_OK);
        for (int i = 0; i < 6; i++)
            assert_int_equal(ids[i], i < 4 ? 105 + i : 101 + i - 4);
        assert_int_equal(labels[5], 103);
        weft_data_close(d);
        open_bad(test_files_path("m.bin"), (weft_data_options){.seq = 6, .vocab = 108},
                 "m.bin: token 8 is 108");
    }
}

static void idx_table(void **state)
{
    const int32_t len[2] = {3, 2};
    const int64_t off[2] = {0, 6};
    size_t        n;
    weft_data_idx x;
    (void)state;

    static const struct {
        size_t      at;
        int         bytes;
        int64_t     value;
        const char *say;
    } row[] = {
        {0, 1, 'X', "not a Megatron index"},
        {9, 8, 2, "version 2"},
        {17, 1, 6, "type code 6"},
        {17, 1, 0, "type code 0"},
        {17, 1, 99, "type code 99"},
        {18, 8, 3, "truncated"},
        {18, 8, -1, "truncated"},
        {18, 8, 0x1555555555555556, "truncated"},
        {26, 8, -1, "truncated"},
        {26, 8, 2, "8 bytes too many"},
        {34, 4, 6, "sequence 0 (6 tokens at byte 0) lies outside"},
        {34, 4, -1, "sequence 0 (-1 tokens"},
        {38, 4, 3, "sequence 1 (3 tokens at byte 6) lies outside"},
        {42, 8, -2, "sequence 0"},
        {50, 8, 1ll << 62, "sequence 1"},
        {58, 8, 3, "document 0 begins at sequence 3"},
        {58, 8, -1, "document 0"},
        {74, 8, 0, "document 2"},
    };
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        char *p = make_idx(&n, 8, len, off, 2);

        memcpy(p + row[i].at, &row[i].value, (size_t)row[i].bytes);
        assert_int_equal(weft_data_idx_parse("i", p, n, 10, &x), WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), row[i].say))
            print_error("%zu: %s\n", i, weft_error_text());
        assert_non_null(strstr(weft_error_text(), row[i].say));
        free(p);
    }
    char *p = make_idx(&n, 8, len, off, 2);
    assert_int_equal(weft_data_idx_parse("i", p, n, 10, &x), WEFT_OK);
    for (size_t k = 0; k < n; k++) {
        char *q = malloc(k + 1);

        memcpy(q, p, k);
        assert_int_equal(weft_data_idx_parse("i", q, k, 10, &x), WEFT_ERR_ARG);
        free(q);
    }
    free(p);
}

/* ---- rows ---- */

static weft_status write_rows(const char *path, weft_dtype t, int n, int seq, int bad_at,
                              int64_t bad)
{
    static int64_t  a[512], b[512];
    weft_store_item it[2] = {{"input_ids", t, {2, {n, seq}}, {.data = a}},
                             {"labels", t, {2, {n, seq}}, {.data = b}}};

    for (int i = 0; i < n * seq; i++) {
        int64_t id = i, label = i % 3 ? -100 : i;

        if (bad_at == i) label = bad;
        if (t == WEFT_DTYPE_I64) {
            a[i] = id;
            b[i] = label;
        } else {
            ((int32_t *)a)[i] = (int32_t)id;
            ((int32_t *)b)[i] = (int32_t)label;
        }
    }
    return weft_store_write(path, &(weft_store_spec){.item = it, .n_item = 2});
}

static void rows(void **state)
{
    const char *path = test_files_path("r.safetensors");
    int32_t     ids[10], labels[10];
    (void)state;

    for (int t = 0; t < 2; t++) {
        weft_data *d;

        assert_int_equal(
            write_rows(path, t ? WEFT_DTYPE_I64 : WEFT_DTYPE_I32, 6, 5, -1, 0), WEFT_OK);
        d = open_ok(path, (weft_data_options){.seq = 5, .vocab = 30});
        assert_int_equal(weft_data_samples(d), 6);
        assert_int_equal(weft_data_fill(d, 5, 2, ids, labels),
                         WEFT_OK); /* the last, the first */
        for (int i = 0; i < 10; i++) {
            int v = i < 5 ? 25 + i : i - 5;

            assert_int_equal(ids[i], v);
            assert_int_equal(labels[i], v % 3 ? -100 : v);
        }
        assert_int_equal(count_labels(d, 0, 6), 10);
        assert_int_equal(count_labels(d, 5, 2), 3); /* 27; 0, 3 */
        weft_data_close(d);
        d = open_ok(path, (weft_data_options){.seq = 0});
        assert_int_equal(weft_data_seq(d), 5);
        weft_data_close(d);
        open_bad(path, (weft_data_options){.seq = 4},
                 "rows have 5 tokens, the job's seq is 4");
        open_bad(path, (weft_data_options){.seq = 5, .vocab = 29},
                 "element of input_ids 29 is 29");
        assert_int_equal(
            write_rows(path, t ? WEFT_DTYPE_I64 : WEFT_DTYPE_I32, 6, 5, 7, -1), WEFT_OK);
        open_bad(path, (weft_data_options){.seq = 5, .vocab = 30},
                 "element of labels 7 is -1");
    }
    assert_int_equal(write_rows(path, WEFT_DTYPE_I64, 6, 5, 7, 1ll << 40), WEFT_OK);
    open_bad(path, (weft_data_options){.seq = 5}, "element of labels 7 is 1099511627776");
    assert_int_equal(write_rows(path, WEFT_DTYPE_U32, 6, 5, -1, 0), WEFT_OK);
    open_bad(path, (weft_data_options){.seq = 5}, "is u32 with 2 dimensions");
    assert_int_equal(write_rows(path, WEFT_DTYPE_I32, 0, 5, -1, 0), WEFT_OK);
    open_bad(path, (weft_data_options){.seq = 5}, "no rows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutes),
        cmocka_unit_test(permutes_well),
        cmocka_unit_test(permutes_huge),
        cmocka_unit_test(stream_samples),
        cmocka_unit_test(shuffled_exactly_once),
        cmocka_unit_test(bad_streams),
        cmocka_unit_test(bad_id_found_in_fill),
        cmocka_unit_test(text_file_and_folder),
        cmocka_unit_test(megatron_types),
        cmocka_unit_test(idx_table),
        cmocka_unit_test(rows),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
