#include "strategy/strategy.h"

#include <string.h>

static const struct {
    const char *name;
    size_t      at;
} axes[WEFT_N_STRATEGY_AXIS] = {{"dp", offsetof(weft_strategy, dp)},
                                {"cp", offsetof(weft_strategy, cp)},
                                {"ep", offsetof(weft_strategy, ep)},
                                {"tp", offsetof(weft_strategy, tp)}};

const weft_strategy_row weft_strategy_rows[] = {
#define STRATEGY(key, kind, min, max, words, def, help)                                  \
    {#key, WEFT_STRATEGY_##kind, offsetof(weft_strategy, key), min, max, words, def,     \
     help},
#include "strategy/strategy.def"
#undef STRATEGY
};
const int weft_strategy_n_row = (int)WEFT_COUNT(weft_strategy_rows);

const weft_strategy_row *weft_strategy_find(const char *key)
{
    for (int i = 0; i < weft_strategy_n_row; i++)
        if (!strcmp(weft_strategy_rows[i].key, key)) return &weft_strategy_rows[i];
    return NULL;
}

const char *weft_strategy_hint(const char *key)
{
    static const char *const hint[][2] = {
#define HINT(key, text) {key, text},
#include "strategy/hints.def"
#undef HINT
    };
    for (size_t i = 0; i < WEFT_COUNT(hint); i++)
        if (!strcmp(hint[i][0], key)) return hint[i][1];
    return NULL;
}

weft_strategy weft_strategy_default(void)
{
    return (weft_strategy){
        .pp = 1, .chunks = 1, .copies = 1, .standby = -1, .bucket_bytes = -1};
}

/* ---- numbers ---- */

int weft_strategy_number(const weft_strategy *s, weft_strategy_key key)
{
    const weft_strategy_row *row   = &weft_strategy_rows[key];
    const void              *field = (const char *)s + row->at;
    return row->kind == WEFT_STRATEGY_BOOL ? *(const bool *)field : *(const int *)field;
}

void weft_strategy_set_number(weft_strategy *s, weft_strategy_key key, int x)
{
    const weft_strategy_row *row   = &weft_strategy_rows[key];
    void                    *field = (char *)s + row->at;
    if (row->kind == WEFT_STRATEGY_BOOL)
        *(bool *)field = x != 0;
    else
        *(int *)field = x;
}

/* ---- axes ---- */

int weft_strategy_size(const weft_strategy *s, int axis)
{
    return *(const int *)(const void *)((const char *)s + axes[axis].at);
}

static const char *const reductions[] = {"invariant", "fixed", "auto"};

const char *weft_reduction_name(weft_reduction r)
{
    return reductions[r];
}

int weft_reduction_parse(const char *name)
{
    for (int i = 0; i < (int)WEFT_COUNT(reductions); i++)
        if (!strcmp(name, reductions[i])) return i;
    return -1;
}

weft_reduction weft_reduction_on(weft_reduction r, int n_cpu, int n_gpu)
{
    bool unlike = n_gpu > 0 && n_cpu > 0;
    if (r != WEFT_REDUCTION_AUTO) return r;
    return n_gpu > 1 || unlike ? WEFT_REDUCTION_FIXED : WEFT_REDUCTION_INVARIANT;
}

const char *weft_strategy_axis_name(int axis)
{
    return axes[axis].name;
}

int weft_strategy_axes(const weft_strategy *s, int out[WEFT_N_STRATEGY_AXIS])
{
    int n = 0;
    for (int i = 0; i < (s->n_mesh_order ? s->n_mesh_order : WEFT_N_STRATEGY_AXIS); i++) {
        int a = s->n_mesh_order ? s->mesh_order[i] : i;
        if (weft_strategy_size(s, a)) out[n++] = a;
    }
    return n;
}

int weft_strategy_axis_at(const weft_strategy *s, int axis)
{
    int all[WEFT_N_STRATEGY_AXIS], n = weft_strategy_axes(s, all);
    for (int i = 0; i < n; i++)
        if (all[i] == axis) return i;
    return -1;
}

