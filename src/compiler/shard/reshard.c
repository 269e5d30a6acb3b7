/* The cheapest way from one layout to another on the same mesh: a search over layouts.  One step
 * slices, gathers, moves an axis between dimensions, reduces with or without scattering, or spreads
 * a value into an unreduced one; few steps first, then few bytes. */
#include <string.h>

#include "shard/shard_priv.h"

#define MAX_STATE  2048
#define STEP_BYTES 65536 /* what a step more has to save a rank */

typedef struct state {
    weft_layout       l;
    weft_measure      cost;
    int               from; /* the state before; -1 the first */
    weft_reshard_step step; /* that led here */
    bool              done;
} state;

typedef struct search {
    const weft_mesh   *m;
    uint32_t           still; /* axes that are not used */
    const weft_layout *from, *to;
    weft_type          t;
    weft_arena        *tmp;
    int                n, cap;
    state             *s;
    weft_layout        goal;   /* `to` in normal form */
    int                widest; /* dimension */
} search;

bool weft_step_is(const weft_reshard_step *s, weft_collective c)
{
    return s->kind == WEFT_STEP_COLLECTIVE && s->coll == c;
}

const char *weft_step_name(const weft_reshard_step *s)
{
    static const char *const name[] = {"slice", "spread"};
    return s->kind == WEFT_STEP_COLLECTIVE ? weft_collective_name(s->coll)
                                           : name[s->kind];
}

static weft_reshard_step local_step(weft_step_kind kind, weft_unreduced reduce)
{
    return (weft_reshard_step){.kind = kind, .reduce = reduce};
}

static weft_reshard_step collective_step(weft_collective c, uint32_t axes,
                                         weft_unreduced reduce)
{
    return (weft_reshard_step){
        .kind = WEFT_STEP_COLLECTIVE, .coll = c, .axes = axes, .reduce = reduce};
}

/* ---- what a step costs ---- */

static int64_t local_count(const search *x, const weft_layout *l, int place)
{
    weft_shape s = weft_layout_local(l, x->m, &x->t.shape, place);
    return weft_shape_count(&s);
}

/* Elements of its new slice that a place has already. */
static weft_status count_common(const search *x, const weft_layout *a,
                                const weft_layout *b, int place, weft_arena *tmp,
                                int64_t *out)
{
    *out = 1;
    for (int d = 0; d < x->t.shape.n; d++) {
        weft_interval *u, *v;
        int            n_u, n_v;
        WEFT_TRY(
            weft_layout_intervals(a, x->m, d, x->t.shape.d[d], place, tmp, &u, &n_u));
        WEFT_TRY(
            weft_layout_intervals(b, x->m, d, x->t.shape.d[d], place, tmp, &v, &n_v));
        *out *= weft_shard__common(u, n_u, v, n_v);
    }
    return WEFT_OK;
}

/* Do all places have equally many elements? */
static bool is_even(const search *x, const weft_layout *l)
{
    int64_t n = local_count(x, l, 0), parts = 1;
    for (int i = 0; i < l->n; i++) {
        if (l->split[i].ragged || l->split[i].order == WEFT_SPLIT_OWN) return false;
        parts *= x->m->axis[l->split[i].axis].size;
    }
    return n == local_count(x, l, x->m->n_rank - 1) &&
           n * parts == weft_shape_count(&x->t.shape);
}

/* An axis moves from one dimension to another, all parts being equal: what a place has of a
 * dimension it keeps, or keeps a part of. */
static int64_t common_of_even(const search *x, const weft_layout *a, const weft_layout *b)
{
    weft_shape u = weft_layout_local(a, x->m, &x->t.shape, 0);
    weft_shape v = weft_layout_local(b, x->m, &x->t.shape, 0);
    for (int d = 0; d < u.n; d++)
        if (v.d[d] < u.d[d]) u.d[d] = v.d[d];
    return weft_shape_count(&u);
}

/* The ranks of a group along some axes, and the slowest class of links among them. */
static int64_t group_size(const weft_mesh *m, uint32_t axes, int *link)
{
    int64_t n = 1;
    *link     = 0;
    for (int a = 0; a < m->n_axis; a++)
        if (axes >> a & 1) {
            n *= m->axis[a].size;
            if (m->axis[a].link > *link) *link = m->axis[a].link;
        }
    return n;
}

