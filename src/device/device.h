/* A device: memory and someone who works through tasks.
 *   cpu   runs each task's function
 *   emu   sleeps for each task's stated time instead, so that many devices fit on two cores
 * Plugins (cuda) give the same struct. */
#ifndef WEFT_DEVICE_DEVICE_H
#define WEFT_DEVICE_DEVICE_H

#include "base/status.h"

typedef struct weft_device weft_device;

/* One instruction ready to run, addresses filled in. */
typedef struct weft_task {
    weft_status (*run)(void *arg);
    void  *arg;
    double seconds; /* stated time, for emu */
} weft_task;

struct weft_device {
    const char *name;
    /* Zeroed memory, aligned to 4096, on large pages where there are any and touched so that a step meets no
     * page fault.  bytes 0 is legal. */
    weft_status (*alloc)(weft_device *d, int64_t bytes, void **out);
    void (*free)(weft_device *d, void *p, int64_t bytes);
    /* Runs the tasks in order and returns when they are done or one failed. */
    weft_status (*submit)(weft_device *d, const weft_task *task, int n);
    void *impl;
};

weft_device *weft_device_cpu(void); /* shared, never destroyed */
weft_status  weft_device_emu_create(weft_device **out);
void         weft_device_emu_destroy(weft_device *d);

#endif
