/* What ranks bring to the commit point of a step, and what they know after it: one sum over all
 * ranks of a few words.  Integers alone, so that the order of a sum does not matter.
 *
 *     weft_vote_pack(&mine, world, word);
 *     weft_comm_collective(.., WEFT_ALL_REDUCE, WEFT_DTYPE_U64, word, word, WEFT_VOTE_WORDS);
 *     weft_vote_unpack(word, world, step, &all);
 *
 * (1) All ranks unpack the same.
 * (2) A bit of the norm is set on none or on all ranks if and only if they have the same norm.
 * (3) Each sample of the step was read equally often, and no other, if the sums of their hashes are
 *     a multiple of those that data order gives (but for a chance of 2^-64). */
#ifndef WEFT_SESSION_VOTE_H
#define WEFT_SESSION_VOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "session/slow_link.h"

enum {
    WEFT_VOTE_MAX_RANK   = 1 << 15, /* counts have 16 bits */
    WEFT_VOTE_BUSY_RANKS = 16,      /* whose busy seconds go with one step */
    WEFT_VOTE_WORDS      = 1 + 8 + 3 + WEFT_VOTE_BUSY_RANKS / 2 + 1
};

/* A rank's. */
typedef struct weft_vote {
    int      rank;
    int64_t  step;
    bool     stop, interrupt; /* it got a signal; SIGINT */
    bool     newer;           /* it knows of another membership */
    bool     finite;          /* its loss and norm are */
    float    norm;
    uint64_t n_read, read; /* samples that it has read, and the sum of their hashes */
    uint64_t due;    /* its part of the sum over the samples that data order gives */
    double   busy_s; /* in which it computed since the vote before */
    /* A slow link of its own; its rates are 0: none.  Sent where the rank has its turn. */
    weft_slow_link link;
} weft_vote;

/* Whose turn is it to name a slow link? */
static inline int weft_vote_link_turn(int64_t step, int world)
{
    return (int)(step % world);
}

/* Of all ranks. */
typedef struct weft_vote_sum {
    int      n_stop, n_interrupt, n_newer, n_not_finite;
    bool     same_norm;
    uint64_t n_read, read, due;
    /* Busy seconds of the ranks first_busy .. first_busy + n_busy - 1: all ranks in turn. */
    int   first_busy, n_busy;
    float busy_s[WEFT_VOTE_BUSY_RANKS];
    /* Of the rank whose turn it was; rates within 10 KB/s.  link_from: -1: it has none. */
    int            link_from;
    weft_slow_link link;
} weft_vote_sum;

void weft_vote_pack(const weft_vote *v, int world, uint64_t word[WEFT_VOTE_WORDS]);
void weft_vote_unpack(const uint64_t word[WEFT_VOTE_WORDS], int world, int64_t step,
                      weft_vote_sum *out);

/* Of a sample of a step: where data order has it. */
uint64_t weft_vote_hash(int64_t epoch, int64_t index, int64_t step);
/* Were n_sample samples read as data order gives them, each as often as the others?  0 samples: was
 * nothing read? */
bool weft_vote_is_read(const weft_vote_sum *v, uint64_t n_sample);

#endif
