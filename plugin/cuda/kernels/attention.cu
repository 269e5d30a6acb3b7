/* Attention in f32, forward and backward: tiles of 64 queries by 64 keys, never all scores.
 *
 *     p = e^(scale q.k + bias - lse)    o = p v    ds = p (dy.v - dy.o)
 *     dv = p^T dy    dk = scale ds^T q    dq = scale ds k    dbias = ds summed over the batch
 *
 * Scores are computed again in the backward pass.  Every result has one owner and one order of
 * sums: keys in order for o and dq, heads of a group and then queries in order for dk and dv,
 * samples in order for dbias. */
#include "cuda_tile.h"

enum {
    TILE = CU_TILE
};

/* Rows of head h of sample b. */
CU_FN cu_rows rows_of(const weft_cuda_heads_view &v, int64_t b, int64_t h, int64_t n,
                      int64_t d)
{
    int64_t first = b * v.stride[0] + h * v.stride[2];
    cu_rows m     = {(const char *)v.p + first * (v.dtype == WEFT_DTYPE_F32 ? 4 : 2),
                     v.dtype,
                     (int)v.stride[1],
                     (int)v.stride[3],
                     (int)n,
                     (int)d};
    return m;
}

/* The work of a block: a tile of one head, and which columns of the result. */
struct tile_of {
    int b, h, first, slice;
};

/* Blocks x: tiles of n_tile, the last ones first (late queries see most keys),
 * for each head of each sample. */
CU_FN tile_of find_tile(int64_t rows, int64_t heads)
{
    unsigned n_tile = (unsigned)((rows + TILE - 1) / TILE), bh = blockIdx.x / n_tile;
    tile_of  w = {(int)(bh / (unsigned)heads), (int)(bh % (unsigned)heads),
                  (int)(n_tile - 1 - blockIdx.x % n_tile) * TILE, (int)blockIdx.y};
    return w;
}

CU_FN int at_most(int64_t x, int64_t limit)
{
    return (int)(x < limit ? x : limit);
}

/* Keys [lo, hi) that some query of the tile from i0 on sees. */
CU_FN void find_keys(const weft_cuda_attention_args &a, int i0, int &lo, int &hi)
{
    int64_t from = i0 + a.ahead - a.window + 1;
    lo           = a.window > 0 && from > 0 ? at_most(from, a.t) : 0;
    hi           = a.causal ? at_most(at_most(i0 + TILE, a.s) + a.ahead, a.t) : (int)a.t;
}

/* Queries [lo, hi) that see some key of the tile from j0 on. */
CU_FN void find_queries(const weft_cuda_attention_args &a, int j0, int &lo, int &hi)
{
    int64_t from = j0 - a.ahead;
    lo           = a.causal && from > 0 ? at_most(from, a.s) : 0;
    hi = a.window > 0 ? at_most(at_most(j0 + TILE, a.t) - 1 - a.ahead + a.window, a.s)
                      : (int)a.s;
}

/* Scaled and masked scores of queries i0 .. with keys j0 .. from products. */
CU_FN void make_scores(const weft_cuda_attention_args &a, int h, int i0, int j0,
                       float s[4][4])
{
    const int64_t *st = a.bias.stride;
    CU_UNROLL
    for (int x = 0; x < 16; x++) {
        int     i = x / 4, j = x % 4;
        int     row = i0 + cu_tile_row() + i, col = j0 + cu_tile_col() + j;
        int64_t behind = row - col + a.ahead;
        bool    seen   = row < (int)a.s && col < (int)a.t && !(a.causal && behind < 0) &&
                    !(a.window > 0 && behind >= a.window);
        float z = a.scale * s[i][j];
        if (a.bias.p && seen)
            z += cu_get(a.bias.p, a.bias.dtype, h * st[0] + row * st[1] + col * st[2]);
        s[i][j] = seen ? z : -INFINITY;
    }
}

/* ---- forward ---- */

