/* What every transport promises about calls that are started, and about closing and dropping
 * (comm.h), on each of them. */
#include <stdlib.h>

#include "comm/ranks.h"
#include "support/test.h"

enum {
    LATE_US = 200000,
    COUNT   = 1 << 16,
};

static weft_comm_call sum_of(weft_comm_group *g, float *in, float *out, int64_t count)
{
    return (weft_comm_call){.group  = g,
                            .kind   = WEFT_ALL_REDUCE,
                            .dtype  = WEFT_DTYPE_F32,
                            .tensor = {.in = in, .out = out, .count = count}};
}

static void fill(float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++) x[i] = by * (float)(1 + i % 251);
}

static weft_status check(const float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != by * (float)(1 + i % 251))
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "element %lld is %g", (long long)i,
                             (double)x[i]);
    return WEFT_OK;
}

/* 1 + 2 + .. + n */
static float ranks_sum(int n)
{
    return (float)(n * (n + 1) / 2);
}

/* ---- start, test, wait ---- */

typedef struct two_calls {
    weft_comm_group   *g[2];
    weft_comm_request *request[2];
    float             *in[2], *out[2];
} two_calls;

static weft_status prepare_two(rank_state *r, two_calls *x)
{
    for (int k = 0; k < 2; k++) {
        WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5 + k, &x->g[k]));
        x->in[k]  = malloc(sizeof *x->in[k] * COUNT);
        x->out[k] = malloc(sizeof *x->out[k] * COUNT);
        if (!x->in[k] || !x->out[k]) return WEFT_FAIL(WEFT_ERR_MEM, "test");
        fill(x->in[k], COUNT, (float)((k + 1) * (r->rank + 1)));
        weft_comm_call call = sum_of(x->g[k], x->in[k], x->out[k], COUNT);
        WEFT_TRY(weft_comm_prepare(r->c, &call, &x->request[k]));
    }
    return WEFT_OK;
}

static void free_two(two_calls *x)
{
    for (int k = 0; k < 2; k++) {
        weft_comm_release(x->request[k]);
        free(x->in[k]);
        free(x->out[k]);
    }
}

static weft_status release_two(rank_state *r, two_calls *x)
{
    free_two(x);
    for (int k = 0; k < 2; k++) WEFT_TRY(weft_comm_close_group(r->c, x->g[k]));
    return WEFT_OK;
}

/* The shortest of several attempts: a loaded machine may take a thread's turn away at any time. */
static weft_status start_is_short(weft_comm_request *r, double *shortest)
{
    double t0 = weft_clock_s();
    WEFT_TRY(weft_comm_start(r));
    double s = weft_clock_s() - t0;
    if (s < *shortest) *shortest = s;
    return WEFT_OK;
}

static weft_status test_is_short(weft_comm_request *r, bool *done, double *longest)
{
    double      t0 = weft_clock_s();
    weft_status st = weft_comm_test(r, done);
    double      s  = weft_clock_s() - t0;
    if (s > *longest) *longest = s;
    return st;
}

/* Rank 0 is late.  The others start the calls of both groups, in another order at each rank; both
 * are in flight while it sleeps, and no test blocks. */
static weft_status one_is_late(rank_state *r)
{
    two_calls x        = {0};
    double    shortest = 1, longest = 0;
    WEFT_TRY(prepare_two(r, &x));
    for (int turn = 0; turn < 3; turn++) {
        bool done[2] = {false, false}, early = false;
        WEFT_TRY(weft_comm_collective(r->c, x.g[0], WEFT_BARRIER, WEFT_DTYPE_U8, NULL,
                                      NULL, 0));
        double t0 = weft_clock_s();
        if (!r->rank) usleep(LATE_US);
        for (int k = 0; k < 2; k++)
            WEFT_TRY(start_is_short(x.request[r->rank % 2 ? k : !k], &shortest));
        while (!done[0] || !done[1]) {
            for (int k = 0; k < 2; k++)
                if (!done[k]) WEFT_TRY(test_is_short(x.request[k], &done[k], &longest));
            early = early || ((done[0] || done[1]) && weft_clock_s() - t0 < 0.1);
            usleep(200);
        }
        if (early) return WEFT_FAIL(WEFT_ERR_INTERNAL, "done before rank 0 came");
        for (int k = 0; k < 2; k++)
            WEFT_TRY(check(x.out[k], COUNT, (float)(k + 1) * ranks_sum(r->n)));
    }
    r->note_s = shortest;
    if (longest > 0.1) return WEFT_FAIL(WEFT_ERR_INTERNAL, "a test took %g s", longest);
    return release_two(r, &x);
}

