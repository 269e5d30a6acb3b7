/* weft cluster calibrate's part for GPUs: constants of each kind by the driver (probe/gpu.h), and,
 * where there is a plugin, instructions in their place (session/sweep.h). */
#ifndef WEFT_CLI_CLUSTER_GPUS_H
#define WEFT_CLI_CLUSTER_GPUS_H

#include "base/text.h"
#include "cluster/cluster.h"

typedef struct weft_cli_gpus {
    const char *processors;   /* a cluster file of this host's CPUs; NULL: without */
    const char *list;         /* all times as CSV; NULL */
    const char *tune;         /* a table of algorithms to write first; NULL */
    double      tune_limit_s; /* 0: as long as it takes */
    bool        host;         /* of instructions only what the host does for a GPU */
} weft_cli_gpus;

/* GPUs, driver and libraries of this host, a line each; nothing where there is no GPU. */
void weft_cli_describe_gpus(weft_text *t);
/* *out NULL: none could be measured, and a line says why. */
weft_status weft_cli_measure_gpus(const weft_cli_gpus *o, weft_cluster **out);
/* c, whose first node has such GPUs, with times of instructions, the host's among them; the cache
 * is left alone. */
weft_status weft_cli_time_instructions(const weft_cli_gpus *o, const weft_cluster *c,
                                       weft_cluster **out);

#endif
