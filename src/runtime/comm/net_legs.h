/* One call of a collective between hosts, as messages each way.
 *
 *     weft_comm__net_begin(&k, c, g, kind, t);
 *     weft_comm__net_exchange(&k, step, to, p, bytes, from, net_into(out, bytes));    one each way
 *     weft_comm__net_run_legs(&k, leg, n);                                            or several
 *     return weft_comm__net_end(&k, st); */
#ifndef WEFT_COMM_NET_LEGS_H
#define WEFT_COMM_NET_LEGS_H

#include "comm/net_priv.h"

enum {
    NET_AT_ONCE = 4, /* messages each way */
};

struct weft_comm_group {
    weft_comm_group_head head; /* first */
    net_opened           opened;
    net_end             *e;
    net_port            *port;
    int                  n, me, tag;
    net_flow             flow[NET_AT_ONCE]; /* of what is under way at once */
    char                *scratch;
    size_t               scratch_bytes;
    int32_t              rank[];
};

typedef struct net_call {
    net_end         *e;
    weft_comm_group *g;
    weft_collective  kind;
    weft_dtype       t;
    int64_t          size; /* of an element */
    uint32_t         what;
    double           deadline;
    /* a copy that waits until something is under way */
    void       *copy_to;
    const void *copy_from;
    int64_t     copy_bytes;
} net_call;

/* A message each way: bytes at p to position `to`, and what post says from position `from`;
 * either -1: none. */
typedef struct net_leg {
    uint32_t       step;
    int            to;
    const void    *p;
    int64_t        bytes;
    const int64_t *upto;    /* how much of p is there; NULL: all */
    bool           at_once; /* a piece goes unasked; at all members alike */
    int            from;
    net_post       post;
    /* while it is under way */
    net_flow       *flow;
    const net_peer *sends_to, *comes_from;
} net_leg;

/* Legs that do not wait for each other. */
typedef struct net_batch {
    net_call *k;
    int       n;
    net_leg   leg[NET_AT_ONCE];
} net_batch;

static inline net_post net_into(void *out, int64_t bytes)
{
    return (net_post){.out = out, .length = bytes};
}

/* The lock, until the end; WEFT_ERR_ARG: a sum of what cannot be summed. */
weft_status weft_comm__net_begin(net_call *k, weft_comm *c, weft_comm_group *g,
                                 weft_collective kind, weft_dtype t);
weft_status weft_comm__net_end(net_call *k, weft_status st);
/* All of them, at most NET_AT_ONCE, under way together. */
weft_status weft_comm__net_run_legs(net_call *k, net_leg *l, int n);
/* Sends bytes at p to position `to` and receives what post says from position `from`, either -1:
 * not. */
weft_status weft_comm__net_exchange(net_call *k, uint32_t step, int to, const void *p,
                                    int64_t bytes, int from, net_post post);
/* Runs what is there when it is full; the rest with run_batch. */
weft_status weft_comm__net_add_leg(net_batch *b, net_leg l);
weft_status weft_comm__net_run_batch(net_batch *b);
/* The group's own memory, as it was left or larger. */
weft_status weft_comm__net_scratch(net_call *k, int64_t bytes, char **out);

#endif
