/* Operands of the grouped matmuls' tests: random bf16 and f32 tensors of an arena, read as
 * floats. */
#ifndef TEST_CUDA_GROUPED_DATA_H
#define TEST_CUDA_GROUPED_DATA_H

#include <math.h>

#include "base/random.h"
#include "support/fixture.h"
#include "weft/tensor.h"

static inline float bf16_to_float(uint16_t x)
{
    union {
        uint32_t u;
        float    f;
    } v = {(uint32_t)x << 16};
    return v.f;
}

static inline uint16_t float_to_bf16(float x)
{
    union {
        float    f;
        uint32_t u;
    } v = {x};
    return (uint16_t)((v.u + 0x7fffu + (v.u >> 16 & 1u)) >> 16);
}

/* Aligned to 64 bytes. */
static inline void *grouped_room(int64_t bytes)
{
    char *p = weft_arena_alloc(arena, (size_t)bytes + 64);
    assert_non_null(p);
    return (char *)(((uintptr_t)p + 63) / 64 * 64);
}

static inline weft_view grouped_view(weft_dtype t, int n, const int64_t *d)
{
    weft_shape s = weft_shape_make(n, d);
    return weft_view_make(grouped_room(weft_shape_count(&s) * weft_dtype_bytes(t)), t,
                          &s);
}

/* Numbers around 0 in rows [0, used), not a number in those after them. */
static inline void grouped_draw(const weft_view *v, int64_t used)
{
    int64_t count = weft_shape_count(&v->shape), row = count / v->shape.d[0];
    for (int64_t i = 0; i < count; i++) {
        float x = weft_random_uniform(test_draw()) - 0.5f;
        if (v->dtype == WEFT_DTYPE_F32)
            ((float *)v->p)[i] = i < used * row ? x : NAN;
        else
            ((uint16_t *)v->p)[i] = i < used * row ? float_to_bf16(x) : 0xffff;
    }
}

static inline float grouped_get(const weft_view *v, int64_t i)
{
    return v->dtype == WEFT_DTYPE_F32 ? ((float *)v->p)[i]
                                      : bf16_to_float(((uint16_t *)v->p)[i]);
}

#endif