static void start_does_not_wait_for_the_late(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (int n = 2; n <= 4; n += 2) {
            run_ranks((transport)over, n, 20, one_is_late);
            all_ok((transport)over, n);
            for (int i = 0; i < n; i++)
                if (rank[i].note_s > 1e-3)
                    fail_msg("%s: start took %g s", transport_name[over], rank[i].note_s);
        }
}

/* Progress is made without the caller: it sleeps, and finds the call done. */
static weft_status sleep_meanwhile(rank_state *r)
{
    two_calls x = {0};
    bool      done;
    WEFT_TRY(prepare_two(r, &x));
    WEFT_TRY(weft_comm_start(x.request[1]));
    WEFT_TRY(weft_comm_start(x.request[0]));
    if (weft_comm_start(x.request[0]) != WEFT_ERR_ARG)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "started twice");
    for (int i = 0; i < 100; i++) {
        usleep(20000);
        WEFT_TRY(weft_comm_test(x.request[1], &done));
        if (done) break;
    }
    if (!done) return WEFT_FAIL(WEFT_ERR_INTERNAL, "no progress in 2 s");
    WEFT_TRY(check(x.out[1], COUNT, 2 * ranks_sum(r->n)));
    WEFT_TRY(weft_comm_wait(x.request[0]));
    WEFT_TRY(check(x.out[0], COUNT, ranks_sum(r->n)));
    return release_two(r, &x);
}

/* Calls of one group, started in one order and waited for in another. */
static weft_status many_of_one_group(rank_state *r)
{
    enum {
        CALLS = 8
    };
    weft_comm_group   *g;
    weft_comm_request *request[CALLS];
    float              x[CALLS][64];
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    for (int k = 0; k < CALLS; k++) {
        weft_comm_call call = sum_of(g, x[k], x[k], 64 - k);
        WEFT_TRY(weft_comm_prepare(r->c, &call, &request[k]));
    }
    for (int turn = 0; turn < 20; turn++) {
        for (int k = 0; k < CALLS; k++) fill(x[k], 64, (float)((k + 1) * (r->rank + 1)));
        for (int k = 0; k < CALLS; k++) WEFT_TRY(weft_comm_start(request[k]));
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
        for (int k = CALLS - 1; k >= 0; k--) {
            WEFT_TRY(weft_comm_wait(request[(k + r->rank) % CALLS]));
            int done = (k + r->rank) % CALLS;
            WEFT_TRY(check(x[done], 64 - done, (float)(done + 1) * ranks_sum(r->n)));
        }
        fill(x[0], 64, (float)(r->rank + 1));
        WEFT_TRY(weft_comm_run_request(request[0]));
        WEFT_TRY(check(x[0], 64, ranks_sum(r->n)));
    }
    for (int k = 0; k < CALLS; k++) weft_comm_release(request[k]);
    return WEFT_OK;
}

static void calls_make_progress_in_order(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 3, 20, sleep_meanwhile);
        all_ok((transport)over, 3);
        run_ranks((transport)over, 4, 20, many_of_one_group);
        all_ok((transport)over, 4);
    }
}

/* Rank 1 does not come: what was started ends, and names it. */
static weft_status rank_1_stays_away(rank_state *r)
{
    two_calls   x = {0};
    weft_status st;
    bool        done = false;
    WEFT_TRY(prepare_two(r, &x));
    if (r->rank == 1) {
        usleep(1500000);
        free_two(&x);
        return WEFT_OK;
    }
    WEFT_TRY(weft_comm_start(x.request[0]));
    do {
        usleep(1000);
        st = weft_comm_test(x.request[0], &done);
    } while (!done);
    free_two(&x);
    return st;
}

static void a_started_call_ends(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 0.3, rank_1_stays_away);
        assert_int_equal(rank[0].st, WEFT_ERR_PEER);
        assert_non_null(strstr(rank[0].text, "rank 1"));
    }
}

/* ---- bytes ---- */

static weft_status share_bytes(rank_state *r)
{
    static const int64_t sizes[] = {0, 1, 3, 257, 4099, 1000003};
    weft_comm_group     *g;
    unsigned char       *p = malloc(1000003);
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    for (size_t s = 0; p && s < WEFT_COUNT(sizes); s++) {
        for (int64_t i = 0; i < sizes[s]; i++)
            p[i] = (unsigned char)(r->rank ? 0 : i * 7 + (int64_t)s);
        WEFT_TRY(weft_comm_broadcast_bytes(r->c, g, p, sizes[s]));
        for (int64_t i = 0; i < sizes[s]; i++)
            if (p[i] != (unsigned char)(i * 7 + (int64_t)s))
                return WEFT_FAIL(WEFT_ERR_NUMERIC, "byte %lld", (long long)i);
    }
    free(p);
    return WEFT_OK;
}

