/* The register that a majority of the last view's agents keep in their memory: single-decree Paxos
 * for each epoch.  Pure: messages in, messages out; no clock, no socket.
 *
 *     weft_register_open_majority(self, &r);
 *     weft_majority_advance(r, 6, view, n, 3, ids);      these three decide epoch 7
 *     weft_register_propose(r, 7, ..);
 *     weft_majority_receive(r, from, bytes, n);          of another host's send
 *     while (weft_majority_send(r, &m)) ..               to m.to
 *     weft_majority_tick(r, now_s);                      repeats what may be lost
 *
 * (1) Voters of epoch e + 1 are the agents of view e, in its order.  A quorum is more than half of
 *     them, or half of them with the first: any two quorums share an agent.
 * (2) Crash-stop: an agent that comes back has another number and no vote, so nothing is kept on
 *     disk.
 * (3) A register's newest value is what it knows: read gives EMPTY where others may know more. */
#ifndef WEFT_REGISTER_MAJORITY_H
#define WEFT_REGISTER_MAJORITY_H

#include "register/register.h"

enum {
    WEFT_MAJORITY_MAX_VOTER = 256,
    WEFT_MAJORITY_HEAD      = 48 /* bytes of a message beside the value, at most */
};

typedef struct weft_majority_message {
    uint64_t       to;
    const uint8_t *bytes; /* until the next call */
    size_t         n;
} weft_majority_message;

/* self: the number of this agent, not 0. */
weft_status weft_register_open_majority(uint64_t self, weft_register **out);
/* bytes: what stands for the epoch, learned from this register or from another agent.  Older ones
 * than the newest are ignored. */
weft_status weft_majority_advance(weft_register *r, uint32_t epoch, const void *bytes,
                                  size_t n, int n_voter, const uint64_t *voter);
void        weft_majority_tick(weft_register *r, double now_s);
/* Any bytes; what is no message, or from no voter, is ignored. */
void weft_majority_receive(weft_register *r, uint64_t from, const void *bytes, size_t n);
/* false: nothing to send. */
bool weft_majority_send(weft_register *r, weft_majority_message *out);

/* Are these a quorum of n voters?  has[k]: voter k is among them. */
bool weft_majority_is_quorum(int n_voter, const bool *has);

#endif
