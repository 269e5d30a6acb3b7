/* Counter-based random numbers: Philox4x32-10.  The same key and counter give the same bits on
 * any machine, thread and order, which is what makes runs repeatable (DESIGN decision 6). */
#ifndef WEFT_BASE_RANDOM_H
#define WEFT_BASE_RANDOM_H

#include <stdint.h>

/* out = philox(key, ctr), four 32-bit words. */
void weft_random_philox(const uint32_t key[2], const uint32_t ctr[4], uint32_t out[4]);

/* A uniform float in [0,1) from 24 bits, and a pair of normals (Box-Muller) from two words. */
static inline float weft_random_uniform(uint32_t w)
{
    return (float)(w >> 8) * 0x1p-24f;
}
void weft_random_normal2(uint32_t a, uint32_t b, float out[2]);

#endif
