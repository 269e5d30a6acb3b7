/* Sockets: addresses, connecting, accepting, and the hello with which a connection begins. */
#ifndef WEFT_COMM_NET_TCP_H
#define WEFT_COMM_NET_TCP_H

#include <stdbool.h>

#include "base/status.h"
#include "comm/auth.h"

/* Listens at an address of the device; *address, to be freed, is what others connect to. */
weft_status weft_comm__tcp_listen(const char *device, int *fd, void **address,
                                  int64_t *bytes);
/* What a rank named as its address: of IP, with a port, and of the loopback only if that is fine.  WEFT_ERR_ARG: not so. */
weft_status weft_comm__tcp_check(const void *address, int64_t bytes, bool loopback);
/* A socket that is connecting, or -1 and why.  Here, on this machine, no cable is shared with others: packets go as fast
 * as they are taken.  A control that paces them (bbr) waits for timers: 1.4 times as long from 16 MB on. */
int weft_comm__tcp_connect(const void *address, int64_t bytes, bool here, int *why);
/* -1: nobody is waiting */
int weft_comm__tcp_accept(int fd);
/* One that was accepted comes from another machine: the system's own control. */
void weft_comm__tcp_far(int fd);

/* ---- net_hello.c ---- */

/* A connection that was accepted and has not proven yet that a rank of this run made it.  It holds nothing but this. */
typedef struct tcp_stranger {
    struct tcp_stranger *next; /* the newest first */
    int                  fd;
    double               until;
    weft_comm_auth       auth;
} tcp_stranger;

struct net_end;
/* The handshake of the side that connects; a rank of this run at the other end is `to`. */
weft_status weft_comm__tcp_hello_start(const struct net_end *e, int to,
                                       weft_comm_auth *a);
/* Sends and receives what the handshake has for now, not one byte more.  1: it is done and all is sent; 0: not yet;
 * -1: it failed, or the connection ended. */
int weft_comm__tcp_hello_drive(int fd, weft_comm_auth *a);

/* Takes fd.  NULL: no memory, and fd is closed. */
tcp_stranger *weft_comm__tcp_stranger_create(const struct net_end *e, int fd);
/* Closes fd too, where it is not -1. */
void weft_comm__tcp_stranger_destroy(tcp_stranger *s); /* accepts NULL */

#endif
