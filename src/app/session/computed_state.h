/* Of a program's state, what its rank computes after the commit point itself: without what ranks
 * gather from each other then (ZeRO 1 and 2, tied weights of a pipeline).  A rank that has made its
 * updates alone holds that part of the step. */
#ifndef WEFT_SESSION_COMPUTED_STATE_H
#define WEFT_SESSION_COMPUTED_STATE_H

#include "compile/compile.h"
#include "state/state.h"

/* Over the memory of s, which is borrowed and laid out for the program.  *out is NULL where the
 * rank computes all of it. */
weft_status weft_computed_state_make(const weft_compiled *made, const weft_state *s,
                                     weft_state **out);

#endif
