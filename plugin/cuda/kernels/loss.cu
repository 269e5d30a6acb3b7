/* Softmax cross-entropy: log-sum-exp, loss and gradient of a row of logits, which a block has. */
#include "cuda_block.h"
#include "cuda_vec.h"

enum {
    UNIT = 8, /* bf16 of 16 bytes */
    HELD = WEFT_CUDA_LOSS_HELD
};

static constexpr float LOG2_E = 1.44269504088896341f;

/* Where a row is in a view of rows. */
CU_FN int64_t row_at(const weft_cuda_view &v, int64_t row)
{
    return v.n_dim == 1 ? row * v.stride[0] : cu_at(v, row);
}

/* ---- any strides, f32 or bf16 ---- */

CU_FN float find_lse(const weft_cuda_loss_args &a, int64_t at, float *room)
{
    float m = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < a.v; i += blockDim.x)
        m = fmaxf(m, cu_get(a.logits.p, a.logits.dtype, at + i * a.step));
    m          = cu_block_max(m, room);
    float from = m == -INFINITY ? 0 : m;
    for (int64_t i = threadIdx.x; i < a.v; i += blockDim.x)
        sum += expf(cu_get(a.logits.p, a.logits.dtype, at + i * a.step) - from);
    return from + logf(cu_block_sum(sum, room));
}

/* The row's loss; own: the label's logit.  A label that is no column of the vocabulary makes it
 * NaN: the host learns by the step's loss what it cannot be told here. */
CU_FN float loss_of(const weft_cuda_loss_args &a, int64_t label, float lse, float own)
{
    int64_t col = a.first > 0 ? label - a.first : label;
    if (label == a.ignore) return 0;
    if (label < 0 || (a.first < 0 && label >= a.v)) return NAN;
    if (col < 0 || col >= a.v) return 0; /* another part's */
    return (a.first < 0 ? lse : 0) - own;
}

CU_FN float own_logit(const weft_cuda_loss_args &a, int64_t label, int64_t at)
{
    int64_t col = a.first > 0 ? label - a.first : label;
    return col >= 0 && col < a.v ? cu_get(a.logits.p, a.logits.dtype, at + col * a.step)
                                 : 0;
}

CU_KERNEL(loss, weft_cuda_loss_args, 256)
{
    __shared__ float room[CU_WARP];
    int64_t          row = blockIdx.x, at = row_at(a.logits, row);
    int64_t          label = cu_id(a.labels, row_at(a.labels, row));
    float            own   = own_logit(a, label, at), lse;
    if (a.lse_in.p) {
        lse = cu_get(a.lse_in.p, WEFT_DTYPE_F32, row_at(a.lse_in, row));
    } else {
        lse = find_lse(a, at, room); /* all have read `own` when it returns */
        if (threadIdx.x == 0 && a.lse) a.lse[row] = lse;
        if (threadIdx.x == 0 && a.loss) a.loss[row] = loss_of(a, label, lse, own);
    }
    if (!a.dlogits.p) return;
    float   scale = cu_get(a.dloss.p, a.dloss.dtype, row_at(a.dloss, row));
    int64_t col = a.first > 0 ? label - a.first : label, to = row_at(a.dlogits, row);
    for (int64_t i = threadIdx.x; i < a.v; i += blockDim.x) {
        float y = 0;
        if (label != a.ignore) {
            y = expf(cu_get(a.logits.p, a.logits.dtype, at + i * a.step) - lse) * scale;
            if (i == col) y -= scale;
        }
        cu_put(a.dlogits.p, a.dlogits.dtype, to + i * a.dstep, y);
    }
}

/* ---- what stays in L2 ---- */

/* 16 bytes that are read again by this kernel leave L2 last; those that are not, first. */
template <bool AGAIN> CU_FN uint4 read_unit(const uint4 *p)
{
#ifdef __CUDACC__
    uint4 v;
    if (AGAIN) {
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(p), "l"(policy));
    } else {
        asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(p));
    }
    return v;
#else
    return *p;
#endif
}

CU_FN void put_unit(uint4 *p, const uint4 &v)
{
#ifdef __CUDACC__
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
#else
    *p = v;
#endif
}

