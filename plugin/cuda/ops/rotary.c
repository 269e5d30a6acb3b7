/* Rotary embeddings, and T5's buckets of relative positions. */
#include <math.h>
#include <string.h>

#include "cuda_priv.h"

/* Rows of 8 elements at multiples of 16 bytes. */
static bool has_vectors(const weft_view *v)
{
    bool all = v->stride[3] == 1 && (uintptr_t)v->p % 16 == 0;
    for (int k = 0; k < 3; k++)
        all = all && (v->stride[k] % 8 == 0 || v->shape.d[k] == 1);
    return all;
}

static weft_cuda_rotary_kind find_kind(const char *name)
{
    if (!strcmp(name, "linear")) return WEFT_CUDA_ROTARY_LINEAR;
    return strcmp(name, "llama3") ? WEFT_CUDA_ROTARY_DEFAULT : WEFT_CUDA_ROTARY_LLAMA3;
}

enum {
    BLOCK = 128,
    /* heads and samples that a thread turns with the sines it has found */
    MOST_ROWS  = 32,
    LEAST_ROWS = 4,
    THREADS    = 1 << 16 /* so many at least, where there are */
};

/* What blocks' y is: depends on shapes alone. */
static int64_t count_shares(int64_t threads, int64_t rows)
{
    int64_t each = MOST_ROWS;
    while (each > LEAST_ROWS && threads * weft_cuda_ceil(rows, each) < THREADS) each /= 2;
    return weft_cuda_ceil(rows, each);
}

weft_cuda_angles weft_cuda_angles_of(const weft_attr *attr, int64_t e)
{
    const weft_kernel_call c = {.op = WEFT_OP_ROTARY, .attr = attr};
    weft_cuda_angles       a = {.half  = e / 2,
                                .first = weft_cuda_attr(&c, "first")->i,
                                .share = 1 / weft_cuda_attr(&c, "factor")->f,
                                .low   = weft_cuda_attr(&c, "low")->f,
                                .high  = weft_cuda_attr(&c, "high")->f,
                                .orig  = (double)weft_cuda_attr(&c, "orig")->i,
                                .kind = (int32_t)find_kind(weft_cuda_attr(&c, "kind")->s),
                                .sign = weft_cuda_attr(&c, "inverse")->i ? -1 : 1};
    a.slope                  = -log2(weft_cuda_attr(&c, "theta")->f) / (double)a.half;
    a.mix                    = 1 / (a.high - a.low);
    return a;
}

CUDA_RUN(rotary)
{
    const weft_view      *in = &c->in[0], *out = &c->out[0];
    const int64_t        *d    = in->shape.d;
    weft_cuda_rotary_args a    = {.x  = weft_cuda_heads_of(in),
                                  .y  = weft_cuda_heads_of(out),
                                  .b  = d[0],
                                  .s  = d[1],
                                  .h  = d[2],
                                  .by = weft_cuda_angles_of(c->attr, d[3])};
    int64_t               half = a.by.half;
    bool                  wide = half % 8 == 0 && has_vectors(in) && has_vectors(out);
    if (a.b * a.h > INT32_MAX || a.s * half > INT32_MAX)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "rotary: more than 2^31 heads or pairs of positions");
    if (d[3] % 2)
        return WEFT_FAIL(WEFT_ERR_ARG, "rotary: head size %ld is odd", (long)d[3]);
    int64_t        pairs = a.s * (wide ? half / 8 : half);
    int64_t        rows  = count_shares(pairs, a.b * a.h);
    weft_cuda_grid grid  = weft_cuda_grid_1d(pairs, BLOCK);
    grid.y               = (unsigned)(rows < 65535 ? rows : 65535);
    return weft_cuda_launch(x, wide ? WEFT_CUDA_rotary_8 : WEFT_CUDA_rotary_1, grid, &a);
}

/* ---- buckets ---- */

/* Which distance begins each logarithmic bucket is found here once, with the
 * same logarithms as on the CPU. */
static void find_bounds(weft_cuda_bucket_args *a, double far)
{
    double range = log(far / (double)a->exact);
    for (int64_t d = a->exact; a->n_bound < a->n - 1 - a->exact && (double)d <= far;
         d++) {
        double  r = log((double)d / (double)a->exact) / range;
        int64_t b = (int64_t)(r * (double)(a->n - a->exact));
        while (a->n_bound < b && a->n_bound < a->n - 1 - a->exact)
            a->bound[a->n_bound++] = (int32_t)d;
    }
}

CUDA_PREPARE(rel_bucket)
{
    bool    two = weft_cuda_attr(c, "bidirectional")->i != 0;
    int64_t n = weft_cuda_attr(c, "buckets")->i / (two ? 2 : 1), exact = n / 2;
    double  far = (double)weft_cuda_attr(c, "max_distance")->i;
    weft_cuda_bucket_args *a;
    (void)x;
    if (n - exact > WEFT_CUDA_MAX_BUCKET || (exact > 0 && far <= (double)exact))
        return WEFT_FAIL(WEFT_ERR_ARG, "rel_bucket: %ld buckets up to distance %g",
                         (long)n, far);
    a = WEFT_ARENA_NEW(arena, weft_cuda_bucket_args);
    if (!a) return weft_arena_status(arena);
    *a = (weft_cuda_bucket_args){.ids   = c->out[0].p,
                                 .s     = c->out[0].shape.d[0],
                                 .t     = c->out[0].shape.d[1],
                                 .ahead = weft_cuda_attr(c, "t_first")->i -
                                          weft_cuda_attr(c, "s_first")->i,
                                 .two   = two,
                                 .n     = (int32_t)n,
                                 .exact = (int32_t)exact};
    if (exact > 0) find_bounds(a, far);
    *out = a;
    return WEFT_OK;
}

CUDA_RUN(rel_bucket)
{
    const weft_cuda_bucket_args *a = c->prepared;
    return weft_cuda_launch(x, WEFT_CUDA_rel_bucket, weft_cuda_grid_1d(a->s * a->t, 256),
                            a);
}
