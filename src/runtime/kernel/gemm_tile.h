/* Tiles of the product over vec.h: MR rows by two vectors, the sums in registers.  The file that
 * includes this says MR; NR is 2 VW.  A row of A is one broadcast a step, B two loads. */
#ifndef WEFT_KERNEL_GEMM_TILE_H
#define WEFT_KERNEL_GEMM_TILE_H

#include "kernel/gemm_priv.h"
#include "kernel/vec.h"

#ifndef MR
#define MR 4
#endif
#define NR (2 * VW)

#define FOR_ROWS(R) _Pragma("GCC unroll 16") for (int i = 0; i < R; i++)

/* Where row i of A is: packed, rows lie side by side; in its matrix, rs apart, counted from
 * every third row, so that the address of each is one operand of an instruction. */
#define PACKED(i)   a[i]
#define PACKED_NEXT (a += MR)
#define PLACED(i)   ((i) < 3 ? a : (i) < 6 ? a3 : (i) < 9 ? a6 : a9)[(i) % 3 * rs]
#define PLACED_NEXT (a++, a3++, a6++, a9++)

/* One step of k.  COPY may keep what was read. */
#define STEP(R, A, A_NEXT, B_STEP, COPY)                                                 \
    do {                                                                                 \
        vf b0 = vf_load(b), b1 = vf_load(b + VW);                                        \
        FOR_ROWS(R)                                                                      \
        {                                                                                \
            vf ai   = vf_set1(A(i));                                                     \
            s[i][0] = vf_fma(ai, b0, s[i][0]);                                           \
            s[i][1] = vf_fma(ai, b1, s[i][1]);                                           \
        }                                                                                \
        COPY;                                                                            \
        A_NEXT, b += B_STEP;                                                             \
    } while (0)

#define ADD_ROWS(R, from, ld)                                                            \
    do {                                                                                 \
        if (from) FOR_ROWS(R)                                                            \
            {                                                                            \
                s[i][0] = vf_add(vf_load(from + i * ld), s[i][0]);                       \
                s[i][1] = vf_add(vf_load(from + i * ld + VW), s[i][1]);                  \
            }                                                                            \
    } while (0)

static inline void tile_fetch(const float *row)
{
    __builtin_prefetch(row, 1);
    __builtin_prefetch(row + NR / 2, 1);
    __builtin_prefetch(row + NR - 1, 1);
}

/* Fetches a row of the tile that will be needed; the next one, NULL after the last. */
static inline const float *tile_near(int *row, const float *p,
                                     const weft_kernel__gemm_tile *t, int rows)
{
    const weft_kernel__gemm_near *n = t->near + (*row >= rows);

    tile_fetch(p);
    if (++*row == rows) return t->near[1].p;
    return *row < 2 * rows ? p + n->ld : NULL;
}

/* Rows of C come near early, from far away, and into the first-level cache (whence B has driven
 * them by then) in the last steps. */
#define TILE(name, R, A, A_NEXT, B_STEP, COPY)                                           \
    static void name(const weft_kernel__gemm_tile *t)                                    \
    {                                                                                    \
        const float            *a = t->a, *b = t->b;                                     \
        const int64_t           rs = t->a_rs;                                            \
        const float            *a3 = a + 3 * rs, *a6 = a + 6 * rs, *a9 = a + 9 * rs;     \
        float                  *copy = t->copy;                                          \
        weft_kernel__gemm_ahead h    = *t->ahead;                                        \
        const float            *near = t->near[0].p;                                     \
        int                     row  = 0;                                                \
        int64_t                 p;                                                       \
        vf                      s[R][2];                                                 \
                                                                                         \
        (void)copy, (void)a3, (void)a6, (void)a9;                                        \
        FOR_ROWS(R)                                                                      \
        {                                                                                \
            s[i][0] = s[i][1] = vf_set1(0.0f);                                           \
        }                                                                                \
        for (p = t->kc; p >= GEMM_AHEAD; p -= GEMM_AHEAD) {                              \
            __builtin_prefetch(h.p, 0, 2);                                               \
            __builtin_prefetch(h.p + 64, 0, 2);                                          \
            h.p += GEMM_PAIR;                                                            \
            if (--h.left == 0) h.left = h.run, h.p += h.skip;                            \
            if (near) near = tile_near(&row, near, t, R);                                \
            if (p < GEMM_AHEAD * (R + 1))                                                \
                tile_fetch(t->out + (p / GEMM_AHEAD - 1) * t->ld_out);                   \
            STEP(R, A, A_NEXT, B_STEP, COPY);                                            \
            STEP(R, A, A_NEXT, B_STEP, COPY);                                            \
            STEP(R, A, A_NEXT, B_STEP, COPY);                                            \
            STEP(R, A, A_NEXT, B_STEP, COPY);                                            \
        }                                                                                \
        *t->ahead = h;                                                                   \
        for (; p > 0; p--) STEP(R, A, A_NEXT, B_STEP, COPY);                             \
        ADD_ROWS(R, t->in, t->ld_in);                                                    \
        ADD_ROWS(R, t->add[0], t->ld_add[0]);                                            \
        ADD_ROWS(R, t->add[1], t->ld_add[1]);                                            \
        ADD_ROWS(R, t->add[2], t->ld_add[2]);                                            \
        FOR_ROWS(R)                                                                      \
        {                                                                                \
            vf_store(t->out + i * t->ld_out, s[i][0]);                                   \
            vf_store(t->out + i * t->ld_out + VW, s[i][1]);                              \
        }                                                                                \
    }

#define TILE_PACKED(R) TILE(packed_##R, R, PACKED, PACKED_NEXT, NR, (void)0)
#define TILE_PLACED(R) TILE(placed_##R, R, PLACED, PLACED_NEXT, NR, (void)0)

/* Reads A (B) where it lies, a full panel with unit row stride, and packs it on the way. */
#define COPY_A      (memcpy(copy, a, MR * sizeof *a), copy += MR)
#define COPY_B      (vf_store(copy, b0), vf_store(copy + VW, b1), copy += NR)
#define TILE_COPY_A TILE(copy_a, MR, PACKED, (a += t->src_step), NR, COPY_A)
#define TILE_COPY_B TILE(copy_b, MR, PACKED, PACKED_NEXT, t->src_step, COPY_B)
#define TILE_COPY_B_PLACED                                                               \
    TILE(copy_b_placed, MR, PLACED, PLACED_NEXT, t->src_step, COPY_B)

#endif
