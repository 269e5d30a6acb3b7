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
 * (4) sending, receiving and collectives allocate nothing; opening does */
#ifndef WEFT_COMM_COMM_H
#define WEFT_COMM_COMM_H

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

/* One of several tensors that are dealt with in one meeting: all_reduce, reduce_scatter or
 * all_gather. */
typedef struct weft_comm_part {
    const void *in;
    void       *out;
    int64_t count;  /* as in weft_comm_collective; with a unit or lanes: of the whole */
    int64_t unit;   /* 0: equal shares */
    int64_t stride; /* of terms, where there are lanes */
} weft_comm_part;

/* Memory in which small tensors are packed, for a transport that wants them side by side. */
typedef struct weft_comm_room {
    char   *p;
    int64_t bytes; /* at least weft_comm_room_bytes() */
    int     n, me; /* members of the group, and which one this is */
} weft_comm_room;

typedef struct weft_comm_ops {
    weft_status (*open_channel)(weft_comm *c, int peer, weft_comm_side side, int tag,
                                int64_t bytes, int credits, weft_comm_channel **out);
    weft_status (*open_group)(weft_comm *c, int n, const int32_t *rank, int tag,
                              weft_comm_group **out);
    weft_status (*send)(weft_comm *c, weft_comm_channel *ch, const void *p,
                        int64_t bytes);
    weft_status (*recv)(weft_comm *c, weft_comm_channel *ch, void *p, int64_t bytes);
    /* a channel with credits, at its sender; NULL: always */
    bool (*can_send)(weft_comm *c, weft_comm_channel *ch);
    weft_status (*collective)(weft_comm *c, weft_comm_group *g, weft_collective kind,
                              weft_dtype t, const void *in, void *out, int64_t count);
    /* all_gather and reduce_scatter with shares of different sizes; NULL: equal ones only */
    weft_status (*shares)(weft_comm *c, weft_comm_group *g, weft_collective kind,
                          weft_dtype t, const void *in, void *out, int64_t total,
                          int64_t unit);
    /* all_reduce and reduce_scatter of several terms; NULL: one of each member only */
    weft_status (*sum_lanes)(weft_comm *c, weft_comm_group *g, weft_collective kind,
                             weft_dtype t, const void *in, void *out, int64_t total,
                             int64_t unit, const weft_comm_lanes *l);
    /* send_rows and return_rows; NULL: none */
    weft_status (*rows)(weft_comm *c, weft_comm_group *g, weft_collective kind,
                        weft_dtype t, const void *in, void *out, const weft_comm_rows *r);
    /* a rank that this one waits for in g just now, or -1; asked by any thread; NULL: nobody
     * knows */
    int (*missing)(weft_comm *c, weft_comm_group *g);
    void (*abort)(weft_comm *c, const char *why);
    /* the same with the verdict of another end, in its words; NULL: abort's */
    void (*pass_on)(weft_comm *c, const char *verdict);
    void (*destroy)(weft_comm *c);
    /* weft_comm_several; NULL: small tensors are packed, the others go by themselves */
    weft_status (*several)(weft_comm *c, weft_comm_group *g, weft_collective kind,
                           weft_dtype t, int n, const weft_comm_part *part,
                           const weft_lanes *lanes, const weft_comm_room *room);
} weft_comm_ops;

/* One rank's end.  May be used by several threads, each channel and group by one at a time. */
struct weft_comm {
    const char          *transport;
    const weft_comm_ops *op;
    int                  rank, world;
    uint32_t             epoch;
    double               timeout_s;
    int64_t              bytes; /* memory that opened channels hold at this rank */
    const int32_t       *name;  /* what messages call each rank; NULL: by its number */
    bool                 packs; /* some of its groups pack several small tensors */
    void                *impl;
};

static inline int weft_comm_name(const weft_comm *c, int rank)
{
    return c->name ? c->name[rank] : rank;
}

/* Channels: messages of at most bytes to or from peer under a tag.  credits messages may wait
 * unreceived;
 * 0: a send ends when it has been received.  Both sides open with the same numbers, in any order.
 */
weft_status weft_comm_open_channel(weft_comm *c, int peer, weft_comm_side side, int tag,
                                   int64_t bytes, int credits, weft_comm_channel **out);
