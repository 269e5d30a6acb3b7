#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/text.h"
#include "store/safetensors.h"
#include "support/files.h"
#include "support/test.h"

/* The bytes of a file with this header and n_data bytes 0,1,2,.. after it. */
static char *make(const char *header, size_t n_header, size_t n_data, size_t *n)
{
    char *p = malloc(8 + n_header + n_data + 1);

    for (int i = 0; i < 8; i++) p[i] = (char)((uint64_t)n_header >> (8 * i));
    memcpy(p + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++) p[8 + n_header + i] = (char)i;
    *n = 8 + n_header + n_data;
    return p;
}

#define T(name, dt, shape, off)                                                          \
    "\"" name "\":{\"dtype\":\"" dt "\",\"shape\":" shape ",\"data_offsets\":" off "}"

/* Each bad file and the words that its one line must hold. */
static const struct {
    const char *header;
    int         n_data;
    const char *say;
} bad[] = {
    {"", 0, "does not start with '{'"},
    {"[]", 0, "does not start with '{'"},
    {" {}", 0, "does not start with '{'"},
    {"{", 0, "x"},
    {"{}x", 0, "x"},
    {"{}", 1, "1 bytes after the last tensor"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 7, "truncated: tensor 'a' ends at byte 8"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 9, "1 bytes after the last tensor"},
    {"{" T("a", "F32", "[2]", "[0,4]") "}", 4, "take 8 bytes, data_offsets give 4"},
    {"{" T("a", "F32", "[2]", "[8,0]") "}", 8, "begin <= end"},
    {"{" T("a", "F32", "[2]", "[-8,0]") "}", 8, "begin <= end"},
    {"{" T("a", "F32", "[2]", "[0]") "}", 8, "two numbers"},
    {"{" T("a", "F32", "[2]", "[0,8,9]") "}", 8, "two numbers"},
    {"{" T("a", "F32", "[2]", "[0.0,8]") "}", 8, "begin <= end"},
    {"{" T("a", "F32", "[2]", "\"0,8\"") "}", 8, "two numbers"},
    {"{" T("a", "f32", "[2]", "[0,8]") "}", 8, "unknown dtype 'f32'"},
    {"{" T("a", "F33", "[2]", "[0,8]") "}", 8, "unknown dtype 'F33'"},
    {"{" T("a", "F32", "[-2]", "[0,8]") "}", 8, "whole number"},
    {"{" T("a", "F32", "[2.0]", "[0,8]") "}", 8, "whole number"},
    {"{" T("a", "F32", "2", "[0,8]") "}", 8, "no list 'shape'"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8, "more than 8 dimensions"},
    {"{" T("a", "F32", "[4611686018427387904,4]", "[0,0]") "}", 0, "impossibly large"},
    {"{" T("a", "F32", "[4294967296,4294967296,0]", "[0,0]") "}", 0, "impossibly large"},
    {"{" T("a", "U8", "[99999999999999999999]", "[0,0]") "}", 0, "whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "two numbers"},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no 'dtype'"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "no list 'shape'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
     "a key other than"},
    {"{\"a\":7}", 0, "no map"},
    {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[2,6]") "}", 6, "overlap"},
    {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[0,4]") "}", 4, "overlap"},
    {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[5,9]") "}", 9,
     "belong to no tensor"},
    {"{" T("a", "U8", "[4]", "[1,5]") "}", 5, "belong to no tensor"},
    {"{" T("a", "U8", "[4]", "[0,4]") "," T("a", "U8", "[4]", "[4,8]") "}", 8, "a"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "a value is no string"},
    {"{\"__metadata__\":[]}", 0, "is no map"},
    {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "x"},
};

static void malformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        size_t n;
        char  *p = make(bad[i].header, strlen(bad[i].header), (size_t)bad[i].n_data, &n);
        weft_store_file *f  = NULL;
        weft_status      st = weft_store_parse("x", p, n, &f);

        if (st != WEFT_ERR_ARG || !strstr(weft_error_text(), bad[i].say))
            print_error("row %zu %s: %d '%s'\n", i, bad[i].header, st, weft_error_text());
        assert_int_equal(st, WEFT_ERR_ARG);
        assert_null(f);
        assert_non_null(strstr(weft_error_text(), bad[i].say));
        assert_null(strchr(weft_error_text(), '\n'));
        free(p);
    }
}

