/* Collectives across hosts as messages: what each position of a group sends to whom, step by step.
 *
 *     weft_exchange x = {WEFT_ALL_REDUCE, WEFT_EXCHANGE_HALVING, 64};
 *     for (int i = 0; i < weft_exchange_count(&x, me); i++) {
 *         weft_exchange_step s = weft_exchange_at(&x, me, i);
 *         send s.send to s.to, receive s.recv from s.from; the next step begins when both are done
 *     }
 *
 * A vector is cut into n shares, n positions; share k is position k's in reduce_scatter and
 * all_gather.  Pure
 * functions, nothing allocated: transports run the steps, sim prices them.
 *
 *     halving    the vector is halved, the distance doubled (partner p^1, p^2, p^4, ..); gathered
 *                back the same way. Adds in the order of the binary tree.  log2 n messages for
 *                reduce_scatter, all_gather, each half of all_reduce; at most 2 more where n is
 *                no power of two.  Given `near`, the vector goes in two parts: one is exchanged
 *                inside hosts while the other crosses for the first time
 *     doubling   the same with the whole vector (all_reduce): log2 n messages, at most 2 more;
 *     for small vectors ring       n - 1 messages to the right neighbour, twice for all_reduce;
 *     adds in another order direct     one message to each other position; who receives adds them
 *     all at the end, by the tree */
#ifndef WEFT_EXCHANGE_EXCHANGE_H
#define WEFT_EXCHANGE_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "exchange/collective.h"

typedef enum weft_exchange_algorithm {
    WEFT_EXCHANGE_HALVING,
    WEFT_EXCHANGE_DOUBLING,
    WEFT_EXCHANGE_RING,
    WEFT_EXCHANGE_DIRECT,
} weft_exchange_algorithm;

typedef struct weft_exchange {
    weft_collective         kind;
    weft_exchange_algorithm algorithm;
    int                     n; /* positions, shares */
    /* Halving alone: positions 0 .. near-1, near .. 2 near-1, .. are on one host each; a power of
     * two above 1, or 0: nothing is known, one part.  Messages between hosts: one more in each
     * half. */
    int near;
} weft_exchange;

/* The part of every share that a message carries.  Each part of a vector lies by itself. */
typedef enum weft_exchange_part {
    WEFT_EXCHANGE_WHOLE,
    WEFT_EXCHANGE_FRONT, /* the first quarter: goes ahead */
    WEFT_EXCHANGE_BACK,
} weft_exchange_part;

/* Shares first, first + stride, ...: n of them. */
typedef struct weft_exchange_shares {
    int32_t first, stride, n;
} weft_exchange_shares;

typedef enum weft_exchange_use {
    WEFT_EXCHANGE_TAKE, /* what comes replaces what is there */
    WEFT_EXCHANGE_ADD,  /* is added to it */
    /* is kept beside it: the sum of higher positions, added when all lower ones are */
    WEFT_EXCHANGE_ASIDE
} weft_exchange_use;

/* Where n is no power of two, the positions past the largest power below it are summed by
 * themselves; their sum travels aside, behind the shares it belongs to, so that it costs no
 * messages and is added last. */
typedef struct weft_exchange_step {
    int32_t              to, from; /* positions; -1: nobody */
    weft_exchange_shares send, recv;
    weft_exchange_use    use;
    bool send_aside, recv_aside; /* the same shares of what is aside travel too */
    bool finish;                 /* after this step, add what is aside */
    weft_exchange_part part;     /* of the shares */
    /* the next step begins at once; at most one such step runs at a time.. */
    bool behind;
    bool joins; /* ..and this one begins when it is done too */
} weft_exchange_step;

/* false: no such algorithm for this kind */
bool               weft_exchange_can(const weft_exchange *x);
int                weft_exchange_count(const weft_exchange *x, int me);
weft_exchange_step weft_exchange_at(const weft_exchange *x, int me, int i);
/* Shares that a step sends, those aside counted; parts count as what they are of one. */
double weft_exchange_sent(const weft_exchange_step *s);
/* The place of a share in an all_reduce's vector, so that what halving sends lies in one piece;
 * for other kinds share k lies at k. */
int weft_exchange_place(const weft_exchange *x, int share);

/* Groups on several hosts.  host[i]: where position i is.  If every host has one run of
 * positions, all of one length
 * above 1, that length: such a group works by levels, inside the hosts and then between equals of
 * each (comm/levels.c;
 * cost prices it so).  0: flat, everybody with everybody. */
int weft_exchange_levels(int n, const int32_t *host);
/* Whether a call of so many bytes, the whole vector, goes by levels: short ones have fewer
 * messages flat. */
bool weft_exchange_levels_pay(int near, int64_t bytes);
/* Whether sums by levels are the tree's own: runs are its subtrees, and nothing is rounded
 * between them. */
bool weft_exchange_levels_add(int near, bool rounds);

const char *weft_exchange_algorithm_name(weft_exchange_algorithm a);

#endif
