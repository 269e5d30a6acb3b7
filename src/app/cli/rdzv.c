#include "cli/rdzv.h"

#include <stdio.h>
#include <string.h>

#include "comm/rdzv.h"
#include "launch/environment.h"

/* host:port,host:port,..: for agents alone, who try one after another. */
static int check_listed(const weft_cli_command *c, const weft_cli_hosts *h,
                        const char *at)
{
    char listed[WEFT_LAUNCH_MAX_RDZV][64];
    int  n = weft_launch_split_rdzv(at, listed);
    if (strchr(at, ',') && (h->n_node < 2 || h->is_check))
        return weft_cli_usage(c,
                              "--rdzv %s: a list is for jobs of several hosts with "
                              "recover=on; give one host:port here",
                              at);
    if (!n && strchr(at, ','))
        return weft_cli_usage(c,
                              "--rdzv %.80s..: at most %d addresses host:port of at most "
                              "63 characters, with commas between",
                              at, WEFT_LAUNCH_MAX_RDZV);
    if (n < 2 && weft_comm_rdzv_check(at) != WEFT_OK)
        return weft_cli_fail(c, WEFT_ERR_ARG);
    for (int k = 0; n > 1 && k < n; k++)
        if (weft_comm_rdzv_check(listed[k]) != WEFT_OK)
            return weft_cli_fail(c, WEFT_ERR_ARG);
    return -1;
}

int weft_cli_find_rdzv(const weft_cli_command *c, const weft_cli_hosts *h, int64_t *node,
                       char at[WEFT_CLI_RDZV_MOST])
{
    const size_t n = WEFT_CLI_RDZV_MOST;
    *at            = 0;
    if (h->rdzv)
        snprintf(at, n, "%s", h->rdzv);
    else if (h->addr)
        snprintf(at, n, "%s:%lld", h->addr, (long long)h->port);
    int found = -1;
    if (h->n_node > 1 && !*at && weft_launch_detect_hosts(at, n, &found) && *node < 0 &&
        !h->is_span && found < h->n_node)
        *node = found;
    if (h->n_node > 1 && !*at)
        return weft_cli_usage(c, "--nnodes: --rdzv host:port says where the hosts meet, "
                                 "or file:DIR, or etcd://host:port,.../NAME (inside "
                                 "srun Slurm's variables do)");
    if (*at && weft_launch_is_register(at)) {
        if (h->is_program || h->is_check || h->n_node < 2)
            return weft_cli_usage(c,
                                  "--rdzv %s: a register is for jobs of several hosts "
                                  "(--nnodes N or MIN:MAX); give host:port here",
                                  at);
        if (*node >= 0)
            return weft_cli_usage(c,
                                  "--node-rank: not with --rdzv %s, where hosts are in "
                                  "the order in which they come",
                                  at);
        return -1;
    }
    if (h->n_node > 1 && *node < 0 && !h->is_span)
        return weft_cli_usage(c, "--nnodes: --node-rank says which of them this is");
    return *at ? check_listed(c, h, at) : -1;
}
