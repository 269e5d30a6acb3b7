/* From what slots of agents hold to the states that ranks shall have, in memory that outlives them.
 *
 *     weft_kept_move m = {.comm = comm, .group = group, .step = step, .from = &states, ...};
 *     WEFT_TRY(weft_kept_move_run(&m));                    all ranks
 *
 * Each batch of tensors (state/move_batches.h): a rank makes the pages of its own, copies them,
 * marks them as there (state/table.h); all ranks meet; each marks them as gone in the states that
 * it moved from, and gives their pages back.
 * (1) A tensor is marked as gone only after all ranks have marked it as there, and its pages are
 *     given back after that.  So whenever ranks are killed, one by one or all of them, the marked
 *     tensors of all states together are what was held, and the next move begins with those.
 * (2) Without in_batches there is one batch; nothing is given back, and settling is the caller's
 *     (weft_program_state_settle): pages of the old states are used again then.
 * (3) With it the pages of all states of a host are at most those before or after the move,
 *     whichever is more, and for each rank those of the largest tensor; of several hosts, whose
 *     order is one for all, nearly always (state/move_batches.h says how near). */
#ifndef WEFT_SESSION_KEPT_MOVE_H
#define WEFT_SESSION_KEPT_MOVE_H

#include "session/kept_state.h"
#include "state/mover.h"

typedef struct weft_kept_move {
    weft_comm        *comm;
    weft_comm_group  *group;
    int64_t           step; /* after which the state is */
    weft_kept_states *from;
    weft_mover_side   to; /* this rank's state in its slot, and who shall hold what */
    int               n_standby; /* the same of what ranks hold for each other */
    weft_mover_side  *standby;
    bool              in_batches;
    int               tag, standby_tag; /* and one more for each further of these */
    /* what it took */
    int     n_batch;
    int64_t peak_bytes; /* of pages of all slots of the host */
    int64_t copied, sent, received;
} weft_kept_move;

weft_status weft_kept_move_run(weft_kept_move *m);

/* Before new states are made in batches: pages of slots that have no rank now, and that this rank
 * serves, are given back but for their states of the step and their records. */
void weft_kept_give_back_rest(weft_comm *comm, int64_t step);

#endif
