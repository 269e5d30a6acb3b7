/* A device: memory, streams, and someone who works through tasks.
 *   cpu   runs each task's function
 *   emu   sleeps for each task's stated time instead, so that many devices fit on two cores
 * Plugins (cuda) give the same struct. */
#ifndef WEFT_DEVICE_DEVICE_H
#define WEFT_DEVICE_DEVICE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct weft_device weft_device;

/* Who may reach memory, besides the kernels of its device. */
typedef enum weft_space {
    WEFT_SPACE_HOST, /* this process: devices copy from and to it, kernels do not reach it */
    WEFT_SPACE_PINNED, /* this process and the device's kernels: inputs and outputs */
    WEFT_SPACE_SHARED, /* this process, its kernels, and processes that have it mapped too */
    WEFT_SPACE_DEVICE, /* kernels and copies only */
    WEFT_N_SPACE
} weft_space;

/* A run of memory; a part of it is memory again.  A plain value: whoever allocated it frees it, and
 * memory of another origin (a mapping, an array) is adopted by filling in the fields. */
typedef struct weft_memory {
    weft_device *device;
    weft_space   space;
    void   *address; /* of space DEVICE: the device's, which no host code dereferences */
    int64_t bytes;
} weft_memory;

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
    /* true: DEVICE memory is this process's own, host code may dereference it (cpu) */
    bool host_access;
    /* Zeroed memory, aligned to 4096, on large pages where there are any and touched so that a
     * step meets no page fault: resident memory grows by bytes rounded up to 4096, no more.
     * bytes 0 is legal: an address of NULL. */
    weft_status (*alloc)(weft_device *d, weft_space space, int64_t bytes,
                         weft_memory *out);
    void (*free)(weft_device *d, const weft_memory *m); /* an address of NULL is legal */
    /* All of from, to the first from.bytes of to; between any two spaces.  Done on return. */
    weft_status (*copy)(weft_device *d, const weft_memory *to, const weft_memory *from);
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

const char *weft_space_name(weft_space s);

weft_status weft_device_alloc(weft_device *d, weft_space space, int64_t bytes,
                              weft_memory *out);
/* Memory that came from weft_device_alloc; *m is all zero afterwards. */
void weft_device_free(weft_memory *m);

/* [offset, offset + bytes) of m.  WEFT_ERR_ARG: not inside. */
weft_status weft_memory_part(const weft_memory *m, int64_t offset, int64_t bytes,
                             weft_memory *out);
/* What host code may dereference; NULL: nothing, weft_device_read and _write are the way. */
void *weft_memory_host(const weft_memory *m);

/* Between host memory and any memory, done on return: [offset, offset + bytes) of m. */
weft_status weft_device_read(void *host, const weft_memory *m, int64_t offset,
                             int64_t bytes);
weft_status weft_device_write(const weft_memory *m, int64_t offset, const void *host,
                              int64_t bytes);

/* Where this thread stands in emulated time, on weft_clock_s()'s clock: exec says when an
 * instruction that talks begins, a transport that takes its time moves it on to when it ends.
 * Lateness of a sleeping thread is not in it. */
void   weft_device_set_moment(double s);
double weft_device_moment(void);

/* Bytes that alloc has handed out and not got back, over all cpu devices of the process. */
int64_t weft_device_bytes(void);

#endif
