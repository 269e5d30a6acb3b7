/* Which rank is slow: busy for longer than ranks with the same work.  Pure.
 *
 *     weft_slow_begin(&x, n, work);                 when ranks have their programs
 *     weft_slow_add(&x, first, n, seconds);         after a step: what ranks said of it
 *     k = weft_slow_next(&x, &rank);                those that have become slow, once each
 *
 * A rank is compared by the second fastest of its last 20 steps, in CPU time: what it takes when
 * nothing else wants its core.  It is slow when that is more than 1.25 times the median of the
 * other ranks with equal work (within 2 %) and by more than 1 ms, and stays so until it is less
 * than 1.1 times.  A rank whose work no other rank shares is not judged. */
#ifndef WEFT_SESSION_SLOW_H
#define WEFT_SESSION_SLOW_H

#include <stdbool.h>

#include "base/status.h"

enum {
    WEFT_SLOW_STEPS = 20
};

typedef struct weft_slow_rank {
    double work;
    float  busy_s[WEFT_SLOW_STEPS]; /* of the last steps, a ring */
    int    n;                       /* so far */
    bool   slow;
    float  low_s, other_s; /* when it was last judged: its own, and that of the others */
} weft_slow_rank;

typedef struct weft_slow {
    int             n;
    weft_slow_rank *rank;
    float          *scratch; /* 2 * n */
} weft_slow;

weft_status weft_slow_begin(weft_slow *s, int n, const double *work);
void        weft_slow_fini(weft_slow *s); /* a zeroed one is fine */
/* Of ranks first .. first + n - 1; 0 s: not known. */
void weft_slow_add(weft_slow *s, int first, int n, const float *busy_s);
/* Judges all ranks; true: *rank has become slow since the last call that named it. */
bool weft_slow_next(weft_slow *s, int *rank);

#endif
