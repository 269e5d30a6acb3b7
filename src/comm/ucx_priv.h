/* Inside the UCX transport.
 *
 * Every message has a head that is checked before anything else is looked at.  Data goes to a port (a channel's end
 * or a group) under (epoch, source, seq, step).  Short messages are sent at once and kept by a receiver
 * that has not asked for them yet; a long one is sent in pieces, after its receiver has said READY, straight into
 * the memory where it belongs, or added to what lies there.
 *
 * One lock an end.  Who waits drives UCX; while nobody waits, the end's own thread does. */
#ifndef WEFT_COMM_UCX_PRIV_H
#define WEFT_COMM_UCX_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <ucp/api/ucp.h>

#include "comm/ucx.h"

enum {
    UCX_SHORT  = 64 << 10, /* sent unasked; at most a piece */
    UCX_WHOLE  = 16 << 10, /* summed whole by more than two ranks */
    UCX_PIECE  = 64 << 10, /* of a long message; a multiple of every element's size */
    UCX_WINDOW = 8,        /* pieces under way at once, of one message */
    UCX_BUCKET = 1024,
};

typedef enum ucx_kind {
    UCX_HELLO = 1,
    UCX_DATA,
    UCX_READY,  /* for message seq, step of a port: its pieces may come */
    UCX_ACK,    /* seq: messages of a channel received so far */
    UCX_OPEN,   /* length, seq: a channel's bytes and credits */
    UCX_OPENED, /* the answer: those of the first who opened */
    UCX_ABORT,  /* data: the verdict's words */
    UCX_BYE,
    UCX_BYE_ACK,
    UCX_ASK, /* in call seq of a group: whom do you wait for? */
    UCX_ANSWER,
} ucx_kind;

typedef struct ucx_head {
    uint32_t magic;
    uint16_t version, kind;
    uint64_t job;
    uint32_t epoch;
    int32_t  source;
    uint64_t port; /* group's hash : 32 | tag : 32; no hash: a channel */
    uint32_t seq, step;
    int64_t  at, length; /* of this piece; of the whole message */
    uint32_t what;       /* the call that it belongs to, for comparison */
    uint32_t crc;        /* of all before it */
} ucx_head;

/* A message kept: data or a READY that nobody has asked for yet, or one of ours that is being sent. */
typedef struct ucx_note {
    struct ucx_note *next;
    struct ucx_end  *e;
    ucx_head         head;
    int32_t          peer;
    int32_t          bytes;
    char             data[UCX_SHORT];
} ucx_note;

/* A message that is expected. */
typedef struct ucx_post {
    struct ucx_post *next;
    int32_t          source;
    uint32_t         epoch, seq, step, what;
    int64_t          length, got;
    char            *out;
    const char      *mine; /* with mine: out = mine + data (or data + mine) */
    bool             mine_first;
    weft_dtype       dtype;
    bool             done;
    bool             bad; /* another call, or another length, came */
    ucx_head         came;
} ucx_post;

/* A message that is being sent. */
typedef struct ucx_flow {
    struct ucx_flow *next;
    struct ucx_end  *e;
    int32_t          to;
    uint64_t         port;
    uint32_t         epoch, seq, step, what;
    const char      *p;
    int64_t          length, sent;
    int              n_under_way;
    bool             granted, begun, done;
    struct ucx_piece {
        struct ucx_flow *flow;
        bool             busy;
        ucx_head         head;
    } piece[UCX_WINDOW];
} ucx_flow;

typedef enum ucx_side {
    UCX_IN,
    UCX_OUT,
    UCX_GROUP,
} ucx_side;

