/* For .cu files: the angles of rotary embeddings. */
#ifndef WEFT_CUDA_ROTARY_H
#define WEFT_CUDA_ROTARY_H

#include "cuda_device.h"

#ifdef __CUDACC__
CU_FN void cu_sin_cos_turns(double turns, float &s, float &c)
{
    sincospif((float)(2 * (turns - rint(turns))), &s, &c);
}
#else
CU_FN void cu_sin_cos_turns(double turns, float &s, float &c)
{
    double angle = 2 * 3.14159265358979323846 * (turns - rint(turns));
    s            = (float)sin(angle);
    c            = (float)cos(angle);
}
#endif

/* How far a pair turns from one position to the next, in whole turns, by the kind of embedding. */
CU_FN double cu_change_turns(const weft_cuda_angles &a, double turns)
{
    if (a.kind == WEFT_CUDA_ROTARY_DEFAULT) return turns;
    if (a.kind == WEFT_CUDA_ROTARY_LINEAR) return turns * a.share;
    double waves = a.orig * turns; /* of the original context */
    if (waves < a.low) return turns * a.share;
    if (waves > a.high) return turns;
    double s = (waves - a.low) * a.mix;
    return turns * (s + (1 - s) * a.share);
}

/* Sines and cosines of pairs i0 .. i0 + W at a position.  Each turns less than the one before
 * by the same factor. */
template <int W>
CU_FN void cu_find_angles(const weft_cuda_angles &a, int64_t pos, int64_t i0, float s[W],
                          float c[W])
{
    double turns  = exp2(a.slope * (double)i0) * 0.15915494309189533577; /* 1 / 2 pi */
    double factor = W > 1 ? exp2(a.slope) : 1;
    CU_UNROLL
    for (int j = 0; j < W; j++, turns *= factor) {
        cu_sin_cos_turns((double)(pos + a.first) * cu_change_turns(a, turns), s[j], c[j]);
        s[j] *= a.sign;
    }
}

/* The pair (u, v), turned: (x, y). */
CU_FN void cu_turn(float u, float v, float c, float s, float &x, float &y)
{
    x = fmaf(u, c, -(v * s));
    y = fmaf(v, c, u * s);
}

#endif
