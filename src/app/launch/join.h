/* How a rank meets the others of its job.
 *
 *     weft_launch_environment e;
 *     WEFT_TRY(weft_launch_detect(&e));
 *     WEFT_TRY(weft_launch_join(&e, &(weft_launch_join_options){.timeout_s = 60}, &comm));
 */
#ifndef WEFT_LAUNCH_JOIN_H
#define WEFT_LAUNCH_JOIN_H

#include "comm/comm.h"
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

/* The comm of this rank: shared memory on one host, TCP (or UCX) where there are several. */
weft_status weft_launch_join(const weft_launch_environment  *p,
                             const weft_launch_join_options *o, weft_comm **out);

#endif
