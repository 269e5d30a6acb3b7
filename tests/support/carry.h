/* How communication instructions last on emulated devices (weft_exec_carry_fn): no data moves, what
 * moves are times.
 *
 * Without wires: a message carries when its send ended, a message back when its credit returned,
 * and members of a collective tell each other when they were ready; each end then lasts until the
 * time that the rules of program/walk.h give.  Over wires (support/wires.h) the links say. */
#ifndef TEST_SUPPORT_CARRY_H
#define TEST_SUPPORT_CARRY_H

#include "comm/comm.h"
#include "program/program.h"

typedef struct test_carrier test_carrier;

/* Opens what p's instructions need.  Borrows p and comm, which is an end of wires where wires. */
weft_status test_carrier_create(const weft_program *p, weft_comm *comm, bool wires,
                                test_carrier **out);
void        test_carrier_destroy(test_carrier *c); /* before its comm; accepts NULL */
/* carry of weft_exec_options, whose carry_arg is the carrier. */
weft_status test_carry(void *carrier, const weft_instr *i, double seconds,
                       double *start_s, double *end_s);

#endif
