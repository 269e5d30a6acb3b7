/* What one rank has to write of one block of a file, copied out of the state. */
#ifndef WEFT_STATE_SNAPSHOT_BLOCK_H
#define WEFT_STATE_SNAPSHOT_BLOCK_H

#include "base/hash.h"
#include "state/move.h"
#include "state/snapshot.h"

/* Bytes [lo, hi) of a block. */
typedef struct weft_block_run {
    int64_t lo, hi;
} weft_block_run;

/* A block in memory; zeroed to begin with, but for p. */
typedef struct weft_block_buffer {
    uint8_t        *p;      /* WEFT_STORE_BLOCK bytes, aligned */
    weft_memory     memory; /* of p, where a device has allocated it */
    int             file;
    int64_t         number, n; /* of the block in the file; its bytes */
    int64_t         own;       /* bytes that this rank writes */
    int             n_run, cap_run;
    weft_block_run *run; /* where they are; they ascend where one holder has them */
} weft_block_buffer;

/* Hashes of the items of a file, from its blocks as they come. */
typedef struct weft_item_hasher {
    const weft_snapshot_file *file;
    uint64_t                 *hash; /* of each item */
    int                       item; /* that the next byte is of, */
    int64_t                   at;   /* where it begins in the file, */
    int64_t                   block;
    weft_hash_state           state;  /* and the hash so far */
    bool                      broken; /* a block was not as a whole here */
} weft_item_hasher;

/* Memory for copying blocks one after another. */
typedef struct weft_block_copier {
    const weft_snapshot_source *source;
    const weft_snapshot_file   *file;
    weft_stream                *stream; /* that copies; NULL: host code does */
    weft_move_list              list;
    int64_t                    *held;   /* bytes of a block, by rank */
    int                         writer; /* of the block: holds most of it */
    char                       *raw, *converted;
    float                      *numbers;
} weft_block_copier;

weft_status weft_block_copier_init(weft_block_copier          *c,
                                   const weft_snapshot_source *source,
                                   const weft_snapshot_file   *file);
void        weft_block_copier_fini(weft_block_copier *c);

/* Block `number` of a file into b, where it is on return; b->own 0: other ranks write all of it. */
weft_status weft_block_copy(weft_block_copier *c, int file, int64_t number,
                            weft_block_buffer *b);

void weft_item_hasher_init(weft_item_hasher *h, const weft_snapshot_file *file,
                           uint64_t *hash);
/* The next block of the file, in order. */
void weft_item_hasher_add(weft_item_hasher *h, const weft_block_buffer *b);
/* All items are hashed. */
bool weft_item_hasher_is_done(const weft_item_hasher *h);

#endif
