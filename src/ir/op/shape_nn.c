/* Shape rules: norms, attention, tables and losses, experts, vision. */
#include <string.h>

#include "op/op_priv.h"

#define NAME(u) (weft_op_get((u)->op)->name)

static weft_status bad(const weft_op_use *u, int in, const char *want)
{
    char b[WEFT_OP__TEXT];
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: operand %d is [%s], expected %s", NAME(u), in,
                     weft_op__shape(u, in, b), want);
}

static weft_status need(const weft_op_use *u, int in, const weft_shape *want)
{
    char b[WEFT_OP__TEXT];
    if (weft_shape_equal(&u->in[in].shape, want)) return WEFT_OK;
    weft_shape_text(want, b, sizeof b);
    return bad(u, in, b);
}

static weft_status need_rank(const weft_op_use *u, int in, int n)
{
    char want[32] = "n dimensions";
    want[0]       = (char)('0' + n);
    return u->in[in].shape.n == n ? WEFT_OK : bad(u, in, want);
}

static weft_shape drop_last(const weft_shape *s)
{
    weft_shape r = *s;
    if (r.n > 0) r.n--;
    return r;
}
static weft_shape vec(int64_t n)
{
    return weft_shape_make(1, &n);
}
static weft_shape mat(int64_t m, int64_t n)
{
    return weft_shape_make(2, (int64_t[]){m, n});
}
static weft_type f32(weft_shape s)
{
    return (weft_type){WEFT_DTYPE_F32, s};
}
static weft_type i32(weft_shape s)
{
    return (weft_type){WEFT_DTYPE_I32, s};
}
static bool is_index(weft_dtype t)
{
    return t == WEFT_DTYPE_I32 || t == WEFT_DTYPE_I64;
}

/* ---- norms: w and b are vectors over the last dimension ---- */
static weft_status norm(const weft_op_use *u, int x, int first_vec, int n_vec)
{
    if (u->in[x].shape.n < 1) return bad(u, x, "at least one dimension");
    weft_shape v = vec(u->in[x].shape.d[u->in[x].shape.n - 1]);
    for (int i = 0; i < n_vec; i++) WEFT_TRY(need(u, first_vec + i, &v));
    return WEFT_OK;
}
weft_status weft_op__shape_norm3(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(norm(u, 0, 1, 2));
    o[0] = u->in[0];
    o[1] = o[2] = f32(drop_last(&u->in[0].shape));
    return WEFT_OK;
}
weft_status weft_op__shape_norm2(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(norm(u, 0, 1, 1));
    o[0] = u->in[0];
    o[1] = f32(drop_last(&u->in[0].shape));
    return WEFT_OK;
}
static weft_status norm_grad(const weft_op_use *u, weft_type *o, int n_stat)
{
    weft_shape lead = drop_last(&u->in[0].shape);
    WEFT_TRY(norm(u, 0, 2, 1));
    WEFT_TRY(need(u, 1, &u->in[0].shape));
    for (int i = 0; i < n_stat; i++) WEFT_TRY(need(u, 3 + i, &lead));
    o[0] = u->in[0];
    for (int j = 1; j < u->n_out; j++) o[j] = f32(u->in[2].shape);
    return WEFT_OK;
}
weft_status weft_op__shape_layer_norm_grad(const weft_op_use *u, weft_type *o)
{
    return norm_grad(u, o, 2);
}
weft_status weft_op__shape_rms_norm_grad(const weft_op_use *u, weft_type *o)
{
    return norm_grad(u, o, 1);
}

