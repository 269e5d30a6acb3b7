/* Any layout to any other in at most two rounds of messages, with as few bytes as there can be.
 *
 * The cuts of both layouts divide the tensor into cells: a rank has all of a cell or nothing of it.
 * Round 0, where the source is unreduced: each cell's summands go to one owner, a rank that wants
 * the cell and has a summand where there is one.  Round 1: finished cells go to whoever wants them.
 * A transfer from a rank to itself is a local copy, so that transfers say all there is to say.
 *
 * Fewest bytes: of U summands, at least U - 1 must travel to be added up; each rank that wants
 * the cell and does not add it up itself must receive it. */
#include <string.h>

#include "shard/shard_priv.h"

#define MAX_WORK ((int64_t)1 << 30) /* looks at a rank: seconds */

typedef struct side {
    const weft_mesh   *m;
    const weft_layout *l;
    bool              *has[WEFT_MAX_DIM]; /* by place, then segment of the dimension */
} side;

typedef struct exchange {
    side               a, b;
    weft_type          t;
    weft_arena        *arena, *tmp;
    int                n_seg[WEFT_MAX_DIM];
    int64_t           *start[WEFT_MAX_DIM]; /* of segments, and the end */
    uint32_t           kept;       /* axes unreduced before and after: one mesh only */
    uint32_t           summed;     /* axes to be reduced */
    uint32_t           spread;     /* axes of b to become unreduced over */
    int                n_part;     /* summands of a cell */
    int64_t           *got, *sent; /* bytes by place of b, of a: who has done least */
    int                cap;
    weft_reshard_step *step;
    weft_measure       measure;
    int64_t            work;
} exchange;

/* ---- cells ---- */

static weft_status collect(exchange *x, const side *s, int d, int64_t **cut, int *n,
                           int *cap)
{
    for (int p = 0; p < s->m->n_rank; p++) {
        weft_interval *v;
        int            n_v;
        WEFT_TRY(
            weft_layout_intervals(s->l, s->m, d, x->t.shape.d[d], p, x->tmp, &v, &n_v));
        for (int i = 0; i < 2 * n_v; i++) {
            int64_t at = i & 1 ? v[i / 2].hi : v[i / 2].lo;
            int     k  = *n;
            for (int j = 0; j < *n; j++)
                if ((*cut)[j] == at) k = -1;
            if (k < 0) continue;
            WEFT_TRY(weft_arena_grow(x->tmp, (void **)cut, cap, *n + 1, sizeof **cut));
            for (; k > 0 && (*cut)[k - 1] > at; k--) (*cut)[k] = (*cut)[k - 1];
            (*cut)[k] = at;
            (*n)++;
        }
    }
    return WEFT_OK;
}

static weft_status mark_side(exchange *x, side *s, int d)
{
    s->has[d] = WEFT_ARENA_ARRAY(x->tmp, bool, (int64_t)s->m->n_rank *(x->n_seg[d] + 1));
    WEFT_TRY(weft_arena_status(x->tmp));
    for (int p = 0; p < s->m->n_rank; p++) {
        weft_interval *v;
        int            n_v;
        WEFT_TRY(
            weft_layout_intervals(s->l, s->m, d, x->t.shape.d[d], p, x->tmp, &v, &n_v));
        for (int g = 0, i = 0; g < x->n_seg[d]; g++) {
            while (i < n_v && v[i].hi <= x->start[d][g]) i++;
            s->has[d][p * x->n_seg[d] + g] = i < n_v && v[i].lo <= x->start[d][g];
        }
    }
    return WEFT_OK;
}

