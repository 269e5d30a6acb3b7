/* TensorBoard's format, by hand: a handful of protobuf fields.
 *
 *     Event   { 1 double wall_time; 2 int64 step; 3 string file_version; 5 Summary; 7 SessionLog }
 *     Summary { 1 Value { 1 string tag; 2 float simple_value } }
 *     SessionLog { 1 status: 1 = start }
 */
#include "session/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"

enum {
    MAX_TAG   = 128,
    MAX_EVENT = 256
};

struct weft_events {
    int  fd;
    char path[4096];
};

/* A message under construction. */
typedef struct msg {
    uint8_t b[MAX_EVENT];
    size_t  n;
} msg;

static void put_bytes(msg *m, const void *p, size_t n)
{
    memcpy(m->b + m->n, p, n);
    m->n += n;
}

static void put_varint(msg *m, uint64_t x)
{
    for (; x >= 0x80; x >>= 7) m->b[m->n++] = (uint8_t)(x | 0x80);
    m->b[m->n++] = (uint8_t)x;
}

enum {
    VARINT  = 0,
    FIXED64 = 1,
    LENGTH  = 2,
    FIXED32 = 5
};

static void put_field(msg *m, unsigned number, unsigned wire)
{
    put_varint(m, (uint64_t)number << 3 | wire);
}

static void put_nested(msg *m, unsigned number, const void *p, size_t n)
{
    put_field(m, number, LENGTH);
    put_varint(m, n);
    put_bytes(m, p, n);
}

static void put_le(uint8_t *p, uint64_t x, int n)
{
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(x >> 8 * i);
}

static msg event_start(int64_t step)
{
    msg      m    = {.n = 0};
    double   wall = weft_clock_wall_s();
    uint64_t bits;
    uint8_t  le[8];
    memcpy(&bits, &wall, 8);
    put_le(le, bits, 8);
    put_field(&m, 1, FIXED64);
    put_bytes(&m, le, 8);
    put_field(&m, 2, VARINT);
    put_varint(&m, (uint64_t)step);
    return m;
}

static uint32_t masked(const void *p, size_t n)
{
    uint32_t c = weft_hash_crc32c(0, p, n);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* Returns its bytes. */
static size_t put_record(uint8_t *r, const msg *m)
{
    put_le(r, m->n, 8);
    put_le(r + 8, masked(r, 8), 4);
    memcpy(r + 12, m->b, m->n);
    put_le(r + 12 + m->n, masked(m->b, m->n), 4);
    return m->n + 16;
}

static weft_status write_record(weft_events *e, const msg *m)
{
    uint8_t r[MAX_EVENT + 16];
    return weft_io_write(e->fd, e->path, r, put_record(r, m));
}

static weft_status write_head(weft_events *e, int64_t done)
{
    static const char version[] = "brain.Event:2";
    static const char start[]   = {VARINT | 1 << 3, 1};
    msg               m         = event_start(0);
    put_nested(&m, 3, version, sizeof version - 1);
    WEFT_TRY(write_record(e, &m));
    m = event_start(done + 1);
    put_nested(&m, 7, start, sizeof start);
    return write_record(e, &m);
}

weft_status weft_events_open(const char *dir, int64_t done, weft_events **out)
{
    char         host[256] = "localhost";
    weft_events *e         = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < 1000; i++) { /* two runs within a second */
        snprintf(e->path, sizeof e->path, "%s/events.out.tfevents.%lld.%s%s%.0d", dir,
                 (long long)weft_clock_wall_s(), host, i ? "." : "", i);
        if (!weft_io_exists(e->path)) break;
    }
    weft_status st = weft_io_open_write(e->path, true, &e->fd);
    if (st != WEFT_OK) {
        free(e);
        return st;
    }
    st = write_head(e, done);
    if (st != WEFT_OK) {
        weft_events_close(e);
        return st;
    }
    *out = e;
    return WEFT_OK;
}

static msg make_scalar(int64_t step, const weft_events_scalar *s)
{
    msg      m = event_start(step), v = {.n = 0}, summary = {.n = 0};
    float    x = (float)s->value;
    uint32_t bits;
    uint8_t  le[4];
    put_nested(&v, 1, s->tag, strnlen(s->tag, MAX_TAG));
    memcpy(&bits, &x, 4);
    put_le(le, bits, 4);
    put_field(&v, 2, FIXED32);
    put_bytes(&v, le, 4);
    put_nested(&summary, 1, v.b, v.n);
    put_nested(&m, 5, summary.b, summary.n);
    return m;
}

weft_status weft_events_add(weft_events *e, int64_t step, const weft_events_scalar *s,
                            int n)
{
    uint8_t r[WEFT_EVENTS_MAX * (MAX_EVENT + 16)];
    size_t  at = 0;
    for (int i = 0; i < n && i < WEFT_EVENTS_MAX; i++) {
        msg m = make_scalar(step, &s[i]);
        at += put_record(r + at, &m);
    }
    return weft_io_write(e->fd, e->path, r, at);
}

weft_status weft_events_close(weft_events *e)
{
    if (!e) return WEFT_OK;
    weft_status st = weft_io_close(e->fd, e->path);
    free(e);
    return st;
}