/* ---- bf16, rows one after another: 16 bytes a thread, read once ----
 * A row need not begin at a multiple of 16 bytes: its first and last unit may hold elements of its
 * neighbours, which count as -inf and are not written. */

/* A row as units of 16 bytes. */
struct unit_row {
    const uint4 *x;
    uint4       *y;
    int          n;     /* units */
    int          begin; /* elements of the first unit that are not the row's */
    int          end;   /* where the row ends, in elements from x */
};

/* Addresses stay pointers into global memory: by way of integers loads would be generic ones. */
CU_FN unit_row find_units(const weft_cuda_loss_args &a, int64_t row)
{
    unit_row    u;
    const char *x   = (const char *)a.logits.p + row * a.row * (int64_t)sizeof(cu_bf16);
    int         odd = (int)((uintptr_t)x % 16);
    u.begin         = odd / (int)sizeof(cu_bf16);
    u.end           = u.begin + (int)a.v;
    u.n             = (u.end + UNIT - 1) / UNIT;
    u.x             = (const uint4 *)(x - odd);
    u.y             = NULL;
    if (a.dlogits.p)
        u.y =
            (uint4 *)((char *)a.dlogits.p + row * a.row * (int64_t)sizeof(cu_bf16) - odd);
    return u;
}

CU_FN void widen(const uint4 &v, float x[UNIT])
{
    x[0] = cu_float((cu_bf16)v.x), x[1] = cu_float((cu_bf16)(v.x >> 16));
    x[2] = cu_float((cu_bf16)v.y), x[3] = cu_float((cu_bf16)(v.y >> 16));
    x[4] = cu_float((cu_bf16)v.z), x[5] = cu_float((cu_bf16)(v.z >> 16));
    x[6] = cu_float((cu_bf16)v.w), x[7] = cu_float((cu_bf16)(v.w >> 16));
}

/* Unit i as floats; neighbours' elements are -inf. */
CU_FN void unit_floats(const unit_row &u, int i, const uint4 &v, float x[UNIT])
{
    widen(v, x);
    if (i > 0 && (i + 1) * UNIT <= u.end) return;
    CU_UNROLL
    for (int k = 0; k < UNIT; k++)
        if (i * UNIT + k < u.begin || i * UNIT + k >= u.end) x[k] = -INFINITY;
}

/* A running maximum and the sum of 2^(LOG2_E (x - max)). */
struct running {
    float max, sum;
};

CU_FN float rescale(float from, float to)
{
    return from == to ? 1 : cu_exp2((from - to) * LOG2_E);
}

CU_FN running join(running p, running q)
{
    running r;
    r.max = fmaxf(p.max, q.max);
    r.sum = p.sum * rescale(p.max, r.max) + q.sum * rescale(q.max, r.max);
    return r;
}

CU_FN void add_unit(running &r, const float x[UNIT])
{
    float m = x[0], sum = 0;
    CU_UNROLL
    for (int k = 1; k < UNIT; k++) m = fmaxf(m, x[k]);
    if (m > r.max) {
        r.sum *= rescale(r.max, m);
        r.max = m;
    }
    float from = r.max == -INFINITY ? 0 : r.max * LOG2_E;
    CU_UNROLL
    for (int k = 0; k < UNIT; k++) sum += cu_exp2(fmaf(x[k], LOG2_E, -from));
    r.sum += sum;
}

/* The block's, for all threads; room: 2 CU_WARP floats. */
CU_FN running join_block(running r, float *room)
{
    int lane = (int)threadIdx.x % CU_WARP, n = (int)blockDim.x / CU_WARP;
    for (int k = CU_WARP / 2; k; k /= 2) {
        running q;
        q.max = __shfl_xor_sync(0xffffffffu, r.max, k);
        q.sum = __shfl_xor_sync(0xffffffffu, r.sum, k);
        r     = join(r, q);
    }
    if (lane == 0) {
        room[threadIdx.x / CU_WARP]           = r.max;
        room[CU_WARP + threadIdx.x / CU_WARP] = r.sum;
    }
    __syncthreads();
    r.max = lane < n ? room[lane] : -INFINITY;
    r.sum = lane < n ? room[CU_WARP + lane] : 0;
    for (int k = CU_WARP / 2; k; k /= 2) {
        running q;
        q.max = __shfl_xor_sync(0xffffffffu, r.max, k);
        q.sum = __shfl_xor_sync(0xffffffffu, r.sum, k);
        r     = join(r, q);
    }
    return r;
}

