/* Sums of squares in f64, and the factor that clips gradients.
 *
 * Order of a sum, so that a tensor split along dimension 0 gives the same bits, wherever it lies:
 * (1) one partial for each index of dimension 0; a tensor of one dimension has one for each 256
 *     elements
 * (2) a partial is made of pieces of 8192 elements, added in order; in a piece a warp's lane
 *     has the elements i with i / 4 mod 32 = lane, one sum for each i mod 4
 * (3) over partials the binary tree: neighbours (0,1), (2,3), ... are added, then those, until
 *     one is left */
#include "cuda_block.h"
#include "cuda_vec.h"

enum {
    TREE  = 1024, /* leaves of a warp */
    AHEAD = 8,    /* of a lane, read before they are added */
    READS = 4     /* likewise, of 4 elements each */
};

CU_FN double warp_sum_double(double x)
{
    for (int k = 1; k < CU_WARP; k *= 2) x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

CU_FN void add_squares(const float x[4], double sum[4])
{
    for (int j = 0; j < 4; j++) sum[j] += (double)x[j] * (double)x[j];
}

/* A lane's elements of [i, end), i its first; x is of type T.  VECTORS: read 4 at a time. */
template <int T, bool VECTORS>
CU_FN void sum_lane(const void *p, int64_t i, int64_t end, double sum[4])
{
    float x[4];
    CU_ROLLED
    for (; VECTORS && i + (READS - 1) * CU_WARP * 4 + 4 <= end;
         i += READS * CU_WARP * 4) {
        float ahead[READS][4];
        CU_UNROLL
        for (int k = 0; k < READS; k++) cu_get4(p, T, i + k * CU_WARP * 4, ahead[k]);
        CU_UNROLL
        for (int k = 0; k < READS; k++) add_squares(ahead[k], sum);
    }
    CU_ROLLED
    for (; i + 4 <= end; i += CU_WARP * 4) {
        for (int j = 0; j < 4 && !VECTORS; j++) x[j] = cu_get(p, T, i + j);
        if (VECTORS) cu_get4(p, T, i, x);
        add_squares(x, sum);
    }
    if (i >= end) return;
    for (int j = 0; j < 4; j++) x[j] = i + j < end ? cu_get(p, T, i + j) : 0;
    add_squares(x, sum);
}

/* Piece number w of all. */
CU_FN void sum_piece(const weft_cuda_squares_args &a, int64_t w)
{
    int     lane = (int)threadIdx.x % CU_WARP;
    int64_t row = w / a.n_piece, piece = w - row * a.n_piece;
    double  sum[4] = {0, 0, 0, 0};
    if (row >= a.n_part) return;
    int64_t first = row * a.row + piece * WEFT_CUDA_SQUARE_PIECE;
    int64_t end   = (row + 1) * a.row < a.n ? (row + 1) * a.row : a.n;
    if (first + WEFT_CUDA_SQUARE_PIECE < end) end = first + WEFT_CUDA_SQUARE_PIECE;
    first += lane * 4;
    if (a.dtype == WEFT_DTYPE_F32 && a.vectors)
        sum_lane<WEFT_DTYPE_F32, true>(a.x, first, end, sum);
    else if (a.dtype == WEFT_DTYPE_F32)
        sum_lane<WEFT_DTYPE_F32, false>(a.x, first, end, sum);
    else if (a.vectors)
        sum_lane<WEFT_DTYPE_BF16, true>(a.x, first, end, sum);
    else
        sum_lane<WEFT_DTYPE_BF16, false>(a.x, first, end, sum);
    double total = warp_sum_double((sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (lane == 0) a.part[w] = total;
}

CU_KERNEL(squares, weft_cuda_squares_args, 256)
{
    sum_piece(a, cu_index() / CU_WARP);
}
CU_KERNEL(squares_many, weft_cuda_squares_many_args, 256)
{
    const weft_cuda_squares_task &t = a.task[cu_find_task(a.task, (int)a.n_task)];
    sum_piece(t.squares,
              ((blockIdx.x - t.first_block) * blockDim.x + threadIdx.x) / CU_WARP);
}

CU_FN double leaf(const double *part, int64_t n, int64_t n_piece, int64_t i)
{
    double x = 0;
    if (i >= n) return 0;
    CU_ROLLED
    for (int64_t k = 0; k < n_piece; k++) x += part[i * n_piece + k];
    return x;
}

/* Leaves i, i + 32, ...: without pieces all of the reads are under way at once. */
CU_FN void read_leaves(const double *part, int64_t n, int64_t n_piece, int64_t i,
                       double x[AHEAD])
{
    if (n_piece == 1) {
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++)
            x[k] = i + k * CU_WARP < n ? part[i + k * CU_WARP] : 0;
        return;
    }
    CU_UNROLL
    for (int k = 0; k < AHEAD; k++) x[k] = leaf(part, n, n_piece, i + k * CU_WARP);
}

/* Leaves alone: the partials of sumsq_parts. */
CU_KERNEL(squares_leaves, weft_cuda_tree_args, 256)
{
    int64_t i = cu_index();
    if (i < a.n_leaf) a.room[i] = leaf(a.part, a.n_leaf, a.n_piece, i);
}

/* A warp makes one number of 1024; the block goes on with these until there is one. */
CU_FN void sum_tree(const weft_cuda_tree_args &a)
{
    int           lane = (int)threadIdx.x % CU_WARP, warp = (int)threadIdx.x / CU_WARP;
    int           n_warp = (int)blockDim.x / CU_WARP;
    const double *from   = a.part;
    double       *to     = a.room;
    int64_t       n = a.n_leaf, n_piece = a.n_piece, next = 0;
    for (;;) {
        next = (n + TREE - 1) / TREE;
        for (int64_t s = warp; s < next; s += n_warp) {
            double mine = 0;
            CU_ROLLED
            for (int k0 = 0; k0 < TREE / CU_WARP && s * TREE + k0 * CU_WARP < n; k0 += AHEAD) {
                double x[AHEAD];
                read_leaves(from, n, n_piece, s * TREE + k0 * CU_WARP + lane, x);
                CU_UNROLL
                for (int k = 0; k < AHEAD; k++) {
                    x[k] = warp_sum_double(x[k]);
                    if (k0 + k == lane) mine = x[k];
                }
            }
            mine = warp_sum_double(mine);
            if (lane == 0) to[s] = mine;
        }
        __syncthreads();
        if (next <= 1) break;
        from    = to;
        n       = next;
        n_piece = 1;
        to      = to == a.room ? a.room + a.n_leaf / TREE + 1 : a.room;
    }
    if (threadIdx.x == 0) *a.sum = next ? to[0] : 0;
}

CU_KERNEL(squares_tree, weft_cuda_tree_args, 1024)
{
    sum_tree(a);
}
CU_KERNEL(squares_trees, weft_cuda_trees_args, 1024)
{
    sum_tree(a.tree[blockIdx.x]);
}

CU_KERNEL(clip, weft_cuda_clip_args, 512)
{
    __shared__ double s[WEFT_CUDA_MAX_NORM];
    for (int i = (int)threadIdx.x; i < a.n; i += (int)blockDim.x)
        s[i] = cu_load_double(a.s[i], a.dtype, 0);
    __syncthreads();
    if (threadIdx.x) return;
    double sum = a.first ? 0 : *a.total;
    for (int i = 0; i < a.n; i++) sum += s[i];
    if (!a.last) {
        *a.total = sum;
        return;
    }
    double norm = sqrt(sum), scale = a.max_norm > 0 ? a.max_norm / (norm + 1e-6) : 1;
    if (a.norm) *a.norm = (float)norm;
    /* a norm that is no number must reach the update, not be hidden by min(1, ..) */
    if (a.scale) *a.scale = scale > 1 ? 1.0f : (float)scale;
}
