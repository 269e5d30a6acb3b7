/* The ranks of a job by a few programs: many differ only in whom they talk to.
 *
 * Rank r does what like[r] does, with other(user, r, x) in the place of every rank x there;
 * other(user, r, like[r]->rank) is r.  A job whose programs are all there is one too: other NULL
 * leaves ranks as they are. */
#ifndef WEFT_PROGRAM_WORLD_H
#define WEFT_PROGRAM_WORLD_H

#include "program/program.h"

typedef struct weft_world {
    int                        n;
    const weft_program *const *like;
    int32_t (*other)(const void *user, int rank, int32_t x);
    const void *user;
} weft_world;

static inline int32_t weft_world_other(const weft_world *w, int rank, int32_t x)
{
    return w->other ? w->other(w->user, rank, x) : x;
}

/* Equal for programs that do the same up to whom they talk to: instructions by kind, types and
 * stated seconds, tags, edges, firings by micro-batches counted from the rank's first, memory. */
uint64_t weft_program_likeness(const weft_program *p);

/* Whom p sends to or receives from, each once, by first use; in a. */
weft_status weft_program_peers(const weft_program *p, weft_arena *a, int32_t **peer,
                               int *n);

/* Rank r's program in a: arrays that name ranks are its own, the rest is like[r]'s. */
weft_status weft_world_program(const weft_world *w, int r, weft_arena *a,
                               weft_program **out);

#endif
