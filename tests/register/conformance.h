/* One conformance test over all registers: one value for each epoch, the first that is proposed. */
#ifndef WEFT_TEST_REGISTER_CONFORMANCE_H
#define WEFT_TEST_REGISTER_CONFORMANCE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "register/majority.h"
#include "register/register.h"

enum {
    N_VOTER = 5
};

/* A register that two proposers share.  In memory they are one object; a majority has an object for
 * each voter, and the first two propose. */
typedef struct shared_register {
    weft_register *first, *second;
    int            n_voter; /* 0: not a majority */
    uint64_t       id[N_VOTER];
    weft_register *voter[N_VOTER];
    bool           lost[N_VOTER]; /* its messages go nowhere */
    double         now_s;
} shared_register;

static inline int find_id(const shared_register *s, uint64_t id)
{
    int k = 0;
    while (k < s->n_voter && s->id[k] != id) k++;
    return k;
}

/* Carries messages until there are none, and lets time pass. */
static inline void carry_messages(shared_register *s)
{
    weft_majority_message m;
    bool                  more = true;
    s->now_s += 0.05;
    for (int k = 0; k < s->n_voter; k++) weft_majority_tick(s->voter[k], s->now_s);
    while (more) {
        more = false;
        for (int k = 0; k < s->n_voter; k++)
            for (; weft_majority_send(s->voter[k], &m); more = true)
                if (!s->lost[k] && !s->lost[find_id(s, m.to)])
                    weft_majority_receive(s->voter[find_id(s, m.to)], s->id[k], m.bytes,
                                          m.n);
    }
}

/* All voters learn what stands, and decide the next epoch. */
static inline void advance_voters(shared_register *s, const weft_register_outcome *o)
{
    for (int k = 0; k < s->n_voter; k++)
        assert_int_equal(weft_majority_advance(s->voter[k], o->epoch, o->bytes, o->n,
                                               s->n_voter, s->id),
                         WEFT_OK);
}

static inline weft_register_outcome await(shared_register *s, weft_register *r)
{
    weft_register_outcome o;
    struct pollfd         p = {.fd = weft_register_fd(r), .events = POLLIN};
    for (int k = 0; !weft_register_next(r, &o); k++) {
        if (k > 1000) fail_msg("no outcome");
        if (s && s->n_voter)
            carry_messages(s);
        else if (poll(&p, 1, 20) < 0)
            assert_int_equal(errno, EINTR);
    }
    if (s && s->n_voter && o.result == WEFT_REGISTER_STANDS) advance_voters(s, &o);
    return o;
}

static inline weft_register_outcome propose(shared_register *s, weft_register *r,
                                            uint32_t epoch, const char *value)
{
    assert_int_equal(weft_register_propose(r, epoch, value, strlen(value)), WEFT_OK);
    return await(s, r);
}

static inline void expect_standing(weft_register_outcome o, uint32_t epoch,
                                   const char *value)
{
    if (o.result != WEFT_REGISTER_STANDS) fail_msg("result %d: %s", o.result, o.why);
    assert_int_equal(o.epoch, epoch);
    assert_int_equal(o.n, strlen(value));
    assert_memory_equal(o.bytes, value, o.n);
}

static inline weft_register_outcome read_epoch(shared_register *s, weft_register *r,
                                               uint32_t epoch)
{
    assert_int_equal(weft_register_read(r, epoch), WEFT_OK);
    return await(s, r);
}

/* ---- conformance ---- */

static inline void check_first_stands(shared_register *s)
{
    assert_int_equal(read_epoch(s, s->first, WEFT_REGISTER_NEWEST).result,
                     WEFT_REGISTER_EMPTY);
    assert_int_equal(read_epoch(s, s->second, 1).result, WEFT_REGISTER_EMPTY);
    expect_standing(propose(s, s->first, 1, "a"), 1, "a");
    expect_standing(propose(s, s->second, 1, "b"), 1, "a");
    expect_standing(propose(s, s->second, 1, ""), 1, "a");
    expect_standing(propose(s, s->first, 1, "a"), 1, "a");
    expect_standing(read_epoch(s, s->second, 1), 1, "a");
    expect_standing(propose(s, s->second, 2, ""), 2, ""); /* nothing is a value, too */
    expect_standing(propose(s, s->first, 2, "c"), 2, "");
    expect_standing(read_epoch(s, s->first, WEFT_REGISTER_NEWEST), 2, "");
}

