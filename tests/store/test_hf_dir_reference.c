/* The weights and tokens of ../shared/reference, where they are: all open, all copy byte
 * for byte. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/status.h"
#include "store/hf_dir.h"
#include "support/files.h"

#define ROOT "../shared/reference"

static void folders_copy(void **state)
{
    static const char *const model[] = {"gpt2",    "llama", "qwen2",
                                        "mixtral", "bert",  "ernie"};
    (void)state;

    if (access(ROOT "/gpt2/init/model.safetensors", F_OK) != 0) {
        print_message("skipped: no " ROOT "\n");
        skip();
    }
    for (size_t i = 0; i < WEFT_COUNT(model); i++) {
        char            from[256], to[256];
        weft_store_dir *d;

        snprintf(from, sizeof from, ROOT "/%s/init", model[i]);
        assert_int_equal(weft_store_dir_open(from, &d), WEFT_OK);
        assert_int_equal(
            weft_store_dir_rewrite(d, test_files_path("%s", model[i]), NULL, 0), WEFT_OK);
        weft_store_dir_close(d);
        snprintf(from, sizeof from, ROOT "/%s/init/model.safetensors", model[i]);
        snprintf(to, sizeof to, "%s", test_files_path("%s/model.safetensors", model[i]));
        assert_true(test_files_same(from, to));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(folders_copy)};
    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
