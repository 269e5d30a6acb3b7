/* Walks over the elements that a rank has of a region of a value. */
#include "session/parts.h"

static int64_t local_size(const weft_compiled_part *p, int d)
{
    int64_t n = 0;
    for (int k = 0; k < p->n[d]; k++) n += p->run[d][k].hi - p->run[d][k].lo;
    return n;
}

int64_t weft_part_count(const weft_compiled_part *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->type.shape.n; d++) n *= local_size(p, d);
    return n;
}

/* Where position x of dimension d lies in the part; -1: not in it. */
static int64_t local_at(const weft_compiled_part *p, int d, int64_t x)
{
    int64_t at = 0;
    for (int k = 0; k < p->n[d]; k++) {
        if (x >= p->run[d][k].lo && x < p->run[d][k].hi) return at + x - p->run[d][k].lo;
        at += p->run[d][k].hi - p->run[d][k].lo;
    }
    return -1;
}

/* Dimensions behind `row` are whole in region and part: unit elements a position.  In front of it
 * lie rows. */
typedef struct shape {
    int     row;
    int64_t unit, extent; /* extent: elements of a row of the region */
} shape;

static shape shape_of(const weft_compiled_part *p, const weft_region *r)
{
    shape s = {.row = r->global.n - 1, .unit = 1};
    while (s.row > 0) {
        int     d    = s.row;
        int64_t size = r->global.d[d];
        if (r->extent[d] != size || p->n[d] != 1 || p->run[d][0].lo != 0 ||
            p->run[d][0].hi != size)
            break;
        s.unit *= size;
        s.row--;
    }
    s.extent = s.row < 0 ? 1 : r->extent[s.row] * s.unit;
    return s;
}

/* The part's row number of the region's row k; -1: not in it. */
static int64_t local_row(const weft_compiled_part *p, const weft_region *r, int n_dim,
                         int64_t k)
{
    int64_t at = 0, stride = 1;
    for (int d = n_dim - 1; d >= 0; d--) {
        int64_t x = local_at(p, d, r->offset[d] + k % r->extent[d]);
        if (x < 0) return -1;
        at += x * stride;
        stride *= local_size(p, d);
        k /= r->extent[d];
    }
    return at;
}

/* Elements [lo, hi) of a row of the region; base: the part's row begins there; index: the
 * region's. */
static weft_status walk_row(const weft_compiled_part *p, const weft_region *r,
                            const shape *s, int64_t base, int64_t index, int64_t lo,
                            int64_t hi, weft_part_fn fn, void *arg)
{
    int64_t skip = r->offset[s->row] * s->unit, at = base;
    for (int k = 0; k < p->n[s->row]; k++) {
        const weft_interval *x = &p->run[s->row][k];
        int64_t              a = x->lo * s->unit - skip, b = x->hi * s->unit - skip;
        int64_t              from = lo > a ? lo : a, to = hi < b ? hi : b;
        if (from < to) WEFT_TRY(fn(arg, at + from - a, index + from, to - from));
        at += b - a;
    }
    return WEFT_OK;
}

weft_status weft_part_walk(const weft_compiled_part *p, const weft_region *r,
                           int64_t first, int64_t n, weft_part_fn fn, void *arg)
{
    shape s = shape_of(p, r);
    if (s.row < 0) return n > 0 ? fn(arg, 0, 0, 1) : WEFT_OK; /* a scalar */
    int64_t own = local_size(p, s.row) * s.unit;
    if (own == 0) return WEFT_OK;
    for (int64_t at = first; at < first + n;) {
        int64_t row = at / s.extent, lo = at % s.extent;
        int64_t hi = s.extent - lo < first + n - at ? s.extent : lo + first + n - at;
        int64_t in = local_row(p, r, s.row, row);
        if (in >= 0)
            WEFT_TRY(walk_row(p, r, &s, in * own, row * s.extent, lo, hi, fn, arg));
        at += hi - lo;
    }
    return WEFT_OK;
}
