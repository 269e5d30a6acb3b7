/* state.json: the numbers of a job that are no tensors.  What the job fixed at step 0
 * stands here so that a resume can hold the job file against it.  parse(print(x)) ==
 * x. */
#ifndef WEFT_CKPT_STATE_H
#define WEFT_CKPT_STATE_H

#include "base/text.h"

typedef struct weft_ckpt_state {
    int64_t  step;   /* steps done: the next one has this number */
    int64_t  sample; /* samples consumed: the next one's number (data/data.h) */
    int64_t  seed;   /* random bits are functions of seed and step: no other state */
    int64_t  batch, micro_batch, lanes, seq;
    uint64_t data_id;    /* weft_data_id() */
    uint64_t graph_hash; /* of the model: a checkpoint of another one is refused */
    uint64_t weights_xxh64;
    char     kernel_set[64];
    char    *extra; /* the caller's own JSON value, or NULL; owned after parse */
} weft_ckpt_state;

weft_status weft_ckpt_state_print(const weft_ckpt_state *s, weft_text *t);
/* file is for messages.  fini frees extra. */
weft_status weft_ckpt_state_parse(const char *file, const char *text, size_t n,
                                  weft_ckpt_state *out);
void        weft_ckpt_state_fini(weft_ckpt_state *s);

#endif
