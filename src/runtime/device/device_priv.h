/* What devices of this module share. */
#ifndef WEFT_DEVICE_PRIV_H
#define WEFT_DEVICE_PRIV_H

#include "device/device.h"

/* cpu.c: pages of the host, for every space. */
weft_status weft_device__cpu_alloc(weft_device *d, weft_space space, int64_t bytes,
                                   weft_memory *out);
void        weft_device__cpu_free(weft_device *d, const weft_memory *m);

/* share.c: memory of space SHARED. */
char       *weft_device__share_map(size_t n);              /* NULL: errno */
void        weft_device__share_close(const void *address); /* before it is unmapped */
weft_status weft_device__export(weft_device *d, const weft_memory *m,
                                weft_memory_handle *out);
weft_status weft_device__import(weft_device *d, const weft_memory_handle *h,
                                weft_memory *out);
void        weft_device__import_close(weft_device *d, const weft_memory_handle *h,
                                      const weft_memory *m);

weft_status weft_device__cpu_load(weft_device *d, const weft_task *task, int n,
                                  weft_code *out);
void        weft_device__unload(weft_device *d, weft_code *c);
weft_status weft_device__cpu_launch(weft_stream *s, const weft_code *c);
weft_status weft_device__cpu_call(weft_stream *s, weft_host_fn fn, void *arg);
weft_status weft_device__cpu_wait(weft_stream *s, weft_event *e, int64_t n);
weft_status weft_device__cpu_query(weft_event *e, int64_t n, double *done_s);
weft_status weft_device__cpu_sync(weft_event *e, int64_t n, double *done_s);
weft_status weft_device__cpu_finish(weft_stream *s);
weft_status weft_device__stream_open(weft_device *d, const char *name, weft_stream *out);
void        weft_device__stream_close(weft_stream *s);

/* event.c: a count in host memory, with the times of its newest values. */
int64_t     weft_device__event_bytes(int64_t depth);
weft_status weft_device__event_open(weft_device *d, int64_t depth, weft_event *out);
void        weft_device__event_close(weft_event *e);
weft_status weft_device__event_record(weft_stream *s, weft_event *e);
void        weft_device__event_cancel(weft_event *e);
bool        weft_device__event_reached(const weft_event *e, int64_t n);
/* Blocks until the count is n; *at: when it was. */
weft_status weft_device__event_block(weft_event *e, int64_t n, double *at);
/* Without blocking; false: not yet. */
bool weft_device__event_look(const weft_event *e, int64_t n, double *at);

#endif
