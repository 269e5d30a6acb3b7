/* src/runtime/plugin/plugin.c: plugins that are missing, damaged or of another build are refused in
 * one line, before anything of theirs runs. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "plugin/plugin.h"
#include "support/files.h"

static void check_refusal(const char *folder, const char *words)
{
    const weft_plugin *p = NULL;
    weft_device       *d = NULL;
    setenv("WEFT_PLUGINS", folder, 1);
    assert_fails(weft_plugin_open("cuda", &p), WEFT_ERR_ARG, words);
    assert_fails(weft_plugin_open_device("cuda", 0, &d), WEFT_ERR_ARG, words);
    assert_null(p);
    assert_null(d);
}

static void test_other_builds(void **state)
{
    (void)state;
    check_refusal(
        WEFT_TEST_OTHER_BUILD "/build",
        "libweft_cuda.so is of another build (weft 0.0.1, 3 operators, sizes 1 2 3, "
        "a table of ");
    assert_non_null(strstr(weft_error_text(), "): make both together"));
    char bytes[80];
    snprintf(bytes, sizeof bytes, ", a table of %d bytes; this one is weft ",
             (int)sizeof(weft_plugin) + 8);
    check_refusal(WEFT_TEST_OTHER_BUILD "/bytes", bytes);
    check_refusal(WEFT_TEST_OTHER_BUILD "/abi",
                  "libweft_cuda.so is of another build (another interface; this one is");
    check_refusal(WEFT_TEST_OTHER_BUILD "/symbol",
                  "libweft_cuda.so has no weft_plugin_cuda");
}

static void test_no_library(void **state)
{
    (void)state;
    test_files_begin();
    const char *file = test_files_path("libweft_cuda.so");
    FILE       *f    = fopen(file, "w");
    assert_non_null(f);
    fprintf(f, "not a library\n");
    fclose(f);
    char folder[512];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(file, '/') - file), file);
    check_refusal(folder, "libweft_cuda.so cannot be opened: ");
    test_files_end();
}

static void test_no_plugin(void **state)
{
    const weft_plugin *p = NULL;
    (void)state;
    setenv("WEFT_PLUGINS", "/nonexistent", 1);
    assert_fails(weft_plugin_open("rocm", &p), WEFT_ERR_ARG,
                 "device rocm: no libweft_rocm.so in WEFT_PLUGINS=/nonexistent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_other_builds),
                                       cmocka_unit_test(test_no_library),
                                       cmocka_unit_test(test_no_plugin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