/* Where messages go.  Made by whoever mentions it first: a peer may be ahead. */
typedef struct ucx_port {
    struct ucx_port *next;
    ucx_side         side;
    int32_t          peer; /* of a channel; -1: a group */
    uint64_t         id;
    uint32_t         epoch;  /* in which it is used */
    uint32_t         newest; /* that was heard of */
    ucx_note        *kept;
    ucx_post        *post;
    uint32_t         seq;      /* messages sent or received, calls begun, in this epoch */
    uint32_t         acked;    /* sender: messages received over there */
    int32_t          waits_on; /* group: the rank that this one waits for, or -1 */
    bool             numbered; /* channel: what the first who opened it said */
    int64_t          bytes;
    int              credits;
    int              answer; /* to OPEN: 0 none yet */
} ucx_port;

typedef struct ucx_peer {
    ucp_ep_h     ep;
    void        *address;
    bool         broken;    /* UCX says so, not yet looked at */
    ucs_status_t how;       /* it broke */
    bool         dead;      /* since epoch died_in */
    bool         gone;      /* said good-bye */
    bool         bye_acked; /* to ours */
    uint32_t     died_in;
    int          answer; /* to ASK: UCX_NO_ANSWER, or a rank, or -1: not in that call */
} ucx_peer;

enum {
    UCX_NO_ANSWER = -2
};

typedef struct ucx_end {
    weft_comm       c;
    uint64_t        job;
    ucp_context_h   context;
    ucp_worker_h    worker;
    ucp_address_t  *address;
    size_t          address_bytes;
    int             efd;   /* of UCX */
    int             kick;  /* eventfd: wakes the caller who sleeps on efd */
    int             nudge; /* eventfd: wakes the thread */
    pthread_mutex_t lock;
    pthread_cond_t  moved, rest; /* rest: the thread's */
    pthread_t       thread;
    bool            threaded, stop, leaving;
    bool            asleep;    /* a waiting caller sleeps on efd */
    int             n_wait;    /* callers that drive UCX */
    _Atomic int     n_want;    /* callers that want the lock */
    bool            broken;    /* some peer is */
    uint64_t        n_call;    /* operations begun */
    double          spin_s;    /* before sleeping */
    int64_t         n_refused; /* messages that were not ours */
    ucx_peer       *peer;
    ucx_port       *port[UCX_BUCKET];
    ucx_flow       *flow; /* under way */
    ucx_note       *outbox, **outbox_end, *free_note;
    char           *bounce; /* UCX_PIECE */
    void           *opened; /* channels and groups, to free */
    bool            condemned;
    uint32_t        condemned_epoch;
    char            why[240];
} ucx_end;

typedef enum ucx_outcome {
    UCX_DONE,
    UCX_LATE,
    UCX_OVER, /* somebody gave up or died: weft_comm__ucx_check() says who */
} ucx_outcome;

static inline ucx_end *ucx_of(const weft_comm *c)
{
    return c->impl;
}

/* ---- ucx_load.c: the library, loaded once ---- */

typedef struct ucx_api {
    ucs_status_t (*init_version)(unsigned, unsigned, const ucp_params_t *,
                                 const ucp_config_t *, ucp_context_h *);
    void (*cleanup)(ucp_context_h);
    ucs_status_t (*worker_create)(ucp_context_h, const ucp_worker_params_t *,
                                  ucp_worker_h *);
    void (*worker_destroy)(ucp_worker_h);
    ucs_status_t (*worker_get_address)(ucp_worker_h, ucp_address_t **, size_t *);
    void (*worker_release_address)(ucp_worker_h, ucp_address_t *);
    ucs_status_t (*worker_get_efd)(ucp_worker_h, int *);
    ucs_status_t (*worker_arm)(ucp_worker_h);
    unsigned (*worker_progress)(ucp_worker_h);
    ucs_status_t (*set_am_handler)(ucp_worker_h, const ucp_am_handler_param_t *);
    ucs_status_t (*ep_create)(ucp_worker_h, const ucp_ep_params_t *, ucp_ep_h *);
    ucs_status_ptr_t (*ep_close)(ucp_ep_h, const ucp_request_param_t *);
    ucs_status_ptr_t (*am_send)(ucp_ep_h, unsigned, const void *, size_t, const void *,
                                size_t, const ucp_request_param_t *);
    ucs_status_t (*request_check)(void *);
    void (*request_free)(void *);
    const char *(*status_string)(ucs_status_t);
} ucx_api;

