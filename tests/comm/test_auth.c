/* The handshake, without sockets: who has the key gets in, nobody else does, whatever is sent. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "comm/auth.h"

static const weft_comm_key   key = {{1, 2, 3, 4}}, other_key = {{1, 2, 3, 5}};
static const weft_comm_claim from_3_to_0 = {WEFT_COMM_FOR_LINK, 3, 0, 7};
static const weft_comm_claim any_to_0    = {WEFT_COMM_FOR_LINK, -1, 0, 7};

enum {
    FIRST  = WEFT_COMM__AUTH_FIRST,
    SECOND = WEFT_COMM__AUTH_SECOND,
    THIRD  = WEFT_COMM__AUTH_THIRD,
};

/* The messages of the last handshake. */
static uint8_t message[4][SECOND];

static void begin(weft_comm_auth *a, weft_comm_auth *b, const weft_comm_key *its,
                  const weft_comm_key *ours)
{
    assert_int_equal(
        weft_comm_auth_start(a, WEFT_COMM_INITIATOR, its, false, &from_3_to_0), WEFT_OK);
    assert_int_equal(weft_comm_auth_start(b, WEFT_COMM_RESPONDER, ours, false, &any_to_0),
                     WEFT_OK);
}

/* Moves the output of a to b, with bit `bit` of it changed (-1: none); gives its size. */
static size_t move(weft_comm_auth *a, weft_comm_auth *b, int which, int bit, size_t chunk)
{
    size_t         n;
    const uint8_t *p = weft_comm_auth_output(a, &n);
    memcpy(message[which], p, n);
    if (bit >= 0 && (size_t)bit < n * 8)
        message[which][bit / 8] ^= (uint8_t)(1u << bit % 8);
    for (size_t at = 0; at < n;) {
        size_t most = n - at < chunk ? n - at : chunk;
        size_t took = weft_comm_auth_feed(b, message[which] + at, most);
        if (!took) break;
        at += took;
    }
    weft_comm_auth_sent(a, n);
    return n;
}

/* A whole handshake; bit `bit` of message `which` is changed on its way. */
static void shake(weft_comm_auth *a, weft_comm_auth *b, int which, int bit, size_t chunk)
{
    move(a, b, 0, which == 0 ? bit : -1, chunk);
    move(b, a, 1, which == 1 ? bit : -1, chunk);
    move(a, b, 2, which == 2 ? bit : -1, chunk);
    move(b, a, 3, which == 3 ? bit : -1, chunk);
}

static void one_key_gets_in(void **state)
{
    (void)state;
    weft_comm_auth a, b;
    for (size_t chunk = 1; chunk < 100; chunk += 13) {
        begin(&a, &b, &key, &key);
        shake(&a, &b, -1, -1, chunk);
        assert_int_equal(a.state, WEFT_COMM_AUTH_DONE);
        assert_int_equal(b.state, WEFT_COMM_AUTH_DONE);
        assert_int_equal(b.claim.from, 3);
        assert_memory_equal(&a.sends, &b.expects, sizeof a.sends);
        assert_memory_equal(&a.expects, &b.sends, sizeof a.sends);
        assert_memory_not_equal(&a.sends, &a.expects, sizeof a.sends);
        /* not one byte after it is read */
        assert_int_equal(weft_comm_auth_wants(&a), 0);
        assert_int_equal(weft_comm_auth_feed(&b, "more", 4), 0);
    }
    weft_comm_auth_fini(&a);
    static const weft_comm_auth zero;
    assert_memory_equal(&a, &zero, sizeof a); /* no key is left in memory */
}

static void another_key_does_not(void **state)
{
    (void)state;
    weft_comm_auth a, b;
    begin(&a, &b, &other_key, &key);
    shake(&a, &b, -1, -1, 999);
    assert_int_equal(a.state, WEFT_COMM_AUTH_FAILED);
    assert_int_equal(a.reason, WEFT_COMM_AUTH_PROOF);
    size_t n;
    weft_comm_auth_output(&a, &n);
    assert_int_equal(n, 0); /* it has told nothing that its key made */
    assert_int_equal(b.state, WEFT_COMM_AUTH_RUNNING);
    uint8_t guess[THIRD] = {0};
    weft_comm_auth_feed(&b, guess, sizeof guess);
    assert_int_equal(b.state, WEFT_COMM_AUTH_FAILED);
    assert_int_equal(b.reason, WEFT_COMM_AUTH_PROOF);
    assert_non_null(strstr(weft_comm_auth_why(&b), "another token"));
    weft_comm_mac mac;
    assert_int_not_equal(weft_comm_auth_seal(&b, "x", 1, "y", 1, &mac), WEFT_OK);
    assert_false(weft_comm_auth_verify(&b, "x", 1, "y", 1, &mac));
}

