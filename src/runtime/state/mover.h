/* Moves between the states of ranks: every rank sends what others shall have and receives what it
 * shall have itself, in chunks.
 *
 *     weft_mover *t;
 *     WEFT_TRY(weft_mover_open(&from, &to, comm, tag, &t));      collective
 *     WEFT_TRY(weft_mover_run(t));                               as often as wanted
 *     weft_mover_close(t);
 *
 * (1) No circle of ranks waits for each other: chunk i of those that go from rank r to rank r + k
 *     (modulo the ranks) is sent before it is received, chunks go by k, then by i, at every rank,
 *     and each send or receive waits only for one that comes before it in this order.
 * (2) Memory is bounded: one chunk here, and the channels' for each rank that sends to this one.
 * (3) A rank that dies or does not come ends the call in WEFT_ERR_PEER, as every call of comm does;
 *     the target then holds some chunks and not others.  After any other error the caller aborts
 *     the communicator.
 * (4) The bytes of a tensor are moved as they are, whatever their type. */
#ifndef WEFT_STATE_MOVER_H
#define WEFT_STATE_MOVER_H

#include "state/move.h"

typedef struct weft_mover weft_mover;

enum {
    WEFT_MOVE_CHUNK   = 1 << 17, /* bytes of a message at most */
    WEFT_MOVE_CREDITS = 2        /* messages of a pair of ranks under way */
};

/* One side of a move: this rank's state, and who holds what of it.  Ranks are numbered as in
 * comm; a rank may hold nothing. */
typedef struct weft_mover_side {
    weft_state         *state;
    const weft_holders *holders; /* only for the call */
} weft_mover_side;

/* comm NULL: one rank.  Messages have the tag.  Borrows comm and the states.  What is in the same
 * memory on both sides is not moved. */
weft_status weft_mover_open(const weft_mover_side *from, const weft_mover_side *to,
                            weft_comm *comm, int tag, weft_mover **out);
/* The same out of memory that this process reaches (a host's ranks share it): every rank copies
 * what it shall have, nothing is sent, and no rank waits for another.
 * source[k]: the state that holder k of `from` has, NULL where it has none; they may be of
 * processes that are gone.  Borrows source and the states; rank: of `to`. */
weft_status weft_mover_open_near(weft_state *const *source, const weft_holders *from,
                                 const weft_mover_side *to, int rank, weft_mover **out);
/* Both, over several hosts whose memory outlives ranks: holder h of `from` is served by rank
 * h % world of comm, so that one rank may serve several states.  source[h]: its state, where this
 * process reaches it; host[r]: of each rank, source is there for all of its own.  What a rank needs
 * of its own host it copies, the rest is sent.  Collective; borrows source, host and the states. */
weft_status weft_mover_open_hosts(weft_state *const *source, const weft_holders *from,
                                  const weft_mover_side *to, const int32_t *host,
                                  weft_comm *comm, int tag, weft_mover **out);
weft_status weft_mover_run(weft_mover *t);
/* The same of some tensors alone, the same ones at all ranks: wanted[i]: tensor i of the target. */
weft_status weft_mover_run_tensors(weft_mover *t, const bool *wanted);
void        weft_mover_close(weft_mover *t);       /* accepts NULL */
int64_t     weft_mover_bytes(const weft_mover *t); /* its own memory; NULL is 0 */
/* Bytes that this rank sends to others and receives from others in one run. */
int64_t weft_mover_sent(const weft_mover *t);
int64_t weft_mover_received(const weft_mover *t);
/* Bytes that one run copies inside this process. */
int64_t weft_mover_copied(const weft_mover *t);

#endif
