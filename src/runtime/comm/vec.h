/* Sums and copies at the speed of memory, in the order of weft_comm_sum. */
#ifndef WEFT_COMM_VEC_H
#define WEFT_COMM_VEC_H

#include "comm/comm.h"

/* Each of out[0..n_out-1] = sum of in[0..n-1] by the binary tree, in[i] being of level[i] (NULL:
 * leaves); an out
 * may be one of in.  stream: past the
 * caches, for results that are larger than they and lines that were not just read.  False: not a
 * case of this file, nothing is written. */
bool weft_comm__vec_sum(weft_dtype t, int n, const void *const *in, const int *level,
                        int n_out, void *const *out, int64_t count, bool stream);
/* The plain loops (sum.c): any n, any type that can be summed. */
weft_status weft_comm__sum_plain(weft_dtype t, int n, const void *const *in,
                                 const int *level, void *out, int64_t count);
void        weft_comm__vec_copy(void *out, const void *in, int64_t bytes, bool stream);

#endif
