/* Parts of tensors: counting, boxes, and walks over the elements that a part has of a region. */
#include "tensor/part.h"

#include <string.h>

#include "base/status.h"

static int64_t local_size(const weft_part *p, int d)
{
    int64_t n = 0;
    for (int k = 0; k < p->n[d]; k++) n += p->run[d][k].hi - p->run[d][k].lo;
    return n;
}

int64_t weft_part_count(const weft_part *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->shape.n; d++) n *= local_size(p, d);
    return n;
}

bool weft_part_equal(const weft_part *a, const weft_part *b)
{
    if (a == b) return true;
    if (!weft_shape_equal(&a->shape, &b->shape)) return false;
    for (int d = 0; d < a->shape.n; d++) {
        if (a->n[d] != b->n[d]) return false;
        for (int k = 0; k < a->n[d]; k++)
            if (a->run[d][k].lo != b->run[d][k].lo || a->run[d][k].hi != b->run[d][k].hi)
                return false;
    }
    return true;
}

weft_part *weft_part_copy(const weft_part *p, weft_arena *a)
{
    int n = 0;
    for (int d = 0; d < p->shape.n; d++) n += p->n[d];
    weft_part     *copy = WEFT_ARENA_NEW(a, weft_part);
    weft_interval *run  = WEFT_ARENA_ARRAY(a, weft_interval, n + 1);
    if (!copy || !run) return NULL;
    *copy = *p;
    for (int d = 0; d < p->shape.n; d++) {
        if (p->n[d]) memcpy(run, p->run[d], sizeof *run * (size_t)p->n[d]);
        copy->run[d] = run;
        run += p->n[d];
    }
    return copy;
}

weft_part weft_part_of_region(const weft_region *r, weft_interval *run)
{
    weft_part p = {.shape = r->global};
    for (int d = 0; d < r->global.n; d++) {
        run[d]   = (weft_interval){r->offset[d], r->offset[d] + r->extent[d]};
        p.n[d]   = 1;
        p.run[d] = &run[d];
    }
    return p;
}

/* ---- boxes ---- */

int64_t weft_part_boxes(const weft_part *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->shape.n; d++) n *= p->n[d];
    return n;
}

weft_region weft_part_box(const weft_part *p, int64_t k)
{
    weft_region r = {.global = p->shape};
    for (int d = p->shape.n - 1; d >= 0; d--) {
        const weft_interval *x = &p->run[d][k % p->n[d]];
        r.offset[d]            = x->lo;
        r.extent[d]            = x->hi - x->lo;
        k /= p->n[d];
    }
    return r;
}

/* The first dimension along which a chunk may have more than one position: behind it a chunk has
 * all positions, `unit` elements each; before it one. */
static int find_chunk_dim(const weft_region *r, int64_t most, int64_t *unit)
{
    int d = r->global.n - 1;
    *unit = 1;
    while (d > 0 && r->extent[d] * *unit <= most) *unit *= r->extent[d--];
    return d;
}

bool weft_region_next_chunk(const weft_region *r, int64_t most, int64_t *at,
                            weft_region *out)
{
    int64_t all = weft_region_count(r), unit;
    if (*at >= all) return false;
    *out  = *r;
    int d = find_chunk_dim(r, most, &unit);
    if (d >= 0) { /* not a scalar */
        int64_t at_unit = *at / unit, begin = at_unit % r->extent[d];
        int64_t fit = most / unit > 1 ? most / unit : 1, left = r->extent[d] - begin;
        out->offset[d] += begin;
        out->extent[d] = fit < left ? fit : left;
        at_unit /= r->extent[d];
        for (int k = d - 1; k >= 0; k--) {
            out->offset[k] += at_unit % r->extent[k];
            out->extent[k] = 1;
            at_unit /= r->extent[k];
        }
    }
    *at += weft_region_count(out);
    return true;
}

/* The box takes as many positions of one dimension as fit, all of those after it, and one of
 * those before it: the outermost dimension at whose beginning `at` is, and that fits. */
bool weft_region_next_box(const weft_region *r, int64_t *at, int64_t end,
                          weft_region *out)
{
    int64_t left = end - *at, unit = 1, index = *at;
    int     d = r->global.n - 1;
    if (left <= 0) return false;
    *out = *r;
    for (; d > 0 && index % r->extent[d] == 0 && unit * r->extent[d] <= left; d--) {
        index /= r->extent[d];
        unit *= r->extent[d];
    }
    if (d >= 0) {
        int64_t begin = index % r->extent[d], fit = left / unit;
        out->offset[d] += begin;
        out->extent[d] = fit < r->extent[d] - begin ? fit : r->extent[d] - begin;
        index /= r->extent[d];
    }
    for (int k = d - 1; k >= 0; k--) {
        out->offset[k] += index % r->extent[k];
        out->extent[k] = 1;
        index /= r->extent[k];
    }
    *at += weft_region_count(out);
    return true;
}

/* ---- walks ---- */

/* Where position x of dimension d is in the part's memory; -1: not in it. */
static int64_t local_position(const weft_part *p, int d, int64_t x)
{
    int64_t at = 0;
    for (int k = 0; k < p->n[d]; k++) {
        if (x >= p->run[d][k].lo && x < p->run[d][k].hi) return at + x - p->run[d][k].lo;
        at += p->run[d][k].hi - p->run[d][k].lo;
    }
    return -1;
}

bool weft_part_find(const weft_part *p, const weft_region *r, weft_part_place *out)
{
    int64_t stride = 1;
    *out           = (weft_part_place){0};
    for (int d = p->shape.n - 1; d >= 0; d--) {
        int64_t first = local_position(p, d, r->offset[d]);
        int64_t last  = local_position(p, d, r->offset[d] + r->extent[d] - 1);
        bool    one   = r->extent[d] == 1;
        if (first < 0 || last - first != r->extent[d] - 1) return false;
        out->at += first * stride;
        out->stride[d] = one ? 1 : stride;
        stride *= local_size(p, d);
    }
    return true;
}

/* Dimensions behind `row` are complete in region and part: unit elements a position. */
typedef struct row_shape {
    int     row;
    int64_t unit, extent; /* extent: elements of a row of the region */
} row_shape;

static row_shape find_rows(const weft_part *p, const weft_region *r)
{
    row_shape s = {.row = r->global.n - 1, .unit = 1};
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
static int64_t local_row(const weft_part *p, const weft_region *r, int n_dim, int64_t k)
{
    int64_t at = 0, stride = 1;
    for (int d = n_dim - 1; d >= 0; d--) {
        int64_t x = local_position(p, d, r->offset[d] + k % r->extent[d]);
        if (x < 0) return -1;
        at += x * stride;
        stride *= local_size(p, d);
        k /= r->extent[d];
    }
    return at;
}

/* Elements [lo, hi) of a row of the region; base: the part's row begins there; index: the
 * region's. */
static weft_status walk_row(const weft_part *p, const weft_region *r, const row_shape *s,
                            int64_t base, int64_t index, int64_t lo, int64_t hi,
                            weft_part_fn fn, void *arg)
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

weft_status weft_part_walk(const weft_part *p, const weft_region *r, int64_t first,
                           int64_t n, weft_part_fn fn, void *arg)
{
    row_shape s = find_rows(p, r);
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
