#include "comm/membership.h"

#include "comm/hosts.h"
#include "comm/net.h"
#include "comm/shm.h"

static weft_status join_host(const weft_membership *m, double timeout_s, weft_comm **out)
{
    return weft_comm_shm_join_kept(m->shm_fd, m->has_kept ? m->kept_fd : -1,
                                   m->local_rank, timeout_s, out);
}

/* All ranks over the network, then those of this host. */
static weft_status join_hosts(const weft_membership *m, weft_comm *far, double timeout_s,
                              weft_comm **out)
{
    weft_comm  *near = NULL;
    weft_status st   = weft_comm_net_connect(far, &m->key, m->address, m->address_bytes);
    bool        shares = m->local_world > 1 || m->has_kept;
    if (st == WEFT_OK && shares) st = join_host(m, timeout_s, &near);
    if (st == WEFT_OK) st = weft_comm_hosts_create(near, far, out);
    if (st == WEFT_OK) return WEFT_OK;
    weft_comm_destroy(near);
    weft_comm_destroy(far);
    return st;
}

weft_status weft_comm_create(const weft_membership *m, weft_comm *listener,
                             double timeout_s, weft_comm **out)
{
    WEFT_TRY(listener ? join_hosts(m, listener, timeout_s, out)
                      : join_host(m, timeout_s, out));
    weft_comm_set_epoch(*out, m->epoch);
    return WEFT_OK;
}