/* ---- attention: q (b,s,h,e), k (b,t,g,e), v (b,t,g,f), bias (h,s,t) ---- */
static weft_status attention_shapes(const weft_op_use *u, int q, int bias)
{
    for (int i = q; i < q + 3; i++) WEFT_TRY(need_rank(u, i, 4));
    const int64_t *qd = u->in[q].shape.d, *kd = u->in[q + 1].shape.d,
                  *vd = u->in[q + 2].shape.d;
    if (kd[0] != qd[0] || kd[3] != qd[3]) return bad(u, q + 1, "q's batch and head size");
    if (vd[0] != kd[0] || vd[1] != kd[1] || vd[2] != kd[2])
        return bad(u, q + 2, "k's batch, length and heads");
    if (kd[2] < 1 ? qd[2] : qd[2] % kd[2]) /* none of either: a part without heads */
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: %ld query heads are no multiple of %ld key heads", NAME(u),
                         (long)qd[2], (long)kd[2]);
    if (u->n_in > bias) {
        weft_shape b = weft_shape_make(3, (int64_t[]){qd[2], qd[1], kd[1]});
        WEFT_TRY(need(u, bias, &b));
    }
    return WEFT_OK;
}
weft_status weft_op__shape_attention(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(attention_shapes(u, 0, 3));
    o[0]            = u->in[0];
    o[0].shape.d[3] = u->in[2].shape.d[3];
    o[1]            = f32(drop_last(&u->in[0].shape));
    return WEFT_OK;
}
weft_status weft_op__shape_attention_grad(const weft_op_use *u, weft_type *o)
{
    weft_shape lse = drop_last(&u->in[1].shape), out = u->in[1].shape;
    WEFT_TRY(attention_shapes(u, 1, 6));
    out.d[3] = u->in[3].shape.d[3];
    WEFT_TRY(need(u, 0, &out));
    WEFT_TRY(need(u, 4, &out));
    WEFT_TRY(need(u, 5, &lse));
    if ((u->n_in > 6) != (u->n_out > 3))
        return WEFT_FAIL(WEFT_ERR_ARG, "attention_grad: dbias is given when bias is");
    for (int j = 0; j < 3; j++) o[j] = u->in[1 + j];
    if (u->n_out > 3) o[3] = f32(u->in[6].shape);
    return WEFT_OK;
}
weft_status weft_op__shape_attention_merge(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(need_rank(u, 0, 4));
    weft_shape lse = drop_last(&u->in[0].shape);
    WEFT_TRY(need(u, 1, &lse));
    WEFT_TRY(need(u, 2, &u->in[0].shape));
    WEFT_TRY(need(u, 3, &lse));
    o[0] = u->in[0];
    o[1] = f32(lse);
    return WEFT_OK;
}
weft_status weft_op__shape_rotary(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(need_rank(u, 0, 4));
    if (u->in[0].shape.d[3] % 2) return bad(u, 0, "an even head size");
    o[0] = u->in[0];
    return WEFT_OK;
}
weft_status weft_op__shape_rel_bucket(const weft_op_use *u, weft_type *o)
{
    o[0] = i32(mat(weft_use_int(u, "s"), weft_use_int(u, "t")));
    return WEFT_OK;
}

/* ---- tables and losses ---- */
weft_status weft_op__shape_embedding(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(need_rank(u, 0, 2));
    if (!is_index(u->in[1].dtype))
        return WEFT_FAIL(WEFT_ERR_ARG, "embedding: ids must be i32 or i64");
    if (u->in[1].shape.n >= WEFT_MAX_DIM) return bad(u, 1, "fewer dimensions");
    o[0].dtype                   = u->in[0].dtype;
    o[0].shape                   = u->in[1].shape;
    o[0].shape.d[o[0].shape.n++] = u->in[0].shape.d[1];
    return WEFT_OK;
}
weft_status weft_op__shape_embedding_grad(const weft_op_use *u, weft_type *o)
{
    weft_shape  lead = drop_last(&u->in[0].shape);
    const char *s    = weft_use_string(u, "dtype");
    WEFT_TRY(need(u, 1, &lead));
    o[0] = f32(mat(weft_use_int(u, "rows"), u->in[0].shape.d[u->in[0].shape.n - 1]));
    if (*s && !weft_dtype_parse(s, &o[0].dtype))
        return WEFT_FAIL(WEFT_ERR_ARG, "embedding_grad: unknown dtype '%s'", s);
    if (u->n_in > 2) WEFT_TRY(need(u, 2, &o[0].shape));
    return WEFT_OK;
}
weft_status weft_op__shape_cross_entropy(const weft_op_use *u, weft_type *o)
{
    if (u->in[0].shape.n < 1) return bad(u, 0, "at least one dimension");
    weft_shape lead = drop_last(&u->in[0].shape);
    WEFT_TRY(need(u, 1, &lead));
    if (!is_index(u->in[1].dtype))
        return WEFT_FAIL(WEFT_ERR_ARG, "cross_entropy: labels must be i32 or i64");
    o[0] = o[1] = f32(lead);
    return WEFT_OK;
}
weft_status weft_op__shape_cross_entropy_merge(const weft_op_use *u, weft_type *o)
{
    const weft_shape *part = &u->in[0].shape;
    if (part->n < 1) return bad(u, 0, "at least one dimension");
    weft_shape whole = *part;
    whole.n--;
    memmove(whole.d, part->d + 1, sizeof *whole.d * (size_t)whole.n);
    WEFT_TRY(need(u, 1, part));
    WEFT_TRY(need(u, 2, &whole));
    if (!is_index(u->in[2].dtype))
        return WEFT_FAIL(WEFT_ERR_ARG, "cross_entropy_merge: labels must be i32 or i64");
    o[0] = o[1] = f32(whole);
    return WEFT_OK;
}
weft_status weft_op__shape_cross_entropy_grad(const weft_op_use *u, weft_type *o)
{
    weft_shape lead = drop_last(&u->in[0].shape);
    for (int i = 1; i < 4; i++) WEFT_TRY(need(u, i, &lead));
    o[0] = u->in[0];
    return WEFT_OK;
}
weft_status weft_op__shape_gather(const weft_op_use *u, weft_type *o)
{
    int64_t axis = weft_use_int(u, "axis");
    WEFT_TRY(need_rank(u, 1, 1));
    if (axis < 0 || axis >= u->in[0].shape.n) return bad(u, 0, "that axis");
    if (!is_index(u->in[1].dtype))
        return WEFT_FAIL(WEFT_ERR_ARG, "gather: idx must be i32 or i64");
    o[0]               = u->in[0];
    o[0].shape.d[axis] = u->in[1].shape.d[0];
    return WEFT_OK;
}
weft_status weft_op__shape_scatter_add(const weft_op_use *u, weft_type *o)
{
    int64_t axis = weft_use_int(u, "axis");
    WEFT_TRY(need_rank(u, 1, 1));
    if (axis < 0 || axis >= u->in[0].shape.n ||
        u->in[0].shape.d[axis] != u->in[1].shape.d[0])
        return bad(u, 0, "as many rows as idx has numbers");
    o[0]               = u->in[0];
    o[0].shape.d[axis] = weft_use_int(u, "size");
    return WEFT_OK;
}

