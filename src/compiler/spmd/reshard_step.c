/* Steps of a reshard as nodes of a local graph.  Collectives work on dimension 0; views bring
 * other dimensions there, slices and concats put runs in order where a cut is not one run. */
#include <string.h>

#include "base/status.h"
#include "spmd/spmd_priv.h"

typedef weft_spmd__rewriter rewriter;

/* A run of positions, and where it begins in a local tensor. */
typedef struct run {
    int64_t lo, hi, at;
} run;

static const weft_shape *shape_of(const rewriter *rw, weft_vid x)
{
    return &rw->b.g->value[x].type.shape;
}

/* ---- views ---- */

static weft_vid transpose(rewriter *rw, weft_vid x, const int *perm)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  out = -1;
    int       n   = shape_of(rw, x)->n;
    bool      any = false;
    for (int d = 0; d < n; d++) any = any || perm[d] != d;
    if (!any || rw->b.st != WEFT_OK) return x;
    weft_op_attr_defaults(WEFT_OP_TRANSPOSE, attr);
    weft_attr *p = &attr[weft_op_attr_index(WEFT_OP_TRANSPOSE, "perm")];
    p->n         = n;
    for (int d = 0; d < n; d++) p->l[d] = perm[d];
    rw->b.st =
        weft_graph_add_node(rw->b.g, WEFT_OP_TRANSPOSE, attr, 1, &x, NULL, 1, &out);
    return out;
}

/* Dimension `from` moved to place `to`, the others in order. */
static weft_vid move_dim(rewriter *rw, weft_vid x, int from, int to)
{
    int n = shape_of(rw, x)->n, perm[WEFT_MAX_DIM], other = 0;
    for (int d = 0; d < n; d++) {
        if (other == from) other++;
        perm[d] = d == to ? from : other++;
    }
    return transpose(rw, x, perm);
}

static weft_vid slice(rewriter *rw, weft_vid x, int dim, int64_t lo, int64_t hi)
{
    if (lo == 0 && hi == shape_of(rw, x)->d[dim]) return x;
    return weft_buildf(&rw->b, WEFT_OP_SLICE, NULL, 1, &x, "axis=%d start=%lld stop=%lld",
                       dim, (long long)lo, (long long)hi);
}

/* Runs of dimension dim, one behind the other as listed. */
static weft_status pick(rewriter *rw, weft_vid x, int dim, const run *r, int n,
                        weft_vid *out)
{
    weft_vid *part = WEFT_ARENA_ARRAY(rw->tmp, weft_vid, n + 1);
    int64_t   lo = 0, hi = 0;
    int       n_part = 0;
    WEFT_TRY(weft_arena_status(rw->tmp));
    for (int i = 0; i < n; i++) {
        int64_t size = r[i].hi - r[i].lo;
        if (i && r[i].at == hi) { /* goes on where the last one ended */
            hi += size;
            continue;
        }
        if (i) part[n_part++] = slice(rw, x, dim, lo, hi);
        lo = r[i].at;
        hi = lo + size;
    }
    part[n_part++] = slice(rw, x, dim, lo, hi);
    if (n_part > 1)
        *out = weft_buildf(&rw->b, WEFT_OP_CONCAT, NULL, n_part, part, "axis=%d", dim);
    else
        *out = part[0];
    return rw->b.st;
}

/* ---- positions ---- */

static weft_status runs_of(rewriter *rw, const weft_layout *l, int dim, int64_t size,
                           int place, run **out, int *n)
{
    weft_interval *x;
    int64_t        at = 0;
    WEFT_TRY(weft_layout_intervals(l, rw->m, dim, size, place, rw->tmp, &x, n));
    *out = WEFT_ARENA_ARRAY(rw->tmp, run, *n + 1);
    WEFT_TRY(weft_arena_status(rw->tmp));
    for (int i = 0; i < *n; i++) {
        (*out)[i] = (run){x[i].lo, x[i].hi, at};
        at += x[i].hi - x[i].lo;
    }
    return WEFT_OK;
}

/* Runs `want` as they lie in a tensor that has runs `have`: cut where those end. */
static weft_status locate(rewriter *rw, const run *want, int n_want, const run *have,
                          int n_have, run **out, int *n)
{
    run *r = WEFT_ARENA_ARRAY(rw->tmp, run, n_want + n_have + 1);
    *n     = 0;
    WEFT_TRY(weft_arena_status(rw->tmp));
    for (int i = 0; i < n_want; i++)
        for (int j = 0; j < n_have; j++) {
            int64_t lo = want[i].lo > have[j].lo ? want[i].lo : have[j].lo;
            int64_t hi = want[i].hi < have[j].hi ? want[i].hi : have[j].hi;
            if (lo < hi) r[(*n)++] = (run){lo, hi, have[j].at + lo - have[j].lo};
        }
    *out = r;
    return WEFT_OK;
}

