/* Inside the transport between hosts.
 *
 * Every message has a head that is checked before anything else is looked at.  Data goes to a
 * port (a channel's end or a group) under (epoch, source, seq, step).  What is short, and the
 * beginning of what is long, is sent at once and kept by a receiver that has not asked for it
 * yet; the rest of a long message follows when its receiver has said READY, straight into the
 * memory where it belongs, or added to what lies there.  Over a channel with credits NET_UNASKED
 * more goes before that.  Where partners exchange one message in a
 * collective, to which they come at the same time, a piece is short; elsewhere NET_SHORT is: much
 * that waits in the kernel is out of the caches when it is taken.
 *
 * How bytes get to a peer is a link's: sockets of our own (net_tcp.c) or UCX (net_ucx.c).
 * One lock an end.  Who waits drives the link; while nobody waits, the end's own thread does. */
#ifndef WEFT_COMM_NET_PRIV_H
#define WEFT_COMM_NET_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "comm/net.h"
#include "comm/tls.h"

enum {
    NET_SHORT = 64 << 10, /* sent unasked in any case; at most a piece */
    /* summed whole by more than four ranks; by fewer what is short */
    NET_WHOLE  = 16 << 10,
    NET_WINDOW = 8, /* pieces under way at once, of one message */
    NET_BUCKET = 1024,
    /* pieces that may overtake a missing one, over a link that reorders */
    NET_AHEAD = 512,
};

/* What one peer may make this end hold; a peer that sends more fails.  Each is far above what a
 * rank of ours needs: it sends at most NET_UNASKED + credits * NET_SHORT bytes unasked over a
 * channel, a piece in each message of a call, one READY for each message that it waits for, and
 * one message for each channel and group that this end has not opened yet. */
enum {
    NET_MOST_READY  = 1 << 16,
    NET_MOST_PORTS  = 1 << 16, /* opened by messages, not by this end */
    NET_MOST_QUEUED = 1 << 16, /* answers that it does not read */
};
#define NET_MOST_HELD (INT64_C(1) << 30) /* bytes of messages that are not expected yet */
/* Of a channel with credits: bytes past the NET_SHORT of each message whose receiver has not said
 * READY.  Enough for what a line holds: 10 Gbit/s for 1.6 ms. */
#define NET_UNASKED (INT64_C(2) << 20)

typedef enum net_kind {
    NET_HELLO = 1,
    NET_DATA,
    NET_READY,  /* for message seq, step of a port: its pieces may come */
    NET_ACK,    /* seq: messages of a channel received so far */
    NET_OPEN,   /* length, seq: a channel's bytes and credits */
    NET_OPENED, /* the answer: those of the first who opened */
    NET_ABORT,  /* data: the verdict's words */
    NET_BYE,
    NET_BYE_ACK,
    NET_ASK, /* in call seq of a group: whom do you wait for? */
    NET_ANSWER,
    NET_NOTE, /* seq 1: the sender waits under the key in port; 0: no longer */
} net_kind;

typedef struct net_head {
    uint32_t magic;
    uint16_t version, kind;
    /* of this run, from this rank to that one: derived from the membership key */
    uint64_t job;
    uint32_t epoch;
    int32_t  source;
    uint64_t port; /* group's hash : 32 | tag : 32; no hash: a channel */
    uint32_t seq, step;
    int64_t  at, length; /* of this piece; of the whole message */
    uint32_t what;       /* the call that it belongs to, for comparison */
    uint32_t bytes;      /* behind this head */
    uint32_t spare;
    uint32_t crc; /* of all before it */
} net_head;

/* A head and what follows it, on its way through a link, which says when it needs them no longer.
 */
typedef struct net_parcel {
    struct net_parcel *next; /* the link's */
    struct net_end    *e;
    net_head           head;
    const char        *data;
    void (*sent)(struct net_parcel *p); /* or lost: a broken line says so itself */
} net_parcel;

/* A message kept: data or a READY that nobody has asked for yet, or one of ours that is being
 * sent. */
typedef struct net_note {
    net_parcel       parcel; /* first */
    struct net_note *next;
    int32_t          peer;
    int              size_class; /* how much there is room for */
    _Alignas(16) char data[];
} net_note;

enum {
    NET_N_CLASS = 4 /* of notes: 256 bytes, 4 KB, NET_SHORT, a piece */
};

