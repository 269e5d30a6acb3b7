/* Shared by the files of the room. */
#ifndef WEFT_PARTITION_PRIV_H
#define WEFT_PARTITION_PRIV_H

#include "partition/partition.h"

/* A block of memory wanted during [first, last]. */
typedef struct weft_partition__block {
    int64_t bytes, offset;
    int     first, last;
} weft_partition__block;

/* Gives each block an offset so that blocks alive at the same time do not overlap; *total is the room
 * needed.  The same blocks give the same offsets. */
weft_status weft_partition__pack(weft_partition__block *b, int n, weft_arena *tmp,
                                 int64_t *total);

#endif
