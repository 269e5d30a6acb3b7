/* A model's master weights: fp32 in memory, between files under Hugging Face's names.
 *
 * The memory is the program's state slab (or anything else contiguous); this only knows where each
 * parameter lies.  A parameter of the graph may be several tensors of a file, each a region of
 * it.  A rank may have a part of a parameter or none: reading takes what is here; writing and
 * hashing are rank 0's, which asks the others for theirs. */
#ifndef WEFT_SESSION_WEIGHTS_H
#define WEFT_SESSION_WEIGHTS_H

#include "model/model.h"
#include "session/parts.h"
#include "store/hf_dir.h"

typedef struct weft_weights {
    const weft_model *model;
    float           **param; /* of model->param[i]; NULL: not here */
    float           **stat;  /* of model->stat[i] */
    weft_parts       *parts; /* NULL: all of it is here */
} weft_weights;

/* Fills param and stat (arrays in a) with the runner's memory; model and parts must be set. */
weft_status weft_weights_point(weft_weights *w, const weft_runner *r, weft_arena *a);

/* Initial numbers: a function of seed and the tensors' names. */
weft_status weft_weights_init(const weft_weights *w, uint64_t seed);

/* Every tensor of the model from the files of d, in any floating type.  A missing one or a wrong
 * shape is WEFT_ERR_ARG and names it.  Tensors the model does not use are left alone. */
weft_status weft_weights_read_dir(const weft_weights *w, const weft_store_dir *d);
weft_status weft_weights_read_file(const weft_weights *w, const weft_store_file *f);

/* What to write: one item a tensor, bytes made from the fp32 numbers when asked for.  names is the
 * folder the names and types follow (spelling with or without prefix, aliases too), or NULL: the
 * model's own names in file_dtype, tied ones once.  Lives in a, borrows w. */
weft_status weft_weights_items(const weft_weights *w, const weft_store_dir *names,
                               weft_dtype dtype, weft_arena *a, weft_store_item **out,
                               int *n);

/* XXH64 over the list of name, NUL, hash (8 bytes, little-endian), by name in byte order, where
 * hash is XXH64 of the tensor's fp32 numbers, row-major, little-endian; tied tensors once. */
weft_status weft_weights_hash(const weft_weights *w, uint64_t *out);

#endif