/* A message that is expected. */
typedef struct net_post {
    struct net_post *next;
    int32_t          source;
    uint32_t         epoch, seq, step, what;
    int64_t          length;
    int64_t          first; /* bytes from the beginning on that are there */
    /* Pieces after the first missing one that are there, by their number modulo NET_AHEAD. */
    uint64_t    ahead[NET_AHEAD / 64];
    void       *feeder; /* the link's: what is writing into out; NULL: nothing */
    char       *out;
    const char *mine; /* with mine: out = mine + data (or data + mine) */
    bool        mine_first;
    weft_dtype  dtype;
    bool        done;
    bool        bad; /* another call, or another length, came */
    net_head    came;
} net_post;

/* A message that is being sent. */
typedef struct net_flow {
    struct net_flow         *next;
    struct net_end          *e;
    int32_t                  to;
    uint64_t                 port;
    uint32_t                 epoch, seq, step, what;
    const char              *p;
    int64_t                  length, sent;
    int64_t                  unasked; /* bytes that go before the receiver is ready */
    const struct net_window *window;  /* how much more; NULL: nothing */
    const int64_t           *upto;    /* no further than this; NULL: all is there */
    int                      n_under_way;
    bool                     asked; /* READY has come */
    bool                     granted, begun, done;
    struct net_piece {
        net_parcel       parcel; /* first */
        struct net_flow *flow;
        bool             busy;
    } piece[NET_WINDOW];
} net_flow;

typedef enum net_side {
    NET_IN,
    NET_OUT,
    NET_GROUP,
} net_side;

/* The messages of a channel, which share NET_UNASKED: so the line is not idle from the end of a
 * message to the word that the next one may come. */
typedef struct net_window {
    const struct net_port *port;
    const net_flow        *flow;
    int                    n;
} net_window;

/* Where messages go.  Made by whoever mentions it first: a peer may be ahead. */
typedef struct net_port {
    struct net_port *next;
    net_side         side;
    int32_t          peer; /* of a channel; -1: a group */
    uint64_t         id;
    uint32_t         epoch;            /* in which it is used */
    uint32_t         newest;           /* that was heard of */
    net_note        *kept, **kept_end; /* in the order in which they came */
    net_post        *post;
    int32_t maker; /* the peer whose message made it; -1: this end has opened it */
    /* of a channel's receiving side that this end has opened: its largest message and how many
     * may wait; 0: not yet */
    int64_t  most_bytes;
    uint32_t most_ahead;
    uint32_t seq;      /* messages sent or received, calls begun, in this epoch */
    uint32_t acked;    /* sender: messages received over there */
    bool     numbered; /* channel: what the first who opened it said */
    int64_t  bytes;
    int      credits;
    int      answer; /* to OPEN: 0 none yet */
    /* of a group by levels */
    uint64_t         family; /* rail: the port of the flat group; 0: none */
    struct net_port *rail;   /* flat */
    int (*elsewhere)(void *arg);
    void *arg;
} net_port;

typedef struct net_peer {
    void       *line; /* the link's; NULL: not connected */
    void       *address;
    int64_t     address_bytes;
    bool        here;      /* on this machine: hosts may be containers of one */
    bool        broken;    /* the link says so, not yet looked at */
    const char *how;       /* it broke, or what it sent */
    bool        wrong;     /* it broke because of what the peer sent */
    bool        dead;      /* since epoch died_in */
    bool        gone;      /* said good-bye */
    bool        bye_acked; /* to ours */
    bool     parting; /* said good-bye, and something it sent before is still to come */
    uint32_t n_sent, n_got; /* messages, good-byes not counted */
    uint32_t n_owed;        /* n_got where it is gone */
    double   patience_s;    /* until when what is owed is waited for */
    uint32_t died_in;
    uint64_t job_out, job_in; /* in heads to it, in heads from it */
    /* What it makes us hold. */
    int64_t held;
    int     n_ready, n_port, n_queued;
    int     answer;        /* to ASK: NET_NO_ANSWER, or a rank, or -1: not in that call */
    weft_comm_notes notes; /* of it */
} net_peer;

enum {
    NET_NO_ANSWER = -2
};