static weft_status make_cells(exchange *x, int64_t *n_cell)
{
    *n_cell = 1;
    for (int d = 0; d < x->t.shape.n; d++) {
        int64_t *cut = NULL;
        int      n = 0, cap = 0;
        WEFT_TRY(collect(x, &x->a, d, &cut, &n, &cap));
        WEFT_TRY(collect(x, &x->b, d, &cut, &n, &cap));
        x->start[d] = cut;
        x->n_seg[d] = n ? n - 1 : 0;
        *n_cell *= x->n_seg[d];
        WEFT_TRY(mark_side(x, &x->a, d));
        WEFT_TRY(mark_side(x, &x->b, d));
    }
    return WEFT_OK;
}

static bool has_cell(const exchange *x, const side *s, int place, const int *seg)
{
    for (int d = 0; d < x->t.shape.n; d++)
        if (!s->has[d][place * x->n_seg[d] + seg[d]]) return false;
    return true;
}

/* ---- who is who ---- */

/* A place's coordinates along some axes, as one number. */
static int index_along(const weft_mesh *m, int place, uint32_t axes)
{
    int c[WEFT_MAX_AXIS], n = 0;
    weft_mesh_coords(m, place, c);
    for (int i = 0; i < m->n_axis; i++)
        if (axes >> i & 1) n = n * m->axis[i].size + c[i];
    return n;
}

int weft_shard__link(const weft_mesh *a, const weft_mesh *b, int32_t x, int32_t y)
{
    int worst = 0;
    for (int k = 0; k < 2; k++) {
        const weft_mesh *m = k ? b : a;
        int              p = weft_mesh_place(m, x), q = weft_mesh_place(m, y);
        int              c[WEFT_MAX_AXIS], e[WEFT_MAX_AXIS], link = 0;
        for (int i = 0; i < m->n_axis; i++)
            if (m->axis[i].link > worst) worst = m->axis[i].link;
        if (p < 0 || q < 0) continue;
        weft_mesh_coords(m, p, c);
        weft_mesh_coords(m, q, e);
        for (int i = 0; i < m->n_axis; i++)
            if (c[i] != e[i] && m->axis[i].link > link) link = m->axis[i].link;
        return link;
    }
    return worst;
}

static weft_status give(exchange *x, int32_t from, int32_t to, int round, int part,
                        const weft_region *r)
{
    weft_reshard_step *s     = x->step;
    int64_t            bytes = weft_region_count(r) * weft_dtype_bytes(x->t.dtype);
    WEFT_TRY(weft_arena_grow(x->arena, (void **)&s->transfer, &x->cap, s->n_transfer + 1,
                             sizeof *s->transfer));
    s->transfer[s->n_transfer++] = (weft_transfer){from, to, round, part, *r};
    if (from == to) return WEFT_OK;
    s->bytes += bytes;
    x->measure.bytes[weft_shard__link(x->a.m, x->b.m, from, to)] += bytes;
    x->got[weft_mesh_place(x->b.m, to)] += bytes;
    x->sent[weft_mesh_place(x->a.m, from) >= 0 ? weft_mesh_place(x->a.m, from) : 0] +=
        bytes;
    return WEFT_OK;
}

/* Among the places of a that have the cell (and that summand, and those kept coordinates): the
 * receiver itself, else the nearest, then whoever has sent least.  -1: nobody. */
static int pick_source(const exchange *x, const int *seg, int part, int kept, int32_t to)
{
    int best = -1, best_link = 0;
    for (int p = 0; p < x->a.m->n_rank; p++) {
        if (!has_cell(x, &x->a, p, seg)) continue;
        if (part >= 0 && index_along(x->a.m, p, x->summed) != part) continue;
        if (index_along(x->a.m, p, x->kept) != kept) continue;
        if (x->a.m->rank[p] == to) return p;
        int link = weft_shard__link(x->a.m, x->b.m, x->a.m->rank[p], to);
        if (best < 0 || link < best_link ||
            (link == best_link && x->sent[p] < x->sent[best])) {
            best      = p;
            best_link = link;
        }
    }
    return best;
}

/* ---- one cell ---- */

/* The places of b that are to have the cell; one of each line along the axes to be unreduced
 * over. */
