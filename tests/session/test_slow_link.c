/* Which links are slow, by accounts of what has gone over them. */
#include "support/test.h"

#include <math.h>

#include "session/slow_link.h"

enum {
    WORLD = 4
};

static const int32_t HOST[WORLD] = {0, 0, 2, 3};

typedef struct net {
    weft_slow_links x;
    weft_comm_link  link[WORLD]; /* so far */
} net;

static void begin(net *n, const int32_t *host)
{
    *n = (net){0};
    assert_int_equal(weft_slow_links_begin(&n->x, WORLD, host), WEFT_OK);
    for (int k = 0; k < WORLD; k++) n->link[k].rank = k;
}

/* 10 MB over each link, at so many MB/s; 0: nothing. */
static void carry(net *n, const double rate[WORLD], double crowding)
{
    for (int k = 0; k < WORLD; k++) {
        if (!(rate[k] > 0)) continue;
        n->link[k].bytes += 10 << 20;
        n->link[k].busy_s += (10 << 20) / (1e6 * rate[k]);
    }
    weft_slow_links_add(&n->x, n->link, WORLD, crowding);
}

static void assert_none(net *n)
{
    weft_slow_link out;
    assert_false(weft_slow_links_next(&n->x, &out));
}

static void assert_slow(net *n, int to, double rate, double usual)
{
    weft_slow_link out;
    assert_true(weft_slow_links_next(&n->x, &out));
    assert_int_equal(out.to, to);
    assert_true(fabs(out.rate - 1e6 * rate) < 1);
    assert_true(fabs(out.usual_rate - 1e6 * usual) < 1);
    assert_none(n);
}

static void one_that_becomes_slow_is_named_once(void **state)
{
    static const double usual[WORLD] = {0, 0, 100, 90}, slow[WORLD] = {0, 0, 100, 20};
    net                 n;
    (void)state;
    begin(&n, HOST);
    for (int k = 0; k < 5; k++) carry(&n, usual, 1);
    assert_none(&n);
    carry(&n, slow, 1);
    carry(&n, slow, 1);
    assert_none(&n); /* two times are no three */
    carry(&n, slow, 1);
    assert_slow(&n, 3, 20, 100);
    for (int k = 0; k < 5; k++) carry(&n, slow, 1);
    assert_none(&n);
    carry(&n, usual, 1); /* and once more after it was well */
    for (int k = 0; k < 3; k++) carry(&n, slow, 1);
    assert_slow(&n, 3, 20, 100);
    weft_slow_links_fini(&n.x);
}

static void the_only_link_is_compared_with_what_it_was(void **state)
{
    static const double usual[WORLD] = {0, 0, 100, 0}, slow[WORLD] = {0, 0, 30, 0},
                        half[WORLD] = {0, 0, 40, 0};
    net n;
    (void)state;
    begin(&n, HOST);
    carry(&n, usual, 1);
    for (int k = 0; k < 9; k++) carry(&n, half, 1); /* not a third */
    assert_none(&n);
    for (int k = 0; k < 3; k++) carry(&n, slow, 1);
    assert_slow(&n, 2, 30, 100);
    weft_slow_links_fini(&n.x);
}

static void links_to_one_host_share_its_cable(void **state)
{
    static const int32_t one[WORLD]  = {0, 1, 1, 1};
    static const double  rate[WORLD] = {0, 5, 90, 100};
    net                  n;
    (void)state;
    begin(&n, one); /* slow from the first moment, beside no other host: it may be so */
    for (int k = 0; k < 5; k++) carry(&n, rate, 1);
    assert_none(&n);
    weft_slow_links_fini(&n.x);
    begin(&n, NULL); /* each rank a host of its own */
    for (int k = 0; k < 3; k++) carry(&n, rate, 1);
    assert_slow(&n, 1, 5, 95);
    weft_slow_links_fini(&n.x);
}

static void breaks_small_messages_and_crowded_cores_are_no_slow_links(void **state)
{
    static const double usual[WORLD] = {0, 0, 100, 90}, slow[WORLD] = {0, 0, 10, 90};
    net                 n;
    (void)state;
    begin(&n, HOST);
    carry(&n, usual, 1);
    for (int k = 0; k < 8; k++) { /* broken for two times, well again */
        carry(&n, slow, 1);
        carry(&n, slow, 1);
        carry(&n, usual, 1);
    }
    for (int k = 0; k < 8; k++) carry(&n, slow, 4); /* four processes for a core */
    assert_none(&n);
    for (int k = 0; k < 8; k++) { /* 1 MB is the least that is judged */
        n.link[2].bytes += 1 << 19;
        n.link[2].busy_s += 10;
        weft_slow_links_add(&n.x, n.link, WORLD, 1);
    }
    assert_none(&n);
    n.link[2] = (weft_comm_link){.rank = 2}; /* connected anew */
    weft_slow_links_add(&n.x, n.link, WORLD, 1);
    for (int k = 0; k < 2; k++) carry(&n, slow, 1);
    assert_none(&n);
    carry(&n, slow, 1);
    assert_slow(&n, 2, 10, 100);
    weft_slow_links_fini(&n.x);
}

/* What an unloaded time has shown is usual; a crowded one shows nothing better. */
static void crowding_makes_no_rate_better(void **state)
{
    static const double usual[WORLD] = {0, 0, 100, 0};
    net                 n;
    (void)state;
    begin(&n, HOST);
    for (int k = 0; k < 5; k++) carry(&n, usual, 8);
    for (int k = 0; k < 5; k++) carry(&n, usual, 1);
    assert_none(&n);
    weft_slow_links_fini(&n.x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_becomes_slow_is_named_once),
        cmocka_unit_test(the_only_link_is_compared_with_what_it_was),
        cmocka_unit_test(links_to_one_host_share_its_cable),
        cmocka_unit_test(breaks_small_messages_and_crowded_cores_are_no_slow_links),
        cmocka_unit_test(crowding_makes_no_rate_better),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
