/* Sockets: addresses, connecting, accepting, and the hello with which a connection begins. */
#ifndef WEFT_COMM_NET_TCP_H
#define WEFT_COMM_NET_TCP_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"
#include "comm/auth.h"
#include "comm/comm.h"

/* Listens at an address of the device; *address, to be freed, is what others connect to. */
weft_status weft_comm__tcp_listen(const char *device, int *fd, void **address,
                                  int64_t *bytes);
/* What a rank named as its address: of IP, with a port, and of the loopback only if that is fine.
 * WEFT_ERR_ARG: not so. */
weft_status weft_comm__tcp_check(const void *address, int64_t bytes, bool loopback);
/* A socket that is connecting, or -1 and why.  Here, on this machine, no cable is shared with
 * others: packets go as fast as they are taken.  A control that paces them (bbr) waits for
 * timers: 1.4 times as long from 16 MB on. */
int weft_comm__tcp_connect(const void *address, int64_t bytes, bool here, int *why);
/* -1: nobody is waiting */
int weft_comm__tcp_accept(int fd);
/* One that was accepted comes from another machine: the system's own control. */
void weft_comm__tcp_far(int fd);
/* Of out everything but the rank; false: the system does not say. */
bool weft_comm__tcp_account(int fd, weft_comm_link *out);

struct net_end;
void weft_comm__tcp_watch(const struct net_end *e, int how, int fd, uint32_t events,
                          void *what); /* epoll_ctl on e->efd */

/* ---- net_secure.c: TLS of a connection, where --encrypt is given ---- */

typedef struct tcp_secure tcp_secure;
struct iovec;

/* Keys of all connections: e->tls. */
weft_status weft_comm__tcp_secure_keys(struct net_end      *e,
                                       const weft_comm_key *membership);
tcp_secure *weft_comm__tcp_secure_open(const struct net_end *e, bool server);
/* One more user; NULL stays NULL. */
tcp_secure *weft_comm__tcp_secure_share(tcp_secure *s);
/* One less; fd is still open.  Accepts NULL. */
void weft_comm__tcp_secure_close(tcp_secure *s, int fd);
/* The handshake.  1: done; 0: not yet; -1: it failed. */
int  weft_comm__tcp_secure_drive(tcp_secure *s, int fd);
bool weft_comm__tcp_secure_wants_out(const tcp_secure *s);
/* As sendmsg and recvmsg. */
ssize_t weft_comm__tcp_secure_send(tcp_secure *s, int fd, const struct iovec *v, int n);
ssize_t weft_comm__tcp_secure_recv(tcp_secure *s, int fd, const struct iovec *v, int n);
/* Has it bytes that it took and has not sent, or that the socket does not know of any more? */
bool weft_comm__tcp_secure_has_output(const tcp_secure *s);
bool weft_comm__tcp_secure_has_input(const tcp_secure *s);

/* ---- net_hello.c: what a connection begins with ---- */

/* The mutual challenge, then TLS where it is asked for. */
typedef struct tcp_hello {
    weft_comm_auth        auth;
    const struct net_end *e;
    tcp_secure           *secure; /* NULL: not yet, or not asked for */
} tcp_hello;

/* Of the side that connects to rank `to`, and of the side that was connected to, by a rank of
 * this run. */
weft_status weft_comm__tcp_hello_start(const struct net_end *e, int to, tcp_hello *h);
weft_status weft_comm__tcp_hello_await(const struct net_end *e, tcp_hello *h);
/* fd: it is still open; -1: it is not. */
void weft_comm__tcp_hello_fini(tcp_hello *h, int fd);
/* Sends and receives what the handshake has for now, not one byte more.  1: it is done and all is
 * sent; 0: not yet; -1: it failed, or the connection ended. */
int  weft_comm__tcp_hello_drive(int fd, tcp_hello *h);
bool weft_comm__tcp_hello_wants_out(const tcp_hello *h);
/* The connection's TLS, or NULL; the caller's. */
tcp_secure *weft_comm__tcp_hello_take(tcp_hello *h);

/* ---- net_listener.c: the socket that listens, and who came and has not proven yet that it is a
 * rank of this run ---- */

typedef struct tcp_stranger tcp_stranger;

typedef struct tcp_listener {
    int           fd;
    tcp_stranger *stranger; /* the newest first */
    /* closed; an event that is still to be looked at may name them */
    tcp_stranger *spent;
    int           n_stranger, most_stranger;
    /* A descriptor that is given up when no other is left, so that a peer can still come; -1: it
     * is given up. */
    int reserve_fd;
    /* No descriptor is left, and nothing is accepted until then; 0: the socket is watched. */
    double rests_until;
    /* a rank of this run; takes fd and what is over it */
    void (*admit)(struct net_end *e, int from, int fd, tcp_secure *secure);
} tcp_listener;

/* Fills in e->address.  d->fd and d->reserve_fd are -1 before. */
weft_status weft_comm__tcp_listener_open(struct net_end *e, tcp_listener *d,
                                         const char *device,
                                         void (*admit)(struct net_end *e, int from,
                                                       int fd, tcp_secure *secure));
void        weft_comm__tcp_listener_close(tcp_listener *d);
/* Before events are looked at: who is late is closed. */
void weft_comm__tcp_listener_turn(struct net_end *e, tcp_listener *d);
/* An event of epoll's with p; the number of things done, 0 where p is not the listener's. */
unsigned weft_comm__tcp_listener_event(struct net_end *e, tcp_listener *d, const void *p);
/* Gives up a descriptor: one that a stranger has, or the one in reserve.  False: there is none. */
bool weft_comm__tcp_listener_free(struct net_end *e, tcp_listener *d);

#endif