/* A change of any bit on the way: the initiator is never done, and the responder only if it was
 * in its own last message. */
static void every_bit_counts(void **state)
{
    (void)state;
    static const int size[] = {FIRST, SECOND, THIRD, WEFT_COMM__AUTH_FOURTH};
    weft_comm_auth   a, b;
    for (int m = 0; m < 4; m++)
        for (int bit = 0; bit < size[m] * 8; bit++) {
            begin(&a, &b, &key, &key);
            shake(&a, &b, m, bit, 999);
            if (a.state == WEFT_COMM_AUTH_DONE) fail_msg("message %d, bit %d", m, bit);
            if ((b.state == WEFT_COMM_AUTH_DONE) != (m == 3))
                fail_msg("message %d, bit %d", m, bit);
        }
}

static void what_is_cut_short_is_not_done(void **state)
{
    (void)state;
    weft_comm_auth a, b;
    begin(&a, &b, &key, &key);
    shake(&a, &b, -1, -1, 999);
    for (int n = 0; n < THIRD; n++) {
        begin(&a, &b, &key, &key);
        move(&a, &b, 0, -1, 999);
        move(&b, &a, 1, -1, 999);
        size_t      all;
        const void *p = weft_comm_auth_output(&a, &all);
        assert_int_equal(weft_comm_auth_feed(&b, p, (size_t)n), n);
        assert_int_equal(b.state, WEFT_COMM_AUTH_RUNNING);
        assert_int_equal(weft_comm_auth_wants(&b), THIRD - n);
    }
}

static void what_was_recorded_is_of_no_use(void **state)
{
    (void)state;
    weft_comm_auth a, b, again;
    uint8_t        was[4][SECOND];
    begin(&a, &b, &key, &key);
    shake(&a, &b, -1, -1, 999);
    memcpy(was, message, sizeof was);
    /* to a responder: its nonce is another one */
    begin(&a, &again, &key, &key);
    weft_comm_auth_feed(&again, was[0], FIRST);
    weft_comm_auth_feed(&again, was[2], THIRD);
    assert_int_equal(again.state, WEFT_COMM_AUTH_FAILED);
    /* to an initiator */
    weft_comm_auth_feed(&a, was[1], SECOND);
    assert_int_equal(a.state, WEFT_COMM_AUTH_FAILED);
}

/* A stranger sends back what it was sent, and lets one rank answer for another. */
static void nothing_can_be_reflected(void **state)
{
    (void)state;
    weft_comm_auth a, b, c;
    /* the responder's own proof, as the initiator's */
    begin(&a, &b, &key, &key);
    move(&a, &b, 0, -1, 999);
    size_t         n;
    const uint8_t *second = weft_comm_auth_output(&b, &n);
    uint8_t        proof[THIRD];
    memcpy(proof, second + SECOND - THIRD, THIRD);
    weft_comm_auth_feed(&b, proof, THIRD);
    assert_int_equal(b.state, WEFT_COMM_AUTH_FAILED);
    /* the initiator's first message, as the responder's */
    begin(&a, &b, &key, &key);
    uint8_t back[SECOND] = {0};
    memcpy(back, weft_comm_auth_output(&a, &n), FIRST);
    weft_comm_auth_feed(&a, back, SECOND);
    assert_int_equal(a.state, WEFT_COMM_AUTH_FAILED);
    /* what rank 3 says to rank 0, said to rank 3 or for another purpose: it does not even answer */
    static const weft_comm_claim wrong[] = {{WEFT_COMM_FOR_LINK, -1, 3, 7},
                                            {WEFT_COMM_FOR_LINK, -1, 0, 8},
                                            {WEFT_COMM_FOR_RDZV, -1, 0, 7},
                                            {WEFT_COMM_FOR_LINK, 2, 0, 7}};
    for (size_t i = 0; i < WEFT_COUNT(wrong); i++) {
        begin(&a, &b, &key, &key);
        assert_int_equal(
            weft_comm_auth_start(&c, WEFT_COMM_RESPONDER, &key, false, &wrong[i]),
            WEFT_OK);
        move(&a, &c, 0, -1, 999);
        assert_int_equal(c.state, WEFT_COMM_AUTH_FAILED);
        weft_comm_auth_output(&c, &n);
        assert_int_equal(n, 0);
    }
}

