/* Random states for tests: who holds what of a few tensors, and numbers that say where they belong.
 *
 *     case_table t;
 *     case_make(&t, &seed, n_rank, CASE_TILED);
 *     weft_state *s = case_state(&t, rank, true);      filled
 *
 * Element i of tensor k is the number case_number(k, i), in the tensor's own width. */
#ifndef TEST_STATE_CASES_H
#define TEST_STATE_CASES_H

#include "support/test.h"

#include <stdlib.h>

#include "state/mover.h"

enum {
    CASE_TENSORS  = 5,
    CASE_MAX_RANK = 8,
    CASE_MAX_RUN  = 4,
};

typedef struct case_part {
    bool          held;
    weft_part     part;
    weft_interval run[WEFT_MAX_DIM][CASE_MAX_RUN];
} case_part;

typedef struct case_table {
    int               n_rank;
    weft_state_tensor tensor[CASE_TENSORS];
    case_part         at[CASE_TENSORS][CASE_MAX_RANK];
} case_table;

static const char *const case_name[CASE_TENSORS] = {"scalar", "bias", "weight", "copy",
                                                    "counter"};

static inline uint64_t case_number(int tensor, int64_t i)
{
    return ((uint64_t)(tensor + 1) << 32) * 0x9e3779b9u + (uint64_t)i * 0x10001u + 17;
}

static inline int case_random(unsigned *seed, int n)
{
    return rand_r(seed) % n;
}

static inline void case_shapes(case_table *t, unsigned *seed, int scale)
{
    static const weft_dtype dtype[CASE_TENSORS] = {
        WEFT_DTYPE_F32, WEFT_DTYPE_F32, WEFT_DTYPE_F32, WEFT_DTYPE_BF16, WEFT_DTYPE_I64};
    static const int n_dim[CASE_TENSORS] = {0, 1, 2, 2, 3};
    for (int k = 0; k < CASE_TENSORS; k++) {
        weft_state_tensor *x = &t->tensor[k];
        *x         = (weft_state_tensor){.name = case_name[k], .dtype = dtype[k]};
        x->shape.n = n_dim[k];
        for (int d = 0; d < n_dim[k]; d++)
            x->shape.d[d] = 1 + case_random(seed, k == 4 ? 5 : scale);
    }
    t->tensor[3].shape = t->tensor[2].shape;
}

/* Every rank holds what it likes: runs of each dimension, or nothing. */
static inline void case_any_part(case_part *c, const weft_shape *s, unsigned *seed)
{
    c->held = case_random(seed, 4) > 0;
    c->part = (weft_part){.shape = *s};
    for (int d = 0; d < s->n; d++) {
        int64_t at = case_random(seed, 2) ? 0 : case_random(seed, (int)s->d[d] + 1);
        while (c->part.n[d] < CASE_MAX_RUN && at < s->d[d]) {
            int64_t hi                = at + 1 + case_random(seed, (int)(s->d[d] - at));
            c->run[d][c->part.n[d]++] = (weft_interval){at, hi};
            at                        = hi + 1 + case_random(seed, 3);
        }
        c->part.run[d] = c->run[d];
    }
}

static inline void case_whole_part(case_part *c, const weft_shape *s)
{
    c->held = true;
    c->part = (weft_part){.shape = *s};
    for (int d = 0; d < s->n; d++) {
        c->run[d][0]   = (weft_interval){0, s->d[d]};
        c->part.n[d]   = 1;
        c->part.run[d] = c->run[d];
    }
}

/* Shard k of n along a dimension, uneven and perhaps empty, as ZeRO and tensor parallelism make
 * them; dim -1: whole. */
static inline void case_shard(case_part *c, const weft_shape *s, int dim, int k, int n)
{
    case_whole_part(c, s);
    if (dim < 0 || dim >= s->n) return;
    c->run[dim][0] = (weft_interval){s->d[dim] * k / n, s->d[dim] * (k + 1) / n};
    if (c->run[dim][0].lo == c->run[dim][0].hi) c->part.n[dim] = 0;
}

static inline bool case_holds(const case_part *c, const int64_t *x)
{
    for (int d = 0; d < c->part.shape.n; d++) {
        bool in = false;
        for (int k = 0; k < c->part.n[d]; k++)
            in = in || (x[d] >= c->run[d][k].lo && x[d] < c->run[d][k].hi);
        if (!in) return false;
    }
    return c->held;
}

