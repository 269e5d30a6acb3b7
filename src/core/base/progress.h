/* Whether this process makes progress, for those who must tell a slow one from one that is stuck:
 * a count that moves with every block of a file written or read, and a record that other processes
 * see.
 *
 *     weft_progress_share(&record_in_shared_memory);
 *     weft_progress_mark();                              a piece of work is done
 *     weft_progress_begin(0, "h.0.attn", longest_s);     stream 0 runs a task
 *     seconds = weft_progress_end(0);
 *
 * Safe to call from any thread; a stream's tasks are one thread's. */
#ifndef WEFT_BASE_PROGRESS_H
#define WEFT_BASE_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_PROGRESS_STREAMS = 8,
    WEFT_PROGRESS_NAME    = 40
};

/* What a stream does now.  The name may be half of one and half of the next while it is written:
 * for people. */
typedef struct weft_progress_task {
    _Atomic uint64_t begun_ns; /* on the monotonic clock; 0: it runs nothing */
    /* that this task took before; 0: not known, or it waits for others */
    _Atomic uint64_t longest_ns;
    char             name[WEFT_PROGRESS_NAME];
} weft_progress_task;

typedef struct weft_progress_record {
    _Atomic uint64_t word; /* moves with marks and alive */
    /* Moves as often as any thread runs: with every task, and while one waits for a peer. */
    _Atomic uint64_t   beat;
    weft_progress_task task[WEFT_PROGRESS_STREAMS];
} weft_progress_record;

void     weft_progress_mark(void);  /* moves the count, the word and the beat */
uint64_t weft_progress_count(void); /* marks so far */
/* Moves the word and the beat: this process waits, and knows that what it waits for makes
 * progress. */
void weft_progress_alive(void);
/* The beat alone: this process waits, and is not stuck itself. */
void weft_progress_beat(void);
/* Around one task.  Nothing happens where no record is shared; end then gives 0, else the seconds
 * that it took. */
void   weft_progress_begin(int stream, const char *name, double longest_s);
double weft_progress_end(int stream);
/* The record moves from now on, its tasks cleared; NULL: no longer.  It must stay as long as it is
 * shared. */
void weft_progress_share(weft_progress_record *record);
bool weft_progress_is_shared(void);

#endif