/* Both at once, without waiting for each other: they hear of one value. */
static inline void check_both_at_once(shared_register *s)
{
    for (uint32_t epoch = 3; epoch < 23; epoch++) {
        assert_int_equal(weft_register_propose(s->first, epoch, "one", 3), WEFT_OK);
        assert_int_equal(weft_register_propose(s->second, epoch, "two", 3), WEFT_OK);
        char                  heard[3];
        weft_register_outcome o = await(s, s->second);
        assert_int_equal(o.result, WEFT_REGISTER_STANDS);
        assert_int_equal(o.n, 3);
        memcpy(heard, o.bytes, 3);
        o = await(s, s->first);
        assert_int_equal(o.result, WEFT_REGISTER_STANDS);
        assert_int_equal(o.n, 3);
        assert_memory_equal(o.bytes, heard, 3);
        assert_true(!memcmp(heard, "one", 3) || !memcmp(heard, "two", 3));
    }
}

static inline void check_limits(shared_register *s)
{
    static uint8_t large[WEFT_REGISTER_MOST + 1];
    memset(large, 7, sizeof large);
    large[WEFT_REGISTER_MOST - 1] = 9;
    assert_int_equal(weft_register_propose(s->first, 0, "a", 1), WEFT_ERR_ARG);
    assert_int_equal(weft_register_propose(s->first, WEFT_REGISTER_NEWEST, "a", 1),
                     WEFT_ERR_ARG);
    assert_int_equal(weft_register_propose(s->first, 23, large, sizeof large),
                     WEFT_ERR_ARG);
    assert_int_equal(weft_register_propose(s->first, 23, large, WEFT_REGISTER_MOST),
                     WEFT_OK);
    weft_register_outcome o = await(s, s->first);
    assert_int_equal(o.n, WEFT_REGISTER_MOST);
    assert_memory_equal(o.bytes, large, WEFT_REGISTER_MOST);
    o = read_epoch(s, s->second, 23);
    assert_int_equal(o.n, WEFT_REGISTER_MOST);
    assert_memory_equal(o.bytes, large, WEFT_REGISTER_MOST);
}

/* Several calls under way: outcomes in their order, and a bound. */
static inline void check_order(shared_register *s)
{
    weft_register_outcome o;
    char                  value[8];
    for (uint32_t k = 0; k < WEFT_REGISTER_QUEUE; k++) {
        snprintf(value, sizeof value, "%u", k);
        if (k % 4 < 3)
            assert_int_equal(weft_register_propose(s->first, 24, value, strlen(value)),
                             WEFT_OK);
        else
            assert_int_equal(weft_register_read(s->first, 23), WEFT_OK);
    }
    assert_int_equal(weft_register_propose(s->first, 25, "x", 1), WEFT_ERR_ARG);
    assert_int_equal(weft_register_read(s->first, 25), WEFT_ERR_ARG);
    for (uint32_t k = 0; k < WEFT_REGISTER_QUEUE; k++) {
        o = await(s, s->first);
        if (k % 4 < 3)
            expect_standing(o, 24, "0");
        else
            assert_true(o.result == WEFT_REGISTER_STANDS && o.epoch >= 23);
    }
    assert_false(weft_register_next(s->first, &o));
    assert_int_equal(read_epoch(s, s->second, 40).result, WEFT_REGISTER_EMPTY);
}

static inline uint64_t look_at(shared_register *s, weft_register *r, uint64_t beat)
{
    assert_int_equal(weft_register_look(r, beat), WEFT_OK);
    weft_register_outcome o = await(s, r);
    assert_int_equal(o.result, WEFT_REGISTER_STANDS);
    return o.beat;
}

/* A number that one leaves is seen by others, and changes no value; a majority has none. */
static inline void check_beats(shared_register *s)
{
    uint64_t first = (uint64_t)7 << 40 | 1;
    if (s->n_voter) return;
    assert_int_equal(look_at(s, s->second, 0), 0);
    (void)look_at(s, s->first, first);
    assert_int_equal(look_at(s, s->second, 0), first);
    (void)look_at(s, s->second, first + 1);
    assert_int_equal(look_at(s, s->first, 0), first + 1);
}

static inline void check_register(shared_register *s)
{
    check_first_stands(s);
    check_both_at_once(s);
    check_limits(s);
    check_order(s);
    check_beats(s);
}

#endif
