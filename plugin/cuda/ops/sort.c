/* The passes of a radix sort, one for each digit of the largest key. */
#include "ops/sort.h"

static int64_t count_blocks(int64_t n)
{
    return weft_cuda_ceil(n, WEFT_CUDA_SORT_BLOCK);
}

static size_t pad_bytes(size_t n)
{
    return (n + 255) & ~(size_t)255;
}

/* Keys and origins twice, and counts. */
size_t weft_cuda_sort_bytes(int64_t n)
{
    return 4 * pad_bytes(sizeof(uint32_t) * (size_t)n) +
           pad_bytes(sizeof(uint32_t) * WEFT_CUDA_SORT_DIGITS * (size_t)count_blocks(n));
}

static weft_status run_pass(const weft_cuda_sort_args *a, const weft_kernel_ctx *x)
{
    weft_cuda_grid grid = {(unsigned)a->n_block, 1, 1, WEFT_CUDA_SORT_THREADS, 0};
    weft_cuda_grid one  = {1, 1, 1, WEFT_CUDA_SORT_THREADS, 0};
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_sort_count, grid, a));
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_sort_sum, one, a));
    return weft_cuda_launch(x, WEFT_CUDA_sort_move, grid, a);
}

weft_status weft_cuda_sort_run(weft_cuda_sort *s, const weft_kernel_ctx *x, void *scratch)
{
    int64_t             n    = weft_shape_count(&s->idx->shape);
    size_t              list = pad_bytes(sizeof(uint32_t) * (size_t)n);
    char               *at   = scratch;
    weft_cuda_sort_args a    = {.idx     = weft_cuda_view_of(s->idx),
                                .first   = s->first,
                                .lo      = s->lo,
                                .hi      = s->hi,
                                .skip    = s->skip,
                                .n_key   = (int32_t)s->n_key,
                                .n       = n,
                                .n_block = (int32_t)count_blocks(n)};

    a.count = (uint32_t *)(void *)(at + 4 * list);
    if (n == 0) return WEFT_OK;
    for (int pass = 0; pass == 0 || s->n_key >> a.shift > 0; pass++) {
        a.key_out  = (uint32_t *)(void *)(at + (size_t)(pass % 2) * 2 * list);
        a.from_out = (uint32_t *)(void *)((char *)a.key_out + list);
        WEFT_TRY(run_pass(&a, x));
        a.key  = a.key_out;
        a.from = a.from_out;
        a.shift += WEFT_CUDA_SORT_BITS;
    }
    s->key  = a.key;
    s->from = a.from;
    return WEFT_OK;
}
