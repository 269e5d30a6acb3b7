/* What attention's two directions share: sizes, positions, the mask, rows of a head as floats. */
#ifndef WEFT_KERNEL_HEADS_H
#define WEFT_KERNEL_HEADS_H

#include "kernel/kernel.h"
#include "kernel/rows.h"
#include "kernel/tile.h"

/* q (b,s,h,e), k (b,t,g,e), v (b,t,g,f), bias (h,s,t) */
typedef struct weft_kernel__heads {
    int64_t          b, s, h, e, t, g, f;
    int64_t          ep, fp, sp, tp; /* e and f padded to lanes, s and t to tiles */
    float            scale;
    int              causal;
    int64_t          window, ahead; /* query i stands at key i + ahead */
    const weft_view *q, *k, *v, *bias;
} weft_kernel__heads;

weft_kernel__heads weft_kernel__heads_make(const weft_kernel_call *c, int first,
                                           int bias);

/* Keys [lo, hi) that some query of [i0, i1) sees. */
void weft_kernel__heads_keys(const weft_kernel__heads *a, int64_t i0, int64_t i1,
                             int64_t *lo, int64_t *hi);
/* How many of a tile's keys, from key j0 on, rows i0 .. i1-1 need: rounded up to lanes. */
int64_t weft_kernel__heads_width(const weft_kernel__heads *a, int64_t i1, int64_t j0);
/* Adds the bias to scores of queries [i0, i0 + m) with keys [j0, j0 + n) and sets those that may
 * not be seen to -inf. */
void weft_kernel__heads_mask(const weft_kernel__heads *a, int64_t h, int64_t i0,
                             int64_t m, int64_t j0, int64_t n, float *s, int64_t lds);

/* n rows of v (b,.,.,d), from row r of head h, as floats: to[i][ld], zero behind d, times scale. */
void weft_kernel__heads_rows(const weft_view *v, int64_t b, int64_t h, int64_t r,
                             int64_t n, float scale, float *to, int64_t ld);
/* The same turned: to[d padded to lanes][WEFT_TILE], zero behind d and n; n <= WEFT_TILE. */
void weft_kernel__heads_turned(const weft_view *v, int64_t b, int64_t h, int64_t r,
                               int64_t n, float *to);
/* Rows back: out (+)= scale * from. */
void weft_kernel__heads_put(const weft_view *v, int64_t b, int64_t h, int64_t r,
                            int64_t n, float scale, float *from, int64_t ld, int add);

static inline int64_t weft_kernel__pad(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

#endif
