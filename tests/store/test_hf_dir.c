#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/status.h"
#include "store/hf_dir.h"
#include "support/files.h"

static float data[5][4] = {{0}, {1, 2}, {3, 4, 5}, {6}, {7, 8, 9, 10}};

static const weft_store_pair meta[] = {{"format", "pt"}};

static int items(weft_store_item *it)
{
    static const char *const name[] = {"e", "d", "c", "b", "a"};

    for (int i = 0; i < 5; i++)
        it[i] = (weft_store_item){name[i], WEFT_DTYPE_F32, {1, {4}}, {.data = data[i]}};
    return 5;
}

static void check_all(const char *path, int n_file)
{
    weft_store_item it[5];
    weft_store_dir *d;
    int             n = items(it);

    assert_true(weft_store_dir_has_weights(path));
    assert_int_equal(weft_store_dir_open(path, &d), WEFT_OK);
    assert_int_equal(weft_store_dir_file_count(d), n_file);
    assert_int_equal(weft_store_dir_count(d), n);
    for (int i = 0; i < n; i++) {
        const weft_store_tensor *t = weft_store_dir_find(d, it[i].name);

        assert_non_null(t);
        assert_memory_equal(t->data, it[i].from.data, 16);
        assert_string_equal(weft_store_dir_at(d, i)->name, it[i].name);
    }
    assert_null(weft_store_dir_find(d, "nobody"));
    weft_store_dir_close(d);
}

static void one_file(void **state)
{
    weft_store_item it[5];
    int             n = items(it);
    (void)state;

    assert_int_equal(weft_store_dir_write(test_files_path("one/deep"), it, n, meta, 1, 0),
                     WEFT_OK);
    check_all(test_files_path("one/deep"), 1);
    assert_int_equal(
        weft_store_dir_write(test_files_path("one/deep"), it, n, meta, 1, 80), WEFT_OK);
    assert_int_equal(
        weft_store_dir_write(test_files_path("one/deep"), it, n, meta, 1, 79),
        WEFT_ERR_ARG); /* the one file there would hide the shards */
}

static void shards(void **state)
{
    weft_store_item it[5];
    int             n = items(it);
    (void)state;

    assert_int_equal(weft_store_dir_write(test_files_path("many"), it, n, meta, 1, 40),
                     WEFT_OK);
    assert_int_equal(
        access(test_files_path("many/model-00003-of-00003.safetensors"), F_OK), 0);
    check_all(test_files_path("many"), 3);
    assert_int_equal(weft_store_dir_write(test_files_path("each"), it, n, meta, 1, 1),
                     WEFT_OK);
    check_all(test_files_path("each"), 5);
}

static void rewrite_shards(void **state)
{
    static const float now[4] = {-1, -2, -3, -4};
    weft_store_item    it[5], change = {"b", WEFT_DTYPE_F32, {1, {4}}, {.data = now}};
    weft_store_dir    *d;
    int                n = items(it);
    (void)state;

    assert_int_equal(weft_store_dir_write(test_files_path("from"), it, n, meta, 1, 40),
                     WEFT_OK);
    assert_int_equal(weft_store_dir_open(test_files_path("from"), &d), WEFT_OK);
    assert_int_equal(weft_store_dir_rewrite(d, test_files_path("to"), &change, 1),
                     WEFT_OK);
    change.name = "nobody";
    assert_int_equal(weft_store_dir_rewrite(d, test_files_path("to2"), &change, 1),
                     WEFT_ERR_ARG);
    weft_store_dir_close(d);
    for (int k = 1; k <= 3; k++) {
        char a[512], b[512];

        snprintf(a, sizeof a, "%s",
                 test_files_path("from/model-%05d-of-00003.safetensors", k));
        snprintf(b, sizeof b, "%s",
                 test_files_path("to/model-%05d-of-00003.safetensors", k));
        assert_int_equal(test_files_same(a, b), k != 2); /* b lies in the second */
    }
    assert_true(test_files_same(test_files_path("from/model.safetensors.index.json"),
                                test_files_path("to/model.safetensors.index.json")));
    assert_int_equal(weft_store_dir_open(test_files_path("to"), &d), WEFT_OK);
    assert_memory_equal(weft_store_dir_find(d, "b")->data, now, 16);
    weft_store_dir_close(d);
}

static void bad_folders(void **state)
{
    static const struct {
        const char *index, *say;
    } row[] = {
        {"{}", "weight_map"},
        {"[]", "weight_map"},
        {"{\"weight_map\":{}}", "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "'a' is no file name"},
        {"{\"weight_map\":{\"a\":\"../model.safetensors\"}}", "no plain name"},
        {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", "gone.safetensors"},
        {"{\"weight_map\":{\"zz\":\"s.safetensors\"}}", "but it is not"},
        {"{\"weight_map\":{\"e\":\"s.safetensors\"}}",
         "names 1 tensors, but its files hold 5"},
        {"{", "index.json"},
    };
    weft_store_item it[5];
    weft_store_dir *d;
    int             n = items(it);
    (void)state;

    assert_int_equal(mkdir(test_files_path("bad"), 0777), 0);
    assert_false(weft_store_dir_has_weights(test_files_path("bad")));
    assert_int_equal(weft_store_dir_open(test_files_path("bad"), &d), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "neither model.safetensors nor"));
    assert_int_equal(weft_store_write(test_files_path("bad/s.safetensors"),
                                      &(weft_store_spec){.item = it, .n_item = n}),
                     WEFT_OK);
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        test_files_write(test_files_path("bad/model.safetensors.index.json"),
                         row[i].index, strlen(row[i].index));
        assert_int_equal(weft_store_dir_open(test_files_path("bad"), &d), WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), row[i].say))
            print_error("%zu: %s\n", i, weft_error_text());
        assert_non_null(strstr(weft_error_text(), row[i].say));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file),
        cmocka_unit_test(shards),
        cmocka_unit_test(rewrite_shards),
        cmocka_unit_test(bad_folders),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
