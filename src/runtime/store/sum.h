/* A file written in one pass and summed while it goes: CRC32C of each fixed block, and
 * the length.
 *
 *     weft_store_out o;
 *     WEFT_TRY(weft_store_out_open(&o, path, bytes));   room is reserved, or ERR_FULL
 *     WEFT_GO(weft_store_out_put(&o, p, n));              any number of times
 *     WEFT_GO(weft_store_out_close(&o, &sum));            synced and closed
 *
 * (1) Exactly the announced number of bytes is written, or close says so.
 * (2) A sync that failed is never tried again: the file is lost, and the caller drops it.
 *     */
#ifndef WEFT_STORE_SUM_H
#define WEFT_STORE_SUM_H

#include <stdbool.h>

#include "base/status.h"

#define WEFT_STORE_BLOCK (4 << 20)

/* What was written.  n_block = ceil(bytes / WEFT_STORE_BLOCK). */
typedef struct weft_store_sum {
    int64_t   bytes;
    int64_t   n_block;
    uint32_t *crc; /* n_block of them; free with weft_store_sum_fini() */
} weft_store_sum;

void weft_store_sum_fini(weft_store_sum *s);
/* XXH64 of the block CRCs: one word for the whole file. */
uint64_t weft_store_sum_hash(const weft_store_sum *s);

typedef struct weft_store_out {
    int       fd; /* -1: not open */
    char     *path;
    uint8_t  *buf;
    size_t    n_buf;
    int64_t   want, done; /* bytes announced, bytes written out */
    int64_t   n_block;
    uint32_t *crc;
} weft_store_out;

/* Makes path, which must be new, for exactly bytes bytes, and reserves them. */
weft_status weft_store_out_open(weft_store_out *o, const char *path, int64_t bytes);
/* The same on a descriptor, which it takes, also on failure; path is its name in errors. */
weft_status weft_store_out_use(weft_store_out *o, int fd, const char *path,
                               int64_t bytes);
weft_status weft_store_out_put(weft_store_out *o, const void *p, size_t n);
/* Writes the rest, syncs and closes.  sum may be NULL. */
weft_status weft_store_out_close(weft_store_out *o, weft_store_sum *sum);
/* Gives up: closes without a word.  Fine after close and on a zeroed struct with fd
 * -1. */
void weft_store_out_drop(weft_store_out *o);

#endif
