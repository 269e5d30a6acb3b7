/* A rank finds the others: addresses and key by a rendezvous, memory of its host's ranks, and the
 * communicator of that membership. */
#include "launch/join.h"

#include <unistd.h>

#include "base/progress.h"
#include "comm/membership.h"
#include "comm/net.h"
#include "comm/rdzv.h"
#include "comm/shm.h"

/* The memory of this host's ranks; where the launcher is not ours, they make it themselves. */
static weft_status find_memory(const weft_launch_environment  *p,
                               const weft_launch_join_options *o, int *fd)
{
    *fd = p->shm_fd;
    if (*fd >= 0 || (p->local_world == 1 && p->world > 1)) return WEFT_OK;
    return weft_comm_shm_meet(p->key, p->local_rank, p->local_world, o->timeout_s, fd);
}

/* The token is read before anything is opened. */
static weft_status find_token(const weft_launch_environment  *p,
                              const weft_launch_join_options *o, weft_comm_token *out)
{
    WEFT_TRY(weft_comm_token_find(&o->token, out));
    if (out->insecure && !p->local_rank && o->log)
        o->log(true,
               "--insecure-network: everybody who can reach the ports of this run can "
               "join it");
    return WEFT_OK;
}

/* Everybody's address. */
static weft_status meet_all(const weft_launch_environment  *p,
                            const weft_launch_join_options *o,
                            const weft_comm_token *token, const weft_comm *listener,
                            weft_comm_rdzv_table *out)
{
    const void            *mine;
    int64_t                bytes;
    weft_comm_rdzv_options rdzv = {.at        = p->rdzv,
                                   .rank      = p->rank,
                                   .world     = p->world,
                                   .timeout_s = o->timeout_s,
                                   .token     = token,
                                   .check     = weft_comm_net_check_address};
    if (!p->local_rank) rdzv.log = o->log;
    weft_comm_net_address(listener, &mine, &bytes);
    return weft_comm_rdzv_run(&rdzv, mine, bytes, out);
}

static weft_status open_listener(const weft_launch_environment  *p,
                                 const weft_launch_join_options *o, weft_comm **out)
{
    char device[64];
    weft_comm_rdzv_device(p->rdzv, device, sizeof device);
    return weft_comm_net_open(&(weft_comm_net_options){.rank        = p->rank,
                                                       .world       = p->world,
                                                       .local_world = p->local_world,
                                                       .timeout_s   = o->timeout_s,
                                                       .device = *device ? device : NULL},
                              out);
}

static weft_status join_hosts(const weft_launch_environment  *p,
                              const weft_launch_join_options *o, weft_membership *m,
                              weft_comm **out)
{
    weft_comm           *listener = NULL;
    weft_comm_token      token;
    weft_comm_rdzv_table t = {0};
    if (!*p->rdzv)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%d of %d ranks are on this host, and %s does not say where to "
                         "meet the others: set WEFT_RDZV=host:port, rank 0's host",
                         p->local_world, p->world, p->by);
    WEFT_TRY(weft_comm_rdzv_check(p->rdzv));
    WEFT_TRY(find_token(p, o, &token));
    weft_status st = open_listener(p, o, &listener);
    if (st == WEFT_OK) st = meet_all(p, o, &token, listener, &t);
    weft_comm_token_wipe(&token);
    if (st == WEFT_OK) st = find_memory(p, o, &m->shm_fd);
    if (st == WEFT_OK) {
        m->key           = t.membership;
        m->address       = t.part;
        m->address_bytes = t.bytes;
        st               = weft_comm_create(m, listener, o->timeout_s, out);
    } else {
        weft_comm_destroy(listener);
    }
    weft_comm_key_wipe(&m->key);
    weft_comm_rdzv_table_fini(&t);
    return st;
}

/* The launcher, where it is ours, sees the progress of this rank. */
static void share_progress(const weft_launch_environment *p)
{
    _Atomic uint64_t *word;
    if (p->shm_fd >= 0 &&
        weft_comm_shm_progress_word(p->shm_fd, p->local_rank, &word) == WEFT_OK)
        weft_progress_share(word);
}

weft_status weft_launch_join(const weft_launch_environment  *p,
                             const weft_launch_join_options *o, weft_comm **out)
{
    weft_membership m  = {.rank        = p->rank,
                          .world       = p->world,
                          .local_rank  = p->local_rank,
                          .local_world = p->local_world,
                          .shm_fd      = -1};
    weft_status     st = WEFT_OK;
    share_progress(p);
    if (p->local_world < p->world) {
        st = join_hosts(p, o, &m, out);
    } else {
        st = find_memory(p, o, &m.shm_fd);
        if (st == WEFT_OK) st = weft_comm_create(&m, NULL, o->timeout_s, out);
    }
    if (m.shm_fd >= 0 && m.shm_fd != p->shm_fd) close(m.shm_fd);
    return st;
}