static void bad_lengths(void **state)
{
    static const struct {
        uint8_t     len[8];
        const char *say;
    } row[] = {
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "at most 100000000"},
        {{0x01, 0xe1, 0xf5, 0x05}, "at most 100000000"},
        {{0x00, 0xe1, 0xf5, 0x05}, "truncated: header of 100000000"},
        {{3}, "truncated: header of 3"},
        {{0}, "does not start with '{'"},
    };
    weft_store_file *f;
    (void)state;

    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        uint8_t p[10] = {0};

        memcpy(p, row[i].len, 8);
        memcpy(p + 8, "{}", 2);
        assert_int_equal(weft_store_parse("x", p, 10, &f), WEFT_ERR_ARG);
        assert_non_null(strstr(weft_error_text(), row[i].say));
    }
    for (size_t n = 0; n < 8; n++)
        assert_int_equal(weft_store_parse("x", "\2\0\0\0\0\0\0\0{}", n, &f),
                         WEFT_ERR_ARG);
    assert_int_equal(weft_store_open(test_files_path("nothing"), &f), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "nothing"));
    test_files_write(test_files_path("empty"), "", 0);
    assert_int_equal(weft_store_open(test_files_path("empty"), &f), WEFT_ERR_ARG);
}

static void empty_and_empty_tensors(void **state)
{
    static const char h[] =
        "{" T("z", "F32", "[0,3]", "[4,4]") "," T("b", "U8", "[4]", "[0,4]") "," T(
            "s", "U8", "[]", "[4,5]") "," T("y", "F64", "[0]", "[0,0]") "}";
    weft_store_file *f;
    size_t           n;
    char            *p = make(h, strlen(h), 5, &n);
    (void)state;

    assert_int_equal(weft_store_parse("x", p, n, &f), WEFT_OK);
    assert_int_equal(weft_store_count(f), 4);
    assert_string_equal(weft_store_at(f, 0)->name, "z"); /* header's order */
    assert_string_equal(weft_store_at_data(f, 0)->name, "y");
    assert_int_equal(weft_store_find(f, "s")->shape.n, 0);
    assert_int_equal(weft_store_find(f, "s")->bytes, 1);
    assert_null(weft_store_find(f, "q"));
    weft_store_close(f);
    free(p);
    p = make("{}", 2, 0, &n);
    assert_int_equal(weft_store_parse("x", p, n, &f), WEFT_OK);
    assert_int_equal(weft_store_count(f), 0);
    assert_null(weft_store_find(f, ""));
    weft_store_close(f);
    free(p);
}

/* One tensor of each type, names that need escapes, a source by memory and one by
 * function. */
static weft_status count_up(void *arg, int64_t offset, void *buf, size_t n)
{
    (void)arg;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)buf)[i] = (uint8_t)((offset + (int64_t)i) * 7);
    return WEFT_OK;
}

static int fill_items(weft_store_item *item, char name[][32])
{
    static uint8_t data[8 * 6];

    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 5 + 1);
    for (int t = 0; t < WEFT_N_DTYPE; t++) {
        snprintf(name[t], 32, "t.\"%d\"\\\xc3\xa9\n", t);
        item[t] = (weft_store_item){name[t], (weft_dtype)t, {2, {2, 3}}, {.data = data}};
    }
    item[WEFT_N_DTYPE] = (weft_store_item){
        "big", WEFT_DTYPE_F32, {2, {1 << 11, (1 << 10) + 3}}, {.read = count_up}};
    item[WEFT_N_DTYPE + 1] = (weft_store_item){"none", WEFT_DTYPE_F32, {1, {0}}, {0}};
    item[WEFT_N_DTYPE + 2] =
        (weft_store_item){"one", WEFT_DTYPE_F32, {0, {0}}, {.data = data}};
    return WEFT_N_DTYPE + 3;
}

