/* The checkpoint's history: what other processes of a run know of it, and what is left of it where
 * the job goes back. */
#include <stdio.h>
#include <string.h>

#include "session/cut.h"
#include "support/test.h"

static void add(weft_ckpt_state *c, int64_t step, const char *key, int64_t from,
                int64_t to)
{
    weft_ckpt_change x = {.step = step, .from = from, .to = to};
    snprintf(x.key, sizeof x.key, "%s", key);
    assert_int_equal(weft_ckpt_state_add_change(c, &x), WEFT_OK);
}

static void check(const weft_ckpt_state *c, const char *expected)
{
    weft_text t = {0};
    for (int i = 0; i < c->n_history; i++)
        weft_text_add(&t, "%s%s %lld: %lld to %lld", i ? ", " : "", c->history[i].key,
                      (long long)c->history[i].step, (long long)c->history[i].from,
                      (long long)c->history[i].to);
    assert_string_equal(t.s ? t.s : "", expected);
    weft_text_fini(&t);
}

static void it_is_carried_by_cards(void **state)
{
    static weft_session from, to;
    weft_kept_card      card = {0};
    (void)state;
    weft_session__put_history(&from, &card);
    assert_int_equal(weft_session__take_history(&to, &card), WEFT_OK);
    check(&to.checkpoint, "");
    add(&from.checkpoint, 7, "lanes", 2, 4);
    add(&from.checkpoint, 9, "micro_batch", 1, 2);
    weft_session__put_history(&from, &card);
    assert_int_equal(weft_session__take_history(&to, &card), WEFT_OK);
    check(&to.checkpoint, "lanes 7: 2 to 4, micro_batch 9: 1 to 2");
    for (int i = 0; i < WEFT_KEPT_MAX_CHANGE; i++)
        add(&from.checkpoint, 10 + i, "lanes", i + 1, i + 2);
    weft_session__put_history(&from, &card);
    to.say.mute = true;
    assert_int_equal(weft_session__take_history(&to, &card), WEFT_OK);
    assert_int_equal(to.checkpoint.n_history, WEFT_KEPT_MAX_CHANGE);
    assert_int_equal(to.checkpoint.history[0].step, 10); /* the newest ones */
    weft_ckpt_state_fini(&from.checkpoint);
    weft_ckpt_state_fini(&to.checkpoint);
}

static void going_back_drops_what_came_later(void **state)
{
    const weft_job  now = {.micro_batch = 2, .lanes = 8};
    weft_ckpt_state c = {0}, read = {.micro_batch = 1, .lanes = 4};
    (void)state;
    add(&c, 7, "lanes", 2, 4);
    add(&c, 20, "lanes", 4, 6);
    add(&c, 20, "micro_batch", 1, 2);
    add(&c, 30, "lanes", 6, 8);
    assert_int_equal(weft_session__go_back_in_history(&c, 30, false, &now), WEFT_OK);
    check(&c,
          "lanes 7: 2 to 4, lanes 20: 4 to 6, micro_batch 20: 1 to 2, lanes 30: 6 to 8");
    assert_int_equal(weft_session__go_back_in_history(&c, 10, false, &now), WEFT_OK);
    check(&c, "lanes 7: 2 to 4, micro_batch 10: 1 to 2, lanes 10: 4 to 8");
    assert_int_equal(weft_session__go_back_in_history(&c, 0, true, &now), WEFT_OK);
    check(&c, ""); /* from the beginning */
    weft_ckpt_state_fini(&c);
    add(&read, 7, "lanes", 2, 4); /* as a checkpoint of step 10 has it */
    assert_int_equal(weft_session__go_back_in_history(&read, 10, true, &now), WEFT_OK);
    check(&read, "lanes 7: 2 to 4, micro_batch 10: 1 to 2, lanes 10: 4 to 8");
    weft_ckpt_state_fini(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_carried_by_cards),
        cmocka_unit_test(going_back_drops_what_came_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
