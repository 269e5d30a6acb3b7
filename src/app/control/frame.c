#include "control/frame.h"

#include <stdlib.h>
#include <string.h>

enum {
    KEEP = 65536, /* an empty buffer larger than this is given back */
};

uint8_t *weft_control__buffer_space(weft_control__buffer *b, size_t bytes)
{
    if (b->cap - b->first - b->n >= bytes && b->byte) return b->byte + b->first + b->n;
    if (b->first) {
        memmove(b->byte, b->byte + b->first, b->n);
        b->first = 0;
    }
    if (b->cap - b->n < bytes || !b->byte) {
        size_t cap = 2 * b->cap > b->n + bytes ? 2 * b->cap : b->n + bytes;
        void  *p   = realloc(b->byte, cap);
        if (!p) return NULL;
        b->byte = p;
        b->cap  = cap;
    }
    return b->byte + b->n;
}

void weft_control__buffer_drop(weft_control__buffer *b, size_t bytes)
{
    b->first += bytes;
    b->n -= bytes;
    if (b->n) return;
    b->first = 0;
    if (b->cap > KEEP) weft_control__buffer_fini(b);
}

void weft_control__buffer_fini(weft_control__buffer *b)
{
    free(b->byte);
    *b = (weft_control__buffer){0};
}

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

static void write_u32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> 8 * i);
}

weft_control__found weft_control__frame_take(const weft_control__buffer *b, size_t most,
                                             weft_control__frame *out)
{
    const uint8_t *p = b->byte + b->first;
    if (b->n < WEFT_CONTROL__HEAD) return WEFT_CONTROL__PART;
    *out = (weft_control__frame){
        .kind = read_u32(p + 4), .data = p + WEFT_CONTROL__HEAD, .bytes = read_u32(p)};
    out->all = WEFT_CONTROL__HEAD + out->bytes;
    if (out->bytes > most) return WEFT_CONTROL__TOO_LONG;
    return b->n < out->all ? WEFT_CONTROL__PART : WEFT_CONTROL__WHOLE;
}

weft_status weft_control__frame_put(weft_control__buffer *b, uint32_t kind,
                                    const void *data, size_t bytes)
{
    uint8_t *p = weft_control__buffer_space(b, WEFT_CONTROL__HEAD + bytes);
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a frame of %zu bytes", bytes);
    write_u32(p, (uint32_t)bytes);
    write_u32(p + 4, kind);
    if (bytes) memcpy(p + WEFT_CONTROL__HEAD, data, bytes);
    b->n += WEFT_CONTROL__HEAD + bytes;
    return WEFT_OK;
}
