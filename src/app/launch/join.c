/* A rank finds the others: addresses and key by a rendezvous, memory of its host's ranks. */
#include "launch/join.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/progress.h"
#include "comm/net.h"
#include "comm/rdzv.h"
#include "comm/shm.h"

struct weft_launch_member {
    weft_launch_environment  e;
    weft_launch_join_options o;
    weft_comm_rdzv_table     table; /* of a rendezvous: what the membership borrows */
    int                      shm_fd;
    bool                     given; /* the membership, once */
    weft_membership_source   source;
};

/* The memory of this host's ranks; where the launcher is not ours, they make it themselves. */
static weft_status find_memory(weft_launch_member *m)
{
    const weft_launch_environment *e = &m->e;
    m->shm_fd                        = e->shm_fd;
    if (m->shm_fd >= 0 || (e->local_world == 1 && e->world > 1)) return WEFT_OK;
    return weft_comm_shm_meet(e->key, e->local_rank, e->local_world, m->o.timeout_s,
                              &m->shm_fd);
}

/* The token is read before anything is opened. */
static weft_status find_token(const weft_launch_member *m, weft_comm_token *out)
{
    WEFT_TRY(weft_comm_token_find(&m->o.token, out));
    if (out->insecure && !m->e.local_rank && m->o.log)
        m->o.log(true,
                 "--insecure-network: everybody who can reach the ports of this run can "
                 "join it");
    return WEFT_OK;
}

/* Everybody's address. */
static weft_status meet_all(weft_launch_member *m, const weft_comm_token *token,
                            const weft_comm *listener)
{
    const void            *mine;
    int64_t                bytes;
    weft_comm_rdzv_options rdzv = {.at        = m->e.rdzv,
                                   .rank      = m->e.rank,
                                   .world     = m->e.world,
                                   .timeout_s = m->o.timeout_s,
                                   .token     = token,
                                   .check     = weft_comm_net_check_address};
    if (!m->e.local_rank) rdzv.log = m->o.log;
    weft_comm_net_address(listener, &mine, &bytes);
    return weft_comm_rdzv_run(&rdzv, mine, bytes, &m->table);
}

static weft_status open_listener(const weft_launch_member *m, weft_comm **out)
{
    char device[64];
    weft_comm_rdzv_device(m->e.rdzv, device, sizeof device);
    return weft_comm_net_open(&(weft_comm_net_options){.rank        = m->e.rank,
                                                       .world       = m->e.world,
                                                       .local_world = m->e.local_world,
                                                       .timeout_s   = m->o.timeout_s,
                                                       .device = *device ? device : NULL},
                              out);
}

static weft_status meet_hosts(weft_launch_member *m, weft_comm **listener)
{
    const weft_launch_environment *e    = &m->e;
    weft_comm                     *open = NULL;
    weft_comm_token                token;
    if (!*e->rdzv)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%d of %d ranks are on this host, and %s does not say where to "
                         "meet the others: set WEFT_RDZV=host:port, rank 0's host",
                         e->local_world, e->world, e->by);
    WEFT_TRY(weft_comm_rdzv_check(e->rdzv));
    WEFT_TRY(find_token(m, &token));
    weft_status st = open_listener(m, &open);
    if (st == WEFT_OK) st = meet_all(m, &token, open);
    weft_comm_token_wipe(&token);
    if (st == WEFT_OK) st = find_memory(m);
    if (st == WEFT_OK)
        *listener = open;
    else
        weft_comm_destroy(open);
    return st;
}

/* The launcher, where it is ours, sees the progress of this rank. */
static void share_progress(const weft_launch_environment *e)
{
    _Atomic uint64_t *word;
    if (e->shm_fd >= 0 &&
        weft_comm_shm_progress_word(e->shm_fd, e->local_rank, &word) == WEFT_OK)
        weft_progress_share(word);
}

static weft_status await_membership(void *arg, weft_membership *out, weft_comm **listener)
{
    weft_launch_member            *m = arg;
    const weft_launch_environment *e = &m->e;
    if (m->given)
        return WEFT_FAIL(WEFT_ERR_PEER, "%s gives a rank one membership only", e->by);
    *listener = NULL;
    share_progress(e);
    WEFT_TRY(e->local_world < e->world ? meet_hosts(m, listener) : find_memory(m));
    m->given = true;
    *out     = (weft_membership){.rank          = e->rank,
                                 .world         = e->world,
                                 .local_rank    = e->local_rank,
                                 .local_world   = e->local_world,
                                 .shm_fd        = m->shm_fd,
                                 .key           = m->table.membership,
                                 .address       = m->table.part,
                                 .address_bytes = m->table.bytes};
    return WEFT_OK;
}

weft_status weft_launch_member_create(const weft_launch_environment  *e,
                                      const weft_launch_join_options *o,
                                      weft_launch_member            **out)
{
    weft_launch_member *m = calloc(1, sizeof *m);
    if (!m) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    m->e      = *e;
    m->o      = *o;
    m->shm_fd = -1;
    m->source = (weft_membership_source){.await = await_membership, .arg = m};
    *out      = m;
    return WEFT_OK;
}

void weft_launch_member_destroy(weft_launch_member *m)
{
    if (!m) return;
    if (m->shm_fd >= 0 && m->shm_fd != m->e.shm_fd) close(m->shm_fd);
    weft_comm_rdzv_table_fini(&m->table);
    free(m);
}

const weft_membership_source *weft_launch_member_source(const weft_launch_member *m)
{
    return &m->source;
}

weft_status weft_launch_join(const weft_launch_environment  *e,
                             const weft_launch_join_options *o, weft_comm **out)
{
    weft_launch_member *m        = NULL;
    weft_comm          *listener = NULL;
    weft_membership     s        = {0};
    WEFT_TRY(weft_launch_member_create(e, o, &m));
    weft_status st = await_membership(m, &s, &listener);
    if (st == WEFT_OK) st = weft_comm_create(&s, listener, o->timeout_s, out);
    weft_comm_key_wipe(&s.key);
    weft_launch_member_destroy(m);
    return st;
}