static void write_and_read(void **state)
{
    static const weft_store_pair meta[] = {{"format", "pt"}, {"what", "a \"test\"\n"}};
    weft_store_item              item[WEFT_N_DTYPE + 3];
    char                         name[WEFT_N_DTYPE][32];
    int                          n    = fill_items(item, name);
    const char                  *path = test_files_path("a.safetensors");
    weft_store_file             *f;
    (void)state;

    assert_int_equal(weft_store_write(path, &(weft_store_spec){item, n, meta, 2, NULL}),
                     WEFT_OK);
    assert_int_equal(weft_store_open(path, &f), WEFT_OK);
    assert_int_equal(weft_store_count(f), n);
    assert_int_equal(weft_store_meta_count(f), 2);
    assert_string_equal(weft_store_meta(f, 1)->value, "a \"test\"\n");
    for (int i = 0; i < n; i++) {
        const weft_store_tensor *t = weft_store_at(f, i);

        assert_string_equal(t->name, item[i].name);
        assert_ptr_equal(weft_store_find(f, item[i].name), t);
        assert_int_equal(t->dtype, item[i].dtype);
        assert_true(weft_shape_equal(&t->shape, &item[i].shape));
        if (item[i].from.data)
            assert_memory_equal(t->data, item[i].from.data, (size_t)t->bytes);
        if (item[i].from.read)
            for (int64_t k = 0; k < t->bytes; k++)
                if (((const uint8_t *)t->data)[k] != (uint8_t)(k * 7)) fail();
    }
    weft_store_close(f);
    assert_int_not_equal(access(test_files_path("a.safetensors.tmp"), F_OK), 0);
}

/* Spaces after the header: the data begins where it is asked to, and is the same. */
static void aligned_data(void **state)
{
    weft_store_item    item = {"a", WEFT_DTYPE_F32, {1, {3}}, {.data = "0123456789ab"}};
    const char        *path = test_files_path("aligned.safetensors");
    weft_store_writer *w;
    weft_store_file   *f;
    size_t             n_header, n;
    (void)state;

    assert_ok(
        weft_store_writer_create(&(weft_store_spec){.item = &item, .n_item = 1}, &w));
    for (int k = 0; k < 2; k++) /* again: there is nothing to add */
        assert_ok(weft_store_writer_align(w, 4096));
    (void)weft_store_writer_header(w, &n_header);
    assert_int_equal(n_header, 4096);
    assert_int_equal(weft_store_writer_bytes(w), 4096 + 12);
    assert_ok(weft_store_writer_begin(w, path));
    assert_ok(weft_store_writer_put_all(w));
    assert_ok(weft_store_writer_end(w, NULL));
    weft_store_writer_destroy(w);
    char *p = test_files_read(path, &n);
    assert_int_equal(n, 4096 + 12);
    assert_memory_equal(p + 4096, "0123456789ab", 12);
    free(p);
    assert_ok(weft_store_open(path, &f));
    assert_memory_equal(weft_store_find(f, "a")->data, "0123456789ab", 12);
    weft_store_close(f);
}

/* The sums of a file are those of its blocks, however the pieces came. */
static void sums(void **state)
{
    size_t         n       = (size_t)WEFT_STORE_BLOCK * 2 + 12345;
    uint8_t       *p       = malloc(n);
    const size_t   piece[] = {1000003, 1 << 20, (size_t)WEFT_STORE_BLOCK, n};
    weft_store_sum first   = {0};
    (void)state;

    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(i * i >> 3);
    for (size_t k = 0; k < WEFT_COUNT(piece); k++) {
        const char    *path = test_files_path("sum%zu", k);
        weft_store_out o;
        weft_store_sum s;
        size_t         m;
        char          *q;

        assert_int_equal(weft_store_out_open(&o, path, (int64_t)n), WEFT_OK);
        for (size_t at = 0; at < n; at += piece[k])
            assert_int_equal(
                weft_store_out_put(&o, p + at, n - at < piece[k] ? n - at : piece[k]),
                WEFT_OK);
        assert_int_equal(weft_store_out_close(&o, &s), WEFT_OK);
        assert_int_equal(s.n_block, 3);
        q = test_files_read(path, &m);
        assert_int_equal(m, n);
        assert_memory_equal(p, q, n);
        free(q);
        if (k == 0) {
            first = s;
            continue;
        }
        assert_memory_equal(first.crc, s.crc, 3 * sizeof s.crc[0]);
        assert_true(weft_store_sum_hash(&first) == weft_store_sum_hash(&s));
        weft_store_sum_fini(&s);
    }
    weft_store_sum_fini(&first);
    free(p);
}

static void too_few_and_too_many(void **state)
{
    weft_store_out o;
    (void)state;

    assert_int_equal(weft_store_out_open(&o, test_files_path("few"), 4), WEFT_OK);
    assert_int_equal(weft_store_out_put(&o, "abcde", 5), WEFT_ERR_INTERNAL);
    assert_int_equal(weft_store_out_put(&o, "abc", 3), WEFT_OK);
    assert_int_equal(weft_store_out_close(&o, NULL), WEFT_ERR_INTERNAL);
}

