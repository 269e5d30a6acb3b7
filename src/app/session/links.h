/* Links between hosts that have become slow: each rank looks at those over which it sends, tells
 * at commit points, and the rank that writes reports each pair of hosts once in a membership. */
#ifndef WEFT_SESSION_LINKS_H
#define WEFT_SESSION_LINKS_H

#include "session/slow_link.h"

enum {
    WEFT_LINKS_MAX_REPORTED = 32
};

typedef struct weft_links {
    weft_slow_links slow;
    weft_comm_link *link; /* slow.n */
    /* for the vote in which this rank has its turn; no rates: nothing */
    weft_slow_link next;
    double         since; /* of the accounts: when, and for how many steps */
    int            n_step;
    /* in the rank that writes */
    int reported[WEFT_LINKS_MAX_REPORTED][2]; /* ranks */
    int n_reported;
} weft_links;

void weft_links_fini(weft_links *x); /* a zeroed one is fine */

#endif
