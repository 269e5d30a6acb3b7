/* Batch norm: a channel is cut into pieces (blocks x; y: channels); sums of pieces are added in
 * order by all who need them. */
#include "cuda_block.h"
#include "cuda_vec.h"

/* Where element i of a channel is. */
CU_FN int64_t place_of(const weft_cuda_batch_norm_args &a, int64_t channel, int64_t i)
{
    int64_t sample = (uint32_t)i / (uint32_t)a.plane;
    return (sample * a.c + channel) * a.plane + i - sample * a.plane;
}

/* The own piece of the channel. */
struct piece {
    int64_t channel, begin, end;
};

CU_FN piece find_piece(const weft_cuda_batch_norm_args &a)
{
    int64_t all = a.n * a.plane;
    piece   p   = {blockIdx.y, (int64_t)blockIdx.x * a.piece,
                   ((int64_t)blockIdx.x + 1) * a.piece};
    if (p.end > all) p.end = all;
    return p;
}

CU_FN float sum_parts(const weft_cuda_batch_norm_args &a, const float *part,
                      int64_t channel)
{
    float sum = 0;
    for (int64_t p = 0; p < a.n_piece; p++) sum += part[channel * a.n_piece + p];
    return sum;
}

CU_FN float mean_of(const weft_cuda_batch_norm_args &a, const float *part,
                    int64_t channel)
{
    return sum_parts(a, part, channel) / (float)(a.n * a.plane);
}

CU_FN float rstd_of(const weft_cuda_batch_norm_args &a, float var)
{
    return (float)(1 / sqrt((double)var + a.eps));
}

CU_KERNEL(batch_norm_sum, weft_cuda_batch_norm_args, 256)
{
    __shared__ float room[CU_WARP];
    piece            p   = find_piece(a);
    float            sum = 0;
    for (int64_t i = p.begin + threadIdx.x; i < p.end; i += blockDim.x)
        sum += cu_get(a.x, a.x_dtype, place_of(a, p.channel, i));
    sum = cu_block_sum(sum, room);
    if (threadIdx.x == 0) a.part[p.channel * a.n_piece + blockIdx.x] = sum;
}

CU_KERNEL(batch_norm_square, weft_cuda_batch_norm_args, 256)
{
    __shared__ float room[CU_WARP];
    piece            p    = find_piece(a);
    float            mean = mean_of(a, a.part, p.channel), sum = 0;
    for (int64_t i = p.begin + threadIdx.x; i < p.end; i += blockDim.x) {
        float d = cu_get(a.x, a.x_dtype, place_of(a, p.channel, i)) - mean;
        sum += d * d;
    }
    sum = cu_block_sum(sum, room);
    if (threadIdx.x == 0) a.part2[p.channel * a.n_piece + blockIdx.x] = sum;
}

/* y = (x - mean) rstd w + b */
CU_FN void put_normed(const weft_cuda_batch_norm_args &a, const piece &p, float mean,
                      float var)
{
    float scale = cu_get(a.w, a.w_dtype, p.channel) * rstd_of(a, var);
    float shift = cu_get(a.b, a.b_dtype, p.channel);
    for (int64_t i = p.begin + threadIdx.x; i < p.end && a.y; i += blockDim.x) {
        int64_t at = place_of(a, p.channel, i);
        cu_put(a.y, a.y_dtype, at, (cu_get(a.x, a.x_dtype, at) - mean) * scale + shift);
    }
}

CU_KERNEL(batch_norm, weft_cuda_batch_norm_args, 256)
{
    piece p    = find_piece(a);
    float mean = mean_of(a, a.part, p.channel), var = mean_of(a, a.part2, p.channel);
    put_normed(a, p, mean, var);
    if (blockIdx.x || threadIdx.x) return;
    if (a.mean) cu_put(a.mean, a.mean_dtype, p.channel, mean);
    if (a.var) cu_put(a.var, a.var_dtype, p.channel, var);
}

CU_KERNEL(batch_norm_infer, weft_cuda_batch_norm_args, 256)
{
    piece p = find_piece(a);
    put_normed(a, p, cu_get(a.mean_in, a.mean_dtype, p.channel),
               cu_get(a.var_in, a.var_dtype, p.channel));
}

/* part: sums of dy h, part2: of dy; h = (x - mean) rstd */
CU_KERNEL(batch_norm_grad_sum, weft_cuda_batch_norm_args, 256)
{
    __shared__ float room[CU_WARP];
    piece            p    = find_piece(a);
    float            mean = cu_get(a.mean_in, a.mean_dtype, p.channel), dw = 0, db = 0;
    float            rstd = rstd_of(a, cu_get(a.var_in, a.var_dtype, p.channel));
    for (int64_t i = p.begin + threadIdx.x; i < p.end; i += blockDim.x) {
        int64_t at = place_of(a, p.channel, i);
        float   dy = cu_get(a.dy, a.dy_dtype, at);
        dw += dy * ((cu_get(a.x, a.x_dtype, at) - mean) * rstd);
        db += dy;
    }
    dw = cu_block_sum(dw, room);
    db = cu_block_sum(db, room);
    if (threadIdx.x) return;
    a.part[p.channel * a.n_piece + blockIdx.x]  = dw;
    a.part2[p.channel * a.n_piece + blockIdx.x] = db;
}

CU_FN void put_sum(void *p, int dtype, int64_t i, float x, bool add)
{
    if (p) cu_put(p, dtype, i, add ? cu_get(p, dtype, i) + x : x);
}

/* dx = w rstd (dy - mean(dy) - h mean(dy h)) */
CU_KERNEL(batch_norm_grad, weft_cuda_batch_norm_args, 256)
{
    piece p    = find_piece(a);
    float mean = cu_get(a.mean_in, a.mean_dtype, p.channel);
    float rstd = rstd_of(a, cu_get(a.var_in, a.var_dtype, p.channel));
    float dw = sum_parts(a, a.part, p.channel), db = sum_parts(a, a.part2, p.channel);
    float k = cu_get(a.w, a.w_dtype, p.channel) * rstd, count = (float)(a.n * a.plane);
    for (int64_t i = p.begin + threadIdx.x; i < p.end && a.y; i += blockDim.x) {
        int64_t at = place_of(a, p.channel, i);
        float   h  = (cu_get(a.x, a.x_dtype, at) - mean) * rstd;
        float   dx = k * (cu_get(a.dy, a.dy_dtype, at) - db / count - h * (dw / count));
        put_sum(a.y, a.y_dtype, at, dx, a.add & 1);
    }
    if (blockIdx.x || threadIdx.x) return;
    put_sum(a.dw, a.dw_dtype, p.channel, dw, a.add >> 1 & 1);
    put_sum(a.db, a.db_dtype, p.channel, db, a.add >> 2 & 1);
}
