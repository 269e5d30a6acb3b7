/* One safetensors file, memory-mapped and checked before anything is believed:
 *
 *     u64 header length | JSON header | tensor bytes, little-endian, row-major
 *
 *     weft_store_file *f;
 *     WEFT_TRY(weft_store_open("model.safetensors", &f));
 *     const weft_store_tensor *t = weft_store_find(f, "wte.weight");
 *     ...
 *     weft_store_close(f);
 *
 * A file that opens is whole: every byte of the data belongs to exactly one tensor, sizes
 * agree with shapes, names are unique.  A file that is not is WEFT_ERR_ARG with one line
 * that names it. Read-only and safe from any thread once open. */
#ifndef WEFT_STORE_SAFETENSORS_H
#define WEFT_STORE_SAFETENSORS_H

#include "store/sum.h"
#include "weft/tensor.h"

typedef struct weft_store_file weft_store_file;

typedef struct weft_store_tensor {
    const weft_store_file *file;
    const char            *name;
    weft_dtype             dtype;
    weft_shape             shape;
    int64_t                begin, bytes; /* begin counts from the end of the header */
    /* Mapped, and perhaps unaligned.  weft_store_read() where the file may have become shorter
     * since. */
    const void *data;
} weft_store_tensor;

typedef struct weft_store_pair {
    const char *key, *value;
} weft_store_pair;

weft_status weft_store_open(const char *path, weft_store_file **out);
/* The same over memory that the caller keeps while the file is open; name is for
 * messages. */
weft_status weft_store_parse(const char *name, const void *p, size_t n,
                             weft_store_file **out);
void        weft_store_close(weft_store_file *f); /* accepts NULL */

const char *weft_store_path(const weft_store_file *f);
int         weft_store_count(const weft_store_file *f);
/* In the header's order. */
const weft_store_tensor *weft_store_at(const weft_store_file *f, int i);
/* In the data's order. */
const weft_store_tensor *weft_store_at_data(const weft_store_file *f, int i);
/* NULL: the file has no tensor of that name. */
const weft_store_tensor *weft_store_find(const weft_store_file *f, const char *name);
/* Bytes offset .. offset + n - 1 of a tensor, copied by reading the file: WEFT_ERR_IO, in one
 * line, where it was truncated since it was opened or cannot be read.  Through data that would be
 * SIGBUS. */
weft_status weft_store_read(const weft_store_tensor *t, int64_t offset, void *buf,
                            size_t n);
/* The header's JSON as it stands in the file, padding included. */
const char *weft_store_header(const weft_store_file *f, size_t *n);
int64_t     weft_store_data_bytes(const weft_store_file *f);
/* __metadata__, in the order written. */
int                    weft_store_meta_count(const weft_store_file *f);
const weft_store_pair *weft_store_meta(const weft_store_file *f, int i);

/* --- writing --- */

/* Where a tensor's bytes come from: memory, or a function that yields bytes
 * [offset, offset + n) of its row-major little-endian form. */
typedef struct weft_store_source {
    const void *data;
    weft_status (*read)(void *arg, int64_t offset, void *buf, size_t n);
    void *arg;
} weft_store_source;

typedef struct weft_store_item {
    const char       *name;
    weft_dtype        dtype;
    weft_shape        shape;
    weft_store_source from;
} weft_store_item;

/* What a file shall hold, in which order.  Either item: a new header is made, data in the
 * given order (put wider types first and every tensor is aligned).  Or like: header,
 * order and layout are that file's; item[] then replaces the bytes of the tensors it
 * names, and what it does not name is copied. */
typedef struct weft_store_spec {
    const weft_store_item *item;
    int                    n_item;
    const weft_store_pair *meta;
    int                    n_meta;
    const weft_store_file *like;
} weft_store_spec;

/* Streaming: header first, then the data in the spec's order in pieces of any size.
 * writer_create checks the spec; begin opens and reserves; put_all asks the sources. */
typedef struct weft_store_writer weft_store_writer;
weft_status                      weft_store_writer_create(const weft_store_spec *spec,
                                                          weft_store_writer    **out);
int64_t weft_store_writer_bytes(const weft_store_writer *w); /* of the whole file */
/* Before begin: spaces after the header, so that the data begins at a multiple of `align` bytes. */
weft_status weft_store_writer_align(weft_store_writer *w, int64_t align);
/* All that is in front of the data, the length word included. */
const char *weft_store_writer_header(const weft_store_writer *w, size_t *n);
weft_status weft_store_writer_begin(weft_store_writer *w, const char *path);
weft_status weft_store_writer_put_all(weft_store_writer *w);
/* sum may be NULL. */
weft_status weft_store_writer_end(weft_store_writer *w, weft_store_sum *sum);
void        weft_store_writer_destroy(weft_store_writer *w);

/* All of it under a temporary name, then renamed and the directory synced: old or new. */
weft_status weft_store_write(const char *path, const weft_store_spec *spec);

#endif
