/* The control plane between agents of several hosts, and from tools to agents: TLS 1.3 over TCP,
 * opened by the job's token (or by certificates), frames in and out.  One thread's; nothing waits.
 *
 *     weft_control *c;
 *     WEFT_TRY(weft_control_open(&(weft_control_options){.listen = "10.0.0.1:29400",
 *                                                        .token = &token, .self = hello}, &c));
 *     WEFT_TRY(weft_control_connect(c, "10.0.0.2:29400", now_s, &peer));
 *     loop:   poll weft_control_fd(c) with the rest, at the latest until weft_control_wake_s(c)
 *             weft_control_serve(c, now_s);
 *             while (weft_control_next(c, &event)) ..    OPENED, FRAME, CLOSED, REFUSED
 *             weft_control_send(c, event.peer, kind, data, bytes);
 *     weft_control_close(c);
 *
 * (1) A peer is OPENED when both sides have proven that they hold the token (an external PSK
 *     derived from it; OpenSSL's handshake, with a fresh Diffie-Hellman key) and their hellos fit.
 *     No byte of a frame is read before.
 * (2) At most 64 connections that have not proven themselves are open, 2 s each; a further one
 *     takes the place of the oldest silent one.  They get TLS state with their first byte, and
 *     their turn after all proven peers.
 * (3) A frame has at most 1 MiB; a peer that announces more, or sends what is no frame, is closed
 *     and named.  At most 4 MiB wait to be sent to a peer; one that reads no more is closed.
 * (4) OpenSSL's codes end here. */
#ifndef WEFT_CONTROL_CONTROL_H
#define WEFT_CONTROL_CONTROL_H

#include "comm/token.h"
#include "control/hello.h"

enum {
    WEFT_CONTROL_FRAME_MOST = 1 << 20, /* bytes of a frame's data */
    WEFT_CONTROL_UNPROVEN   = 64,      /* connections */
    WEFT_CONTROL_PEERS      = 4096,    /* proven ones and outgoing ones */
};

typedef struct weft_control weft_control;

typedef struct weft_control_certificates {
    const char *cert, *key, *ca; /* PEM files */
} weft_control_certificates;

typedef struct weft_control_options {
    const char *listen; /* HOST:PORT, port 0: any that is free; NULL: connects only */
    const weft_comm_token *token;  /* or NULL with certificates; used during open alone */
    const weft_comm_token *reader; /* the token that only reads, or NULL */
    /* All three, instead of the tokens: both sides show one of the CA. */
    weft_control_certificates tls;
    weft_control_hello        self;
} weft_control_options;

typedef enum weft_control_event_kind {
    WEFT_CONTROL_OPENED, /* text: a warning, or "" */
    WEFT_CONTROL_FRAME,  /* frame, data, bytes */
    WEFT_CONTROL_CLOSED, /* text: why; also for one that was connected to and never opened */
    WEFT_CONTROL_REFUSED, /* one that came and was not let in; peer is 0 */
} weft_control_event_kind;

/* What is behind pointers lives until the next call of any function of this header. */
typedef struct weft_control_event {
    weft_control_event_kind   kind;
    int64_t                   peer;       /* never used twice */
    bool                      reads_only; /* it came with the reader's token */
    bool                      outgoing;
    const char               *address; /* of the other side, in numbers */
    const weft_control_hello *hello;   /* the other side's; NULL: it has sent none */
    const char               *text;
    uint32_t                  frame; /* the kind that its sender gave */
    const void               *data;
    size_t                    bytes;
} weft_control_event;

/* WEFT_ERR_ARG: an address that is none or cannot be had here; certificates that cannot be read or
 * do not belong together. */
weft_status weft_control_open(const weft_control_options *o, weft_control **out);
/* Closes all at once; sent frames that the kernel has taken still arrive.  Accepts NULL. */
void weft_control_close(weft_control *c);

int weft_control_fd(const weft_control *c);   /* readable: serve */
int weft_control_port(const weft_control *c); /* 0: it does not listen */
/* The earliest deadline of a connection, on the caller's clock; INFINITY: none. */
double weft_control_wake_s(const weft_control *c);

/* Work that is there, a bounded part of it; events are then fetched until there is none. */
void weft_control_serve(weft_control *c, double now_s);
bool weft_control_next(weft_control *c, weft_control_event *out);

/* Begins to connect; OPENED or CLOSED follows within 2 s.  An address in numbers takes no time, a
 * name asks the resolver.  WEFT_ERR_ARG: it is no address; WEFT_ERR_IO: no descriptor, no route. */
weft_status weft_control_connect(weft_control *c, const char *at, double now_s,
                                 int64_t *peer);
/* Queued, and sent as far as the kernel takes it.  WEFT_ERR_PEER: it is not open (its CLOSED
 * follows, or was there); WEFT_ERR_ARG: longer than a frame. */
weft_status weft_control_send(weft_control *c, int64_t peer, uint32_t frame,
                              const void *data, size_t bytes);
/* No event of this peer follows; what was sent to it is delivered within 2 s or dropped. */
void weft_control_end(weft_control *c, int64_t peer);

/* Connections refused so far: REFUSED is given for the first five, then once each 10 s with the
 * number of those since. */
int64_t weft_control_n_refused(const weft_control *c);

#endif
