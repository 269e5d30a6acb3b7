/* Experts: which ones a token goes to, where its rows begin, and the way back.  Nothing is read
 * by the host: offsets stay on the device. */
#include "cuda_block.h"
#include "cuda_vec.h"

CU_FN int lane_of(void)
{
    return (int)threadIdx.x % CU_WARP;
}

/* ---- routing: a warp a row ---- */

CU_FN float row_lse(const weft_cuda_route_args &a, int64_t row)
{
    float m = -INFINITY, sum = 0;
    for (int64_t e = lane_of(); e < a.n; e += CU_WARP)
        m = fmaxf(m, cu_get(a.logits, a.logits_dtype, row * a.n + e));
    m = cu_warp_max(m);
    for (int64_t e = lane_of(); e < a.n; e += CU_WARP)
        sum += expf(cu_get(a.logits, a.logits_dtype, row * a.n + e) - m);
    return m + logf(cu_warp_sum(sum));
}

/* What decides a choice: the logit, or its probability with a bias.  One that is not a number
 * counts as -inf: every row has k experts. */
CU_FN float score_expert(const weft_cuda_route_args &a, int64_t row, int64_t e, float lse)
{
    float value = cu_get(a.logits, a.logits_dtype, row * a.n + e);
    if (a.bias) value = expf(value - lse) + cu_get(a.bias, a.bias_dtype, e);
    return value == value ? value : -INFINITY;
}

/* A score and its number; the larger score comes first, the lower number among equals. */
struct choice {
    float value;
    int   expert;
};

CU_FN bool comes_first(const choice &p, const choice &q)
{
    return p.value > q.value || (p.value == q.value && p.expert < q.expert);
}

/* The first one after `last`. */
CU_FN choice choose_next(const weft_cuda_route_args &a, int64_t row, float lse,
                         const choice &last)
{
    choice best = {-INFINITY, INT32_MAX};
    for (int64_t e = lane_of(); e < a.n; e += CU_WARP) {
        choice c = {score_expert(a, row, e, lse), (int)e};
        if (comes_first(last, c) && comes_first(c, best)) best = c;
    }
    for (int k = CU_WARP / 2; k; k /= 2) {
        choice c = {__shfl_xor_sync(0xffffffffu, best.value, k),
                    __shfl_xor_sync(0xffffffffu, best.expert, k)};
        if (comes_first(c, best)) best = c;
    }
    return best;
}

/* Of the softmax over all logits. */
CU_FN float weigh_choice(const weft_cuda_route_args &a, int64_t row, float lse,
                         const choice &c)
{
    float logit = c.value;
    if (a.bias) logit = cu_get(a.logits, a.logits_dtype, row * a.n + c.expert);
    return expf(logit - lse);
}

CU_KERNEL(route, weft_cuda_route_args, 256)
{
    int64_t row = cu_index() / CU_WARP;
    if (row >= a.rows) return;
    float  lse = row_lse(a, row), sum = 0;
    choice last = {INFINITY, -1};
    for (int64_t s = 0; s < a.k; s++) {
        last = choose_next(a, row, lse, last);
        sum += weigh_choice(a, row, lse, last);
        if (lane_of() == 0 && a.idx) a.idx[row * a.k + s] = last.expert;
    }
    if (!a.norm) sum = 1;
    last = {INFINITY, -1};
    for (int64_t s = 0; s < a.k && a.w; s++) {
        last = choose_next(a, row, lse, last);
        if (lane_of() == 0)
            cu_put(a.w, a.w_dtype, row * a.k + s,
                   weigh_choice(a, row, lse, last) / sum);
    }
}

/* norm: dl_s = w_s (dw_s - sum w dw) for the chosen, 0 for others; else through the softmax
 * over all */
CU_KERNEL(route_grad, weft_cuda_route_args, 256)
{
    int64_t row = cu_index() / CU_WARP, at = row * a.k;
    if (row >= a.rows) return;
    float lse = a.norm ? 0 : row_lse(a, row), sum = 0;
    for (int64_t s = 0; s < a.k; s++)
        sum += cu_get(a.w, a.w_dtype, at + s) * cu_get(a.dw, a.dw_dtype, at + s);
    for (int64_t e = lane_of(); e < a.n; e += CU_WARP) {
        float y =
            a.norm ? 0
                   : -expf(cu_get(a.logits, a.logits_dtype, row * a.n + e) - lse) * sum;
        for (int64_t s = 0; s < a.k; s++)
            if (cu_id(a.chosen, at + s) == e)
                y += cu_get(a.w, a.w_dtype, at + s) *
                     (cu_get(a.dw, a.dw_dtype, at + s) - (a.norm ? sum : 0));
        cu_put(a.dlogits, a.dlogits_dtype, row * a.n + e, y);
    }
}

