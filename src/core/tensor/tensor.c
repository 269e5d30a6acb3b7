/* Data types, shapes, regions and views (weft/tensor.h). */
#include "weft/tensor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define MAX_COUNT ((int64_t)1 << 56)

static const struct {
    int         bytes;
    const char *name, *long_name, *st_name;
} dtype_table[WEFT_N_DTYPE] = {
    [WEFT_DTYPE_F32]     = {4, "f32", "float32", "F32"},
    [WEFT_DTYPE_BF16]    = {2, "bf16", "bfloat16", "BF16"},
    [WEFT_DTYPE_F64]     = {8, "f64", "float64", "F64"},
    [WEFT_DTYPE_F16]     = {2, "f16", "float16", "F16"},
    [WEFT_DTYPE_I32]     = {4, "i32", "int32", "I32"},
    [WEFT_DTYPE_I64]     = {8, "i64", "int64", "I64"},
    [WEFT_DTYPE_U8]      = {1, "u8", "uint8", "U8"},
    [WEFT_DTYPE_U16]     = {2, "u16", "uint16", "U16"},
    [WEFT_DTYPE_I8]      = {1, "i8", "int8", "I8"},
    [WEFT_DTYPE_I16]     = {2, "i16", "int16", "I16"},
    [WEFT_DTYPE_U32]     = {4, "u32", "uint32", "U32"},
    [WEFT_DTYPE_U64]     = {8, "u64", "uint64", "U64"},
    [WEFT_DTYPE_BOOL]    = {1, "bool", "bool", "BOOL"},
    [WEFT_DTYPE_F8_E4M3] = {1, "f8_e4m3", "float8_e4m3fn", "F8_E4M3"},
    [WEFT_DTYPE_F8_E5M2] = {1, "f8_e5m2", "float8_e5m2", "F8_E5M2"},
};

static bool dtype_ok(weft_dtype t)
{
    return (unsigned)t < WEFT_N_DTYPE;
}

int weft_dtype_bytes(weft_dtype t)
{
    assert(dtype_ok(t));
    return dtype_table[t].bytes;
}

const char *weft_dtype_name(weft_dtype t)
{
    return dtype_ok(t) ? dtype_table[t].name : "?";
}

const char *weft_dtype_st_name(weft_dtype t)
{
    return dtype_ok(t) ? dtype_table[t].st_name : "?";
}

bool weft_dtype_parse(const char *name, weft_dtype *out)
{
    for (int t = 0; t < WEFT_N_DTYPE; t++)
        if (!strcmp(name, dtype_table[t].name) ||
            !strcmp(name, dtype_table[t].long_name) ||
            !strcmp(name, dtype_table[t].st_name)) {
            *out = (weft_dtype)t;
            return true;
        }
    return false;
}

weft_shape weft_shape_make(int n, const int64_t *d)
{
    assert(n >= 0 && n <= WEFT_MAX_DIM);
    weft_shape s = {.n = n};
    for (int i = 0; i < n; i++) s.d[i] = d[i];
    return s;
}

int64_t weft_shape_count(const weft_shape *s)
{
    int64_t c = 1;
    for (int i = 0; i < s->n; i++) c *= s->d[i];
    return c;
}

bool weft_shape_equal(const weft_shape *a, const weft_shape *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (a->d[i] != b->d[i]) return false;
    return true;
}

const char *weft_shape_text(const weft_shape *s, char *buf, size_t n)
{
    size_t at = 0;
    if (n) buf[0] = 0;
    for (int i = 0; i < s->n && at < n; i++) {
        int k = snprintf(buf + at, n - at, i ? ",%lld" : "%lld", (long long)s->d[i]);
        at += (size_t)k;
    }
    return buf;
}

weft_status weft_shape_verify(const weft_shape *s)
{
    if (s->n < 0 || s->n > WEFT_MAX_DIM)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "a shape has %d dimensions, at most %d are possible", s->n,
                         WEFT_MAX_DIM);
    int64_t c = 1;
    for (int i = 0; i < s->n; i++) {
        if (s->d[i] < 0)
            return WEFT_FAIL(WEFT_ERR_ARG, "dimension %d of a shape is %lld, below 0", i,
                             (long long)s->d[i]);
        /* zeros do not hide a product that is too large */
        int64_t d = s->d[i] ? s->d[i] : 1;
        if (c > MAX_COUNT / d)
            return WEFT_FAIL(WEFT_ERR_ARG, "a shape has more than 2^56 elements");
        c *= d;
    }
    return WEFT_OK;
}

weft_region weft_region_whole(const weft_shape *s)
{
    weft_region r = {.global = *s};
    for (int i = 0; i < s->n; i++) r.extent[i] = s->d[i];
    return r;
}

int64_t weft_region_count(const weft_region *r)
{
    int64_t c = 1;
    for (int i = 0; i < r->global.n; i++) c *= r->extent[i];
    return c;
}

bool weft_region_intersect(const weft_region *a, const weft_region *b, weft_region *out)
{
    if (!weft_shape_equal(&a->global, &b->global)) return false;
    weft_region r = {.global = a->global};
    for (int i = 0; i < r.global.n; i++) {
        int64_t a_end = a->offset[i] + a->extent[i], b_end = b->offset[i] + b->extent[i];
        int64_t lo = a->offset[i] > b->offset[i] ? a->offset[i] : b->offset[i];
        int64_t hi = a_end < b_end ? a_end : b_end;
        if (lo >= hi) return false;
        r.offset[i] = lo;
        r.extent[i] = hi - lo;
    }
    *out = r;
    return true;
}

weft_view weft_view_make(void *p, weft_dtype t, const weft_shape *s)
{
    weft_view v    = {.p = p, .dtype = t, .shape = *s};
    int64_t   step = 1;
    for (int i = s->n - 1; i >= 0; i--) {
        v.stride[i] = step;
        step *= s->d[i];
    }
    return v;
}

/* The stride of a dimension of size 1 never matters, nor any stride of an empty view. */
bool weft_view_contiguous(const weft_view *v)
{
    int64_t step = 1;
    bool    same = true;
    for (int i = v->shape.n - 1; i >= 0; i--) {
        if (v->shape.d[i] == 0) return true;
        if (v->shape.d[i] != 1 && v->stride[i] != step) same = false;
        step *= v->shape.d[i];
    }
    return same;
}
