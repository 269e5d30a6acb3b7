#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "ckpt/manifest.h"

static weft_ckpt_manifest sample(void)
{
    static uint32_t        crc[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0xffffffff};
    static weft_ckpt_entry file[]  = {
         {"model.safetensors", {9ll * WEFT_STORE_BLOCK + 1, 10, crc}},
         {"state.json", {0, 0, crc}}};

    return (weft_ckpt_manifest){123456789012, "step-123456789012", 2, file};
}

static void round_trip(void **state)
{
    weft_ckpt_manifest m = sample(), b;
    weft_text          t = {0}, u = {0};
    (void)state;

    assert_int_equal(weft_ckpt_manifest_print(&m, &t), WEFT_OK);
    assert_int_equal(weft_ckpt_manifest_parse("m", t.s, t.n, &b), WEFT_OK);
    assert_int_equal(weft_ckpt_manifest_print(&b, &u), WEFT_OK);
    assert_string_equal(t.s, u.s);
    assert_true(b.step == m.step);
    assert_string_equal(b.dir, m.dir);
    assert_memory_equal(b.file[0].sum.crc, m.file[0].sum.crc, 40);
    weft_ckpt_manifest_fini(&b);
    weft_text_fini(&t);
    weft_text_fini(&u);
}

/* No prefix, no flip of any bit, no byte more is a manifest. */
static void damaged(void **state)
{
    weft_ckpt_manifest m = sample(), b;
    weft_text          t = {0};
    (void)state;

    assert_int_equal(weft_ckpt_manifest_print(&m, &t), WEFT_OK);
    for (size_t n = 0; n < t.n; n++)
        assert_int_equal(weft_ckpt_manifest_parse("m", t.s, n, &b), WEFT_ERR_ARG);
    for (size_t bit = 0; bit < 8 * t.n; bit++) {
        t.s[bit / 8] = (char)(t.s[bit / 8] ^ (1 << bit % 8));
        assert_int_equal(weft_ckpt_manifest_parse("m", t.s, t.n, &b), WEFT_ERR_ARG);
        t.s[bit / 8] = (char)(t.s[bit / 8] ^ (1 << bit % 8));
    }
    weft_text_put(&t, "\n", 1);
    assert_int_equal(weft_ckpt_manifest_parse("m", t.s, t.n, &b), WEFT_ERR_ARG);
    weft_text_fini(&t);
}

#define GOOD "weft-manifest 1\nstep 1\ndir d\nblock 4194304\n"

/* Wrong words under a right checksum. */
static void wrong_words(void **state)
{
    static const char *const text[] = {
        "",
        "weft-manifest 2\nstep 1\ndir d\nblock 4194304\n",
        "weft-manifest 1\nstep 01\ndir d\nblock 4194304\n",
        "weft-manifest 1\nstep -1\ndir d\nblock 4194304\n",
        "weft-manifest 1\nstep 99999999999999999999\ndir d\nblock 4194304\n",
        "weft-manifest 1\nstep 1\ndir ..\nblock 4194304\n",
        "weft-manifest 1\nstep 1\ndir a/b\nblock 4194304\n",
        "weft-manifest 1\nstep 1\ndir d\nblock 4096\n",
        GOOD "file x 1 1 0000000000000000\ncrc 00000000\n",
        GOOD "file x 9223372036854775807 1 0\n",
        GOOD "file x 1 0 0000000000000000\n",
        GOOD "junk\n",
    };
    weft_ckpt_manifest b;
    (void)state;

    for (size_t i = 0; i < WEFT_COUNT(text); i++) {
        weft_text t = {0};

        weft_text_add(&t, "%s", text[i]);
        weft_text_add(&t, "end %08x\n", weft_hash_crc32c(0, text[i], strlen(text[i])));
        assert_int_equal(weft_ckpt_manifest_parse("m", t.s, t.n, &b), WEFT_ERR_ARG);
        assert_non_null(strstr(weft_error_text(), "not a manifest"));
        weft_text_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(damaged),
        cmocka_unit_test(wrong_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
