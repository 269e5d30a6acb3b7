/* Inner loops over rows of floats, compiled once for each instruction set, and how rows of other
 * storage get there and back.
 *
 * Kernels cut their work into tasks and rows; what is done to a row lies here.  All sums use 64
 * strided partial sums that are folded in halves, so a row's result has the same bits for every
 * instruction set (kernel/vec.h). */
#ifndef WEFT_KERNEL_ROWS_H
#define WEFT_KERNEL_ROWS_H

#include <string.h>

#include "kernel/kernel.h"
#include "kernel/mask.h"
#include "kernel/undo.h"
#include "kernel/vec.h"

/* y = f(a, b, s) element by element; y may be a or b. */
typedef enum weft_kernel__map {
    MAP_ADD,   /* a + b */
    MAP_MUL,   /* a b */
    MAP_SCALE, /* s a */
    MAP_AXPY,  /* a + s b */
    MAP_GELU_TANH,
    MAP_GELU_ERF,
    MAP_SILU,
    MAP_RELU,
    MAP_TANH,
    MAP_GELU_TANH_GRAD, /* a is dy, b is x */
    MAP_GELU_ERF_GRAD,
    MAP_SILU_GRAD,
    MAP_RELU_GRAD,
    MAP_TANH_GRAD, /* a is dy, b is y = tanh x */
    MAP_EXP_SUB,   /* e^(a - s) */
    N_MAP
} weft_kernel__map;

typedef void (*weft_kernel__map_fn)(float *y, const float *a, const float *b, float s,
                                    int64_t n);

