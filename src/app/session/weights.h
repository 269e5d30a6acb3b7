/* A model's master weights between the state and files under Hugging Face's names.
 *
 * A parameter of the graph may be several tensors of a file, each a region of it.  A rank may hold
 * a part of a parameter or none: reading takes what is held here, and fills copies of parameters in
 * another type with the same numbers; writing and hashing are rank 0's, which asks the others for
 * theirs. */
#ifndef WEFT_SESSION_WEIGHTS_H
#define WEFT_SESSION_WEIGHTS_H

#include "base/pool.h"
#include "model/model.h"
#include "state/file.h"
#include "state/snapshot.h"
#include "store/hf_dir.h"

/* All borrowed. */
typedef struct weft_weights {
    const weft_model *model;
    const weft_graph *graph; /* of the program: which values are copies of parameters */
    weft_state       *state;
    weft_gather      *gather; /* of the state; NULL: only for reading */
    weft_pool        *pool;   /* draws initial numbers; NULL: the caller's thread alone */
} weft_weights;

/* Initial numbers: a function of seed and the tensors' names. */
weft_status weft_weights_init(const weft_weights *w, uint64_t seed);

/* Every tensor of the model from the files of d, in any floating type.  A missing one or a wrong
 * shape is WEFT_ERR_ARG and names it.  Tensors the model does not use are left alone. */
weft_status weft_weights_read_dir(const weft_weights *w, const weft_store_dir *d);
weft_status weft_weights_read_file(const weft_weights *w, const weft_store_file *f);

/* What to write: one item a tensor, bytes made from the fp32 numbers when asked for.  names is the
 * folder the names and types follow (spelling with or without prefix, aliases too), or NULL: the
 * model's own names in file_dtype, tied ones once.  Lives in a, borrows the gather. */
weft_status weft_weights_items(const weft_weights *w, const weft_store_dir *names,
                               weft_dtype dtype, weft_arena *a, weft_store_item **out,
                               int *n);

/* The same items in fp32 under the model's own names, each with its region of the state;
 * item[k].from is empty.  At any rank. */
weft_status weft_weights_list(const weft_weights *w, weft_arena *a,
                              weft_store_item **item, weft_snapshot_item **region,
                              int *n);

/* XXH64 over the list of name, NUL, hash (8 bytes, little-endian), by name in byte order, where
 * hash is XXH64 of the tensor's fp32 numbers, row-major, little-endian; tied tensors once. */
weft_status weft_weights_hash(const weft_weights *w, uint64_t *out);
/* The same of a file that has these tensors in fp32. */
/* ... from the hashes of its tensors, in the order of weft_weights_list(). */
weft_status weft_weights_hash_items(const weft_weights *w, const uint64_t *item,
                                    uint64_t *out);
weft_status weft_weights_hash_file(const weft_weights *w, const weft_store_file *f,
                                   uint64_t *out);

#endif
