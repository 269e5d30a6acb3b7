/* Inside control: connections and the set of them. */
#ifndef WEFT_CONTROL_CONTROL_PRIV_H
#define WEFT_CONTROL_CONTROL_PRIV_H

#include <sys/socket.h>

#include "control/frame.h"
#include "control/tls_priv.h"

enum {
    WEFT_CONTROL__ADDRESS = 64,
    WEFT_CONTROL__TEXT    = 640,
    /* from connecting to the hello; and for the last bytes sent */
    WEFT_CONTROL__LIMIT_S = 2,
    /* Kinds of frames: ours, then those of the caller. */
    WEFT_CONTROL__HELLO   = 1,
    WEFT_CONTROL__REFUSAL = 2,
    WEFT_CONTROL__CALLERS = 16,
};

/*  CONNECTING -> PROVING -> GREETING -> OPEN -> FLUSHING -> OVER;  from any of them -> OVER */
typedef enum weft_control__stage {
    WEFT_CONTROL__CONNECTING, /* TCP */
    WEFT_CONTROL__PROVING,    /* TLS */
    WEFT_CONTROL__GREETING,   /* the other side's hello is awaited */
    WEFT_CONTROL__OPEN,
    WEFT_CONTROL__FLUSHING, /* its last frames are sent, nothing is read */
    WEFT_CONTROL__OVER,     /* the socket is closed; text says why */
} weft_control__stage;

typedef struct weft_control__peer {
    int64_t              id;
    int                  fd;
    weft_control__stage  stage;
    bool                 outgoing;
    bool                 spoke;    /* a byte came */
    bool                 unopened; /* OPENED is to be given */
    bool                 silent;   /* no further event */
    uint32_t             watched;  /* events of epoll */
    double               begun_s, deadline_s;
    weft_comm_tls_end    channel;
    weft_control__buffer in, out;
    weft_control_hello   hello; /* the other side's */
    bool                 has_hello;
    char                 address[WEFT_CONTROL__ADDRESS];
    char text[WEFT_CONTROL__TEXT]; /* a warning when it opens, why it ended */
} weft_control__peer;

typedef struct weft_control__refusal {
    weft_control_hello hello;
    bool               has_hello, reads_only;
    char               address[WEFT_CONTROL__ADDRESS];
    char               text[WEFT_CONTROL__TEXT];
} weft_control__refusal;

enum {
    WEFT_CONTROL__REFUSALS = 8, /* that wait to be reported */
};

struct weft_control {
    int            epoll, listener, port;
    double         now_s, paused_s; /* the listener waits until then: no descriptors */
    weft_comm_tls *tls;
    weft_control_hello   self;
    int64_t              last_id;
    weft_control__peer **peer;
    int                  n_peer, cap_peer;
    /* events */
    int                   next;  /* peer that is asked first */
    weft_control__peer   *taken; /* the one of the last event */
    size_t                taken_bytes;
    weft_control__refusal refusal[WEFT_CONTROL__REFUSALS], given;
    int                   n_refusal;
    int64_t               n_refused, n_reported;
    double                reported_s;
};

/* ---- address.c ---- */

/* The first address of HOST:PORT.  WEFT_ERR_ARG: it is none. */
weft_status weft_control__resolve(const char *at, struct sockaddr_storage *out,
                                  socklen_t *n);
/* A socket that listens there without blocking, and its port. */
weft_status weft_control__listen(const char *at, int *fd, int *port);
void        weft_control__print_address(const struct sockaddr_storage *a, socklen_t n,
                                        char out[WEFT_CONTROL__ADDRESS]);

/* ---- peer.c ---- */

bool weft_control__is_unproven(const weft_control__peer *p);
/* It ends now: CLOSED for one that was opened or connected to, else a refusal. */
void weft_control__fail_peer(weft_control *c, weft_control__peer *p, const char *why);
/* The socket is ready. */
void weft_control__serve_peer(weft_control *c, weft_control__peer *p);
void weft_control__write_peer(weft_control *c, weft_control__peer *p);
/* Watches the socket for what the peer waits for. */
bool weft_control__watch_peer(weft_control *c, weft_control__peer *p, bool add);
void weft_control__free_peer(weft_control__peer *p);

#endif
