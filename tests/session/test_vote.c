/* The words of a vote: what ranks bring, summed in any order, is what all of them read. */
#include "support/test.h"

#include <math.h>

#include "session/vote.h"

enum {
    WORLD = 40
};

static void sum_votes(const weft_vote *v, int world, weft_vote_sum *out)
{
    uint64_t all[WEFT_VOTE_WORDS] = {0}, word[WEFT_VOTE_WORDS];
    for (int r = world - 1; r >= 0; r--) {
        weft_vote_pack(&v[r], world, word);
        for (int k = 0; k < WEFT_VOTE_WORDS; k++) all[k] += word[k];
    }
    weft_vote_unpack(all, world, v[0].step, out);
}

/* Votes of ranks that agree, and whose step has nothing at fault. */
static void fill_votes(weft_vote *v, int world, int64_t step)
{
    for (int r = 0; r < world; r++)
        v[r] = (weft_vote){.rank   = r,
                           .step   = step,
                           .finite = true,
                           .norm   = 0.1f,
                           .n_read = 1,
                           .read   = weft_vote_hash(0, r, step),
                           .due    = weft_vote_hash(0, r, step),
                           .busy_s = 0.5 + r};
}

static void wishes_are_counted(void **state)
{
    weft_vote     v[WORLD];
    weft_vote_sum x;
    (void)state;
    fill_votes(v, WORLD, 0);
    sum_votes(v, WORLD, &x);
    assert_true(!x.n_stop && !x.n_interrupt && !x.n_newer && !x.n_not_finite);
    v[3].stop = v[39].stop = v[39].interrupt = true;
    v[7].newer                               = true;
    for (int r = 0; r < WORLD; r++) v[r].finite = false;
    sum_votes(v, WORLD, &x);
    assert_int_equal(x.n_stop, 2);
    assert_int_equal(x.n_interrupt, 1);
    assert_int_equal(x.n_newer, 1);
    assert_int_equal(x.n_not_finite, WORLD);
}

static void one_bit_of_a_norm_is_seen(void **state)
{
    weft_vote     v[WORLD];
    weft_vote_sum x;
    (void)state;
    fill_votes(v, WORLD, 0);
    sum_votes(v, WORLD, &x);
    assert_true(x.same_norm);
    v[17].norm = nextafterf(0.1f, 1);
    sum_votes(v, WORLD, &x);
    assert_false(x.same_norm);
    v[17].norm = -0.1f;
    sum_votes(v, WORLD, &x);
    assert_false(x.same_norm);
}

static void samples_are_read_equally_often(void **state)
{
    weft_vote     v[WORLD];
    weft_vote_sum x;
    (void)state;
    fill_votes(v, WORLD, 5);
    sum_votes(v, WORLD, &x);
    assert_true(weft_vote_is_read(&x, WORLD));
    for (int r = 0; r < WORLD; r++) { /* by two ranks each, as in a pipeline */
        v[r].n_read = 2;
        v[r].read += weft_vote_hash(0, (r + 1) % WORLD, 5);
    }
    sum_votes(v, WORLD, &x);
    assert_true(weft_vote_is_read(&x, WORLD));
    v[0].read += weft_vote_hash(0, 2, 5) - weft_vote_hash(0, 1, 5); /* 2 instead of 1 */
    sum_votes(v, WORLD, &x);
    assert_false(weft_vote_is_read(&x, WORLD));
    fill_votes(v, WORLD, 5);
    v[9].n_read = v[9].read = 0; /* not read at all */
    sum_votes(v, WORLD, &x);
    assert_false(weft_vote_is_read(&x, WORLD));
    fill_votes(v, WORLD, 5);
    v[9].read = weft_vote_hash(0, 9, 4); /* of another step */
    sum_votes(v, WORLD, &x);
    assert_false(weft_vote_is_read(&x, WORLD));
    x = (weft_vote_sum){.n_read = 0};
    assert_true(weft_vote_is_read(&x, 0));
    assert_false(weft_vote_is_read(&x, WORLD));
}

static void every_rank_has_its_turn(void **state)
{
    weft_vote     v[WORLD];
    weft_vote_sum x;
    float         busy[WORLD] = {0};
    (void)state;
    for (int64_t step = 0; step < 3; step++) {
        fill_votes(v, WORLD, step);
        sum_votes(v, WORLD, &x);
        assert_true(x.first_busy + x.n_busy <= WORLD);
        for (int k = 0; k < x.n_busy; k++) busy[x.first_busy + k] = x.busy_s[k];
    }
    for (int r = 0; r < WORLD; r++)
        assert_true(fabs(busy[r] - (0.5 + r)) < 1e-4 * (1 + r));
    fill_votes(v, 1, 0);
    v[0].busy_s = 1e9; /* as much as there is room for */
    sum_votes(v, 1, &x);
    assert_true(x.n_busy == 1 && x.busy_s[0] > 4294);
}

static void a_slow_link_is_told_in_turn(void **state)
{
    weft_vote     v[WORLD];
    weft_vote_sum x;
    (void)state;
    fill_votes(v, WORLD, 17);
    sum_votes(v, WORLD, &x);
    assert_int_equal(x.link_from, -1);
    for (int r = 0; r < WORLD; r++)
        v[r].link = (weft_slow_link){
            .to = r ? 0 : WORLD - 1, .rate = 12.34e6, .usual_rate = 117.9e6};
    for (int64_t step = 0; step < 2 * WORLD; step++) {
        for (int r = 0; r < WORLD; r++) v[r].step = step;
        sum_votes(v, WORLD, &x);
        assert_int_equal(x.link_from, step % WORLD);
        assert_int_equal(x.link.to, v[x.link_from].link.to);
        assert_true(fabs(x.link.rate - 12.34e6) <= 1e4);
        assert_true(fabs(x.link.usual_rate - 117.9e6) <= 1e4);
    }
    v[WORLD - 1].link.rate       = 1; /* as little and as much as there is room for */
    v[WORLD - 1].link.usual_rate = 1e15;
    sum_votes(v, WORLD, &x);
    assert_true(x.link.rate > 0 && x.link.rate <= 1e4 && x.link.usual_rate > 1e11);
    weft_vote last[1];
    uint64_t  word[WEFT_VOTE_WORDS];
    fill_votes(last, 1, 0); /* the largest rank that there can be */
    last[0].rank = WEFT_VOTE_MAX_RANK - 1;
    last[0].step = last[0].rank;
    last[0].link = (weft_slow_link){last[0].rank, 1e6, 5e6};
    weft_vote_pack(&last[0], WEFT_VOTE_MAX_RANK, word);
    weft_vote_unpack(word, WEFT_VOTE_MAX_RANK, last[0].step, &x);
    assert_int_equal(x.link_from, WEFT_VOTE_MAX_RANK - 1);
    assert_int_equal(x.link.to, WEFT_VOTE_MAX_RANK - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wishes_are_counted),
        cmocka_unit_test(one_bit_of_a_norm_is_seen),
        cmocka_unit_test(samples_are_read_equally_often),
        cmocka_unit_test(every_rank_has_its_turn),
        cmocka_unit_test(a_slow_link_is_told_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
