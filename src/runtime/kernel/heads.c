/* Attention's sizes, mask and rows. */
#include "kernel/heads.h"

#include <math.h>

weft_kernel__heads weft_kernel__heads_make(const weft_kernel_call *c, int first, int bias)
{
    const weft_view   *q = &c->in[first], *k = q + 1, *v = q + 2;
    weft_kernel__heads a     = {.b = q->shape.d[0],
                                .s = q->shape.d[1],
                                .h = q->shape.d[2],
                                .e = q->shape.d[3],
                                .t = k->shape.d[1],
                                .g = k->shape.d[2],
                                .f = v->shape.d[3],
                                .q = q,
                                .k = k,
                                .v = v};
    double             scale = weft_kernel__attr(c, "scale")->f;
    if (c->n_own_in > bias) a.bias = &c->in[bias];
    a.ep     = weft_kernel__pad(a.e, WEFT_TILE_LANES);
    a.fp     = weft_kernel__pad(a.f, WEFT_TILE_LANES);
    a.sp     = weft_kernel__pad(a.s, WEFT_TILE);
    a.tp     = weft_kernel__pad(a.t, WEFT_TILE);
    a.scale  = (float)(scale != 0.0 ? scale : 1.0 / sqrt((double)a.e));
    a.causal = weft_kernel__attr(c, "causal")->i != 0;
    a.window = weft_kernel__attr(c, "window")->i;
    a.ahead =
        weft_kernel__attr(c, "q_first")->i < 0
            ? a.t - a.s
            : weft_kernel__attr(c, "q_first")->i - weft_kernel__attr(c, "k_first")->i;
    return a;
}

void weft_kernel__heads_keys(const weft_kernel__heads *a, int64_t i0, int64_t i1,
                             int64_t *lo, int64_t *hi)
{
    *lo = 0;
    *hi = a->t;
    if (a->causal && i1 + a->ahead < *hi) *hi = i1 + a->ahead;
    if (a->window > 0 && i0 + a->ahead - a->window + 1 > *lo)
        *lo = i0 + a->ahead - a->window + 1;
    if (*hi <= *lo) *lo = *hi = 0;
}

int64_t weft_kernel__heads_width(const weft_kernel__heads *a, int64_t i1, int64_t j0)
{
    int64_t n = a->t - j0;
    if (a->causal && i1 + a->ahead - j0 < n) n = i1 + a->ahead - j0;
    if (n < 0) n = 0;
    if (n > WEFT_TILE) n = WEFT_TILE;
    return weft_kernel__pad(n, WEFT_TILE_LANES);
}

static void add_bias(const weft_kernel__heads *a, int64_t h, int64_t i, int64_t j0,
                     int64_t n, float *s)
{
    const weft_view *v = a->bias;
    float            tmp[WEFT_TILE];
    int64_t          m  = a->t - j0 < n ? a->t - j0 : n;
    int64_t          at = h * v->stride[0] + i * v->stride[1] + j0 * v->stride[2];
    const float     *p  = weft_kernel__read(v->p, v->dtype, at, v->stride[2], m, tmp);
    for (int64_t j = 0; j < m; j++) s[j] += p[j];
}

void weft_kernel__heads_mask(const weft_kernel__heads *a, int64_t h, int64_t i0,
                             int64_t m, int64_t j0, int64_t n, float *s, int64_t lds)
{
    int64_t first, last, none;
    /* seen by all and without bias: as it is */
    weft_kernel__heads_keys(a, i0, i0 + 1, &none, &first);
    weft_kernel__heads_keys(a, i0 + m - 1, i0 + m, &last, &none);
    if (!a->bias && first >= j0 + n && last <= j0) return;
    for (int64_t r = 0; r < m; r++) {
        float  *row = s + r * lds;
        int64_t lo, hi, j = 0;
        weft_kernel__heads_keys(a, i0 + r, i0 + r + 1, &lo, &hi);
        if (a->bias) add_bias(a, h, i0 + r, j0, n, row);
        for (; j < lo - j0 && j < n; j++) row[j] = -INFINITY;
        for (j = hi > j0 ? hi - j0 : 0; j < n; j++) row[j] = -INFINITY;
    }
}

void weft_kernel__heads_rows(const weft_view *v, int64_t b, int64_t h, int64_t r,
                             int64_t n, float scale, float *to, int64_t ld)
{
    const weft_kernel__rows *f = weft_kernel__rows_now();
    int64_t                  d = v->shape.d[3];

    if (v->dtype == WEFT_DTYPE_F32 && v->stride[3] == 1 && d == ld) {
        int64_t at = b * v->stride[0] + r * v->stride[1] + h * v->stride[2];
        weft_kernel__tile_now()->move_rows(to, ld, (const float *)v->p + at, v->stride[1],
                                           n, d, scale);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t      at = b * v->stride[0] + (r + i) * v->stride[1] + h * v->stride[2];
        float       *y  = to + i * ld;
        const float *x  = weft_kernel__read(v->p, v->dtype, at, v->stride[3], d, y);
        f->map[MAP_SCALE](y, x, x, scale, d);
        for (int64_t j = d; j < ld; j++) y[j] = 0.0f;
    }
}

void weft_kernel__heads_turned(const weft_view *v, int64_t b, int64_t h, int64_t r,
                               int64_t n, float *to)
{
    enum {
        L = WEFT_TILE_LANES
    };
    const weft_kernel__tile *f = weft_kernel__tile_now();
    int64_t                  d = v->shape.d[3], k = 0;
    int64_t                  at = b * v->stride[0] + r * v->stride[1] + h * v->stride[2];
    float                    tmp[WEFT_TILE * L];

    if (v->dtype == WEFT_DTYPE_F32 && v->stride[3] == 1 && n == WEFT_TILE) {
        k = d / L * L;
        f->turn(to, (const float *)v->p + at, v->stride[1], n, k);
    }
    for (; k < d; k += L) {
        int64_t m = d - k < L ? d - k : L, st = v->stride[3];
        memset(tmp, 0, sizeof tmp);
        for (int64_t i = 0; i < n; i++) {
            int64_t      from = at + i * v->stride[1] + k * st;
            const float *x = weft_kernel__read(v->p, v->dtype, from, st, m, tmp + i * L);
            if (x != tmp + i * L) memcpy(tmp + i * L, x, sizeof(float) * (size_t)m);
        }
        f->turn(to + k * WEFT_TILE, tmp, L, WEFT_TILE, L);
    }
}

void weft_kernel__heads_put(const weft_view *v, int64_t b, int64_t h, int64_t r,
                            int64_t n, float scale, float *from, int64_t ld, int add)
{
    const weft_kernel__rows *f = weft_kernel__rows_now();
    int64_t                  d = v->shape.d[3];
    if (!v->p) return;
    if (v->dtype == WEFT_DTYPE_F32 && v->stride[3] == 1 && !add) {
        int64_t at = b * v->stride[0] + r * v->stride[1] + h * v->stride[2];
        weft_kernel__tile_now()->move_rows((float *)v->p + at, v->stride[1], from, ld, n,
                                           d, scale);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = b * v->stride[0] + (r + i) * v->stride[1] + h * v->stride[2];
        float  *y  = from + i * ld;
        if (scale != 1.0f) f->map[MAP_SCALE](y, y, y, scale, d);
        weft_kernel__write(v->p, v->dtype, at, v->stride[3], d, y, add);
    }
}
