/* Rotary embeddings, and T5's buckets of relative positions. */
#include "cuda_vec.h"

#ifdef __CUDACC__
CU_FN void sin_cos_turns(double turns, float &s, float &c)
{
    sincospif((float)(2 * (turns - rint(turns))), &s, &c);
}
#else
CU_FN void sin_cos_turns(double turns, float &s, float &c)
{
    double angle = 2 * 3.14159265358979323846 * (turns - rint(turns));
    s            = (float)sin(angle);
    c            = (float)cos(angle);
}
#endif

/* How far pair i turns from one position to the next, in whole turns. */
CU_FN double find_turns(const weft_cuda_rotary_args &a, int64_t i)
{
    double turns = exp2(a.slope * (double)i) * 0.15915494309189533577; /* 1 / 2 pi */
    if (a.kind == WEFT_CUDA_ROTARY_DEFAULT) return turns;
    if (a.kind == WEFT_CUDA_ROTARY_LINEAR) return turns * a.share;
    double waves = a.orig * turns; /* of the original context */
    if (waves < a.low) return turns * a.share;
    if (waves > a.high) return turns;
    double s = (waves - a.low) * a.mix;
    return turns * (s + (1 - s) * a.share);
}

/* Threads: W pairs of a position; each turns those of some heads of some
 * samples, which are blocks' y. */
template <int W> CU_FN void rotate(const weft_cuda_rotary_args &a)
{
    unsigned n = (unsigned)a.half / W, at = blockIdx.x * blockDim.x + threadIdx.x;
    int64_t  pos = at / n, i0 = (int64_t)(at % n) * W;
    float    s[W], c[W];
    if (pos >= a.s) return;
    for (int j = 0; j < W; j++) {
        sin_cos_turns((double)(pos + a.first) * find_turns(a, i0 + j), s[j], c[j]);
        s[j] *= a.sign;
    }
    const int64_t *sx = a.x.stride, *sy = a.y.stride;
    for (unsigned bh = blockIdx.y; bh < (unsigned)(a.b * a.h); bh += gridDim.y) {
        int64_t b = bh / (unsigned)a.h, h = bh % (unsigned)a.h;
        int64_t from = b * sx[0] + pos * sx[1] + h * sx[2] + i0 * sx[3];
        int64_t to   = b * sy[0] + pos * sy[1] + h * sy[2] + i0 * sy[3];
        float   u[W], v[W], y[W], z[W];
        cu_get_row<W>(a.x.p, a.x.dtype, from, 1, u);
        cu_get_row<W>(a.x.p, a.x.dtype, from + a.half * sx[3], 1, v);
        for (int j = 0; j < W; j++) {
            y[j] = u[j] * c[j] - v[j] * s[j];
            z[j] = v[j] * c[j] + u[j] * s[j];
        }
        cu_put_row<W>(a.y.p, a.y.dtype, to, y);
        cu_put_row<W>(a.y.p, a.y.dtype, to + a.half * sy[3], z);
    }
}

CU_KERNEL(rotary_1, weft_cuda_rotary_args, 256)
{
    rotate<1>(a);
}
/* Columns lie next to each other, at multiples of 16 bytes. */
CU_KERNEL(rotary_8, weft_cuda_rotary_args, 256)
{
    rotate<8>(a);
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
