/* What every transport promises, on threads of one process. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm.h"

enum {
    MAX_RANK = 8,
    COUNT    = 1003
};

typedef struct rank_state {
    weft_comm  *c;
    int         n, rank;
    weft_status st;
    char        text[256];
    float       in[COUNT * MAX_RANK], out[COUNT * MAX_RANK];
} rank_state;

static rank_state       rank[MAX_RANK];
static const int32_t    everyone[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
static weft_comm_local *world;

typedef weft_status (*rank_fn)(rank_state *r);
static rank_fn body;

static void *rank_main(void *arg)
{
    rank_state *r = arg;
    r->st         = body(r);
    snprintf(r->text, sizeof r->text, "%s", weft_error_text());
    return NULL;
}

static void run_ranks(int n, double timeout_s, rank_fn f)
{
    pthread_t t[MAX_RANK];
    body = f;
    assert_int_equal(weft_comm_local_create(n, &world), WEFT_OK);
    for (int i = 0; i < n; i++) {
        rank[i].n    = n;
        rank[i].rank = i;
        for (int k = 0; k < COUNT * MAX_RANK; k++)
            rank[i].in[k] = 1.0f / (float)(1 + (k * 37 + i * 101) % 997);
        assert_int_equal(weft_comm_local_join(world, i, timeout_s, &rank[i].c), WEFT_OK);
    }
    for (int i = 0; i < n; i++) pthread_create(&t[i], NULL, rank_main, &rank[i]);
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < n; i++) weft_comm_destroy(rank[i].c);
    weft_comm_local_destroy(world);
}

/* The tree written the plain way: strides 1, 2, 4, ... */
static float tree(int n, int k)
{
    float x[MAX_RANK];
    for (int i = 0; i < n; i++) x[i] = rank[i].in[k];
    for (int d = 1; d < n; d *= 2)
        for (int i = 0; i + d < n; i += 2 * d) x[i] += x[i + d];
    return x[0];
}

static weft_status all_kinds(rank_state *r)
{
    weft_comm_group *g;
    weft_dtype       t = WEFT_DTYPE_F32;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(
        weft_comm_collective(r->c, g, WEFT_COMM_ALL_REDUCE, t, r->in, r->out, COUNT));
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_COMM_BARRIER, t, NULL, NULL, 0));
    for (int k = 0; k < COUNT; k++)
        if (r->out[k] != tree(r->n, k))
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "all_reduce %d", k);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_COMM_REDUCE_SCATTER, t, r->in, r->out,
                                  COUNT * r->n));
    for (int k = 0; k < COUNT; k++)
        if (r->out[k] != tree(r->n, r->rank * COUNT + k))
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "reduce_scatter %d", k);
    WEFT_TRY(
        weft_comm_collective(r->c, g, WEFT_COMM_ALL_GATHER, t, r->in, r->out, COUNT));
    for (int k = 0; k < COUNT * r->n; k++)
        if (r->out[k] != rank[k / COUNT].in[k % COUNT])
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "all_gather %d", k);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_COMM_ALL_TO_ALL, t, r->in, r->out,
                                  COUNT * r->n));
    for (int k = 0; k < COUNT * r->n; k++)
        if (r->out[k] != rank[k / COUNT].in[r->rank * COUNT + k % COUNT])
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "all_to_all %d", k);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_COMM_BROADCAST, t, r->in, r->out, COUNT));
    for (int k = 0; k < COUNT; k++)
        if (r->out[k] != rank[0].in[k])
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "broadcast %d", k);
    return WEFT_OK;
}

static void collectives(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANK; n++) {
        run_ranks(n, 20, all_kinds);
        for (int i = 0; i < n; i++)
            if (rank[i].st != WEFT_OK)
                fail_msg("%d ranks, rank %d: %s", n, i, rank[i].text);
    }
}

static weft_status reduce_in_place(rank_state *r)
{
    weft_comm_group *g;
    memcpy(r->out, r->in, sizeof r->in);
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    return weft_comm_collective(r->c, g, WEFT_COMM_ALL_REDUCE, WEFT_DTYPE_F32, r->out,
                                r->out, COUNT);
}

static void in_place(void **state)
{
    (void)state;
    run_ranks(5, 20, reduce_in_place);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < COUNT; k++) assert_true(rank[i].out[k] == tree(5, k));
}

static int credits;

static weft_status ring_of_messages(rank_state *r)
{
    weft_comm_channel *to, *from;
    int                next = (r->rank + 1) % r->n, prev = (r->rank + r->n - 1) % r->n;
    WEFT_TRY(weft_comm_open_channel(r->c, next, WEFT_COMM_SEND, 1, 8, credits, &to));
    WEFT_TRY(weft_comm_open_channel(r->c, prev, WEFT_COMM_RECV, 1, 8, credits, &from));
    for (int64_t i = 0; i < 300; i++) {
        int64_t x = i * 10 + r->rank, y = 0;
        /* without credits someone has to begin by receiving */
        if (r->rank == 0) WEFT_TRY(weft_comm_send(r->c, to, &x, 8));
        WEFT_TRY(weft_comm_recv(r->c, from, &y, 8));
        if (r->rank != 0) WEFT_TRY(weft_comm_send(r->c, to, &x, 8));
        if (y != i * 10 + prev) return WEFT_FAIL(WEFT_ERR_NUMERIC, "message %d", (int)i);
    }
    return WEFT_OK;
}

