/* A rank that is to join learns the state while the others train: what it and the ranks that teach
 * it say to each other, and the bytes that they mean.
 *
 *     teacher                              learner
 *     HELLO  tail, state              ->
 *                                     <-   PICK   its share
 *     BEGIN  inputs of steps after it ->
 *                                     <-   GO     the latest of these steps
 *     PIECE  of the state after step s     it has made the updates up to s
 *     INPUTS of the update of step s + 1   it makes that update, of all that it has (of steps
 *                                          before the one of GO: it drops them)
 *     WHOLE, after the last piece of its share
 *     END    ranks leave after this step
 *
 * (1) What the tail of a step reads (program/tail.h) is complete at its commit point, and sent only
 *     after that: what is learned is always of a committed step.
 * (2) A piece is read between two updates, and written between the same two: pieces that came
 *     before were updated meanwhile, what has not come yet is overwritten when it comes.  So what
 *     an update computes together is in one piece: elements of a parameter with those of its
 *     moments (blocks of weft_lesson_state).
 * (3) Each teacher sends a share of the bytes of state and inputs, over a channel of its own, in
 *     the order of steps.  The learner makes an update when all shares of its inputs are there. */
#ifndef WEFT_SESSION_LESSON_H
#define WEFT_SESSION_LESSON_H

#include <pthread.h>

#include "comm/comm.h"
#include "exec/exec.h"
#include "job/job.h"
#include "state/state.h"

enum {
    WEFT_LESSON_VERSION  = 1,
    WEFT_LESSON_CHUNK    = 1 << 20, /* bytes of a message at most */
    WEFT_LESSON_CREDITS  = 4,
    WEFT_LESSON_TEACHERS = 4,  /* at most */
    WEFT_LESSON_LEARNERS = 16, /* more new ranks than that do not learn */
    WEFT_LESSON_TAG      = 1   /* to the learner; the next one is back */
};

typedef enum weft_lesson_kind {
    WEFT_LESSON_PIECE = 1, /* step, at, bytes; data follow */
    WEFT_LESSON_INPUTS,    /* step; the data of the share follow, by chunks */
    WEFT_LESSON_SKIP,      /* step: it has no update */
    WEFT_LESSON_WHOLE,
    WEFT_LESSON_END,   /* step: the last one */
    WEFT_LESSON_BEGIN, /* step */
    WEFT_LESSON_ALIVE, /* nothing is new */
    WEFT_N_LESSON_KIND
} weft_lesson_kind;

typedef struct weft_lesson_head {
    int64_t kind, step, at, bytes;
} weft_lesson_head;

typedef struct weft_lesson_hello {
    int64_t  version, refused;
    uint64_t tail, state; /* hashes */
    int64_t  input_bytes, state_bytes;
    char     why[200]; /* refused */
} weft_lesson_hello;

/* PICK, then GO. */
typedef struct weft_lesson_pick {
    int64_t refused, n, which; /* its share is the which-th of n */
    int64_t begin;             /* GO: the first step whose state is sent */
    char    why[200];
} weft_lesson_pick;

/* Bytes of several places as one row. */
typedef struct weft_span {
    char   *p;
    int64_t from, bytes; /* from: of the row */
} weft_span;

typedef struct weft_spans {
    int        n;
    int64_t    bytes;
    weft_span *span;
} weft_spans;

/* The state as a row of blocks: what is computed together, or of that the same elements of all
 * tensors. */
typedef struct weft_lesson_state {
    weft_spans row;
    uint64_t   hash; /* of names, types, parts and blocks; not of where they are */
    int        n_block;
    int64_t   *end; /* of each block, in the row */
} weft_lesson_state;

/* In a; the row begins empty. */
weft_status weft_spans_create(weft_arena *a, int most, weft_spans *out);
void        weft_spans_add(weft_spans *s, void *p, int64_t bytes);
/* n bytes from `at` on, which are in the row. */
void weft_spans_read(const weft_spans *s, int64_t at, int64_t n, void *out);
void weft_spans_write(const weft_spans *s, int64_t at, int64_t n, const void *in);

/* t: the tail of p, whose state s is.  WEFT_ERR_ARG: the state is not in memory of the host alone,
 * holds something for others, or is computed otherwise than by elements. */
weft_status weft_lesson_state_make(const weft_state *s, const weft_program *p,
                                   const weft_tail *t, weft_arena *a,
                                   weft_lesson_state *out);
/* Bytes of the piece from `at` on: blocks, of a chunk at most. */
int64_t weft_lesson_piece(const weft_lesson_state *s, int64_t at);
/* The k-th of n shares, in whole blocks. */
void weft_lesson_state_share(const weft_lesson_state *s, int n, int k, int64_t *lo,
                             int64_t *hi);

weft_status weft_lesson_spans_of_tail(const weft_exec *e, const weft_tail *t,
                                      weft_arena *a, weft_spans *out);

/* [*lo, *hi) of so many bytes of inputs, the k-th of n shares. */
void weft_lesson_share(int64_t bytes, int n, int k, int64_t *lo, int64_t *hi);

/* Do ranks of a membership to come from `first` on learn, as its job and numbers say?  All that
 * take part find the same. */
bool weft_lesson_is_held(const weft_job *asked, int world, int first);

/* Ranks below `first` of a membership to come teach; which of them (by number) is teacher k of how
 * many? */
int weft_lesson_n_teacher(int first);
int weft_lesson_teacher(int first, int k);

/* Can inputs of so many bytes be sent with each step, at the speed of what was sent so far?  text:
 * why not. */
bool weft_lesson_keeps_up(int64_t input_bytes, int64_t sent, double sent_s, double step_s,
                          char *text, size_t n);

/* A condition on the monotonic clock.  wait: false: it was signalled, perhaps for nothing; true:
 * it is past until_s (weft_clock_s). */
void weft_lesson_cond_init(pthread_cond_t *c);
bool weft_lesson_wait(pthread_cond_t *c, pthread_mutex_t *lock, double until_s);

/* How long training may wait for learners in all, lesson_s after they began. */
double weft_lesson_patience_s(double lesson_s);

#endif
