/* A stream of tokens.  In: a path and its format.  Out: pieces of files that read as one
 * run of integers.  Neighbours in a file are one piece, so the usual Megatron pair is a
 * single one. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/data_priv.h"
#include "data/idx.h"

#define READ_BYTES (1 << 14) /* in one read; a multiple of 8 */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n > m && strcasecmp(s + n - m, end) == 0;
}

char *weft_data__sibling(weft_arena *a, const char *path, const char *end)
{
    size_t n = strlen(path);

    if (ends_with(path, ".bin") || ends_with(path, ".idx")) {
        n -= 4;
        if (isupper((unsigned char)path[n + 3])) /* X.BIN, X.IDX */
            end = !strcmp(end, ".bin") ? ".BIN" : ".IDX";
    }
    return weft_arena_printf(a, "%.*s%s", (int)n, path, end);
}

static bool sibling_exists(const char *path, const char *end)
{
    weft_arena *a = NULL;
    char       *s;
    bool        is;

    if (weft_arena_create(&a) != WEFT_OK) return false;
    s  = weft_data__sibling(a, path, end);
    is = s && weft_io_exists(s);
    weft_arena_destroy(a);
    return is;
}

static const char *const format_name[] = {"bin",      "u16",         "u32",
                                          "megatron", "safetensors", "text"};

const char *weft_data__format_name(weft_data__format f)
{
    return format_name[f];
}

weft_status weft_data__format_of(const char *path, const char *name,
                                 weft_data__format *out)
{
    if (name) {
        for (size_t i = 0; i < WEFT_COUNT(format_name); i++)
            if (strcmp(name, format_name[i]) == 0) {
                *out = (weft_data__format)i;
                return WEFT_OK;
            }
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "data format '%s' is unknown: bin, u16, u32, megatron, safetensors or text",
            name);
    }
    if (!weft_io_exists(path) && strpbrk(path, "*?["))
        *out = WEFT_DATA__TEXT; /* a pattern: what it matches is looked at there */
    else if (ends_with(path, ".safetensors"))
        *out = WEFT_DATA__SAFETENSORS;
    else if (ends_with(path, ".idx"))
        *out = WEFT_DATA__MEGATRON;
    else if (ends_with(path, ".bin"))
        *out = sibling_exists(path, ".idx") ? WEFT_DATA__MEGATRON : WEFT_DATA__BIN;
    else if (!weft_io_exists(path) && sibling_exists(path, ".idx"))
        *out = WEFT_DATA__MEGATRON;
    else
        *out = WEFT_DATA__TEXT;
    return WEFT_OK;
}

bool weft_data_is_text(const char *path, const char *format)
{
    weft_data__format f;

    return weft_data__format_of(path, format, &f) == WEFT_OK && f == WEFT_DATA__TEXT;
}

weft_status weft_data__stream_add_file(weft_data__stream *s, const char *path, int *file)
{
    int   n = s->n_file;
    char *name;

    WEFT_TRY(weft_arena_grow(s->arena, (void **)&s->file, &s->cap_file, n + 1,
                             sizeof s->file[0]));
    name = weft_arena_strdup(s->arena, path);
    if (!name) return weft_arena_status(s->arena);
    WEFT_TRY(weft_io_file_open(name, s->keep_fd, &s->file[n]));
    s->n_file++;
    *file = n;
    return WEFT_OK;
}

/* n tokens from byte `at` of the file on. */
weft_status weft_data__stream_add_piece(weft_data__stream *s, int file, int64_t at,
                                        int64_t n)
{
    weft_data__piece *last = s->n_piece ? &s->piece[s->n_piece - 1] : NULL;
    int64_t           w    = weft_dtype_bytes(s->dtype);

    if (n == 0) return WEFT_OK;
    if (!last || last->file != file || last->at + (s->n_token - last->first) * w != at) {
        WEFT_TRY(weft_arena_grow(s->arena, (void **)&s->piece, &s->cap_piece,
                                 s->n_piece + 2, sizeof s->piece[0]));
        s->piece[s->n_piece++] = (weft_data__piece){at, s->n_token, file};
    }
    s->n_token += n;
    s->piece[s->n_piece] = (weft_data__piece){0, s->n_token, file};
    return WEFT_OK;
}

/* Raw integers, perhaps after a header. */
static weft_status open_raw(const char *path, weft_data__format f, weft_data__stream *s)
{
    weft_data__raw raw = {f == WEFT_DATA__U32 ? WEFT_DTYPE_U32 : WEFT_DTYPE_U16, 0, NULL};
    int64_t        bytes, w;
    int            file;

    WEFT_TRY(weft_data__stream_add_file(s, path, &file));
    if (f == WEFT_DATA__BIN) WEFT_TRY(weft_data__raw_find(&s->file[file], &raw));
    s->dtype = raw.dtype;
    s->note  = raw.note;
    w        = weft_dtype_bytes(raw.dtype);
    bytes    = s->file[file].bytes - raw.at;
    if (bytes % w != 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %lld bytes are no whole number of %s tokens",
                         path, (long long)bytes, weft_dtype_name(raw.dtype));
    return weft_data__stream_add_piece(s, file, raw.at, bytes / w);
}

