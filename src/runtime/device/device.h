/* A device: memory, streams, and someone who works through tasks.
 *   cpu   runs each task's function
 *   emu   sleeps for each task's stated time instead, so that many devices fit on two cores
 * Plugins (cuda) give the same struct. */
#ifndef WEFT_DEVICE_DEVICE_H
#define WEFT_DEVICE_DEVICE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct weft_device weft_device;

/* One instruction ready to run, addresses filled in. */
typedef struct weft_task {
    weft_status (*run)(void *arg);
    void  *arg;
    double seconds; /* stated time, for emu */
} weft_task;

/* Tasks of one stream run in order.  Belongs to one thread at a time; all zero is a fresh one. */
typedef struct weft_stream {
    double start_s; /* of the last submit, on weft_clock_s()'s clock */
    double done_s;  /* its end: as measured on cpu, as stated on emu */
} weft_stream;

struct weft_device {
    const char *name;
    /* false: tasks' functions are never called, memory holds nothing (emu) */
    bool computes;
    /* does not compute, yet messages and collectives go through comm as they are: a transport
     * whose links take their time decides how long they last; else exec lets them last as long as
     * is stated */
    bool talks;
    /* Zeroed memory, aligned to 4096, on large pages where there are any and touched so that a
     * step meets no
     * page fault: resident memory grows by bytes rounded up to 4096, no more.  bytes 0 is legal. */
    weft_status (*alloc)(weft_device *d, int64_t bytes, void **out);
    void (*free)(weft_device *d, void *p, int64_t bytes); /* p may be NULL */
    /* Runs the tasks in order and returns when they are done or one failed.  ready_s: when what
     * they wait for was there, 0 if they waited for nothing.  emu starts them at the later of
     * ready_s and the stream's done_s, not at the time of the call, so that a thread that wakes
     * up late makes no lasting delay. */
    weft_status (*submit)(weft_device *d, weft_stream *s, double ready_s,
                          const weft_task *task, int n);
    void *impl;
};

weft_device *weft_device_cpu(void); /* shared, never destroyed */
weft_status  weft_device_emu_create(weft_device **out);
void         weft_device_emu_destroy(weft_device *d);

/* Where this thread stands in emulated time, on weft_clock_s()'s clock: exec says when an
 * instruction that talks begins, a transport that takes its time moves it on to when it ends.
 * Lateness of a sleeping thread is not in it. */
void   weft_device_set_moment(double s);
double weft_device_moment(void);

/* Bytes that alloc has handed out and not got back, over all cpu devices of the process. */
int64_t weft_device_bytes(void);

#endif