/* What an update needs besides its tensors. */
typedef struct weft_kernel__update {
    float lr, scale, beta1, beta2, eps, decay;
    float step_size, inv_sqrt_bc2; /* lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
} weft_kernel__update;

/* Updates in place; how many states each has. */
typedef enum weft_kernel__optimizer {
    UPDATE_SGD,      /* p */
    UPDATE_MOMENTUM, /* p m */
    UPDATE_ADAGRAD,  /* p h */
    UPDATE_ADAM,     /* p m v */
    UPDATE_ADAMW,    /* p m v */
    UPDATE_LAMB,     /* p m v */
    UPDATE_EMA,      /* a running mean; g is what it moves towards */
    N_UPDATE
} weft_kernel__optimizer;

typedef struct weft_kernel__updated {
    float            *state[WEFT_UNDO_RESULT];
    const float      *g;
    uint16_t         *copy; /* bf16, of the new parameter; NULL: none */
    weft_kernel_undo *undo; /* of old values; NULL: they are not stored */
} weft_kernel__updated;

typedef void (*weft_kernel__update_fn)(const weft_kernel__update  *u,
                                       const weft_kernel__updated *x, int64_t n);

typedef struct weft_kernel__rows {
    void (*widen)(float *y, const uint16_t *x, int64_t n);
    void (*narrow)(uint16_t *y, const float *x, int64_t n);
    weft_kernel__map_fn map[N_MAP];
    /* Around the caches, for what is far larger than they are; y aligned to 64 bytes and none of
     * the operands. */
    void (*zero_far)(float *y, int64_t n);
    weft_kernel__map_fn add_far; /* a + b */

    float (*sum)(const float *x, int64_t n);
    float (*dot)(const float *x, const float *y, int64_t n);
    float (*max)(const float *x, int64_t n, float least);
    double (*sumsq)(const float *x, int64_t n);
    /* acc[0..cols) += the sum over rows of x[i * ld + j] */
    void (*add_rows)(float *acc, const float *x, int64_t ld, int64_t rows, int64_t cols);

    /* stat: mean, rstd */
    void (*layer_norm)(float *y, const float *x, const float *w, const float *b,
                       int64_t n, float eps, float stat[2]);
    /* dw and db get the row's share added */
    void (*layer_norm_grad)(float *dx, const float *dy, const float *x, const float *w,
                            int64_t n, float mean, float rstd, float *dw, float *db);
    void (*rms_norm)(float *y, const float *x, const float *w, int64_t n, float eps,
                     float *rstd);
    void (*rms_norm_grad)(float *dx, const float *dy, const float *x, const float *w,
                          int64_t n, float rstd, float *dw);
    /* y = e^(x - m) unless NULL; gives the sum */
    float (*exp_sum)(float *y, const float *x, int64_t n, float m);
    /* y = s e^(x - m) */
    void (*exp_scale)(float *y, const float *x, int64_t n, float m, float s);
    /* dx = (dy - dot) y */
    void (*softmax_grad)(float *dx, const float *dy, const float *y, int64_t n,
                         float dot);
    /* rotates the pairs (x[i], x[half + i]) */
    void (*rotate)(float *y, const float *x, const float *cos, const float *sin,
                   int64_t half);

    /* y = kept ? scale x : 0; the mask's words from number `word` on (four elements each) */
    void (*drop)(float *y, const float *x, int64_t n, const weft_mask *m, int64_t word,
                 float scale);

    weft_kernel__update_fn update[N_UPDATE];
    void (*lamb_dir)(const weft_kernel__update *u, float *dir, const float *p,
                     const float *g, const float *m, const float *v, int64_t n);
} weft_kernel__rows;

extern const weft_kernel__rows weft_kernel__rows_plain, weft_kernel__rows_avx2,
    weft_kernel__rows_avx512;
const weft_kernel__rows *weft_kernel__rows_now(void);

/* ---- rows in memory ---- */

/* Longest piece of a row that is copied to the stack. */
#define WEFT_KERNEL__PIECE 1024

static inline void *weft_kernel__ptr(const void *p, weft_dtype t, int64_t at)
{
    return (char *)(uintptr_t)p + at * weft_dtype_bytes(t);
}

/* n floats from p: the memory itself where it is such, else a copy in tmp. */
const float *weft_kernel__read(const void *p, weft_dtype t, int64_t at, int64_t step,
                               int64_t n, float *tmp);
/* Puts n floats to p; add: to what is there.  x may be the memory itself. */
void weft_kernel__write(void *p, weft_dtype t, int64_t at, int64_t step, int64_t n,
                        const float *x, int add);
/* Where to compute a row that weft_kernel__write() then puts there. */
static inline float *weft_kernel__room(void *p, weft_dtype t, int64_t at, int64_t step,
                                       int add, float *tmp)
{
    return t == WEFT_DTYPE_F32 && step == 1 && !add ? (float *)p + at : tmp;
}

/* One element, f32 or bf16. */
static inline float weft_kernel__get(const weft_view *v, int64_t i)
{
    return v->dtype == WEFT_DTYPE_F32 ? ((const float *)v->p)[i]
                                      : weft_bf16_widen(((const uint16_t *)v->p)[i]);
}
static inline void weft_kernel__put(const weft_view *v, int64_t i, float x)
{
    if (v->dtype == WEFT_DTYPE_F32)
        ((float *)v->p)[i] = x;
    else
        ((uint16_t *)v->p)[i] = weft_bf16_round(x);
}

/* A scalar of any type. */
double weft_kernel__scalar(const weft_view *v);
/* Element i of ids or labels. */
static inline int64_t weft_kernel__id(const void *p, weft_dtype t, int64_t i)
{
    return t == WEFT_DTYPE_I64 ? ((const int64_t *)p)[i] : ((const int32_t *)p)[i];
}

/* Results of more bytes than this go around the caches where they can.  (Measured on 2 cores with
 * 32 MB of third-level cache: 154 MB zeroed in 4 instead of 7 ms, added in 14 instead of 21.) */
#define WEFT_KERNEL__FAR ((int64_t)48 << 20)

/* ---- task grids: sizes from shapes alone ---- */

static inline int64_t weft_kernel__ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
/* How many rows of n elements make a task. */
static inline int64_t weft_kernel__grain(int64_t n, int64_t elements)
{
    return n < 1 ? elements : n >= elements ? 1 : elements / n;
}

/* Attributes of a call by name. */
const weft_attr  *weft_kernel__attr(const weft_kernel_call *c, const char *name);
static inline int weft_kernel__adds(const weft_kernel_call *c, int j)
{
    return c->add >> j & 1;
}
/* Dimension d from the end (1: last). */
static inline int64_t weft_kernel__last(const weft_view *v)
{
    return v->shape.n ? v->shape.d[v->shape.n - 1] : 1;
}

#endif