weft_status           weft_comm__ucx_load(const char *device, const ucx_api **out);
extern const ucx_api *weft_comm__ucx;

/* ---- ucx_wire.c: all with the lock held ---- */

ucx_port *weft_comm__ucx_port(ucx_end *e, ucx_side side, int32_t peer, uint64_t id);
/* Begins anew in a later epoch; what is older is dropped. */
void weft_comm__ucx_renew(ucx_end *e, ucx_port *port, uint32_t epoch);
/* A head of ours for somebody; kept until it is sent. */
void weft_comm__ucx_tell(ucx_end *e, int to, ucx_kind kind, ucx_head head,
                         const char *text);
void weft_comm__ucx_expect(ucx_end *e, ucx_port *port, ucx_post *post, bool ask);
void weft_comm__ucx_forget(ucx_port *port, ucx_post *post);
/* f: to, port, epoch, seq, step, what, p and length are filled in; done when p may be used again. */
void weft_comm__ucx_start(ucx_end *e, ucx_port *port, ucx_flow *f);
/* f will not be sent further; nothing of it is under way afterwards. */
void weft_comm__ucx_stop(ucx_end *e, ucx_flow *f);
/* Whatever can be done now; the number of things done. */
unsigned     weft_comm__ucx_pump(ucx_end *e);
ucs_status_t weft_comm__ucx_arrive(void *arg, const void *header, size_t header_bytes,
                                   void *data, size_t bytes,
                                   const ucp_am_recv_param_t *param);
void         weft_comm__ucx_free_ports(ucx_end *e);

/* ---- ucx.c ---- */

typedef bool ucx_test(const void *arg);

ucx_outcome weft_comm__ucx_wait(ucx_end *e, ucx_test *done, const void *arg,
                                double deadline);
weft_status weft_comm__ucx_check(const ucx_end *e);
/* Everything up to epoch is over, for all ranks.  why: the whole line. */
void weft_comm__ucx_condemn(ucx_end *e, uint32_t epoch, const char *why);
/* Nobody came: names a rank, from the one waited for on, and condemns.  WEFT_ERR_PEER. */
weft_status weft_comm__ucx_late(ucx_end *e, const ucx_port *port, int waits_on,
                                const char *what);
/* The lock, and that this end may be used in its epoch. */
weft_status weft_comm__ucx_enter(ucx_end *e, ucx_port *port);
void        weft_comm__ucx_leave(ucx_end *e);

/* ---- ucx_channel.c, ucx_collective.c ---- */

weft_status weft_comm__ucx_open_channel(weft_comm *c, int peer, weft_comm_side side,
                                        int tag, int64_t bytes, int credits,
                                        weft_comm_channel **out);
weft_status weft_comm__ucx_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                                int64_t bytes);
weft_status weft_comm__ucx_recv(weft_comm *c, weft_comm_channel *ch, void *p,
                                int64_t bytes);
void        weft_comm__ucx_free_channel(void *channel);
weft_status weft_comm__ucx_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                      weft_comm_group **out);
weft_status weft_comm__ucx_collective(weft_comm *c, weft_comm_group *g,
                                      weft_comm_kind kind, weft_dtype t, const void *in,
                                      void *out, int64_t count);

weft_status weft_comm__ucx_shares(weft_comm *c, weft_comm_group *g, weft_comm_kind kind,
                                  weft_dtype t, const void *in, void *out, int64_t total,
                                  int64_t unit);
weft_status weft_comm__ucx_sum_lanes(weft_comm *c, weft_comm_group *g,
                                     weft_comm_kind kind, weft_dtype t, const void *in,
                                     void *out, int64_t total, int64_t unit,
                                     const weft_comm_lanes *l);

/* Opened things begin with this. */
typedef struct ucx_opened {
    struct ucx_opened *next;
    void (*free)(void *);
} ucx_opened;

#endif