int weft_strategy_world(const weft_strategy *s)
{
    int     axis[WEFT_N_STRATEGY_AXIS];
    int     n_axis = weft_strategy_axes(s, axis);
    int64_t n      = s->pp;
    for (int i = 0; i < n_axis && n <= 1 << 24; i++) n *= weft_strategy_size(s, axis[i]);
    return n <= 1 << 24 ? (int)n : -1;
}

int weft_strategy_shard_copies(const weft_strategy *s)
{
    return s->zero && s->dp && s->copies > 1 ? s->copies : 1;
}

/* Ranks from one along the axis to the next. */
static int find_stride(const weft_strategy *s, int axis)
{
    int all[WEFT_N_STRATEGY_AXIS], n = weft_strategy_axes(s, all), stride = 1;
    for (int i = n - 1; i >= 0 && all[i] != axis; i--)
        stride *= weft_strategy_size(s, all[i]);
    return stride;
}

/* ---- who holds what of the state ---- */

/* Ranks that hold the same: so many steps of so many ranks along dp, and along cp. */
typedef struct sharer_axes {
    int n[2], stride[2];
} sharer_axes;

static sharer_axes find_sharers(const weft_strategy *s)
{
    int dp = s->dp > 1 ? s->dp : 1, cp = s->cp > 1 ? s->cp : 1;
    int n = s->zero ? weft_strategy_shard_copies(s) : dp; /* the slower part of dp */
    if (n < 1 || dp % n) n = 1;                           /* check() refuses it */
    sharer_axes x = {.n      = {n, cp},
                     .stride = {find_stride(s, WEFT_AXIS_DP) * (dp / n),
                                find_stride(s, WEFT_AXIS_CP)}};
    return x;
}

static int find_coordinate(const sharer_axes *x, int rank, int axis)
{
    return rank / x->stride[axis] % x->n[axis];
}

static int find_sharer(const sharer_axes *x, int rank)
{
    return find_coordinate(x, rank, 0) * x->n[1] + find_coordinate(x, rank, 1);
}

int weft_strategy_sharers(const weft_strategy *s, int rank, int *at)
{
    sharer_axes x = find_sharers(s);
    *at           = find_sharer(&x, rank);
    return x.n[0] * x.n[1];
}

int weft_strategy_n_standby(const weft_strategy *s)
{
    int world = weft_strategy_world(s), at, n = s->standby;
    if (s->offload) return 0;
    if (n < 0) n = s->dp > 1 || weft_strategy_sharers(s, 0, &at) > 1 ? 0 : s->copies - 1;
    if (n > WEFT_MAX_STANDBY) n = WEFT_MAX_STANDBY;
    return n < world ? n : world - 1;
}

static int standby_distance(int world, int n, int k)
{
    return (int)((int64_t)world * (k + 1) / (n + 1));
}

int weft_standby_guard(int rank, int world, int n, int k)
{
    return (rank + standby_distance(world, n, k)) % world;
}

int weft_standby_ward(int rank, int world, int n, int k)
{
    return (rank + world - standby_distance(world, n, k)) % world;
}

static int find_host(int rank, int n_host, const int *host_ranks)
{
    int k = 0;
    while (k + 1 < n_host && rank >= host_ranks[k]) rank -= host_ranks[k++];
    return k;
}

/* Hosts of the ranks that hold the same as the rank.  *has: is `host` one of them? */
static int count_sharer_hosts(const sharer_axes *x, int rank, int n_host,
                              const int *host_ranks, int host, bool *has)
{
    int slow = x->stride[0] >= x->stride[1] ? 0 : 1, fast = 1 - slow; /* in their order */
    int first = rank, count = 0, last = -1;
    for (int i = 0; i < 2; i++) first -= find_coordinate(x, rank, i) * x->stride[i];
    for (int i = 0; i < x->n[slow]; i++)
        for (int k = 0; k < x->n[fast]; k++) {
            int r  = first + i * x->stride[slow] + k * x->stride[fast];
            int at = find_host(r, n_host, host_ranks);
            count += at != last;
            *has = *has || at == host;
            last = at;
        }
    return count;
}

