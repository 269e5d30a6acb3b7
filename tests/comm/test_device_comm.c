/* Ways of communication on devices, without a device: who is told to work together, and that what
 * ends communication anywhere ends what a backend has under way, on every transport. */
#include <stdatomic.h>
#include <stdlib.h>

#include "comm/device_comm.h"
#include "comm/ranks.h"

static _Thread_local weft_device *here; /* NULL: this rank does not take part */

/* ---- a backend that does nothing but note what it is told ---- */

typedef struct test_end {
    _Atomic int n_look, n_abort, fail;
} test_end;

static weft_status hello(weft_device *d, weft_device_hello *out)
{
    (void)d;
    out->bytes[0] = 1;
    return WEFT_OK;
}

/* Pairs only. */
static bool joins(const weft_device_hello *const *x, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i]->bytes[0] != 1) return false;
    return n == 2;
}

static test_end *new_end(void)
{
    return calloc(1, sizeof(test_end));
}

static weft_status open_end(weft_device_comm *dc)
{
    dc->impl = new_end();
    return dc->impl ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

static void close_end(weft_device_comm *dc)
{
    free(dc->impl);
}

static weft_status look(weft_device_comm *dc)
{
    test_end *e = dc->impl;
    atomic_fetch_add(&e->n_look, 1);
    return e->fail ? WEFT_FAIL(WEFT_ERR_PEER, "rank 1 is late") : WEFT_OK;
}

static void abort_end(weft_device_comm *dc)
{
    atomic_fetch_add(&((test_end *)dc->impl)->n_abort, 1);
}

static const weft_device_backend backend = {.name  = "test",
                                            .hello = hello,
                                            .joins = joins,
                                            .open  = open_end,
                                            .close = close_end,
                                            .look  = look,
                                            .abort = abort_end};

static weft_status expect(bool ok, const char *what)
{
    return ok ? WEFT_OK : WEFT_FAIL(WEFT_ERR_INTERNAL, "not so: %s", what);
}

/* ---- who works together ---- */

static weft_status open_of_three(rank_state *r, weft_device_comm **out)
{
    static weft_device device;
    here = r->rank == 2 ? NULL : &device;
    return weft_device_comm_open(here ? &backend : NULL, here, r->c, out);
}

static weft_status tell(rank_state *r)
{
    weft_device_comm    *dc;
    weft_status          st       = WEFT_OK;
    static const int32_t all[][3] = {{0, 1, 2}, {0, 2, 0}, {1, 0, 0}};
    WEFT_TRY(open_of_three(r, &dc));
    if (r->rank == 2)
        return expect(!dc && !weft_device_comm_joins(dc, 2, all[2]), "none");
    WEFT_GO(expect(dc && weft_device_comm_joins(dc, 2, all[2]), "a pair of devices"));
    WEFT_GO(expect(!weft_device_comm_joins(dc, 2, all[1]), "with a rank on the host"));
    WEFT_GO(expect(!weft_device_comm_joins(dc, 3, all[0]), "all three"));
    WEFT_GO(weft_device_comm_check(dc));
out:
    weft_device_comm_close(dc);
    return st;
}

static void all_ranks_give_one_answer(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 3, 20, tell);
        for (int i = 0; i < 3; i++)
            if (rank[i].st != WEFT_OK)
                fail_msg("%s, rank %d: %s", transport_name[over], i, rank[i].text);
    }
}

/* ---- somebody gives up ---- */

static weft_status wait_for_end(weft_device_comm *dc)
{
    double      until = weft_clock_s() + 10;
    weft_status st    = WEFT_OK;
    while (st == WEFT_OK && weft_clock_s() < until) {
        usleep(1000);
        st = weft_device_comm_check(dc);
    }
    usleep(20000); /* abort comes after the word */
    return st;
}

static weft_status give_up(rank_state *r)
{
    weft_device_comm *dc;
    WEFT_TRY(open_of_three(r, &dc));
    if (r->rank == 2) {
        weft_comm_abort(r->c, "the test says so");
        return WEFT_FAIL(WEFT_ERR_PEER, "gave up: the test says so");
    }
    weft_status st = wait_for_end(dc);
    if (((test_end *)dc->impl)->n_abort < 1) st = WEFT_ERR_INTERNAL;
    r->count = ((test_end *)dc->impl)->n_look;
    weft_device_comm_close(dc);
    return st;
}

static void an_abort_ends_what_is_under_way(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 3, 20, give_up);
        for (int i = 0; i < 3; i++)
            if (rank[i].st != WEFT_ERR_PEER || !strstr(rank[i].text, "the test says so"))
                fail_msg("%s, rank %d: %d %s", transport_name[over], i, (int)rank[i].st,
                         rank[i].text);
    }
}

/* ---- a backend that fails by itself ---- */

static weft_status find_late(rank_state *r)
{
    weft_device_comm *dc;
    WEFT_TRY(open_of_three(r, &dc));
    if (r->rank == 2) { /* learns of it by the host's comm */
        double      until = weft_clock_s() + 10;
        weft_status st    = WEFT_OK;
        while (st == WEFT_OK && weft_clock_s() < until) {
            usleep(1000);
            st = weft_comm_check(r->c);
        }
        return st;
    }
    if (r->rank == 0) ((test_end *)dc->impl)->fail = 1;
    weft_status st = wait_for_end(dc);
    weft_device_comm_close(dc);
    return st;
}

static void a_late_peer_ends_all_ranks(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 3, 20, find_late);
        for (int i = 0; i < 3; i++)
            if (rank[i].st != WEFT_ERR_PEER || !strstr(rank[i].text, "rank 1 is late"))
                fail_msg("%s, rank %d: %d %s", transport_name[over], i, (int)rank[i].st,
                         rank[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_give_one_answer),
        cmocka_unit_test(an_abort_ends_what_is_under_way),
        cmocka_unit_test(a_late_peer_ends_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