/* ---- experts ---- */
weft_status weft_op__shape_route(const weft_op_use *u, weft_type *o)
{
    int     n = u->in[0].shape.n;
    int64_t k = weft_use_int(u, "k");
    if (n < 1 || k < 1 || k > u->in[0].shape.d[n - 1])
        return bad(u, 0, "at least k experts");
    if (u->n_in > 1) {
        weft_shape bias = vec(u->in[0].shape.d[n - 1]);
        WEFT_TRY(need(u, 1, &bias));
    }
    o[0]                = u->in[0];
    o[0].shape.d[n - 1] = k;
    o[1]                = i32(o[0].shape);
    return WEFT_OK;
}
weft_status weft_op__shape_route_grad(const weft_op_use *u, weft_type *o)
{
    int        n = u->in[0].shape.n;
    weft_shape w = u->in[0].shape;
    if (n < 1) return bad(u, 0, "at least one dimension");
    w.d[n - 1] = weft_use_int(u, "k");
    for (int i = 1; i < 4; i++) WEFT_TRY(need(u, i, &w));
    o[0] = u->in[0];
    return WEFT_OK;
}
weft_status weft_op__shape_dispatch(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(need_rank(u, 0, 2));
    WEFT_TRY(need_rank(u, 1, 2));
    if (u->in[1].shape.d[0] != u->in[0].shape.d[0]) return bad(u, 1, "as many rows as x");
    if (weft_use_int(u, "experts") < 1 || weft_use_int(u, "experts") > INT32_MAX)
        return WEFT_FAIL(WEFT_ERR_ARG, "dispatch: experts must be at least 1");
    int64_t r = u->in[1].shape.d[0] * u->in[1].shape.d[1];
    o[0]      = (weft_type){u->in[0].dtype, mat(r, u->in[0].shape.d[1])};
    o[1]      = i32(vec(weft_use_int(u, "experts") + 1));
    o[2]      = i32(vec(r));
    return WEFT_OK;
}
weft_status weft_op__shape_dispatch_grad(const weft_op_use *u, weft_type *o)
{
    int64_t k = weft_use_int(u, "k");
    WEFT_TRY(need_rank(u, 0, 2));
    if (k < 1 || u->in[0].shape.d[0] % k) return bad(u, 0, "a multiple of k rows");
    weft_shape src = vec(u->in[0].shape.d[0]);
    WEFT_TRY(need(u, 1, &src));
    o[0]            = u->in[0];
    o[0].shape.d[0] = u->in[0].shape.d[0] / k;
    return WEFT_OK;
}
weft_status weft_op__shape_combine(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(need_rank(u, 0, 2));
    WEFT_TRY(need_rank(u, 1, 2));
    if (weft_shape_count(&u->in[1].shape) != u->in[0].shape.d[0])
        return bad(u, 1, "a weight for each row");
    weft_shape src = vec(u->in[0].shape.d[0]);
    WEFT_TRY(need(u, 2, &src));
    o[0]            = u->in[0];
    o[0].shape.d[0] = u->in[1].shape.d[0];
    return WEFT_OK;
}
weft_status weft_op__shape_combine_grad(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(need_rank(u, 1, 2));
    WEFT_TRY(need_rank(u, 2, 2));
    int64_t    rows = u->in[1].shape.d[0];
    weft_shape dy = mat(u->in[2].shape.d[0], u->in[1].shape.d[1]), src = vec(rows);
    WEFT_TRY(need(u, 0, &dy));
    WEFT_TRY(need(u, 3, &src));
    if (weft_shape_count(&u->in[2].shape) != rows)
        return bad(u, 2, "a weight for each row");
    o[0] = u->in[1];
    o[1] = u->in[2];
    return WEFT_OK;
}
weft_status weft_op__shape_own_offsets(const weft_op_use *u, weft_type *o)
{
    int64_t first = weft_use_int(u, "first_expert"), own = weft_use_int(u, "own");
    WEFT_TRY(need_rank(u, 0, 2));
    int64_t experts = u->in[0].shape.d[1] - 1;
    if (u->in[0].dtype != WEFT_DTYPE_I32 || experts < 1)
        return bad(u, 0, "i32 offsets of all parts");
    if (first < 0 || own < -1 || (own >= 0 && own > experts - first))
        return WEFT_FAIL(WEFT_ERR_ARG, "own_offsets: %lld experts from %lld on of %lld",
                         (long long)own, (long long)first, (long long)experts);
    o[0] = i32(vec(experts + 1));
    return WEFT_OK;
}
/* w is (x,n,k) when trans, as Hugging Face stores it, else (x,k,n). */
weft_status weft_op__shape_grouped(const weft_op_use *u, weft_type *o)
{
    bool trans = weft_use_int(u, "trans") != 0;
    WEFT_TRY(need_rank(u, 0, 2));
    WEFT_TRY(need_rank(u, 1, 3));
    const int64_t *w    = u->in[1].shape.d;
    weft_shape     want = vec(w[0] + 1);
    WEFT_TRY(need(u, 2, &want));
    if (u->in[0].shape.d[1] != w[trans ? 2 : 1]) return bad(u, 0, "w's inner size");
    o[0]            = u->in[0];
    o[0].shape.d[1] = w[trans ? 1 : 2];
    return WEFT_OK;
}
weft_status weft_op__shape_grouped_wgrad(const weft_op_use *u, weft_type *o)
{
    bool trans = weft_use_int(u, "trans") != 0;
    WEFT_TRY(need_rank(u, 0, 2));
    WEFT_TRY(need_rank(u, 1, 2));
    WEFT_TRY(need_rank(u, 2, 1));
    int64_t k = u->in[0].shape.d[1], n = u->in[1].shape.d[1];
    if (u->in[1].shape.d[0] != u->in[0].shape.d[0]) return bad(u, 1, "as many rows as x");
    if (u->in[2].shape.d[0] < 1) return bad(u, 2, "at least one offset");
    o[0] = f32(weft_shape_make(
        3, (int64_t[]){u->in[2].shape.d[0] - 1, trans ? n : k, trans ? k : n}));
    return WEFT_OK;
}