/* Sums and maxima over the 16 threads that have a row. */
CU_FN float row_max(float x)
{
    for (int k = 8; k; k /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
    return x;
}
CU_FN float row_sum(float x)
{
    for (int k = 8; k; k /= 2) x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

/* What a thread knows of its 4 rows. */
struct running_rows {
    float max[4], sum[4];
};

/* Scores become e^(score - max); fix: what sums so far are multiplied by. */
CU_FN void soften(running_rows &r, float s[4][4], float fix[4])
{
    CU_UNROLL
    for (int i = 0; i < 4; i++) {
        float m = fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3])), sum = 0;
        m          = fmaxf(row_max(m), r.max[i]);
        float from = m == -INFINITY ? 0 : m;
        fix[i]     = expf(r.max[i] - from);
        CU_UNROLL
        for (int j = 0; j < 4; j++) {
            s[i][j] = expf(s[i][j] - from);
            sum += s[i][j];
        }
        r.sum[i] = r.sum[i] * fix[i] + row_sum(sum);
        r.max[i] = m;
    }
}

template <int WIDE>
CU_FN void put_result(const weft_cuda_attention_args &a, const tile_of &w,
                      const running_rows &r, const float o[WIDE][4][4])
{
    const int64_t *so = a.o.stride, *sl = a.lse.stride;
    CU_UNROLL
    for (int i = 0; i < 4; i++) {
        int64_t row = w.first + cu_tile_row() + i;
        bool    any = r.max[i] != -INFINITY;
        if (row >= a.s) continue;
        if (a.lse.p && w.slice == 0 && cu_tile_col() == 0)
            ((float *)a.lse.p)[w.b * sl[0] + row * sl[1] + w.h * sl[2]] =
                any ? r.max[i] + logf(r.sum[i]) : -INFINITY;
        for (int n = 0; a.o.p && n < WIDE; n++)
            for (int j = 0; j < 4; j++) {
                int64_t col = (w.slice * WIDE + n) * TILE + cu_tile_col() + j;
                if (col < a.f)
                    cu_put(a.o.p, a.o.dtype,
                           w.b * so[0] + row * so[1] + w.h * so[2] + col * so[3],
                           any ? o[n][i][j] / r.sum[i] : 0);
            }
    }
}

/* Blocks: (tiles of queries) x heads x samples, slices of WIDE tiles of result
 * columns. */
template <int WIDE> CU_FN void attend(const weft_cuda_attention_args &a)
{
    __shared__ cu_tile_shared sh;
    tile_of                   w = find_tile(a.s, a.h);
    cu_rows                   q = rows_of(a.q, w.b, w.h, a.s, a.e);
    cu_rows                   k = rows_of(a.k, w.b, w.h / (int)(a.h / a.g), a.t, a.e);
    cu_rows                   v = rows_of(a.v, w.b, w.h / (int)(a.h / a.g), a.t, a.f);
    running_rows              r;
    float                     o[WIDE][4][4], s[4][4], fix[4];
    int                       lo, hi;

    for (int i = 0; i < 4; i++) r.max[i] = -INFINITY, r.sum[i] = 0;
    CU_UNROLL
    for (int n = 0; n < WIDE; n++) cu_tile_zero(o[n]);
    find_keys(a, w.first, lo, hi);
    for (int j0 = lo / TILE * TILE; j0 < hi; j0 += TILE) {
        cu_tile_dot(s, q, w.first, k, j0, sh.room);
        make_scores(a, w.h, w.first, j0, s);
        soften(r, s, fix);
        cu_tile_put_turned(sh.m,
                           s); /* seen by others after the first barrier of cu_tile_mix */
        CU_UNROLL
        for (int n = 0; n < WIDE; n++) {
            CU_UNROLL
            for (int x = 0; x < 16; x++) {
                int i = x / 4, j = x % 4;
                o[n][i][j] *= fix[i];
            }
            cu_tile_mix(o[n], sh.m, v, j0, (w.slice * WIDE + n) * TILE, sh.room);
        }
    }
    put_result<WIDE>(a, w, r, o);
}

CU_KERNEL(attention_1, weft_cuda_attention_args, CU_TILE_THREADS)
{
    attend<1>(a);
}
CU_KERNEL(attention_2, weft_cuda_attention_args, CU_TILE_THREADS)
{
    attend<2>(a);
}

/* ---- backward ---- */

