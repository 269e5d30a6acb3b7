/* Strategies: rows read and print the same value, mistakes are one line. */
#include "support/test.h"

#include "strategy/strategy.h"

static void reads(const char *text, const char *want)
{
    weft_strategy s, again;
    weft_text     t = {0};
    assert_ok(weft_strategy_parse(text, &s));
    weft_strategy_print(&s, &t);
    assert_string_equal(t.s, want ? want : text);
    assert_ok(weft_strategy_parse(t.s, &again));
    assert_true(weft_strategy_equal(&s, &again));
    weft_text_fini(&t);
}

static void text_reads_back(void **state)
{
    weft_strategy s;
    (void)state;
    reads("dp=2 tp=2 pp=2 zero=1", NULL);
    reads("dp=2 zero=1 overlap_param_gather=0.66", NULL);
    reads("dp=2 zero=2 overlap_param_gather=0.70",
          "dp=2 zero=2 overlap_param_gather=0.7");
    reads("dp=2 zero=2 overlap_param_gather=1", NULL);
    reads("dp=4 zero=2 copies=2", NULL);
    reads("dp=3 copies=2", NULL); /* replicas are copies */
    reads("overlap_param_gather=0 dp=2", "dp=2");
    reads("tp=4 dp=3 mesh_order=tp,dp sp=true", "dp=3 tp=4 mesh_order=tp,dp sp=true");
    reads("tp=4 dp=3 mesh_order=dp,tp", "dp=3 tp=4"); /* the default order */
    reads("dp=3 pp=2 batch_split=5,2,1", NULL);
    reads("dp=2 batch_split=[3,1]", "dp=2 batch_split=3,1");
    reads("dp=8 batch_split=3x4,1x4", NULL);
    reads("dp=8 batch_split=3,3,3x2,1x3,1", "dp=8 batch_split=3x4,1x4");
    reads("dp=100000 batch_split=3x10000,2x11072,1x78928", NULL);
    reads("tp=2 tp_exclude=input,0..3,7,head", NULL);
    reads("tp_exclude=blocks tp=2 pp=2", "tp=2 pp=2 tp_exclude=blocks");
    reads("zero=0  ep=2 cp=2 mesh_order=ep,cp pp=1", "cp=2 ep=2 mesh_order=ep,cp");
    reads("cp=2 cp_comm=ring bucket_bytes=20000 schedule=zb-h1 recompute=full", NULL);
    reads("", "pp=1");
    assert_ok(weft_strategy_parse("dp=3 tp=2 pp=4", &s));
    assert_int_equal(weft_strategy_world(&s), 24);
    assert_int_equal(weft_strategy_axis_at(&s, WEFT_AXIS_TP), 1);
    assert_int_equal(weft_strategy_axis_at(&s, WEFT_AXIS_CP), -1);
}

/* What the rows say of defaults is what a strategy begins with. */
static void defaults_are_the_rows(void **state)
{
    (void)state;
    for (int i = 0; i < weft_strategy_n_row; i++) {
        weft_strategy s = weft_strategy_default();
        weft_text     t = {0};
        weft_strategy_print_value(&s, &weft_strategy_rows[i], false, &t);
        assert_string_equal(t.s ? t.s : "", weft_strategy_rows[i].def);
        weft_text_fini(&t);
    }
}

static void mistakes_are_one_line(void **state)
{
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"dp=2 dp=2", "dp is there twice"},
        {"dp=-1", "dp: -1 is out of range, from 0"},
        {"dp=two", "dp: expected a whole number"},
        {"dp", "expected key=value"},
        {"mesh=dp=2", "unknown key 'mesh': parallel sizes are plain keys now: dp=2 tp=2"},
        {"later=66", "unknown key 'later': it is overlap_param_gather now"},
        {"zeero=1", "did you mean 'zero'"},
        {"mesh_order=dp,xp", "'xp' is not dp, tp, cp or ep"},
        {"mesh_order=dp,dp", "dp is there twice"},
        {"tp=2 dp=2 mesh_order=tp", "mesh_order leaves out dp"},
        {"dp=2 zero=4", "from 0 to 3"},
        {"tp=2 zero=1", "zero=1 needs dp"},
        {"dp=2 overlap_param_gather=0.5", "goes with zero=1 or zero=2"},
        {"dp=2 zero=3 overlap_param_gather=0.5", "goes with zero=1 or zero=2"},
        {"dp=2 zero=1 overlap_param_gather=66", "66 is out of range, from 0 to 1"},
        {"dp=2 zero=1 overlap_param_gather=0.665", "more than two decimals"},
        {"dp=4 zero=1 copies=3", "copies=3 does not divide dp=4"},
        {"dp=4 zero=2 copies=2 standby=1",
         "standby=1 with zero=2: parameters are gathered from 2 ranks after the update, "
         "and no "
         "other rank can make them; take zero=0, zero=3 or copies=4"},
        {"dp=4 zero=1 copies=0", "copies: 0 is out of range, from 1"},
        {"dp=2 sp=true", "sp=true needs tp"},
        {"tp=2 sp=1", "sp: expected true or false"},
        {"dp=2 cp_comm=ring", "cp_comm=ring needs cp"},
        {"cp=2 cp_comm=star", "none of: gather ring"},
        {"pp=0", "from 1"},
        {"dp=2 batch_split=3,2", "batch_split has 5 lanes in all"},
        {"dp=2 batch_split=2,1,1", "3 numbers for dp=2"},
        {"dp=2 batch_split=4,0", "expected lanes of each rank, from 1"},
        {"tp=2 batch_split=3,1", "batch_split needs dp"},
        {"dp=2 batch_split=1x1048577", "expected lanes of each rank, from 1"},
        {"dp=2 batch_split=3x,1", "expected lanes of each rank, from 1"},
        {"dp=2 batch_split=3,", "expected lanes of each rank, from 1"},
        {"dp=2 tp_exclude=head", "tp_exclude needs tp"},
        {"tp=2 tp_exclude=tail", "expected input, head, blocks or layers"},
        {"tp=2 tp_exclude=3..1", "expected input, head, blocks or layers"},
    };
    weft_strategy s;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(bad); i++)
        assert_fails(weft_strategy_parse(bad[i].text, &s), WEFT_ERR_ARG, bad[i].words);
}

