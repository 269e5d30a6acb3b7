/* The frequencies of rotary embeddings, one definition for every kernel.
 *
 *     f_i = theta^(-2i/e)               i < e/2; the angle at position p is p f_i
 *     linear   f_i / factor
 *     llama3   wavelengths above orig/low are divided by factor, below orig/high kept, between
 *              the two mixed: s = (orig/wavelength - low) / (high - low), f (s + (1-s)/factor) */
#ifndef WEFT_KERNEL_ROTARY_H
#define WEFT_KERNEL_ROTARY_H

#include <math.h>
#include <string.h>

#include "op/op.h"

static inline double weft_rotary_freq(const weft_op_use *u, int64_t i, int64_t e)
{
    const char *kind   = weft_use_string(u, "kind");
    double      factor = weft_use_float(u, "factor");
    double      f      = pow(weft_use_float(u, "theta"), -2.0 * (double)i / (double)e);
    if (!strcmp(kind, "linear")) return f / factor;
    if (strcmp(kind, "llama3") != 0) return f;
    double low = weft_use_float(u, "low"), high = weft_use_float(u, "high");
    double orig = (double)weft_use_int(u, "orig"), wave = 2 * 3.14159265358979323846 / f;
    if (wave > orig / low) return f / factor;
    if (wave < orig / high) return f;
    double s = (orig / wave - low) / (high - low);
    return f * (s + (1 - s) / factor);
}

#endif