enum unit_use {
    USE_ONCE, /* no gradient follows */
    USE_KEPT, /* goes to shared memory */
    USE_AGAIN /* is read again: stays in L2, where all else makes room first */
};

/* The thread's units of [from, until); several are under way. */
template <unit_use USE>
CU_FN void read_units(const unit_row &u, int from, int until, uint4 *kept, running &r)
{
    enum {
        AHEAD = USE == USE_AGAIN ? 3 : 4
    };
    int   step = (int)blockDim.x;
    uint4 v[AHEAD];
    float x[UNIT];
    for (int i0 = from; i0 < until; i0 += AHEAD * step) {
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++) {
            int i = i0 + k * step;
            if (i < until) v[k] = read_unit<USE == USE_AGAIN>(u.x + i);
        }
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++) {
            int i = i0 + k * step;
            if (i >= until) break;
            if (USE == USE_KEPT) kept[i - HELD * step] = v[k];
            unit_floats(u, i, v[k], x);
            add_unit(r, x);
        }
    }
}

/* Reads the row and keeps it: a thread's first HELD units in registers, a.kept of the others in
 * shared memory.  Each thread reads back what it kept itself. */
CU_FN running read_row(const weft_cuda_loss_args &a, const unit_row &u, uint4 held[HELD],
                       uint4 *kept)
{
    running r    = {-INFINITY, 0};
    int     step = (int)blockDim.x, first = HELD * step, n_kept = (int)a.kept;
    int     from = first + (int)threadIdx.x;
    float   x[UNIT];
    CU_UNROLL
    for (int k = 0; k < HELD; k++) {
        int i = (int)threadIdx.x + k * step;
        if (i < u.n) held[k] = read_unit<false>(u.x + i);
    }
    if (!a.dlogits.p) {
        read_units<USE_ONCE>(u, from, u.n, NULL, r);
    } else {
        int until = first + n_kept < u.n ? first + n_kept : u.n;
        read_units<USE_KEPT>(u, from, until, kept, r);
        if (from < until) from += (until - from + step - 1) / step * step;
        read_units<USE_AGAIN>(u, from, u.n, NULL, r);
    }
    CU_UNROLL
    for (int k = 0; k < HELD; k++) {
        int i = (int)threadIdx.x + k * step;
        if (i >= u.n) break;
        unit_floats(u, i, held[k], x);
        add_unit(r, x);
    }
    return r;
}

CU_FN void write_unit(const unit_row &u, int i, const float y[UNIT])
{
    if (i * UNIT >= u.begin && (i + 1) * UNIT <= u.end) {
        uint4 v = {cu_pack(y[0], y[1]), cu_pack(y[2], y[3]), cu_pack(y[4], y[5]),
                   cu_pack(y[6], y[7])};
        put_unit(u.y + i, v);
        return;
    }
    CU_UNROLL
    for (int k = 0; k < UNIT; k++)
        if (i * UNIT + k >= u.begin && i * UNIT + k < u.end)
            ((cu_bf16 *)(u.y + i))[k] = cu_round(y[k]);
}

/* What the gradient of a row is made with. */
struct row_gradient {
    float from, scale; /* the log-sum-exp as a power of 2; the row's weight */
    int   label_unit, label_place;
};

CU_FN row_gradient gradient_of(const weft_cuda_loss_args &a, const unit_row &u,
                               int64_t label, float lse, float scale)
{
    int64_t col = u.begin + (a.first > 0 ? label - a.first : label);
    return {lse * LOG2_E, scale, col >= u.begin && col < u.end ? (int)col / UNIT : -1,
            (int)col % UNIT};
}

/* (softmax - one at the label) scale of unit i, whose logits are v */
CU_FN void write_gradient(const unit_row &u, const row_gradient &g, int i, const uint4 &v)
{
    float x[UNIT];
    unit_floats(u, i, v, x);
    CU_UNROLL
    for (int k = 0; k < UNIT; k++) x[k] = cu_exp2(fmaf(x[k], LOG2_E, -g.from)) * g.scale;
    if (i == g.label_unit) {
        CU_UNROLL
        for (int k = 0; k < UNIT; k++)
            if (k == g.label_place) x[k] -= g.scale;
    }
    write_unit(u, i, x);
}

