/* Lowering: a graph -> a segment of fused local instructions over storages, with their liveness.
 *
 * What happens here and nowhere else: views become strides instead of copies, what follows a
 * product is fused onto it, gradients are written straight into their accumulators, parts of a
 * concat are written in place, element-wise operators overwrite operands that die, new states
 * overwrite old ones. Decides nothing that depends on a machine; offsets and schedules come later
 * (partition). */
#ifndef WEFT_LOWER_LOWER_H
#define WEFT_LOWER_LOWER_H

#include "graph/graph.h"
#include "program/program.h"

typedef enum weft_storage_kind {
    WEFT_STORE_STATE,      /* params and states: kept between steps */
    WEFT_STORE_INPUT,      /* written by the reader for each micro-batch */
    WEFT_STORE_STEP_INPUT, /* written by the host once a step */
    WEFT_STORE_OUTPUT,     /* read by the host after the step */
    WEFT_STORE_ACCUM,      /* summed over a lane's micro-batches, then over lanes */
    WEFT_STORE_WORK,       /* lives between two instructions */
} weft_storage_kind;

/* Memory that one or more values share; operands of instructions name it as their buffer. */
typedef struct weft_storage {
    const char       *name;
    weft_storage_kind kind;
    int64_t           bytes;
    int first, last; /* instructions that first write and last read it; -1 unused */
} weft_storage;

typedef struct weft_segment {
    weft_arena *arena;
    const char *name;
    int         n_instr;
    weft_instr *instr; /* forward, backward, update in this order */
    /* of each instruction: the graph's node it was written for; -1: of none, the copies of next
     * states at the end */
    int          *node;
    int           phase_end[3]; /* index behind the last instruction of each phase */
    int           n_storage;
    weft_storage *storage;
    int           n_binding;
    weft_binding *binding; /* buffer = storage */
    int64_t       align;   /* bytes: storages are multiples of it */
} weft_segment;

/* The bytes of a storage that holds so many. */
int64_t weft_segment_round(const weft_segment *s, int64_t bytes);

typedef struct weft_lower_options {
    /* a step has one micro-batch: a sum over micro-batches is its only term */
    bool one_micro;
    /* of each node: what runs in one go, a step rides on a product of its own; NULL: all of it
     * does */
    const int *piece;
    /* results of matmuls whose width is no multiple of 8 and that only matmuls and losses read have
     * rows at multiples of so many elements, where the device's matmuls want it; 0: rows without
     * gaps */
    int row_elements;
    /* logits, their loss and its gradient are made and used in parts of at least so many rows; 0:
     * all rows at once */
    int head_rows;
    /* matmuls that take the same operand, or whose results are added up, become one where the
     * narrowest has at most so many columns (q, k and v); 0: none do */
    int join_width;
    /* storages begin at multiples of so many bytes, a power of two; 0: 64 */
    int align_bytes;
    /* weft_fusion: what the device's kernels take; others stay instructions */
    unsigned fusions;
} weft_lower_options;

/* Borrows g for the call; o may be NULL. */
weft_status weft_lower(const weft_graph *g, const weft_lower_options *o,
                       weft_segment **out);
void        weft_segment_destroy(weft_segment *s);

/* Collectives of one meeting become one of several tensors.  meeting[i]: that of instruction i,
 * -1 none; changed.  Between those of one meeting stands nothing that needs their results but sums
 * over micro-batches, which move to the next reduction, or the end of the phase. */
weft_status weft_segment_meet(weft_segment *s, int *meeting);

#endif
