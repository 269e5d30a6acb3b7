/* The device that a rank of a job runs on.
 *
 *     weft_device *d;
 *     WEFT_TRY(weft_session_open_device(&(weft_session_device){.list = "cuda"}, &d));
 *     ...
 *     weft_session_close_device(d); */
#ifndef WEFT_SESSION_DEVICE_H
#define WEFT_SESSION_DEVICE_H

#include <stdbool.h>

#include "device/device.h"

/* Why `auto` takes the CPU. */
typedef struct weft_session_no_gpu {
    bool there; /* GPUs are there, and cannot be used */
    char text[512];
} weft_session_no_gpu;

typedef struct weft_session_device {
    const char *where; /* the job file or the command, for messages; NULL: "device" */
    const char *list;  /* the job's `device` */
    bool        share_gpu;
    int         local_rank, local_world; /* world 0: one rank */
    /* written where `auto` takes the CPU; NULL: not asked */
    weft_session_no_gpu *no_gpu;
} weft_session_device;

/* WEFT_ERR_ARG: no such device, or more ranks than GPUs, in one line. */
weft_status weft_session_open_device(const weft_session_device *o, weft_device **out);
void        weft_session_close_device(weft_device *d); /* accepts NULL */
/* The list `auto` as all ranks of this host will find it: "cuda", or "cpu".  Looked up in a process
 * that ends: a driver is of no use in processes that are forked after it was opened.  One that does
 * not answer within a minute has none. */
const char *weft_session_resolve_auto(const weft_session_device *o);
/* In a process that does not know yet which rank it is: the device is opened for good where all
 * ranks have the same one, so that opening it again takes no time; else libraries are loaded. */
void weft_session_warm_device(const weft_session_device *o);
/* NVIDIA's libraries as jobs on GPUs find them: names, versions, paths. */
weft_status weft_session_find_libraries(char *text, size_t n);

#endif
