/* Whether this process makes progress, for those who must tell a slow one from one that is stuck:
 * a count that moves with every block of a file written or read, and a record that other processes
 * see.
 *
 *     weft_progress_share(&record_in_shared_memory);
 *     weft_progress_mark();                              a piece of work is done
 *     weft_progress_begin(0, "h.0.attn", longest_s, &work);   stream 0 runs a task
 *     seconds = weft_progress_end(0);
 *     weft_progress_note(&work, seconds);                which took so long
 *     longest_s = weft_progress_estimate(record, &work); of one that has not run yet
 *
 * The record outlives the process: what tasks took is known to those who watch the next one.
 * Safe to call from any thread; a stream's tasks are one thread's. */
#ifndef WEFT_BASE_PROGRESS_H
#define WEFT_BASE_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_PROGRESS_STREAMS = 8,
    WEFT_PROGRESS_NAME    = 40,
    WEFT_PROGRESS_KINDS   = 128,
    WEFT_PROGRESS_SIZES   = 24 /* each for four times the work of the one before */
};

/* How much work a task is: of what kind, from 1, 0: not known; that much of it, in whatever unit
 * tasks of the kind are compared by; and bytes of memory that it may touch first. */
typedef struct weft_progress_work {
    int    kind;
    double amount, bytes;
} weft_progress_work;

/* What a stream does now.  The name may be half of one and half of the next while it is written:
 * for people. */
typedef struct weft_progress_task {
    _Atomic uint64_t begun_ns; /* on the monotonic clock; 0: it runs nothing */
    /* that this task took before; 0: not known, or it waits for others */
    _Atomic uint64_t   longest_ns;
    weft_progress_work work; /* written before begun_ns */
    char               name[WEFT_PROGRESS_NAME];
} weft_progress_task;

typedef struct weft_progress_record {
    _Atomic uint64_t word; /* moves with marks and alive */
    /* Moves as often as any thread runs: with every task, and while one waits for a peer. */
    _Atomic uint64_t   beat;
    weft_progress_task task[WEFT_PROGRESS_STREAMS];
    /* the longest that a task of that kind and size took, in microseconds; 0: none ran */
    _Atomic uint32_t longest_us[WEFT_PROGRESS_KINDS][WEFT_PROGRESS_SIZES];
} weft_progress_record;

void     weft_progress_mark(void);  /* moves the count, the word and the beat */
uint64_t weft_progress_count(void); /* marks so far */
/* Moves the word and the beat: this process waits, and knows that what it waits for makes
 * progress. */
void weft_progress_alive(void);
/* The beat alone: this process waits, and is not stuck itself. */
void weft_progress_beat(void);
/* Around one task.  Nothing happens where no record is shared; end then gives 0, else the seconds
 * that it took.  work NULL: not known. */
void   weft_progress_begin(int stream, const char *name, double longest_s,
                           const weft_progress_work *work);
double weft_progress_end(int stream);
void   weft_progress_note(const weft_progress_work *work, double seconds);
/* More than a task of that work takes, going by the nearest ones of its kind that have run: a
 * smaller one is not slower in proportion, and a larger one takes longer.  0: none has. */
double weft_progress_estimate(const weft_progress_record *record,
                              const weft_progress_work   *work);
/* The record moves from now on, its tasks cleared; NULL: no longer.  It must stay as long as it is
 * shared. */
void weft_progress_share(weft_progress_record *record);
bool weft_progress_is_shared(void);

#endif
