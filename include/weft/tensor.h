/* Tensors without storage: data types, shapes, regions of a global shape, views of memory. */
#ifndef WEFT_TENSOR_H
#define WEFT_TENSOR_H

#include <stdbool.h>

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_dtype {
    WEFT_DTYPE_F32,
    WEFT_DTYPE_BF16,
    WEFT_DTYPE_F64,
    WEFT_DTYPE_F16,
    WEFT_DTYPE_I32,
    WEFT_DTYPE_I64,
    WEFT_DTYPE_U8,
    WEFT_DTYPE_U16,
    WEFT_DTYPE_I8,
    WEFT_DTYPE_I16,
    WEFT_DTYPE_U32,
    WEFT_DTYPE_U64,
    WEFT_DTYPE_BOOL,
    WEFT_DTYPE_F8_E4M3,
    WEFT_DTYPE_F8_E5M2,
    WEFT_N_DTYPE
} weft_dtype;

int         weft_dtype_bytes(weft_dtype t);
const char *weft_dtype_name(weft_dtype t);                /* "f32" */
bool weft_dtype_parse(const char *name, weft_dtype *out); /* "f32", "float32", "F32" */
const char *weft_dtype_st_name(weft_dtype t);             /* safetensors: "F32" */

#define WEFT_MAX_DIM 8

/* A static shape; n = 0 is a scalar. */
typedef struct weft_shape {
    int     n;
    int64_t d[WEFT_MAX_DIM];
} weft_shape;

weft_shape weft_shape_make(int n, const int64_t *d);
int64_t    weft_shape_count(const weft_shape *s); /* product of the dimensions */
bool       weft_shape_equal(const weft_shape *a, const weft_shape *b);
/* "4,64,768" into buf, at most n bytes with the NUL; gives buf. */
const char *weft_shape_text(const weft_shape *s, char *buf, size_t n);
/* WEFT_ERR_ARG when a dimension is below 0 or the product does not fit 2^56. */
weft_status weft_shape_verify(const weft_shape *s);

/* A box inside a global shape: the common tongue of resharding, checkpoints and migration. */
typedef struct weft_region {
    weft_shape global;
    int64_t    offset[WEFT_MAX_DIM];
    int64_t    extent[WEFT_MAX_DIM];
} weft_region;

weft_region weft_region_whole(const weft_shape *s);
int64_t     weft_region_count(const weft_region *r);
/* false when they do not meet (or belong to different global shapes). */
bool weft_region_intersect(const weft_region *a, const weft_region *b, weft_region *out);

/* A view: memory with a type, a shape and strides in elements.  origin is where this piece lies in
 * the global tensor, for what depends on position (dropout, rotary, causal masks). */
typedef struct weft_view {
    void      *p;
    weft_dtype dtype;
    weft_shape shape;
    int64_t    stride[WEFT_MAX_DIM];
    int64_t    origin[WEFT_MAX_DIM];
} weft_view;

/* Contiguous, with origin 0. */
weft_view weft_view_make(void *p, weft_dtype t, const weft_shape *s);
bool      weft_view_contiguous(const weft_view *v);

#ifdef __cplusplus
}
#endif
#endif
