/* All numbers of a state into another one of the same layout, between memory that only a device
 * reaches and memory of the host that is not pinned: by pieces, through two pinned buffers, one of
 * which the device copies while this thread, or a few of a pool towards the device, copy the other.
 *
 *     WEFT_TRY(weft_state_copy_staged(from, to, &stream, NULL));          done on return
 *
 * Of other memory it is weft_state_copy(). */
#ifndef WEFT_STATE_STAGED_COPY_H
#define WEFT_STATE_STAGED_COPY_H

#include <stdatomic.h>

#include "state/state.h"

/* stream NULL: one of its own.  stop, or NULL: true ends it after the piece under way, with
 * WEFT_ERR_PEER.  Only the first block; states with a second one are copied as a whole. */
weft_status weft_state_copy_staged(const weft_state *from, weft_state *to,
                                   weft_stream *stream, const _Atomic bool *stop);

#endif