static void bytes_of_any_number(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (int n = 1; n <= 5; n += 2) {
            run_ranks((transport)over, n, 20, share_bytes);
            all_ok((transport)over, n);
        }
}

/* ---- closing ---- */

/* A channel of other sizes each time; nobody waits for the other side to close. */
static weft_status reopen_channels(rank_state *r)
{
    char buffer[300];
    for (int turn = 0; turn < 40; turn++) {
        weft_comm_channel *ch;
        int                bytes = 8 + turn * 7, credits = turn % 4;
        weft_comm_side     side = r->rank ? WEFT_COMM_RECV : WEFT_COMM_SEND;
        WEFT_TRY(weft_comm_open_channel(r->c, !r->rank, side, 3, bytes, credits, &ch));
        for (int m = 0; m < 1 + credits; m++) {
            memset(buffer, r->rank ? 0 : turn + m, sizeof buffer);
            WEFT_TRY(r->rank ? weft_comm_recv(r->c, ch, buffer, bytes)
                             : weft_comm_send(r->c, ch, buffer, bytes));
            if (buffer[0] != turn + m || buffer[bytes - 1] != turn + m)
                return WEFT_FAIL(WEFT_ERR_NUMERIC, "message %d of turn %d", m, turn);
        }
        WEFT_TRY(weft_comm_close_channel(r->c, ch));
        if (turn % 8 == 0) usleep(r->rank ? 3000 : 0);
    }
    return r->c->bytes ? WEFT_FAIL(WEFT_ERR_INTERNAL, "%lld bytes are still held",
                                   (long long)r->c->bytes)
                       : WEFT_OK;
}

/* The same ranks under the same tag, with calls of other sizes; one handle for two openings. */
static weft_status reopen_groups(rank_state *r)
{
    float x[4096];
    for (int turn = 0; turn < 40; turn++) {
        weft_comm_group *g, *again;
        int64_t          count = turn % 3 ? 64 + turn : 4096;
        WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
        WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &again));
        if (g != again) return WEFT_FAIL(WEFT_ERR_INTERNAL, "two groups of one key");
        WEFT_TRY(weft_comm_close_group(r->c, again));
        for (int k = 0; k < 1 + turn % 4; k++) {
            fill(x, count, (float)(r->rank + 1));
            weft_comm_call call = sum_of(g, x, x, count);
            WEFT_TRY(weft_comm_run(r->c, &call));
            WEFT_TRY(check(x, count, ranks_sum(r->n)));
        }
        WEFT_TRY(weft_comm_close_group(r->c, g));
        if (turn % 8 == 0) usleep(r->rank ? 0 : 3000);
    }
    return WEFT_OK;
}

static void keys_can_be_used_again(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 20, reopen_channels);
        all_ok((transport)over, 2);
        for (int n = 2; n <= 4; n++) {
            run_ranks((transport)over, n, 20, reopen_groups);
            all_ok((transport)over, n);
        }
    }
}

/* ---- dropping ---- */

