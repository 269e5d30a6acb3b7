/* Requests to a running `weft run` that replaces ranks, from another process of its user on the
 * same host: unix sockets without a file, named by the agent's process and, with several hosts, by
 * the address that views.jsonl gives it.
 *
 *     weft_launch_agent_by_pid(pid, &agent);
 *     WEFT_TRY(weft_launch_scale(&agent, 4, 60, text, sizeof text));     weft scale 4
 *
 * The peer's user is the kernel's word (SO_PEERCRED); others are refused. */
#ifndef WEFT_LAUNCH_CONTROL_H
#define WEFT_LAUNCH_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

typedef struct weft_launch_agent {
    char name[96]; /* of its socket */
} weft_launch_agent;

void weft_launch_agent_by_pid(int64_t pid, weft_launch_agent *out);
void weft_launch_agent_by_address(const char *address, weft_launch_agent *out);

/* What that agent sees of its job, appended as JSON (agent_state.c).  WEFT_ERR_ARG: its job has
 * another output folder than dir, unless that is NULL; WEFT_ERR_IO: no answer comes within
 * timeout_s. */
weft_status weft_launch_ask_state(const weft_launch_agent *agent, const char *dir,
                                  double timeout_s, weft_text *out);
/* The job of that agent goes on with n ranks; returns when it has committed a step so, or went
 * back; text: what became of it.  WEFT_ERR_ARG: refused, and why; WEFT_ERR_PEER: it goes on with
 * another number of ranks, and why; WEFT_ERR_IO: no answer comes within timeout_s. */
weft_status weft_launch_scale(const weft_launch_agent *agent, int n, double timeout_s,
                              char *text, size_t size);
/* The same: a host leaves the job; returns when a view without it is decided. */
weft_status weft_launch_drain(const weft_launch_agent *agent, const char *host,
                              double timeout_s, char *text, size_t size);

#endif