/* ---- vision ---- */
/* Size of one spatial dimension after a window. */
static int64_t window(int64_t n, int64_t k, int64_t stride, int64_t pad)
{
    return stride < 1 || n + 2 * pad < k ? 0 : (n + 2 * pad - k) / stride + 1;
}
static weft_status two(const weft_op_use *u, const char *attr, int64_t least,
                       const weft_attr **out)
{
    *out               = weft_use_attr(u, attr);
    const int64_t most = (int64_t)1 << 30;
    for (int i = 0; i < 2; i++)
        if ((*out)->n != 2 || (*out)->l[i] < least || (*out)->l[i] > most)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s must be two numbers of at least %ld",
                             NAME(u), attr, (long)least);
    return WEFT_OK;
}
static weft_status windowed(const weft_op_use *u, const weft_shape *x, int64_t kh,
                            int64_t kw, weft_shape *y)
{
    const weft_attr *stride, *pad;
    WEFT_TRY(two(u, "stride", 1, &stride));
    WEFT_TRY(two(u, "pad", 0, &pad));
    *y      = *x;
    y->d[2] = window(x->d[2], kh, stride->l[0], pad->l[0]);
    y->d[3] = window(x->d[3], kw, stride->l[1], pad->l[1]);
    if (y->d[2] < 1 || y->d[3] < 1)
        return bad(u, 0, "an image at least as large as the window");
    return WEFT_OK;
}
weft_status weft_op__shape_conv2d(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(need_rank(u, 0, 4));
    WEFT_TRY(need_rank(u, 1, 4));
    const int64_t *w = u->in[1].shape.d;
    if (w[1] != u->in[0].shape.d[1]) return bad(u, 1, "as many channels as x");
    o[0].dtype = u->in[0].dtype;
    WEFT_TRY(windowed(u, &u->in[0].shape, w[2], w[3], &o[0].shape));
    o[0].shape.d[1] = w[0];
    return WEFT_OK;
}
/* A gradient's dy must be what the window makes of an image of that shape. */
static weft_status matches(const weft_op_use *u, const weft_shape *x, int64_t channels,
                           int64_t kh, int64_t kw)
{
    weft_shape y;
    WEFT_TRY(windowed(u, x, kh, kw, &y));
    y.d[1] = channels;
    return need(u, 0, &y);
}
weft_status weft_op__shape_conv2d_grad_x(const weft_op_use *u, weft_type *o)
{
    const weft_attr *size;
    WEFT_TRY(need_rank(u, 0, 4));
    WEFT_TRY(need_rank(u, 1, 4));
    WEFT_TRY(two(u, "size", 1, &size));
    const int64_t *w = u->in[1].shape.d;
    o[0]             = u->in[0];
    o[0].shape       = weft_shape_make(
              4, (int64_t[]){u->in[0].shape.d[0], w[1], size->l[0], size->l[1]});
    return matches(u, &o[0].shape, w[0], w[2], w[3]);
}
weft_status weft_op__shape_conv2d_grad_w(const weft_op_use *u, weft_type *o)
{
    const weft_attr *size;
    WEFT_TRY(need_rank(u, 0, 4));
    WEFT_TRY(need_rank(u, 1, 4));
    WEFT_TRY(two(u, "size", 1, &size));
    int64_t out = u->in[0].shape.d[1];
    o[0]        = f32(weft_shape_make(
               4, (int64_t[]){out, u->in[1].shape.d[1], size->l[0], size->l[1]}));
    return matches(u, &u->in[1].shape, out, size->l[0], size->l[1]);
}
weft_status weft_op__shape_avg_pool(const weft_op_use *u, weft_type *o)
{
    const weft_attr *k;
    WEFT_TRY(need_rank(u, 0, 4));
    WEFT_TRY(two(u, "kernel", 1, &k));
    o[0].dtype = u->in[0].dtype;
    return windowed(u, &u->in[0].shape, k->l[0], k->l[1], &o[0].shape);
}
weft_status weft_op__shape_max_pool(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(weft_op__shape_avg_pool(u, o));
    o[1] = i32(o[0].shape);
    return WEFT_OK;
}
static weft_status pool_grad(const weft_op_use *u, weft_type *o)
{
    const weft_attr *size;
    WEFT_TRY(need_rank(u, 0, 4));
    WEFT_TRY(two(u, "size", 1, &size));
    o[0]            = u->in[0];
    o[0].shape.d[2] = size->l[0];
    o[0].shape.d[3] = size->l[1];
    return WEFT_OK;
}
weft_status weft_op__shape_max_pool_grad(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(need(u, 1, &u->in[0].shape));
    return pool_grad(u, o);
}
weft_status weft_op__shape_avg_pool_grad(const weft_op_use *u, weft_type *o)
{
    const weft_attr *k;
    WEFT_TRY(two(u, "kernel", 1, &k));
    WEFT_TRY(pool_grad(u, o));
    return matches(u, &o[0].shape, u->in[0].shape.d[1], k->l[0], k->l[1]);
}
static weft_status channels(const weft_op_use *u, int x, int first, int n)
{
    WEFT_TRY(need_rank(u, x, 4));
    weft_shape c = vec(u->in[x].shape.d[1]);
    for (int i = first; i < first + n; i++) WEFT_TRY(need(u, i, &c));
    return WEFT_OK;
}
weft_status weft_op__shape_batch_norm(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(channels(u, 0, 1, 2));
    o[0] = u->in[0];
    o[1] = o[2] = f32(u->in[1].shape);
    return WEFT_OK;
}
weft_status weft_op__shape_batch_norm_grad(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(need(u, 1, &u->in[0].shape));
    WEFT_TRY(channels(u, 0, 2, 3));
    o[0] = u->in[0];
    o[1] = o[2] = f32(u->in[2].shape);
    return WEFT_OK;
}
weft_status weft_op__shape_batch_norm_infer(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(channels(u, 0, 1, 4));
    o[0] = u->in[0];
    return WEFT_OK;
}
