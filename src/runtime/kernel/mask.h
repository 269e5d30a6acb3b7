/* The dropout mask: which elements are kept.  One definition for every kernel on every device.
 *
 *     keep element iff uniform(philox(seed; step, sample, op id, element)) >= p,
 *     kept values times 1 / (1 - p)
 *
 * sample: the global number of the sample (dimension 0 of the tensor, plus where the piece lies);
 * element: the index within that sample, row-major, in global coordinates.  One philox call gives
 * the four words of elements 4i .. 4i+3. */
#ifndef WEFT_KERNEL_MASK_H
#define WEFT_KERNEL_MASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"

typedef struct weft_mask {
    uint32_t key[2];
    uint32_t ctr[4]; /* ctr[0] is the element / 4 */
    uint32_t least;  /* keep iff the word's upper 24 bits are at least this */
} weft_mask;

/* uniform is a multiple of 2^-24, so comparing integers is exact: u >= p iff u 2^24 >= ceil(p
 * 2^24). */
static inline uint32_t weft_mask_least(double p)
{
    double   x = p * 0x1p24;
    uint32_t n = x <= 0 ? 0 : x >= 0x1p24 ? 1u << 24 : (uint32_t)x;
    return (double)n < x ? n + 1 : n;
}

static inline weft_mask weft_mask_make(uint64_t seed, int64_t step, int64_t sample,
                                       int64_t id, double p)
{
    uint64_t s = (uint64_t)sample;
    return (weft_mask){
        .key   = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ (uint32_t)(s >> 32)},
        .ctr   = {0, (uint32_t)s, (uint32_t)step, (uint32_t)id},
        .least = weft_mask_least(p),
    };
}

/* The words of elements 4i .. 4i+3. */
static inline void weft_mask_words(const weft_mask *m, int64_t i, uint32_t w[4])
{
    uint32_t ctr[4] = {(uint32_t)i, m->ctr[1], m->ctr[2], m->ctr[3]};
    weft_random_philox(m->key, ctr, w);
}

static inline bool weft_mask_word_keeps(const weft_mask *m, uint32_t w)
{
    return w >> 8 >= m->least;
}

static inline bool weft_mask_keeps(const weft_mask *m, int64_t element)
{
    uint32_t w[4];
    weft_mask_words(m, element / 4, w);
    return weft_mask_word_keeps(m, w[element % 4]);
}

#endif