/* ---- rows by expert ---- */

/* How many keys are below e. */
CU_FN int64_t count_below(const weft_cuda_offsets_args &a, uint32_t e)
{
    int64_t lo = 0, hi = a.n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (a.key[mid] < e)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

CU_KERNEL(dispatch_offsets, weft_cuda_offsets_args, 256)
{
    int64_t i = cu_index();
    if (i < a.n && a.src)
        a.src[i] = a.key[i] < (uint32_t)a.experts ? (int32_t)a.from[i] : -1;
    if (i <= a.experts && a.offsets) a.offsets[i] = (int32_t)count_below(a, (uint32_t)i);
}

/* One block: so many experts at a time as it has threads. */
CU_KERNEL(own_offsets, weft_cuda_own_offsets_args, 256)
{
    __shared__ int32_t sum[256];
    int                t     = (int)threadIdx.x;
    int32_t            begin = 0;
    for (int64_t e0 = 0; e0 < a.experts; e0 += 256) {
        int64_t e   = e0 + t;
        int32_t own = 0;
        for (int64_t p = 0; p < a.parts && e >= a.first && e < a.end; p++)
            own +=
                a.table[p * (a.experts + 1) + e + 1] - a.table[p * (a.experts + 1) + e];
        sum[t] = own;
        for (int k = 1; k < 256; k *= 2) {
            __syncthreads();
            int32_t before = t >= k ? sum[t - k] : 0;
            __syncthreads();
            sum[t] += before;
        }
        __syncthreads();
        if (e < a.experts) a.offsets[e] = begin + sum[t] - own;
        begin += sum[255];
        __syncthreads();
    }
    if (t == 0) a.offsets[a.experts] = begin;
}

CU_KERNEL(invert, weft_cuda_invert_args, 256)
{
    int64_t i = cu_index();
    if (i >= a.n) return;
    int64_t s = cu_id(a.src, i);
    if (s >= 0 && s < a.n) a.inv[s] = (int32_t)i;
}

/* Threads: W columns of a token; slots in order. */
template <int W> CU_FN void combine_rows(const weft_cuda_combine_args &a)
{
    int64_t n = a.d / W, at = cu_index();
    int64_t token = a.n * n < INT32_MAX ? (int64_t)((uint32_t)at / (uint32_t)n) : at / n;
    int64_t col   = (at - token * n) * W;
    float   sum[W], row[W];
    if (token >= a.n) return;
    for (int j = 0; j < W; j++) sum[j] = 0;
    for (int64_t s = token * a.k; s < (token + 1) * a.k; s++) {
        int64_t r = a.inv[s];
        if (r < 0) continue;
        float w = a.w ? cu_get(a.w, a.w_dtype, s) : 1;
        cu_get_row<W>(a.rows, a.rows_dtype, r * a.d + col, 1, row);
        for (int j = 0; j < W; j++) sum[j] += w * row[j];
    }
    cu_put_row<W>(a.y, a.y_dtype, token * a.d + col, sum);
}

CU_KERNEL(combine_1, weft_cuda_combine_args, 256)
{
    combine_rows<1>(a);
}
CU_KERNEL(combine_8, weft_cuda_combine_args, 256)
{
    combine_rows<8>(a);
}

template <int W> CU_FN void combine_row_grad(const weft_cuda_combine_grad_args &a)
{
    int64_t r = cu_index() / CU_WARP;
    if (r >= a.n) return;
    int64_t s = cu_id(a.src, r), token = s < 0 ? 0 : s / a.k;
    float   w = s < 0 ? 0 : cu_get(a.w, a.w_dtype, s), dot = 0;
    for (int64_t col = lane_of() * W; col < a.d; col += CU_WARP * W) {
        float dy[W], row[W];
        if (s >= 0) {
            cu_get_row<W>(a.dy, a.dy_dtype, token * a.d + col, 1, dy);
            cu_get_row<W>(a.rows, a.rows_dtype, r * a.d + col, 1, row);
        }
        for (int j = 0; j < W; j++) {
            if (s >= 0) dot += dy[j] * row[j];
            row[j] = s >= 0 ? w * dy[j] : 0;
        }
        if (a.drows) cu_put_row<W>(a.drows, a.drows_dtype, r * a.d + col, row);
    }
    dot = cu_warp_sum(dot);
    if (lane_of() == 0 && a.dw && s >= 0) cu_put(a.dw, a.dw_dtype, s, dot);
}

CU_KERNEL(combine_grad_1, weft_cuda_combine_grad_args, 256)
{
    combine_row_grad<1>(a);
}
CU_KERNEL(combine_grad_8, weft_cuda_combine_grad_args, 256)
{
    combine_row_grad<8>(a);
}
