#include "session/pick.h"

#include <math.h>
#include <stdlib.h>

#include "base/random.h"

static int32_t largest(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Comes a before b when the best come first? */
static int before(const float *x, int32_t a, int32_t b)
{
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

static void sift(const float *x, int32_t *heap, int64_t n, int64_t i)
{
    for (;;) {
        int64_t worst = i, l = 2 * i + 1;
        for (int64_t c = l; c <= l + 1 && c < n; c++)
            if (before(x, heap[worst], heap[c])) worst = c;
        if (worst == i) return;
        int32_t t   = heap[i];
        heap[i]     = heap[worst];
        heap[worst] = t;
        i           = worst;
    }
}

/* heap: the k largest, the worst of them on top. */
static void keep_largest(const float *x, int32_t n, int64_t k, int32_t *heap)
{
    for (int32_t i = 0; i < k; i++) heap[i] = i;
    for (int64_t i = k / 2 - 1; i >= 0; i--) sift(x, heap, k, i);
    for (int32_t i = (int32_t)k; i < n; i++)
        if (before(x, i, heap[0])) {
            heap[0] = i;
            sift(x, heap, k, 0);
        }
}

int32_t weft_pick(const float *logit, int32_t n, double temperature, int64_t top_k,
                  double u, int32_t *order)
{
    int32_t top = largest(logit, n);
    if (temperature <= 0 || top_k == 1) return top;
    int64_t k = top_k > 0 && top_k < n ? top_k : n;
    keep_largest(logit, n, k, order);
    double sum = 0, max = (double)logit[top];
    for (int64_t i = 0; i < k; i++)
        sum += exp(((double)logit[order[i]] - max) / temperature);
    double left = u * sum;
    for (int64_t i = 0; i < k; i++) {
        left -= exp(((double)logit[order[i]] - max) / temperature);
        if (left < 0) return order[i];
    }
    return top; /* rounding */
}

double weft_pick_uniform(uint64_t seed, int64_t i)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, w[4];
    uint32_t ctr[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0x73616d70, 0};
    weft_random_philox(key, ctr, w);
    return ((double)w[0] + (double)w[1] * 0x1p-32) * 0x1p-32;
}
