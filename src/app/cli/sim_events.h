/* weft sim --events: a job through a trace of hosts that come and go. */
#ifndef WEFT_CLI_SIM_EVENTS_H
#define WEFT_CLI_SIM_EVENTS_H

#include "cli/spec.h"
#include "cluster/cluster.h"

typedef struct weft_cli_sim_events {
    const char *file;      /* the trace; NULL: none */
    const char *incidents; /* measured pauses; NULL */
    double      step_s;    /* measured; 0: the planner says it */
    double      failure_timeout_s, pause_s, join_s, restart_s, notice_s, checkpoint_s;
    int64_t     copies;
} weft_cli_sim_events;

enum {
    WEFT_CLI_N_EVENTS = 10
};

weft_cli_sim_events weft_cli_events_default(void);
/* sim.c: of a job on these devices that does not say it. */
const char *weft_cli_usual_dtype(const weft_cluster *c);
/* Writes WEFT_CLI_N_EVENTS rows that read into e. */
void weft_cli_events_options(weft_cli_sim_events *e, weft_cli_option *row);
/* spec: resolved; cluster: of equal hosts. */
int weft_cli_events_run(const weft_cli_command *c, const weft_cli_sim_events *e,
                        const weft_cli_spec *spec, const char *cluster, bool json);

#endif
