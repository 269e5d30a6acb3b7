/* A state as it is after one step, written into files while later steps compute.
 *
 *     weft_snapshot *s;
 *     WEFT_TRY(weft_snapshot_start(&source, file, n_file, &options, &s));      returns at once
 *     ...                                                    forward and backward of the next step
 *     weft_snapshot_wait(s, WEFT_SNAPSHOT_COPIED, 10);       before anything writes the state
 *     ...                                                    more steps
 *     weft_snapshot_wait(s, WEFT_SNAPSHOT_WRITTEN, 0.25);
 *     digests = weft_snapshot_blocks(s, &n);                 of what this rank wrote, to rank 0
 *     weft_snapshot_close(s);
 *
 * The files hold whole tensors, and are there already; every rank writes what it is the one to
 * write, in place, by blocks of WEFT_STORE_BLOCK bytes.
 * (1) Every byte is written by exactly one rank.  A block is assigned to the rank that holds most
 *     of it, to replicas alternately; what that rank does not hold of it, its holders write: no
 *     byte goes from rank to rank.
 * (2) Who writes what follows from the table of holders alone: ranks exchange nothing here.
 * (3) Blocks go past the cache (O_DIRECT) where a rank has all of one and the file system allows
 *     it, and then out of the state itself where host code reaches that and it is aligned as the
 *     file is, but for what would not be written in time.  That and all others one thread copies
 *     into buffers, at most staging_bytes; others sum and write.  Out of memory that host code does
 *     not reach a stream of the snapshot's own copies, into pinned buffers; with a second state of
 *     the same layout (options.copy) all of the state goes there first, at the device's speed, and
 *     may change when it is there.
 * (4) CRC32C is linear: of blocks of which ranks have disjoint bytes, the others zero, the
 *     checksum of the whole follows from theirs (weft_snapshot_sum).
 * (5) After an error, or weft_snapshot_cancel(), no further block is read from the state; what is
 *     under way does not count. */
#ifndef WEFT_STATE_SNAPSHOT_H
#define WEFT_STATE_SNAPSHOT_H

#include "state/holders.h"
#include "store/sum.h"

typedef struct weft_snapshot weft_snapshot;

/* A tensor of a file: a region of a tensor of the state, in a type of its own. */
typedef struct weft_snapshot_item {
    int         tensor;
    weft_region region;
    weft_dtype  dtype;
} weft_snapshot_item;

/* First head, which rank 0 writes, then the items one after another, nothing else. */
typedef struct weft_snapshot_file {
    const char               *path;
    const char               *head;
    int64_t                   n_head;
    const weft_snapshot_item *item;
    int                       n_item;
} weft_snapshot_file;

typedef struct weft_snapshot_source {
    const weft_state   *state;
    const weft_holders *holders; /* NULL: all is here */
    int                 rank;
} weft_snapshot_source;

typedef struct weft_snapshot_options {
    /* At most, but never less than three blocks; 0: 256 MB, of pinned memory 64 MB. */
    int64_t staging_bytes;
    /* weft_state_create_like() of the state: takes all of it before blocks are copied; NULL: they
     * are copied out of the state itself. */
    weft_state *copy;
    /* Gives a state of the same layout, in host memory, that takes all of the copy, or of the state
     * where there is none, before it is WRITTEN; called by the thread that copies, which may take
     * long to make memory.  NULL: nothing does.  A snapshot without files is this alone. */
    weft_status (*find_keep)(void *arg, weft_state **keep);
    /* From the start until the state is expected to change; < 0: not before it is WRITTEN; 0: not
     * known.  Blocks that would not be written until then are copied before. */
    double expect_s;
    /* Threads that write: 1 to 3; 0 is 3. */
    int n_writer;
    /* XXH64 of each item of the first file, where this rank has all of it (weft_snapshot_hashed);
     * NULL: they are not wanted. */
    uint64_t *item_hash;
    /* Called once by a thread of the snapshot before it writes; NULL: nothing. */
    weft_status (*before)(void *arg);
    void *arg; /* of both */
} weft_snapshot_options;

/* What one rank wrote of a block: the checksum of the block with zeroes for the rest. */
typedef struct weft_snapshot_block {
    uint32_t crc, bytes;
} weft_snapshot_block;

typedef enum weft_snapshot_stage {
    WEFT_SNAPSHOT_COPIED, /* or it is given up: the state may change */
    WEFT_SNAPSHOT_WRITTEN /* and synced, or given up; nothing is read or written any more */
} weft_snapshot_stage;

/* Borrows everything it is given until it is closed.  Where this fails nothing runs. */
weft_status weft_snapshot_start(const weft_snapshot_source *source,
                                const weft_snapshot_file *file, int n_file,
                                const weft_snapshot_options *o, weft_snapshot **out);
/* Waits for at most that long; 0: only asks. */
bool weft_snapshot_wait(weft_snapshot *s, weft_snapshot_stage stage, double seconds);
/* Gives up: with this reason unless there is an earlier one. */
void weft_snapshot_cancel(weft_snapshot *s, const char *reason);
/* How it went so far; an error's text is weft_error_text(). */
weft_status weft_snapshot_status(weft_snapshot *s);
/* Of all files in order, when it is WRITTEN without an error. */
const weft_snapshot_block *weft_snapshot_blocks(const weft_snapshot *s, int *n);
int64_t                    weft_snapshot_bytes(const weft_snapshot *s); /* written here */
/* Of these, out of the state without a copy. */
int64_t weft_snapshot_in_place_bytes(const weft_snapshot *s);
/* When it is WRITTEN: item_hash is filled. */
bool weft_snapshot_hashed(const weft_snapshot *s);
/* From the start until it was WRITTEN. */
double weft_snapshot_seconds(const weft_snapshot *s);
void   weft_snapshot_close(weft_snapshot *s); /* cancels, waits; accepts NULL */

/* How many blocks all files have. */
int     weft_snapshot_count(const weft_snapshot_file *file, int n_file);
int64_t weft_snapshot_file_bytes(const weft_snapshot_file *f);
/* A block of all ranks together: zeroed, then each rank's added. */
typedef struct weft_snapshot_total {
    uint32_t crc;
    int      n_part;
    int64_t  bytes;
} weft_snapshot_total;
void weft_snapshot_add(weft_snapshot_total *total, const weft_snapshot_block *block,
                       int n);
/* The sums of the files from the blocks of all ranks; each is the caller's to free.
 * WEFT_ERR_INTERNAL: a block was not written as a whole. */
weft_status weft_snapshot_sum(const weft_snapshot_file *file, int n_file,
                              const weft_snapshot_total *total, weft_store_sum *out);

#endif
