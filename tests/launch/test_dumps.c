/* Dumps of ranks side by side: who is missing in which call, who calls another one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "launch/dumps.h"

/* A dump with one group of ranks 0 and 1, or messages from 1 to 0. */
static void add_rank(weft_dumps *d, int rank, int epoch, const char *entries)
{
    char text[4096], name[32];
    snprintf(name, sizeof name, "rank%d.json", rank);
    snprintf(
        text, sizeof text,
        "{\"format\": 1, \"rank\": %d, \"world\": 2, \"epoch\": %d, \"printed_s\": 100, "
        "\"groups\": [{\"tag\": 3, \"ranks\": [0, 1]}, {\"tag\": 4, \"ranks\": [1, 0]}], "
        "\"entries\": [%s]}",
        rank, epoch, entries);
    if (weft_dumps_add(d, name, text, strlen(text)) != WEFT_OK)
        fail_msg("%s", weft_error_text());
}

#define CALL(kind, op, group, seq, bytes, begun, ended)                                  \
    "{\"kind\": \"" kind "\", \"op\": \"" op                                             \
    "\", \"name\": \"x\", \"epoch\": 2, \"step\": 5, "                                   \
    "\"group\": " #group ", \"seq\": " #seq ", \"bytes\": " #bytes                       \
    ", \"begun_s\": " #begun ended "}"
#define ENDED(at) ", \"ended_s\": " #at
#define TASK(begun, ended)                                                               \
    "{\"kind\": \"task\", \"op\": \"matmul\", \"name\": \"h\", \"epoch\": 2, \"step\": " \
    "5, "                                                                                \
    "\"begun_s\": " #begun ended "}"

static void explain(const char *zero, const char *one, bool mismatch, const char *says)
{
    weft_dumps *d;
    weft_text   t = {0};
    assert_int_equal(weft_dumps_create(&d), WEFT_OK);
    add_rank(d, 0, 2, zero);
    if (one) add_rank(d, 1, 2, one);
    if (weft_dumps_explain(d, &t) != mismatch || !strstr(t.s, says))
        fail_msg("not %s:\n%s", says, t.s);
    weft_text_fini(&t);
    weft_dumps_destroy(d);
}

static void mismatches(void **state)
{
    (void)state;
    /* rank 1 hangs in a task before call 7 */
    explain(CALL("collective", "all_reduce", 0, 6, 8, 90,
                 ENDED(91)) "," CALL("collective", "all_reduce", 0, 7, 8, 95, ""),
            CALL("collective", "all_reduce", 0, 6, 8, 90, ENDED(91)) "," TASK(92, ""),
            true,
            "first mismatch: all_reduce 'x' of step 5 (call 7 of tag 3, ranks 0 1): rank "
            "0 has "
            "waited in it for 5 s; missing: rank 1\n");
    explain(CALL("collective", "all_reduce", 0, 7, 8, 95, ""), TASK(92, ""), true,
            "rank 1: matmul 'h' of step 5 runs for 8 s\n");
    /* no dump of it */
    explain(CALL("collective", "all_reduce", 0, 7, 8, 95, ""), NULL, true,
            "missing: rank 1");
    /* another call, or another size */
    explain(CALL("collective", "all_reduce", 0, 7, 8, 95, ""),
            CALL("collective", "all_gather", 0, 7, 8, 95, ""), true,
            "rank 1 calls all_gather");
    explain(CALL("collective", "all_reduce", 0, 7, 8, 95, ENDED(96)),
            CALL("collective", "all_reduce", 0, 7, 16, 95, ENDED(96)), true,
            "with 16 bytes");
    /* a message that was not sent */
    explain(CALL("recv", "recv", 1, 2, 8, 95, ""),
            CALL("send", "send", 1, 1, 8, 90, ENDED(91)), true,
            "first mismatch: recv 'x' of step 5 (call 2 of tag 4, ranks 1 0)");
}

static void nothing_is_wrong(void **state)
{
    (void)state;
    explain(CALL("collective", "all_reduce", 0, 7, 8, 95, ""),
            CALL("collective", "all_reduce", 0, 7, 8, 95, ""), false, "no mismatch");
    /* what rank 1 did is so long ago that its ring has lost it */
    explain(CALL("collective", "all_reduce", 0, 7, 8, 95, ""),
            CALL("collective", "all_reduce", 0, 9, 8, 95, ""), true, "call 9");
    /* shares of other kinds may be uneven; a send waits for nobody */
    explain(CALL("collective", "all_gather", 0, 7, 8, 95, ENDED(96)),
            CALL("collective", "all_gather", 0, 7, 16, 95, ENDED(96)), false,
            "no mismatch");
    explain(TASK(90, ENDED(91)), CALL("send", "send", 1, 1, 8, 90, ""), false,
            "no mismatch");
    explain("", "", false, "rank 1: nothing was recorded");
}

static void what_is_no_dump(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"format\": 2, \"rank\": 0, \"epoch\": 0, \"printed_s\": 0, \"groups\": [], "
        "\"entries\": []}",
        "{\"format\": 1, \"rank\": -1, \"epoch\": 0, \"printed_s\": 0, \"groups\": [], "
        "\"entries\": []}",
        "{\"format\": 1, \"rank\": 0, \"epoch\": 0, \"printed_s\": 0, \"groups\": [1], "
        "\"entries\": []}",
        "{\"format\": 1, \"rank\": 0, \"epoch\": 0, \"printed_s\": 0, \"groups\": "
        "[{\"tag\": 0, "
        "\"ranks\": [\"x\"]}], \"entries\": []}",
        "{\"format\": 1, \"rank\": 0, \"epoch\": 0, \"printed_s\": 0, \"groups\": [], "
        "\"entries\": [{}]}",
    };
    weft_dumps *d;
    (void)state;
    assert_int_equal(weft_dumps_create(&d), WEFT_OK);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        if (weft_dumps_add(d, "bad.json", bad[k], strlen(bad[k])) != WEFT_ERR_ARG)
            fail_msg("taken: %s", bad[k]);
    assert_int_equal(weft_dumps_count(d), 0);
    add_rank(d, 0, 2, "");
    const char *second =
        "{\"format\": 1, \"rank\": 0, \"epoch\": 0, \"printed_s\": 0, \"groups\": "
        "[], \"entries\": []}";
    assert_int_equal(weft_dumps_add(d, "x", second, strlen(second)), WEFT_ERR_ARG);
    weft_dumps_destroy(d);
    weft_dumps_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mismatches),
        cmocka_unit_test(nothing_is_wrong),
        cmocka_unit_test(what_is_no_dump),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