/* How one dimension is dealt to the ranks along an axis. */
typedef struct deal {
    int     dim, axis, parts, group;
    int64_t total, unit; /* positions of all, as weft_part_start() deals them */
    int     n;           /* the runs of part 0, then those of part 1, ... */
    run    *r;
} deal;

/* Positions of a unit that other cuts, repeated within it, leave here. */
int64_t weft_spmd__split_unit(const rewriter *rw, const weft_layout *l,
                              const weft_split *s)
{
    weft_layout inner = *l;
    weft_shape  one   = {.n = s->dim + 1};
    for (int d = 0; d < one.n; d++) one.d[d] = s->unit;
    inner.n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->split[i].dim == s->dim && l->split[i].period &&
            s->unit % l->split[i].period == 0)
            inner.split[inner.n++] = l->split[i];
    return weft_layout_local(&inner, rw->m, &one, rw->o->mesh_rank).d[s->dim];
}

/* l: the layout that the axis cuts. */
static weft_status make_deal(rewriter *rw, const weft_layout *l, int axis,
                             const weft_type *t, deal *out)
{
    const weft_split *s    = weft_layout_find(l, axis);
    int64_t           size = t->shape.d[s->dim], sum[2] = {0, 0};
    run              *r[1024];
    int               n[1024];
    *out = (deal){.dim = s->dim, .axis = axis, .parts = rw->m->axis[axis].size};
    if (out->parts > (int)WEFT_COUNT(n))
        return WEFT_FAIL(WEFT_ERR_ARG, "axis %s of %d ranks: at most %d",
                         rw->m->axis[axis].name, out->parts, (int)WEFT_COUNT(n));
    for (int i = 0; i < out->parts; i++) {
        int place = weft_spmd__neighbour(rw, axis, i);
        WEFT_TRY(runs_of(rw, l, s->dim, size, place, &r[i], &n[i]));
        out->n += n[i];
        for (int j = 0; j < n[i]; j++) out->total += r[i][j].hi - r[i][j].lo;
    }
    out->r = WEFT_ARENA_ARRAY(rw->tmp, run, out->n + 1);
    WEFT_TRY(weft_arena_status(rw->tmp));
    /* a cut that is repeated in each period deals out as many units at once */
    out->unit =
        s->period ? s->unit * (out->total / s->period) : weft_spmd__split_unit(rw, l, s);
    if (out->unit < 1) out->unit = 1;
    out->n = 0;
    for (int i = 0; i < out->parts; i++) {
        for (int j = 0; j < n[i]; j++) {
            out->r[out->n++] = (run){r[i][j].lo, r[i][j].hi, sum[0]};
            sum[0] += r[i][j].hi - r[i][j].lo;
        }
        if (sum[0] != weft_part_start(out->total, out->unit, out->parts, i + 1)) sum[1]++;
    }
    if (sum[1])
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%lld positions cannot be dealt to the %d ranks of axis %s that "
                         "way: choose a size that divides",
                         (long long)out->total, out->parts, rw->m->axis[axis].name);
    return weft_spmd__group_of_axes(rw, 1u << axis, &out->group);
}

