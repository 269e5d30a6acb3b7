/* Schedules: in which order each rank of a pipeline does its pieces of work.  A generator turns
 * (ranks, chunks, micro-batches) into one list a rank; partition turns the lists into firings.  A
 * new schedule is one file and one row of the table in schedule.c.
 *
 *     weft_schedule *s;
 *     WEFT_TRY(weft_schedule_make("1f1b", &(weft_schedule_shape){4, 1, 8}, &s));
 *     s->work[0][3]                              rank 0's fourth piece of work
 *     weft_schedule_destroy(s);
 *
 * Stages are numbered along the model; rank r has stages r, r + n_rank, r + 2 n_rank, ...: its
 * chunks.
 *
 * Always true (weft_schedule_verify):
 * (1) every chunk has its forward and its backward, whole or as two parts, once for each
 *     micro-batch
 * (2) one kind of work of one chunk goes through the micro-batches from left to right: sums have
 *     one order
 * (3) a micro-batch goes forward, then backward, its weights' part last; through the stages in
 *     order
 * (4) the lists of all ranks together come to an end: no piece waits for one that waits for it */
#ifndef WEFT_PROGRAM_SCHEDULE_H
#define WEFT_PROGRAM_SCHEDULE_H

#include "base/arena.h"
#include "base/text.h"

typedef enum weft_work_kind {
    WEFT_WORK_FORWARD,
    WEFT_WORK_BACKWARD,        /* whole */
    WEFT_WORK_BACKWARD_INPUT,  /* the part that the stage before waits for */
    WEFT_WORK_BACKWARD_WEIGHT, /* the rest */
    WEFT_N_WORK
} weft_work_kind;

typedef struct weft_work {
    weft_work_kind kind;
    int32_t        chunk, micro;
} weft_work;

typedef struct weft_schedule_shape {
    int n_rank;  /* of one pipeline */
    int n_chunk; /* a rank */
    int n_micro;
} weft_schedule_shape;

typedef struct weft_schedule {
    weft_arena         *arena;
    const char         *name;
    weft_schedule_shape of;
    int                *n_work; /* of each rank */
    weft_work         **work;
} weft_schedule;

/* WEFT_ERR_ARG: no such schedule, or one that does not take this shape. */
weft_status weft_schedule_make(const char *name, const weft_schedule_shape *of,
                               weft_schedule **out);
void        weft_schedule_destroy(weft_schedule *s);
weft_status weft_schedule_verify(const weft_schedule *s);
weft_status weft_schedule_print(const weft_schedule *s, weft_text *t);

/* Names in the order of the table; NULL behind the last. */
const char *weft_schedule_name(int i);
/* Does a rank split its backward in two? */
bool weft_schedule_splits(const weft_schedule *s);

/* How many slots, micro-batch modulo slots, keep what `from` makes until `to` is over. */
int weft_schedule_slots(const weft_schedule *s, int rank, weft_work from, weft_work to);

const char *weft_work_kind_name(weft_work_kind k);

#endif