/* Does an axis only cut its dimension in another order?  Places then keep unlike parts. */
static bool reorders(const weft_reshard_step *s)
{
    int               axis   = __builtin_ctz(s->axes);
    const weft_split *before = weft_layout_find(&s->before, axis);
    const weft_split *after  = weft_layout_find(&s->after, axis);
    return before && after && before->dim == after->dim;
}

static weft_status price(const search *x, weft_reshard_step *s, weft_measure *m)
{
    int         link;
    int64_t     n = group_size(x->m, s->axes, &link), each = weft_dtype_bytes(x->t.dtype);
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    if (s->kind != WEFT_STEP_COLLECTIVE) return WEFT_OK;
    m->steps++;
    bool even    = is_even(x, &s->before) && is_even(x, &s->after) && !reorders(s);
    int  n_place = even ? 1 : x->m->n_rank; /* all alike: one stands for all */
    if (!even) WEFT_TRY(weft_arena_create(&tmp));
    for (int p = 0; p < n_place; p++) {
        int64_t mine = local_count(x, &s->after, p), had = 0, got = 0;
        if (s->coll == WEFT_ALL_TO_ALL && even)
            had = common_of_even(x, &s->before, &s->after);
        else if (s->coll == WEFT_ALL_TO_ALL)
            WEFT_GO(count_common(x, &s->before, &s->after, p, tmp, &had));
        switch (s->coll) {
        case WEFT_ALL_GATHER: got = mine - local_count(x, &s->before, p); break;
        case WEFT_ALL_TO_ALL: got = mine - had; break;
        case WEFT_REDUCE_SCATTER: got = mine * (n - 1); break;
        default: got = (2 * (n - 1) * mine + n - 1) / n; break;
        }
        if (s->coll != WEFT_ALL_REDUCE) s->bytes += got * each;
        /* an all-reduce of n equal slices moves 2 (n - 1) of them in all */
        if (s->coll == WEFT_ALL_REDUCE) s->bytes += 2 * (n - 1) * mine * each;
    }
    s->bytes *= x->m->n_rank / n_place;
    if (s->coll == WEFT_ALL_REDUCE) s->bytes /= n;
    m->bytes[link] += s->bytes + STEP_BYTES * x->m->n_rank;
out:
    weft_arena_destroy(tmp);
    return st;
}

/* ---- the search ---- */

static int find_state(const search *x, const weft_layout *l)
{
    for (int i = 0; i < x->n; i++)
        if (weft_layout_equal(&x->s[i].l, l)) return i;
    return x->n;
}

/* step: what it does, from state `at` on. */
static weft_status try_step(search *x, int at, weft_reshard_step step, weft_layout after)
{
    weft_measure cost = x->s[at].cost;
    step.before       = x->s[at].l;
    step.after        = weft_shard__normal(&after, x->m, &x->t.shape);
    int to            = find_state(x, &step.after);
    if (to < x->n && x->s[to].done) return WEFT_OK;
    if (to == MAX_STATE) return WEFT_OK;
    if (weft_layout_verify(&step.after, x->m, &x->t.shape) != WEFT_OK) return WEFT_OK;
    WEFT_TRY(price(x, &step, &cost));
    if (to < x->n && weft_measure_compare(&cost, &x->s[to].cost) >= 0) return WEFT_OK;
    if (to == x->n)
        WEFT_TRY(weft_arena_grow(x->tmp, (void **)&x->s, &x->cap, ++x->n, sizeof *x->s));
    x->s[to] = (state){step.after, cost, at, step, false};
    return WEFT_OK;
}

/* Ways to cut with a free axis: as the goal has it; by blocks of a dimension on the way there. */
static weft_status try_cuts(search *x, int at, weft_reshard_step step, int axis,
                            weft_layout l)
{
    const weft_split *want = weft_layout_find(&x->goal, axis);
    weft_layout       y    = l;
    if (want && weft_shard__add(&y, want)) WEFT_TRY(try_step(x, at, step, y));
    for (int d = 0; d < x->t.shape.n; d++) {
        if (d != x->widest && !(want && want->dim == d)) continue;
        y = l;
        weft_layout_cut(&y, d, axis, WEFT_SPLIT_BLOCK);
        WEFT_TRY(try_step(x, at, step, y));
    }
    return WEFT_OK;
}

