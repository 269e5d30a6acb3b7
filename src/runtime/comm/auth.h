/* Two sides of a connection prove to each other that they hold the same key, without sending it.
 *
 *     weft_comm_auth_start(&a, WEFT_COMM_INITIATOR, &key, false, &claim);
 *     loop: send weft_comm_auth_output(), receive at most weft_comm_auth_wants() bytes,
 *     weft_comm_auth_feed() until weft_comm_auth_state() is WEFT_COMM_AUTH_DONE or _FAILED
 *     weft_comm_auth_seal(), weft_comm_auth_verify()    a MAC for each later record, if wanted
 *     weft_comm_auth_fini(&a);                          wipes all keys
 *
 * Bytes in, bytes out; no sockets.  A TLS 1.3 handshake with an external PSK fits the same
 * interface.
 *
 * Four messages of fixed size, HMAC-SHA256 throughout, T = message 1 and message 2 without its MAC:
 *     1  initiator -> responder   magic, version, mode, claim, nonce
 *     2  responder -> initiator   magic, version, mode, nonce, MAC("responder", T)
 *     3  initiator -> responder   MAC("initiator", T)
 *     4  responder -> initiator   MAC("admitted", T)
 * (1) Each label is used by one side for one purpose, so no message can be reflected.
 * (2) Both nonces are in T: a recorded message is of no use in another handshake.
 * (3) Who is done knows that the other side has accepted it; a connection that ends before may be
 *     tried again.
 * (4) Not one byte after the handshake is read by it: wants() is exact. */
#ifndef WEFT_COMM_AUTH_H
#define WEFT_COMM_AUTH_H

#include <stdbool.h>

#include "base/status.h"

enum {
    WEFT_COMM_KEY_BYTES    = 32,
    WEFT_COMM_NONCE_BYTES  = 32,
    WEFT_COMM_MAC_BYTES    = 32,
    WEFT_COMM__AUTH_FIRST  = 64, /* bytes of the messages */
    WEFT_COMM__AUTH_SECOND = 80,
    WEFT_COMM__AUTH_THIRD  = WEFT_COMM_MAC_BYTES,
    WEFT_COMM__AUTH_FOURTH = WEFT_COMM_MAC_BYTES,
};

typedef struct weft_comm_key {
    uint8_t byte[WEFT_COMM_KEY_BYTES];
} weft_comm_key;

typedef struct weft_comm_mac {
    uint8_t byte[WEFT_COMM_MAC_BYTES];
} weft_comm_mac;

/* A key for one purpose, which `label` and the bytes of `context` name.  WEFT_ERR_INTERNAL:
 * libcrypto failed, and *out is all zero. */
weft_status weft_comm_key_derive(const weft_comm_key *from, const char *label,
                                 const void *context, size_t bytes, weft_comm_key *out);
/* The key that everybody knows: --insecure-network. */
weft_status weft_comm_key_public(weft_comm_key *out);
void        weft_comm_key_wipe(weft_comm_key *key);
weft_status weft_comm_random(void *out, size_t bytes); /* getrandom */

/* ---- the handshake ---- */

typedef enum weft_comm_auth_role {
    WEFT_COMM_INITIATOR,
    WEFT_COMM_RESPONDER,
} weft_comm_auth_role;

typedef enum weft_comm_purpose {
    WEFT_COMM_FOR_RDZV = 1,
    WEFT_COMM_FOR_LINK,
} weft_comm_purpose;

/* What the connection is for; both MACs cover it. */
typedef struct weft_comm_claim {
    uint32_t purpose;
    int32_t  from, to; /* ranks; -1 in a responder's: any */
    uint32_t epoch;    /* of the membership */
} weft_comm_claim;

typedef enum weft_comm_auth_state {
    WEFT_COMM_AUTH_RUNNING,
    WEFT_COMM_AUTH_DONE, /* the peer holds the key; a responder may have output left to send */
    WEFT_COMM_AUTH_FAILED, /* a responder may have output left, which tells the peer why */
} weft_comm_auth_state;

typedef enum weft_comm_auth_reason {
    WEFT_COMM_AUTH_NO_REASON,
    WEFT_COMM_AUTH_NOT_WEFT, /* these are not our messages, or they are for somebody else */
    WEFT_COMM_AUTH_VERSION, /* another version of the protocol */
    WEFT_COMM_AUTH_MODE,    /* one side has a token, the other --insecure-network */
    WEFT_COMM_AUTH_PROOF,   /* another key */
    WEFT_COMM_AUTH_BROKEN,  /* libcrypto failed here */
} weft_comm_auth_reason;

typedef struct weft_comm_auth {
    weft_comm_auth_role   role;
    weft_comm_auth_state  state;
    weft_comm_auth_reason reason;
    bool                  insecure; /* this side's mode */
    weft_comm_claim       claim;    /* a responder's from: known once message 1 came */
    weft_comm_key         key;      /* until the end of the handshake */
    weft_comm_key         sends, expects; /* for records, once done */
    uint64_t              n_sealed, n_verified;
    uint8_t script[WEFT_COMM__AUTH_FIRST + WEFT_COMM__AUTH_SECOND]; /* T, and a MAC */
    uint8_t in[WEFT_COMM__AUTH_SECOND], out[WEFT_COMM__AUTH_SECOND];
    uint8_t n_in, in_bytes, n_out, out_bytes; /* done of so many */
} weft_comm_auth;

/* The key is copied.  A responder accepts a peer that has the key and a claim like this one, from
 * any rank. */
weft_status weft_comm_auth_start(weft_comm_auth *a, weft_comm_auth_role role,
                                 const weft_comm_key *key, bool insecure,
                                 const weft_comm_claim *claim);
void        weft_comm_auth_fini(weft_comm_auth *a);

/* Has a responder a first message that speaks our protocol? */
bool weft_comm_auth_begun(const weft_comm_auth *a);

/* How many bytes it still reads before it has something to send, or is over; 0: none. */
size_t weft_comm_auth_wants(const weft_comm_auth *a);
/* Takes up to wants() bytes; gives how many. */
size_t weft_comm_auth_feed(weft_comm_auth *a, const void *p, size_t bytes);
/* Bytes to send, and that so many of them were. */
const void *weft_comm_auth_output(const weft_comm_auth *a, size_t *bytes);
void        weft_comm_auth_sent(weft_comm_auth *a, size_t bytes);

/* Why it failed, for people: "it has another token". */
const char *weft_comm_auth_why(const weft_comm_auth *a);

/* ---- records after it ---- */

/* The MAC of the next record of this side over head and body; one counter for each direction, so
 * no record can be repeated, left out or exchanged. */
weft_status weft_comm_auth_seal(weft_comm_auth *a, const void *head, size_t head_bytes,
                                const void *body, size_t body_bytes, weft_comm_mac *out);
/* The same of the peer's next record; false: it is not the peer's. */
bool weft_comm_auth_verify(weft_comm_auth *a, const void *head, size_t head_bytes,
                           const void *body, size_t body_bytes, const weft_comm_mac *mac);

#endif
