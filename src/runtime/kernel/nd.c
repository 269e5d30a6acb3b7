/* Dimensions of strided views, joined where they can be. */
#include "kernel/nd.h"

void weft_kernel__nd_init(weft_kernel__nd *nd, const weft_shape *s)
{
    nd->n_op = 0;
    nd->n    = s->n;
    for (int d = 0; d < s->n; d++) nd->size[d] = s->d[d];
}

int weft_kernel__nd_add(weft_kernel__nd *nd, const weft_view *v)
{
    int64_t *step = nd->step[nd->n_op];
    for (int d = 0; d < nd->n; d++) {
        int from = d - (nd->n - v->shape.n);
        step[d]  = from < 0 || v->shape.d[from] == 1 ? 0 : v->stride[from];
    }
    return nd->n_op++;
}

void weft_kernel__nd_dim(weft_kernel__nd *nd, int64_t size, const int64_t *step)
{
    nd->size[nd->n] = size;
    for (int o = 0; o < nd->n_op; o++) nd->step[o][nd->n] = step[o];
    nd->n++;
}

static int joins(const weft_kernel__nd *nd, int outer, int inner)
{
    for (int o = 0; o < nd->n_op; o++)
        if (nd->step[o][outer] != nd->step[o][inner] * nd->size[inner]) return 0;
    return 1;
}

static void move(weft_kernel__nd *nd, int to, int from)
{
    nd->size[to] = nd->size[from];
    for (int o = 0; o < nd->n_op; o++) nd->step[o][to] = nd->step[o][from];
}

void weft_kernel__nd_merge(weft_kernel__nd *nd)
{
    int n = 0;
    for (int d = 0; d < nd->n; d++) {
        if (nd->size[d] == 1) continue;
        if (n > 0 && joins(nd, n - 1, d)) {
            int64_t outer = nd->size[n - 1];
            move(nd, n - 1, d);
            nd->size[n - 1] *= outer;
        } else {
            move(nd, n++, d);
        }
    }
    if (n == 0) {
        nd->size[0] = 1;
        for (int o = 0; o < nd->n_op; o++) nd->step[o][0] = 1;
        n = 1;
    }
    nd->n = n;
}

void weft_kernel__nd_at(const weft_kernel__nd *nd, int n_outer, int64_t i, int64_t *at)
{
    for (int o = 0; o < nd->n_op; o++) at[o] = 0;
    for (int d = n_outer - 1; d >= 0; d--) {
        int64_t k = i % nd->size[d];
        i /= nd->size[d];
        for (int o = 0; o < nd->n_op; o++) at[o] += k * nd->step[o][d];
    }
}

int64_t weft_kernel__nd_count(const weft_kernel__nd *nd, int n_outer)
{
    int64_t n = 1;
    for (int d = 0; d < n_outer; d++) n *= nd->size[d];
    return n;
}