static void a_token_and_none_are_told_apart(void **state)
{
    (void)state;
    weft_comm_auth a, b;
    weft_comm_key  open;
    assert_int_equal(weft_comm_key_public(&open), WEFT_OK);
    for (int its = 0; its < 2; its++) {
        weft_comm_auth_start(&a, WEFT_COMM_INITIATOR, its ? &open : &key, its,
                             &from_3_to_0);
        weft_comm_auth_start(&b, WEFT_COMM_RESPONDER, its ? &key : &open, !its,
                             &any_to_0);
        shake(&a, &b, -1, -1, 999);
        assert_int_equal(a.state, WEFT_COMM_AUTH_FAILED);
        assert_int_equal(b.state, WEFT_COMM_AUTH_FAILED);
        assert_int_equal(a.reason, WEFT_COMM_AUTH_MODE);
        assert_int_equal(b.reason, WEFT_COMM_AUTH_MODE);
        assert_non_null(strstr(weft_comm_auth_why(&a), "--insecure-network"));
        assert_string_not_equal(weft_comm_auth_why(&a), weft_comm_auth_why(&b));
    }
    /* that it lies about it is of no use */
    weft_comm_auth_start(&a, WEFT_COMM_INITIATOR, &open, false, &from_3_to_0);
    weft_comm_auth_start(&b, WEFT_COMM_RESPONDER, &key, false, &any_to_0);
    shake(&a, &b, -1, -1, 999);
    assert_int_equal(a.reason, WEFT_COMM_AUTH_PROOF);
}

static void records_are_one_sides_and_once(void **state)
{
    (void)state;
    weft_comm_auth a, b, c, d;
    weft_comm_mac  mac, next;
    uint8_t        head[16] = "rank 3", body[40] = "an address";
    begin(&a, &b, &key, &key);
    shake(&a, &b, -1, -1, 999);
    assert_int_equal(weft_comm_auth_seal(&a, head, 16, body, 40, &mac), WEFT_OK);
    for (int bit = 0; bit < (16 + 40 + 32) * 8; bit++) {
        weft_comm_auth try = b;
        uint8_t       *p   = bit < 128 ? head : bit < 448 ? body : mac.byte;
        int            at  = bit < 128 ? bit : bit < 448 ? bit - 128 : bit - 448;
        p[at / 8] ^= (uint8_t)(1u << at % 8);
        assert_false(weft_comm_auth_verify(&try, head, 16, body, 40, &mac));
        p[at / 8] ^= (uint8_t)(1u << at % 8);
    }
    /* where head ends and body begins counts */
    c = b;
    assert_false(weft_comm_auth_verify(&c, head, 15, body, 40, &mac));
    /* its own record, sent back to it */
    c = a;
    assert_false(weft_comm_auth_verify(&c, head, 16, body, 40, &mac));
    assert_true(weft_comm_auth_verify(&b, head, 16, body, 40, &mac));
    assert_false(weft_comm_auth_verify(&b, head, 16, body, 40, &mac)); /* not twice */
    assert_int_equal(weft_comm_auth_seal(&a, head, 16, body, 40, &next), WEFT_OK);
    assert_memory_not_equal(&mac, &next, sizeof mac);
    /* nor in another connection */
    begin(&c, &d, &key, &key);
    shake(&c, &d, -1, -1, 999);
    assert_false(weft_comm_auth_verify(&d, head, 16, body, 40, &mac));
}

static void assert_hex(const weft_comm_key *k, const char *want)
{
    char hex[65];
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", k->byte[i]);
    assert_string_equal(hex, want);
}

/* HMAC-SHA256 over parts with their sizes, as Python's hmac computes it. */
static void keys_are_as_stated(void **state)
{
    (void)state;
    static const weft_comm_key zero;
    weft_comm_key              k, in, twice;
    for (int i = 0; i < 32; i++) in.byte[i] = (uint8_t)i;
    assert_int_equal(weft_comm_key_derive(&zero, "weft token",
                                          "0123456789abcdef0123456789abcdef", 32, &k),
                     WEFT_OK);
    assert_hex(&k, "d8febaca4c4456444692c97728abbb481aefa8e5e36c09f9d52d102dbed4a2b0");
    assert_int_equal(weft_comm_key_derive(&in, "weft membership", "nonce", 5, &k),
                     WEFT_OK);
    assert_hex(&k, "143e2796263e9607d88fe90853589cb860ecbdacbb040916b405b40023a4d400");
    /* label and context do not run into each other */
    assert_int_equal(weft_comm_key_derive(&in, "weft membershipn", "once", 4, &twice),
                     WEFT_OK);
    assert_memory_not_equal(&k, &twice, sizeof k);
    weft_comm_key_wipe(&k);
    assert_memory_equal(&k, &zero, sizeof k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key_gets_in),
        cmocka_unit_test(another_key_does_not),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(what_is_cut_short_is_not_done),
        cmocka_unit_test(what_was_recorded_is_of_no_use),
        cmocka_unit_test(nothing_can_be_reflected),
        cmocka_unit_test(a_token_and_none_are_told_apart),
        cmocka_unit_test(records_are_one_sides_and_once),
        cmocka_unit_test(keys_are_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