/* own = dy.o: a warp a row, in the order (b, h, s) */
CU_KERNEL(attention_own, weft_cuda_attention_args, 256)
{
    int64_t        row = cu_index() / CU_WARP, rows = a.b * a.h * a.s;
    int64_t        i = row % a.s, h = row / a.s % a.h, b = row / a.s / a.h;
    const int64_t *sy = a.dy.stride, *so = a.o.stride;
    float          sum = 0;
    if (row >= rows) return;
    for (int64_t x = threadIdx.x % CU_WARP; x < a.f; x += CU_WARP)
        sum += cu_get(a.dy.p, a.dy.dtype, b * sy[0] + i * sy[1] + h * sy[2] + x * sy[3]) *
               cu_get(a.o.p, a.o.dtype, b * so[0] + i * so[1] + h * so[2] + x * so[3]);
    sum = cu_warp_sum(sum);
    if (threadIdx.x % CU_WARP == 0) a.own[row] = sum;
}

/* One head's operands. */
struct head_rows {
    cu_rows q, k, v, dy;
    int     b, h;
};

CU_FN head_rows find_head(const weft_cuda_attention_args &a, int b, int h)
{
    int       g = h / (int)(a.h / a.g);
    head_rows w = {rows_of(a.q, b, h, a.s, a.e),
                   rows_of(a.k, b, g, a.t, a.e),
                   rows_of(a.v, b, g, a.t, a.f),
                   rows_of(a.dy, b, h, a.s, a.f),
                   b,
                   h};
    return w;
}

/* p of queries i0 .. with keys j0 .. */
CU_FN void find_p(const weft_cuda_attention_args &a, const head_rows &w, int i0, int j0,
                  float p[4][4], float *room)
{
    const int64_t *sl = a.lse.stride;
    /* or what 16 scores need stays in registers over the caller's loop, and others are spilled */
    asm volatile("" : "+r"(i0), "+r"(j0));
    cu_tile_dot(p, w.q, i0, w.k, j0, room);
    make_scores(a, w.h, i0, j0, p);
    CU_UNROLL
    for (int i = 0; i < 4; i++) {
        int   row = i0 + cu_tile_row() + i;
        float lse = 0;
        if (row < a.s)
            lse = ((const float *)a.lse.p)[w.b * sl[0] + row * sl[1] + w.h * sl[2]];
        CU_UNROLL
        for (int j = 0; j < 4; j++)
            p[i][j] = p[i][j] == -INFINITY ? 0 : expf(p[i][j] - lse);
    }
}

/* ds = p (dy.v - own), from dy.v */
CU_FN void finish_ds(const weft_cuda_attention_args &a, const head_rows &w, int i0,
                     const float p[4][4], float ds[4][4])
{
    CU_UNROLL
    for (int i = 0; i < 4; i++) {
        int   row = i0 + cu_tile_row() + i;
        float own = row < a.s ? a.own[((int64_t)w.b * a.h + w.h) * a.s + row] : 0;
        CU_UNROLL
        for (int j = 0; j < 4; j++) ds[i][j] = p[i][j] * (ds[i][j] - own);
    }
}

CU_FN void find_ds(const weft_cuda_attention_args &a, const head_rows &w, int i0, int j0,
                   float ds[4][4], float *room)
{
    float p[4][4];
    find_p(a, w, i0, j0, p, room);
    cu_tile_dot(ds, w.dy, i0, w.v, j0, room);
    finish_ds(a, w, i0, p, ds);
}

/* A tile of a gradient (b, ., h, .): rows r0 .., columns c0 .. */
CU_FN void put_gradient(const weft_cuda_heads_view &v, int b, int h, int r0, int64_t n,
                        int c0, int64_t d, const float acc[4][4], float scale, bool add)
{
    if (!v.p) return;
    CU_UNROLL
    for (int x = 0; x < 16; x++) {
        int i = x / 4, j = x % 4;
        int row = r0 + cu_tile_row() + i, col = c0 + cu_tile_col() + j;
        if (row >= n || col >= d) continue;
        int64_t at =
            b * v.stride[0] + row * v.stride[1] + h * v.stride[2] + col * v.stride[3];
        float y = scale * acc[i][j];
        cu_put(v.p, v.dtype, at, add ? cu_get(v.p, v.dtype, at) + y : y);
    }
}

