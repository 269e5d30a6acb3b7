/* Whom a rank talks to in a step, and in which order: what ranks compare before they run their
 * programs.
 *
 *     WEFT_TRY(weft_talk_make(p, arena, &t));
 *     sum += weft_talk_balance(&t);          over all ranks 0: every call meets its like
 *
 * A line is what meets: collectives of (ranks, tag), or messages of (from, to, tag).  Each side
 * of it lies on one stream (weft_program_verify_all), so that the stream's list of firings is its
 * order. */
#ifndef WEFT_PROGRAM_TALK_H
#define WEFT_PROGRAM_TALK_H

#include "program/program.h"

typedef struct weft_talk_line {
    uint64_t key;    /* of (ranks, tag) or (from, to, tag), the same at all its ranks */
    uint64_t digest; /* of its calls in order; equal where ranks agree */
    int64_t  n_call; /* a step */
    int64_t  first;  /* how many other calls of its stream come before it */
    bool     message;
    int32_t  tag;
    int n_rank, place; /* its ranks (of messages: from, to), and which of them this is */
    const int32_t *rank;
    int32_t        stream;
} weft_talk_line;

typedef struct weft_talk {
    const weft_program *program; /* borrowed, as the arena is */
    int                 n_line;
    weft_talk_line     *line;
    int                *actor_at;   /* [actor]: number of its first instruction */
    int                *instr_line; /* [instruction number]: its line, or -1 */
    uint64_t           *instr_hash; /* ... and what must be equal of it */
} weft_talk;

weft_status weft_talk_make(const weft_program *p, weft_arena *a, weft_talk *out);

/* What a line adds to the balance, and all of them: over all ranks these are 0, modulo 2^64,
 * where ranks agree, and hardly ever elsewhere. */
uint64_t weft_talk_weigh(const weft_talk_line *l);
uint64_t weft_talk_balance(const weft_talk *t);

/* A digest of the first n calls of a line; of fewer, where it has no more. */
uint64_t weft_talk_prefix(const weft_talk *t, int line, int64_t n);
/* Call k in words: "all_reduce of 4096 bytes of fp32 (h.0.mlp.dw)"; "" behind the last. */
void weft_talk_say(const weft_talk *t, int line, int64_t k, char *text, size_t n);

/* A program that has p's calls, firings and edges and nothing else: collectives as barriers,
 * messages without bytes.
 * Whether ranks can deadlock is the same question of it (weft_program_walk), and its text is
 * small.  It borrows from p; made in a. */
weft_status weft_talk_strip(const weft_program *p, weft_arena *a, weft_program *out);

#endif
