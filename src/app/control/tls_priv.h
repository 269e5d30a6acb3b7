/* TLS 1.3 of one connection over a socket that does not block.  OpenSSL is seen in tls.c alone. */
#ifndef WEFT_CONTROL_TLS_PRIV_H
#define WEFT_CONTROL_TLS_PRIV_H

#include "control/control.h"

/* Keys or certificates, for both roles. */
typedef struct weft_control__tls weft_control__tls;

typedef struct weft_control__channel {
    weft_control__tls *tls; /* borrowed */
    void              *ssl; /* NULL until the handshake begins */
    int                fd;  /* borrowed */
    bool               server;
    bool               known;      /* a server's: it named a key of ours */
    bool               reads_only; /* that key is the reader's */
    bool               wants_out;  /* it waits until the socket takes bytes */
    bool               ended;      /* the other side has closed its half */
    int                error;      /* errno of the socket */
    char               why[240];   /* once something failed */
} weft_control__channel;

typedef enum weft_control__io {
    WEFT_CONTROL__DONE,
    WEFT_CONTROL__AGAIN, /* when the socket is ready */
    WEFT_CONTROL__GONE,  /* channel.why */
} weft_control__io;

weft_status weft_control__tls_open(const weft_control_options *o,
                                   weft_control__tls         **out);
void        weft_control__tls_close(weft_control__tls *t); /* accepts NULL */

/* Each side has proven itself once it is DONE. */
weft_control__io weft_control__channel_handshake(weft_control__channel *ch);
/* At most one record of 16 KiB: with so much space nothing is left inside. */
weft_control__io weft_control__channel_read(weft_control__channel *ch, void *p,
                                            size_t most, size_t *got);
weft_control__io weft_control__channel_write(weft_control__channel *ch, const void *p,
                                             size_t bytes, size_t *sent);
/* Says that this side ends, where the socket takes it at once; frees. */
void weft_control__channel_fini(weft_control__channel *ch);

#endif
