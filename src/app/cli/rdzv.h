/* Where the hosts of weft run meet: --rdzv, --master-addr, or what a batch system says.
 *
 *     char at[WEFT_CLI_RDZV_MOST];
 *     int  code = weft_cli_find_rdzv(c, &hosts, &node, at);
 *     if (code >= 0) return code;                               refused, and said
 */
#ifndef WEFT_CLI_RDZV_H
#define WEFT_CLI_RDZV_H

#include "cli/cli.h"
#include "launch/launch.h"

enum {
    WEFT_CLI_RDZV_MOST = WEFT_LAUNCH_MAX_RDZV * 65
};

typedef struct weft_cli_hosts {
    const char *rdzv, *addr; /* as they are given, or NULL */
    int64_t     port, n_node;
    bool        is_span; /* MIN:MAX */
    bool        is_program, is_check;
} weft_cli_hosts;

/* *node: as it is given (-1: not), or as the batch system says it.  at: "" where nothing is given.
 * -1: fine; else the exit code. */
int weft_cli_find_rdzv(const weft_cli_command *c, const weft_cli_hosts *h, int64_t *node,
                       char at[WEFT_CLI_RDZV_MOST]);

#endif
