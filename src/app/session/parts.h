/* Who has which part of every parameter and state, and rank 0's way to what others have.
 *
 * Files hold whole tensors, whatever the plan: rank 0 writes them and asks the others for their
 * parts while it does (pull), piece by piece; the others answer (serve) until it has finished
 * (release).  Reading needs no
 * messages: every rank takes its own parts out of the file.
 *
 * Always true: the different parts of a value tile it; the lowest rank that has a part is the one
 * asked. */
#ifndef WEFT_SESSION_PARTS_H
#define WEFT_SESSION_PARTS_H

#include "session/runner.h"

typedef struct weft_parts weft_parts;

enum {
    WEFT_PARTS_CHUNK = 1 << 15 /* elements in a message */
};

/* Collective.  all: the group of all ranks; tag and tag + 1 are its channels'; tag 0: nobody will
 * pull.  Borrows all it is given. */
weft_status weft_parts_create(const weft_compiled *made, const weft_runner *r,
                              weft_comm *comm, weft_comm_group *all, int tag,
                              weft_parts **out);
void        weft_parts_destroy(weft_parts *p);     /* accepts NULL */
int64_t     weft_parts_bytes(const weft_parts *p); /* what it holds; NULL is 0 */

/* The number of a parameter or state; -1: the graph has no such. */
int weft_parts_find(const weft_parts *p, const char *name);
/* Of a parameter: the state that holds it in another type; -1: none. */
int   weft_parts_copy(const weft_parts *p, int value);
void *weft_parts_memory(const weft_parts *p,
                        int               value); /* of this rank's part, or NULL */
/* This rank's part, or NULL where it has none. */
const weft_compiled_part *weft_parts_own(const weft_parts *p, int value);

/* On rank 0, between others' serve and its own release: elements [first, first + n) of a region
 * of a value, row by row, n at most WEFT_PARTS_CHUNK. */
weft_status weft_parts_pull(weft_parts *p, int value, const weft_region *r, int64_t first,
                            int64_t n, void *out);
weft_status weft_parts_serve(weft_parts *p);
/* From another thread of rank 0, meanwhile: those who have heard nothing for interval_s hear that
 * rank 0 is at work.
 * WEFT_ERR_PEER: one has taken no message for the timeout. */
weft_status weft_parts_keep_alive(weft_parts *p, double interval_s);
weft_status weft_parts_release(weft_parts *p);

/* ---- between two programs ---- */

/* Parts that a rank's second program has and its first has not: another rank, which has them in
 * the first one, sends them.  Collective; tag is its channels'. */
typedef struct weft_loans weft_loans;

weft_status weft_loans_create(weft_parts *first, weft_parts *second, int tag,
                              weft_loans **out);
weft_status weft_loans_renew(weft_loans *l);
void        weft_loans_destroy(weft_loans *l);     /* accepts NULL */
int64_t     weft_loans_bytes(const weft_loans *l); /* NULL is 0 */

/* ---- one part ---- */

/* A run of elements: [at, at + n) of the part's memory, [index, index + n) of the region's order.
 */
typedef weft_status (*weft_part_fn)(void *arg, int64_t at, int64_t index, int64_t n);

/* Calls fn for the runs of [first, first + n) that the part has, in order. */
weft_status weft_part_walk(const weft_compiled_part *p, const weft_region *r,
                           int64_t first, int64_t n, weft_part_fn fn, void *arg);
int64_t     weft_part_count(const weft_compiled_part *p);

#endif
