/* The dropout mask for many words at once; a part of rows_impl.h. */
#ifndef WEFT_KERNEL_ROWS_DROP_H
#define WEFT_KERNEL_ROWS_DROP_H
#ifdef ROWS

enum {
    WORDS = 32
}; /* philox calls side by side, for the compiler to vectorise */

/* weft_random_philox() over counters that differ in their first word. */
static void philox(const weft_mask *m, int64_t word, uint32_t out[4 * WORDS])
{
    uint32_t c0[WORDS], c1[WORDS], c2[WORDS], c3[WORDS], k0 = m->key[0], k1 = m->key[1];
    for (int l = 0; l < WORDS; l++) {
        c0[l] = (uint32_t)(word + l);
        c1[l] = m->ctr[1], c2[l] = m->ctr[2], c3[l] = m->ctr[3];
    }
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < WORDS; l++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[l],
                     p1 = (uint64_t)0xCD9E8D57u * c2[l];
            c0[l]       = (uint32_t)(p1 >> 32) ^ c1[l] ^ k0;
            c1[l]       = (uint32_t)p1;
            c2[l]       = (uint32_t)(p0 >> 32) ^ c3[l] ^ k1;
            c3[l]       = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < WORDS; l++) {
        out[4 * l]     = c0[l];
        out[4 * l + 1] = c1[l];
        out[4 * l + 2] = c2[l];
        out[4 * l + 3] = c3[l];
    }
}

static void drop(float *y, const float *x, int64_t n, const weft_mask *m, int64_t word,
                 float scale)
{
    for (int64_t i = 0; i < n; i += 4 * WORDS) {
        uint32_t w[4 * WORDS];
        int64_t  k = n - i < 4 * WORDS ? n - i : 4 * WORDS;
        philox(m, word + i / 4, w);
        for (int64_t l = 0; l < k; l++)
            y[i + l] = w[l] >> 8 >= m->least ? x[i + l] * scale : 0.0f;
    }
}

#endif
#endif
