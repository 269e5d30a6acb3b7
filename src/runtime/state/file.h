/* Tensors of a state from functions and files, and into files.  A tensor of a file is a region of a
 * tensor of the state, in a type of its own. */
#ifndef WEFT_STATE_FILE_H
#define WEFT_STATE_FILE_H

#include "state/gather.h"
#include "store/safetensors.h"

/* Numbers [index, index + n) of a region, in its row-major order. */
typedef weft_status (*weft_state_make_fn)(const void *arg, int64_t index, int64_t n,
                                          float *out);

/* A region of tensors of one shape that get the same numbers, each in its own type: of a parameter
 * and its copies. */
enum {
    WEFT_STATE_MAX_COPY = 4
};
typedef struct weft_state_target {
    weft_region region;
    int         n_tensor, tensor[WEFT_STATE_MAX_COPY];
} weft_state_target;

/* Makes what is held here of a region, and only that. */
weft_status weft_state_fill(weft_state *s, const weft_state_target *to,
                            weft_state_make_fn make, const void *arg);

/* Reads what is held here of a region from a tensor of a file, which has as many elements: as bytes
 * where the types are equal, else through fp32. */
weft_status weft_state_load(weft_state *s, const weft_state_target *to,
                            const weft_store_tensor *file);

/* On rank 0: a region as the source of a file's tensor of a type; in a, borrows g.  Sources of one
 * gather are read one after another. */
weft_status weft_gather_source(weft_gather *g, int tensor, const weft_region *r,
                               weft_dtype dtype, weft_arena *a, weft_store_source *out);

/* XXH64 of a region's bytes, row-major. */
weft_status weft_gather_hash(weft_gather *g, int tensor, const weft_region *r,
                             uint64_t *out);

#endif
