/* Tensors as a whole at rank 0, for files: rank 0 asks the others for regions, piece by piece, and
 * they answer until it releases them.
 *
 *     rank 0:   weft_gather_read(g, tensor, &region, first, n, out);  ..  weft_gather_release(g);
 *     others:   weft_gather_serve(g);
 *
 * (1) A request names a box of a tensor of at most WEFT_MOVE_CHUNK bytes.  Both sides make the
 *     list of its moves to rank 0 (move.h); who is in it packs its regions into one message.
 * (2) Rank 0 asks for the next boxes before it takes the answers to this one, never for more than a
 *     channel has credits: who answers waits for nobody but rank 0's next request.
 * (3) While rank 0 writes files it tells the others so (weft_gather_keep_alive), so that they need
 *     not take a slow disk for a dead rank. */
#ifndef WEFT_STATE_GATHER_H
#define WEFT_STATE_GATHER_H

#include "state/mover.h"

typedef struct weft_gather weft_gather;

/* Collective.  tag and tag + 1 are its channels'.  Borrows all it is given.  comm NULL: one rank,
 * which holds everything; holders may be NULL then. */
weft_status weft_gather_open(const weft_state *s, const weft_holders *holders,
                             weft_comm *comm, int tag, weft_gather **out);
void        weft_gather_close(weft_gather *g);       /* accepts NULL */
int64_t     weft_gather_bytes(const weft_gather *g); /* its own memory; NULL is 0 */

const weft_state *weft_gather_state(const weft_gather *g);

/* On rank 0: elements [first, first + n) of a region of a tensor, in its row-major order and the
 * tensor's type.  Fast where reads follow each other. */
weft_status weft_gather_read(weft_gather *g, int tensor, const weft_region *r,
                             int64_t first, int64_t n, void *out);
/* On the other ranks: returns when rank 0 releases them. */
weft_status weft_gather_serve(weft_gather *g);
weft_status weft_gather_release(weft_gather *g);
/* From another thread of rank 0, meanwhile: those who have heard nothing for interval_s hear that
 * rank 0 is at work.  WEFT_ERR_PEER: one has taken no message for the timeout. */
weft_status weft_gather_keep_alive(weft_gather *g, double interval_s);

#endif