/* What no one else's writer would do: odd order, spaces, an odd header length.  A rewrite
 * keeps it all, and changes only what it was told to change. */
static void rewrite_keeps_bytes(void **state)
{
    static const char h[] =
        "{ " T("z", "U8", "[3]", "[8,11]") ",\n\"__metadata__\":{\"k\":\"v\"}, " T(
            "a", "F32", "[ 2 ]", "[0,8]") "}   ";
    const char      *from = test_files_path("like"), *to = test_files_path("copy");
    size_t           n, m;
    char            *p = make(h, strlen(h), 11, &n), *q;
    weft_store_file *f;
    weft_store_item  it = {"a", WEFT_DTYPE_F32, {1, {2}}, {.data = "abcdefgh"}};
    (void)state;

    test_files_write(from, p, n);
    assert_int_equal(weft_store_open(from, &f), WEFT_OK);
    assert_int_equal(weft_store_write(to, &(weft_store_spec){.like = f}), WEFT_OK);
    assert_true(test_files_same(from, to));
    assert_int_equal(
        weft_store_write(to, &(weft_store_spec){.item = &it, .n_item = 1, .like = f}),
        WEFT_OK);
    memcpy(p + 8 + strlen(h), "abcdefgh", 8);
    q = test_files_read(to, &m);
    assert_int_equal(m, n);
    assert_memory_equal(p, q, n);
    free(q);
    free(p);

    it.shape.d[0] = 1;
    assert_int_equal(
        weft_store_write(to, &(weft_store_spec){.item = &it, .n_item = 1, .like = f}),
        WEFT_ERR_ARG);
    it.name = "nobody";
    assert_int_equal(
        weft_store_write(to, &(weft_store_spec){.item = &it, .n_item = 1, .like = f}),
        WEFT_ERR_ARG);
    weft_store_close(f);
}

static void refuses_to_write(void **state)
{
    weft_store_item    it[2] = {{"a", WEFT_DTYPE_U8, {1, {1}}, {.data = "x"}},
                                {"a", WEFT_DTYPE_U8, {1, {1}}, {.data = "x"}}};
    weft_store_writer *w;
    (void)state;

    assert_int_equal(
        weft_store_writer_create(&(weft_store_spec){.item = it, .n_item = 2}, &w),
        WEFT_ERR_ARG);
    it[1].name = "__metadata__";
    assert_int_equal(
        weft_store_writer_create(&(weft_store_spec){.item = it, .n_item = 2}, &w),
        WEFT_ERR_ARG);
    it[1].name    = "b";
    it[1].shape.n = 9;
    assert_int_equal(
        weft_store_writer_create(&(weft_store_spec){.item = it, .n_item = 2}, &w),
        WEFT_ERR_ARG);
}

/* Every prefix of a good file is refused, and no flip of one header bit crashes. */
static void truncations_and_flips(void **state)
{
    static const char h[] =
        "{" T("a", "F32", "[2]", "[0,8]") "," T("b", "U8", "[3]", "[8,11]") "}";
    weft_store_file *f;
    size_t           n;
    char            *p = make(h, strlen(h), 11, &n);
    (void)state;

    for (size_t k = 0; k < n; k++) {
        /* its own block, so that a sanitizer sees a read past it */
        char *q = malloc(k + 1);

        memcpy(q, p, k);
        assert_int_equal(weft_store_parse("x", q, k, &f), WEFT_ERR_ARG);
        free(q);
    }
    for (size_t bit = 0; bit < 8 * (8 + strlen(h)); bit++) {
        p[bit / 8] = (char)(p[bit / 8] ^ (1 << (bit % 8)));
        if (weft_store_parse("x", p, n, &f) == WEFT_OK) weft_store_close(f);
        p[bit / 8] = (char)(p[bit / 8] ^ (1 << (bit % 8)));
    }
    free(p);
}

/* A file that gets shorter after it was opened: what is missing is an error, what is written from
 * it stays the old one. */
