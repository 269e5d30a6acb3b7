/* Any bytes, in runs of any length, as the other side of a handshake: it ends, reads no further
 * than it says, and is never done for who does not have the key. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/auth.h"

static const weft_comm_key   key   = {{7, 7, 7}};
static const weft_comm_claim claim = {WEFT_COMM_FOR_LINK, -1, 0, 0};

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    weft_comm_auth a;
    if (n < 2) return 0;
    weft_comm_auth_role role = p[0] & 1 ? WEFT_COMM_INITIATOR : WEFT_COMM_RESPONDER;
    if (weft_comm_auth_start(&a, role, &key, p[0] & 2, &claim) != WEFT_OK) abort();
    size_t run = p[1] + 1u, wants, out;
    /* what a rank of ours would send, changed by the input from here on */
    uint8_t bytes[WEFT_COMM__AUTH_SECOND + WEFT_COMM__AUTH_FIRST] = {
        'w', 'e', 'f', 't', 'a', 'u', 't', 'h', 1};
    bytes[12] = p[0] >> 1 & 1;
    bytes[16] = WEFT_COMM_FOR_LINK;
    for (size_t i = 2; i < n && i - 2 < sizeof bytes; i++) bytes[i - 2] ^= p[i];
    const uint8_t *from = p[0] & 4 ? bytes : p + 2;
    size_t         left = p[0] & 4 ? sizeof bytes : n - 2;
    while (left && (wants = weft_comm_auth_wants(&a)) > 0) {
        size_t most = left < run ? left : run, took = weft_comm_auth_feed(&a, from, most);
        if (!took || took > wants || took > most) abort();
        from += took;
        left -= took;
        weft_comm_auth_output(&a, &out);
        if (out > sizeof a.out) abort();
        weft_comm_auth_sent(&a, out);
    }
    if (a.state == WEFT_COMM_AUTH_DONE) abort();
    if (a.state == WEFT_COMM_AUTH_FAILED && weft_comm_auth_wants(&a)) abort();
    if (!*weft_comm_auth_why(&a)) abort();
    weft_comm_auth_fini(&a);
    return 0;
}
