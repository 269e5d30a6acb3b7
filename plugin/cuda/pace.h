/* How long a host thread may sleep while the device runs a graph that it has run before: the
 * driver waits by spinning, which takes a core for the whole of a step.
 *
 *     p = weft_cuda_pace_of(q->pace, capture);           at the launch, begin_s
 *     wake_s = weft_cuda_pace_wake(p, begin_s);          sleep until then, unless 0; then wait
 *     weft_cuda_pace_note(p, &(weft_cuda_wait){begin_s, wake_s, asked_s, done_s});
 *
 * (1) A wait wakes up before the shortest of the last four runs would have ended, by 15 % of it or
 *     1 ms, whichever is more; what is left is spun.
 * (2) A run that was over when the sleep ended may have been shorter: it counts as 10 % less than
 *     the sleep, so that times which got shorter are followed in some steps.
 * (3) Where runs take no less time after a sleep than without one (a device that works only while
 *     it is waited for) there is no sleep any more. */
#ifndef WEFT_CUDA_PACE_H
#define WEFT_CUDA_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_CUDA_PACE_RUNS = 4, /* the newest, of which the shortest counts */
    WEFT_CUDA_MAX_PACE  = 8  /* graphs of a stream */
};

typedef struct weft_cuda_pace {
    int64_t capture; /* number of the graph; 0: unused */
    int64_t n;       /* runs so far */
    double  took_s[WEFT_CUDA_PACE_RUNS];
    int     n_vain; /* sleeps in a row that saved nothing */
} weft_cuda_pace;

typedef struct weft_cuda_wait {
    double begin_s;         /* the launch */
    double wake_s;          /* the end of the sleep; 0: there was none */
    double asked_s, done_s; /* the driver was asked to wait, and returned */
} weft_cuda_wait;

/* Of a graph, among WEFT_CUDA_MAX_PACE of a stream; a new one in the place of the oldest. */
weft_cuda_pace *weft_cuda_pace_of(weft_cuda_pace *all, int64_t capture);
double          weft_cuda_pace_wake(const weft_cuda_pace *p, double begin_s);
void            weft_cuda_pace_note(weft_cuda_pace *p, const weft_cuda_wait *w);

#endif