weft_status weft_comm_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                           int64_t bytes);
weft_status weft_comm_recv(weft_comm *c, weft_comm_channel *ch, void *p, int64_t bytes);
/* Would a send over a channel with credits end at once, with or without success? */
bool weft_comm_can_send(weft_comm *c, weft_comm_channel *ch);

/* Groups: ranks in an order all of them agree on, under a tag. */
weft_status weft_comm_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                 weft_comm_group **out);
/* count: elements of in (all_gather, broadcast: of one rank's in).  in == out is legal for
 * all_reduce and broadcast; reduce_scatter may leave its share where it lies in in. */
weft_status weft_comm_collective(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                 weft_dtype t, const void *in, void *out, int64_t count);

/* All_gather or reduce_scatter of `total` elements in units: shares are runs that differ by at
 * most one unit, the larger first, and the last unit may be short.  all_gather: in is this
 * position's share, out the whole (in may lie at its place there).  reduce_scatter: in is the
 * whole, out the share of the sum.  Shares may be empty. */
weft_status weft_comm_shares(weft_comm *c, weft_comm_group *g, weft_collective kind,
                             weft_dtype t, const void *in, void *out, int64_t total,
                             int64_t unit);
/* All_reduce or reduce_scatter (unit 0: equal shares) of terms by the tree over lanes.  in is the
 * first term, of `total` elements; in == out is legal for all_reduce. */
weft_status weft_comm_sum_lanes(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                weft_dtype t, const void *in, void *out, int64_t total,
                                int64_t unit, const weft_comm_lanes *l);
/* Send_rows: in are this position's rows at home, out those of its own bins.  Return_rows: the
 * other way round.  What lies behind the last row of out is left as it is.  WEFT_ERR_ARG: a table
 * that does not ascend, or more rows than room. */
weft_status weft_comm_move_rows(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                weft_dtype t, const void *in, void *out,
                                const weft_comm_rows *r);
/* n tensors at once, the same on all members: the same as one after another, with one meeting
 * where the transport can, and with as few messages as room allows elsewhere.  lanes NULL: one
 * term of each member. */
weft_status weft_comm_several(weft_comm *c, weft_comm_group *g, weft_collective kind,
                              weft_dtype t, int n, const weft_comm_part *part,
                              const weft_lanes *lanes, const weft_comm_room *room);
/* For transports: by one call of each load. */
weft_status weft_comm_several_packed(weft_comm *c, weft_comm_group *g,
                                     weft_collective kind, weft_dtype t, int n,
                                     const weft_comm_part *part, const weft_lanes *lanes,
                                     const weft_comm_room *room);
/* What they want to be packed, at most 4 MB; 0: nothing can be. */
int64_t weft_comm_room_bytes(const weft_comm *c, weft_collective kind, weft_dtype t,
                             int n, const weft_comm_part *part, const weft_lanes *lanes,
                             int n_member, int me);
/* Where position k's share begins; k = n: the end. */
int64_t weft_comm_share_at(int64_t total, int64_t unit, int n, int k);

/* Gives up: all pending and later operations of this epoch, of all ranks, end in WEFT_ERR_PEER. */
void weft_comm_abort(weft_comm *c, const char *why);
/* A new view of the job: what is older is dropped from now on. */
void weft_comm_set_epoch(weft_comm *c, uint32_t epoch);
void weft_comm_destroy(weft_comm *c);

/* ---- threads of one process as ranks ---- */

typedef struct weft_comm_local weft_comm_local;

weft_status weft_comm_local_create(int world, weft_comm_local **out);
void        weft_comm_local_destroy(weft_comm_local *w); /* after all its ends */
weft_status weft_comm_local_join(weft_comm_local *w, int rank, double timeout_s,
                                 weft_comm **out);

/* ---- for transports ---- */

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
typedef struct weft_comm_run {
    int     owner, bin, home;
    int64_t at_owner, at_home, n; /* rows */
} weft_comm_run;
bool weft_comm_next_run(const weft_comm_rows *r, int n, weft_comm_run *x);
/* From where to where a kind moves it. */
typedef struct weft_comm_way {
    int     from, to; /* positions */
    int64_t in, out;  /* bytes, in the one's in and the other's out */
    int64_t bytes;
} weft_comm_way;
weft_comm_way weft_comm_way_of(const weft_comm_rows *r, weft_collective kind,
                               weft_dtype t, const weft_comm_run *x);
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
