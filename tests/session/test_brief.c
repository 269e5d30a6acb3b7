/* What a rank that trains reports to those that prepare: parse(print(x)) == x, and nothing else is
 * accepted. */
#include <string.h>

#include "session/brief.h"
#include "support/test.h"

static void what_is_printed_is_read(void **state)
{
    static const char plan[] = "mesh dp=2\nand \0 more", ahead[] = "answer\n";
    weft_text         t = {0};
    weft_brief        b = {.micro_batch = 3,
                           .lanes       = 4,
                           .reduction   = "invariant",
                           .plan        = plan,
                           .plan_bytes  = sizeof plan,
                           .ahead       = ahead,
                           .ahead_bytes = sizeof ahead};
    weft_brief        back;
    (void)state;
    weft_brief_print(&b, &t);
    assert_ok(weft_brief_parse(t.s, t.n, &back));
    assert_int_equal(back.micro_batch, 3);
    assert_int_equal(back.lanes, 4);
    assert_string_equal(back.reduction, "invariant");
    assert_int_equal(back.plan_bytes, sizeof plan);
    assert_memory_equal(back.plan, plan, sizeof plan);
    assert_int_equal(back.ahead_bytes, sizeof ahead);
    assert_memory_equal(back.ahead, ahead, sizeof ahead);
    t.n          = 0;
    b.plan_bytes = b.ahead_bytes = 0; /* one rank, nothing made ahead */
    weft_brief_print(&b, &t);
    assert_ok(weft_brief_parse(t.s, t.n, &back));
    assert_int_equal(back.plan_bytes, 0);
    weft_text_fini(&t);
}

static void other_bytes_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "weft brief 2\n",
        "weft brief 3\nmicro_batch 1\nlanes 1\nreduction fixed\nplan 0 ahead 0\n",
        "weft brief 2\nmicro_batch 1\nlanes 1\nreduction fixed\nplan 0\n",
        "weft brief 2\nmicro_batch 0\nlanes 1\nreduction fixed\nplan 0 ahead 0\n",
        "weft brief 2\nmicro_batch 1\nlanes -1\nreduction fixed\nplan 0 ahead 0\n",
        "weft brief 2\nmicro_batch 01\nlanes 1\nreduction fixed\nplan 0 ahead 0\n",
        "weft brief 2\nmicro_batch  1\nlanes 1\nreduction fixed\nplan 0 ahead 0\n",
        "weft brief 2\nmicro_batch 1\nlanes 1\nreduction fixedfixedfixedfixed\nplan 0 "
        "ahead 0\n",
        "weft brief 2\nmicro_batch 1\nlanes 1\nreduction fixed\nplan 0 ahead 0",
        "weft brief 2\nmicro_batch 1\nlanes 1\nreduction fixed\nplan 0 ahead 0 \n",
        "weft brief 2\nmicro_batch 1\nlanes 1\nreduction fixed\nplan 1 ahead 0\n",
        "weft brief 2\nmicro_batch 1\nlanes 1\nreduction fixed\nplan 0 ahead 0\nx",
        "weft brief 2\nmicro_batch 1\nlanes 1\nreduction fixed\nplan "
        "999999999999999999 ahead 1\n",
        "weft brief 2\nmicro_batch 1\nlanes 1\nreduction fixed\nplan "
        "0 ahead 99999999999999999999\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t     n    = strlen(bad[i]);
        char      *copy = malloc(n + !n); /* nothing after its end is read */
        weft_brief b    = {.lanes = 77};
        memcpy(copy, bad[i], n);
        assert_int_equal(weft_brief_parse(copy, n, &b), WEFT_ERR_ARG);
        assert_int_equal(b.lanes, 77);
        free(copy);
    }
}

/* Bytes of a brief that other hosts send, changed anywhere: taken as they are, or refused. */
static void changed_bytes_are_taken_or_refused(void **state)
{
    static const char brief[] =
        "weft brief 2\nmicro_batch 12\nlanes 4\nreduction fixed\nplan 3 ahead 2\nabcde";
    weft_text t = {0};
    (void)state;
    for (unsigned i = 0; i < sizeof brief - 1; i++)
        for (unsigned c = 0; c < 256; c++) {
            char       bytes[sizeof brief];
            weft_brief b;
            memcpy(bytes, brief, sizeof brief);
            bytes[i] = (char)c;
            if (weft_brief_parse(bytes, sizeof brief - 1, &b) != WEFT_OK) continue;
            t.n = 0;
            weft_brief_print(&b, &t);
            assert_int_equal(t.n, sizeof brief - 1);
            assert_memory_equal(t.s, bytes, t.n);
        }
    weft_text_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_printed_is_read),
        cmocka_unit_test(other_bytes_are_refused),
        cmocka_unit_test(changed_bytes_are_taken_or_refused),
    };
    return cmocka_run_group_tests_name("brief", tests, NULL, NULL);
}