/* Is it the last cut of its period in its dimension?  Only such a one can be undone. */
static bool is_last(const weft_layout *l, const weft_split *s)
{
    bool behind = false;
    for (int i = 0; i < l->n; i++) {
        const weft_split *y = &l->split[i];
        if (behind && y->dim == s->dim && y->period == s->period) return false;
        if (y->axis == s->axis) behind = true;
    }
    return s->order != WEFT_SPLIT_OWN && !s->ragged;
}

/* Is a sum over a lanes' axis left that goes before the one over this axis?  Lanes are counted with
 * the last axis fastest: their tree is summed from the last axis on. */
static bool is_early(const search *x, const weft_layout *l, int axis)
{
    for (int a = axis + 1; a < x->m->n_axis && x->still >> axis & 1; a++)
        if (x->still >> a & 1 && l->unreduced[a] && !x->goal.unreduced[a]) return true;
    return false;
}

static weft_status expand_axis(search *x, int at, int axis)
{
    weft_layout       l    = x->s[at].l, y;
    const weft_split *s    = weft_layout_find(&l, axis);
    weft_unreduced    kind = (weft_unreduced)l.unreduced[axis];
    weft_unreduced    want = (weft_unreduced)x->goal.unreduced[axis];
    if (kind && kind == want) return WEFT_OK;
    if (kind && is_early(x, &l, axis)) return WEFT_OK;
    if (kind) {
        y                 = l;
        y.unreduced[axis] = 0;
        WEFT_TRY(try_step(x, at, collective_step(WEFT_ALL_REDUCE, 1u << axis, kind), y));
        return try_cuts(x, at, collective_step(WEFT_REDUCE_SCATTER, 1u << axis, kind),
                        axis, y);
    }
    if (want && want != WEFT_UNREDUCED_PAIR && (!s || is_last(&l, s))) {
        y = l;
        weft_shard__drop(&y, axis);
        y.unreduced[axis] = (uint8_t)want;
        WEFT_TRY(try_step(x, at, local_step(WEFT_STEP_SPREAD, want), y));
    }
    if (!s) return try_cuts(x, at, local_step(WEFT_STEP_SLICE, WEFT_REDUCED), axis, l);
    if (!is_last(&l, s)) return WEFT_OK;
    y = l;
    weft_shard__drop(&y, axis);
    WEFT_TRY(
        try_step(x, at, collective_step(WEFT_ALL_GATHER, 1u << axis, WEFT_REDUCED), y));
    return try_cuts(x, at, collective_step(WEFT_ALL_TO_ALL, 1u << axis, WEFT_REDUCED),
                    axis, y);
}

/* Are the lanes two axes of which one cuts the goal?  Sums then go to their owners first: the bytes
 * of lanes of one axis, in calls that are coalesced with others. */
static bool goes_to_owners(const search *x, uint32_t axes)
{
    uint32_t lanes = axes & x->still;
    for (int i = 0; i < x->goal.n && lanes & (lanes - 1); i++)
        if (lanes >> x->goal.split[i].axis & 1) return true;
    return false;
}

/* All reductions that are left at once: fewer bytes than one by one where nothing can be
 * scattered. */
static weft_status reduce_all(search *x, int at)
{
    weft_layout    y    = x->s[at].l;
    weft_unreduced kind = WEFT_REDUCED;
    uint32_t       axes = 0;
    for (int a = 0; a < x->m->n_axis; a++) {
        if (!y.unreduced[a] || y.unreduced[a] == x->goal.unreduced[a]) continue;
        if (kind && y.unreduced[a] != kind) return WEFT_OK;
        kind           = (weft_unreduced)y.unreduced[a];
        y.unreduced[a] = 0;
        axes |= 1u << a;
    }
    if (!(axes & (axes - 1))) return WEFT_OK; /* one at most */
    if (goes_to_owners(x, axes)) return WEFT_OK;
    return try_step(x, at, collective_step(WEFT_ALL_REDUCE, axes, kind), y);
}

