/* Parallel sizes of another engine's program, and how they follow the number of ranks:
 *
 *     weft run --nnodes 2:4 --nproc-per-node 4 tp=2 pp=2 batch=64 -- python train.py
 *
 *     weft_launch_sizes s;
 *     WEFT_TRY(weft_launch_sizes_parse(n_word, word, &s));
 *     int dp = weft_launch_sizes_dp(&s, n_rank);       0: the ranks are too few
 *
 * (1) tp, cp, ep and pp stay; dp is the largest that the ranks are enough for, within MIN:MAX.
 * (2) dp x cp x tp x pp ranks run, those of the lowest numbers; the others are not started.
 * (3) The ranks of ep are among those of dp x cp, as in Megatron: dp x cp is a multiple of it.
 * (4) With batch every data-parallel rank has as many whole micro-batches as each other one. */
#ifndef WEFT_LAUNCH_SIZES_H
#define WEFT_LAUNCH_SIZES_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

typedef struct weft_launch_sizes {
    int     min_dp, max_dp;
    int     tp, cp, ep, pp;
    int64_t batch, micro_batch; /* 0: not given */
} weft_launch_sizes;

/* key=value of n words; no word: *out is one rank of each.  WEFT_ERR_ARG: another key, a value out
 * of range, or sizes that do not fit together, in one line. */
weft_status weft_launch_sizes_parse(int n, char *const *word, weft_launch_sizes *out);
/* 0: no dp from MIN on fits. */
int weft_launch_sizes_dp(const weft_launch_sizes *s, int n_rank);
/* The fewest ranks that run; 0: no dp fits batch and ep. */
int weft_launch_sizes_least(const weft_launch_sizes *s);
/* Ranks that run with this dp. */
int weft_launch_sizes_world(const weft_launch_sizes *s, int dp);
/* Micro-batches of a data-parallel rank in a step; 0: batch is not given. */
int64_t weft_launch_sizes_accumulation(const weft_launch_sizes *s, int dp);
/* "dp=2 tp=2 pp=2". */
void weft_launch_sizes_print(const weft_launch_sizes *s, int dp, weft_text *t);

#endif