/* How bytes get to a peer; all with the end's lock held. */
typedef struct net_link {
    const char *name;
    /* of a long message: a multiple of every element's size, at least NET_SHORT */
    int64_t piece;
    bool    overtakes; /* messages may come in another order than they were sent */
    /* Fills in e->efd, which shows when there is something to do, e->address and e->link_state. */
    weft_status (*open)(struct net_end *e, const char *device);
    /* before sleep on efd; false: there is something already */
    bool (*arm)(struct net_end *e);
    unsigned (*progress)(struct net_end *e); /* the number of things done */
    /* e->peer[to].line, or NULL where it cannot be. */
    void (*connect)(struct net_end *e, int to);
    void (*send)(struct net_end *e, int to, net_parcel *p);
    /* The message is given up: p and its data are not looked at afterwards. */
    void (*withdraw)(struct net_end *e, int to, net_parcel *p);
    void (*cut)(struct net_end *e, int to);
    /* nothing comes into it any more: feeder is NULL */
    void (*forget)(struct net_end *e, net_post *post);
    /* weft_comm_list_links; NULL: nothing is known */
    int (*list)(struct net_end *e, weft_comm_link *out, int n);
    void (*close)(struct net_end *e);
} net_link;

extern const net_link weft_comm__net_tcp, weft_comm__net_ucx;

typedef struct net_end {
    weft_comm     c;
    weft_comm_key link_key; /* by which connections of this run prove that they are */
    bool          encrypt;
    /* keys of encrypted connections, once the membership's is known */
    weft_comm_tls          *tls;
    const net_link         *link;
    void                   *link_state;
    void                   *address; /* the link's */
    void                   *told;    /* to the others: a card, and the address */
    int64_t                 address_bytes;
    int                     efd;   /* of the link */
    int                     kick;  /* eventfd: wakes the caller who sleeps on efd */
    int                     nudge; /* eventfd: wakes the thread */
    pthread_mutex_t         lock;
    pthread_cond_t          moved, rest; /* rest: the thread's */
    pthread_t               thread;
    bool                    threaded, stop, leaving;
    bool                    stopped; /* weft_comm_drop */
    bool                    asleep;  /* a waiting caller sleeps on efd */
    int                     n_wait;  /* callers that wait, in waiter */
    int                     n_nap;   /* of them, while another drives the link */
    struct net_waiter      *waiter;
    int                     keeper; /* whom a caller waits for at a channel; -1: nobody */
    net_port               *joined; /* the group in which a caller waits; NULL: none */
    _Atomic int             n_want; /* callers that want the lock */
    bool                    broken; /* some peer is */
    int                     n_parting; /* peers */
    uint64_t                n_call;    /* operations begun */
    bool                    crowded;   /* ranks share processors */
    int64_t                 n_refused; /* messages that were not ours */
    int64_t                 most_held; /* NET_MOST_HELD */
    net_peer               *peer;
    net_port               *port[NET_BUCKET];
    net_flow               *flow; /* under way */
    net_note               *outbox, **outbox_end;
    net_note               *free_note[NET_N_CLASS];
    char                   *bounce;     /* a piece */
    void                   *opened;     /* channels and groups, to free */
    const _Atomic uint32_t *over_word;  /* of the agent (net.h), or NULL */
    uint32_t                over_epoch; /* the word is that or more: all is over */
    bool                    condemned;
    uint32_t                condemned_epoch;
    char                    why[240];
} net_end;

typedef enum net_outcome {
    NET_DONE,
    NET_LATE,
    NET_OVER, /* somebody gave up or died: weft_comm__net_check() says who */
} net_outcome;

static inline net_end *net_of(const weft_comm *c)
{
    return c->impl;
}

/* ---- net_wire.c: all with the lock held ---- */

/* The port that this end opens; NULL: no memory. */
net_port *weft_comm__net_port(net_end *e, net_side side, int32_t peer, uint64_t id);
/* Begins anew in a later epoch; what is older is dropped. */
void weft_comm__net_renew(net_end *e, net_port *port, uint32_t epoch);
/* A head of ours for somebody; kept until it is sent. */
void weft_comm__net_tell(net_end *e, int to, net_kind kind, net_head head,
                         const char *text);
void weft_comm__net_expect(net_end *e, net_port *port, net_post *post, bool ask);
/* Nothing points to post afterwards, complete or not. */
void weft_comm__net_forget(net_end *e, net_port *port, net_post *post);
/* f: to, port, epoch, seq, step, what, p, length and unasked are filled in; done when p may be
 * used again. */
void weft_comm__net_start(net_end *e, net_port *port, net_flow *f);
/* Is all of it the link's, which says when it is sent or lost? */
static inline bool weft_comm__net_handed_over(const net_flow *f)
{
    return f->begun && f->sent == f->length;
}
/* f will not be sent further; nothing of it is under way afterwards. */
void weft_comm__net_stop(net_end *e, net_flow *f);
/* Whatever can be done now; the number of things done. */
unsigned weft_comm__net_pump(net_end *e);
void     weft_comm__net_free_ports(net_end *e);

