/* Ranks at work for ever, of whom one is killed or stopped: what the others say, and when. */
#ifndef TEST_COMM_KILL_H
#define TEST_COMM_KILL_H

#include <stdlib.h>

#include "comm/ranks.h"

static bool wait_for_work(int n)
{
    for (int i = 0; i < 6000; i++) {
        int busy = 0;
        for (int k = 0; k < n; k++) busy += rank[k].count > 2;
        if (busy == n) return true;
        usleep(5000);
    }
    return false;
}

/* One of n, at any moment; all others name it and are gone within gone_s.  Returns when the last
 * of them noticed. */
__attribute__((unused)) static double kill_one(transport over, int n, rank_fn work,
                                               double gone_s)
{
    int    victim  = rand() % n;
    double noticed = 0;
    char   want[32];
    snprintf(want, sizeof want, "rank %d died", victim);
    start_ranks(over, n, 30, work);
    assert_true(wait_for_work(n));
    usleep((useconds_t)(rand() % 5000));
    double t0 = weft_clock_s();
    kill(rank[victim].pid, SIGKILL);
    end_ranks(over, n);
    for (int k = 0; k < n; k++) {
        if (k == victim) continue;
        assert_true(rank[k].ended);
        assert_int_equal(rank[k].st, WEFT_ERR_PEER);
        if (!strstr(rank[k].text, want)) fail_msg("%s", rank[k].text);
        if (rank[k].done_s - t0 > noticed) noticed = rank[k].done_s - t0;
    }
    assert_true(weft_clock_s() - t0 < gone_s);
    return noticed;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts what kill_one gave, and returns the median. */
__attribute__((unused)) static double say_noticed(const char *who, double *noticed, int n)
{
    qsort(noticed, (size_t)n, sizeof *noticed, by_value);
    print_message(
        "%s: %d kills, noticed by the last survivor: median %.2f ms, most %.2f ms\n", who,
        n, 1e3 * noticed[n / 2], 1e3 * noticed[n - 1]);
    return noticed[n / 2];
}

/* Rank 1 is stopped: the others have given up in time. */
static void stop_one_after(transport over, int n, double limit_s, rank_fn work)
{
    start_ranks(over, n, limit_s, work);
    assert_true(wait_for_work(n));
    double t0 = weft_clock_s();
    kill(rank[1].pid, SIGSTOP);
    for (int i = 0, ended = 0; i < 2000 && ended < n - 1; i++) {
        usleep(5000);
        ended = 0;
        for (int k = 0; k < n; k++) ended += rank[k].ended;
    }
    assert_true(weft_clock_s() - t0 < 8);
    kill(rank[1].pid, SIGKILL);
    end_ranks(over, n);
    for (int k = 0; k < n; k++)
        if (k != 1) assert_int_equal(rank[k].st, WEFT_ERR_PEER);
}

static void stop_one(transport over, int n, rank_fn work)
{
    stop_one_after(over, n, 0.5, work);
}

#endif
