/* Inside the data room: a stream of tokens over the pieces of mapped files. */
#ifndef WEFT_DATA_DATA_PRIV_H
#define WEFT_DATA_DATA_PRIV_H

#include "base/arena.h"
#include "base/io.h"
#include "data/data.h"

typedef struct weft_data__piece {
    const uint8_t *p;     /* its first token's bytes, perhaps unaligned */
    int64_t        first; /* the number of that token in the stream */
    int            file;
} weft_data__piece;

typedef struct weft_data__stream {
    weft_arena       *arena;
    weft_dtype        dtype;
    weft_io_map      *map;  /* n_file */
    const char      **path; /* n_file */
    int               n_file, cap_map, cap_path;
    weft_data__piece *piece; /* n_piece, and one more that ends the last */
    int               n_piece, cap_piece;
    int64_t           n_token;
} weft_data__stream;

typedef enum weft_data__format {
    WEFT_DATA__BIN,
    WEFT_DATA__MEGATRON,
    WEFT_DATA__SAFETENSORS,
    WEFT_DATA__TEXT,
} weft_data__format;

weft_status weft_data__format_of(const char *path, const char *name,
                                 weft_data__format *out);
const char *weft_data__format_name(weft_data__format f);

/* Not for safetensors.  fini is fine on a zeroed or half-open stream. */
weft_status weft_data__stream_open(const char *path, weft_data__format f,
                                   weft_data__stream *s);
void        weft_data__stream_fini(weft_data__stream *s);
/* Tokens at .. at + n - 1; what does not fit int32 becomes -1. */
void weft_data__stream_read(const weft_data__stream *s, int64_t at, int64_t n,
                            int32_t *out);
/* Token `at` as it stands, and its file and position there. */
int64_t weft_data__stream_token(const weft_data__stream *s, int64_t at, const char **path,
                                int64_t *pos);
/* "x.bin" + ".idx" -> "x.idx", "x" + ".idx" -> "x.idx". */
char *weft_data__sibling(weft_arena *a, const char *path, const char *end);
/* n integers of type t, unaligned at p, as int32; what does not fit becomes -1. */
void    weft_data__widen(weft_dtype t, const uint8_t *p, int64_t n, int32_t *out);
int64_t weft_data__integer(weft_dtype t, const uint8_t *p);

/* Adds one file of the stream: the text files of a folder or pattern. */
weft_status weft_data__stream_add_file(weft_data__stream *s, const char *path, int *file);
weft_status weft_data__stream_add_piece(weft_data__stream *s, int file, int64_t at,
                                        int64_t n);
weft_status weft_data__text_open(const char *path, weft_data__stream *s);

/* The stream behind d, or NULL when d is rows of a safetensors file. */
const weft_data__stream *weft_data__stream_of(const weft_data *d);
weft_dtype               weft_data__rows_dtype(const weft_data *d); /* of those rows */

#endif
