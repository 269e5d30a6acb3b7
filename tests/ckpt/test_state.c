/* state.json: parse(print(x)) == x, with and without a history; what is no state is refused. */
#include <string.h>

#include "ckpt/state.h"
#include "support/test.h"

static weft_ckpt_state some_state(void)
{
    weft_ckpt_state s = {.step = 20, .sample = 160, .seed = 7, .batch = 8};
    s.micro_batch     = 4;
    s.lanes           = 2;
    s.seq             = 64;
    s.data_id         = 0xfedcba9876543210u;
    s.graph_hash      = 1;
    strcpy(s.kernel_set, "cpu");
    return s;
}

static void a_history_survives(void **state)
{
    static const weft_ckpt_change change[] = {{3, "micro_batch", 8, 4},
                                              {3, "lanes", 1, 2}};
    weft_ckpt_state               s        = some_state(), back;
    weft_text                     t = {0}, again = {0};
    (void)state;
    for (int i = 0; i < 2; i++) assert_ok(weft_ckpt_state_add_change(&s, &change[i]));
    assert_ok(weft_ckpt_state_print(&s, &t));
    assert_memory_equal(t.s, "{\"format\": 2", 12);
    assert_ok(weft_ckpt_state_parse("state.json", t.s, t.n, &back));
    assert_int_equal(back.n_history, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(back.history[i].step, 3);
        assert_string_equal(back.history[i].key, change[i].key);
        assert_int_equal(back.history[i].from, change[i].from);
        assert_int_equal(back.history[i].to, change[i].to);
    }
    assert_ok(weft_ckpt_state_print(&back, &again));
    assert_string_equal(t.s, again.s);
    weft_ckpt_state_fini(&s);
    weft_ckpt_state_fini(&back);
    weft_text_fini(&t);
    weft_text_fini(&again);
}

/* A content id is kept; a state without one says so. */
static void a_content_id_may_be_missing(void **state)
{
    weft_ckpt_state s = some_state(), back;
    (void)state;
    for (int i = 0; i < 2; i++) {
        weft_text t      = {0};
        s.has_content_id = i == 1;
        s.content_id     = i == 1 ? 0xfedcba9876543210u : 0;
        assert_ok(weft_ckpt_state_print(&s, &t));
        assert_ok(weft_ckpt_state_parse("state.json", t.s, t.n, &back));
        assert_int_equal(back.has_content_id, i == 1);
        assert_true(back.content_id == s.content_id);
        weft_ckpt_state_fini(&back);
        weft_text_fini(&t);
    }
}

/* As every checkpoint was written before there was a history. */
static void without_a_history_it_is_format_1(void **state)
{
    weft_ckpt_state s = some_state(), back;
    weft_text       t = {0};
    (void)state;
    assert_ok(weft_ckpt_state_print(&s, &t));
    assert_memory_equal(t.s, "{\"format\": 1", 12);
    assert_null(strstr(t.s, "history"));
    assert_ok(weft_ckpt_state_parse("state.json", t.s, t.n, &back));
    assert_int_equal(back.n_history, 0);
    assert_int_equal(back.lanes, 2);
    weft_ckpt_state_fini(&back);
    weft_text_fini(&t);
}

static void refuse(const char *end, const char *why)
{
    weft_ckpt_state s = some_state(), back;
    weft_text       t = {0};
    assert_ok(weft_ckpt_state_print(&s, &t));
    t.n -= 2; /* "}" and the line's end */
    weft_text_add(&t, "%s", end);
    assert_int_equal(weft_ckpt_state_parse("state.json", t.s, t.n, &back), WEFT_ERR_ARG);
    if (!strstr(weft_error_text(), why)) fail_msg("%s", weft_error_text());
    weft_text_fini(&t);
}

static void a_wrong_history_is_refused(void **state)
{
    (void)state;
    refuse(", \"history\": 3}", "history is no list");
    refuse(", \"history\": [3]}", "needs step, key, from and to");
    refuse(", \"history\": [{\"step\": 1, \"key\": \"lanes\", \"from\": 1}]}",
           "needs step, key, from and to");
    refuse(", \"history\": [{\"step\": 1, \"key\": "
           "\"a_key_that_is_longer_than_any_key_of_a_job\", \"from\": 1, \"to\": 2}]}",
           "needs step, key, from and to");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_history_survives),
        cmocka_unit_test(a_content_id_may_be_missing),
        cmocka_unit_test(without_a_history_it_is_format_1),
        cmocka_unit_test(a_wrong_history_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
