/* Links that take their time, between threads of one process: every message holds a token bucket,
 * the sender's own link or a port of its node, for bytes / Bps, and is there alpha later.
 * Collectives are the messages of src/ir/exchange, one by one, so how long they last comes out of
 * what the links carry; no price is asked for. Messages carry when they arrive (there is no data
 * on devices that do not compute): who waits sleeps until then.
 *
 *     test_wires_create(cluster, n, &w);
 *     test_wires_join(w, local_end, &comm);      for each rank
 *     test_carrier_create(program, comm, true, &carrier);
 */
#ifndef TEST_SUPPORT_WIRES_H
#define TEST_SUPPORT_WIRES_H

#include "cluster/cluster.h"
#include "comm/comm.h"

typedef struct test_wires test_wires;

/* Borrows c. */
weft_status test_wires_create(const weft_cluster *c, int n, test_wires **out);
void        test_wires_destroy(test_wires *w); /* after all its ends */
/* Where the calling thread stands in emulated time, on weft_clock_s()'s clock: set before a call,
 * moved on by it to when it ends. */
void   test_wires_set_moment(double s);
double test_wires_moment(void);
/* Borrows inner, which must outlive *out. */
weft_status test_wires_join(test_wires *w, weft_comm *inner, weft_comm **out);

#endif
