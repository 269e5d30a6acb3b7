/* The hello of a connection between two ranks: a mutual challenge (auth.h) with the key of this
 * run's links, over both nonces, the rank that connects, the rank that it connects to, and the
 * epoch of the membership.
 *
 * Until it is done a connection has a fixed struct and a deadline, and nothing that it sends
 * reaches the job.  After it heads
 * and data follow as they are: what goes over the connection then is neither secret nor protected
 * (docs/security.md). */
#include <errno.h>
#include <sys/socket.h>

#include "comm/net_priv.h"
#include "comm/net_tcp.h"

/* There is one membership in a run as yet: epoch 0. */
static weft_comm_claim claim_of(int from, int to)
{
    return (weft_comm_claim){
        .purpose = WEFT_COMM_FOR_LINK, .from = from, .to = to, .epoch = 0};
}

weft_status weft_comm__tcp_hello_start(const net_end *e, int to, weft_comm_auth *a)
{
    weft_comm_claim claim = claim_of(e->c.rank, to);
    return weft_comm_auth_start(a, WEFT_COMM_INITIATOR, &e->link_key, false, &claim);
}

weft_status weft_comm__tcp_hello_await(const net_end *e, weft_comm_auth *a)
{
    weft_comm_claim claim = claim_of(-1, e->c.rank);
    return weft_comm_auth_start(a, WEFT_COMM_RESPONDER, &e->link_key, false, &claim);
}

/* False: the connection is broken. */
static bool send_output(int fd, weft_comm_auth *a)
{
    for (;;) {
        size_t      n;
        const void *p = weft_comm_auth_output(a, &n);
        if (!n) return true;
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return errno == EAGAIN;
        weft_comm_auth_sent(a, (size_t)k);
    }
}

int weft_comm__tcp_hello_drive(int fd, weft_comm_auth *a)
{
    size_t left;
    for (;;) {
        char in[WEFT_COMM__AUTH_SECOND];
        if (!send_output(fd, a)) return -1;
        size_t most = weft_comm_auth_wants(a);
        if (!most) break;
        ssize_t k = recv(fd, in, most, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno == EAGAIN) return 0;
        if (k <= 0) return -1;
        weft_comm_auth_feed(a, in, (size_t)k);
    }
    if (a->state == WEFT_COMM_AUTH_FAILED) return -1;
    weft_comm_auth_output(a, &left);
    return !left;
}
