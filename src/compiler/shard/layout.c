/* Layouts: which positions of which dimension a place of the mesh has.
 * Everything follows from one function: cut(), which takes one part out of an ascending list of
 * positions. */
#include <string.h>

#include "shard/shard_priv.h"

weft_layout weft_layout_replicated(int mesh, int n_dim)
{
    weft_layout l;
    memset(&l, 0, sizeof l); /* layouts are compared field by field, hashed never */
    l.mesh  = (int16_t)mesh;
    l.n_dim = (int8_t)n_dim;
    return l;
}

bool weft_shard__add(weft_layout *l, const weft_split *s)
{
    if (l->n >= WEFT_MAX_AXIS) return false;
    l->split[l->n++] = *s;
    return true;
}

void weft_layout_cut(weft_layout *l, int dim, int axis, weft_split_order order)
{
    weft_split s = {
        .dim = (int8_t)dim, .axis = (int8_t)axis, .order = (uint8_t)order, .unit = 1};
    weft_shard__add(l, &s);
}

void weft_shard__drop(weft_layout *l, int axis)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->split[i].axis != axis) l->split[n++] = l->split[i];
    l->n = (int8_t)n;
}

const weft_split *weft_layout_find(const weft_layout *l, int axis)
{
    for (int i = 0; i < l->n; i++)
        if (l->split[i].axis == axis) return &l->split[i];
    return NULL;
}

const weft_split *weft_shard__nth(const weft_layout *l, int dim, int k)
{
    for (int i = 0; i < l->n; i++)
        if (l->split[i].dim == dim && k-- == 0) return &l->split[i];
    return NULL;
}

void weft_shard__sort(weft_layout *l)
{
    for (int i = 1; i < l->n; i++)
        for (int k = i; k > 0 && l->split[k].dim < l->split[k - 1].dim; k--) {
            weft_split t    = l->split[k];
            l->split[k]     = l->split[k - 1];
            l->split[k - 1] = t;
        }
}

bool weft_shard__split_equal(const weft_split *a, const weft_split *b)
{
    return a->dim == b->dim && a->axis == b->axis && a->order == b->order &&
           a->ragged == b->ragged && a->unit == b->unit && a->period == b->period;
}

bool weft_layout_equal(const weft_layout *a, const weft_layout *b)
{
    weft_layout x = *a, y = *b;
    if (a->mesh != b->mesh || a->n_dim != b->n_dim || a->n != b->n) return false;
    weft_shard__sort(&x);
    weft_shard__sort(&y);
    for (int i = 0; i < x.n; i++)
        if (!weft_shard__split_equal(&x.split[i], &y.split[i])) return false;
    return !memcmp(a->unreduced, b->unreduced, sizeof a->unreduced);
}

/* The longest period in the dimension that is shorter than this one: what its units must be made
 * of. */
static int64_t finer(const weft_layout *l, int dim, int64_t span)
{
    int64_t most = 1;
    for (int i = 0; i < l->n; i++) {
        const weft_split *x = &l->split[i];
        if (x->dim == dim && x->period && x->period < span && x->period > most &&
            x->order != WEFT_SPLIT_OWN)
            most = x->period;
    }
    return most;
}

/* A dimension's blocks that come out even are the same for every unit that divides them: the least
 * one is taken. */
weft_layout weft_shard__normal(const weft_layout *l, const weft_mesh *m,
                               const weft_shape *s)
{
    weft_layout out = *l;
    weft_shard__sort(&out);
    for (int i = 0; i < out.n; i++)
        if (out.split[i].period == s->d[out.split[i].dim]) out.split[i].period = 0;
    for (int d = 0; d < s->n; d++) {
        int64_t period = -1, left = 0;
        for (int i = 0; i < out.n; i++) {
            weft_split *x = &out.split[i];
            if (x->dim != d || x->order == WEFT_SPLIT_OWN) continue;
            if (x->period != period) left = x->period ? x->period : s->d[d];
            period       = x->period;
            int64_t size = m->axis[x->axis].size,
                    unit = finer(&out, d, period ? period : s->d[d]);
            if (left % size || left / size % x->unit || left / size % unit ||
                x->order != WEFT_SPLIT_BLOCK)
                left = 1; /* from here on units stay as they are */
            else
                x->unit = unit, left /= size;
        }
    }
    return out;
}