static int by_position(const void *a, const void *b)
{
    const run *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void sort_runs(run *r, int n)
{
    for (int i = 1; i < n; i++) /* few, and mostly in order */
        for (int j = i; j > 0 && by_position(&r[j - 1], &r[j]) > 0; j--) {
            run x    = r[j];
            r[j]     = r[j - 1];
            r[j - 1] = x;
        }
}

/* ---- steps ---- */

static weft_status do_slice(rewriter *rw, const weft_reshard_step *s, const weft_type *t,
                            weft_vid x, weft_vid *out)
{
    for (int d = 0; d < t->shape.n; d++) {
        run *have, *want, *r;
        int  n_have, n_want, n;
        WEFT_TRY(
            runs_of(rw, &s->before, d, t->shape.d[d], rw->o->mesh_rank, &have, &n_have));
        WEFT_TRY(
            runs_of(rw, &s->after, d, t->shape.d[d], rw->o->mesh_rank, &want, &n_want));
        WEFT_TRY(locate(rw, want, n_want, have, n_have, &r, &n));
        WEFT_TRY(pick(rw, x, d, r, n, &x));
    }
    *out = x;
    return rw->b.st;
}

static int only_axis(uint32_t axes)
{
    int a = 0;
    while (!(axes >> a & 1)) a++;
    return a;
}

static weft_status do_gather(rewriter *rw, const weft_reshard_step *s, const weft_type *t,
                             weft_vid x, weft_vid *out)
{
    deal d;
    WEFT_TRY(make_deal(rw, &s->before, only_axis(s->axes), t, &d));
    x = move_dim(rw, x, d.dim, 0);
    x = weft_buildf(&rw->b, WEFT_OP_ALL_GATHER, NULL, 1, &x,
                    "group=%d parts=%d part=%d size=%lld unit=%lld", d.group, d.parts,
                    rw->coord[d.axis], (long long)d.total, (long long)d.unit);
    WEFT_TRY(rw->b.st);
    sort_runs(d.r, d.n);
    WEFT_TRY(pick(rw, x, 0, d.r, d.n, &x));
    *out = move_dim(rw, x, 0, d.dim);
    return rw->b.st;
}

static weft_status do_scatter(rewriter *rw, const weft_reshard_step *s,
                              const weft_type *t, weft_vid x, weft_vid *out)
{
    deal d;
    run *have, *r;
    int  n_have, n;
    WEFT_TRY(make_deal(rw, &s->after, only_axis(s->axes), t, &d));
    WEFT_TRY(runs_of(rw, &s->before, d.dim, t->shape.d[d.dim], rw->o->mesh_rank, &have,
                     &n_have));
    WEFT_TRY(locate(rw, d.r, d.n, have, n_have, &r, &n));
    x = move_dim(rw, x, d.dim, 0);
    WEFT_TRY(pick(rw, x, 0, r, n, &x));
    x    = weft_buildf(&rw->b, WEFT_OP_REDUCE_SCATTER, NULL, 1, &x,
                       "group=%d parts=%d part=%d unit=%lld", d.group, d.parts,
                       rw->coord[d.axis], (long long)d.unit);
    *out = move_dim(rw, x, 0, d.dim);
    return rw->b.st;
}

static weft_status do_reduce(rewriter *rw, const weft_reshard_step *s, weft_vid x,
                             weft_vid *out)
{
    /* several terms a rank: the lanes' sum by itself, straight from where they are */
    uint32_t lanes = rw->o->several_terms ? s->axes & rw->s->lanes : 0, axes[2] = {lanes};
    axes[!!lanes] = s->axes & ~lanes;
    *out          = x;
    for (int i = 0; i < 2; i++) {
        int group;
        if (!axes[i]) continue;
        WEFT_TRY(weft_spmd__group_of_axes(rw, axes[i], &group));
        *out = weft_buildf(&rw->b, WEFT_OP_ALL_REDUCE, NULL, 1, out, "group=%d", group);
    }
    return rw->b.st;
}

/* A whole that becomes unreduced: the own part, zeros elsewhere; of what nobody cuts the first
 * has all. */
static weft_status do_spread(rewriter *rw, const weft_reshard_step *s, const weft_type *t,
                             weft_vid x, weft_vid *out)
{
    int axis = 0, n_have, n_room, n;
    while (s->before.unreduced[axis] || !s->after.unreduced[axis]) axis++;
    const weft_split *cut = weft_layout_find(&s->before, axis);
    run              *have, *room, *r;
    int64_t           at = 0, whole = 0;
    *out = x;
    if (!cut) {
        if (rw->coord[axis])
            *out = weft_buildf(&rw->b, WEFT_OP_SCALE, NULL, 1, &x, "alpha=0");
        return rw->b.st;
    }
    WEFT_TRY(runs_of(rw, &s->before, cut->dim, t->shape.d[cut->dim], rw->o->mesh_rank,
                     &have, &n_have));
    WEFT_TRY(runs_of(rw, &s->after, cut->dim, t->shape.d[cut->dim], rw->o->mesh_rank,
                     &room, &n_room));
    WEFT_TRY(locate(rw, have, n_have, room, n_room, &r, &n));
    for (int i = 0; i < n_room; i++) whole += room[i].hi - room[i].lo;
    for (int i = 0; i < n; i++) {
        int64_t  size = r[i].hi - r[i].lo;
        weft_vid own  = slice(rw, x, cut->dim, at, at + size);
        own           = weft_buildf(&rw->b, WEFT_OP_SLICE_GRAD, NULL, 1, &own,
                                    "axis=%d start=%lld size=%lld", cut->dim, (long long)r[i].at,
                                    (long long)whole);
        *out = i ? weft_build(&rw->b, WEFT_OP_ADD, NULL, NULL, 2, *out, own) : own;
        at += size;
    }
    return rw->b.st;
}

/* One run each, all of one size, in order. */
static bool is_even(const deal *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->r[i].hi - d->r[i].lo != d->total / d->parts ||
            (i && d->r[i].lo < d->r[i - 1].hi))
            return false;
    return d->n == d->parts && d->total % d->parts == 0;
}

