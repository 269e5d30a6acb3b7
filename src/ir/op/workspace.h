/* What matmuls and attention on a GPU take of memory besides their operands, by shapes alone: the
 * plugin allocates it, the planner counts it. */
#ifndef WEFT_OP_WORKSPACE_H
#define WEFT_OP_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_WORKSPACE_LEAST = 4 << 20,
    WEFT_WORKSPACE_MOST  = 64 << 20,
    WEFT_WORKSPACE_SPLIT = 16 /* parts of a sum that the workspace has space for */
};

/* A matmul with so many results, sums in f32. */
static inline int64_t weft_workspace_matmul(int64_t n_result)
{
    int64_t bytes = 4 * n_result;
    if (bytes > WEFT_WORKSPACE_MOST / WEFT_WORKSPACE_SPLIT) return WEFT_WORKSPACE_MOST;
    bytes = bytes * WEFT_WORKSPACE_SPLIT / 256 * 256;
    return bytes < WEFT_WORKSPACE_LEAST ? WEFT_WORKSPACE_LEAST : bytes;
}

enum {
    WEFT_WORKSPACE_FP8_UNIT   = 16, /* rows of codes have multiples of so many */
    WEFT_WORKSPACE_FP8_PIECES = 32  /* of a row, whose largest numbers are found apart */
};

static inline int64_t weft_workspace_fp8_row(int64_t k)
{
    return (k + WEFT_WORKSPACE_FP8_UNIT - 1) / WEFT_WORKSPACE_FP8_UNIT *
           WEFT_WORKSPACE_FP8_UNIT;
}

/* An operand of a matmul in fp8, rows of k numbers: codes, or rounded numbers, which bf16 holds,
 * where the device has no units for codes; scales, and the largest of pieces of rows. */
static inline int64_t weft_workspace_fp8(int64_t rows, int64_t k)
{
    return rows * (2 * weft_workspace_fp8_row(k) + 4 * (1 + WEFT_WORKSPACE_FP8_PIECES)) +
           3 * 256;
}

/* The backward pass of attention keeps the gradients of the scores, 2 bytes each, for a slice of
 * the batch, or of one sequence's key heads, that fits this. */
#define WEFT_WORKSPACE_ATTENTION ((int64_t)9 << 28)

typedef struct weft_attention_slice {
    int64_t b, g; /* sequences, key heads */
} weft_attention_slice;

static inline int64_t weft_workspace_divisor(int64_t n, int64_t most)
{
    int64_t d = most < n ? most : n;
    if (d < 1) d = 1;
    while (n % d) d--;
    return d;
}

/* Of b sequences with g key heads, ratio query heads to each, s queries and t keys. */
static inline weft_attention_slice weft_workspace_attention(int64_t b, int64_t g,
                                                            int64_t ratio, int64_t s,
                                                            int64_t t, int64_t most)
{
    int64_t              head  = 2 * ratio * s * t;
    weft_attention_slice slice = {weft_workspace_divisor(b, most / (head * g)), g};
    if (slice.b == 1) slice.g = weft_workspace_divisor(g, most / head);
    return slice;
}

#endif
