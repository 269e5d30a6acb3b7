/* cmocka with its headers in the order it wants, and how our tests look at a status. */
#ifndef WEFT_TEST_SUPPORT_H
#define WEFT_TEST_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "weft/base.h"

/* From one case of a table, or draw, to the next: all in the plain run, every n-th in the sanitized
 * one, which looks for memory errors and not for numbers. */
#define TEST_STRIDE(n) (WEFT_TEST_SANITIZED ? (n) : 1)

/* WEFT_TEST_LONG (make long): all cases; make test takes every n-th of similar ones. */
#define TEST_LONG   (getenv("WEFT_TEST_LONG") != NULL)
#define TEST_FEW(n) (TEST_LONG ? 1 : (n))

/* WEFT_TEST_SPLIT (make test, which builds both trees): what takes long runs in one of them, the
 * plain or the sanitized one.  TEST_HERE(k): of a table or of draws the k-th runs here.
 * test_plain(f), test_sanitized(f): of a list of tests this one runs there. */
#define TEST_SPLIT        (getenv("WEFT_TEST_SPLIT") != NULL && !TEST_LONG)
#define TEST_HERE(k)      (!TEST_SPLIT || (k) % 2 == WEFT_TEST_SANITIZED)
#define test_plain(f)     TEST_OF_TREE(f, 0)
#define test_sanitized(f) TEST_OF_TREE(f, 1)
#define TEST_OF_TREE(f, tree)                                                            \
    {                                                                                    \
        .name      = #f,                                                                 \
        .test_func = TEST_SPLIT && WEFT_TEST_SANITIZED != (tree) ? test_elsewhere : (f)  \
    }

static inline void test_elsewhere(void **state)
{
    (void)state;
    print_message("in the other tree\n");
}

/* The call succeeds; if not, its message is shown. */
#define assert_ok(call)                                                                  \
    do {                                                                                 \
        if ((call) != WEFT_OK) fail_msg("%s: %s", #call, weft_error_text());             \
    } while (0)

/* The call fails with that status and says `words` somewhere in its message. */
#define assert_fails(call, want, words)                                                  \
    do {                                                                                 \
        weft_status got_ = (call);                                                       \
        if (got_ != (want))                                                              \
            fail_msg("%s: %s, expected %s", #call, weft_status_name(got_),               \
                     weft_status_name(want));                                            \
        if (!strstr(weft_error_text(), (words)))                                         \
            fail_msg("%s: said '%s', expected '%s' in it", #call, weft_error_text(),     \
                     (words));                                                           \
    } while (0)

#endif
