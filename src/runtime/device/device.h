/* A device: memory, and streams that work through tasks.
 *
 *     weft_memory m;      weft_device_alloc(d, WEFT_SPACE_DEVICE, bytes, &m);
 *     weft_code   code;   d->load(d, task, n, &code);              once
 *     weft_stream s;      d->stream_open(d, "compute", &s);
 *     d->wait(&s, &gradients, 3);                                  after their third record
 *     d->launch(&s, &code);
 *     d->record(&s, &weights);
 *     d->finish(&s);                                               all of it is done
 *
 *   cpu   launch calls each task's function, on the caller's thread
 *   emu   launch returns at once with a deadline: the tasks' stated seconds after the one before
 *   guard as cpu, but memory of space DEVICE cannot be reached outside launches and copies
 * A plugin (cuda) fills in the same struct.  Entries that only some devices have (capture of a
 * whole step, memory of other processes) go to the end of it, NULL where they are missing. */
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
    weft_status (*run)(void *arg); /* NULL: emu only */
    void  *arg;
    double seconds; /* stated time, for emu */
} weft_task;

/* Tasks as the device has loaded them. */
typedef struct weft_code {
    const weft_task *task; /* the caller's, for the life of the code */
    int              n;
    void            *impl;
    /* The caller's, after load, for errors that a device learns of after a task has returned: what
     * the tasks are part of, and the text of an error with a task's name in front.  May be NULL. */
    const char *name;
    weft_status (*blame)(const void *arg, weft_status st);
} weft_code;

/* What is given to a stream runs in that order.  One thread at a time gives. */
typedef struct weft_stream {
    weft_device *device;
    const char  *name; /* the caller's */
    /* The last launch or call, on weft_clock_s()'s clock: as measured on cpu; as stated on emu,
     * where done_s is its deadline and may be ahead of the clock.  Devices that learn times later
     * leave them 0: events have them. */
    double start_s, done_s;
    bool   busy; /* launches since the last finish */
    void  *impl;
} weft_stream;

/* A count that streams move on and wait for. */
typedef struct weft_event {
    weft_device *device;
    void        *impl;
    /* Set after event_open: records are for their times alone, nobody waits for them.  One inside a
     * capture then keeps its number, replays do not move the count on, and its time is that of the
     * newest replay. */
    bool times;
} weft_event;

/* Host work in the order of a stream.  *start_s: when the stream got there; *end_s: now.  An
 * emulation moves them on to the times it states; cpu measures. */
typedef weft_status (*weft_host_fn)(void *arg, double *start_s, double *end_s);

/* Memory that another process of this host can open, as bytes to send there. */
typedef struct weft_memory_handle {
    char bytes[96];
} weft_memory_handle;

/* What a device is, and what it has free now. */
typedef struct weft_device_facts {
    char    name[96]; /* "NVIDIA H200" */
    char    id[48];   /* of this very device: the same in every process that uses it */
    char    versions[160]; /* "driver 13.0, built with 13.0" */
    char    warning[480];  /* what it lacks and does without; "" nothing */
    int     capability;    /* 90 is 9.0 */
    int64_t total_bytes, free_bytes;
    int64_t other_bytes; /* that other processes had when it was opened; -1 unknown */
} weft_device_facts;

/* Work of several streams that was captured, ready to run again. */
typedef struct weft_captured {
    weft_device *device;
    void        *impl;
} weft_captured;

struct weft_device {
    const char *name;
    const char *kernels; /* whose kernels its tasks call: a device of the registry */
    /* true: DEVICE memory is this process's own, host code may dereference it (cpu) */
    bool host_access;
    /* true: launch, wait, copy and call work on the caller's thread, so each stream needs a thread
     * of its own, and wait blocks it until the count is there.  false: launch and wait return at
     * once, one thread may serve all streams, and it gives a record before the wait for it. */
    bool needs_thread;

    /* Zeroed memory, aligned to 4096, on large pages where there are any and touched so that a
     * step meets no page fault: resident memory grows by bytes rounded up to 4096, no more.
     * bytes 0 is legal: an address of NULL. */
    weft_status (*alloc)(weft_device *d, weft_space space, int64_t bytes,
                         weft_memory *out);
    void (*free)(weft_device *d, const weft_memory *m); /* an address of NULL is legal */
    /* All of from, to the first from.bytes of to; between any two spaces.  s: in its order; NULL:
     * done on return.  Memory of space HOST to copy from has been read on return. */
    weft_status (*copy)(weft_device *d, weft_stream *s, const weft_memory *to,
                        const weft_memory *from);