/* Of what the rank has its part of the standby replicas made of. */
static int count_part_hosts(const weft_strategy *s, const sharer_axes *x, int rank,
                            int n_host, const int *host_ranks)
{
    int  n = weft_strategy_n_standby(s), world = weft_strategy_world(s);
    bool has   = false;
    int  count = count_sharer_hosts(x, rank, n_host, host_ranks, -1, &has);
    for (int k = 0; k < n; k++) {
        int host = find_host(weft_standby_guard(rank, world, n, k), n_host, host_ranks);
        has      = false;
        count_sharer_hosts(x, rank, n_host, host_ranks, host, &has);
        for (int i = 0; i < k; i++)
            has |= host ==
                   find_host(weft_standby_guard(rank, world, n, i), n_host, host_ranks);
        count += !has;
    }
    return count;
}

int weft_strategy_state_hosts(const weft_strategy *s, int n_host, const int *host_ranks)
{
    int  world = weft_strategy_world(s), least = n_host;
    bool each     = weft_strategy_n_standby(s) > 0; /* sharers have parts of their own */
    sharer_axes x = find_sharers(s);
    for (int r = 0; r < world && least > 1; r++) {
        if (!each && find_sharer(&x, r)) continue;
        int hosts = count_part_hosts(s, &x, r, n_host, host_ranks);
        if (hosts < least) least = hosts;
    }
    return least;
}

void weft_strategy_spread(weft_strategy *s, int n_host, const int *host_ranks)
{
    int wanted = s->copies < n_host ? s->copies : n_host, most = 0, best = -1;
    if (s->copies < 2) return;
    for (int n = -1; n < s->copies && n <= WEFT_MAX_STANDBY && most < wanted; n++) {
        s->standby = n;
        if (n == 0 || weft_strategy_check(s) != WEFT_OK) continue;
        int hosts = weft_strategy_state_hosts(s, n_host, host_ranks);
        if (hosts <= most) continue;
        most = hosts;
        best = n;
    }
    s->standby = best;
}

int weft_strategy_lanes(const weft_strategy *s)
{
    int n = 0;
    for (int k = 0; k < s->n_batch_split; k++)
        n += s->batch_split[k].ranks * s->batch_split[k].lanes;
    return n;
}

int weft_strategy_split_ranks(const weft_strategy *s)
{
    int n = 0;
    for (int k = 0; k < s->n_batch_split; k++) n += s->batch_split[k].ranks;
    return n;
}

void weft_strategy_expand_split(const weft_strategy *s, int32_t *lanes)
{
    for (int k = 0; k < s->n_batch_split; k++)
        for (int i = 0; i < s->batch_split[k].ranks; i++)
            *lanes++ = s->batch_split[k].lanes;
}

bool weft_strategy_add_split(weft_strategy *s, int ranks, int lanes)
{
    weft_batch_run *last = &s->batch_split[s->n_batch_split - (s->n_batch_split > 0)];
    if (s->n_batch_split && last->lanes == lanes) {
        last->ranks += ranks;
        return true;
    }
    if (s->n_batch_split == WEFT_MAX_BATCH_RUN) return false;
    s->batch_split[s->n_batch_split++] = (weft_batch_run){ranks, lanes};
    return true;
}

/* ---- what keys ask of each other ---- */

static weft_status check_order(const weft_strategy *s)
{
    for (int a = 0; a < WEFT_N_STRATEGY_AXIS && s->n_mesh_order; a++)
        if (weft_strategy_size(s, a) && weft_strategy_axis_at(s, a) < 0)
            return WEFT_FAIL(WEFT_ERR_ARG, "mesh_order leaves out %s", axes[a].name);
    return WEFT_OK;
}

static weft_status check_split(const weft_strategy *s)
{
    int n = weft_strategy_lanes(s), ranks = weft_strategy_split_ranks(s);
    if (!s->n_batch_split) return WEFT_OK;
    if (!s->dp) return WEFT_FAIL(WEFT_ERR_ARG, "batch_split needs dp");
    if (ranks != s->dp)
        return WEFT_FAIL(WEFT_ERR_ARG, "batch_split: %d numbers for dp=%d", ranks, s->dp);
    if (n & (n - 1))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "batch_split has %d lanes in all, and lanes is a power of two: "
                         "write 3,1 or 5,3 instead of 3,2",
                         n);
    return WEFT_OK;
}