/* Lanes of each rank are runs of alike ranks; expanded they are what was written. */
static void splits_are_runs(void **state)
{
    weft_strategy s;
    int32_t       lanes[8];
    weft_text     t = {0};
    (void)state;
    assert_ok(weft_strategy_parse("dp=8 batch_split=5,3,3,1,1,1,1,1", &s));
    assert_int_equal(s.n_batch_split, 3);
    assert_int_equal(weft_strategy_split_ranks(&s), 8);
    assert_int_equal(weft_strategy_lanes(&s), 16);
    weft_strategy_expand_split(&s, lanes);
    for (int i = 0; i < 8; i++) assert_int_equal(lanes[i], i == 0 ? 5 : i < 3 ? 3 : 1);
    s.n_batch_split = 0;
    for (int i = 0; i < WEFT_MAX_BATCH_RUN; i++)
        assert_true(weft_strategy_add_split(&s, 1, 1 + i % 2));
    assert_true(weft_strategy_add_split(&s, 5, 2)); /* like the last ones */
    assert_false(weft_strategy_add_split(&s, 5, 1));
    weft_text_add(&t, "dp=65 batch_split=1");
    for (int i = 0; i < WEFT_MAX_BATCH_RUN; i++) weft_text_add(&t, ",%d", 2 - i % 2);
    assert_fails(weft_strategy_parse(t.s, &s), WEFT_ERR_ARG, "are for a plan file");
    weft_text_fini(&t);
}

/* A key's number is the place of its row; numbers are read and set by key. */
static void keys_are_rows(void **state)
{
    weft_strategy s = weft_strategy_default();
    (void)state;
    assert_int_equal(WEFT_N_STRATEGY_KEY, weft_strategy_n_row);
    assert_string_equal(weft_strategy_rows[WEFT_KEY_dp].key, "dp");
    assert_string_equal(weft_strategy_rows[WEFT_KEY_recompute].key, "recompute");
    for (int i = 0; i < weft_strategy_n_row; i++) {
        weft_strategy_key  key  = (weft_strategy_key)i;
        weft_strategy_kind kind = weft_strategy_rows[i].kind;
        weft_strategy      was  = s;
        if (kind != WEFT_STRATEGY_INT && kind != WEFT_STRATEGY_FRACTION &&
            kind != WEFT_STRATEGY_BOOL && kind != WEFT_STRATEGY_WORD)
            continue;
        int x = weft_strategy_number(&s, key) ? 0 : 1;
        weft_strategy_set_number(&s, key, x);
        assert_int_equal(weft_strategy_number(&s, key), x);
        for (int k = 0; k < weft_strategy_n_row; k++)
            if (k != WEFT_KEY_mesh_order) /* of the axes that there are */
                assert_int_equal(
                    weft_strategy_row_equal(&s, &was, &weft_strategy_rows[k]), k != i);
        s = was;
    }
}