/* From unit `first` on; units before first + n_kept are in kept, of the others several are under
 * way. */
CU_FN void write_row(const unit_row &u, const row_gradient &g, int first,
                     const uint4 *kept, int n_kept)
{
    enum {
        AHEAD = 4
    };
    int step = (int)blockDim.x, i = first + (int)threadIdx.x;
    CU_ROLLED
    for (; i < first + n_kept && i < u.n; i += step)
        write_gradient(u, g, i, kept[i - first]);
    CU_ROLLED
    for (; i < u.n; i += AHEAD * step) {
        uint4 v[AHEAD];
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++)
            v[k] = read_unit<false>(u.x + (i + k * step < u.n ? i + k * step : i));
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++)
            if (i + k * step < u.n) write_gradient(u, g, i + k * step, v[k]);
    }
}

/* A row whose label is ignored. */
CU_FN void write_zeros(const unit_row &u)
{
    float zero[UNIT] = {};
    for (int i = (int)threadIdx.x; i < u.n; i += (int)blockDim.x) write_unit(u, i, zero);
}

/* Loss and lse; the gradient too where dlogits is there. */
CU_KERNEL_BLOCKS(loss_rows, weft_cuda_loss_args, 512, 2)
{
    CU_SHARED(uint4, kept);
    __shared__ float room[2 * CU_WARP];
    int64_t          row   = blockIdx.x;
    unit_row         u     = find_units(a, row);
    int64_t          label = cu_id(a.labels, row_at(a.labels, row));
    float            own   = own_logit(a, label, row * a.row);
    uint4            held[HELD];
    running          r   = join_block(read_row(a, u, held, kept), room);
    float            lse = r.max == -INFINITY ? r.max : r.max + logf(r.sum);
    if (threadIdx.x == 0 && a.lse) a.lse[row] = lse;
    if (threadIdx.x == 0 && a.loss) a.loss[row] = loss_of(a, label, lse, own);
    if (!a.dlogits.p) return;
    if (label == a.ignore) {
        write_zeros(u);
        return;
    }
    label          = cu_id(a.labels, row_at(a.labels, row)); /* again: fewer registers */
    row_gradient g = gradient_of(a, u, label, lse,
                                 cu_get(a.dloss.p, a.dloss.dtype, row_at(a.dloss, row)));
    CU_UNROLL
    for (int k = 0; k < HELD; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < u.n) write_gradient(u, g, i, held[k]);
    }
    write_row(u, g, HELD * (int)blockDim.x, kept, (int)a.kept);
}

/* The gradient alone, lse is known. */
CU_KERNEL(loss_grad_rows, weft_cuda_loss_args, 512)
{
    int64_t  row   = blockIdx.x;
    unit_row u     = find_units(a, row);
    int64_t  label = cu_id(a.labels, row_at(a.labels, row));
    if (label == a.ignore) {
        write_zeros(u);
        return;
    }
    row_gradient g = gradient_of(
        a, u, label, cu_get(a.lse_in.p, WEFT_DTYPE_F32, row_at(a.lse_in, row)),
        cu_get(a.dloss.p, a.dloss.dtype, row_at(a.dloss, row)));
    for (int i = (int)threadIdx.x; i < u.n; i += (int)blockDim.x)
        write_gradient(u, g, i, read_unit<false>(u.x + i));
}

/* ---- parts of a vocabulary ---- */

CU_KERNEL(loss_merge, weft_cuda_loss_merge_args, 256)
{
    int64_t r = cu_index();
    float   m = -INFINITY, sum = 0, logit = 0;
    if (r >= a.rows) return;
    for (int64_t p = 0; p < a.n_part; p++) m = fmaxf(m, a.lse_part[p * a.rows + r]);
    for (int64_t p = 0; p < a.n_part; p++) {
        if (m > -INFINITY) sum += expf(a.lse_part[p * a.rows + r] - m);
        logit += a.loss_part[p * a.rows + r];
    }
    float lse = m > -INFINITY ? m + logf(sum) : m;
    if (a.lse) a.lse[r] = lse;
    if (a.loss) a.loss[r] = cu_id(a.labels, r) == a.ignore ? 0 : lse + logit;
}