bool weft_layout_same(const weft_layout *a, const weft_layout *b, const weft_mesh *m,
                      const weft_shape *s)
{
    weft_layout x = weft_shard__normal(a, m, s), y = weft_shard__normal(b, m, s);
    return weft_layout_equal(&x, &y);
}

/* ---- verify ---- */

static weft_status check_split(const weft_split *x, const weft_mesh *m,
                               const weft_shape *s)
{
    if (x->axis < 0 || x->axis >= m->n_axis)
        return WEFT_FAIL(WEFT_ERR_ARG, "layout: mesh %s has no axis %d", m->name,
                         x->axis);
    const char *axis = m->axis[x->axis].name;
    if (x->dim < 0 || x->dim >= s->n)
        return WEFT_FAIL(WEFT_ERR_ARG, "layout: axis %s cuts dimension %d of %d", axis,
                         x->dim, s->n);
    if (x->order > WEFT_SPLIT_OWN || x->unit < 1 || x->period < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "layout: axis %s: order, unit or period", axis);
    if (x->period && (x->period % x->unit || s->d[x->dim] % x->period))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "layout: axis %s: period %lld does not fit dimension %d of %lld",
                         axis, (long long)x->period, x->dim, (long long)s->d[x->dim]);
    return WEFT_OK;
}

/* Cuts of different periods must be of different factors: one's period divides the other's unit. */
static bool nest(const weft_split *a, const weft_split *b)
{
    if (a->dim != b->dim || a->period == b->period || a->order == WEFT_SPLIT_OWN ||
        b->order == WEFT_SPLIT_OWN)
        return true;
    if (a->period && b->unit % a->period == 0) return true;
    return b->period && a->unit % b->period == 0;
}

weft_status weft_layout_verify(const weft_layout *l, const weft_mesh *m,
                               const weft_shape *s)
{
    uint32_t seen = 0;
    if (l->n_dim != s->n || l->n < 0 || l->n > WEFT_MAX_AXIS)
        return WEFT_FAIL(WEFT_ERR_ARG, "layout: of %d dimensions for a value of %d",
                         l->n_dim, s->n);
    for (int i = 0; i < l->n; i++) {
        const weft_split *x = &l->split[i];
        WEFT_TRY(check_split(x, m, s));
        if (seen >> x->axis & 1)
            return WEFT_FAIL(WEFT_ERR_ARG, "layout: axis %s is used twice",
                             m->axis[x->axis].name);
        seen |= 1u << x->axis;
        for (int k = 0; k < i; k++)
            if (!nest(x, &l->split[k]))
                return WEFT_FAIL(
                    WEFT_ERR_ARG,
                    "layout: axes %s and %s cut dimension %d across each other",
                    m->axis[l->split[k].axis].name, m->axis[x->axis].name, x->dim);
    }
    for (int a = 0; a < WEFT_MAX_AXIS; a++) {
        if (!l->unreduced[a]) continue;
        if (a >= m->n_axis || l->unreduced[a] >= WEFT_N_UNREDUCED)
            return WEFT_FAIL(WEFT_ERR_ARG, "layout: unreduced over axis %d of mesh %s", a,
                             m->name);
        if (seen >> a & 1)
            return WEFT_FAIL(WEFT_ERR_ARG, "layout: axis %s both cuts and is unreduced",
                             m->axis[a].name);
    }
    return WEFT_OK;
}

/* ---- intervals ---- */

typedef struct list {
    weft_arena    *a;
    int            n, cap;
    weft_interval *x;
} list;

static weft_status push(list *l, int64_t lo, int64_t hi)
{
    if (lo >= hi) return WEFT_OK;
    if (l->n && l->x[l->n - 1].hi == lo) {
        l->x[l->n - 1].hi = hi;
        return WEFT_OK;
    }
    if (l->n == l->cap)
        WEFT_TRY(
            weft_arena_grow(l->a, (void **)&l->x, &l->cap, 2 * l->cap + 4, sizeof *l->x));
    l->x[l->n++] = (weft_interval){lo, hi};
    return WEFT_OK;
}

/* Positions [from, to) of the sequence that the intervals make. */
static weft_status take(const list *l, int64_t from, int64_t to, list *out)
{
    int64_t at = 0;
    for (int i = 0; i < l->n && at < to; i++) {
        int64_t size = l->x[i].hi - l->x[i].lo;
        int64_t lo = from > at ? from - at : 0, hi = to - at < size ? to - at : size;
        if (lo < hi) WEFT_TRY(push(out, l->x[i].lo + lo, l->x[i].lo + hi));
        at += size;
    }
    return WEFT_OK;
}