/* Replicas, copies of shards and standby replicas on hosts, whose ranks follow each other. */
static void hosts_hold_the_state(void **state)
{
    static const int two[] = {2, 2}, twos[] = {2, 2, 2, 2}, unlike[] = {3, 1};
    static const int three[] = {1, 1, 1};
    static const struct {
        const char *keys;
        int         n_host;
        const int  *ranks;
        int         n;
    } rows[] = {
        {"dp=4", 2, two, 2},
        {"dp=2 pp=2", 2, two, 1}, /* replicas of a stage are neighbours */
        {"dp=2 pp=2 copies=2", 2, two, 1},
        {"dp=4 pp=2", 4, twos, 2},
        {"dp=2 tp=2", 2, two, 2},
        {"dp=2 tp=2 mesh_order=tp,dp", 2, two, 1}, /* the last axis is the fastest */
        {"pp=4", 2, two, 1},
        {"pp=4 copies=2", 2, two, 2},
        {"pp=4 copies=2", 2, unlike, 1}, /* the third and the first rank are on one */
        {"pp=3 copies=3", 3, three, 3},
        {"pp=3 copies=2", 3, three, 2},
        {"tp=2 pp=4 copies=3", 4, twos, 3},
        {"tp=2 pp=4 copies=4", 4, twos, 4},
        {"dp=2 pp=2 standby=1", 2, two,
         2}, /* each replica's share is on the other host */
        {"dp=2 pp=4 standby=2", 4, twos, 3},
        {"dp=2 cp=2 pp=2 standby=1", 4, twos, 3}, /* a share is on one more */
        {"dp=2 pp=2 zero=3 copies=2 standby=1", 2, two, 2},
        {"dp=2 pp=2 zero=1 copies=2", 2, two, 1},
        {"cp=4", 2, two, 2},
        {"dp=4 zero=1", 2, two, 1},
        {"dp=4 zero=1 copies=2", 2, two, 2},
        {"dp=8 zero=1 copies=4", 4, twos, 4},
        {"dp=4 pp=2 zero=1 copies=2", 4, twos, 2},
        {"dp=4 zero=3 copies=2", 2, unlike, 1},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
        weft_strategy s;
        assert_ok(weft_strategy_parse(rows[i].keys, &s));
        int n = weft_strategy_state_hosts(&s, rows[i].n_host, rows[i].ranks);
        if (n != rows[i].n) fail_msg("%s: %d hosts, not %d", rows[i].keys, n, rows[i].n);
    }
}

/* Standby replicas where copies would be on too few hosts, as few as it takes. */
static void copies_are_spread(void **state)
{
    static const int two[] = {2, 2}, twos[] = {2, 2, 2, 2}, one[] = {4};
    static const int unlike[] = {3, 1}, fours[] = {4, 4};
    static const struct {
        const char *keys;
        int         n_host;
        const int  *ranks;
        int         standby, n;
    } rows[] = {
        {"dp=2 pp=2 copies=2", 2, two, 1, 2},
        {"dp=2 pp=2 copies=2", 1, one, -1, 1},
        {"dp=2 pp=2", 2, two, -1, 1}, /* not asked for */
        {"dp=4 copies=2", 2, two, -1, 2},
        {"pp=4 copies=2", 2, two, -1, 2},
        {"dp=2 pp=4 copies=3", 4, twos, 2, 3},
        {"dp=2 cp=2 pp=2 copies=3", 4, twos, 1, 3},
        {"dp=2 pp=4 standby=1", 4, twos, 1, 2}, /* as given */
        {"dp=2 pp=2 zero=3 copies=2", 2, two, 1, 2},
        {"dp=2 pp=2 zero=1 copies=2", 2, two, 1, 2},
        {"dp=4 pp=2 zero=1 copies=2", 2, fours, -1, 1}, /* cannot be */
        {"pp=4 copies=2", 2, unlike, -1, 1}, /* the third rank is with the first */
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
        weft_strategy s;
        assert_ok(weft_strategy_parse(rows[i].keys, &s));
        weft_strategy_spread(&s, rows[i].n_host, rows[i].ranks);
        int n = weft_strategy_state_hosts(&s, rows[i].n_host, rows[i].ranks);
        if (s.standby != rows[i].standby || n != rows[i].n)
            fail_msg("%s: standby=%d, %d hosts, not %d, %d", rows[i].keys, s.standby, n,
                     rows[i].standby, rows[i].n);
    }
}

/* Guards of a rank are that many different ranks, and its wards' guards are it. */
static void guards_are_around_the_ring(void **state)
{
    (void)state;
    for (int world = 2; world < 14; world++)
        for (int n = 1; n <= WEFT_MAX_STANDBY && n < world; n++)
            for (int r = 0; r < world; r++)
                for (int k = 0; k < n; k++) {
                    int guard = weft_standby_guard(r, world, n, k);
                    assert_int_not_equal(guard, r);
                    assert_int_equal(weft_standby_ward(guard, world, n, k), r);
                    for (int i = 0; i < k; i++)
                        assert_int_not_equal(guard, weft_standby_guard(r, world, n, i));
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_are_runs),
        cmocka_unit_test(keys_are_rows),
        cmocka_unit_test(text_reads_back),
        cmocka_unit_test(defaults_are_the_rows),
        cmocka_unit_test(mistakes_are_one_line),
        cmocka_unit_test(hosts_hold_the_state),
        cmocka_unit_test(copies_are_spread),
        cmocka_unit_test(guards_are_around_the_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
