/* The agents of a job whose output folder is known: what they see of it (launch/agent_state.c).
 *
 *     weft_cli_agents a = {0};
 *     weft_cli_ask_agents(dir, pid, &remote, &a);
 *     if (a.found) ..                        one of them answers: the job has not ended
 *     weft_cli_agents_fini(&a);
 */
#ifndef WEFT_CLI_FIND_AGENT_H
#define WEFT_CLI_FIND_AGENT_H

#include "base/doc.h"
#include "cli/remote.h"
#include "launch/control.h"

typedef struct weft_cli_agents {
    bool              found; /* one answers, and what it says: */
    weft_doc         *doc;
    const char       *state, *why, *lost, *leader, *leader_at;
    const char       *joining; /* hosts, with what they have learned; "": none */
    double            since_s; /* in seconds since 1970; 0: nothing has changed */
    bool              here;    /* it is this host's, and takes requests there: */
    weft_launch_agent agent;
    /* not found: one of another host may be there, and why it was not reached; "": none may */
    char unreachable[400];
} weft_cli_agents;

/* Asks that process, unless it is 0, and the agents of the newest view that is known in dir, until
 * one answers that is in the job: those of this host by a local socket, others over the control
 * plane, with the token of remote; NULL: those are not asked. */
void weft_cli_ask_agents(const char *dir, int64_t pid, const weft_cli_remote *remote,
                         weft_cli_agents *out);
void weft_cli_agents_fini(weft_cli_agents *a);

#endif
