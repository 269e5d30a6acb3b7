/* Dimensions of strided views, joined where they can be; what a kernel of vectors needs. */
#include "cuda_priv.h"

void weft_cuda_nd_init(weft_cuda_nd *nd, const weft_shape *s)
{
    *nd = (weft_cuda_nd){.n = s->n, .count = weft_shape_count(s)};
    for (int k = 0; k < s->n; k++) nd->d[k] = s->d[k];
}

void weft_cuda_nd_add(weft_cuda_nd *nd, const weft_view *v)
{
    int64_t *step = nd->step[nd->n_op++];
    for (int k = 0; k < nd->n; k++) {
        int from = k - (nd->n - v->shape.n);
        step[k]  = from < 0 || v->shape.d[from] == 1 ? 0 : v->stride[from];
    }
}

void weft_cuda_nd_dim(weft_cuda_nd *nd, int64_t size, const int64_t *step)
{
    nd->d[nd->n] = size;
    for (int o = 0; o < nd->n_op; o++) nd->step[o][nd->n] = step[o];
    nd->n++;
    nd->count *= size;
}

static bool joins(const weft_cuda_nd *nd, int outer, int inner)
{
    for (int o = 0; o < nd->n_op; o++)
        if (nd->step[o][outer] != nd->step[o][inner] * nd->d[inner]) return false;
    return true;
}

static void move_dim(weft_cuda_nd *nd, int to, int from)
{
    nd->d[to] = nd->d[from];
    for (int o = 0; o < nd->n_op; o++) nd->step[o][to] = nd->step[o][from];
}

void weft_cuda_nd_merge(weft_cuda_nd *nd)
{
    int n = 0;
    for (int k = 0; k < nd->n; k++) {
        if (nd->d[k] == 1) continue;
        if (n > 0 && joins(nd, n - 1, k)) {
            int64_t outer = nd->d[n - 1];
            move_dim(nd, n - 1, k);
            nd->d[n - 1] *= outer;
        } else {
            move_dim(nd, n++, k);
        }
    }
    if (n == 0) {
        nd->d[0] = 1;
        for (int o = 0; o < nd->n_op; o++) nd->step[o][0] = 1;
        n = 1;
    }
    nd->n = n;
}

bool weft_cuda_nd_vectors(const weft_cuda_nd *nd, int op, const void *p, int64_t width,
                          bool spread)
{
    int last = nd->n - 1;
    if ((uintptr_t)p % 16 || nd->d[last] % width) return false;
    if (nd->step[op][last] != 1 && !(spread && nd->step[op][last] == 0)) return false;
    for (int k = 0; k < last; k++)
        if (nd->step[op][k] % width) return false;
    return true;
}

bool weft_cuda_is_float(weft_dtype t)
{
    return t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_BF16;
}

weft_view weft_cuda_part(const weft_view *v, int axis, int64_t start, int64_t size)
{
    weft_view part     = *v;
    part.p             = weft_cuda_at(v, start * v->stride[axis]);
    part.shape.d[axis] = size;
    return part;
}

void *weft_cuda_at(const weft_view *v, int64_t element)
{
    return v->p ? (char *)v->p + element * weft_dtype_bytes(v->dtype) : NULL;
}
