/* Vectors of floats: one spelling for AVX-512, AVX2 and plain C.
 *
 * A kernel is written once over these names, in a header, and compiled by x_plain.c, x_avx2.c and
 * x_avx512.c (CMake gives a file its instructions by its name); kernel/isa.h says which to call.
 *
 *     for (i = 0; i + VW <= n; i += VW) vf_store(y + i, vf_exp(vf_load(x + i)));
 *     if (i < n) vf_store_n(y + i, vf_exp(vf_load_n(x + i, n - i)), n - i);
 *
 * Every operation acts lane by lane and is exactly rounded (fma included), so results that are
 * computed lane by lane have the same bits at every width.  There is no sum across lanes here
 * for that reason: such a sum needs an order that does not depend on VW. */
#ifndef WEFT_KERNEL_VEC_H
#define WEFT_KERNEL_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tensor/bf16.h"

#define VFN static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#include "kernel/vec_512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "kernel/vec_256.h"
#else
#include "kernel/vec_1.h"
#endif

#endif
