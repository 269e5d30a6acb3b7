/* Numbers of a file's type to fp32 and back (round to nearest, ties to even). */
#ifndef WEFT_STATE_CONVERT_H
#define WEFT_STATE_CONVERT_H

#include "weft/tensor.h"

/* from may be unaligned.  WEFT_ERR_ARG: not a floating type we read. */
weft_status weft_convert_to_f32(weft_dtype t, const void *from, int64_t n, float *to);
weft_status weft_convert_from_f32(weft_dtype t, const float *from, int64_t n, void *to);

#endif
