/* The rules of coalescing: how many bytes of collectives share one call.  The passes over local
 * graphs (spmd) follow them, and so do the planner's and the cost model's counts of calls. */
#ifndef WEFT_PROGRAM_COALESCE_H
#define WEFT_PROGRAM_COALESCE_H

#include <stdint.h>

enum {
    /* enough for one call: more takes memory and saves no time */
    WEFT_COALESCE_BYTES = 8 << 20,
    /* gradients that wait in the backward pass take memory: one bucket is at most this fraction
     * of all that are reduced there */
    WEFT_COALESCE_BACKWARD_PARTS = 8
};

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

#endif