static inline void case_position(const weft_shape *s, int64_t i, int64_t *x)
{
    for (int d = s->n - 1; d >= 0; d--) {
        x[d] = i % s->d[d];
        i /= s->d[d];
    }
}

/* Any parts at all; the last rank that may hold something gets what nobody else has. */
static inline void case_random_table(case_table *t, unsigned *seed, int n_rank, int scale,
                                     int n_holding)
{
    t->n_rank = n_rank;
    case_shapes(t, seed, scale);
    for (int k = 0; k < CASE_TENSORS; k++) {
        for (int r = 0; r < n_rank; r++) {
            case_any_part(&t->at[k][r], &t->tensor[k].shape, seed);
            if (r >= n_holding) t->at[k][r].held = false;
        }
        int r = case_random(seed, n_holding);
        case_whole_part(&t->at[k][r], &t->tensor[k].shape);
        if (n_holding > 1 && t->tensor[k].shape.n && case_random(seed, 3)) {
            case_shard(&t->at[k][r], &t->tensor[k].shape, 0, 0, 2);
            case_shard(&t->at[k][(r + 1) % n_holding], &t->tensor[k].shape, 0, 1, 2);
        }
    }
}

static inline weft_holders *case_holders(const case_table *t)
{
    const weft_part *part[CASE_TENSORS * CASE_MAX_RANK] = {0};
    weft_holders    *h;
    for (int k = 0; k < CASE_TENSORS; k++)
        for (int r = 0; r < t->n_rank; r++)
            if (t->at[k][r].held) part[k * t->n_rank + r] = &t->at[k][r].part;
    assert_ok(weft_holders_create(CASE_TENSORS, t->tensor, t->n_rank, part, &h));
    return h;
}

/* Elements in order of the part's memory: calls it with the global index. */
static inline void case_fill(const case_table *t, int tensor, int me, char *to)
{
    const case_part *c    = &t->at[tensor][me];
    int64_t          size = weft_dtype_bytes(t->tensor[tensor].dtype), x[WEFT_MAX_DIM];
    for (int64_t i = 0; i < weft_shape_count(&t->tensor[tensor].shape); i++) {
        case_position(&t->tensor[tensor].shape, i, x);
        uint64_t number = case_number(tensor, i);
        if (!case_holds(c, x)) continue;
        memcpy(to, &number, (size_t)size);
        to += size;
    }
}

/* WEFT_OK: a state with the rank's parts; filled with their numbers, or with zeros. */
static inline weft_status case_state(const case_table *t, int me, bool filled,
                                     weft_state **out)
{
    int64_t bytes = 0, at = 0;
    for (int k = 0; k < CASE_TENSORS; k++)
        bytes += 64 + (t->at[k][me].held ? weft_part_count(&t->at[k][me].part) *
                                               weft_dtype_bytes(t->tensor[k].dtype)
                                         : 0);
    WEFT_TRY(weft_state_create(NULL, bytes, out));
    for (int k = 0; k < CASE_TENSORS; k++) {
        const case_part  *c = &t->at[k][me];
        weft_state_tensor x = t->tensor[k];
        int64_t           n = c->held ? weft_part_count(&c->part) : 0;
        x.part              = c->held ? &c->part : NULL;
        x.offset            = at;
        at += (n * weft_dtype_bytes(x.dtype) + 63) / 64 * 64;
        WEFT_TRY(weft_state_add(*out, &x));
        char *memory = weft_memory_host(weft_state_memory(*out));
        if (filled && n) case_fill(t, k, me, memory + x.offset);
    }
    return WEFT_OK;
}

/* Is every byte of a rank's parts where it belongs? */
static inline weft_status case_check(const case_table *t, int me, const weft_state *s)
{
    for (int k = 0; k < CASE_TENSORS; k++) {
        const weft_state_tensor *x = weft_state_at(s, k);
        int64_t n = x->part ? weft_part_count(x->part) * weft_dtype_bytes(x->dtype) : 0;
        char   *want = malloc((size_t)n + 1);
        if (!want) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        if (n) case_fill(t, k, me, want);
        const char *memory = weft_memory_host(weft_state_memory(s));
        bool        same   = !n || !memcmp(want, memory + x->offset, (size_t)n);
        free(want);
        if (!same) return WEFT_FAIL(WEFT_ERR_NUMERIC, "%s differs", x->name);
    }
    return WEFT_OK;
}

#endif
