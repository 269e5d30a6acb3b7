/* TLS 1.3 over a socket that does not block: between agents (control), and between ranks where
 * --encrypt is given.  OpenSSL's part of it is seen in tls.c alone.
 *
 *     weft_comm_tls_open(&(weft_comm_tls_options){.n_psk = 1, .psk = {{"id", key}}}, &tls);
 *     weft_comm_tls_end end = {.tls = tls, .fd = fd, .server = accepted};
 *     weft_comm_tls_handshake(&end)       until it is DONE: both sides have proven themselves
 *     weft_comm_tls_read(), weft_comm_tls_write()
 *     weft_comm_tls_end_fini(&end);
 *
 * Two ways to prove oneself, the same records afterwards:
 *   keys           external PSKs, with a fresh Diffie-Hellman key for each connection (psk_dhe_ke).
 *                  The identity, sent in clear text, says which one is meant.  There are no
 *                  certificates, so a side without the key cannot finish a handshake.
 *   certificates   both sides show one that their CA has signed. */
#ifndef WEFT_COMM_TLS_H
#define WEFT_COMM_TLS_H

#include <stdbool.h>

#include "comm/auth.h"

enum {
    WEFT_COMM_TLS_ID     = 64,    /* bytes of an identity, its NUL with it */
    WEFT_COMM_TLS_RECORD = 16384, /* the most bytes that one read gives */
    WEFT_COMM_TLS_PSK    = 2,
};

/* Keys or certificates, for both roles. */
typedef struct weft_comm_tls weft_comm_tls;

typedef struct weft_comm_tls_psk {
    char          id[WEFT_COMM_TLS_ID];
    weft_comm_key key;
} weft_comm_tls_psk;

typedef struct weft_comm_tls_options {
    /* The first is for connecting; a server takes all of them. */
    int               n_psk;
    weft_comm_tls_psk psk[WEFT_COMM_TLS_PSK];
    /* What to say of an identity that is none of these; NULL: that it has another key. */
    const char *(*explain)(const char *own_id, const char *id, size_t n);
    const char *cert, *key, *ca; /* PEM files, instead of PSKs */
} weft_comm_tls_options;

/* WEFT_ERR_ARG: files that cannot be read or do not belong together. */
weft_status weft_comm_tls_open(const weft_comm_tls_options *o, weft_comm_tls **out);
void        weft_comm_tls_close(weft_comm_tls *t); /* accepts NULL */

/* One end of a connection.  It stays where it is from the handshake on. */
typedef struct weft_comm_tls_end {
    weft_comm_tls *tls; /* borrowed */
    void          *ssl; /* NULL until the handshake begins */
    int            fd;  /* borrowed */
    bool           server;
    int            psk;       /* a server's: which key the other side has */
    bool           wants_out; /* it waits until the socket takes bytes */
    bool           ended;     /* the other side has closed its half */
    int            error;     /* errno of the socket */
    int64_t        n_written; /* since the keys were last changed */
    char           why[240];  /* once something failed */
} weft_comm_tls_end;

typedef enum weft_comm_tls_io {
    WEFT_COMM_TLS_DONE,
    WEFT_COMM_TLS_AGAIN, /* when the socket is ready */
    WEFT_COMM_TLS_GONE,  /* end.why */
} weft_comm_tls_io;

weft_comm_tls_io weft_comm_tls_handshake(weft_comm_tls_end *end);
/* At most one record: with space for WEFT_COMM_TLS_RECORD nothing is left inside. */
weft_comm_tls_io weft_comm_tls_read(weft_comm_tls_end *end, void *p, size_t most,
                                    size_t *got);
/* Bytes that are inside, and of which the socket knows nothing any more. */
size_t weft_comm_tls_pending(const weft_comm_tls_end *end);
/* At most one record.  After AGAIN the same bytes are given again, wherever they are then. */
weft_comm_tls_io weft_comm_tls_write(weft_comm_tls_end *end, const void *p, size_t bytes,
                                     size_t *sent);
/* Says that this side ends, where the socket takes it at once; frees. */
void weft_comm_tls_end_fini(weft_comm_tls_end *end);

#endif
