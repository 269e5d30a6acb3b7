/* What one rank has to write of one block of a file: where the state has it, or a copy. */
#ifndef WEFT_STATE_SNAPSHOT_BLOCK_H
#define WEFT_STATE_SNAPSHOT_BLOCK_H

#include <sys/uio.h>

#include "base/hash.h"
#include "state/move.h"
#include "state/snapshot.h"

/* Bytes [lo, hi) of a block. */
typedef struct weft_block_run {
    int64_t lo, hi;
} weft_block_run;

/* A block of a file: which one, what this rank writes of it, and where that is in memory; zeroed to
 * begin with. */
typedef struct weft_block {
    int             file;
    int64_t         number, n; /* of the block in the file; its bytes */
    bool            whole;     /* this rank writes all of it */
    int64_t         own;       /* bytes that this rank writes; -1: not known yet */
    int             n_run, cap_run;
    weft_block_run *run; /* where they are; they ascend where one holder has them */
    uint8_t        *p; /* a buffer that has all n; NULL: parts are of the state itself */
    int             n_part, cap_part;
    struct iovec   *part; /* n bytes in order */
} weft_block;

void weft_block_fini(weft_block *b);

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
    int64_t                     mapped; /* bytes of the block whose place is known */
    char                       *raw, *converted;
    float                      *numbers;
} weft_block_copier;

weft_status weft_block_copier_init(weft_block_copier          *c,
                                   const weft_snapshot_source *source,
                                   const weft_snapshot_file   *file);
void        weft_block_copier_fini(weft_block_copier *c);

/* Block `number` of a file: whose it is.  b->own is 0: other ranks write all of it. */
weft_status weft_block_find(weft_block_copier *c, int file, int64_t number,
                            weft_block *b);
/* Where the state has the block, without a copy, in parts whose addresses and lengths are multiples
 * of align; false: it must be copied. */
weft_status weft_block_map(weft_block_copier *c, int64_t align, weft_block *b,
                           bool *mapped);
/* Into p, WEFT_STORE_BLOCK bytes, where it is on return. */
weft_status weft_block_copy(weft_block_copier *c, uint8_t *p, weft_block *b);
/* CRC32C of its n bytes. */
uint32_t weft_block_sum(const weft_block *b);

void weft_item_hasher_init(weft_item_hasher *h, const weft_snapshot_file *file,
                           uint64_t *hash);
/* The next block of the file, in order. */
void weft_item_hasher_add(weft_item_hasher *h, const weft_block *b);
/* All items are hashed. */
bool weft_item_hasher_is_done(const weft_item_hasher *h);

#endif
