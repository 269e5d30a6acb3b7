/* Starting ranks on this host and seeing them to their end.
 *
 *     int code = weft_launch(4, argv, &(weft_launch_options){0}, &code);
 *
 * A rank is this program again, told by WEFT_RANK, WEFT_WORLD_SIZE, WEFT_LOCAL_RANK,
 * WEFT_LOCAL_WORLD_SIZE and WEFT_SHM_FD what it is.  It has cores of its own where there are
 * enough; what it says on standard error comes out with "[rank 3] " in front; rank 0's standard
 * output is ours.
 *
 * (1) A rank that fails ends all: the others are told through shared memory, have grace_s to
 *     leave, and are killed; who is writing files may finish as long as that makes progress.
 * (2) Errors come last, the first cause on top.  The exit code is that of the first rank that
 *     failed of itself, 128 + N if signal N ended it, or if N stopped the launcher.
 * (3) SIGINT, SIGTERM and SIGHUP go to all ranks once (they save and stop); a second one kills.
 *     After the first, when for timeout_s and 5 s no rank here computes, reads or writes files or
 *     hears that another one does, what is left (stopped, stuck) is killed and named.
 *     Each host's launcher has its own ranks to report on; those of other hosts are named in what
 *     its ranks say.
 * (4) No rank outlives the launcher, however that ends, and no shared memory outlives the ranks. */
#ifndef WEFT_LAUNCH_LAUNCH_H
#define WEFT_LAUNCH_LAUNCH_H

#include "base/status.h"
#include "comm/token.h"

typedef struct weft_launch_options {
    double      grace_s;   /* after a failure; 0: 2 s */
    double      timeout_s; /* of the ranks' waiting for each other; 0: 60 s */
    const char *log_dir;   /* a file rank<r>.log for each, or NULL */
    int n_node; /* hosts on which n ranks each are started, by a launcher each; 0: 1 */
    int node;   /* which of them this is: ranks from node * n on */
    const char *rdzv; /* host:port where the ranks of all hosts meet, rank 0's host */
    /* passed on to the ranks by WEFT_TOKEN_FILE or WEFT_INSECURE_NETWORK */
    weft_comm_token_options token;
} weft_launch_options;

enum {
    WEFT_LAUNCH_PEER = 76 /* the exit code of a rank that ended because of another one */
};

/* argv: what a rank runs, argv[0] being the program's name.  *code: the exit code. */
weft_status weft_launch(int n, char *const *argv, const weft_launch_options *o,
                        int *code);

#endif
