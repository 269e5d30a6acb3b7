/* A permutation of 0..n-1 without a table: a Feistel network over the smallest power of
 * two that holds n, walked until it falls below n again.
 * (1) Each round is its own inverse, so the network is a bijection of 0..2^m-1; following
 *     its cycle from a point below n to the next point below n is a bijection of 0..n-1.
 * (2) 2^m < 2n, so a walk takes two rounds on average. */
#include "base/random.h"
#include "data/data.h"

#define ROUNDS 8

static uint64_t scramble(uint64_t seed, uint64_t epoch, int bits, uint64_t x)
{
    int            low     = bits - bits / 2;
    uint64_t       half[2] = {x >> low, x & ((1ull << low) - 1)};
    const uint64_t mask[2] = {(1ull << (bits / 2)) - 1, (1ull << low) - 1};
    const uint32_t key[2]  = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    for (uint32_t r = 0; r < ROUNDS; r++) {
        uint64_t       other  = half[~r & 1];
        const uint32_t ctr[4] = {
            (uint32_t)other, (uint32_t)epoch, (uint32_t)(epoch >> 32),
            r | 0x53680000u}; /* "Sh": apart from other uses of the seed */
        uint32_t word[4];

        weft_random_philox(key, ctr, word);
        half[r & 1] ^= (word[0] ^ other >> 32) & mask[r & 1];
    }
    return half[0] << low | half[1];
}

int64_t weft_data_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    uint64_t x    = (uint64_t)i;
    int      bits = 1;

    while (bits < 62 && (1ll << bits) < n) bits++;
    do x = scramble(seed, (uint64_t)epoch, bits, x);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
