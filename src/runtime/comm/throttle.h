/* A slow network in front of a fast transport: a tool for tests and experiments.
 *
 *     weft_comm_throttle(inner, 1e8, 50e-6, &slow);     100 MB/s and 50 us a message, out of each
 *     rank
 *
 * Everything goes to the inner end, and an operation ends no earlier than its bytes could have
 * left this rank
 * through a link of that rate: one link, first come first served.  The wait is a sleep. */
#ifndef WEFT_COMM_THROTTLE_H
#define WEFT_COMM_THROTTLE_H

#include "comm/comm.h"

/* Borrows inner, which must outlive *out. */
weft_status weft_comm_throttle(weft_comm *inner, double bytes_per_s, double latency_s,
                               weft_comm **out);

/* The bytes that one of n ranks sends in a collective of count elements (as weft_comm_collective
 * counts). */
int64_t weft_comm_wire_bytes(weft_collective kind, weft_dtype t, int n, int64_t count);

#endif
