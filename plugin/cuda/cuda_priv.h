/* Inside the plugin: how host code starts kernels, and the rows it offers. */
#ifndef WEFT_CUDA_PRIV_H
#define WEFT_CUDA_PRIV_H

#include "cuda_args.h"
#include "kernel/kernel.h"
#include "pace.h"

typedef struct weft_cuda_gpu weft_cuda_gpu;

enum {
    WEFT_CUDA_MAX_NAME = 64
};

/* A stream of the device: what ctx->queue points to on a GPU. */
typedef struct weft_cuda_queue {
    weft_cuda_gpu *gpu;
    void          *stream; /* CUstream */
    /* Errors come late, and from graphs without a launch: every code that is launched writes its
     * number here, in pinned memory and in the stream's order, before it starts. */
    volatile uint32_t *progress;
    int                n_name;
    const char        *name[WEFT_CUDA_MAX_NAME]; /* of number k + 1 */
    /* the graph that was launched last, until it was waited for; 0: none */
    int64_t        replayed;
    double         replayed_s;
    int64_t        capture; /* that this stream is in; 0: none */
    weft_cuda_pace pace[WEFT_CUDA_MAX_PACE];
} weft_cuda_queue;

/* ---- kernels of kernels/ ---- */

typedef enum weft_cuda_kernel {
#define CU(name, args) WEFT_CUDA_##name,
#include "kernels.def"
#undef CU
    WEFT_N_CUDA_KERNEL
} weft_cuda_kernel;

typedef struct weft_cuda_grid {
    unsigned x, y, z; /* blocks; 0 in any: nothing is started */
    unsigned threads; /* of a block */
    unsigned shared_bytes;
} weft_cuda_grid;

/* Issues kernel k on the stream of x; args: its struct of kernels.def, copied before the return. */
weft_status weft_cuda_launch(const weft_kernel_ctx *x, weft_cuda_kernel k,
                             weft_cuda_grid grid, const void *args);

/* The driver's stream, for libraries; NULL where there is no GPU. */
static inline void *weft_cuda_stream(const weft_kernel_ctx *x)
{
    return x->queue ? ((const weft_cuda_queue *)x->queue)->stream : NULL;
}

/* Blocks of the products by warpgroups that run at once on this process's GPU; 0: it has none. */
int weft_cuda_wgmma_blocks(void);
/* Compute capability of this process's GPU, 90; 0: it has none. */
int weft_cuda_capability(void);
/* bf16 without gaps in boxes of 64 x `box` x 1; d: sizes, the fastest first. */
weft_status weft_cuda_map_boxes(const void *p, const int64_t d[3], int64_t box,
                                weft_cuda_tensor_map *out);
/* Bytes along dimension d, as tensor maps want them. */
static inline uint64_t weft_cuda_head_stride(const weft_view *v, int d)
{
    return v->shape.d[d] > 1 ? 2 * (uint64_t)v->stride[d] : 16; /* of one index: any */
}
/* (b, n, heads, e) in bf16, e without gaps, in boxes of 64 elements x `box` positions; the map's
 * dimensions are (e, n, heads, b). */
weft_status weft_cuda_map_heads(const weft_view *v, int64_t box,
                                weft_cuda_tensor_map *out);

/* Enough blocks for n threads of one dimension. */
static inline weft_cuda_grid weft_cuda_grid_1d(int64_t n, unsigned threads)
{
    return (weft_cuda_grid){(unsigned)((n + threads - 1) / threads), 1, 1, threads, 0};
}

/* Without the address where the view has none. */
weft_cuda_view weft_cuda_view_of(const weft_view *v);
/* At most 4 dimensions. */
weft_cuda_heads_view weft_cuda_heads_of(const weft_view *v);

/* Attributes of a call by name. */
static inline const weft_attr *weft_cuda_attr(const weft_kernel_call *c, const char *name)
{
    return &c->attr[weft_op_attr_index(c->op, name)];
}
/* Of a rotary with these attributes, heads of e elements; padding is zero. */
weft_cuda_angles weft_cuda_angles_of(const weft_attr *attr, int64_t e);
/* Is result j added to? */
static inline int weft_cuda_adds(const weft_kernel_call *c, int j)
{
    return (int)(c->add >> j & 1);
}

/* ---- views ---- */

/* Dimensions of a result, with every operand's step along each:
 *     weft_cuda_nd_init(&nd, &y->shape);
 *     weft_cuda_nd_add(&nd, y);  weft_cuda_nd_add(&nd, bias);      bias is spread as NumPy does
 *     weft_cuda_nd_merge(&nd); */
