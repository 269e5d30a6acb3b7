/* Compares ends of axes, makes what is not like another, and moves peers round the axes. */
#include "compile/world.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/lanes.h"
#include "compile/compile_priv.h"
#include "partition/partition.h"

/* Ranks from one place of axis k to the next. */
static int stride_of(const weft_compiled_world *w, int k)
{
    int n = 1;
    for (int m = k + 1; m < w->n_axis; m++) n *= w->size[m];
    return n;
}

static int place_along(const weft_compiled_world *w, int k, int rank)
{
    return rank / stride_of(w, k) % w->size[k];
}

/* rank moved by `by` places round axis k. */
static int moved(const weft_compiled_world *w, int k, int rank, int by)
{
    int at = place_along(w, k, rank), n = w->size[k];
    return rank + ((at + by + n) % n - at) * stride_of(w, k);
}

static int32_t other(const void *user, int rank, int32_t x)
{
    const weft_compiled_world *w = user;
    int                        t = w->from[rank];
    for (int k = 0; k < w->n_axis && t != rank; k++)
        x = moved(w, k, x, place_along(w, k, rank) - place_along(w, k, t));
    return x;
}

static weft_status make_rank(weft_compiled_world *w, int rank)
{
    weft_compile__request q     = {.spec   = &w->training->spec,
                                   .graph  = w->training->graph,
                                   .plan   = w->plan,
                                   .rank   = rank,
                                   .trains = true};
    int                   place = rank % weft_plan_places(w->plan);
    if (w->made[rank]) return WEFT_OK;
    WEFT_TRY(weft_compile__rank(&q, w->sharding, &w->cache[place], &w->made[rank]));
    w->n_made++;
    if (w->quick && place) return WEFT_OK;
    return weft_program_verify(w->made[rank]);
}

/* ---- whose lanes ---- */

static uint64_t deal_of(const weft_lanes *d, int n_micro, int place)
{
    weft_hash_state h;
    int             first, end, level[WEFT_LANES_MAX_TERM];
    weft_lanes_of(d, place, &first, &end);
    int n = weft_lanes_terms(first, end, level);
    weft_hash_init(&h, 0);
    weft_hash_add(&h, level, sizeof *level * (size_t)n);
    for (int lane = first, lo, hi; lane < end && n_micro % d->n_lane; lane++) {
        weft_partition_lane(n_micro, d->n_lane, lane, &lo, &hi);
        hi -= lo;
        weft_hash_add(&h, &hi, sizeof hi);
    }
    return weft_hash_value(&h);
}

static weft_status read_deal(weft_compiled_world *w)
{
    const weft_compile_spec *s = &w->training->spec;
    weft_lanes d = {(int)s->lanes, weft_plan_lane_ranks(w->plan), w->plan->share};
    w->deal      = WEFT_ARENA_ARRAY(w->arena, uint64_t, d.n);
    WEFT_TRY(weft_arena_status(w->arena));
    w->alike = true;
    for (int k = 0; k < d.n; k++) {
        w->deal[k] = deal_of(&d, (int)(s->batch / s->micro_batch), k);
        w->alike   = w->alike && w->deal[k] == w->deal[0];
    }
    return WEFT_OK;
}

/* The axes along which ranks are compared: those of the mesh.  With copies the lane axis is two
 * of them; lanes are then dealt alike, or nothing is folded. */
static void read_axes(weft_compiled_world *w)
{
    const weft_plan *p = w->plan;
    int              n = weft_plan_copies(p);
    w->lane_axis       = n > 1 ? -1 : p->lane_axis;
    for (int k = 0; k < p->n_axis; k++) {
        bool split = n > 1 && k == p->lane_axis;
        if (split) w->size[w->n_axis++] = n;
        w->size[w->n_axis++] = split ? p->axis[k].size / n : p->axis[k].size;
    }
}

/* The first place along axis k that is dealt as `place` is. */
static int first_such(const weft_compiled_world *w, int k, int place)
{
    int first = 0;
    if (k != w->lane_axis) return 0;
    while (w->deal[first] != w->deal[place]) first++;
    return first;
}

static bool dealt_alike(const weft_compiled_world *w, int k)
{
    return k != w->lane_axis || w->alike;
}

/* ---- which axes ---- */