/* For links.  What has come whole, under a head that was checked. */
void weft_comm__net_arrive(net_end *e, const net_head *h, const char *data);
/* Data that comes by and by: who waits for it, if it is what is expected; else NULL.  The peer
 * has failed (net_peer.broken) where it must not come at all. */
net_post *weft_comm__net_awaited(net_end *e, const net_head *h);
/* Some of it, whole elements, from place `at` of the message on; data NULL: it lies in p->out
 * already. */
void weft_comm__net_take(net_end *e, net_post *p, int64_t at, const char *data,
                         int64_t bytes);
/* One that is nobody's yet has come whole, in a note, which is taken. */
net_note *weft_comm__net_new_note(net_end *e, int64_t bytes);
void      weft_comm__net_free_note(net_end *e, net_note *n);
void      weft_comm__net_arrive_note(net_end *e, net_note *n);
void weft_comm__net_finish_head(const net_end *e, int to, net_head *h, net_kind kind);
/* A line broke; looked at later. */
void weft_comm__net_broke(net_end *e, int peer, const char *how);
/* A peer sent what no rank of ours sends: it fails, like one whose line broke.  what: "a READY
 * with a payload". */
void weft_comm__net_refuse(net_end *e, int peer, const char *what);

/* ---- net_check.c: what a peer may send ---- */

/* Is it a head of this job's, undamaged, from another rank?  If not, nothing in it means
 * anything. */
bool weft_comm__net_is_ours(const net_end *e, const net_head *h);
/* Everything in a head, before anything in it is used.  NULL: a rank may send it; else what is
 * wrong with it. */
const char *weft_comm__net_check_head(const net_end *e, const net_head *h);
/* A piece of the message that p expects: does it bring bytes that are missing, each once?  NULL,
 * or what is wrong. */
const char *weft_comm__net_check_piece(const net_end *e, const net_post *p,
                                       const net_head *h);
/* A message for a port that this end has opened: may it come now? */
const char *weft_comm__net_check_turn(const net_port *port, const net_head *h);
/* bytes from `at` on are there: whole pieces, or the beginning of one that follows p->first. */
void weft_comm__net_mark(const net_end *e, net_post *p, int64_t at, int64_t bytes);

/* ---- net.c ---- */

typedef bool net_test(const void *arg);

net_outcome weft_comm__net_wait(net_end *e, net_test *done, const void *arg,
                                double deadline);
weft_status weft_comm__net_check(const net_end *e);
/* Everything up to epoch is over, for all ranks.  why: the whole line. */
void weft_comm__net_condemn(net_end *e, uint32_t epoch, const char *why);
/* Nobody came: names a rank, from the one waited for on, and condemns.  WEFT_ERR_PEER. */
weft_status weft_comm__net_late(net_end *e, const net_port *port, int waits_on,
                                const char *what);
/* The lock; the thread lets go of it for a caller, however much there is to do. */
void weft_comm__net_lock(net_end *e);
/* The lock, and that this end may be used in its epoch. */
weft_status weft_comm__net_enter(net_end *e, net_port *port);
void        weft_comm__net_leave(net_end *e);

/* ---- net_channel.c, net_collective.c ---- */

weft_status weft_comm__net_open_channel(weft_comm *c, int peer, weft_comm_side side,
                                        int tag, uint32_t instance, int64_t bytes,
                                        int credits, weft_comm_channel **out);
weft_status weft_comm__net_close_channel(weft_comm *c, weft_comm_channel *ch);
weft_status weft_comm__net_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                                int64_t bytes);
bool        weft_comm__net_can_send(weft_comm *c, weft_comm_channel *ch);
weft_status weft_comm__net_recv(weft_comm *c, weft_comm_channel *ch, void *p,
                                int64_t bytes);
weft_status weft_comm__net_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                      uint32_t instance, weft_comm_group **out);
weft_status weft_comm__net_close_group(weft_comm *c, weft_comm_group *g);
weft_status weft_comm__net_run(weft_comm *c, const weft_comm_call *call);

/* What is opened has one of these. */
typedef struct net_opened {
    struct net_opened *next;
    void (*free)(void *opened);
} net_opened;
void weft_comm__net_unlist(net_end *e, net_opened *o);

/* In the id of a port. */
#define NET_IS_GROUP (UINT64_C(1) << 63)

#endif