/* Rank 0 leaves with two calls in flight, to which rank 1 never comes. */
static weft_status drop_in_flight(rank_state *r)
{
    two_calls x = {0};
    WEFT_TRY(prepare_two(r, &x));
    WEFT_TRY(
        weft_comm_collective(r->c, x.g[0], WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
    if (r->rank) {
        usleep(LATE_US);
        free_two(&x);
        return WEFT_OK;
    }
    for (int k = 0; k < 2; k++) WEFT_TRY(weft_comm_start(x.request[k]));
    usleep(50000); /* both sleep in the transport */
    double t0 = weft_clock_s();
    weft_comm_drop(r->c);
    r->note_s = weft_clock_s() - t0;
    r->c      = NULL;
    free_two(&x);
    return WEFT_OK;
}

static void dropping_waits_for_nobody(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        double shortest = 1;
        for (int i = 0; i < 12 && shortest > 0.02;
             i++) { /* others use the machine, too */
            run_ranks((transport)over, 2, 20, drop_in_flight);
            all_ok((transport)over, 2);
            if (rank[0].note_s < shortest) shortest = rank[0].note_s;
        }
        if (shortest > 0.02) fail_msg("%s: it took %g s", transport_name[over], shortest);
    }
}

/* ---- the first cause ---- */

/* The second to give up has heard of the first. */
static bool one_after_the_other;

/* What failed just now: for the reason that the rank's calls before it had? */
static weft_status has_same_cause(char first[256], const char *what, weft_status st)
{
    char now[256];
    snprintf(now, sizeof now, "%s", weft_error_text());
    if (st != WEFT_ERR_PEER)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s ended with status %d", what, (int)st);
    if (!first[0]) memcpy(first, now, sizeof now);
    return strcmp(first, now)
               ? WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: '%s', before: '%s'", what, now, first)
               : WEFT_OK;
}

/* Every kind of operation, when all is over. */
static weft_status all_have_same_cause(rank_state *r, two_calls *x,
                                       weft_comm_channel *const ch[2], char first[256])
{
    char byte = 0;
    for (int k = 0; k < 2; k++) {
        WEFT_TRY(has_same_cause(first, "a barrier",
                                weft_comm_collective(r->c, x->g[k], WEFT_BARRIER,
                                                     WEFT_DTYPE_U8, NULL, NULL, 0)));
        WEFT_TRY(weft_comm_start(x->request[k]));
        WEFT_TRY(has_same_cause(first, "a new call", weft_comm_wait(x->request[k])));
    }
    WEFT_TRY(has_same_cause(first, "send", weft_comm_send(r->c, ch[0], &byte, 1)));
    WEFT_TRY(has_same_cause(first, "receive", weft_comm_recv(r->c, ch[1], &byte, 1)));
    return has_same_cause(first, "check", weft_comm_check(r->c));
}

/* Until so many ranks have counted so far. */
static void wait_counted(int n, int want, int count)
{
    for (double until = weft_clock_s() + 20; weft_clock_s() < until; sched_yield()) {
        int there = 0;
        for (int i = 0; i < n; i++) there += atomic_load(&rank[i].count) >= count;
        if (there >= want) return;
    }
}

/* Ranks 1 and 2 give up for different reasons.  Each rank has a call in flight, of the group to
 * which rank 3 does not come or of that to which rank 0 does not. */
static weft_status two_give_up(rank_state *r)
{
    two_calls          x          = {0};
    char               first[256] = "";
    weft_comm_channel *ch[2];
    WEFT_TRY(prepare_two(r, &x));
    for (int k = 0; k < 2; k++) /* a ring of ranks, each way */
        WEFT_TRY(weft_comm_open_channel(r->c, (r->rank + (k ? r->n - 1 : 1)) % r->n,
                                        k ? WEFT_COMM_RECV : WEFT_COMM_SEND, 3, 1, 1,
                                        &ch[k]));
    WEFT_TRY(
        weft_comm_collective(r->c, x.g[0], WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
    for (int k = 0; k < 2; k++)
        if (r->rank != (k ? 0 : 3)) WEFT_TRY(weft_comm_start(x.request[k]));
    atomic_store(&r->count, 1);
    wait_counted(r->n, r->n, 1);
    if (r->rank == 1) weft_comm_abort(r->c, "out of paper");
    if (r->rank == 2 && one_after_the_other) {
        WEFT_TRY(has_same_cause(first, "a call", weft_comm_wait(x.request[0])));
        WEFT_TRY(weft_comm_start(x.request[0]));
    }
    if (r->rank == 2) weft_comm_abort(r->c, "out of ink");
    for (int k = 0; k < 2; k++)
        if (r->rank != (k ? 0 : 3))
            WEFT_TRY(
                has_same_cause(first, "a call in flight", weft_comm_wait(x.request[k])));
    WEFT_TRY(all_have_same_cause(r, &x, ch, first));
    atomic_store(&r->count, 2);
    wait_counted(r->n, r->n, 2);
    usleep(20000); /* what others have said is here */
    WEFT_TRY(all_have_same_cause(r, &x, ch, first));
    atomic_store(&r->count, 3);
    wait_counted(r->n, r->n, 3); /* none is gone before */
    free_two(&x);
    return WEFT_FAIL(WEFT_ERR_PEER, "%s", first);
}

/* Of ranks with the same number memory is shared. */
static int host_of(transport over, int i)
{
    if (over == HOSTS || over == BOTH) return i / 2;
    return over == TCP || over == UCX ? i : 0;
}

static void check_causes(transport over, int n)
{
    const char *const cause[] = {"rank 1 gave up: out of paper",
                                 "rank 2 gave up: out of ink"};
    for (int i = 0; i < n; i++) {
        bool is_first = !strcmp(rank[i].text, cause[0]);
        if (rank[i].st != WEFT_ERR_PEER ||
            (!is_first && (one_after_the_other || strcmp(rank[i].text, cause[1]))))
            fail_msg("%s: rank %d: %s", transport_name[over], i, rank[i].text);
        for (int k = 0; k < i; k++)
            if (host_of(over, k) == host_of(over, i) &&
                strcmp(rank[k].text, rank[i].text))
                fail_msg("%s: rank %d: %s, rank %d: %s", transport_name[over], k,
                         rank[k].text, i, rank[i].text);
    }
}

static void the_first_cause_stands(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (int i = 0; i < (TEST_LONG ? 40 : 6); i++) {
            one_after_the_other = i % 3 == 2;
            run_ranks((transport)over, 4, 20, two_give_up);
            check_causes((transport)over, 4);
        }
}

/* Rank 1 gives up while all are in the middle of a call.  Whose call is over frees its memory,
 * whatever the others still do. */
static weft_status give_up_within(rank_state *r)
{
    enum {
        LARGE = 1 << 20
    };
    two_calls x = {0};
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &x.g[0]));
    x.in[0]  = calloc(LARGE, sizeof *x.in[0]);
    x.out[0] = calloc(LARGE, sizeof *x.out[0]);
    if (!x.in[0] || !x.out[0]) return WEFT_FAIL(WEFT_ERR_MEM, "test");
    weft_comm_call call = sum_of(x.g[0], x.in[0], x.out[0], LARGE);
    WEFT_TRY(weft_comm_prepare(r->c, &call, &x.request[0]));
    weft_status st = weft_comm_run_request(x.request[0]);
    if (st == WEFT_OK) st = weft_comm_start(x.request[0]);
    if (st == WEFT_OK && r->rank == 1) {
        usleep((useconds_t)(rand() % 3000));
        weft_comm_abort(r->c, "out of paper");
    }
    if (st == WEFT_OK) st = weft_comm_wait(x.request[0]);
    free_two(&x);
    return st;
}

static void a_call_that_is_over_leaves_its_memory(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (int i = 0; i < (TEST_LONG ? 40 : over < SHM ? 8 : 2); i++) {
            run_ranks((transport)over, 4, 20, give_up_within);
            for (int k = 0; k < 4; k++)
                if (rank[k].st != WEFT_OK &&
                    strcmp(rank[k].text, "rank 1 gave up: out of paper"))
                    fail_msg("%s: rank %d: %s", transport_name[over], k, rank[k].text);
        }
}

/* Ranks 0 and 3 say that they wait, rank 1 has and does not any more, rank 2 says nothing.  Every
 * rank hears it of every other, sooner or later, and none of a key that no rank has named. */
static weft_status some_wait(rank_state *r)
{
    enum {
        KEY = 0x7007
    };
    weft_comm_group *g;
    double           until = weft_clock_s() + 10;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (!weft_comm_can_note(r->c)) return WEFT_FAIL(WEFT_ERR_INTERNAL, "no notes");
    if (r->rank != 2) weft_comm_note(r->c, r->n, everyone, KEY, true);
    if (r->rank == 1) weft_comm_note(r->c, r->n, everyone, KEY + 1, true);
    if (r->rank == 1) weft_comm_note(r->c, r->n, everyone, KEY, false);
    for (int other = 0; other < r->n; other++) {
        if (other == r->rank) continue;
        while (weft_clock_s() < until &&
               (weft_comm_is_noted(r->c, other, KEY) != (other == 0 || other == 3) ||
                weft_comm_is_noted(r->c, other, KEY + 1) != (other == 1)))
            usleep(1000);
    }
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
    for (int other = 0; other < r->n; other++) {
        bool waits = other == 0 || other == 3;
        if (other == r->rank) continue;
        if (weft_comm_is_noted(r->c, other, KEY) != waits ||
            weft_comm_is_noted(r->c, other, KEY + 1) != (other == 1) ||
            weft_comm_is_noted(r->c, other, KEY + 2))
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "rank %d %s", other,
                             waits ? "waits, and it was not heard"
                                   : "does not wait, and is said to");
    }
    return WEFT_OK;
}

static void long_waits_are_noted(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 4, 20, some_wait);
        all_ok((transport)over, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(start_does_not_wait_for_the_late),
        cmocka_unit_test(calls_make_progress_in_order),
        test_sanitized(a_started_call_ends),
        cmocka_unit_test(bytes_of_any_number),
        test_sanitized(keys_can_be_used_again),
        test_plain(dropping_waits_for_nobody),
        cmocka_unit_test(long_waits_are_noted),
        cmocka_unit_test(the_first_cause_stands),
        cmocka_unit_test(a_call_that_is_over_leaves_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