static int by_rank(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Do both name the same ranks?  Sorts them, they are copies. */
static bool same_set(const weft_group *a, const weft_group *b)
{
    if (a->n_rank != b->n_rank) return false;
    qsort(a->rank, (size_t)a->n_rank, sizeof *a->rank, by_rank);
    qsort(b->rank, (size_t)b->n_rank, sizeof *b->rank, by_rank);
    return !memcmp(a->rank, b->rank, sizeof *a->rank * (size_t)a->n_rank);
}

/* b is a up to the order of ranks in groups; likeness was compared. */
static bool same_ranks(const weft_program *a, const weft_program *b)
{
    for (int k = 0; k < a->n_group; k++)
        if (!same_set(&a->group[k], &b->group[k])) return false;
    for (int k = 0; k < a->n_actor; k++)
        for (int m = 0; m < a->actor[k].n_instr; m++) {
            const weft_instr *x = &a->actor[k].instr[m], *y = &b->actor[k].instr[m];
            bool message = x->kind == WEFT_INSTR_SEND || x->kind == WEFT_INSTR_RECV;
            if (message && x->peer != y->peer) return false;
        }
    return true;
}

/* Does rank b do what a does, with its peers moved? */
static weft_status compare(weft_compiled_world *w, int a, int b, bool *alike)
{
    weft_arena   *tmp = NULL;
    weft_program *x, *y;
    weft_status   st = WEFT_OK;
    int           n = w->world.n, keep = w->from[b];
    WEFT_TRY(make_rank(w, a));
    WEFT_TRY(make_rank(w, b));
    *alike = weft_program_likeness(w->made[a]) == weft_program_likeness(w->made[b]);
    if (!*alike) return WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    const weft_program **like = WEFT_ARENA_ARRAY(tmp, const weft_program *, n);
    WEFT_GO(weft_arena_status(tmp));
    weft_world as = {.n = n, .like = like, .other = other, .user = w};
    weft_world me = {.n = n, .like = like};
    like[b]       = w->made[a];
    w->from[b]    = a;
    WEFT_GO(weft_world_program(&as, b, tmp, &x));
    like[b] = w->made[b];
    WEFT_GO(weft_world_program(&me, b, tmp, &y));
    *alike = same_ranks(x, y);
out:
    w->from[b] = keep;
    weft_arena_destroy(tmp);
    return st;
}

/* Places lo..hi along an axis, stride ranks apart from base on: one like the other, or split in
 * the middle. */
static weft_status find_runs(weft_compiled_world *w, int base, int stride, int lo, int hi)
{
    bool alike;
    int  mid = lo + (hi - lo) / 2;
    if (lo == hi) return WEFT_OK;
    WEFT_TRY(compare(w, w->from[base + lo * stride], base + hi * stride, &alike));
    if (alike) {
        for (int i = lo + 1; i <= hi; i++)
            w->from[base + i * stride] = w->from[base + lo * stride];
        return WEFT_OK;
    }
    if (hi == lo + 1) return WEFT_OK;
    WEFT_TRY(find_runs(w, base, stride, lo, mid));
    return find_runs(w, base, stride, mid, hi);
}

/* Those along the lanes by runs that are dealt alike; a run whose first is like an earlier one's
 * is like it all. */
static weft_status find_deals(weft_compiled_world *w, int base, int k)
{
    int n = w->size[k], stride = stride_of(w, k);
    for (int lo = 0, hi; lo < n; lo = hi) {
        bool alike = false;
        int  such  = first_such(w, k, lo);
        for (hi = lo + 1; hi < n && k == w->lane_axis && w->deal[hi] == w->deal[lo];)
            hi++;
        if (k != w->lane_axis) hi = n;
        WEFT_TRY(find_runs(w, base, stride, lo, hi - 1));
        if (such == lo) continue;
        int first = base + lo * stride;
        WEFT_TRY(compare(w, w->from[base + such * stride], first, &alike));
        for (int i = lo; i < hi && alike; i++)
            if (w->from[base + i * stride] == first)
                w->from[base + i * stride] = w->from[base + such * stride];
    }
    return WEFT_OK;
}

static double flops_of(const weft_program *p)
{
    double sum = 0;
    for (int k = 0; k < weft_program_stream(p, WEFT_STREAM_COMPUTE)->n_firing; k++) {
        const weft_actor *a =
            &p->actor[weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing[k].actor];
        for (int m = 0; m < a->n_instr; m++)
            if (a->instr[m].kind == WEFT_INSTR_COMPUTE)
                sum += weft_instr_flops(&a->instr[m]);
    }
    return sum;
}

static int64_t slabs_of(const weft_program *p)
{
    int64_t sum = 0;
    for (int k = 0; k < p->n_slab; k++) sum += p->slab[k].bytes;
    return sum;
}

/* Where all need not be alike: does rank b hold and work at most what a does? */
static weft_status takes_no_more(weft_compiled_world *w, int a, int b, bool *yes)
{
    WEFT_TRY(make_rank(w, a));
    WEFT_TRY(make_rank(w, b));
    const weft_program *x = w->made[a], *y = w->made[b];
    *yes = slabs_of(y) <= slabs_of(x) && flops_of(y) <= 1.001 * flops_of(x);
    return WEFT_OK;
}

/* Along axis k all are alike, or may be taken for the first, as far as the first and the last
 * stage's first ranks show. */
static weft_status find_same(weft_compiled_world *w, int k, bool *same)
{
    int last = (w->plan->strategy.pp - 1) * weft_plan_places(w->plan);
    weft_status (*ask)(weft_compiled_world *, int, int, bool *) =
        w->quick ? takes_no_more : compare;
    *same = false;
    if (!dealt_alike(w, k)) return WEFT_OK;
    WEFT_TRY(ask(w, 0, moved(w, k, 0, -1), same));
    if (*same && last) WEFT_TRY(ask(w, last, moved(w, k, last, -1), same));
    return WEFT_OK;
}

/* ---- the call ---- */

/* Axes whose places are all alike are left at their first; the longest other one is searched for
 * runs. */
static weft_status find_from(weft_compiled_world *w)
{
    unsigned same = 0;
    int      cut  = -1;
    for (int k = 0; k < w->n_axis; k++) {
        bool yes = false;
        if (w->size[k] < 2) continue;
        WEFT_TRY(find_same(w, k, &yes));
        if (yes)
            same |= 1u << k;
        else if (cut < 0 || w->size[k] > w->size[cut])
            cut = k;
    }
    for (int r = 0; r < w->world.n; r++) {
        int t = r;
        for (int k = 0; k < w->n_axis; k++) {
            int at = place_along(w, k, t);
            if (same >> k & 1 || (w->quick && at < w->size[k] - 1))
                t = moved(w, k, t, first_such(w, k, at) - at);
        }
        if (!w->quick && t == r && cut >= 0 && !place_along(w, cut, r))
            WEFT_TRY(find_deals(w, r, cut));
        if (t != r) w->from[r] = w->from[t];
    }
    return WEFT_OK;
}

static weft_status fill(weft_compiled_world *w, weft_compile_ranks which)
{
    weft_compile__request q = {.spec   = &w->training->spec,
                               .graph  = w->training->graph,
                               .plan   = w->plan,
                               .trains = true};
    int                   n = weft_plan_world(w->plan);
    w->made                 = WEFT_ARENA_ARRAY(w->arena, weft_program *, n);
    w->like                 = WEFT_ARENA_ARRAY(w->arena, const weft_program *, n);
    w->from                 = WEFT_ARENA_ARRAY(w->arena, int, n);
    w->n_cache              = weft_plan_places(w->plan);
    w->cache   = WEFT_ARENA_ARRAY(w->arena, struct weft_partition_cache *, w->n_cache);
    w->world.n = n;
    WEFT_TRY(weft_arena_status(w->arena));
    WEFT_TRY(weft_plan_check_marks(w->plan, w->training->graph));
    WEFT_TRY(weft_compile__shard(&q, &w->sharding));
    for (int r = 0; r < n; r++) w->from[r] = r;
    WEFT_TRY(read_deal(w));
    read_axes(w);
    w->quick   = which == WEFT_RANKS_ENDS;
    bool folds = which != WEFT_RANKS_EACH && (w->alike || weft_plan_copies(w->plan) == 1);
    if (folds) WEFT_TRY(find_from(w));
    for (int r = 0; r < n; r++) {
        WEFT_TRY(make_rank(w, w->from[r]));
        w->like[r] = w->made[w->from[r]];
    }
    w->world = (weft_world){.n = n, .like = w->like, .other = other, .user = w};
    return WEFT_OK;
}

weft_status weft_compile_world(const weft_training *t, const weft_plan *plan,
                               weft_compile_ranks which, weft_compiled_world **out)
{
    weft_arena *a = NULL;
    WEFT_TRY(weft_arena_create(&a));
    weft_compiled_world *w = WEFT_ARENA_NEW(a, weft_compiled_world);
    if (!w) {
        weft_arena_destroy(a);
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for the ranks of a plan");
    }
    w->arena       = a;
    w->training    = t;
    w->plan        = plan;
    weft_status st = fill(w, which);
    if (st == WEFT_OK)
        *out = w;
    else
        weft_compiled_world_destroy(w);
    return st;
}

void weft_compiled_world_destroy(weft_compiled_world *w)
{
    if (!w) return;
    for (int r = 0; w->made && r < w->world.n; r++) weft_program_destroy(w->made[r]);
    for (int i = 0; w->cache && i < w->n_cache; i++)
        weft_partition_cache_destroy(w->cache[i]);
    weft_sharding_destroy(w->sharding);
    weft_arena_destroy(w->arena);
}