static int find_targets(const exchange *x, const int *seg, int kept, int *target)
{
    int n = 0;
    for (int p = 0; p < x->b.m->n_rank; p++) {
        int  line = index_along(x->b.m, p, ~x->spread), k;
        bool near = false;
        if (!has_cell(x, &x->b, p, seg) || index_along(x->b.m, p, x->kept) != kept)
            continue;
        int mine = weft_mesh_place(x->a.m, x->b.m->rank[p]);
        near     = mine >= 0 && has_cell(x, &x->a, mine, seg) &&
               index_along(x->a.m, mine, x->kept) == kept;
        for (k = 0; k < n && x->spread; k++)
            if (index_along(x->b.m, target[k] >> 1, ~x->spread) == line) break;
        if (!x->spread || k == n)
            target[n++] = p << 1 | near; /* the low bit: it has (a summand of) the cell */
        else if (near && !(target[k] & 1))
            target[k] = p << 1 | near;
    }
    return n;
}

static int pick_owner(const exchange *x, const int *target, int n)
{
    int best = 0;
    for (int k = 1; k < n; k++) {
        bool near = target[k] & 1, was = target[best] & 1;
        if (near != was ? near : x->got[target[k] >> 1] < x->got[target[best] >> 1])
            best = k;
    }
    return target[best] >> 1;
}

static weft_status move_cell(exchange *x, const int *seg, int kept, int *target)
{
    weft_region r     = {.global = x->t.shape};
    int         n     = find_targets(x, seg, kept, target), source;
    int32_t     owner = -1;
    x->work += x->b.m->n_rank + (int64_t)(n + x->n_part) * x->a.m->n_rank;
    if (x->work > MAX_WORK)
        return WEFT_FAIL(WEFT_ERR_NOFIT, "reshard: too many pieces for messages");
    if (!n) return WEFT_OK;
    for (int d = 0; d < x->t.shape.n; d++) {
        r.offset[d] = x->start[d][seg[d]];
        r.extent[d] = x->start[d][seg[d] + 1] - r.offset[d];
    }
    if (x->summed) {
        owner = x->b.m->rank[pick_owner(x, target, n)];
        for (int part = 0; part < x->n_part; part++) {
            source = pick_source(x, seg, part, kept, owner);
            if (source < 0)
                return WEFT_FAIL(WEFT_ERR_INTERNAL, "reshard: nobody has a summand");
            WEFT_TRY(give(x, x->a.m->rank[source], owner, 0, part, &r));
        }
    }
    for (int k = 0; k < n; k++) {
        int32_t to = x->b.m->rank[target[k] >> 1];
        source     = owner < 0 ? pick_source(x, seg, -1, kept, to) : -1;
        if (owner < 0 && source < 0)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "reshard: nobody has a piece");
        WEFT_TRY(give(x, owner < 0 ? x->a.m->rank[source] : owner, to, 1, -1, &r));
    }
    return WEFT_OK;
}

/* ---- all of it ---- */

static weft_status find_axes(exchange *x)
{
    const weft_layout *f = x->a.l, *t = x->b.l;
    bool               one =
        x->a.m->n_rank == x->b.m->n_rank && weft_mesh_alike(x->a.m, x->b.m) &&
        !memcmp(x->a.m->rank, x->b.m->rank, sizeof(int32_t) * (size_t)x->a.m->n_rank);
    weft_unreduced kind = WEFT_REDUCED;
    x->n_part           = 1;
    for (int i = 0; i < WEFT_MAX_AXIS; i++) {
        if (one && f->unreduced[i] && f->unreduced[i] == t->unreduced[i]) {
            x->kept |= 1u << i;
            continue;
        }
        if (f->unreduced[i]) {
            if (kind && kind != f->unreduced[i])
                return WEFT_FAIL(WEFT_ERR_ARG,
                                 "reshard: sums and maxima at once; reduce one first");
            kind = f->unreduced[i];
            x->summed |= 1u << i;
            x->n_part *= x->a.m->axis[i].size;
        }
        if (t->unreduced[i]) x->spread |= 1u << i;
        if (t->unreduced[i] == WEFT_UNREDUCED_PAIR)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "reshard: nothing becomes an unreduced softmax pair");
    }
    x->step->reduce = kind;
    return WEFT_OK;
}

