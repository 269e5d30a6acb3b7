/* The states of one step that are in the memory of agents: of all slots, also of ranks that are
 * gone or have another number of peers now.  What a move to another plan is made from.
 *
 *     weft_kept_states from;
 *     WEFT_TRY(weft_kept_states_open(comm, device, step, &from));
 *     if (from.holders) ..                                NULL: nobody has anything of that step
 *     weft_kept_states_close(&from);
 *
 * All ranks of a host read the same, as long as none of them changes what its slot holds in
 * between.  On several hosts each rank serves some slots of its own host, its own first. */
#ifndef WEFT_SESSION_KEPT_STATE_H
#define WEFT_SESSION_KEPT_STATE_H

#include "comm/comm.h"
#include "state/holders.h"

typedef struct weft_kept_states {
    int n_slot; /* of this host */
    /* holders: of each slot its state, then what it has besides; slots in the order of the ranks
     * that have them, those that none has last */
    int           n, n_state; /* of these its state */
    weft_state  **state;
    weft_holders *holders;
    /* Of each of the first n_state, what says which tensors are there (state/table.h). */
    struct weft_kept_table {
        void   *at;
        int64_t bytes;
    } * table;
    /* Once exchanged between hosts: holder h is served by rank h % world; source[h]: its state,
     * where it is on this host; host[h]: the host of its rank. */
    weft_state **source;
    int32_t     *host;
} weft_kept_states;

weft_status weft_kept_states_open(weft_comm *comm, weft_device *device, int64_t step,
                                  weft_kept_states *out);
/* On several hosts, by all ranks: holders becomes that of all hosts.  like: tensors in the order in
 * which states have them. */
weft_status weft_kept_states_exchange(weft_kept_states *k, const weft_state *like,
                                      weft_comm *comm, weft_comm_group *group);
/* When all ranks have these tensors in their new states: in slots that this rank serves they are no
 * longer there, then their pages are given back.  to: this rank's new state, which stays;
 * tensor[i]: is it one of them? */
void weft_kept_states_give_back(weft_kept_states *k, weft_comm *comm,
                                const weft_state *to, const bool *tensor);
void weft_kept_states_close(weft_kept_states *k); /* a zeroed one is fine */

#endif