void weft_cuda_nd_init(weft_cuda_nd *nd, const weft_shape *s);
void weft_cuda_nd_add(weft_cuda_nd *nd, const weft_view *v);
/* Appends a dimension with these steps, for lists that are made without a shape (count 1, n_op
 * set). */
void weft_cuda_nd_dim(weft_cuda_nd *nd, int64_t size, const int64_t *step);
/* Drops dimensions of size 1 and joins neighbours that are one in all operands. */
void weft_cuda_nd_merge(weft_cuda_nd *nd);
/* Can operand op at p be read in vectors of so many elements?  spread: or be one element for a
 * whole row. */
bool weft_cuda_nd_vectors(const weft_cuda_nd *nd, int op, const void *p, int64_t width,
                          bool spread);

bool weft_cuda_is_float(weft_dtype t); /* f32 or bf16 */
/* The address of an element, counted in elements from the view's first. */
void *weft_cuda_at(const weft_view *v, int64_t element);
/* The part that begins at `start` along an axis and has `size` there. */
weft_view weft_cuda_part(const weft_view *v, int axis, int64_t start, int64_t size);

static inline int64_t weft_cuda_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- what several operators and the executor use ---- */

/* to = from: any strides, conversion where types differ; `from` is spread over `to`. */
weft_status weft_cuda_copy(const weft_kernel_ctx *x, const weft_view *to,
                           const weft_view *from);
/* to += from: f32 and bf16 (rounded once), f64, integers. */
weft_status weft_cuda_merge(const weft_kernel_ctx *x, const weft_view *to,
                            const weft_view *from);
weft_status weft_cuda_fill(const weft_kernel_ctx *x, const weft_view *y, double value);

/* The result that holds the last value of a product with steps; NULL: it is not kept. */
const weft_view *weft_cuda_last_result(const weft_kernel_call *c);
/* All results of a product with steps (c->post), where `from` holds the product itself: the
 * memory of the last result, or other memory where that one is added to.  last_row: rows from
 * *last_row on are 0 (grouped products); or NULL. */
weft_status weft_cuda_steps(const weft_kernel_call *c, const weft_kernel_ctx *x,
                            const weft_view *from, const weft_view *last_row);

/* Sums of d columns over rows: each part of the rows is added in order, then the parts are
 * (fold).  Whichever kernel makes them, with these parts they have the same bits. */
int64_t weft_cuda_column_parts(int64_t rows, int64_t d);
/* Adds parts of sums in order: the last stage of sums over rows. */
weft_status weft_cuda_fold(const weft_kernel_ctx *x, const weft_cuda_fold_args *f);

/* ---- rows ---- */

/* All of them, those that are tried first in front. */
extern const weft_kernel_table weft_cuda_table;

#define CUDA_RUN(name)                                                                   \
    weft_status weft_cuda_run_##name(const weft_kernel_call *c, const weft_kernel_ctx *x)
#define CUDA_SCRATCH(name)                                                               \
    size_t weft_cuda_scratch_##name(const weft_kernel_call *c, int n_thread)
#define CUDA_PREPARE(name)                                                               \
    weft_status weft_cuda_prepare_##name(const weft_kernel_call *c,                      \
                                         const weft_kernel_ctx *x, weft_arena *arena,    \
                                         void **out)
#define CUDA_MANY(name)                                                                  \
    weft_status weft_cuda_many_##name(const weft_kernel_call *const *c, int n,           \
                                      const weft_kernel_ctx *x)
#define CUDA_MANY_SCRATCH(name)                                                          \
    size_t weft_cuda_many_scratch_##name(const weft_kernel_call *const *c, int n,        \
                                         int n_thread)
#define CUDA_TAKES(name) bool weft_cuda_takes_##name(const weft_kernel_call *c)

CUDA_RUN(matmul);
CUDA_SCRATCH(matmul);
CUDA_RUN(grouped_matmul);
CUDA_RUN(grouped_matmul_wgrad);
CUDA_RUN(grouped_wgmma);
CUDA_TAKES(grouped_wgmma);
CUDA_PREPARE(grouped_wgmma);
CUDA_RUN(grouped_wgmma_wgrad);
CUDA_TAKES(grouped_wgmma_wgrad);
CUDA_PREPARE(grouped_wgmma_wgrad);

CUDA_RUN(fill);
CUDA_RUN(cast);
CUDA_MANY(cast);
CUDA_RUN(broadcast);
CUDA_RUN(reshape);
CUDA_RUN(transpose);
CUDA_RUN(concat);
CUDA_RUN(split);
CUDA_RUN(slice);
CUDA_RUN(slice_grad);

