/* TensorBoard event files: scalars by step.
 *
 *     weft_events *e;
 *     WEFT_TRY(weft_events_open("out", done, &e));
 *     weft_events_add(e, step, &(weft_events_scalar){"loss", 2.5}, 1);
 *     weft_events_close(e);
 *
 * A file is records of: u64 length | masked crc32c(length) | protobuf Event | masked crc32c(Event).
 * Adding allocates nothing. */
#ifndef WEFT_SESSION_EVENTS_H
#define WEFT_SESSION_EVENTS_H

#include "base/status.h"

enum {
    WEFT_EVENTS_MAX = 8 /* scalars of a step that are added together */
};

typedef struct weft_events weft_events;

typedef struct weft_events_scalar {
    const char *tag;
    double      value;
} weft_events_scalar;

/* A new file in dir, named by the time and this host.  done: the last step that counts, 0: none;
 * readers drop later steps of older files. */
weft_status weft_events_open(const char *dir, int64_t done, weft_events **out);
/* n scalars of a step, by one write. */
weft_status weft_events_add(weft_events *e, int64_t step, const weft_events_scalar *s,
                            int n);
/* Accepts NULL. */
weft_status weft_events_close(weft_events *e);

#endif
