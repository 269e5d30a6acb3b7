/* The hello of a connection between two ranks: a mutual challenge (auth.h) with the key of this
 * run's links, over both nonces, the rank that connects, the rank that it connects to, and the
 * epoch of the membership.
 *
 * Until it is done a connection has a fixed struct and a deadline, and nothing that it sends
 * reaches the job.  After it heads and data follow as they are, neither secret nor protected
 * (docs/security.md); with --encrypt a handshake of TLS comes first, under a key of this run, and
 * they are its records. */
#include <errno.h>
#include <sys/socket.h>

#include "comm/net_priv.h"
#include "comm/net_tcp.h"

static weft_comm_claim claim_of(const net_end *e, int from, int to)
{
    return (weft_comm_claim){
        .purpose = WEFT_COMM_FOR_LINK, .from = from, .to = to, .epoch = e->over_epoch};
}

weft_status weft_comm__tcp_hello_start(const net_end *e, int to, tcp_hello *h)
{
    weft_comm_claim claim = claim_of(e, e->c.rank, to);
    *h                    = (tcp_hello){.e = e};
    return weft_comm_auth_start(&h->auth, WEFT_COMM_INITIATOR, &e->link_key, false,
                                &claim);
}

weft_status weft_comm__tcp_hello_await(const net_end *e, tcp_hello *h)
{
    weft_comm_claim claim = claim_of(e, -1, e->c.rank);
    *h                    = (tcp_hello){.e = e};
    return weft_comm_auth_start(&h->auth, WEFT_COMM_RESPONDER, &e->link_key, false,
                                &claim);
}

void weft_comm__tcp_hello_fini(tcp_hello *h, int fd)
{
    weft_comm__tcp_secure_close(h->secure, fd);
    h->secure = NULL;
    weft_comm_auth_fini(&h->auth);
}

tcp_secure *weft_comm__tcp_hello_take(tcp_hello *h)
{
    tcp_secure *secure = h->secure;
    h->secure          = NULL;
    return secure;
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

/* The same for the challenge alone. */
static int drive_auth(int fd, weft_comm_auth *a)
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

bool weft_comm__tcp_hello_wants_out(const tcp_hello *h)
{
    size_t left;
    weft_comm_auth_output(&h->auth, &left);
    return left || (h->secure && weft_comm__tcp_secure_wants_out(h->secure));
}

int weft_comm__tcp_hello_drive(int fd, tcp_hello *h)
{
    int rc = h->secure ? 1 : drive_auth(fd, &h->auth);
    if (rc <= 0 || !h->e->tls) return rc;
    if (!h->secure)
        h->secure = weft_comm__tcp_secure_open(h->e, h->auth.role == WEFT_COMM_RESPONDER);
    return h->secure ? weft_comm__tcp_secure_drive(h->secure, fd) : -1;
}