/* A row with all five functions. */
#define CUDA_ROW(name)                                                                   \
    CUDA_RUN(name);                                                                      \
    CUDA_SCRATCH(name);                                                                  \
    bool        weft_cuda_takes_##name(const weft_kernel_call *c);                       \
    weft_status weft_cuda_prepare_##name(const weft_kernel_call *c,                      \
                                         const weft_kernel_ctx *x, weft_arena *arena,    \
                                         void **out);                                    \
    void        weft_cuda_release_##name(void *prepared)
CUDA_ROW(fp8);            /* matmul with operands in fp8 */
CUDA_ROW(product);        /* matmul by cublasLt */
CUDA_TAKES(wide_product); /* of operands as they are */
CUDA_TAKES(wide_matmul);
CUDA_ROW(sdpa);        /* attention and its gradient by cuDNN */
CUDA_RUN(sdpa_turned); /* the gradient, with rotary embeddings' gradients */
CUDA_TAKES(sdpa_turned);
CUDA_SCRATCH(sdpa_turned);
CUDA_PREPARE(sdpa_turned);
CUDA_ROW(attention_back); /* the gradient by warpgroups */

CUDA_RUN(map); /* add, mul, scale, the activations and their gradients, accumulate */
CUDA_RUN(ema);
CUDA_RUN(gate);
CUDA_RUN(gate_grad);
CUDA_RUN(dropout);

CUDA_RUN(layer_norm);
CUDA_RUN(layer_norm_grad);
CUDA_TAKES(norm_grad);
CUDA_SCRATCH(layer_norm_grad);
CUDA_RUN(rms_norm);
CUDA_RUN(rms_norm_grad);
CUDA_SCRATCH(rms_norm_grad);
CUDA_RUN(softmax);
CUDA_RUN(softmax_grad);
CUDA_RUN(reduce);
CUDA_SCRATCH(reduce);

CUDA_RUN(sumsq);
CUDA_SCRATCH(sumsq);
CUDA_MANY(sumsq);
CUDA_MANY_SCRATCH(sumsq);
CUDA_RUN(sumsq_parts);
CUDA_SCRATCH(sumsq_parts);
CUDA_RUN(sumsq_tree);
CUDA_SCRATCH(sumsq_tree);
CUDA_RUN(clip);
CUDA_SCRATCH(clip);
CUDA_MANY(update);
CUDA_RUN(update);
CUDA_TAKES(update); /* sgd, sgd_momentum, adam, adamw, adagrad, lamb_dir, lamb */

CUDA_RUN(embedding);
CUDA_RUN(embedding_grad);
CUDA_SCRATCH(embedding_grad);
CUDA_RUN(gather);
CUDA_RUN(scatter_add);
CUDA_SCRATCH(scatter_add);

CUDA_RUN(cross_entropy);
CUDA_RUN(cross_entropy_rows);
CUDA_TAKES(cross_entropy_rows);
CUDA_RUN(cross_entropy_merge);
CUDA_RUN(cross_entropy_grad);
CUDA_RUN(cross_entropy_grad_rows);
CUDA_TAKES(cross_entropy_grad_rows);

CUDA_RUN(attention);
CUDA_RUN(attention_grad);
CUDA_TAKES(attention_grad);
CUDA_RUN(attention_turned);
CUDA_SCRATCH(attention_grad);
CUDA_RUN(attention_merge);
CUDA_RUN(rotary);
CUDA_RUN(rel_bucket);
CUDA_PREPARE(rel_bucket);

CUDA_RUN(route);
CUDA_RUN(route_grad);
CUDA_RUN(dispatch);
CUDA_SCRATCH(dispatch);
CUDA_RUN(own_offsets);
CUDA_RUN(dispatch_grad);
CUDA_SCRATCH(dispatch_grad);
CUDA_RUN(combine);
CUDA_SCRATCH(combine);
CUDA_RUN(combine_grad);

CUDA_RUN(conv2d);
CUDA_RUN(conv2d_grad_x);
CUDA_RUN(conv2d_grad_w);
CUDA_SCRATCH(conv2d_grad_w);
CUDA_RUN(max_pool);
CUDA_RUN(max_pool_grad);
CUDA_SCRATCH(max_pool_grad);
CUDA_RUN(avg_pool);
CUDA_RUN(avg_pool_grad);
CUDA_RUN(batch_norm);
CUDA_SCRATCH(batch_norm);
CUDA_RUN(batch_norm_grad);
CUDA_SCRATCH(batch_norm_grad);
CUDA_RUN(batch_norm_infer);

#endif
