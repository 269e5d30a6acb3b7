/* Products and softmaxes of small tiles that stay in the first-level cache: the inside of
 * attention.  Compiled once for each instruction set, same bits for all. */
#ifndef WEFT_KERNEL_TILE_H
#define WEFT_KERNEL_TILE_H

#include <stdint.h>

enum {
    WEFT_TILE       = 64, /* queries or keys of a tile */
    WEFT_TILE_LANES = 16, /* widths are padded to this */
};

/* The running softmax of the queries of a tile. */
typedef struct weft_kernel__softmax {
    /* fix: what earlier sums are to be multiplied by */
    float max[WEFT_TILE], fix[WEFT_TILE];
    float sum[WEFT_TILE][WEFT_TILE_LANES];
} weft_kernel__softmax;

typedef struct weft_kernel__tile {
    /* c[m][n] (+)= sum over k of a[i a_rs + k a_cs] b[k ldb + j]; n a multiple of TILE_LANES.  One
     * fma after the other, from c or from zero. */
    void (*mm)(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_rs,
               int64_t a_cs, const float *b, int64_t ldb, float *c, int64_t ldc, int add);
    /* Rows [r0, r1) of n scores become e^(s - max); max, fix and sum move on. */
    void (*soften)(weft_kernel__softmax *w, float *s, int64_t lds, int64_t r0, int64_t r1,
                   int64_t n);
    /* p = e^(p - lse[i]) */
    void (*exp_rows)(float *p, int64_t ldp, const float *lse, int64_t r0, int64_t r1,
                     int64_t n);
    /* d = p (d - own[i]) */
    void (*ds_rows)(float *d, const float *p, int64_t ld, const float *own, int64_t r0,
                    int64_t r1, int64_t n);
    /* to[j TILE + i] = from[i ld + j]; rows and cols multiples of 8, rows at most TILE */
    void (*turn)(float *to, const float *from, int64_t ld, int64_t rows, int64_t cols);
    /* to[i ld_to + j] = s from[i ld + j], j < n; from and to the same, or apart */
    void (*move_rows)(float *to, int64_t ld_to, const float *from, int64_t ld,
                      int64_t rows, int64_t n, float s);
    /* c[i][j] *= s[i] */
    void (*scale_rows)(float *c, int64_t ldc, const float *s, int64_t rows, int64_t n);
} weft_kernel__tile;

extern const weft_kernel__tile weft_kernel__tile_plain, weft_kernel__tile_avx2,
    weft_kernel__tile_avx512;
const weft_kernel__tile *weft_kernel__tile_now(void);

/* The sum of a row's lanes, folded in halves. */
float weft_kernel__fold_lanes(const float lane[WEFT_TILE_LANES]);

#endif
