/* Numbers and texts as bytes, least significant first, and back; never past either end. */
#ifndef WEFT_REGISTER_BYTES_H
#define WEFT_REGISTER_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct weft_bytes_writer {
    uint8_t *p;
    size_t   n, cap;
    bool     full; /* something did not fit */
} weft_bytes_writer;

static inline void weft_bytes_put(weft_bytes_writer *w, const void *p, size_t n)
{
    if (w->full || n > w->cap - w->n) {
        w->full = true;
        return;
    }
    if (n) memcpy(w->p + w->n, p, n);
    w->n += n;
}

static inline void weft_bytes_put_number(weft_bytes_writer *w, uint64_t x, int bytes)
{
    uint8_t b[8];
    for (int k = 0; k < bytes; k++) b[k] = (uint8_t)(x >> (8 * k));
    weft_bytes_put(w, b, (size_t)bytes);
}

/* Up to 255 characters of s. */
static inline void weft_bytes_put_text(weft_bytes_writer *w, const char *s)
{
    size_t n = strlen(s);
    if (n > 255) n = 255;
    weft_bytes_put_number(w, n, 1);
    weft_bytes_put(w, s, n);
}

typedef struct weft_bytes_reader {
    const uint8_t *p;
    size_t         n;   /* left */
    bool           bad; /* something was missing */
} weft_bytes_reader;

/* The next n bytes, or NULL. */
static inline const uint8_t *weft_bytes_get(weft_bytes_reader *r, size_t n)
{
    if (r->bad || n > r->n) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->p;
    r->p += n;
    r->n -= n;
    return p;
}

static inline uint64_t weft_bytes_get_number(weft_bytes_reader *r, int bytes)
{
    const uint8_t *p = weft_bytes_get(r, (size_t)bytes);
    uint64_t       x = 0;
    for (int k = 0; p && k < bytes; k++) x |= (uint64_t)p[k] << (8 * k);
    return x;
}

/* A text without NUL that fits `cap` with its end; else the reader is bad, and out is empty. */
static inline void weft_bytes_get_text(weft_bytes_reader *r, char *out, size_t cap)
{
    size_t         n = (size_t)weft_bytes_get_number(r, 1);
    const uint8_t *p = weft_bytes_get(r, n);
    *out             = 0;
    if (!p || n >= cap || memchr(p, 0, n)) {
        r->bad = true;
        return;
    }
    memcpy(out, p, n);
    out[n] = 0;
}

#endif
