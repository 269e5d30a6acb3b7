/* Ranks of any program that torchrun can start: started, watched, started again.
 *
 *     weft_launch_options o = {.program = argv, .max_restarts = 3, .log_dir = "logs"};
 *     weft_launch_supervise(4, &o, &code);
 *
 * (1) A rank that fails ends the others (launch.h), and all start again, at most max_restarts
 *     times, with TORCHELASTIC_RESTART_COUNT one higher and, on one host, another MASTER_PORT: the
 *     program goes on from its own checkpoint.
 * (2) *code: 0 where all ranks end with 0, 128 + N after signal N to the launcher, else 1, as
 *     torchrun's.  A program that cannot be started is not tried again.
 * (3) With log_dir each failure is one line of log_dir/incidents.jsonl: rank, pid, cause, what was
 *     decided, milliseconds until all ranks ran again. */
#ifndef WEFT_LAUNCH_SUPERVISE_H
#define WEFT_LAUNCH_SUPERVISE_H

#include "launch/launch.h"

/* o: program, max_restarts, log_dir, grace_s, stop_s (0: 30 s each), n_node, min_node and node,
 * rdzv (NULL on one host: a free port), token.  Several hosts with max_restarts, or another
 * min_node than n_node: agents decide together (restart.c). */
weft_status weft_launch_supervise(int n, const weft_launch_options *o, int *code);

#endif
