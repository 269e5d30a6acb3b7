/* Rotary embeddings, and T5's buckets of relative positions. */
#include "cuda_rotary.h"
#include "cuda_vec.h"

/* Threads: W pairs of a position, of type T; each turns those of some heads and samples, which
 * are blocks' y, AHEAD of them read before the first is written.  The result may lie where x
 * does. */
template <int W, int T> CU_FN void rotate(const weft_cuda_rotary_args &a)
{
    enum {
        AHEAD = T == WEFT_DTYPE_BF16 ? 4 : 2
    };
    unsigned n = (unsigned)a.by.half / W, at = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned pos = at / n, i0 = at % n * W, rows = (unsigned)(a.b * a.h);
    float    s[W], c[W];
    if (pos >= a.s) return;
    cu_find_angles<W>(a.by, pos, i0, s, c);
    const int64_t *sx = a.x.stride, *sy = a.y.stride;
    int64_t        from = pos * sx[1] + i0 * sx[3], to = pos * sy[1] + i0 * sy[3];
    CU_ROLLED
    for (unsigned first = blockIdx.y * AHEAD; first < rows; first += gridDim.y * AHEAD) {
        cu_row<W> lo[AHEAD], hi[AHEAD];
        CU_UNROLL
        for (unsigned k = 0; k < AHEAD; k++) {
            unsigned b = (first + k) / (unsigned)a.h, h = (first + k) - b * (unsigned)a.h;
            int64_t  x = from + b * sx[0] + h * sx[2];
            if (first + k >= rows) break;
            lo[k] = cu_read_row<W>(a.x.p, T, x, 1);
            hi[k] = cu_read_row<W>(a.x.p, T, x + a.by.half * sx[3], 1);
        }
        CU_UNROLL
        for (unsigned k = 0; k < AHEAD; k++) {
            unsigned b = (first + k) / (unsigned)a.h, h = (first + k) - b * (unsigned)a.h;
            int64_t  y = to + b * sy[0] + h * sy[2];
            float    u[W], v[W], p[W], q[W];
            if (first + k >= rows) break;
            cu_widen_row<W>(lo[k], T, 1, u);
            cu_widen_row<W>(hi[k], T, 1, v);
            for (int j = 0; j < W; j++) cu_turn(u[j], v[j], c[j], s[j], p[j], q[j]);
            cu_put_row<W>(a.y.p, T, y, p);
            cu_put_row<W>(a.y.p, T, y + a.by.half * sy[3], q);
        }
    }
}

CU_KERNEL(rotary_1, weft_cuda_rotary_args, 128)
{
    if (a.x.dtype == WEFT_DTYPE_BF16)
        rotate<1, WEFT_DTYPE_BF16>(a);
    else
        rotate<1, WEFT_DTYPE_F32>(a);
}
/* Columns lie next to each other, at multiples of 16 bytes. */
CU_KERNEL_BLOCKS(rotary_8, weft_cuda_rotary_args, 128, 6)
{
    if (a.x.dtype == WEFT_DTYPE_BF16)
        rotate<8, WEFT_DTYPE_BF16>(a);
    else
        rotate<8, WEFT_DTYPE_F32>(a);
}

CU_KERNEL(rel_bucket, weft_cuda_bucket_args, 256)
{
    int64_t at = cu_index();
    if (at >= a.s * a.t) return;
    int64_t i = at / a.t, d = at - i * a.t - i + a.ahead;
    int     b = a.two && d > 0 ? a.n : 0;
    d         = d < 0 ? -d : a.two ? d : 0;
    if (d < a.exact || a.exact == 0) {
        b += (int)d;
    } else {
        b += a.exact;
        for (int k = 0; k < a.n_bound; k++) b += d >= a.bound[k];
    }
    a.ids[at] = b;
}