static bool mentions(const weft_layout *l, int axis)
{
    return l->unreduced[axis] || weft_layout_find(l, axis);
}

/* Ranks along an axis that must stand still have other values under the same layout. */
static bool may_use(const search *x, int axis)
{
    return !(x->still >> axis & 1) || mentions(x->from, axis) || mentions(&x->goal, axis);
}

/* The state that is the goal, -1 when none was found. */
static weft_status run_search(search *x, int *out)
{
    x->s[0] = (state){.l = weft_shard__normal(x->from, x->m, &x->t.shape), .from = -1};
    x->n    = 1;
    *out    = -1;
    for (int d = 0; d < x->t.shape.n; d++)
        if (x->t.shape.d[d] > x->t.shape.d[x->widest]) x->widest = d;
    for (;;) {
        int best = -1;
        for (int i = 0; i < x->n; i++)
            if (!x->s[i].done &&
                (best < 0 || weft_measure_compare(&x->s[i].cost, &x->s[best].cost) < 0))
                best = i;
        if (best < 0) return WEFT_OK;
        x->s[best].done = true;
        if (weft_layout_equal(&x->s[best].l, &x->goal)) {
            *out = best;
            return WEFT_OK;
        }
        WEFT_TRY(reduce_all(x, best));
        for (int a = 0; a < x->m->n_axis; a++)
            if (may_use(x, a)) WEFT_TRY(expand_axis(x, best, a));
    }
}

/* ---- the plan ---- */

static weft_status keep_path(const search *x, int at, weft_arena *arena,
                             weft_reshard *out)
{
    int n = 0;
    for (int i = at; x->s[i].from >= 0; i = x->s[i].from) n++;
    out->n_step  = n;
    out->step    = WEFT_ARENA_ARRAY(arena, weft_reshard_step, n + 1);
    out->measure = x->s[at].cost;
    out->bytes   = 0;
    WEFT_TRY(weft_arena_status(arena));
    for (int i = at; n > 0; i = x->s[i].from) out->step[--n] = x->s[i].step;
    for (int i = 0; i < out->n_step; i++) {
        out->bytes += out->step[i].bytes;
        out->step[i].before.mesh = out->step[i].after.mesh = x->from->mesh;
    }
    return WEFT_OK;
}

static weft_status check_ragged(const weft_mesh *a, const weft_layout *f,
                                const weft_layout *t)
{
    for (int i = 0; i < f->n + t->n; i++) {
        const weft_split *s = i < f->n ? &f->split[i] : &t->split[i - f->n];
        const weft_split *y = weft_layout_find(i < f->n ? t : f, s->axis);
        if (!s->ragged && s->order != WEFT_SPLIT_OWN) continue;
        if (!y || !weft_shard__split_equal(s, y))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "reshard: rows sorted by each rank for itself (axis %s) "
                             "stay where they are",
                             a->axis[s->axis].name);
    }
    return WEFT_OK;
}

/* ---- rows to their experts' owners, and back ---- */

/* The axis along which rows that each rank sorted go to owners, or come back; -1: none. */
static int rows_axis(const weft_layout *f, const weft_layout *t)
{
    for (int i = 0; i < f->n; i++) {
        const weft_split *x = &f->split[i], *y = weft_layout_find(t, x->axis);
        if (y && x->dim == y->dim && f->mesh == t->mesh &&
            (x->order == WEFT_SPLIT_OWN ? y->ragged
                                        : x->ragged && y->order == WEFT_SPLIT_OWN))
            return x->axis;
    }
    return -1;
}

/* `own` with its cut by axis as it is in `home`. */
static weft_layout bring_home(const weft_layout *own, const weft_layout *home, int axis)
{
    const weft_split *s   = weft_layout_find(home, axis);
    weft_layout       out = *own;
    int               n = 0, before, at = 0;
    for (before = 0; &home->split[before] != s; before++)
        at += home->split[before].dim == s->dim;
    out.n = 0;
    for (int i = 0; i < own->n; i++) {
        if (own->split[i].axis == axis) continue;
        if (own->split[i].dim == s->dim && n++ == at) out.split[out.n++] = *s;
        out.split[out.n++] = own->split[i];
    }
    if (n <= at) out.split[out.n++] = *s;
    return out;
}

