/* What is read as text: known endings, files without one, and of a folder what is text. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>

#include "data/data_priv.h"
#include "support/files.h"

static void endings(void **state)
{
    static const struct {
        const char     *path;
        weft_data__kind kind;
    } row[] = {
        {"a.txt", WEFT_DATA__KIND_TEXT},
        {"dir.d/a.C", WEFT_DATA__KIND_TEXT},
        {"src/ir/op/ops.def", WEFT_DATA__KIND_TEXT},
        {"wiki.train.tokens", WEFT_DATA__KIND_TEXT},
        {"LICENSE", WEFT_DATA__KIND_PLAIN},
        {"a.b/enwik8", WEFT_DATA__KIND_PLAIN},
        {".profile", WEFT_DATA__KIND_PLAIN},
        {"a.bin", WEFT_DATA__KIND_TOKENS},
        {"a.safetensors", WEFT_DATA__KIND_TOKENS},
        {"a.tar.gz", WEFT_DATA__KIND_FOREIGN},
        {"a.JSONL", WEFT_DATA__KIND_FOREIGN},
        {"a.npy", WEFT_DATA__KIND_FOREIGN},
        {"a.dat", WEFT_DATA__KIND_OTHER},
        {"a.txt md", WEFT_DATA__KIND_OTHER},
        {"a.", WEFT_DATA__KIND_PLAIN},
        {"a.averylongendingofafilename", WEFT_DATA__KIND_OTHER},
    };
    (void)state;

    for (size_t i = 0; i < WEFT_COUNT(row); i++)
        if (weft_data__kind_of(row[i].path) != row[i].kind)
            fail_msg("%s is %d", row[i].path, (int)weft_data__kind_of(row[i].path));
}

static int64_t tokens_of(const char *path, const char *format, const char *note)
{
    weft_data *d;
    weft_text  t = {0};
    int64_t    n;

    if (weft_data_open(path, &(weft_data_options){.seq = 1, .format = format}, &d) !=
        WEFT_OK)
        fail_msg("%s", weft_error_text());
    weft_data_describe(d, &t);
    if (note && !strstr(t.s, note)) fail_msg("'%s' lacks '%s'", t.s, note);
    n = weft_data_tokens(d);
    weft_text_fini(&t);
    weft_data_close(d);
    return n;
}

static void refuse(const char *path, const char *text)
{
    weft_data *d;

    assert_int_equal(weft_data_open(path, &(weft_data_options){.seq = 1}, &d),
                     WEFT_ERR_ARG);
    if (!strstr(weft_error_text(), text))
        fail_msg("'%s' lacks '%s'", weft_error_text(), text);
}

/* Left out of a folder, and named: binary files and text of unknown endings.  More of the latter
 * than of text, or one file of samples, and the folder is refused; data_format: text takes what
 * is text. */
static void folders(void **state)
{
    (void)state;

    mkdir(test_files_path("f"), 0777);
    test_files_write(test_files_path("f/a.c"), "abc", 3);
    test_files_write(test_files_path("f/b.md"), "def", 3);
    assert_int_equal(
        tokens_of(test_files_path("f"), NULL, "text, tokens as bytes, 6 tokens"), 6);
    test_files_write(test_files_path("f/x.json"), "{}\n", 3);
    test_files_write(test_files_path("f/x.foo"), "foo", 3);
    test_files_write(test_files_path("f/x.png"), "\x89PNG\0", 5);
    assert_int_equal(tokens_of(test_files_path("f"), NULL,
                               "left out: 1 binary files, 2 with an unknown ending"),
                     6);
    test_files_write(test_files_path("f/y.json"), "{}\n", 3);
    refuse(test_files_path("f"), "3 of its files have endings that weft does not know");
    assert_int_equal(tokens_of(test_files_path("f"), "text", "left out: 1 binary"), 15);
    mkdir(test_files_path("f/deep"), 0777);
    test_files_write(test_files_path("f/deep/z.parquet"), "PAR1", 4);
    refuse(test_files_path("f"), "holds 1 .parquet file, such as ");
    mkdir(test_files_path("m"), 0777);
    test_files_write(test_files_path("m/config.json"), "{}", 2);
    test_files_write(test_files_path("m/a.txt"), "abc", 3);
    refuse(test_files_path("m"), "is a model folder");
    assert_int_equal(tokens_of(test_files_path("m"), "text", NULL), 5);
    /* a model one level down, and a config.json that is none */
    mkdir(test_files_path("n"), 0777);
    mkdir(test_files_path("n/deep"), 0777);
    test_files_write(test_files_path("n/a.txt"), "abcdef", 6);
    test_files_write(test_files_path("n/deep/config.json"), "{\"port\": 80}", 12);
    assert_int_equal(tokens_of(test_files_path("n"), NULL, NULL), 6);
    test_files_write(test_files_path("n/deep/config.json"), "{\"model_type\": \"gpt2\"}",
                     22);
    refuse(test_files_path("n"), "n/deep is a model folder");
}

/* Endings in capital letters mean what small ones mean. */
static void capital_endings(void **state)
{
    uint16_t id[64];
    (void)state;

    for (int i = 0; i < 64; i++) id[i] = (uint16_t)(300 + i * 7);
    test_files_write(test_files_path("UP.BIN"), id, sizeof id);
    assert_int_equal(tokens_of(test_files_path("UP.BIN"), NULL, "bin, tokens as u16"),
                     64);
    test_files_write(test_files_path("MiXed.Bin"), id, sizeof id);
    assert_int_equal(tokens_of(test_files_path("MiXed.Bin"), NULL, "bin, tokens as u16"),
                     64);
    assert_int_equal(weft_data_convert(test_files_path("UP.BIN"), NULL,
                                       test_files_path("M.IDX"), NULL),
                     WEFT_OK);
    assert_int_equal(tokens_of(test_files_path("M.BIN"), NULL, "megatron"), 64);
    refuse(test_files_path("none.SAFETENSORS"), "none.SAFETENSORS");
}

/* The remedy loses no ids. */
static void numpy_remedy(void **state)
{
    (void)state;

    test_files_write(test_files_path("x.npy"), "\x93NUMPY", 6);
    refuse(test_files_path("x.npy"), ".astype('uint32').tofile('x.bin')");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endings),
        cmocka_unit_test(folders),
        cmocka_unit_test(capital_endings),
        cmocka_unit_test(numpy_remedy),
    };
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
