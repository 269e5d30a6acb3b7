/* Which links of a rank are slow: what went over them takes longer than it did, or than over its
 * links to other hosts.  Pure.
 *
 *     weft_slow_links_begin(&x, world, host);            when a membership begins
 *     weft_slow_links_add(&x, link, n, crowding);        every few seconds: the accounts so far
 *     weft_slow_links_next(&x, &slow)                    those that have become slow, once each
 *
 * Between two calls of add a link has a rate, its bytes by its busy seconds, where it carried 1 MB
 * or more.  The link is slow where for three times in a row that is less than a third of what is
 * usual, and no longer where it is more than a half.  Usual is the best rate that it had before in
 * this membership, or the median of this rank's links to other hosts at that time, whichever is
 * more.  Where processes wait for cores, packets wait with them: there it has to be less by
 * that much more. */
#ifndef WEFT_SESSION_SLOW_LINK_H
#define WEFT_SESSION_SLOW_LINK_H

#include <stdbool.h>

#include "base/status.h"
#include "comm/comm.h"

typedef struct weft_slow_link {
    int    to;               /* rank */
    double rate, usual_rate; /* bytes a second */
} weft_slow_link;

typedef struct weft_slow_link_rank {
    int64_t bytes; /* so far */
    double  busy_s;
    double rate, best_rate; /* of the last time, 0: it carried too little; of all times */
    double usual_rate;
    int    n_low; /* times in a row */
    bool   slow, named;
} weft_slow_link_rank;

typedef struct weft_slow_links {
    int                  n;
    const int32_t       *host; /* of each rank; NULL: each is a host of its own */
    weft_slow_link_rank *rank;
    double              *scratch; /* n */
} weft_slow_links;

/* host is borrowed. */
weft_status weft_slow_links_begin(weft_slow_links *x, int n, const int32_t *host);
void        weft_slow_links_fini(weft_slow_links *x); /* a zeroed one is fine */
/* crowding: processes that want a core by cores, at least 1. */
void weft_slow_links_add(weft_slow_links *x, const weft_comm_link *link, int n,
                         double crowding);
/* true: out has become slow since the last call that named it. */
bool weft_slow_links_next(weft_slow_links *x, weft_slow_link *out);

#endif
