/* Events make the next version; replayed they give the same cluster. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cluster/cluster.h"

static weft_cluster *change(weft_cluster *c, const char *event)
{
    weft_cluster *d;
    if (weft_cluster_change(c, event, &d) != WEFT_OK)
        fail_msg("%s: %s", event, weft_error_text());
    assert_true(d->version == c->version + 1);
    assert_int_equal(weft_cluster_verify(d), WEFT_OK);
    weft_cluster_destroy(c);
    return d;
}

static weft_cluster *start(void)
{
    weft_cluster *c;
    assert_int_equal(weft_cluster_parse_line("10 x (8 x h100-80g)", NULL, &c), WEFT_OK);
    return c;
}

static void events(void **state)
{
    (void)state;
    weft_cluster *c = change(start(), "cordon node 3 why double-bit ECC errors");
    assert_int_equal(weft_cluster_usable(c), 72);
    assert_string_equal(c->health[0].why, "double-bit ECC errors");
    c = change(c, "restore node 3 device 2");
    assert_int_equal(weft_cluster_usable(c), 73);
    c = change(c, "degrade node 5 device 1 speed 0.5 link 0.25");
    assert_int_equal(weft_cluster_usable(c), 73);
    c = change(c, "remove node 0");
    assert_int_equal(weft_cluster_count(c), 72);
    assert_int_equal(weft_cluster_usable(c), 65);
    assert_int_equal(c->health[c->n_health - 1].node, 4);
    c = change(c, "restore node 2");
    assert_int_equal(weft_cluster_usable(c), 72);
    c = change(c, "add 2 x (4 x t4)");
    assert_int_equal(weft_cluster_count(c), 80);
    assert_string_equal(weft_cluster_device(c, 79)->name, "t4");
    c = change(c, "restore node 4");
    assert_int_equal(c->n_health, 0);
    for (int i = 0; i < 9; i++) c = change(c, "remove node 0");
    assert_int_equal(c->n_node, 1);
    assert_string_equal(weft_cluster_device(c, 0)->name, "t4");
    weft_cluster_destroy(c);
}

/* Ranks that share a device: its memory is divided, its time by who works. */
static void ranks_share_a_device(void **state)
{
    (void)state;
    weft_cluster *c, *d;
    assert_int_equal(weft_cluster_parse_line("1 x (1 x h100-80g)", NULL, &c), WEFT_OK);
    int64_t mem = weft_cluster_device(c, 0)->mem_bytes;
    c           = change(c, "degrade node 0 device 0 speed 0.5");
    c           = change(c, "share node 0 ranks 4");
    assert_int_equal(weft_cluster_count(c), 4);
    assert_true(weft_cluster_device(c, 3)->mem_bytes == mem / 4);
    assert_int_equal(c->node[0].n_oversubscription, 4);
    assert_true(c->node[0].oversubscription[0] == 1 && /* 4, and what turns cost */
                c->node[0].oversubscription[3] > 4 &&
                c->node[0].oversubscription[3] < 4.5);
    weft_path w;
    assert_int_equal(weft_cluster_path(c, 1, 3, &w), WEFT_OK);
    assert_int_equal(w.level, 1);
    assert_true(w.Bps > 1e11 && w.Bps < weft_cluster_device(c, 0)->mem_Bps);
    for (int r = 0, at = r; r < 4; r++) { /* all of them are that slow */
        weft_device_run run;
        if (r == at) assert_true(weft_cluster_next_run(c, &at, &run) && run.speed == 0.5);
    }
    assert_true(weft_cluster_change(c, "share node 0 ranks 2", &d) != WEFT_OK);
    assert_non_null(strstr(weft_error_text(), "1 nodes of 4"));
    weft_cluster_destroy(c);
    c = start();
    assert_true(weft_cluster_change(c, "share node 3 ranks 2", &d) != WEFT_OK);
    assert_non_null(strstr(weft_error_text(), "10 nodes of 8"));
    assert_true(weft_cluster_change(c, "share node 30 ranks 2", &d) != WEFT_OK);
    assert_true(weft_cluster_change(c, "share node 3", &d) != WEFT_OK);
    weft_cluster_destroy(c);
}

/* Random logs, replayed: the same text and hashes; and a text read back changes the same way. */
static void replay(void **state)
{
    (void)state;
    static const char *const verb[] = {"cordon", "degrade", "restore", "remove"};
    uint64_t                 seed   = 1;
    for (int t = 0; t < 50; t++) {
        weft_cluster *a = start(), *b = start();
        weft_text     x = {0}, y = {0};
        for (int i = 0; i < 12; i++) {
            char event[80];
            seed   = seed * 6364136223846793005u + 1442695040888963407u;
            int v  = (int)(seed >> 60) % (i % 5 ? 3 : 4);
            int n  = weft_cluster_n_node(a);
            int at = snprintf(event, sizeof event, "%s node %d", verb[v],
                              (int)((seed >> 30) % (uint64_t)n));
            if (v < 3 && (seed >> 20) % 2)
                at += snprintf(event + at, sizeof event - (size_t)at, " device %d",
                               (int)(seed >> 25) % 8 & 7);
            if (v == 1) snprintf(event + at, sizeof event - (size_t)at, " speed 0.5");
            a               = change(a, event);
            b               = change(b, event);
            weft_text     z = {0};
            weft_cluster *back;
            assert_int_equal(weft_cluster_print(b, &z), WEFT_OK);
            assert_int_equal(weft_cluster_parse("b", z.s, z.n, &back), WEFT_OK);
            weft_cluster_destroy(b);
            b = back;
            weft_text_fini(&z);
        }
        assert_int_equal(weft_cluster_print(a, &x), WEFT_OK);
        assert_int_equal(weft_cluster_print(b, &y), WEFT_OK);
        assert_string_equal(x.s, y.s);
        assert_true(weft_cluster_hash_constants(a) == weft_cluster_hash_constants(b));
        weft_text_fini(&x);
        weft_text_fini(&y);
        weft_cluster_destroy(a);
        weft_cluster_destroy(b);
    }
}

static void bad_events(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"cordn node 3", "did you mean 'cordon'?"},
        {"cordon", "says no node"},
        {"cordon node 10", "no node 10"},
        {"cordon node 1 device 8", "so many"},
        {"degrade node 1 speed 2", "(0,1]"},
        {"degrade node 1 sped 0.5", "'speed'"},
        {"cordon node x", "expected a number"},
        {"", "is empty"},
        {"add 2 x (8 x h10-80g)", "'h100-80g'"},
        {"cordon node 1.5", "from 0"},
    };
    weft_cluster *c = start(), *d;
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        assert_int_equal(weft_cluster_change(c, bad[i][0], &d), WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), bad[i][1]))
            fail_msg("%s: %s", bad[i][0], weft_error_text());
    }
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events),
        cmocka_unit_test(ranks_share_a_device),
        cmocka_unit_test(replay),
        cmocka_unit_test(bad_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
