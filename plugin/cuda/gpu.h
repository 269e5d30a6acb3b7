/* A GPU of this process: its context, its kernels, its weft_device. */
#ifndef WEFT_CUDA_GPU_H
#define WEFT_CUDA_GPU_H

#include <pthread.h>

#include "cuda_priv.h"
#include "comm/device_comm.h"
#include "device/device.h"
#include "driver.h"

enum {
    WEFT_CUDA_MAX_GPU    = 32,
    WEFT_CUDA_MAX_FATBIN = 128
};

/* A stream of the plugin's own that takes over work from others: part of a capture from its first
 * fork in it. */
typedef struct weft_cuda_branch {
    struct weft_cuda_branch *next;
    weft_cuda_handle         stream;
    int64_t                  capture; /* the last it was forked in; 0: in none */
} weft_cuda_branch;

struct weft_cuda_gpu {
    weft_device      device;
    char             name[16]; /* "cuda:0" */
    int              number, n_open;
    bool             has_context;
    int64_t          serial;  /* of the context, over the process's life */
    int              ordinal; /* the driver's */
    int              capability;
    int              max_shared_bytes; /* that a block may ask for */
    int              n_multiprocessor;
    bool             has_wgmma;   /* and copies by tensor maps */
    int64_t          other_bytes; /* of its memory that others had; -1 unknown */
    weft_cuda_handle context;
    weft_cuda_handle copies; /* stream of copies that are done on return */
    /* times of events: base was reached at base_s of weft_clock_s() */
    weft_cuda_handle base;
    double           base_s;
    int              n_library;
    weft_cuda_handle library[WEFT_CUDA_MAX_FATBIN];
    weft_cuda_handle function[WEFT_N_CUDA_KERNEL];
    bool             sync; /* WEFT_CUDA_SYNC=1: wait after each task */
    /* capture.c: of the running capture, 0 none; the streams in it */
    int64_t             capture, last_capture;
    int                 n_captured;
    weft_stream *const *captured;
    void               *moved; /* events it moves on */
    weft_cuda_branch   *branch;
};

/* Makes its context the calling thread's. */
weft_status                  weft_cuda_use(weft_cuda_gpu *g);
static inline weft_cuda_gpu *weft_cuda_gpu_of(const weft_device *d)
{
    return (weft_cuda_gpu *)d->impl;
}
static inline weft_cuda_handle weft_cuda_stream_of(const weft_stream *s)
{
    return ((weft_cuda_queue *)s->impl)->stream;
}

/* Fatbins that are part of the plugin. */
extern const void *const weft_cuda_fatbin[];
extern const int         weft_cuda_n_fatbin;

/* kernels.c: function[] of g, whose context is current. */
weft_status weft_cuda_load_kernels(weft_cuda_gpu *g);
void        weft_cuda_unload_kernels(weft_cuda_gpu *g);

/* Tables of pinned algorithms that are part of the plugin: data/cuda/NAME.tsv. */
extern const char *const weft_cuda_pinned_name[], *const weft_cuda_pinned_text[];
extern const int weft_cuda_n_pinned;

/* tune.c: the table for a device by its name and for the open cublasLt, or $WEFT_CUDA_PINNED. */
weft_status weft_cuda_read_pinned(const char *device);
/* $WEFT_CUDA_TUNE; in the current context. */
weft_status weft_cuda_open_tuner(void);
void        weft_cuda_close_tuner(void);

/* gpu.c */
weft_status weft_cuda_count(int *n);
weft_status weft_cuda_open(int number, weft_device **out);
void        weft_cuda_close(weft_device *d);

/* device.c */
void weft_cuda_fill_device(weft_cuda_gpu *g);
/* What failed on a stream, in whose work. */
weft_status weft_cuda_stream_failed(weft_stream *s, weft_status st);

/* share.c */
/* The host as processes see it: one kernel, and the same names of processes and shared memory in
 * it. */
void        weft_cuda_name_host(char *out, size_t size);
weft_status weft_cuda_export(weft_device *d, const weft_memory *m,
                             weft_memory_handle *out);
weft_status weft_cuda_import(weft_device *d, const weft_memory_handle *h,
                             weft_memory *out);
void        weft_cuda_import_close(weft_device *d, const weft_memory_handle *h,
                                   const weft_memory *m);

/* event.c */
int64_t     weft_cuda_event_bytes(int64_t depth);
weft_status weft_cuda_event_open(weft_device *d, int64_t depth, weft_event *out);
void        weft_cuda_event_close(weft_event *e);
weft_status weft_cuda_event_record(weft_stream *s, weft_event *e);
weft_status weft_cuda_event_wait(weft_stream *s, weft_event *e, int64_t n);
weft_status weft_cuda_event_query(weft_event *e, int64_t n, double *done_s);
weft_status weft_cuda_event_sync(weft_event *e, int64_t n, double *done_s);
void        weft_cuda_event_cancel(weft_event *e);
/* n records that a replay of a capture gives. */
void weft_cuda_event_move(void *impl, int64_t capture, int64_t n);
/* Those of a capture that ended were not given yet. */
void weft_cuda_event_move_back(void *impl, int64_t n);
/* Where times count from; again from time to time, as floats are short. */
weft_status weft_cuda_set_base(weft_cuda_gpu *g);

/* nccl.c */
extern const weft_device_backend weft_cuda_nccl_backend;

/* staged.c */
extern const weft_device_backend weft_cuda_staged_backend;

/* capture.c */
weft_status weft_cuda_capture_begin(weft_device *d, weft_stream *const *s, int n);
weft_status weft_cuda_capture_end(weft_device *d, weft_captured *out);
weft_status weft_cuda_replay(weft_stream *s, const weft_captured *g);
void        weft_cuda_captured_free(weft_captured *g);
weft_status weft_cuda_branch_open(weft_cuda_gpu *g, weft_cuda_branch *b);
/* Nothing happens where b is all zero. */
void weft_cuda_branch_close(weft_cuda_gpu *g, weft_cuda_branch *b);
/* What b gets from now on comes after what `from` has so far; event: any that is not in use. */
weft_status weft_cuda_branch_fork(weft_cuda_gpu *g, weft_cuda_branch *b,
                                  weft_cuda_handle from, weft_cuda_handle event);
/* Event e gets a record in the running capture. */
weft_status weft_cuda_capture_moves(weft_cuda_gpu *g, void *event);

#endif
