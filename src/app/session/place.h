/* Which rank this process is, and of how many: told by whoever started it. */
#ifndef WEFT_SESSION_PLACE_H
#define WEFT_SESSION_PLACE_H

#include <stdbool.h>

#include "base/status.h"
#include "comm/token.h"

typedef struct weft_place {
    int         rank, world;
    int         local_rank, local_world; /* on this host */
    int         shm_fd;                  /* the launcher's shared memory, or -1 */
    const char *by;      /* "weft run", "torchrun", "slurm", "openmpi", "pmi", "alone" */
    char        key[96]; /* equal for the ranks of one job on one host, to meet by */
    char        rdzv[280]; /* host:port where the ranks of all hosts meet, or "" */
    bool        quiet;     /* set by who likes: not a word while others are waited for */
    /* How ranks of several hosts prove that they belong to the run: options of the command, or
     * nothing, then variables and the default file decide (comm/token.h). */
    weft_comm_token_options token;
} weft_place;

/* rdzv: WEFT_RDZV; MASTER_ADDR with the port after MASTER_PORT (which torchrun keeps for itself);
 * under Slurm the first host of the step, under Open MPI the host of mpirun, each with a port
 * drawn from the job's number. From the environment, first match wins: WEFT_*, RANK + WORLD_SIZE,
 * SLURM_*, OMPI_*, PMI_*, else one process.
 * WEFT_ERR_ARG: half of the variables, or numbers that do not fit, named. */
weft_status weft_place_detect(weft_place *out);

#endif