static weft_status open_megatron(const char *path, weft_data__stream *s)
{
    char         *bin = weft_data__sibling(s->arena, path, ".bin");
    char         *idx = weft_data__sibling(s->arena, path, ".idx");
    weft_io_map   map = {0};
    weft_data_idx x;
    int           file;
    weft_status   st = WEFT_OK;

    WEFT_TRY(weft_arena_status(s->arena));
    WEFT_TRY(weft_data__stream_add_file(s, bin, &file));
    WEFT_TRY(weft_io_map_file(idx, &map));
    WEFT_GO(weft_data_idx_parse(idx, map.p, map.n, s->file[file].bytes, &x));
    s->dtype = x.dtype;
    for (int64_t i = 0; i < x.n_seq; i++)
        WEFT_GO(weft_data__stream_add_piece(s, file, weft_data_idx_offset(&x, i),
                                            weft_data_idx_length(&x, i)));
out:
    weft_io_unmap(&map);
    return st;
}

weft_status weft_data__stream_open(const char *path, weft_data__format f, bool forced,
                                   weft_data__stream *s)
{
    weft_status st = WEFT_OK;

    *s = (weft_data__stream){.keep_fd = true};
    WEFT_TRY(weft_arena_create(&s->arena));
    if (f == WEFT_DATA__MEGATRON)
        WEFT_GO(open_megatron(path, s));
    else if (f == WEFT_DATA__TEXT)
        WEFT_GO(weft_data__text_open(path, forced, s));
    else
        WEFT_GO(open_raw(path, f, s));
out:
    if (st != WEFT_OK) weft_data__stream_fini(s);
    return st;
}

void weft_data__stream_fini(weft_data__stream *s)
{
    for (int i = 0; i < s->n_file; i++) weft_io_file_close(&s->file[i]);
    weft_arena_destroy(s->arena);
    *s = (weft_data__stream){0};
}

int64_t weft_data__integer(weft_dtype t, const uint8_t *p)
{
    uint64_t v = 0;
    int      n = weft_dtype_bytes(t);

    for (int i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    switch (t) {
    case WEFT_DTYPE_I8: return (int8_t)v;
    case WEFT_DTYPE_I16: return (int16_t)v;
    case WEFT_DTYPE_I32: return (int32_t)v;
    default: return (int64_t)v;
    }
}

/* n integers of type t, unaligned at p, as int32; what does not fit becomes -1. */
static void widen(weft_dtype t, const uint8_t *p, int64_t n, int32_t *out)
{
    int w = weft_dtype_bytes(t);

    if (t == WEFT_DTYPE_U8) {
        for (int64_t i = 0; i < n; i++) out[i] = p[i];
    } else if (t == WEFT_DTYPE_U16) {
        for (int64_t i = 0; i < n; i++) out[i] = p[2 * i] | p[2 * i + 1] << 8;
    } else if (t == WEFT_DTYPE_I32) {
        memcpy(out, p, (size_t)n * 4);
    } else {
        for (int64_t i = 0; i < n; i++) {
            int64_t v = weft_data__integer(t, p + i * w);

            out[i] = v == (int32_t)v ? (int32_t)v : -1;
        }
    }
}

weft_status weft_data__read(const weft_io_file *f, weft_dtype t, int64_t at, int64_t n,
                            int32_t *out)
{
    uint8_t buf[READ_BYTES];
    int64_t w = weft_dtype_bytes(t);

    for (int64_t k; n > 0; n -= k, out += k, at += k * w) {
        k = n * w < READ_BYTES ? n : READ_BYTES / w;
        WEFT_TRY(weft_io_file_read(f, at, buf, (size_t)(k * w)));
        widen(t, buf, k, out);
    }
    return WEFT_OK;
}

static const weft_data__piece *piece_of(const weft_data__stream *s, int64_t at)
{
    int lo = 0, hi = s->n_piece - 1;

    while (lo < hi) {
        int mid = lo + (hi - lo + 1) / 2;

        if (s->piece[mid].first <= at)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &s->piece[lo];
}

weft_status weft_data__stream_read(const weft_data__stream *s, int64_t at, int64_t n,
                                   int32_t *out)
{
    int64_t w = weft_dtype_bytes(s->dtype);

    for (const weft_data__piece *p = piece_of(s, at); n > 0; p++) {
        int64_t k = p[1].first - at < n ? p[1].first - at : n;

        WEFT_TRY(weft_data__read(&s->file[p->file], s->dtype, p->at + (at - p->first) * w,
                                 k, out));
        at += k;
        out += k;
        n -= k;
    }
    return WEFT_OK;
}

weft_status weft_data__stream_token(const weft_data__stream *s, int64_t at,
                                    const char **path, int64_t *pos, int64_t *id)
{
    const weft_data__piece *p = piece_of(s, at);
    int64_t                 w = weft_dtype_bytes(s->dtype);
    int64_t                 b = p->at + (at - p->first) * w;
    uint8_t                 buf[8];

    WEFT_TRY(weft_io_file_read(&s->file[p->file], b, buf, (size_t)w));
    *path = s->file[p->file].path;
    *pos  = b / w;
    *id   = weft_data__integer(s->dtype, buf);
    return WEFT_OK;
}
