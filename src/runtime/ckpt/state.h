/* state.json: the numbers of a job that are no tensors.  What the job fixed at step 0
 * stands here so that a resume can hold the job file against it.  parse(print(x)) ==
 * x. */
#ifndef WEFT_CKPT_STATE_H
#define WEFT_CKPT_STATE_H

#include <stdbool.h>

#include "base/text.h"

/* A key that a resume changed although it decides bits: from its value before to its value after
 * `step` steps. */
typedef struct weft_ckpt_change {
    int64_t step;
    char    key[32];
    int64_t from, to;
} weft_ckpt_change;

typedef struct weft_ckpt_state {
    int64_t  step;   /* steps done: the next one has this number */
    int64_t  sample; /* samples consumed: the next one's number (data/data.h) */
    int64_t  seed;   /* random bits are functions of seed and step: no other state */
    int64_t  batch, micro_batch, lanes, seq;
    uint64_t data_id;    /* weft_data_id() */
    uint64_t graph_hash; /* of the model: a checkpoint of another one is refused */
    uint64_t weights_xxh64;
    /* weft_data_content_id(); states from before it was written have none. */
    bool     has_content_id;
    uint64_t content_id;
    char     kernel_set[192];
    char    *extra; /* the caller's own JSON value, or NULL; owned after parse */
    /* What resumes changed, oldest first; malloc's, fini frees it.  A state with a history is
     * written as format 2, so that a reader that knows no history refuses it instead of dropping
     * it; without one as format 1.  Both are read. */
    int               n_history;
    weft_ckpt_change *history;
} weft_ckpt_state;

/* Appends a copy of c to the history. */
weft_status weft_ckpt_state_add_change(weft_ckpt_state *s, const weft_ckpt_change *c);
/* The history as a JSON list. */
void weft_ckpt_state_print_history(const weft_ckpt_state *s, weft_text *t);

weft_status weft_ckpt_state_print(const weft_ckpt_state *s, weft_text *t);
/* file is for messages.  fini frees extra and history. */
weft_status weft_ckpt_state_parse(const char *file, const char *text, size_t n,
                                  weft_ckpt_state *out);
void        weft_ckpt_state_fini(weft_ckpt_state *s);

#endif
