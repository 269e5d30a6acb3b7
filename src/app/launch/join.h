/* How a rank meets the others of its job.
 *
 *     weft_launch_environment e;
 *     WEFT_TRY(weft_launch_detect(&e));
 *     WEFT_TRY(weft_launch_member_create(&e, &(weft_launch_join_options){.timeout_s = 60}, &m));
 *     ..options.member = weft_launch_member_source(m);          a session waits and connects
 *     weft_launch_member_destroy(m);
 */
#ifndef WEFT_LAUNCH_JOIN_H
#define WEFT_LAUNCH_JOIN_H

#include "comm/membership.h"
#include "comm/token.h"
#include "launch/environment.h"

typedef struct weft_launch_join_options {
    double timeout_s; /* of the ranks' waiting for each other */
    /* How ranks of several hosts prove that they belong to the run; where nothing is set,
     * variables and the default file decide (comm/token.h). */
    weft_comm_token_options token;
    /* Called by the first rank of a host while others are waited for; NULL: nothing is logged. */
    void (*log)(bool warning, const char *text);
} weft_launch_join_options;

/* The membership that a launcher has given this process: the only one of its life, unless an agent
 * replaces ranks (launch.h: REPLACE). */
typedef struct weft_launch_member weft_launch_member;

weft_status weft_launch_member_create(const weft_launch_environment  *e,
                                      const weft_launch_join_options *o,
                                      weft_launch_member            **out);
void        weft_launch_member_destroy(weft_launch_member *m); /* accepts NULL */
/* To the agent, where there is one: this rank ends with an error of its own, which a replacement
 * would have, too. */
void weft_launch_member_fail(weft_launch_member *m);
/* await: addresses and key by a rendezvous where there are several hosts, the memory of this host's
 * ranks where there are several of them. */
const weft_membership_source *weft_launch_member_source(const weft_launch_member *m);

/* The communicator of that membership: shared memory on one host, TCP (or UCX) where there are
 * several. */
weft_status weft_launch_join(const weft_launch_environment  *e,
                             const weft_launch_join_options *o, weft_comm **out);

#endif