/* From a cut of dimension a to one of b: shares of b go out, shares of a come in. */
static weft_status exchange(rewriter *rw, const deal *a, const deal *b, weft_vid x,
                            weft_vid *out)
{
    weft_shape y = *shape_of(rw, x);
    int        n = y.n;
    memmove(&y.d[b->dim + 1], &y.d[b->dim], sizeof *y.d * (size_t)(n - b->dim));
    y.n             = n + 1;
    y.d[b->dim]     = b->parts;
    y.d[b->dim + 1] = b->total / b->parts;
    x               = weft_build_reshape(&rw->b, x, &y);
    x               = move_dim(rw, x, b->dim, 0);
    x = weft_buildf(&rw->b, WEFT_OP_ALL_TO_ALL, NULL, 1, &x, "group=%d parts=%d",
                    a->group, a->parts);
    WEFT_TRY(rw->b.st);
    x           = move_dim(rw, x, 0, a->dim);
    y           = *shape_of(rw, x);
    y.d[a->dim] = a->total;
    memmove(&y.d[a->dim + 1], &y.d[a->dim + 2], sizeof *y.d * (size_t)(n - a->dim - 1));
    y.n  = n;
    *out = weft_build_reshape(&rw->b, x, &y);
    return rw->b.st;
}

static weft_status do_move(rewriter *rw, const weft_reshard_step *s, const weft_type *t,
                           weft_vid x, weft_vid *out)
{
    deal              a, b;
    int               axis   = only_axis(s->axes);
    weft_reshard_step gather = *s, cut = *s;
    WEFT_TRY(make_deal(rw, &s->before, axis, t, &a));
    if (make_deal(rw, &s->after, axis, t, &b) == WEFT_OK && is_even(&a) && is_even(&b) &&
        a.dim != b.dim && t->shape.n < WEFT_MAX_DIM)
        return exchange(rw, &a, &b, x, out);
    /* uneven: gathered, then cut */
    weft_layout whole = s->before;
    whole.n           = 0;
    for (int i = 0; i < s->before.n; i++)
        if (s->before.split[i].axis != axis) whole.split[whole.n++] = s->before.split[i];
    gather.after = cut.before = whole;
    WEFT_TRY(do_gather(rw, &gather, t, x, &x));
    return do_slice(rw, &cut, t, x, out);
}

static weft_status refuse_step(const weft_reshard_step *s)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "a reshard by %s %s cannot run yet", weft_step_name(s),
                     s->reduce == WEFT_UNREDUCED_SUM ? "of sums" : "of maxima or pairs");
}

static weft_status do_collective(rewriter *rw, const weft_reshard_step *s,
                                 const weft_type *t, weft_vid x, weft_vid *out)
{
    int n = 1;
    for (int a = 0; a < rw->m->n_axis; a++)
        if (s->axes >> a & 1) n *= rw->m->axis[a].size;
    bool reduces = s->coll == WEFT_ALL_REDUCE || s->coll == WEFT_REDUCE_SCATTER;
    if (reduces && s->reduce != WEFT_UNREDUCED_SUM) return refuse_step(s);
    if (s->coll == WEFT_SEND_ROWS || s->coll == WEFT_RETURN_ROWS)
        return weft_spmd__move_expert_rows(rw, s, t, x, out);
    if (n == 1) return WEFT_OK;
    switch (s->coll) {
    case WEFT_ALL_GATHER: return do_gather(rw, s, t, x, out);
    case WEFT_ALL_REDUCE: return do_reduce(rw, s, x, out);
    case WEFT_REDUCE_SCATTER: return do_scatter(rw, s, t, x, out);
    case WEFT_ALL_TO_ALL: return do_move(rw, s, t, x, out);
    default: return refuse_step(s);
    }
}

weft_status weft_spmd__add_reshard_step(rewriter *rw, const weft_reshard_step *s,
                                        const weft_type *t, weft_vid x, weft_vid *out)
{
    *out = x;
    if (s->kind == WEFT_STEP_COLLECTIVE) return do_collective(rw, s, t, x, out);
    if (s->kind == WEFT_STEP_SLICE) return do_slice(rw, s, t, x, out);
    if (s->kind == WEFT_STEP_SPREAD && s->reduce == WEFT_UNREDUCED_SUM)
        return do_spread(rw, s, t, x, out);
    return refuse_step(s);
}