static weft_status check_copies(const weft_strategy *s)
{
    int n = weft_strategy_shard_copies(s);
    if (s->dp % n == 0 || n == 1) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "copies=%d does not divide dp=%d: with zero=%d shards are over dp / "
                     "copies ranks",
                     n, s->dp, s->zero);
}

static weft_status check_standby(const weft_strategy *s)
{
    int k = weft_strategy_shard_copies(s);
    if (s->standby < 1 || !s->zero || s->zero > 2 || s->dp == k) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "standby=%d with zero=%d: parameters are gathered from %d ranks after "
        "the update, and no other rank can make them; take zero=0, zero=3 or "
        "copies=%d",
        s->standby, s->zero, s->dp / k, s->dp);
}

weft_status weft_strategy_check(const weft_strategy *s)
{
    WEFT_TRY(check_order(s));
    if (s->zero && !s->dp) return WEFT_FAIL(WEFT_ERR_ARG, "zero=%d needs dp", s->zero);
    WEFT_TRY(check_copies(s));
    WEFT_TRY(check_standby(s));
    if (s->overlap_param_gather && (s->zero < 1 || s->zero > 2))
        return WEFT_FAIL(WEFT_ERR_ARG, "overlap_param_gather goes with zero=1 or zero=2");
    if (s->sp && !s->tp) return WEFT_FAIL(WEFT_ERR_ARG, "sp=true needs tp");
    if (s->cp_comm == WEFT_CP_RING && !s->cp)
        return WEFT_FAIL(WEFT_ERR_ARG, "cp_comm=ring needs cp");
    if (s->n_tp_exclude && !s->tp) return WEFT_FAIL(WEFT_ERR_ARG, "tp_exclude needs tp");
    return check_split(s);
}

/* ---- comparing ---- */

static bool orders_equal(const weft_strategy *a, const weft_strategy *b)
{
    int x[WEFT_N_STRATEGY_AXIS], y[WEFT_N_STRATEGY_AXIS];
    int n = weft_strategy_axes(a, x);
    if (n != weft_strategy_axes(b, y)) return false;
    for (int i = 0; i < n; i++)
        if (x[i] != y[i]) return false;
    return true;
}

bool weft_layer_spans_equal(const weft_layer_span *a, int n, const weft_layer_span *b,
                            int m)
{
    for (int i = 0; i < n && n == m; i++)
        if (a[i].first != b[i].first || a[i].last != b[i].last) return false;
    return n == m;
}

bool weft_strategy_row_equal(const weft_strategy *a, const weft_strategy *b,
                             const weft_strategy_row *row)
{
    const char *x = (const char *)a + row->at, *y = (const char *)b + row->at;
    switch (row->kind) {
    case WEFT_STRATEGY_INT:
    case WEFT_STRATEGY_FRACTION:
    case WEFT_STRATEGY_WORD: return !memcmp(x, y, sizeof(int));
    case WEFT_STRATEGY_BOOL: return *(const bool *)x == *(const bool *)y;
    case WEFT_STRATEGY_BYTES: return !memcmp(x, y, sizeof(int64_t));
    case WEFT_STRATEGY_ORDER: return orders_equal(a, b);
    case WEFT_STRATEGY_SPLIT:
        return a->n_batch_split == b->n_batch_split &&
               !memcmp(x, y, sizeof *a->batch_split * (size_t)a->n_batch_split);
    case WEFT_STRATEGY_LAYERS:
        return weft_layer_spans_equal(a->tp_exclude, a->n_tp_exclude, b->tp_exclude,
                                      b->n_tp_exclude);
    }
    return false;
}

bool weft_strategy_equal(const weft_strategy *a, const weft_strategy *b)
{
    for (int i = 0; i < weft_strategy_n_row; i++)
        if (!weft_strategy_row_equal(a, b, &weft_strategy_rows[i])) return false;
    return true;
}
