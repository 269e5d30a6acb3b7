/* The rules of coalescing: which collectives share one call.  The passes that fill buckets (spmd,
 * partition) follow them, and so do the planner's and the cost model's counts of calls.
 *
 *     weft_coalesce_bucket b = {.limit = weft_coalesce_limit(bucket_bytes)};
 *     while (more && !weft_coalesce_is_complete(&b)) weft_coalesce_add(&b, bytes);
 *
 * Collectives join a bucket in the order in which they come; the one with which it has its bytes is
 * its last. */
#ifndef WEFT_PROGRAM_COALESCE_H
#define WEFT_PROGRAM_COALESCE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    /* enough for one call: more takes memory and saves no time */
    WEFT_COALESCE_BYTES = 8 << 20,
    /* gradients that wait in the backward pass take memory: one bucket is at most this fraction
     * of all that are reduced there */
    WEFT_COALESCE_BACKWARD_PARTS = 8
};

/* A bucket while it fills. */
typedef struct weft_coalesce_bucket {
    int64_t limit; /* bytes with which it is complete */
    int64_t bytes; /* of what has joined it */
} weft_coalesce_bucket;

static inline bool weft_coalesce_is_complete(const weft_coalesce_bucket *b)
{
    return b->bytes >= b->limit;
}

static inline void weft_coalesce_add(weft_coalesce_bucket *b, int64_t bytes)
{
    b->bytes += bytes;
}

/* Bytes after which a bucket of coalesced collectives is complete; bucket_bytes 0: not given. */
static inline int64_t weft_coalesce_limit(int64_t bucket_bytes)
{
    return bucket_bytes > 0 && bucket_bytes < WEFT_COALESCE_BYTES ? bucket_bytes
                                                                  : WEFT_COALESCE_BYTES;
}

/* The same in the backward pass, which reduces `all` bytes of gradients in one step. */
static inline int64_t weft_coalesce_backward_limit(int64_t bucket_bytes, int64_t all)
{
    int64_t limit = weft_coalesce_limit(bucket_bytes);
    if (all / WEFT_COALESCE_BACKWARD_PARTS < limit)
        limit = all / WEFT_COALESCE_BACKWARD_PARTS;
    return limit < 1 ? 1 : limit;
}

/* The buckets of that pass, of which whole ones would be n. */
static inline double weft_coalesce_backward_count(int64_t bucket_bytes, int64_t all,
                                                  double n)
{
    bool whole = weft_coalesce_backward_limit(bucket_bytes, all) ==
                 weft_coalesce_limit(bucket_bytes);
    return whole ? n : WEFT_COALESCE_BACKWARD_PARTS;
}

#endif
