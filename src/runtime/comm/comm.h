/* Bytes between ranks: messages over channels, collectives over groups.
 *
 *     weft_comm_channel *ch;
 *     weft_comm_open_channel(c, 1, WEFT_COMM_SEND, 3, bytes, 2, &ch);     once, at start
 *     weft_comm_send(c, ch, p, bytes);                                    in a step
 *
 * A transport fills in weft_comm_ops; what is promised is the same for all (tests/comm):
 * (1) nothing hangs: an operation whose peers do not come within timeout_s ends in WEFT_ERR_PEER,
 *     which names a late rank; so does every operation after somebody gave up (weft_comm_abort)
 * (2) messages of a channel arrive in order, each once; what carries an older epoch is dropped
 * (3) a sum is taken over group position by the binary tree ((0+1)+(2+3))+..., whoever computes
 *     it, so its bits depend on neither timing nor transport
 * (4) sending, receiving and collectives allocate nothing; opening, preparing and the first start
 *     of a group do
 * (5) the first cause stands: after somebody gave up or died all operations of a rank, pending and
 *     later, end with one line, and so do those of all ranks that it shares memory with: the line
 *     that was there first.  A rank that knows of a cause adds none; two hosts report two only if
 *     ranks of both gave up, or noticed a death, before either had heard of the other */
#ifndef WEFT_COMM_COMM_H
#define WEFT_COMM_COMM_H

#include <stdatomic.h>

#include "base/lanes.h"
#include "base/status.h"
#include "exchange/collective.h"
#include "weft/tensor.h"

typedef struct weft_comm         weft_comm;
typedef struct weft_comm_channel weft_comm_channel; /* the transport's */
typedef struct weft_comm_group   weft_comm_group;

typedef enum weft_comm_side {
    WEFT_COMM_SEND,
    WEFT_COMM_RECV,
} weft_comm_side;

/* A sum to which members bring several terms: the positions share n_lane lanes (base/lanes.h),
 * each brings those of its run, every one stride elements behind the last. */
typedef struct weft_comm_lanes {
    int            n_lane; /* a power of two, at least as many as members */
    int64_t        stride;
    const int32_t *share; /* lanes of each position; NULL: equal */
} weft_comm_lanes;
/* 0 where they are dealt equally, else a number by which members that were told other shares are
 * found. */
uint32_t weft_comm_dealt(const weft_comm_lanes *l, int n);

/* Rows sorted into bins (by expert): how many each position has in each bin is known to all, and
 * may be none. Bins are dealt out in runs (weft_comm_share_at with unit 1).  At home position p
 * has the rows of bin b from table[p][b] up to table[p][b + 1]; the owner of a bin has its rows
 * by bin, then by position. */
typedef struct weft_comm_rows {
    int64_t        width; /* elements of a row */
    int            n_bin;
    const int32_t *table;             /* (positions, n_bin + 1), the same everywhere */
    int64_t        in_rows, out_rows; /* what there is room for here */
} weft_comm_rows;

/* A tensor of a call. */
typedef struct weft_comm_part {
    const void *in;
    void       *out;
    /* Elements of in (all_gather, broadcast: of one rank's in); with a unit or lanes: of the
     * whole. */
    int64_t count;
    /* all_gather and reduce_scatter: shares are runs of units that differ by at most one unit,
     * the larger first; the last unit may be short, shares may be empty.  0: equal shares. */
    int64_t unit;
    int64_t stride; /* elements from term to term, where there are lanes */
} weft_comm_part;

/* Memory in which small tensors are packed, for a transport that wants them contiguous. */
typedef struct weft_comm_room {
    char   *p;
    int64_t bytes; /* at least weft_comm_room_bytes() */
    int     n, me; /* members of the group, and which one this is */
} weft_comm_room;

/* One collective, whatever its kind: the same on all members but for addresses.
 *     in == out is legal for all_reduce and broadcast; in of all_gather may be its place in out;
 *     reduce_scatter may leave its share where it is in in
 *     several tensors are done as if one after another, with one barrier where the transport can
 *     and with as few messages as room allows elsewhere */
typedef struct weft_comm_call {
    weft_comm_group *group;
    weft_collective  kind;
    weft_dtype       dtype;
    weft_comm_part   tensor; /* where n_part is 0 */
    /* all_reduce, reduce_scatter, all_gather of several tensors */
    int                   n_part;
    const weft_comm_part *part;
    weft_comm_room        room;
    /* all_reduce, reduce_scatter: members bring several terms each (weft_comm_lanes); 0: one */
    int            n_lane;
    const int32_t *lane_share;
    weft_comm_rows rows; /* send_rows, return_rows */
} weft_comm_call;

