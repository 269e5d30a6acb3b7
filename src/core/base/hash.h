/* Hashes and checksums. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH64 (its published definition), all at once and as a stream. */
uint64_t weft_hash_xxh64(const void *p, size_t n, uint64_t seed);

typedef struct weft_hash_state {
    uint64_t acc[4], total, seed;
    uint8_t  buf[32];
    size_t   n_buf;
} weft_hash_state;
void     weft_hash_init(weft_hash_state *h, uint64_t seed);
void     weft_hash_add(weft_hash_state *h, const void *p, size_t n);
uint64_t weft_hash_value(const weft_hash_state *h);

/* CRC32C (Castagnoli); crc is the value so far, 0 at the start.  Uses SSE4.2 where there is. */
uint32_t weft_hash_crc32c(uint32_t crc, const void *p, size_t n);

#endif
