#include "support/shard_apply.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

weft_status test_spread_make(weft_arena *a, const weft_mesh *m, const weft_layout *l,
                             const weft_shape *s, test_spread *out)
{
    int64_t n = weft_shape_count(s) + 1;
    *out      = (test_spread){m, *l, *s, NULL, NULL};
    out->x    = WEFT_ARENA_ARRAY(a, double *, m->n_rank);
    out->has  = WEFT_ARENA_ARRAY(a, bool *, m->n_rank);
    WEFT_TRY(weft_arena_status(a));
    for (int p = 0; p < m->n_rank; p++) {
        out->x[p]   = WEFT_ARENA_ARRAY(a, double, n);
        out->has[p] = WEFT_ARENA_ARRAY(a, bool, n);
    }
    return weft_arena_status(a);
}

/* Calls fn for each element of a place's regions, in the order of its local tensor. */
typedef void (*each_fn)(test_spread *t, int place, int64_t element, void *arg);

static weft_status each(weft_arena *a, test_spread *t, int place, each_fn fn, void *arg)
{
    weft_interval *v[WEFT_MAX_DIM];
    int            n_v[WEFT_MAX_DIM];
    int64_t        size[WEFT_MAX_DIM], total = 1;
    for (int d = 0; d < t->s.n; d++) {
        WEFT_TRY(
            weft_layout_intervals(&t->l, t->m, d, t->s.d[d], place, a, &v[d], &n_v[d]));
        size[d] = 0;
        for (int i = 0; i < n_v[d]; i++) size[d] += v[d][i].hi - v[d][i].lo;
        total *= size[d];
    }
    for (int64_t e = 0; e < total; e++) {
        int64_t at = e, x[WEFT_MAX_DIM], to = 0;
        for (int d = t->s.n - 1; d >= 0; d--) {
            int64_t k = at % size[d];
            int     i = 0;
            at /= size[d];
            for (; k >= v[d][i].hi - v[d][i].lo; i++) k -= v[d][i].hi - v[d][i].lo;
            x[d] = v[d][i].lo + k;
        }
        for (int d = 0; d < t->s.n; d++) to = to * t->s.d[d] + x[d];
        fn(t, place, to, arg);
    }
    return WEFT_OK;
}

static void set_has(test_spread *t, int place, int64_t e, void *arg)
{
    (void)arg;
    t->has[place][e] = true;
}
weft_status test_spread_mark(weft_arena *a, test_spread *t)
{
    for (int p = 0; p < t->m->n_rank; p++) WEFT_TRY(each(a, t, p, set_has, NULL));
    return WEFT_OK;
}

typedef struct packing {
    double *p;
    int64_t n;
} packing;
static void pack_one(test_spread *t, int place, int64_t e, void *arg)
{
    packing *k   = arg;
    k->p[k->n++] = t->x[place][e];
}
int64_t test_spread_pack(weft_arena *a, const test_spread *t, int place, double *out)
{
    packing     k = {out, 0};
    test_spread c = *t;
    each(a, &c, place, pack_one, &k);
    return k.n;
}
static void unpack_one(test_spread *t, int place, int64_t e, void *arg)
{
    packing *k       = arg;
    t->x[place][e]   = k->p[k->n++];
    t->has[place][e] = true;
}
void test_spread_unpack(weft_arena *a, test_spread *t, int place, const double *in)
{
    packing k = {(double *)(uintptr_t)in, 0};
    each(a, t, place, unpack_one, &k);
}

/* ---- steps ---- */

static double combine(weft_unreduced k, double a, double b)
{
    return k == WEFT_UNREDUCED_MAX ? fmax(a, b) : a + b;
}
static double neutral(weft_unreduced k)
{
    return k == WEFT_UNREDUCED_MAX ? -INFINITY : 0;
}

static bool in_group(const weft_mesh *m, int p, int q, uint32_t axes)
{
    int a[WEFT_MAX_AXIS], b[WEFT_MAX_AXIS];
    weft_mesh_coords(m, p, a);
    weft_mesh_coords(m, q, b);
    for (int i = 0; i < m->n_axis; i++)
        if (!(axes >> i & 1) && a[i] != b[i]) return false;
    return true;
}

typedef struct stepping {
    const weft_reshard_step *s;
    const test_spread       *in;
    weft_status              st;
} stepping;

/* The axis a spread is about: unreduced after, not before. */
static int spread_axis(const weft_reshard_step *s)
{
    for (int a = 0; a < WEFT_MAX_AXIS; a++)
        if (s->after.unreduced[a] && !s->before.unreduced[a]) return a;
    return 0;
}

static void take(test_spread *out, int p, int64_t e, void *arg)
{
    stepping          *k  = arg;
    const test_spread *in = k->in;
    bool               sum =
        weft_step_is(k->s, WEFT_ALL_REDUCE) || weft_step_is(k->s, WEFT_REDUCE_SCATTER);
    double x   = neutral(k->s->reduce);
    bool   any = false;
    if (k->s->kind == WEFT_STEP_SPREAD) {
        int c[WEFT_MAX_AXIS], axis = spread_axis(k->s);
        weft_mesh_coords(in->m, p, c);
        any = true;
        if (in->has[p][e] && (weft_layout_find(&k->s->before, axis) || c[axis] == 0))
            x = in->x[p][e];
    } else if (!sum && in->has[p][e]) {
        x   = in->x[p][e];
        any = true;
    } else {
        for (int q = 0; q < in->m->n_rank; q++) {
            if (!in_group(in->m, p, q, k->s->axes) || !in->has[q][e]) continue;
            if (!sum && any) continue;
            x   = sum ? combine(k->s->reduce, x, in->x[q][e]) : in->x[q][e];
            any = true;
        }
    }
    if (!any)
        k->st = WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: place %d: nobody has element %ld",
                          weft_step_name(k->s), p, (long)e);
    out->x[p][e]   = x;
    out->has[p][e] = true;
}

weft_status test_spread_reshard(weft_arena *a, const weft_reshard *r,
                                const test_spread *in, test_spread *out)
{
    test_spread cur = *in, next;
    for (int i = 0; i < r->n_step; i++) {
        stepping k = {&r->step[i], &cur, WEFT_OK};
        WEFT_TRY(test_spread_make(a, cur.m, &r->step[i].after, &in->s, &next));
        for (int p = 0; p < cur.m->n_rank; p++) WEFT_TRY(each(a, &next, p, take, &k));
        WEFT_TRY(k.st);
        cur = next;
    }
    *out = cur;
    return WEFT_OK;
}
