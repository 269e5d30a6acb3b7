#include "session/peak.h"

#include <stdlib.h>

#include "base/clock.h"
#include "kernel/gemm.h"

weft_status weft_peak_gflops(weft_pool *pool, int n_thread, int64_t n, int n_run,
                             double *out)
{
    size_t    bytes   = (size_t)(n * n) * sizeof(float);
    float    *a       = aligned_alloc(64, (bytes + 63) / 64 * 64);
    float    *b       = aligned_alloc(64, (bytes + 63) / 64 * 64);
    float    *c       = aligned_alloc(64, (bytes + 63) / 64 * 64);
    weft_gemm g       = weft_gemm_make(n, n, n, a, n, 1, b, n, 1, c, n);
    size_t    need    = (weft_gemm_scratch(&g, n_thread) + 63) / 64 * 64;
    void     *scratch = aligned_alloc(64, need ? need : 64);
    double    best    = 0;
    bool      got     = a && b && c && scratch;
    for (int64_t i = 0; got && i < n * n; i++) {
        a[i] = (float)(i % 7) - 3;
        b[i] = (float)(i % 5) - 2;
        c[i] = 0;
    }
    for (int k = 0; got && k < n_run; k++) {
        double start = weft_clock_s();
        weft_gemm_run(&g, pool, scratch);
        double gflops =
            2e-9 * (double)n * (double)n * (double)n / (weft_clock_s() - start);
        if (gflops > best) best = gflops;
    }
    free(a);
    free(b);
    free(c);
    free(scratch);
    if (!got)
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory for a product of %lld",
                         (long long)n);
    *out = best;
    return WEFT_OK;
}
