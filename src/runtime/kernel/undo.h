/* Old values of an update that overwrites its operands, in memory that outlives the process: a
 * kernel with `undoes` stores them where a call has an `undo`.  It goes through its elements in
 * blocks, one after the other:
 *
 *     old values of block b -> old[b % 2];  block = b;  new values of block b, and its copies
 *
 * A process that is killed has executed a prefix of these stores.  So blocks before `block` have
 * new values and those after it old ones; `block` itself may have both, and its old values are
 * here.  f32 only. */
#ifndef WEFT_KERNEL_UNDO_H
#define WEFT_KERNEL_UNDO_H

#include <stdatomic.h>

#include "kernel/kernel.h"

enum {
    /* elements; two blocks of all results stay in a first-level cache */
    WEFT_UNDO_BLOCK  = 64,
    WEFT_UNDO_RESULT = 3
};

struct weft_kernel_undo {
    _Atomic int64_t block; /* -1: none has begun */
    int64_t         first; /* number of the call's first block */
    char            line[48];
    float           old[2][WEFT_UNDO_RESULT][WEFT_UNDO_BLOCK];
};

#endif