/* What has gone to a rank so far, by the system's account of the connection. */
typedef struct weft_comm_link {
    int     rank;
    int64_t bytes;  /* that have arrived there */
    double  busy_s; /* in which some were on their way, and the rank had room for them */
} weft_comm_link;

typedef struct weft_comm_ops {
    /* instance: how often this end has closed the key before; part of the key */
    weft_status (*open_channel)(weft_comm *c, int peer, weft_comm_side side, int tag,
                                uint32_t instance, int64_t bytes, int credits,
                                weft_comm_channel **out);
    weft_status (*open_group)(weft_comm *c, int n, const int32_t *rank, int tag,
                              uint32_t instance, weft_comm_group **out);
    weft_status (*close_channel)(weft_comm *c, weft_comm_channel *ch);
    weft_status (*close_group)(weft_comm *c, weft_comm_group *g);
    weft_status (*send)(weft_comm *c, weft_comm_channel *ch, const void *p,
                        int64_t bytes);
    weft_status (*recv)(weft_comm *c, weft_comm_channel *ch, void *p, int64_t bytes);
    /* a channel with credits, at its sender; NULL: always */
    bool (*can_send)(weft_comm *c, weft_comm_channel *ch);
    /* a collective from its beginning to its end, on the calling thread */
    weft_status (*run)(weft_comm *c, const weft_comm_call *call);
    /* a rank that this one waits for in g just now, or -1; asked by any thread; NULL: nobody
     * knows */
    int (*missing)(weft_comm *c, weft_comm_group *g);
    void (*abort)(weft_comm *c, const char *why);
    /* WEFT_ERR_PEER: a rank aborted or died; callable from any thread, does not block */
    weft_status (*check)(weft_comm *c);
    /* Tells a rank, without waiting, that this one waits under a key, or no longer; what a
     * rank has told this one.  NULL: no rank is. */
    void (*note)(weft_comm *c, int rank, uint32_t key, bool waits);
    bool (*noted)(weft_comm *c, int rank, uint32_t key);
    /* the same with the verdict of another end, in its words; NULL: it is no half of an end for
     * several hosts */
    void (*pass_on)(weft_comm *c, const char *verdict);
    /* at most n; NULL: nothing is known of links */
    int (*list_links)(weft_comm *c, weft_comm_link *out, int n);
    /* all operations of this end are over, now and later: WEFT_ERR_PEER; nobody is told */
    void (*stop)(weft_comm *c);
    void (*destroy)(weft_comm *c); /* after stop: without waiting for anybody */
} weft_comm_ops;

/* Somebody who wants to know at once that a rank is lost, also while no call is in flight. */
typedef struct weft_comm_watcher {
    /* from a thread of the end, which waits for it: it communicates nothing, watches and unwatches
     * nothing; or from weft_comm_watch, where a rank is lost already.  It may come twice. */
    void (*lost)(void *arg, const char *why);
    void                     *arg;
    weft_comm                *c; /* the rest is comm's */
    struct weft_comm_watcher *next;
} weft_comm_watcher;

/* One rank's end.  May be used by several threads, each channel and group by one at a time. */
struct weft_comm {
    const char              *transport;
    const weft_comm_ops     *op;
    int                      rank, world;
    uint32_t                 epoch;
    double                   timeout_s;
    int64_t                  bytes; /* memory that opened channels hold at this rank */
    const int32_t           *name; /* what messages call each rank; NULL: by its number */
    bool                     packs;  /* some of its groups pack several small tensors */
    struct weft_comm_opened *opened; /* open.c's */
    void                    *impl;
    weft_comm_watcher       *watcher; /* lost.c's */
};

static inline int weft_comm_name(const weft_comm *c, int rank)
{
    return c->name ? c->name[rank] : rank;
}

/* Links over which this rank sends, at most n of them; 0 where the transport does not know. */
int weft_comm_list_links(weft_comm *c, weft_comm_link *out, int n);

/* Channels: messages of at most bytes to or from peer under a tag.  credits messages may wait
 * unreceived;
 * 0: a send ends when it has been received.  Both sides open with the same numbers, in any order.
 */
weft_status weft_comm_open_channel(weft_comm *c, int peer, weft_comm_side side, int tag,
                                   int64_t bytes, int credits, weft_comm_channel **out);
weft_status weft_comm_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                           int64_t bytes);
weft_status weft_comm_recv(weft_comm *c, weft_comm_channel *ch, void *p, int64_t bytes);
/* What was sent can still be received.  Both sides close equally often; the key may then be used
 * again, with other sizes, whether or not the other side has closed it.  Opening a key twice gives
 * the same channel, which is closed by the second close. */
