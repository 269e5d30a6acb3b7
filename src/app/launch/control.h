/* Requests to a running `weft run` that replaces ranks, from another process of its user on the
 * same host: a unix socket without a file, named by the agent's process.
 *
 *     WEFT_TRY(weft_launch_scale(agent, 4, 60, text, sizeof text));     weft scale 4
 *
 * The peer's user is the kernel's word (SO_PEERCRED); others are refused. */
#ifndef WEFT_LAUNCH_CONTROL_H
#define WEFT_LAUNCH_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The job of that agent goes on with n ranks; returns when it has committed a step so, or went
 * back; text: what became of it.  WEFT_ERR_ARG: refused, and why; WEFT_ERR_IO: nobody answers
 * within timeout_s. */
weft_status weft_launch_scale(int64_t agent, int n, double timeout_s, char *text,
                              size_t size);
/* The same: a host leaves the job; returns when a view without it is decided. */
weft_status weft_launch_drain(int64_t agent, const char *host, double timeout_s,
                              char *text, size_t size);

#endif