/* Part c of p of n units, zigzag: as many as a block would have; the larger half counted from the
 * front, the smaller one from the end, in [lo[0], hi[0]) and [lo[1], hi[1]). */
static void zigzag(int64_t n, int64_t p, int64_t c, int64_t lo[2], int64_t hi[2])
{
    int64_t front = 0, back = 0, own = n / p + (c < n % p);
    if (c > 0) { /* c parts before it, those below n % p one larger */
        int64_t more = c < n % p ? c : n % p, q = n / p;
        back  = more * ((q + 1) / 2) + (c - more) * (q / 2);
        front = weft_shard__start(n, p, c) - back;
    }
    lo[0] = front;
    hi[0] = front + (own + 1) / 2;
    lo[1] = n - back - own / 2;
    hi[1] = n - back;
}

static int64_t count_positions(const weft_interval *a, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += a[i].hi - a[i].lo;
    return sum;
}

/* Part c of p of what is there. */
static weft_status cut(const list *l, const weft_split *s, int64_t p, int64_t c,
                       list *out)
{
    int64_t all = count_positions(l->x, l->n), n = (all + s->unit - 1) / s->unit;
    int64_t u = s->unit, from[2], to[2];
    switch ((weft_split_order)s->order) {
    case WEFT_SPLIT_CYCLIC:
        for (int64_t i = c; i < n; i += p)
            WEFT_TRY(take(l, i * u, (i + 1) * u < all ? (i + 1) * u : all, out));
        return WEFT_OK;
    case WEFT_SPLIT_ZIGZAG:
        zigzag(n, p, c, from, to);
        for (int k = 0; k < 2; k++)
            WEFT_TRY(take(l, from[k] * u, to[k] * u < all ? to[k] * u : all, out));
        return WEFT_OK;
    default: break;
    }
    int64_t lo = weft_shard__start(n, p, c) * u, hi = weft_shard__start(n, p, c + 1) * u;
    return take(l, lo, hi < all ? hi : all, out);
}

/* What two ascending lists share. */
static weft_status meet(const list *a, const list *b, list *out)
{
    for (int i = 0, k = 0; i < a->n && k < b->n;) {
        int64_t lo = a->x[i].lo > b->x[k].lo ? a->x[i].lo : b->x[k].lo;
        int64_t hi = a->x[i].hi < b->x[k].hi ? a->x[i].hi : b->x[k].hi;
        WEFT_TRY(push(out, lo, hi));
        if (a->x[i].hi < b->x[k].hi)
            i++;
        else
            k++;
    }
    return WEFT_OK;
}

/* The positions that the cuts of one period leave, in all periods of the dimension. */
static weft_status group(const weft_layout *l, const weft_mesh *m, int dim,
                         int64_t period, int64_t size, const int *coord, list *out)
{
    list    cur  = {.a = out->a};
    int64_t span = period ? period : size;
    WEFT_TRY(push(&cur, 0, span));
    for (int i = 0; i < l->n; i++) {
        const weft_split *s    = &l->split[i];
        list              next = {.a = out->a};
        if (s->dim != dim || s->period != period || s->order == WEFT_SPLIT_OWN) continue;
        WEFT_TRY(cut(&cur, s, m->axis[s->axis].size, coord[s->axis], &next));
        cur = next;
    }
    for (int64_t at = 0; at < size; at += span)
        for (int i = 0; i < cur.n; i++)
            WEFT_TRY(push(out, at + cur.x[i].lo, at + cur.x[i].hi));
    return WEFT_OK;
}

weft_status weft_layout_intervals(const weft_layout *l, const weft_mesh *m, int dim,
                                  int64_t size, int place, weft_arena *a,
                                  weft_interval **out, int *n)
{
    int  coord[WEFT_MAX_AXIS];
    list all = {.a = a};
    weft_mesh_coords(m, place, coord);
    WEFT_TRY(push(&all, 0, size));
    for (int i = 0; i < l->n; i++) {
        const weft_split *s    = &l->split[i];
        bool              seen = s->dim != dim || s->order == WEFT_SPLIT_OWN;
        for (int k = 0; k < i && !seen; k++)
            seen = l->split[k].dim == dim && l->split[k].period == s->period &&
                   l->split[k].order != WEFT_SPLIT_OWN;
        if (seen) continue;
        list mine = {.a = a}, both = {.a = a};
        WEFT_TRY(group(l, m, dim, s->period, size, coord, &mine));
        WEFT_TRY(meet(&all, &mine, &both));
        all = both;
    }
    *out = all.x;
    *n   = all.n;
    return WEFT_OK;
}