weft_status weft_comm_close_channel(weft_comm *c, weft_comm_channel *ch);
/* Would a send over a channel with credits end at once, with or without success? */
bool weft_comm_can_send(weft_comm *c, weft_comm_channel *ch);

/* Groups: ranks in an order all of them agree on, under a tag. */
weft_status weft_comm_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                 weft_comm_group **out);
/* As with channels.  Not while its calls are in flight; its requests are released before. */
weft_status weft_comm_close_group(weft_comm *c, weft_comm_group *g);

/* A collective in one call, on the calling thread. */
weft_status weft_comm_run(weft_comm *c, const weft_comm_call *call);
/* The same for one tensor in equal shares. */
weft_status weft_comm_collective(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                 weft_dtype t, const void *in, void *out, int64_t count);

/* Bytes of position 0 to all. */
weft_status weft_comm_broadcast_bytes(weft_comm *c, weft_comm_group *g, void *p,
                                      int64_t bytes);

/* A call that is prepared once and started any number of times.
 *
 *     weft_comm_prepare(c, &call, &r);
 *     weft_comm_start(r);  ..  weft_comm_test(r, &done);  ..  weft_comm_wait(r);
 *     weft_comm_release(r);
 *
 * (1) start returns at once, however late the other members are.  From then on the call makes
 *     progress by itself: a thread of the group runs what was started, so test only looks.
 *     wait runs the call on the calling thread where nobody does yet.
 * (2) Calls of one group run one after another in the order in which they were started, the same
 *     at all members; calls of different groups are in flight together.
 * (3) Memory of a call belongs to it from start until test or wait has said that it is done.
 *     Every start is followed by a wait, or by a test that says done.
 * (4) timeout_s counts from the moment at which a call begins to run. */
typedef struct weft_comm_request weft_comm_request;

/* The call and its parts are copied; shares of lanes and tables of rows are not. */
weft_status weft_comm_prepare(weft_comm *c, const weft_comm_call *call,
                              weft_comm_request **out);
weft_status weft_comm_start(weft_comm_request *r);
/* *done: it is over, and the status is that of the call. */
weft_status weft_comm_test(weft_comm_request *r, bool *done);
weft_status weft_comm_wait(weft_comm_request *r);
/* start and wait in one, on the calling thread: nobody is woken for it. */
weft_status weft_comm_run_request(weft_comm_request *r);
/* Not while it is in flight; NULL is fine. */
void weft_comm_release(weft_comm_request *r);

/* The memory that several tensors want to be packed in, at most 4 MB; 0: nothing can be. */
int64_t weft_comm_room_bytes(const weft_comm *c, const weft_comm_call *call, int n_member,
                             int me);
/* Where position k's share begins; k = n: the end. */
int64_t weft_comm_share_at(int64_t total, int64_t unit, int n, int k);

/* Gives up: all pending and later operations of this epoch, of all ranks, end in WEFT_ERR_PEER. */
void weft_comm_abort(weft_comm *c, const char *why);
/* Would an operation fail now because somebody gave up, left or died?  WEFT_ERR_PEER; asked by any
 * thread, also while others communicate, and waits for nobody. */
weft_status weft_comm_check(weft_comm *c);
/* Calls w->lost when weft_comm_check would fail from now on because of a rank, soon after it would.
 * A transport that does not notice by itself (net, for hosts whose loss an agent reports) says
 * nothing: then the next operation fails.  w is the caller's, until unwatch has returned. */
void weft_comm_watch(weft_comm *c, weft_comm_watcher *w);
void weft_comm_unwatch(weft_comm_watcher *w);
/* Long waits that no transport sees (of a device's own communication): each member of a group tells
 * the others that it waits under a key that all of them derive, and later that it does not any
 * more.  A member that has not said so when others have waited for long is the one that is missing.
 * From any thread; no thread waits for it, and nothing is sent until a rank notes.  At most
 * WEFT_COMM_MAX_NOTE keys at once, none of them 0. */
void weft_comm_note(weft_comm *c, int n, const int32_t *rank, uint32_t key, bool waits);
bool weft_comm_is_noted(weft_comm *c, int rank, uint32_t key);
bool weft_comm_can_note(const weft_comm *c);
/* A new view of the job: what is older is dropped from now on. */
void weft_comm_set_epoch(weft_comm *c, uint32_t epoch);
/* Leaves in order: what was sent arrives, and peers learn that this rank is gone. */
void weft_comm_destroy(weft_comm *c);
/* Leaves at once: calls in flight end in WEFT_ERR_PEER, nobody is waited for and nobody is told
 * why.  Requests are released afterwards. */
