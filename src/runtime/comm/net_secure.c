/* TLS on connections between ranks (--encrypt): what net_tcp.c sends and receives by the system's
 * calls otherwise, with their meaning.
 *
 * A record is made of a copy: what was taken counts as sent, and goes before anything else.  One
 * connection may carry both directions, with a descriptor for each, so the descriptor is the
 * caller's each time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "comm/net_priv.h"
#include "comm/net_tcp.h"
#include "comm/tls.h"

struct tcp_secure {
    weft_comm_tls_end end;
    int               n_user;
    size_t            at, n; /* of out: what is to be written */
    char              out[WEFT_COMM_TLS_RECORD];
};

weft_status weft_comm__tcp_secure_keys(net_end *e, const weft_comm_key *membership)
{
    weft_comm_tls_options o = {.n_psk = 1, .psk = {{.id = "weft link"}}};
    weft_status           st =
        weft_comm_key_derive(membership, "weft link tls", NULL, 0, &o.psk[0].key);
    if (st == WEFT_OK) st = weft_comm_tls_open(&o, &e->tls);
    weft_comm_key_wipe(&o.psk[0].key);
    return st;
}

tcp_secure *weft_comm__tcp_secure_open(const net_end *e, bool server)
{
    tcp_secure *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->end    = (weft_comm_tls_end){.tls = e->tls, .fd = -1, .server = server};
    s->n_user = 1;
    return s;
}

tcp_secure *weft_comm__tcp_secure_share(tcp_secure *s)
{
    if (s) s->n_user++;
    return s;
}

void weft_comm__tcp_secure_close(tcp_secure *s, int fd)
{
    if (!s || --s->n_user) return;
    s->end.fd = fd;
    weft_comm_tls_end_fini(&s->end);
    free(s);
}

int weft_comm__tcp_secure_drive(tcp_secure *s, int fd)
{
    s->end.fd = fd;
    switch (weft_comm_tls_handshake(&s->end)) {
    case WEFT_COMM_TLS_DONE: return 1;
    case WEFT_COMM_TLS_AGAIN: return 0;
    case WEFT_COMM_TLS_GONE: break;
    }
    return -1;
}

bool weft_comm__tcp_secure_wants_out(const tcp_secure *s)
{
    return s->end.wants_out;
}

/* The errno of a call that did not do what it should. */
static ssize_t fail_call(const tcp_secure *s, weft_comm_tls_io io)
{
    errno = io == WEFT_COMM_TLS_AGAIN ? EAGAIN
            : s->end.error            ? s->end.error
            : s->end.ended            ? ECONNRESET
                                      : EBADMSG;
    return -1;
}

bool weft_comm__tcp_secure_has_output(const tcp_secure *s)
{
    return s->n > 0;
}

/* false: errno. */
static bool write_out(tcp_secure *s)
{
    while (s->n) {
        size_t           sent = 0;
        weft_comm_tls_io io   = weft_comm_tls_write(&s->end, s->out + s->at, s->n, &sent);
        if (io != WEFT_COMM_TLS_DONE) {
            (void)fail_call(s, io);
            return false;
        }
        s->at += sent;
        s->n -= sent;
    }
    s->at = 0;
    return true;
}

ssize_t weft_comm__tcp_secure_send(tcp_secure *s, int fd, const struct iovec *v, int n)
{
    s->end.fd = fd;
    if (!write_out(s)) return -1;
    for (int i = 0; i < n && s->n < sizeof s->out; i++) {
        size_t space = sizeof s->out - s->n;
        size_t most  = v[i].iov_len < space ? v[i].iov_len : space;
        memcpy(s->out + s->n, v[i].iov_base, most);
        s->n += most;
    }
    ssize_t took = (ssize_t)s->n;
    (void)write_out(s); /* an error comes back with the next call */
    return took;
}

ssize_t weft_comm__tcp_secure_recv(tcp_secure *s, int fd, const struct iovec *v, int n)
{
    ssize_t          sum = 0;
    weft_comm_tls_io io  = WEFT_COMM_TLS_DONE;
    s->end.fd            = fd;
    for (int i = 0; i < n; i++)
        for (size_t at = 0; at < v[i].iov_len;) {
            size_t got = 0;
            io         = weft_comm_tls_read(&s->end, (char *)v[i].iov_base + at,
                                            v[i].iov_len - at, &got);
            if (io != WEFT_COMM_TLS_DONE) goto out;
            at += got;
            sum += (ssize_t)got;
        }
out:
    if (sum || io == WEFT_COMM_TLS_DONE) return sum;
    if (io == WEFT_COMM_TLS_GONE && !s->end.error && s->end.ended) return 0;
    return fail_call(s, io);
}

bool weft_comm__tcp_secure_has_input(const tcp_secure *s)
{
    return weft_comm_tls_pending(&s->end) > 0;
}
