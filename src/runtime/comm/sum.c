/* Sums in one order: the binary tree over positions, by vectors (vec.c) or plainly here.  Block
 * by block, partial sums are kept like the digits
 * of a binary counter: two that are sums of as many leaves are added.
 *     n = 5:  ((0 + 1) + (2 + 3)) + 4 */
#include <string.h>

#include "comm/vec.h"
#include "tensor/bf16.h"

enum {
    BLOCK     = 256,
    MAX_LEVEL = 32
};

#define SAME(x) (x)

/* STORED in memory, T in sums. */
#define DEFINE_SUM(NAME, STORED, T, LOAD, STORE)                                         \
    static void NAME(int n, const void *const *in, const int *is, void *out,             \
                     int64_t count)                                                      \
    {                                                                                    \
        T   level[MAX_LEVEL][BLOCK];                                                     \
        int of[MAX_LEVEL];                                                               \
        for (int64_t at = 0; at < count; at += BLOCK) {                                  \
            int m = count - at < BLOCK ? (int)(count - at) : BLOCK, top = 0;             \
            for (int i = 0; i < n; i++) {                                                \
                const STORED *x = (const STORED *)in[i] + at;                            \
                for (int k = 0; k < m; k++) level[top][k] = LOAD(x[k]);                  \
                of[top] = is ? is[i] : 0;                                                \
                for (; top && of[top - 1] == of[top]; top--, of[top]++)                  \
                    for (int k = 0; k < m; k++) level[top - 1][k] += level[top][k];      \
                top++;                                                                   \
            }                                                                            \
            for (; top > 1; top--)                                                       \
                for (int k = 0; k < m; k++) level[top - 2][k] += level[top - 1][k];      \
            STORED *y = (STORED *)out + at;                                              \
            for (int k = 0; k < m; k++) y[k] = STORE(level[0][k]);                       \
        }                                                                                \
    }

DEFINE_SUM(sum_f32, float, float, SAME, SAME)
DEFINE_SUM(sum_f64, double, double, SAME, SAME)
DEFINE_SUM(sum_bf16, uint16_t, float, weft_bf16_widen, weft_bf16_round)
DEFINE_SUM(sum_i32, uint32_t, uint32_t, SAME, SAME)
DEFINE_SUM(sum_i64, uint64_t, uint64_t, SAME, SAME)

weft_status weft_comm__sum_plain(weft_dtype t, int n, const void *const *in,
                                 const int *level, void *out, int64_t count)
{
    switch (t) {
    case WEFT_DTYPE_F32: sum_f32(n, in, level, out, count); return WEFT_OK;
    case WEFT_DTYPE_F64: sum_f64(n, in, level, out, count); return WEFT_OK;
    case WEFT_DTYPE_BF16: sum_bf16(n, in, level, out, count); return WEFT_OK;
    case WEFT_DTYPE_I32:
    case WEFT_DTYPE_U32: sum_i32(n, in, level, out, count); return WEFT_OK;
    case WEFT_DTYPE_I64:
    case WEFT_DTYPE_U64: sum_i64(n, in, level, out, count); return WEFT_OK;
    default:
        return WEFT_FAIL(WEFT_ERR_ARG, "%s values cannot be summed across ranks",
                         weft_dtype_name(t));
    }
}

weft_status weft_comm_sum_levels(weft_dtype t, int n, const void *const *in,
                                 const int *level, void *out, int64_t count)
{
    if (weft_comm__vec_sum(t, n, in, level, 1, &out, count, false)) return WEFT_OK;
    return weft_comm__sum_plain(t, n, in, level, out, count);
}

weft_status weft_comm_sum(weft_dtype t, int n, const void *const *in, void *out,
                          int64_t count)
{
    return weft_comm_sum_levels(t, n, in, NULL, out, count);
}
