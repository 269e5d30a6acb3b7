#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/status.h"
#include "data/data.h"
#include "data/idx.h"
#include "support/files.h"

static uint64_t id_of(const char *path, const char *format)
{
    weft_data *d = NULL;
    uint64_t   id;

    if (weft_data_open(path, &(weft_data_options){.seq = 1, .format = format}, &d) !=
        WEFT_OK)
        print_error("%s\n", weft_error_text());
    assert_non_null(d);
    id = weft_data_id(d);
    weft_data_close(d);
    return id;
}

static void round_trips(void **state)
{
    char  *p = malloc(300000), *q;
    size_t n;
    (void)state;

    for (uint32_t i = 0; i < 300000; i++) p[i] = (char)(i * i >> 4);
    test_files_write(test_files_path("t.txt"), p, 300000);

    assert_int_equal(weft_data_convert(test_files_path("t.txt"), "text",
                                       test_files_path("a.bin"), NULL),
                     WEFT_OK);
    q = test_files_read(test_files_path("a.bin"), &n);
    assert_int_equal(n, 600000);
    for (int i = 0; i < 300000; i++)
        if (q[2 * i] != p[i] || q[2 * i + 1] != 0) fail();
    free(q);
    free(p);
    assert_int_equal(
        weft_data_convert(test_files_path("a.bin"), NULL, test_files_path("m.idx"), NULL),
        WEFT_OK);
    assert_true(test_files_same(test_files_path("a.bin"), test_files_path("m.bin")));
    assert_int_equal(
        weft_data_convert(test_files_path("m"), NULL, test_files_path("b.bin"), NULL),
        WEFT_OK);
    assert_true(test_files_same(test_files_path("a.bin"), test_files_path("b.bin")));
    assert_true(id_of(test_files_path("t.txt"), "text") ==
                id_of(test_files_path("m.idx"), NULL));
    assert_true(id_of(test_files_path("t.txt"), "text") ==
                id_of(test_files_path("b.bin"), NULL));
    /* in place: b.bin gets its index and stays what it is */
    assert_int_equal(weft_data_convert(test_files_path("b.bin"), NULL,
                                       test_files_path("b.bin"), "megatron"),
                     WEFT_OK);
    assert_true(test_files_same(test_files_path("a.bin"), test_files_path("b.bin")));
    assert_true(id_of(test_files_path("b"), "megatron") ==
                id_of(test_files_path("a.bin"), "bin"));
    assert_int_not_equal(access(test_files_path("b.bin.tmp"), F_OK), 0);
}

/* A folder of files becomes one document a file. */
static void folder_to_documents(void **state)
{
    weft_data_idx x;
    size_t        n;
    char         *p;
    (void)state;

    mkdir(test_files_path("d"), 0777);
    test_files_write(test_files_path("d/1"), "abc", 3);
    test_files_write(test_files_path("d/2"), "de", 2);
    assert_int_equal(
        weft_data_convert(test_files_path("d"), NULL, test_files_path("d.idx"), NULL),
        WEFT_OK);
    p = test_files_read(test_files_path("d.idx"), &n);
    assert_int_equal(weft_data_idx_parse("d.idx", p, n, 10, &x), WEFT_OK);
    assert_int_equal(x.n_seq, 2);
    assert_int_equal(x.n_doc, 3);
    assert_int_equal(weft_data_idx_length(&x, 1), 2);
    assert_int_equal(weft_data_idx_offset(&x, 1), 6);
    free(p);
}

/* Ids past 16 bits stay out of .bin and make the pair wide. */
static void wide_ids(void **state)
{
    const int32_t  tok[3] = {1, 70000, 2};
    const int64_t  cut[2] = {0, 3};
    weft_text      t      = {0};
    weft_data_info x;
    weft_data     *d;
    (void)state;

    assert_int_equal(weft_data_idx_print(WEFT_DTYPE_I32, cut, 1, &t), WEFT_OK);
    test_files_write(test_files_path("w.bin"), tok, sizeof tok);
    test_files_write(test_files_path("w.idx"), t.s, t.n);
    weft_text_fini(&t);
    assert_int_equal(
        weft_data_convert(test_files_path("w"), NULL, test_files_path("no.bin"), NULL),
        WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "id 70000 does not fit"));
    assert_int_not_equal(access(test_files_path("no.bin"), F_OK), 0);
    assert_int_equal(
        weft_data_convert(test_files_path("w"), NULL, test_files_path("w2.idx"), NULL),
        WEFT_OK);
    assert_true(test_files_same(test_files_path("w.bin"), test_files_path("w2.bin")));
    assert_true(test_files_same(test_files_path("w.idx"), test_files_path("w2.idx")));
    assert_int_equal(
        weft_data_open(test_files_path("w2"), &(weft_data_options){.seq = 1}, &d),
        WEFT_OK);
    assert_int_equal(weft_data_inspect(d, &x), WEFT_OK);
    assert_int_equal(x.max_id, 70000);
    assert_int_equal(x.n_distinct, 3);
    weft_data_close(d);
}

static void refuses(void **state)
{
    (void)state;
    test_files_write(test_files_path("x.txt"), "abc", 3);
    assert_int_equal(
        weft_data_convert(test_files_path("x.txt"), NULL, test_files_path("x.out"), NULL),
        WEFT_ERR_ARG);
    assert_int_equal(weft_data_convert(test_files_path("x.txt"), NULL,
                                       test_files_path("x.out"), "text"),
                     WEFT_ERR_ARG);
    assert_int_equal(weft_data_convert(test_files_path("x.safetensors"), NULL,
                                       test_files_path("x.bin"), NULL),
                     WEFT_ERR_ARG);
    assert_int_equal(
        weft_data_convert(test_files_path("gone"), NULL, test_files_path("x.bin"), NULL),
        WEFT_ERR_ARG);
}

static void inspects(void **state)
{
    weft_data_info x;
    weft_data     *d;
    weft_text      t = {0};
    (void)state;

    test_files_write(test_files_path("i.txt"), "bbbaac", 6);
    assert_int_equal(
        weft_data_open(test_files_path("i.txt"), &(weft_data_options){.seq = 2}, &d),
        WEFT_OK);
    assert_int_equal(weft_data_inspect(d, &x), WEFT_OK);
    weft_data_close(d);
    assert_int_equal(x.n_token, 6);
    assert_int_equal(x.n_sample, 2);
    assert_int_equal(x.n_label, 4);
    assert_int_equal(x.min_id, 'a');
    assert_int_equal(x.max_id, 'c');
    assert_int_equal(x.n_distinct, 3);
    assert_int_equal(x.n_top, 3);
    assert_int_equal(x.top_id[0], 'b');
    assert_int_equal(x.top_count[1], 2);
    weft_data_info_print_json(&x, &t);
    assert_string_equal(
        t.s, "{\"format\":\"text\",\"dtype\":\"u8\",\"files\":1,\"tokens\":6,\"seq\":2,"
             "\"samples\":2,\"labels\":4,\"min_id\":97,\"max_id\":99,\"distinct\":3,"
             "\"top\":[[98,3],[97,2],[99,1]]}");
    weft_text_fini(&t);
    weft_data_info_print(&x, &t);
    assert_non_null(strstr(t.s, "commonest 98 (50.0 %)"));
    weft_text_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips), cmocka_unit_test(folder_to_documents),
        cmocka_unit_test(wide_ids),    cmocka_unit_test(refuses),
        cmocka_unit_test(inspects),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
