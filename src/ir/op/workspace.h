/* What matmuls and attention on a GPU take of memory besides their operands, by shapes alone: the
 * plugin allocates it, the planner counts it. */
#ifndef WEFT_OP_WORKSPACE_H
#define WEFT_OP_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_WORKSPACE_LEAST = 4 << 20,
    WEFT_WORKSPACE_MOST  = 56 << 20,
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

/* fp8: rows of codes have multiples of UNIT numbers; a block keeps a row of up to MOST in
 * registers; one that is not contiguous has PIECES whose largest numbers are found apart. */
enum {
    WEFT_WORKSPACE_FP8_UNIT   = 16,
    WEFT_WORKSPACE_FP8_MOST   = 32768,
    WEFT_WORKSPACE_FP8_PIECES = 32
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
    return rows * (2 * weft_workspace_fp8_row(k) + 4 + 2 * WEFT_WORKSPACE_FP8_PIECES) +
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

/* The backward pass by warpgroups, for heads of e elements: queries in tiles, keys in blocks.  The
 * gradients of queries are sums over blocks, in f32; so are those of keys and values where more
 * than one query head has a key head.  Two warpgroups share a tile and a block: 64 rows each. */
enum {
    WEFT_ATTENTION_BLOCK    = 128, /* keys */
    WEFT_ATTENTION_TILE_64  = 128, /* queries, for heads of 64 */
    WEFT_ATTENTION_TILE_128 = 64,
    WEFT_ATTENTION_PIECE    = 64 * 64 /* elements of a sum that are added to at once */
};

typedef struct weft_attention_sums {
    int64_t tile, n_tile, n_block, n_counter;
    /* of the tiles, the first ones: they see one block of keys and need no sum */
    int64_t alone;
    int64_t rows, dq, dkv, counters; /* where they begin */
    /* heads of 64: angles of rotary embeddings, of so many positions */
    int64_t turned, n_turned;
    int64_t bytes;
} weft_attention_sums;

/* Every query sees a key, and some query one of the last block; query i sees keys up to i +
 * ahead. */
static inline bool weft_attention_has_sums(int64_t s, int64_t t, int64_t e, bool causal,
                                           int64_t ahead)
{
    int64_t last = (t - 1) / WEFT_ATTENTION_BLOCK * WEFT_ATTENTION_BLOCK;
    return (e == 64 || e == 128) && (!causal || (ahead >= 0 && last <= s - 1 + ahead));
}

static inline int64_t weft_attention_room(weft_attention_sums *x, int64_t bytes)
{
    int64_t at = x->bytes;
    x->bytes += (bytes + 255) / 256 * 256;
    return at;
}

/* Of b sequences with h query heads and g key heads, s queries and t keys; of ahead as above. */
static inline weft_attention_sums weft_workspace_attention_sums(int64_t b, int64_t h,
                                                                int64_t g, int64_t s,
                                                                int64_t t, int64_t e,
                                                                bool    causal,
                                                                int64_t ahead)
{
    weft_attention_sums x = {.tile = e == 64 ? WEFT_ATTENTION_TILE_64
                                             : WEFT_ATTENTION_TILE_128};
    x.n_tile              = (s + x.tile - 1) / x.tile;
    x.n_block             = (t + WEFT_ATTENTION_BLOCK - 1) / WEFT_ATTENTION_BLOCK;
    x.alone               = causal ? (WEFT_ATTENTION_BLOCK - ahead) / x.tile : 0;
    if (x.n_block == 1) x.alone = x.n_tile;
    if (x.alone < 0) x.alone = 0;
    if (x.alone > x.n_tile) x.alone = x.n_tile;
    int64_t tiles = b * h * x.n_tile, shared = h > g ? 2 * b * g * x.n_block : 0;
    x.n_counter = 1 + 2 * tiles + shared;
    x.rows      = weft_attention_room(&x, tiles * 2 * x.tile * 4);
    x.dq        = weft_attention_room(&x, 2 * b * h * (x.n_tile - x.alone) *
                                              WEFT_ATTENTION_PIECE * 4);
    x.dkv = weft_attention_room(&x, shared * 2 * (e / 64) * WEFT_ATTENTION_PIECE * 4);
    x.counters = weft_attention_room(&x, x.n_counter * 4);
    if (e != 64) return x;
    x.n_turned = x.n_tile * x.tile;
    if (x.n_turned < x.n_block * WEFT_ATTENTION_BLOCK)
        x.n_turned = x.n_block * WEFT_ATTENTION_BLOCK;
    x.turned = weft_attention_room(&x, x.n_turned * e * 4);
    return x;
}

#endif