static void messages_in_order(void **state)
{
    (void)state;
    for (credits = 0; credits <= 2; credits++) {
        run_ranks(3, 20, ring_of_messages);
        for (int i = 0; i < 3; i++)
            if (rank[i].st != WEFT_OK)
                fail_msg("%d credits, rank %d: %s", credits, i, rank[i].text);
    }
}

static weft_status rank_2_is_late(rank_state *r)
{
    weft_comm_group *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (r->rank == 2) return WEFT_OK;
    return weft_comm_collective(r->c, g, WEFT_COMM_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

static weft_status nobody_receives(rank_state *r)
{
    weft_comm_channel *ch;
    char               x = 0;
    if (r->rank == 1) return WEFT_OK;
    if (r->rank == 0) {
        WEFT_TRY(weft_comm_open_channel(r->c, 1, WEFT_COMM_SEND, 1, 1, 0, &ch));
        return weft_comm_send(r->c, ch, &x, 1);
    }
    WEFT_TRY(weft_comm_open_channel(r->c, 1, WEFT_COMM_RECV, 2, 1, 1, &ch));
    return weft_comm_recv(r->c, ch, &x, 1);
}

static void the_late_are_named(void **state)
{
    (void)state;
    double t0 = weft_clock_s();
    run_ranks(4, 0.1, rank_2_is_late);
    for (int i = 0; i < 4; i++) {
        if (i == 2) continue;
        assert_int_equal(rank[i].st, WEFT_ERR_PEER);
        assert_non_null(strstr(rank[i].text, "rank 2 is silent"));
    }
    run_ranks(3, 0.1, nobody_receives);
    assert_non_null(strstr(rank[0].text, "rank 1 is silent"));
    assert_non_null(strstr(rank[2].text, "rank 1 is silent"));
    assert_true(weft_clock_s() - t0 < 10);
}

static weft_status rank_1_gives_up(rank_state *r)
{
    weft_comm_channel *ch;
    weft_comm_group   *g;
    char               x;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (r->rank == 1) {
        usleep(20000);
        weft_comm_abort(r->c, "out of paper");
        return WEFT_OK;
    }
    if (r->rank == 0)
        return weft_comm_collective(r->c, g, WEFT_COMM_BARRIER, WEFT_DTYPE_U8, NULL, NULL,
                                    0);
    WEFT_TRY(weft_comm_open_channel(r->c, 0, WEFT_COMM_RECV, 2, 1, 1, &ch));
    return weft_comm_recv(r->c, ch, &x, 1);
}

static void giving_up_ends_all(void **state)
{
    (void)state;
    double t0 = weft_clock_s();
    run_ranks(3, 60, rank_1_gives_up);
    assert_true(weft_clock_s() - t0 < 30);
    assert_int_equal(rank[0].st, WEFT_ERR_PEER);
    assert_int_equal(rank[2].st, WEFT_ERR_PEER);
    assert_string_equal(rank[0].text, "rank 1 gave up: out of paper");
}

static weft_status new_epoch(rank_state *r)
{
    weft_comm_channel *ch;
    weft_comm_group   *g;
    int                x = 1;
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &g));
    WEFT_TRY(weft_comm_open_channel(
        r->c, !r->rank, r->rank ? WEFT_COMM_RECV : WEFT_COMM_SEND, 1, 4, 3, &ch));
    if (r->rank == 0) {
        WEFT_TRY(weft_comm_send(r->c, ch, &x, 4));
        x = 2;
        weft_comm_set_epoch(r->c, 7);
        WEFT_TRY(weft_comm_send(r->c, ch, &x, 4));
    } else {
        weft_comm_set_epoch(r->c, 7);
        WEFT_TRY(weft_comm_recv(r->c, ch, &x, 4));
        if (x != 2) return WEFT_FAIL(WEFT_ERR_NUMERIC, "an old message came through");
    }
    WEFT_TRY(
        weft_comm_collective(r->c, g, WEFT_COMM_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
    weft_comm_set_epoch(r->c, 3);
    if (weft_comm_collective(r->c, g, WEFT_COMM_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0) !=
        WEFT_ERR_PEER)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "an old member was let in");
    return WEFT_OK;
}

static void older_epochs_are_dropped(void **state)
{
    (void)state;
    run_ranks(2, 20, new_epoch);
    for (int i = 0; i < 2; i++)
        if (rank[i].st != WEFT_OK) fail_msg("rank %d: %s", i, rank[i].text);
}

static void bf16_is_rounded_once(void **state)
{
    (void)state;
    /* 1 + 2^-8 + 2^-8: rounding after each addition would give 1 */
    uint16_t    a = 0x3f80, b = 0x3b80, c = 0x3b80, y;
    const void *in[] = {&a, &b, &c};
    assert_int_equal(weft_comm_sum(WEFT_DTYPE_BF16, 3, in, &y, 1), WEFT_OK);
    assert_int_equal(y, 0x3f81);
    assert_int_equal(weft_comm_sum(WEFT_DTYPE_BOOL, 1, in, &y, 1), WEFT_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives),
        cmocka_unit_test(in_place),
        cmocka_unit_test(messages_in_order),
        cmocka_unit_test(the_late_are_named),
        cmocka_unit_test(giving_up_ends_all),
        cmocka_unit_test(older_epochs_are_dropped),
        cmocka_unit_test(bf16_is_rounded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