    weft_status (*stream_open)(weft_device *d, const char *name, weft_stream *out);
    void (*stream_close)(weft_stream *s); /* of one that is all zero: nothing */

    /* WEFT_ERR_ARG: a task that the device cannot run. */
    weft_status (*load)(weft_device *d, const weft_task *task, int n, weft_code *out);
    void (*unload)(weft_device *d, weft_code *c);
    /* In order, up to the first that fails: cpu returns its error, others may return it from
     * finish. */
    weft_status (*launch)(weft_stream *s, const weft_code *c);
    /* Calls fn when everything before it is done; returns when fn did. */
    weft_status (*call)(weft_stream *s, weft_host_fn fn, void *arg);

    /* depth: the times of so many of the newest records are kept.  event_bytes: what one takes of
     * host memory. */
    int64_t (*event_bytes)(int64_t depth);
    weft_status (*event_open)(weft_device *d, int64_t depth, weft_event *out);
    void (*event_close)(weft_event *e); /* of one that is all zero: nothing */
    /* The count grows by one when everything before it on s is done. */
    weft_status (*record)(weft_stream *s, weft_event *e);
    /* What comes after it on s starts when the count is n or more; s and e are of one device.
     * WEFT_ERR_PEER: cancelled. */
    weft_status (*wait)(weft_stream *s, weft_event *e, int64_t n);
    /* When the count was n.  query: WEFT_AGAIN, it is not yet; sync: the host waits for it. */
    weft_status (*query)(weft_event *e, int64_t n, double *done_s);
    weft_status (*sync)(weft_event *e, int64_t n, double *done_s);
    /* No more records will come: waits that are not over return WEFT_ERR_PEER, now and later. */
    void (*cancel)(weft_event *e);
    /* The host waits for all of the stream. */
    weft_status (*finish)(weft_stream *s);
    void *impl;

    /* ---- only some devices have these: NULL ---- */

    weft_status (*facts)(weft_device *d, weft_device_facts *out);
    /* Memory that the device has allocated, or a part of it: of space DEVICE (cuda), SHARED (cpu).
     * It is freed after all who imported it have closed it.  WEFT_ERR_ARG: other memory. */
    weft_status (*export_memory)(weft_device *d, const weft_memory *m,
                                 weft_memory_handle *out);
    /* In another process.  The bytes are a peer's: WEFT_ERR_ARG or _IO, they lead nowhere. */
    weft_status (*import_memory)(weft_device *d, const weft_memory_handle *h,
                                 weft_memory *out);
    void (*import_close)(weft_device *d, const weft_memory_handle *h,
                         const weft_memory *m);
    /* From begin to end what is given to the n streams is kept instead of run; all of them are
     * idle at begin, launches only issue, copies are from and to memory that keeps its place, and
     * there is no call and no sync.  Waits inside are for records inside; those for earlier
     * records are over.  A failed capture ends, too: *out is then empty. */
    weft_status (*capture_begin)(weft_device *d, weft_stream *const *s, int n);
    weft_status (*capture_end)(weft_device *d, weft_captured *out);
    /* Once more, in the order of s; counts of events move on as if it had been given again. */
    weft_status (*replay)(weft_stream *s, const weft_captured *g);
    void (*captured_free)(weft_captured *g); /* of one that is all zero: nothing */
};

/* Shared, never destroyed. */
weft_device *weft_device_cpu(void);
weft_device *weft_device_guard(void);
/* What jobs run on: cpu; guard where the environment has WEFT_DEVICE=guard, for tests. */
weft_device *weft_device_default(void);
/* WEFT_ERR_ARG: WEFT_DEVICE has another name.  Asked once, before anything runs. */
weft_status weft_device_check_default(void);
weft_status weft_device_emu_create(weft_device **out);
void        weft_device_emu_destroy(weft_device *d);

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
/* In the order of a stream of m's device: the host has the bytes when the stream has got so far. */
weft_status weft_device_read_in(weft_stream *s, void *host, const weft_memory *m,
                                int64_t offset, int64_t bytes);
/* The host waits for what a stream was given so far; any thread whose stream it is. */
weft_status weft_stream_wait(weft_stream *s);

/* Bytes that alloc has handed out and not got back, over all cpu devices of the process. */
int64_t weft_device_bytes(void);

#endif
