/* Frames in a stream of bytes: a head of 8 bytes (length, kind; least byte first), then so many
 * bytes.  One buffer for each direction of a connection, bounded.
 *
 *     uint8_t *p = weft_control__buffer_space(&in, 16384);     received bytes go here
 *     in.n += got;
 *     while (weft_control__frame_take(&in, most, &frame) == WEFT_CONTROL__WHOLE) ..
 *     weft_control__buffer_drop(&in, frame.all);               when it has been used */
#ifndef WEFT_CONTROL_FRAME_H
#define WEFT_CONTROL_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    WEFT_CONTROL__HEAD = 8,
};

typedef struct weft_control__buffer {
    uint8_t *byte;
    size_t   first, n, cap; /* bytes first .. first + n are in use */
} weft_control__buffer;

typedef struct weft_control__frame {
    uint32_t       kind;
    const uint8_t *data; /* in the buffer */
    size_t         bytes;
    size_t         all; /* with the head */
} weft_control__frame;

typedef enum weft_control__found {
    WEFT_CONTROL__PART, /* more bytes are needed */
    WEFT_CONTROL__WHOLE,
    WEFT_CONTROL__TOO_LONG, /* it says that it is longer than `most`: frame.bytes */
} weft_control__found;

/* Place for `bytes` more after those in use; NULL: no memory. */
uint8_t *weft_control__buffer_space(weft_control__buffer *b, size_t bytes);
void     weft_control__buffer_drop(weft_control__buffer *b, size_t bytes);
void     weft_control__buffer_fini(weft_control__buffer *b);

weft_control__found weft_control__frame_take(const weft_control__buffer *b, size_t most,
                                             weft_control__frame *out);
/* WEFT_ERR_MEM: nothing was added. */
weft_status weft_control__frame_put(weft_control__buffer *b, uint32_t kind,
                                    const void *data, size_t bytes);

#endif
