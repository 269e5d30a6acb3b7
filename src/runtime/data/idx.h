/* Megatron's .idx: where each sequence of a .bin lies.
 *
 *     "MMIDIDX\0\0" | u64 version 1 | u8 dtype | u64 sequences | u64 documents |
 *     i32 length[sequences] | i64 byte offset[sequences] | i64 first sequence[documents]
 *     [ | i8 mode[sequences] ]
 *
 * The 34 bytes before the arrays leave them unaligned: they are only read by memcpy. */
#ifndef WEFT_DATA_IDX_H
#define WEFT_DATA_IDX_H

#include "base/text.h"
#include "weft/tensor.h"

typedef struct weft_data_idx {
    weft_dtype     dtype;
    int64_t        n_seq, n_doc;
    const uint8_t *length, *offset, *doc; /* borrowed, unaligned */
} weft_data_idx;

/* Checks everything against a .bin of n_bin bytes.  name is for messages. */
weft_status weft_data_idx_parse(const char *name, const void *p, size_t n, int64_t n_bin,
                                weft_data_idx *out);
int32_t     weft_data_idx_length(const weft_data_idx *x, int64_t seq); /* in tokens */
int64_t     weft_data_idx_offset(const weft_data_idx *x, int64_t seq); /* in bytes */

/* The .idx of n_token tokens laid end to end, cut at the n_cut - 1 inner positions cut[]
 * (cut[0] is 0, cut[n_cut] n_token), one document each. */
weft_status weft_data_idx_print(weft_dtype dtype, const int64_t *cut, int64_t n_cut,
                                weft_text *t);

#endif