void weft_comm_drop(weft_comm *c);

/* ---- threads of one process as ranks ---- */

typedef struct weft_comm_local weft_comm_local;

weft_status weft_comm_local_create(int world, weft_comm_local **out);
void        weft_comm_local_destroy(weft_comm_local *w); /* after all its ends */
weft_status weft_comm_local_join(weft_comm_local *w, int rank, double timeout_s,
                                 weft_comm **out);

/* ---- for transports ---- */

/* Tells those who watch the end, from any thread that holds no lock which they may want. */
void weft_comm_report_lost(weft_comm *c, const char *why);

/* Every transport's weft_comm_group begins with this: the calls of the group that were started. */
typedef struct weft_comm_queue weft_comm_queue;
typedef struct weft_comm_group_head {
    weft_comm_queue *queue; /* NULL: none was */
} weft_comm_group_head;

enum {
    WEFT_COMM_MAX_NOTE = 16
};
/* Keys that one rank has noted; all zero: none.  From any thread. */
typedef struct weft_comm_notes {
    _Atomic uint32_t key[WEFT_COMM_MAX_NOTE];
} weft_comm_notes;
void weft_comm_notes_put(weft_comm_notes *n, uint32_t key, bool waits);
bool weft_comm_notes_has(const weft_comm_notes *n, uint32_t key);

/* Several tensors, by one call of each load. */
weft_status weft_comm_run_packed(weft_comm *c, const weft_comm_call *call);
static inline weft_comm_lanes weft_comm_lanes_of(const weft_comm_call *call)
{
    return (weft_comm_lanes){call->n_lane, call->tensor.stride, call->lane_share};
}
/* This one tensor of several, as a call. */
static inline weft_comm_call weft_comm_part_call(const weft_comm_call *call,
                                                 const weft_comm_part *part)
{
    return (weft_comm_call){.group      = call->group,
                            .kind       = call->kind,
                            .dtype      = call->dtype,
                            .tensor     = *part,
                            .n_lane     = call->n_lane,
                            .lane_share = call->lane_share};
}

/* out = sum of in[0..n-1] by the binary tree, count elements; out may be one of them.  bf16 is
 * summed in fp32 and rounded once.  WEFT_ERR_ARG: a type that cannot be summed. */
weft_status weft_comm_sum(weft_dtype t, int n, const void *const *in, void *out,
                          int64_t count);

/* The same where in[i] is itself a sum of 2^level[i] leaves: two are added where they are of one
 * level. */
weft_status weft_comm_sum_levels(weft_dtype t, int n, const void *const *in,
                                 const int *level, void *out, int64_t count);

enum {
    WEFT_COMM_MAX_TERM = 1024
};
/* Rows of one bin from one position: the next of all n positions' runs in the owner's order, from
 * one with home -1. Empty ones are there too.  False: that was all. */
typedef struct weft_comm_row_run {
    int     owner, bin, home;
    int64_t at_owner, at_home, n; /* rows */
} weft_comm_row_run;
bool weft_comm_next_run(const weft_comm_rows *r, int n, weft_comm_row_run *x);
/* From where to where a kind moves it. */
typedef struct weft_comm_way {
    int     from, to; /* positions */
    int64_t in, out;  /* bytes, in the one's in and the other's out */
    int64_t bytes;
} weft_comm_way;
weft_comm_way weft_comm_way_of(const weft_comm_rows *r, weft_collective kind,
                               weft_dtype t, const weft_comm_row_run *x);
/* Rows that position k brings (in) or gets. */
int64_t weft_comm_count_rows(const weft_comm_rows *r, int n, weft_collective kind, int k,
                             bool in);
weft_status weft_comm_check_rows(const weft_comm_rows *r, int n, weft_collective kind,
                                 int me);

/* The terms of all members of a group, in order. */
typedef struct weft_comm_terms {
    int n, most; /* in all, of one position */
    int who[WEFT_COMM_MAX_TERM], which[WEFT_COMM_MAX_TERM], level[WEFT_COMM_MAX_TERM];
    const void *in[WEFT_COMM_MAX_TERM]; /* for the caller */
} weft_comm_terms;
/* WEFT_ERR_ARG: lanes that are no power of two, fewer than the n members, not those that are
 * shared out, or too many terms. */
weft_status weft_comm_terms_of(const weft_comm_lanes *l, int n, weft_comm_terms *out);

#endif
