/* The state that a program works on: every parameter and state of its graph, held where the program
 * has them, in a block as large as its state slab.
 *
 *     weft_state *s;
 *     WEFT_TRY(weft_program_state_create(&made, comm, device, &s));
 *     ... runners over it come and go ...
 *     weft_state_destroy(s);                                while comm is there */
#ifndef WEFT_SESSION_PROGRAM_STATE_H
#define WEFT_SESSION_PROGRAM_STATE_H

#include "comm/comm.h"
#include "comm/shm.h"
#include "compile/compile.h"
#include "state/state.h"

/* The number of the slab with the state, and of the one that is in host memory; -1: the program
 * has none. */
int weft_program_state_slab(const weft_program *p);
int weft_program_host_state_slab(const weft_program *p);

/* Memory that the ranks of a host share for a slab of p, where collectives work in it, with what is
 * there; elsewhere none: an address of NULL. */
weft_status weft_program_slab_share(const weft_program *p, int slab, weft_comm *comm,
                                    weft_device *device, weft_memory *out);
/* The same, as an earlier generation has left it there; and where it is, -1: in no such memory. */
weft_status weft_program_slab_adopt(const weft_program *p, int slab, weft_comm *comm,
                                    weft_device *device, int64_t at, weft_memory *out);
int64_t     weft_program_slab_find(weft_comm *comm, const weft_memory *m);
/* Of weft_program_slab_share() or the device. */
void weft_program_slab_free(weft_comm *comm, weft_memory *m);

/* In zeroed memory.  Borrows comm, which may be NULL, and the device for the state's life. */
weft_status weft_program_state_create(const weft_compiled *made, weft_comm *comm,
                                      weft_device *device, weft_state **out);
/* Is it, as it is, what weft_program_state_create() would make: every tensor and part at the same
 * place, in memory of the same kind? */
weft_status weft_program_state_fits(const weft_compiled *made, weft_comm *comm,
                                    const weft_state *s, bool *fits);
/* In the memory of another program's state where everything is at the same place in it, which must
 * outlive it; else as above, on the same device. */
weft_status weft_program_state_share(const weft_compiled *made, const weft_state *first,
                                     weft_comm *comm, weft_state **out);
bool        weft_program_state_is_shared(const weft_state *s, const weft_state *first);

/* A hash of names, types, parts and offsets: states with the same one are laid out alike. */
uint64_t weft_program_state_layout(const weft_state *s);

/* Where slabs outlive ranks (comm/shm.h): this rank's record of its state; NULL: they do not. */
weft_comm_shm_slot *weft_program_state_slot(weft_comm *comm);
/* First of all: what the slot has of this step stays where it is (-1: nothing does), and its newest
 * state also where it is in the middle of a step (unfinished); the rest of the slab is free. */
void weft_program_state_reserve(weft_comm *comm, int64_t step, bool unfinished);
/* Bytes of pages that have to be made for the program's state, beside those that the slot has: in
 * the state that is laid out for it, or else in what is free of the slab. */
weft_status weft_program_state_count_missing(const weft_compiled *made, weft_comm *comm,
                                             weft_device *device, bool unfinished,
                                             int64_t *bytes);
/* Is the slot's state, of any step, laid out for the program? */
weft_status weft_program_state_is_laid_out(const weft_compiled *made, weft_comm *comm,
                                           weft_device *device, bool *same);
/* A state that the slot has, if one is laid out for the program (its step is then at least 0 where
 * all of it is there); else a new one, which the slot records.  What the slot had stays until
 * settle: all ranks have theirs.
 * bare: pages of a new one are made by who moves something into it, and what is free in the slab
 * gives its pages back first.
 * used: a new one need not be zero, as all of it is going to be written. */
weft_status weft_program_state_open_kept(const weft_compiled *made, weft_comm *comm,
                                         weft_device *device, bool unfinished, bool bare,
                                         bool used, weft_state **out);
/* The state that open_kept gave is that of a step from now on, with the tensors that are marked as
 * there: none, where it was of no step. */
void weft_program_state_begin_move(weft_comm *comm, int64_t step);
/* A tensor is there; -1: all are. */
void weft_program_state_mark(weft_comm *comm, int tensor);
bool weft_program_state_is_whole(weft_comm *comm); /* all are */
/* give_back: with the pages. */
void weft_program_state_settle(weft_comm *comm, bool give_back);

/* Has a slot anything of that step? */
bool weft_program_state_holds(weft_comm_shm_slot *slot, int64_t step);
/* The updates of that step are made in the slot's state; what ranks gather after them is not. */
void weft_program_state_mark_computed(weft_comm_shm_slot *slot, int64_t step);
/* The memory of the state of any slot of the host, which an earlier program has left in the middle
 * of a step.  WEFT_ERR_ARG: it is not laid out for that program. */
weft_status weft_program_state_find_left(const weft_compiled *made, weft_comm *comm,
                                         weft_device *device, int slot, weft_memory *out);

#endif
