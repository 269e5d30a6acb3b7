/* Inside the data module: a stream of tokens over pieces of files.  Files are read by pread,
 * never mapped: one that is truncated while a job trains is an error of that read, not the end of
 * the process. */
#ifndef WEFT_DATA_DATA_PRIV_H
#define WEFT_DATA_DATA_PRIV_H

#include "base/arena.h"
#include "base/io.h"
#include "data/data.h"
#include "store/safetensors.h"

typedef struct weft_data__piece {
    int64_t at;    /* the byte of its first token in the file */
    int64_t first; /* the number of that token in the stream */
    int     file;
} weft_data__piece;

typedef struct weft_data__stream {
    weft_arena       *arena;
    weft_dtype        dtype;
    weft_io_file     *file; /* n_file */
    int               n_file, cap_file;
    bool              keep_fd; /* of the files added */
    weft_data__piece *piece;   /* n_piece, and one more that ends the last */
    int               n_piece, cap_piece;
    int64_t           n_token;
    const char       *note; /* what was found out by looking, for people; NULL: nothing */
} weft_data__stream;

typedef enum weft_data__format {
    WEFT_DATA__BIN, /* by its content: u16, u32, or llm.c's */
    WEFT_DATA__U16,
    WEFT_DATA__U32,
    WEFT_DATA__MEGATRON,
    WEFT_DATA__SAFETENSORS,
    WEFT_DATA__TEXT,
} weft_data__format;

/* name NULL: by the path. */
weft_status weft_data__format_of(const char *path, const char *name,
                                 weft_data__format *out);
const char *weft_data__format_name(weft_data__format f);

/* Not for safetensors.  forced: the user named the format, so text is not doubted.  fini accepts a
 * zeroed or half-open stream. */
weft_status weft_data__stream_open(const char *path, weft_data__format f, bool forced,
                                   weft_data__stream *s);
void        weft_data__stream_fini(weft_data__stream *s);
/* Tokens at .. at + n - 1; what does not fit int32 becomes -1. */
weft_status weft_data__stream_read(const weft_data__stream *s, int64_t at, int64_t n,
                                   int32_t *out);
/* Token `at` as it stands, and its file and position there. */
weft_status weft_data__stream_token(const weft_data__stream *s, int64_t at,
                                    const char **path, int64_t *pos, int64_t *id);
/* "x.bin" + ".idx" -> "x.idx", "X.BIN" + ".idx" -> "X.IDX", "x" + ".idx" -> "x.idx". */
char *weft_data__sibling(weft_arena *a, const char *path, const char *end);
/* n integers of type t from byte `at` of a file on, as int32; what does not fit becomes -1. */
weft_status weft_data__read(const weft_io_file *f, weft_dtype t, int64_t at, int64_t n,
                            int32_t *out);
int64_t     weft_data__integer(weft_dtype t, const uint8_t *p);

/* Adds one file of the stream: the text files of a folder or pattern. */
weft_status weft_data__stream_add_file(weft_data__stream *s, const char *path, int *file);
weft_status weft_data__stream_add_piece(weft_data__stream *s, int file, int64_t at,
                                        int64_t n);
weft_status weft_data__text_open(const char *path, bool forced, weft_data__stream *s);

/* kind.c: what a file is, by the ending of its name. */
typedef enum weft_data__kind {
    WEFT_DATA__KIND_TEXT,    /* a known ending of text or source code */
    WEFT_DATA__KIND_PLAIN,   /* no ending: its bytes decide */
    WEFT_DATA__KIND_TOKENS,  /* .bin, .idx, .safetensors */
    WEFT_DATA__KIND_FOREIGN, /* samples in a format that is not read: .jsonl, .npy, .gz */
    WEFT_DATA__KIND_OTHER,   /* any other ending */
} weft_data__kind;
weft_data__kind weft_data__kind_of(const char *path);
const char     *weft_data__ending(const char *path); /* "txt"; "" none */
/* WEFT_ERR_ARG: why a file of this kind is not read as text, and what to do. */
weft_status weft_data__refuse_kind(const char *path);
/* The first of n bytes that no text has (NUL, control characters), or -1. */
int64_t weft_data__find_binary(const uint8_t *p, int64_t n);

/* raw.c: what integers a .bin holds, by looking at it. */
typedef struct weft_data__raw {
    weft_dtype  dtype; /* u16 or u32 */
    int64_t     at;    /* the byte of the first token */
    const char *note;  /* NULL: plain u16 */
} weft_data__raw;
weft_status weft_data__raw_find(const weft_io_file *f, weft_data__raw *out);

/* Tensors of a file of rows that weft does not apply, but must agree with. */
typedef enum weft_data__extra {
    WEFT_DATA__MASK,      /* attention_mask */
    WEFT_DATA__TYPES,     /* token_type_ids */
    WEFT_DATA__POSITIONS, /* position_ids */
    WEFT_DATA__DECODER,   /* decoder_input_ids */
    WEFT_DATA__N_EXTRA
} weft_data__extra;

struct weft_data {
    weft_data_options        o;
    weft_data__format        format;
    weft_data__stream        stream; /* all but safetensors */
    weft_store_file         *rows;   /* its header; NULL: a stream */
    weft_io_file             file;   /* of the rows */
    int64_t                  n_head; /* bytes before its tensors */
    const weft_store_tensor *ids, *labels;
    const weft_store_tensor *extra[WEFT_DATA__N_EXTRA]; /* NULL: not in the file */
    int64_t                  seq, n_sample;
    int64_t                  max_id;  /* of a stream that was scanned, else -1 */
    int64_t                  n_label; /* that count, of rows that were scanned, else -1 */
    bool                     decoder_differs; /* of rows that were scanned */
    uint64_t                 id, content_id;
};

/* rows.c: what a file of rows says beside input_ids and labels. */
weft_status weft_data__rows_find(const char *path, weft_data *d);
bool        weft_data__rows_knows(const weft_data *d, const weft_store_tensor *t);
/* Row `row` means without those tensors what it means with them.  labels are the file's. */
weft_status weft_data__rows_check(const weft_data *d, int64_t row, const int32_t *labels);
/* *differs becomes true where the row's decoder_input_ids are not what the decoder will see. */
weft_status weft_data__rows_compare_decoder(const weft_data *d, int64_t row,
                                            const int32_t *labels, bool *differs);
/* Elements at .. at + n - 1 of a tensor of the rows. */
weft_status weft_data__read_elements(const weft_data *d, const weft_store_tensor *t,
                                     int64_t at, int64_t n, int32_t *out);

/* The stream of d, or NULL when d is rows of a safetensors file. */
const weft_data__stream *weft_data__stream_of(const weft_data *d);
weft_dtype               weft_data__rows_dtype(const weft_data *d); /* of those rows */

#endif
