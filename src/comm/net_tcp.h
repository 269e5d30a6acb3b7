/* Sockets: addresses, connecting, accepting. */
#ifndef WEFT_COMM_NET_TCP_H
#define WEFT_COMM_NET_TCP_H

#include <stdbool.h>

#include "base/status.h"

/* Listens at an address of the device; *address, to be freed, is what others connect to. */
weft_status weft_comm__tcp_listen(const char *device, int *fd, void **address,
                                  int64_t *bytes);
/* A socket that is connecting, or -1 and why.  Here, on this machine, no cable is shared with others: packets go as fast
 * as they are taken.  A control that paces them (bbr) waits for timers: 1.4 times as long from 16 MB on. */
int weft_comm__tcp_connect(const void *address, int64_t bytes, bool here, int *why);
/* -1: nobody is waiting */
int weft_comm__tcp_accept(int fd);
/* One that was accepted comes from another machine: the system's own control. */
void weft_comm__tcp_far(int fd);

#endif