/* The most that one rank receives, from the most peers. */
static weft_status finish(exchange *x)
{
    weft_reshard_step *s   = x->step;
    int                n_a = x->a.m->n_rank, n_b = x->b.m->n_rank, rounds = 0;
    bool              *met = WEFT_ARENA_ARRAY(x->tmp, bool, (int64_t)(n_a + n_b) * n_b);
    int               *n_peer = WEFT_ARENA_ARRAY(x->tmp, int, n_b);
    WEFT_TRY(weft_arena_status(x->tmp));
    for (int i = 0; i < s->n_transfer; i++) {
        const weft_transfer *t    = &s->transfer[i];
        int                  to   = weft_mesh_place(x->b.m, t->to);
        int                  from = weft_mesh_place(x->a.m, t->from);
        if (from < 0) from = n_a + weft_mesh_place(x->b.m, t->from);
        if (t->round == 0) rounds = 1;
        bool *seen = &met[(int64_t)to * (n_a + n_b) + from];
        if (t->from != t->to && !*seen) n_peer[to]++;
        *seen = true;
    }
    for (int p = 0; p < n_b; p++) {
        if (x->got[p] > s->max_bytes) s->max_bytes = x->got[p];
        if (n_peer[p] > x->measure.steps) x->measure.steps = n_peer[p];
    }
    x->measure.steps += rounds;
    if (x->measure.steps < 1) x->measure.steps = 1;
    return WEFT_OK;
}

static weft_status move_all(exchange *x)
{
    int64_t n_cell;
    int     seg[WEFT_MAX_DIM] = {0}, n_kept = 1;
    int    *target = WEFT_ARENA_ARRAY(x->tmp, int, x->b.m->n_rank + 1);
    x->got         = WEFT_ARENA_ARRAY(x->tmp, int64_t, x->b.m->n_rank + 1);
    x->sent        = WEFT_ARENA_ARRAY(x->tmp, int64_t, x->a.m->n_rank + 1);
    WEFT_TRY(weft_arena_status(x->tmp));
    WEFT_TRY(find_axes(x));
    WEFT_TRY(make_cells(x, &n_cell));
    for (int i = 0; i < x->a.m->n_axis; i++)
        if (x->kept >> i & 1) n_kept *= x->a.m->axis[i].size;
    for (int64_t c = 0; c < n_cell; c++) {
        int64_t at = c;
        for (int d = x->t.shape.n - 1; d >= 0; at /= x->n_seg[d--])
            seg[d] = (int)(at % x->n_seg[d]);
        for (int k = 0; k < n_kept; k++) WEFT_TRY(move_cell(x, seg, k, target));
    }
    return finish(x);
}

weft_status weft_shard__exchange(const weft_mesh *a, const weft_layout *from,
                                 const weft_mesh *b, const weft_layout *to,
                                 const weft_type *t, weft_arena *arena,
                                 weft_reshard_step *out, weft_measure *measure)
{
    exchange    x  = {.a = {.m = a, .l = from}, .b = {.m = b, .l = to}, .t = *t};
    weft_status st = WEFT_OK;
    memset(out, 0, sizeof *out);
    x.arena     = arena;
    x.step      = out;
    out->kind   = WEFT_STEP_SEND;
    out->before = *from;
    out->after  = *to;
    WEFT_TRY(weft_arena_create(&x.tmp));
    WEFT_GO(move_all(&x));
    *measure = x.measure;
out:
    weft_arena_destroy(x.tmp);
    return st;
}
