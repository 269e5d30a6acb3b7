/* A view of a job of several hosts, and its bytes: what a register holds and agents send each
 * other.
 *
 *     n = weft_member_view_encode(v, bytes, sizeof bytes);
 *     WEFT_TRY(weft_member_view_decode(bytes, n, v));
 *
 * Hosts are in order: those of the view before keep theirs, new ones follow.  The first leads.  A
 * view without hosts is the last one of a run that has ended in order. */
#ifndef WEFT_MEMBER_VIEW_H
#define WEFT_MEMBER_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    WEFT_MEMBER_MAX_HOST  = 128,
    WEFT_MEMBER_NAME      = 64,      /* of names and addresses, with the end */
    WEFT_MEMBER_REASON    = 160,     /* with the end */
    WEFT_MEMBER_VIEW_MOST = 64 << 10 /* bytes of a view */
};

#define WEFT_MEMBER_MAX_STEP (INT64_MAX / 2)

typedef struct weft_member_host {
    uint64_t id; /* drawn by the agent's process: one that comes back is another; not 0 */
    int      n_rank;
    char     name[WEFT_MEMBER_NAME];
    char     control[WEFT_MEMBER_NAME]; /* host:port of its agent */
    char     data[WEFT_MEMBER_NAME];    /* host:port where its ranks can be met, or "" */
} weft_member_host;

typedef struct weft_member_view {
    uint32_t epoch;
    /* with epoch: unique, so a key of the view can be derived from them */
    uint64_t proposer;
    /* the next that is run: all before it are committed */
    int64_t first_step;
    /* of another run than the view before: ranks begin with the newest checkpoint */
    bool restarts;
    int  least; /* hosts without which no rank starts, where MIN is not more */
    char reason[WEFT_MEMBER_REASON];
    int  n_host;
    weft_member_host host[WEFT_MEMBER_MAX_HOST];
} weft_member_view;

/* How many bytes; 0: they do not fit. */
size_t weft_member_view_encode(const weft_member_view *v, void *bytes, size_t cap);
/* The same of the view without hosts that ends the run of v. */
size_t weft_member_view_encode_end(const weft_member_view *v, uint64_t proposer,
                                   void *bytes, size_t cap);
/* WEFT_ERR_ARG: these bytes are no view; *v is then of no use. */
weft_status weft_member_view_decode(const void *bytes, size_t n, weft_member_view *v);
/* Copies the hosts that there are. */
void weft_member_view_copy(weft_member_view *to, const weft_member_view *from);
/* The position of a host, or -1. */
int weft_member_view_find(const weft_member_view *v, uint64_t id);
int weft_member_view_ranks(const weft_member_view *v); /* of all hosts */

#endif
