/* The states of one step that are in the memory of an agent: of all slots, also of ranks that are
 * gone or have another number of peers now.  What a move to another plan is made from.
 *
 *     weft_kept_states from;
 *     WEFT_TRY(weft_kept_states_open(comm, device, step, &from));
 *     if (from.holders) ..                                NULL: nobody has anything of that step
 *     weft_kept_states_close(&from);
 *
 * All ranks read the same, as long as none of them changes what its slot holds in between. */
#ifndef WEFT_SESSION_KEPT_STATE_H
#define WEFT_SESSION_KEPT_STATE_H

#include "comm/comm.h"
#include "state/holders.h"

typedef struct weft_kept_states {
    int           n; /* holders: of each slot its state, then what it has besides */
    weft_state  **state;
    weft_holders *holders;
} weft_kept_states;

weft_status weft_kept_states_open(weft_comm *comm, weft_device *device, int64_t step,
                                  weft_kept_states *out);
void        weft_kept_states_close(weft_kept_states *k); /* a zeroed one is fine */

#endif