static void truncated_after_open(void **state)
{
    static char      bytes[40000];
    const char      *path = test_files_path("cut.safetensors");
    weft_store_item  item = {"x", WEFT_DTYPE_U8, {1, {sizeof bytes}}, {.data = bytes}};
    weft_store_file *f;
    char             buf[16], to[512];
    size_t           n;
    (void)state;

    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 7);
    assert_int_equal(
        weft_store_write(path, &(weft_store_spec){.item = &item, .n_item = 1}), WEFT_OK);
    assert_int_equal(weft_store_open(path, &f), WEFT_OK);
    assert_int_equal(weft_store_read(weft_store_at(f, 0), 39990, buf, 10), WEFT_OK);
    assert_memory_equal(buf, bytes + 39990, 10);
    assert_int_equal(truncate(path, 20000), 0);
    assert_int_equal(weft_store_read(weft_store_at(f, 0), 39990, buf, 10), WEFT_ERR_IO);
    assert_non_null(strstr(weft_error_text(), "was truncated while it was being read"));
    snprintf(to, sizeof to, "%s", test_files_path("kept.safetensors"));
    test_files_write(to, "old", 3);
    assert_int_equal(weft_store_write(to, &(weft_store_spec){.like = f}), WEFT_ERR_IO);
    char *old = test_files_read(to, &n);
    assert_int_equal(n, 3);
    free(old);
    weft_store_close(f);
}

static const char *python(void)
{
    const char *py = getenv("WEFT_PYTHON");

    return py ? py : "python3";
}

/* The Python package reads what we write and we read what it writes. */
static void python_package(void **state)
{
    char             cmd[4096];
    weft_store_item  item[WEFT_N_DTYPE + 3];
    char             name[WEFT_N_DTYPE][32];
    int              n = fill_items(item, name);
    weft_store_file *f;
    (void)state;

    snprintf(cmd, sizeof cmd, "%s -c 'import safetensors.numpy' 2>/dev/null", python());
    if (system(cmd) != 0) {
        print_message("skipped: no Python package safetensors (set WEFT_PYTHON)\n");
        skip();
    }
    assert_int_equal(weft_store_write(test_files_path("ours.safetensors"),
                                      &(weft_store_spec){.item = item, .n_item = n}),
                     WEFT_OK);
    snprintf(cmd, sizeof cmd,
             "cd %s && %s -c '\n"
             "from safetensors import safe_open, deserialize\n"
             "import numpy, safetensors.numpy\n"
             "d = dict(deserialize(open(\"ours.safetensors\",\"rb\").read()))\n"
             "assert len(d) == %d, len(d)\n"
             "want = bytes((i*7) %% 256 for i in range(1<<16))\n"
             "assert d[\"big\"][\"data\"][:1<<16] == want and d[\"big\"][\"shape\"] == "
             "[2048,1027]\n"
             "assert d[\"one\"][\"shape\"] == [] and d[\"none\"][\"shape\"] == [0]\n"
             "safetensors.numpy.save_file({\"b\": numpy.arange(6, "
             "dtype=\"int64\").reshape(2,3),"
             " \"a\": numpy.arange(3, dtype=\"float32\")}, \"theirs.safetensors\", "
             "{\"k\": \"v\"})\n"
             "'",
             test_files_path("."), python(), n);
    assert_int_equal(system(cmd), 0);
    assert_int_equal(weft_store_open(test_files_path("theirs.safetensors"), &f), WEFT_OK);
    assert_int_equal(weft_store_count(f), 2);
    assert_int_equal(((const int64_t *)weft_store_find(f, "b")->data)[5], 5);
    assert_string_equal(weft_store_meta(f, 0)->value, "v");
    assert_int_equal(weft_store_write(test_files_path("copy.safetensors"),
                                      &(weft_store_spec){.like = f}),
                     WEFT_OK);
    assert_true(test_files_same(test_files_path("theirs.safetensors"),
                                test_files_path("copy.safetensors")));
    weft_store_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed),
        cmocka_unit_test(bad_lengths),
        cmocka_unit_test(empty_and_empty_tensors),
        cmocka_unit_test(write_and_read),
        cmocka_unit_test(aligned_data),
        cmocka_unit_test(sums),
        cmocka_unit_test(too_few_and_too_many),
        cmocka_unit_test(rewrite_keeps_bytes),
        cmocka_unit_test(refuses_to_write),
        cmocka_unit_test(truncations_and_flips),
        cmocka_unit_test(truncated_after_open),
        cmocka_unit_test(python_package),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
