/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC11). */
#include "base/random.h"

#include <math.h>

void weft_random_philox(const uint32_t key[2], const uint32_t ctr[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0          = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1          = (uint32_t)p1;
        c2          = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3          = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* the golden ratio, and sqrt(3) - 1, in 32 bits */
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* u in (0,1]: log(0) cannot happen. */
void weft_random_normal2(uint32_t a, uint32_t b, float out[2])
{
    double u = ((double)a + 1.0) * 0x1p-32;
    double v = (double)b * 0x1p-32;
    double r = sqrt(-2.0 * log(u));
    double t = 6.283185307179586476925 * v;
    out[0]   = (float)(r * cos(t));
    out[1]   = (float)(r * sin(t));
}