/* All rows at home are sent, to all owners alike; what stays is not counted. */
static void price_rows(const weft_mesh *m, const weft_type *t, const weft_layout *home,
                       weft_reshard_step *s)
{
    int64_t n = m->axis[__builtin_ctz(s->axes)].size;
    for (int p = 0; p < m->n_rank; p++) {
        weft_shape here = weft_layout_local(home, m, &t->shape, p);
        int64_t    got  = weft_shape_count(&here) * weft_dtype_bytes(t->dtype);
        got             = got / n * (n - 1);
        s->bytes += got;
    }
}

/* All else is done where there are fewer rows: at home. */
static weft_status with_rows(const weft_mesh *m, uint32_t still, const weft_layout *from,
                             const weft_layout *to, const weft_type *t, int axis,
                             weft_arena *arena, weft_reshard *out)
{
    bool        send    = weft_layout_find(to, axis)->order == WEFT_SPLIT_OWN;
    weft_layout mid     = send ? bring_home(to, from, axis) : bring_home(from, to, axis);
    weft_reshard_step s = {.kind   = WEFT_STEP_COLLECTIVE,
                           .coll   = send ? WEFT_SEND_ROWS : WEFT_RETURN_ROWS,
                           .before = send ? mid : *from,
                           .after  = send ? *to : mid,
                           .axes   = 1u << axis};
    weft_reshard      rest;
    WEFT_TRY(weft_reshard_collectives(m, still, send ? from : &mid, send ? &mid : to, t,
                                      arena, &rest));
    weft_reshard_step *all = WEFT_ARENA_ARRAY(arena, weft_reshard_step, rest.n_step + 1);
    WEFT_TRY(weft_arena_status(arena));
    price_rows(m, t, &mid, &s);
    *out        = rest;
    out->step   = all;
    out->n_step = rest.n_step + 1;
    for (int i = 0; i < rest.n_step; i++) all[i + !send] = rest.step[i];
    all[send ? rest.n_step : 0] = s;
    out->bytes += s.bytes;
    out->measure.bytes[m->axis[axis].link] += s.bytes;
    out->measure.steps++;
    return WEFT_OK;
}

static weft_status plan_search(search *x, weft_arena *arena, weft_reshard *out,
                               bool *found)
{
    weft_arena *tmp  = NULL;
    int         goal = -1;
    weft_status st   = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    x->tmp = tmp;
    x->s   = NULL;
    x->cap = 0;
    WEFT_GO(weft_arena_grow(tmp, (void **)&x->s, &x->cap, 1, sizeof *x->s));
    x->goal      = weft_shard__normal(x->to, x->m, &x->t.shape);
    x->goal.mesh = x->from->mesh;
    WEFT_GO(run_search(x, &goal));
    *found = goal >= 0;
    if (*found) WEFT_GO(keep_path(x, goal, arena, out));
out:
    weft_arena_destroy(tmp);
    return st;
}

weft_status weft_reshard_collectives(const weft_mesh *m, uint32_t still,
                                     const weft_layout *from, const weft_layout *to,
                                     const weft_type *t, weft_arena *arena,
                                     weft_reshard *out)
{
    search x     = {.m = m, .still = still, .from = from, .to = to, .t = *t};
    bool   found = false;
    memset(out, 0, sizeof *out);
    WEFT_TRY(weft_layout_verify(from, m, &t->shape));
    WEFT_TRY(weft_layout_verify(to, m, &t->shape));
    int axis = rows_axis(from, to);
    if (axis >= 0) return with_rows(m, still, from, to, t, axis, arena, out);
    WEFT_TRY(check_ragged(m, from, to));
    WEFT_TRY(plan_search(&x, arena, out, &found));
    if (!found)
        return WEFT_FAIL(WEFT_ERR_NOFIT, "reshard: no sequence of collectives was found");
    return WEFT_OK;
}