/* Blocks: (tiles of queries) x heads x samples, tiles of columns of dq. */
CU_KERNEL(attention_dq, weft_cuda_attention_args, CU_TILE_THREADS)
{
    __shared__ cu_tile_shared sh;
    tile_of                   w    = find_tile(a.s, a.h);
    head_rows                 head = find_head(a, w.b, w.h);
    float                     ds[4][4], dq[4][4];
    int                       lo, hi;

    cu_tile_zero(dq);
    find_keys(a, w.first, lo, hi);
    for (int j0 = lo / TILE * TILE; j0 < hi; j0 += TILE) {
        find_ds(a, head, w.first, j0, ds, sh.room);
        cu_tile_put_turned(sh.m, ds);
        cu_tile_mix(dq, sh.m, head.k, j0, w.slice * TILE, sh.room);
    }
    put_gradient(a.dq, w.b, w.h, w.first, a.s, w.slice * TILE, a.e, dq, a.scale,
                 a.add & 1);
}

/* Blocks: (tiles of keys) x key heads x samples, tiles of columns of dk and dv.
 */
CU_KERNEL(attention_dkv, weft_cuda_attention_args, CU_TILE_THREADS)
{
    __shared__ cu_tile_shared sh;
    tile_of                   w = find_tile(a.t, a.g);
    float                     p[4][4], ds[4][4], dk[4][4], dv[4][4];
    int                       lo, hi, col = w.slice * TILE;

    cu_tile_zero(dk);
    cu_tile_zero(dv);
    find_queries(a, w.first, lo, hi);
    for (int r = (int)(a.h / a.g), h = w.h * r; h < (w.h + 1) * r; h++) {
        head_rows head = find_head(a, w.b, h);
        for (int i0 = lo / TILE * TILE; i0 < hi; i0 += TILE) {
            find_p(a, head, i0, w.first, p, sh.room);
            cu_tile_put(sh.m, p);
            cu_tile_mix(dv, sh.m, head.dy, i0, col, sh.room);
            cu_tile_dot(ds, head.dy, i0, head.v, w.first, sh.room);
            cu_tile_get(sh.m, p); /* again, instead of keeping it: too many registers */
            finish_ds(a, head, i0, p, ds);
            cu_tile_put(sh.m, ds);
            cu_tile_mix(dk, sh.m, head.q, i0, col, sh.room);
        }
    }
    put_gradient(a.dk, w.b, w.h, w.first, a.t, col, a.e, dk, a.scale, a.add >> 1 & 1);
    put_gradient(a.dv, w.b, w.h, w.first, a.t, col, a.f, dv, 1, a.add >> 2 & 1);
}

/* Blocks: tiles of keys, tiles of queries, heads. */
CU_KERNEL(attention_dbias, weft_cuda_attention_args, CU_TILE_THREADS)
{
    __shared__ cu_tile_shared sh;
    int   j0 = (int)blockIdx.x * TILE, i0 = (int)blockIdx.y * TILE, h = (int)blockIdx.z;
    float ds[4][4], sum[4][4];

    cu_tile_zero(sum);
    for (int b = 0; b < (int)a.b; b++) {
        find_ds(a, find_head(a, b, h), i0, j0, ds, sh.room);
        CU_UNROLL
        for (int x = 0; x < 16; x++) {
            int i = x / 4, j = x % 4;
            sum[i][j] += ds[i][j];
        }
    }
    /* (h,s,t) as (1,s,h,t) */
    weft_cuda_heads_view v = a.dbias;
    v.stride[3]            = a.dbias.stride[2];
    v.stride[2]            = a.dbias.stride[0];
    v.stride[1]            = a.dbias.stride[1];
    put_gradient(v, 0, h, i0, a.s, j0, a.t, sum, 1, a.add >> 3 & 1);
}

/* ---- two sets of keys as one ---- */

/* A warp a row. */
CU_KERNEL(attention_merge, weft_cuda_attention_merge_args, 256)
{
    int64_t row = cu_index() / CU_WARP;
    if (row >= a.rows) return;
    float p = a.lse_a[row], q = a.lse_b[row], max = fmaxf(p, q), lse = -INFINITY, u = 0,
          v = 0;
    if (max > -INFINITY) {
        lse = max + logf(expf(p - max) + expf(q - max));
        u   = expf(p - lse);
        v   = expf(q - lse);
    }
    for (int64_t i = threadIdx.x % CU_WARP; i < a.e && a.o; i += CU_WARP) {
        float y = u * cu_get(a.o_a, a.dtype_a, row * a.e + i);
        cu_put(a.o, a.dtype, row * a.e + i,
               fmaf(v, cu_get(a.o_b, a.dtype_b, row * a.e + i), y));
    }
    if (a.lse && threadIdx.x % CU_WARP == 0) a.lse[row] = lse;
}
