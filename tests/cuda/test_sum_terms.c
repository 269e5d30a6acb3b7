/* plugin/cuda/ops/sum_terms.c, kernels on the CPU, against comm's own sums: every number of terms,
 * levels of lanes, both types, odd counts and addresses, in place. */
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#include "base/lanes.h"
#include "base/random.h"
#include "comm/comm.h"
#include "ops/sum_terms.h"

enum {
    MAX_TERM  = 70,
    MAX_COUNT = 600,
    GUARD     = 64
};

static uint64_t seed = 1;

static void fill(void *p, weft_dtype t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        seed       = seed * 6364136223846793005u + 1442695040888963407u;
        float    f = (float)((double)(seed >> 40) / (1 << 20) - 8.0);
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        if (t == WEFT_DTYPE_F32)
            memcpy((float *)p + i, &f, sizeof f);
        else
            ((uint16_t *)p)[i] = (uint16_t)(u >> 16);
    }
}

/* n terms of `count` elements, `shift` elements behind an address of 64 bytes; place: the term
 * that the sum goes to, -1: none. */
static void check(weft_dtype t, int n, const int *level, int64_t count, int shift,
                  int place)
{
    weft_kernel_ctx x      = {0};
    int64_t         size   = weft_dtype_bytes(t);
    size_t          bytes  = ((size_t)(MAX_COUNT + GUARD) * 4 + 63) / 64 * 64;
    char           *memory = aligned_alloc(64, bytes * (size_t)(n + 2));
    const void     *in[MAX_TERM];
    fill(memory, t, (int64_t)bytes / size * (n + 2));
    char *want = memory + bytes * (size_t)n, *out = want + bytes;
    for (int i = 0; i < n; i++) in[i] = memory + bytes * (size_t)i + shift * size;
    if (place >= 0) out = memory + bytes * (size_t)place;
    memcpy(want, out, bytes);
    assert_ok(weft_comm_sum_levels(t, n, in, level, want + shift * size, count));
    assert_ok(weft_cuda_sum_terms(&x, t, n, in, level, out + shift * size, count, NULL));
    assert_memory_equal(want, out, bytes); /* and nothing around it */
    free(memory);
}

static void test_sums(void **state)
{
    (void)state;
    static const int64_t counts[]       = {0, 1, 7, 8, 9, 64, 513, MAX_COUNT};
    int                  none[MAX_TERM] = {0};
    for (int k = 0; k < 2; k++)
        for (int n = 1; n <= 33; n += n < 9 ? 1 : 8)
            for (size_t c = 0; c < WEFT_COUNT(counts); c++)
                for (int shift = 0; shift < 3; shift++)
                    check(k ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32, n, none, counts[c], shift,
                          c % 3 ? -1 : n / 2);
}

/* Terms of ranks that share lanes unequally. */
static void test_levels(void **state)
{
    (void)state;
    static const int32_t   share[] = {5, 2, 1, 8};
    weft_comm_lanes        lanes   = {16, 0, share};
    static weft_comm_terms terms;
    assert_ok(weft_comm_terms_of(&lanes, 4, &terms));
    assert_true(terms.n > 4);
    for (int shift = 0; shift < 2; shift++) {
        check(WEFT_DTYPE_F32, terms.n, terms.level, 333, shift, -1);
        check(WEFT_DTYPE_BF16, terms.n, terms.level, 333, shift, 1);
    }
}

static void test_refused(void **state)
{
    (void)state;
    weft_kernel_ctx x = {0};
    assert_int_equal(weft_cuda_sum_terms(&x, WEFT_DTYPE_I32, 2, (const void *[]){0, 0},
                                         NULL, NULL, 4, NULL),
                     WEFT_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_levels),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
