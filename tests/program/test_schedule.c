/* Schedules as lists: every list is whole, ordered and free of deadlock; what ranks keep; wrong
 * lists are refused. */
#include <string.h>

#include "program/schedule.h"
#include "support/test.h"

static weft_schedule *make(const char *name, int p, int v, int m)
{
    weft_schedule *s;
    assert_ok(weft_schedule_make(name, &(weft_schedule_shape){p, v, m}, &s));
    return s;
}

static void every_list_is_a_schedule(void **state)
{
    (void)state;
    for (int k = 0; weft_schedule_name(k); k++)
        for (int p = 1; p <= 16; p++)
            for (int m = 1; m <= 2 * p + 3; m++) {
                int most = strcmp(weft_schedule_name(k), "interleaved") ? 1 : 4;
                for (int v = 1; v <= most; v++) {
                    weft_schedule *s = make(weft_schedule_name(k), p, v, m);
                    assert_ok(weft_schedule_verify(s));
                    weft_schedule_destroy(s);
                }
            }
}

/* The most micro-batches whose forward is done and whose backward is not. */
static int peak_micro(const weft_schedule *s, int rank)
{
    int  n = 0, peak = 0;
    bool split = weft_schedule_splits(s);
    for (int i = 0; i < s->n_work[rank]; i++) {
        weft_work_kind k = s->work[rank][i].kind;
        if (k == WEFT_WORK_FORWARD) n++;
        if (n > peak) peak = n;
        if (k == (split ? WEFT_WORK_BACKWARD_WEIGHT : WEFT_WORK_BACKWARD)) n--;
    }
    return peak;
}

static void ranks_keep_what_theory_says(void **state)
{
    (void)state;
    for (int p = 1; p <= 16; p++)
        for (int m = p; m <= 3 * p; m++) {
            weft_schedule *all = make("gpipe", p, 1, m), *one = make("1f1b", p, 1, m),
                          *zb = make("zb-h1", p, 1, m);
            weft_work f = {WEFT_WORK_FORWARD, 0, 0}, b = {WEFT_WORK_BACKWARD, 0, 0};
            for (int r = 0; r < p; r++) {
                assert_int_equal(peak_micro(all, r), m);
                assert_int_equal(peak_micro(one, r), p - r);
                assert_int_equal(weft_schedule_slots(one, r, f, b), p - r);
                assert_int_equal(weft_schedule_slots(one, r, f, f), 1);
                assert_true(peak_micro(zb, r) <= p);
            }
            assert_true(weft_schedule_splits(zb) && !weft_schedule_splits(one));
            weft_schedule_destroy(all);
            weft_schedule_destroy(one);
            weft_schedule_destroy(zb);
        }
}

static void lists_by_hand(void **state)
{
    (void)state;
    static const char *const want[] = {
        "schedule 1f1b ranks 2 chunks 1 micro 3\n"
        "rank 0: F0 F1 B0 F2 B1 B2\n"
        "rank 1: F0 B0 F1 B1 F2 B2\n",
        "schedule interleaved ranks 2 chunks 2 micro 2\n"
        "rank 0: F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0\n"
        "rank 1: F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0\n",
        "schedule zb-h1 ranks 2 chunks 1 micro 3\n"
        "rank 0: F0 F1 I0 W0 F2 I1 W1 I2 W2\n"
        "rank 1: F0 I0 F1 I1 W0 F2 I2 W1 W2\n",
    };
    weft_schedule *s[] = {make("1f1b", 2, 1, 3), make("interleaved", 2, 2, 2),
                          make("zb-h1", 2, 1, 3)};
    for (int i = 0; i < 3; i++) {
        weft_text t = {0};
        assert_ok(weft_schedule_print(s[i], &t));
        assert_string_equal(t.s, want[i]);
        weft_text_fini(&t);
        weft_schedule_destroy(s[i]);
    }
}

static void swap(weft_work *a, weft_work *b)
{
    weft_work c = *a;
    *a          = *b;
    *b          = c;
}

static void wrong_lists_are_refused(void **state)
{
    (void)state;
    weft_schedule *s = make("1f1b", 3, 1, 4);
    swap(&s->work[0][0], &s->work[0][1]); /* F1 F0 */
    assert_fails(weft_schedule_verify(s), WEFT_ERR_ARG, "micro-batch 1, is out of turn");
    swap(&s->work[0][0], &s->work[0][1]);

    swap(&s->work[2][0], &s->work[2][1]); /* B0 F0 */
    assert_fails(
        weft_schedule_verify(s), WEFT_ERR_ARG,
        "rank 2: backward of chunk 0, micro-batch 0, comes before what it needs");
    swap(&s->work[2][0], &s->work[2][1]);

    /* the last rank goes forward with 1 before it goes back with 0, while the first waits for 0
     * to come back before it sends 1 */
    swap(&s->work[2][1], &s->work[2][2]);
    weft_work first[] = {{WEFT_WORK_FORWARD, 0, 0}, {WEFT_WORK_BACKWARD, 0, 0},
                         {WEFT_WORK_FORWARD, 0, 1}, {WEFT_WORK_BACKWARD, 0, 1},
                         {WEFT_WORK_FORWARD, 0, 2}, {WEFT_WORK_BACKWARD, 0, 2},
                         {WEFT_WORK_FORWARD, 0, 3}, {WEFT_WORK_BACKWARD, 0, 3}};
    memcpy(s->work[0], first, sizeof first);
    assert_fails(weft_schedule_verify(s), WEFT_ERR_ARG, "wait for each other");
    weft_schedule_destroy(s);

    s = make("gpipe", 2, 1, 2);
    s->n_work[1]--;
    assert_fails(weft_schedule_verify(s), WEFT_ERR_ARG,
                 "rank 1, chunk 0: 2 forwards and 1 backwards");
    weft_schedule_destroy(s);
}

static void wrong_shapes_are_refused(void **state)
{
    (void)state;
    weft_schedule *s;
    assert_fails(weft_schedule_make("2f2b", &(weft_schedule_shape){2, 1, 2}, &s),
                 WEFT_ERR_ARG, "unknown schedule '2f2b'");
    assert_fails(weft_schedule_make("1f1b", &(weft_schedule_shape){2, 2, 2}, &s),
                 WEFT_ERR_ARG, "interleaved takes more");
    assert_fails(weft_schedule_make("gpipe", &(weft_schedule_shape){2, 1, 0}, &s),
                 WEFT_ERR_ARG, "0 micro-batches");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_list_is_a_schedule),
        cmocka_unit_test(ranks_keep_what_theory_says),
        cmocka_unit_test(lists_by_hand),
        cmocka_unit_test(wrong_lists_are_refused),
        cmocka_unit_test(wrong_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
