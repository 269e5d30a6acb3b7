/* Sockets: addresses, connecting, accepting, and the hello with which a connection begins. */
#ifndef WEFT_COMM_NET_TCP_H
#define WEFT_COMM_NET_TCP_H

#include <stdbool.h>

#include "base/status.h"
#include "comm/auth.h"

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

struct net_end;
void weft_comm__tcp_watch(const struct net_end *e, int how, int fd, uint32_t events,
                          void *what); /* epoll_ctl on e->efd */

/* ---- net_hello.c: the mutual challenge with which a connection begins ---- */

/* Of the side that connects to rank `to`, and of the side that was connected to, by a rank of
 * this run. */
weft_status weft_comm__tcp_hello_start(const struct net_end *e, int to,
                                       weft_comm_auth *a);
weft_status weft_comm__tcp_hello_await(const struct net_end *e, weft_comm_auth *a);
/* Sends and receives what the handshake has for now, not one byte more.  1: it is done and all is
 * sent; 0: not yet;
 * -1: it failed, or the connection ended. */
int weft_comm__tcp_hello_drive(int fd, weft_comm_auth *a);

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
    void (*admit)(struct net_end *e, int from, int fd); /* a rank of this run; takes fd */
} tcp_listener;

/* Fills in e->address.  d->fd and d->reserve_fd are -1 before. */
weft_status weft_comm__tcp_listener_open(struct net_end *e, tcp_listener *d,
                                         const char *device,
                                         void (*admit)(struct net_end *e, int from,
                                                       int fd));
void        weft_comm__tcp_listener_close(tcp_listener *d);
/* Before events are looked at: who is late is closed. */
void weft_comm__tcp_listener_turn(struct net_end *e, tcp_listener *d);
/* An event of epoll's with p; the number of things done, 0 where p is not the listener's. */
unsigned weft_comm__tcp_listener_event(struct net_end *e, tcp_listener *d, const void *p);
/* Gives up a descriptor: one that a stranger has, or the one in reserve.  False: there is none. */
bool weft_comm__tcp_listener_free(struct net_end *e, tcp_listener *d);

#endif