int64_t weft_shard__common(const weft_interval *a, int n_a, const weft_interval *b,
                           int n_b)
{
    int64_t sum = 0;
    for (int i = 0, k = 0; i < n_a && k < n_b;) {
        int64_t lo = a[i].lo > b[k].lo ? a[i].lo : b[k].lo;
        int64_t hi = a[i].hi < b[k].hi ? a[i].hi : b[k].hi;
        if (lo < hi) sum += hi - lo;
        if (a[i].hi < b[k].hi)
            i++;
        else
            k++;
    }
    return sum;
}

weft_status weft_layout_regions(const weft_layout *l, const weft_mesh *m,
                                const weft_shape *s, int place, weft_arena *a,
                                weft_region **out, int *n)
{
    weft_interval *x[WEFT_MAX_DIM];
    int            count[WEFT_MAX_DIM], total = 1;
    for (int d = 0; d < s->n; d++) {
        WEFT_TRY(weft_layout_intervals(l, m, d, s->d[d], place, a, &x[d], &count[d]));
        total *= count[d];
    }
    weft_region *r = WEFT_ARENA_ARRAY(a, weft_region, total + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < total; i++) {
        int at      = i;
        r[i].global = *s;
        for (int d = s->n - 1; d >= 0; d--) {
            const weft_interval *v = &x[d][at % count[d]];
            r[i].offset[d]         = v->lo;
            r[i].extent[d]         = v->hi - v->lo;
            at /= count[d];
        }
    }
    *out = r;
    *n   = total;
    return WEFT_OK;
}

/* How many of n positions a place has under the cuts of one period, without listing them. */
static int64_t count_cut(const weft_split *s, int64_t all, int64_t p, int64_t c)
{
    int64_t u = s->unit, n = (all + u - 1) / u, sum = 0;
    int64_t from[2] = {weft_shard__start(n, p, c)},
            to[2]   = {weft_shard__start(n, p, c + 1)};
    if (s->order == WEFT_SPLIT_CYCLIC) {
        int64_t mine = n / p + (c < n % p ? 1 : 0);
        bool    tail = n > 0 && (n - 1) % p == c; /* the last unit may be short */
        return mine * u - (tail ? n * u - all : 0);
    }
    if (s->order == WEFT_SPLIT_ZIGZAG) zigzag(n, p, c, from, to);
    for (int i = 0; i < (s->order == WEFT_SPLIT_ZIGZAG ? 2 : 1); i++) {
        int64_t lo = from[i] * u, hi = to[i] * u < all ? to[i] * u : all;
        if (hi > lo) sum += hi - lo;
    }
    return sum;
}

weft_shape weft_layout_local(const weft_layout *l, const weft_mesh *m,
                             const weft_shape *s, int place)
{
    int        coord[WEFT_MAX_AXIS];
    weft_shape out = *s;
    weft_mesh_coords(m, place, coord);
    /* Periods are independent of each other: each leaves its share of the dimension.  The slowest
     * one counts whole units of the faster ones, so shares multiply exactly. */
    for (int d = 0; d < s->n; d++)
        for (int i = 0; i < l->n; i++) {
            const weft_split *x     = &l->split[i];
            bool              first = x->dim == d && x->order != WEFT_SPLIT_OWN;
            for (int k = 0; k < i && first; k++)
                first = l->split[k].dim != d || l->split[k].period != x->period ||
                        l->split[k].order == WEFT_SPLIT_OWN;
            if (!first) continue;
            int64_t span = x->period ? x->period : s->d[d], left = span;
            for (int k = i; k < l->n; k++)
                if (l->split[k].dim == d && l->split[k].period == x->period &&
                    l->split[k].order != WEFT_SPLIT_OWN)
                    left = count_cut(&l->split[k], left, m->axis[l->split[k].axis].size,
                                     coord[l->split[k].axis]);
            out.d[d] = span ? out.d[d] * left / span : 0;
        }
    return out;
}

int64_t weft_shard__bytes(const weft_type *t)
{
    return weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
}
