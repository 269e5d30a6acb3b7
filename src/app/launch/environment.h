/* Which rank this process is, and of how many: from variables of the launcher. */
#ifndef WEFT_LAUNCH_ENVIRONMENT_H
#define WEFT_LAUNCH_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct weft_launch_environment {
    int rank, world;
    int local_rank, local_world; /* on this host */
    int slot;      /* whose memory is this rank's, under `weft run`; else local_rank */
    int shm_fd;    /* the launcher's shared memory, or -1 */
    int flight_fd; /* memory for flight recorders (base/flight.h), or -1 */
    int line_fd;   /* control connection to an agent that replaces ranks, or -1 */
    int agent_stopped_ms; /* that this may be stopped alone before ranks leave; 0: for ever */
    int         rdzv_fd; /* the agent's socket where ranks of several hosts meet, or -1 */
    const char *by;      /* "weft run", "torchrun", "slurm", "openmpi", "pmi", "alone" */
    char        key[96]; /* equal for the ranks of one job on one host, to meet by */
    char        rdzv[280]; /* host:port where the ranks of all hosts meet, or "" */
} weft_launch_environment;

/* rdzv: WEFT_RDZV; MASTER_ADDR with the port after MASTER_PORT (which torchrun keeps for itself);
 * under Slurm the first host of the step, under Open MPI the host of mpirun, each with a port
 * drawn from the job's number. From the environment, first match wins: WEFT_*, RANK + WORLD_SIZE,
 * SLURM_*, OMPI_*, PMI_*, else one process.
 * WEFT_ERR_ARG: half of the variables, or numbers that do not fit, named. */
weft_status weft_launch_detect(weft_launch_environment *out);

/* Where launchers meet that were started one a host: WEFT_RDZV; under Slurm the first node of the
 * job, with a port drawn from its number.  *node: which of them this is, or -1.  false: neither. */
bool weft_launch_detect_hosts(char *rdzv, size_t n, int *node);

/* As operators know this host: under Slurm its NodeName. */
void weft_launch_host_name(char *out, size_t n);

#endif
