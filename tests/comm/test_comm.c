/* What every transport promises (comm.h), on each of them. */
#include "base/lanes.h"
#include "comm/memory.h"
#include "support/test.h"

#include <math.h>

enum {
    PERIOD = 997
};

static int64_t       counts[8];
static int           n_count;
static weft_dtype    dtype;
static const int32_t evens[] = {6, 4, 2, 0};

/* ---- numbers ---- */

static double number(int rank_, int64_t k)
{
    return 1.0 / (double)(1 + (k * 37 + rank_ * 101) % PERIOD);
}

/* Element k of p becomes the number_k-th of a rank. */
static void store(void *p, int64_t k, int rank_, int64_t number_k)
{
    double   x = number(rank_, number_k);
    float    f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    switch (dtype) {
    case WEFT_DTYPE_F32: ((float *)p)[k] = f; break;
    case WEFT_DTYPE_F64: ((double *)p)[k] = x; break;
    case WEFT_DTYPE_BF16: ((uint16_t *)p)[k] = (uint16_t)(u >> 16); break;
    case WEFT_DTYPE_I32:
    case WEFT_DTYPE_U32: ((uint32_t *)p)[k] = (uint32_t)(x * 4e9); break;
    default: ((uint64_t *)p)[k] = (uint64_t)(x * 1.8e19); break;
    }
}

/* Element k of the sum over n, the tree written the plain way: strides 1, 2, 4, ... */
static void add_up(int n, const int32_t *member, int64_t k, void *out)
{
    union {
        float    f;
        double   d;
        uint16_t h;
        uint32_t u;
        uint64_t l;
    } x[8 * MAX_RANK];
    for (int i = 0; i < n; i++) {
        store(&x[i], 0, member[i], k);
        if (dtype == WEFT_DTYPE_BF16) x[i].u = (uint32_t)x[i].h << 16;
    }
    for (int d = 1; d < n; d *= 2)
        for (int i = 0; i + d < n; i += 2 * d) switch (dtype) {
            case WEFT_DTYPE_BF16:
            case WEFT_DTYPE_F32: x[i].f += x[i + d].f; break;
            case WEFT_DTYPE_F64: x[i].d += x[i + d].d; break;
            case WEFT_DTYPE_I32:
            case WEFT_DTYPE_U32: x[i].u += x[i + d].u; break;
            default: x[i].l += x[i + d].l; break;
            }
    if (dtype == WEFT_DTYPE_BF16)
        x[0].h = (uint16_t)((x[0].u + 0x7fff + (x[0].u >> 16 & 1)) >> 16);
    memcpy(out, &x[0], (size_t)weft_dtype_bytes(dtype));
}

/* The same, looked up: numbers come again after PERIOD elements.  Members lie evenly apart, so
 * that the first and the last say which they are.  A table a thread: ranks may be threads. */
static void tree(int n, const int32_t *member, int64_t k, void *out)
{
    static _Thread_local struct {
        int        n, first, last;
        weft_dtype dtype;
        bool       have[PERIOD];
        char       x[PERIOD][8];
    } sum;
    size_t size = (size_t)weft_dtype_bytes(dtype);
    int    at   = (int)(k % PERIOD);
    if (sum.n != n || sum.first != member[0] || sum.last != member[n - 1] ||
        sum.dtype != dtype) {
        memset(&sum, 0, sizeof sum);
        sum.n     = n;
        sum.first = member[0];
        sum.last  = member[n - 1];
        sum.dtype = dtype;
    }
    if (!sum.have[at]) add_up(n, member, at, sum.x[at]);
    sum.have[at] = true;
    memcpy(out, sum.x[at], size);
}

/* Where the first PERIOD of n elements stand, the others follow. */
static void repeat(void *p, int64_t n)
{
    int64_t size = weft_dtype_bytes(dtype);
    for (int64_t k = PERIOD; k < n; k += PERIOD)
        memcpy((char *)p + k * size, p,
               (size_t)((n - k < PERIOD ? n - k : PERIOD) * size));
}

static void store_all(void *p, int64_t n, int rank_)
{
    for (int64_t k = 0; k < n && k < PERIOD; k++) store(p, k, rank_, k);
    repeat(p, n);
}

/* Looks at element k: as stored by `from` (or a sum, from < 0) as its element `as`. */
static bool right(const void *p, int64_t k, int n, const int32_t *member, int from,
                  int64_t as)
{
    char   want[16];
    size_t size = (size_t)weft_dtype_bytes(dtype);
    if (from < 0)
        tree(n, member, as, want);
    else
        store(want, 0, from, as);
    return !memcmp((const char *)p + (size_t)k * size, want, size);
}

#define WANT(what, k, from, as)                                                          \
    do {                                                                                 \
        if (!right(out, (k), n, member, (from), (as)))                                   \
            return WEFT_FAIL(WEFT_ERR_NUMERIC, "%s of %lld %s: element %lld", what,      \
                             (long long)count, weft_dtype_name(dtype), (long long)(k));  \
    } while (0)

static weft_status sum_lanes(weft_comm *c, weft_comm_group *g, weft_collective kind,
                             weft_dtype t, const void *in, void *out, int64_t count,
                             int64_t unit, const weft_comm_lanes *l)
{
    return weft_comm_run(c, &(weft_comm_call){.group  = g,
                                              .kind   = kind,
                                              .dtype  = t,
                                              .tensor = {in, out, count, unit, l->stride},
                                              .n_lane = l->n_lane,
                                              .lane_share = l->share});
}

static weft_status run_shares(weft_comm *c, weft_comm_group *g, weft_collective kind,
                              weft_dtype t, const void *in, void *out, int64_t count,
                              int64_t unit)
{
    return sum_lanes(c, g, kind, t, in, out, count, unit, &(weft_comm_lanes){0});
}

/* Shares of different sizes, some of them empty. */
static weft_status call_shares(rank_state *r, weft_comm_group *g, int n,
                               const int32_t *member, int64_t count, int me, void *in,
                               void *out)
{
    static const int64_t unit[] = {1, 7, 256, 100000};
    size_t               size   = (size_t)weft_dtype_bytes(dtype);
    for (size_t u = 0; u < WEFT_COUNT(unit); u++) {
        int64_t lo   = weft_comm_share_at(count, unit[u], n, me);
        int64_t hi   = weft_comm_share_at(count, unit[u], n, me + 1);
        int64_t step = count > 5000 ? 61 : 1;
        WEFT_TRY(
            run_shares(r->c, g, WEFT_REDUCE_SCATTER, dtype, in, out, count, unit[u]));
        for (int64_t k = lo; k < hi; k += step) WANT("reduce_scatter", k - lo, -1, k);
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, dtype, NULL, NULL, 0));
        WEFT_TRY(run_shares(r->c, g, WEFT_ALL_GATHER, dtype,
                            (char *)in + (size_t)lo * size, out, count, unit[u]));
        for (int k = 0; k < n; k++)
            for (int64_t e = weft_comm_share_at(count, unit[u], n, k);
                 e < weft_comm_share_at(count, unit[u], n, k + 1); e += step)
                WANT("all_gather", e, member[k], e);
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, dtype, NULL, NULL, 0));
        memset(out, 0, (size_t)count * size); /* in at its place in out */
        if (hi > lo)
            memcpy((char *)out + (size_t)lo * size, (char *)in + (size_t)lo * size,
                   (size_t)(hi - lo) * size);
        WEFT_TRY(run_shares(r->c, g, WEFT_ALL_GATHER, dtype,
                            (char *)out + (size_t)lo * size, out, count, unit[u]));
        for (int k = 0; k < n; k++)
            for (int64_t e = weft_comm_share_at(count, unit[u], n, k);
                 e < weft_comm_share_at(count, unit[u], n, k + 1); e += step)
                WANT("all_gather in place", e, member[k], e);
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, dtype, NULL, NULL, 0));
    }
    return WEFT_OK;
}

/* One or two lanes each, the rest to one of them. */
static void deal_unevenly(int lanes, int n, int most, int32_t *share)
{
    for (int k = 0; k < n; k++) lanes -= share[k] = 1 + k % 2;
    share[most] += lanes;
}

/* Members with several terms: lanes are summed as if each had been a member. */
static weft_status call_lanes(rank_state *r, weft_comm_group *g, int n, int64_t room,
                              int me, void *in, void *out)
{
    int32_t leaf[8 * MAX_RANK];
    size_t  size = (size_t)weft_dtype_bytes(dtype);
    int     low  = 1;
    for (int i = 0; i < 8 * MAX_RANK; i++) leaf[i] = i;
    while (low < n) low *= 2;
    for (int turn = 0; turn < 5; turn++) { /* three equal, two by shares */
        int        lanes = turn < 3 ? low << turn : 4 * low;
        int32_t    share[MAX_RANK];
        weft_lanes d = {lanes, n, turn < 3 ? NULL : share};
        int        first, end, level[WEFT_LANES_MAX_TERM];
        deal_unevenly(lanes, n, turn == 3 ? 0 : n - 1, share);
        int64_t count = room / weft_lanes_most_terms(&d);
        bool    apart = count > 5;
        if (apart) count -= 5;
        weft_comm_lanes l      = {lanes, count + (apart ? 5 : 0), d.share};
        int64_t         step   = count > 5000 ? 61 : 1;
        const int32_t  *member = leaf;
        weft_lanes_of(&d, me, &first, &end);
        int n_term = weft_lanes_terms(first, end, level);
        for (int t = 0; t < n_term; first += 1 << level[t++]) {
            char *term = (char *)in + (size_t)(t * l.stride) * size;
            for (int64_t k = 0; k < count && k < PERIOD; k++)
                tree(1 << level[t], leaf + first, k, term + (size_t)k * size);
            repeat(term, count);
        }
        int was = n;
        WEFT_TRY(sum_lanes(r->c, g, WEFT_REDUCE_SCATTER, dtype, in, out, count, 7, &l));
        int64_t lo = weft_comm_share_at(count, 7, n, me),
                hi = weft_comm_share_at(count, 7, n, me + 1);
        n          = lanes;
        for (int64_t k = lo; k < hi; k += step)
            WANT("reduce_scatter of lanes", k - lo, -1, k);
        WEFT_TRY(sum_lanes(r->c, g, WEFT_ALL_REDUCE, dtype, in, out, count, 0, &l));
        for (int64_t k = 0; k < count; k += step) WANT("all_reduce of lanes", k, -1, k);
        void *other = out;
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, dtype, NULL, NULL, 0));
        WEFT_TRY(sum_lanes(r->c, g, WEFT_ALL_REDUCE, dtype, in, in, count, 0, &l));
        out = in;
        for (int64_t k = 0; k < count; k += step)
            WANT("all_reduce of lanes in place", k, -1, k);
        WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, dtype, NULL, NULL, 0));
        out = other;
        n   = was;
    }
    return WEFT_OK;
}

static weft_status call_all(rank_state *r, weft_comm_group *g, int n,
                            const int32_t *member, int64_t count, void *in, void *out)
{
    int64_t all = count * n, step = count > 5000 ? 61 : 1;
    int     me    = 0;
    void   *spare = out;
    for (int i = 0; i < n; i++)
        if (member[i] == r->rank) me = i;
    store_all(in, all, r->rank);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, dtype, in, out, count));
    for (int64_t k = 0; k < count; k += step) WANT("all_reduce", k, -1, k);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_REDUCE_SCATTER, dtype, in, out, all));
    for (int64_t k = 0; k < count; k += step)
        WANT("reduce_scatter", k, -1, me * count + k);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, dtype, NULL, NULL, 0));
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_GATHER, dtype, in, out, count));
    for (int64_t k = 0; k < all; k += step)
        WANT("all_gather", k, member[k / count], k % count);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_TO_ALL, dtype, in, out, all));
    for (int64_t k = 0; k < all; k += step)
        WANT("all_to_all", k, member[k / count], me * count + k % count);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BROADCAST, dtype, in, out, count));
    for (int64_t k = 0; k < count; k += step) WANT("broadcast", k, member[0], k);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_SHIFT, dtype, in, out, count));
    for (int64_t k = 0; k < count; k += step)
        WANT("shift", k, member[(me + n - 1) % n], k);
    WEFT_TRY(call_shares(r, g, n, member, count, me, in, out));
    /* in place, last: it changes in */
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, dtype, in, in, count));
    out = in;
    for (int64_t k = 0; k < count; k += step) WANT("all_reduce in place", k, -1, k);
    store_all(in, count, r->rank);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BROADCAST, dtype, in, in, count));
    for (int64_t k = 0; k < count; k += step) WANT("broadcast in place", k, member[0], k);
    store_all(in, count, r->rank);
    out = (char *)in + me * count * weft_dtype_bytes(dtype);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_REDUCE_SCATTER, dtype, in, out, all));
    for (int64_t k = 0; k < count; k += step)
        WANT("reduce_scatter in place", k, -1, me * count + k);
    WEFT_TRY(weft_comm_collective(r->c, g, WEFT_BARRIER, dtype, NULL, NULL, 0));
    if (dtype == WEFT_DTYPE_BF16) return WEFT_OK; /* a term is rounded already */
    return call_lanes(r, g, n, all, me, in, spare);
}

static weft_status all_kinds(rank_state *r)
{
    weft_comm_group *g;
    void            *in = NULL, *out = NULL;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    for (int i = 0; i < n_count; i++) {
        int64_t bytes = counts[i] * r->n * weft_dtype_bytes(dtype);
        WEFT_TRY(get(r, bytes, &in));
        WEFT_TRY(get(r, bytes, &out));
        WEFT_TRY(call_all(r, g, r->n, everyone, counts[i], in, out));
        put(r, in);
        put(r, out);
    }
    return WEFT_OK;
}

/* Few enough for one host of two are near alone, which is shm. */
static int least_ranks(transport over, int n)
{
    return over == BOTH && n < 3 ? 3 : n;
}

/* From n_lo to n_hi ranks; make test takes every step-th number, of kinds of memory but the first
 * and under sanitizers every third. */
static void sweep(int n_lo, int n_hi, int step)
{
    for (int over = 0; over < N_TRANSPORT; over++)
        for (where = 0; where < n_memory(over); where++)
            for (int n = least_ranks((transport)over, n_lo); n <= n_hi;
                 n += TEST_FEW(WEFT_TEST_SANITIZED || where ? 3 : step)) {
                run_ranks((transport)over, n, 60, all_kinds);
                all_ok((transport)over, n);
            }
}

/* Three hosts of two, two of four, two of three (whose sums are flat): by levels, to the last
 * bit. */
static void several_ranks_on_each_host(void **state)
{
    (void)state;
    static const int shape[][2] = {{6, 2}, {8, 4}, {6, 3}, {5, 4}};
    n_count                     = 3;
    memcpy(counts, (int64_t[]){1003, 5, 70001}, sizeof(int64_t) * 3);
    for (size_t i = 0; i < WEFT_COUNT(shape) && N_TRANSPORT > BOTH; i += TEST_STRIDE(2)) {
        per_host = shape[i][1];
        where    = i % 2 ? MIXED : SLAB;
        for (int t = 0; t < 2; t++) {
            dtype = t ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32;
            run_ranks(BOTH, shape[i][0], 60, all_kinds);
            all_ok(BOTH, shape[i][0]);
        }
    }
    per_host = 2;
    dtype    = WEFT_DTYPE_F32;
}

static void collectives(void **state)
{
    (void)state;
    dtype   = WEFT_DTYPE_F32;
    n_count = 5;
    memcpy(counts, (int64_t[]){1003, 0, 1, 17, 20000}, sizeof(int64_t) * 5);
    sweep(1, MAX_RANK, 2);
}

/* Several chunks, streaming stores, slices. */
static void large_collectives(void **state)
{
    (void)state;
    dtype     = WEFT_DTYPE_F32;
    n_count   = 1;
    counts[0] = 300007;
    sweep(TEST_LONG ? 2 : 3, 5, 2);
}

static void every_type_that_can_be_summed(void **state)
{
    (void)state;
    static const weft_dtype t[] = {WEFT_DTYPE_F64, WEFT_DTYPE_BF16, WEFT_DTYPE_I32,
                                   WEFT_DTYPE_U32, WEFT_DTYPE_I64,  WEFT_DTYPE_U64};
    n_count                     = 1;
    counts[0]                   = 1003;
    for (size_t i = 0; i < WEFT_COUNT(t); i++) {
        dtype = t[i];
        sweep(3, 5, 2);
    }
    dtype = WEFT_DTYPE_F32;
}

static weft_status sum_of_bools(rank_state *r)
{
    weft_comm_group *g;
    char             in[2] = {0}, out[2];
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (weft_comm_collective(r->c, g, WEFT_ALL_REDUCE, WEFT_DTYPE_BOOL, in, out, 2) !=
        WEFT_ERR_ARG)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "truth was summed");
    return WEFT_OK;
}

static void types_that_cannot(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 20, sum_of_bools);
        all_ok((transport)over, 2);
    }
}

static void bf16_is_rounded_once(void **state)
{
    (void)state;
    /* 1 + 2^-8 + 2^-8: rounding after each addition would give 1 */
    uint16_t    a = 0x3f80, b = 0x3b80, c = 0x3b80, y;
    const void *in[] = {&a, &b, &c};
    assert_int_equal(weft_comm_sum(WEFT_DTYPE_BF16, 3, in, &y, 1), WEFT_OK);
    assert_int_equal(y, 0x3f81);
    assert_int_equal(weft_comm_sum(WEFT_DTYPE_BOOL, 1, in, &y, 1), WEFT_ERR_ARG);
}

/* ---- groups ---- */

/* Every rank is in some of these; all go through them in the same order, so nobody waits in a
 * circle. */
static weft_status overlapping(rank_state *r)
{
    static const struct {
        int     n;
        int32_t rank[MAX_RANK];
    } group[] = {{3, {0, 1, 2}},    {4, {2, 3, 4, 5}}, {2, {5, 0}},
                 {4, {6, 4, 2, 0}}, {2, {7, 6}},       {8, {7, 6, 5, 4, 3, 2, 1, 0}}};
    weft_comm_group *g[WEFT_COUNT(group)][3];
    int              in[WEFT_COUNT(group)] = {0};
    float            x[8 * 40], y[8 * 40];
    for (size_t i = 0; i < WEFT_COUNT(group); i++) {
        for (int k = 0; k < group[i].n; k++)
            if (group[i].rank[k] == r->rank) in[i] = 1;
        for (int tag = 0; in[i] && tag < 3; tag++)
            WEFT_TRY(
                weft_comm_open_group(r->c, group[i].n, group[i].rank, tag, &g[i][tag]));
    }
    for (int turn = 0; turn < 30; turn++)
        for (size_t i = 0; i < WEFT_COUNT(group); i++)
            if (in[i])
                WEFT_TRY(call_all(r, g[i][turn % 3], group[i].n, group[i].rank,
                                  1 + turn % 40, x, y));
    return WEFT_OK;
}

static void overlapping_groups_and_tags(void **state)
{
    (void)state;
    dtype = WEFT_DTYPE_F32;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 8, 60, overlapping);
        all_ok((transport)over, 8);
    }
}

static weft_status disagree(rank_state *r)
{
    weft_comm_group *g;
    float            x[8] = {0};
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    return weft_comm_collective(r->c, g, r->rank ? WEFT_BROADCAST : WEFT_ALL_REDUCE,
                                WEFT_DTYPE_F32, x, x, 8);
}

static void different_calls_do_not_pass(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 0.3, disagree);
        assert_true(rank[0].st == WEFT_ERR_ARG || rank[1].st == WEFT_ERR_ARG);
        assert_true(rank[0].st != WEFT_OK && rank[1].st != WEFT_OK);
    }
}

static weft_status open_wrongly(rank_state *r)
{
    weft_comm_channel *ch;
    weft_comm_group   *g;
    bool               ok = weft_comm_open_group(r->c, 4, evens, 1, &g) == WEFT_ERR_ARG;
    ok = ok && weft_comm_open_channel(r->c, r->rank, WEFT_COMM_SEND, 1, 8, 1, &ch) ==
                   WEFT_ERR_ARG;
    /* the two sides disagree: whoever comes second is told */
    weft_status st =
        weft_comm_open_channel(r->c, !r->rank, r->rank ? WEFT_COMM_RECV : WEFT_COMM_SEND,
                               9, 8 + r->rank, 1, &ch);
    r->count = st == WEFT_ERR_ARG;
    return ok ? WEFT_OK : WEFT_FAIL(WEFT_ERR_INTERNAL, "was opened");
}

static void bad_openings(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 5, open_wrongly);
        all_ok((transport)over, 2);
        assert_int_equal(rank[0].count + rank[1].count, 1);
    }
}

/* ---- messages ---- */

static int     credits;
static int64_t message_bytes;

static weft_status ring_of_messages(rank_state *r)
{
    weft_comm_channel *to[3], *from[3];
    int                next = (r->rank + 1) % r->n, prev = (r->rank + r->n - 1) % r->n;
    void              *x, *y;
    int64_t            words = message_bytes / 8, turns = words > 1000 ? 12 : 300;
    WEFT_TRY(get(r, message_bytes, &x));
    WEFT_TRY(get(r, message_bytes, &y));
    for (int tag = 0; tag < 3; tag++) {
        WEFT_TRY(weft_comm_open_channel(r->c, next, WEFT_COMM_SEND, tag, message_bytes,
                                        credits, &to[tag]));
        WEFT_TRY(weft_comm_open_channel(r->c, prev, WEFT_COMM_RECV, tag, message_bytes,
                                        credits, &from[tag]));
    }
    for (int64_t i = 0; i < turns; i++) {
        int tag = (int)(i % 3);
        for (int64_t k = 0; k < words; k++)
            ((int64_t *)x)[k] = i * 1000000 + k * 10 + r->rank;
        /* without credits someone has to begin by receiving */
        if (r->rank == 0) WEFT_TRY(weft_comm_send(r->c, to[tag], x, message_bytes));
        WEFT_TRY(weft_comm_recv(r->c, from[tag], y, message_bytes));
        if (r->rank != 0) WEFT_TRY(weft_comm_send(r->c, to[tag], x, message_bytes));
        for (int64_t k = 0; k < words; k++)
            if (((int64_t *)y)[k] != i * 1000000 + k * 10 + prev)
                return WEFT_FAIL(WEFT_ERR_NUMERIC, "message %d", (int)i);
    }
    put(r, x);
    put(r, y);
    return WEFT_OK;
}

static void messages_in_order(void **state)
{
    (void)state;
    static const int64_t bytes[] = {8, 0, 800000};
    for (int over = 0; over < N_TRANSPORT; over++)
        for (where = 0; where < n_memory(over); where += TEST_STRIDE(2))
            for (credits = 0; credits <= 3; credits += TEST_FEW(3))
                for (int i = 0; i < 3; i++) {
                    message_bytes = bytes[i];
                    run_ranks((transport)over, 3, 30, ring_of_messages);
                    all_ok((transport)over, 3);
                }
}

static weft_status wrong_size(rank_state *r)
{
    weft_comm_channel *ch;
    char               x[16] = {0};
    WEFT_TRY(weft_comm_open_channel(
        r->c, !r->rank, r->rank ? WEFT_COMM_RECV : WEFT_COMM_SEND, 1, 16, 1, &ch));
    if (!r->rank) {
        if (weft_comm_send(r->c, ch, x, 17) != WEFT_ERR_ARG)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "sent too much");
        return weft_comm_send(r->c, ch, x, 12);
    }
    return weft_comm_recv(r->c, ch, x, 16) == WEFT_ERR_ARG
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_INTERNAL, "received less");
}

static void sizes_must_agree(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 5, wrong_size);
        all_ok((transport)over, 2);
    }
}

/* A sender with one credit knows without waiting whether its message was taken. */
static weft_status ask_for_room(rank_state *r)
{
    weft_comm_channel *ch;
    weft_comm_group   *g;
    char               x = 0;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    WEFT_TRY(weft_comm_open_channel(
        r->c, !r->rank, r->rank ? WEFT_COMM_RECV : WEFT_COMM_SEND, 1, 1, 1, &ch));
    for (int turn = 0; turn < 3; turn++) {
        bool can = r->rank || weft_comm_can_send(r->c, ch);
        if (!r->rank) WEFT_TRY(weft_comm_send(r->c, ch, &x, 1));
        bool full = !r->rank && !weft_comm_can_send(r->c, ch);
        WEFT_TRY(
            weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
        if (r->rank) WEFT_TRY(weft_comm_recv(r->c, ch, &x, 1));
        for (int i = 0; !r->rank && i < 2000 && !weft_comm_can_send(r->c, ch); i++)
            usleep(2000);
        if (!can || (!r->rank && !full))
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "turn %d: can %d, full %d", turn, can,
                             full);
    }
    return r->rank || weft_comm_can_send(r->c, ch)
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_INTERNAL, "still full");
}

static void a_sender_knows_of_room(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 10, ask_for_room);
        all_ok((transport)over, 2);
    }
}

/* ---- those who do not come ---- */

static weft_status rank_2_is_late(rank_state *r)
{
    weft_comm_group *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (r->rank == 2) {
        usleep(400000);
        return WEFT_OK;
    }
    return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

static weft_status nobody_receives(rank_state *r)
{
    weft_comm_channel *ch;
    char               x = 0;
    if (r->rank == 1) {
        usleep(400000);
        return WEFT_OK;
    }
    if (r->rank == 0) {
        WEFT_TRY(weft_comm_open_channel(r->c, 1, WEFT_COMM_SEND, 1, 1, 0, &ch));
        return weft_comm_send(r->c, ch, &x, 1);
    }
    WEFT_TRY(weft_comm_open_channel(r->c, 1, WEFT_COMM_RECV, 2, 1, 1, &ch));
    return weft_comm_recv(r->c, ch, &x, 1);
}

static void the_late_are_named(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        double t0 = weft_clock_s();
        run_ranks((transport)over, 4, 0.1, rank_2_is_late);
        for (int i = 0; i < 4; i++) {
            if (i == 2) continue;
            assert_int_equal(rank[i].st, WEFT_ERR_PEER);
            if (over != HOSTS) /* where nobody can be asked whom he waits for himself */
                assert_non_null(strstr(rank[i].text, "rank 2 is silent"));
        }
        run_ranks((transport)over, 3, 0.1, nobody_receives);
        assert_non_null(strstr(rank[0].text, "rank 1 is silent"));
        assert_non_null(strstr(rank[2].text, "rank 1 is silent"));
        assert_true(weft_clock_s() - t0 < 20);
    }
}

static weft_status rank_1_gives_up(rank_state *r)
{
    weft_comm_channel *ch;
    weft_comm_group   *g;
    char               x;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    if (r->rank == 1) {
        usleep(20000);
        weft_comm_abort(r->c, "out of paper");
        /* its own operations end too, and those of all that start later */
        return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
    }
    if (r->rank == 0)
        return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
    WEFT_TRY(weft_comm_open_channel(r->c, 0, WEFT_COMM_RECV, 2, 1, 1, &ch));
    return weft_comm_recv(r->c, ch, &x, 1);
}

static void giving_up_ends_all(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        double t0 = weft_clock_s();
        run_ranks((transport)over, 3, 60, rank_1_gives_up);
        assert_true(weft_clock_s() - t0 < 30);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(rank[i].st, WEFT_ERR_PEER);
            assert_string_equal(rank[i].text, "rank 1 gave up: out of paper");
        }
    }
}

static weft_status barrier(rank_state *r, weft_comm_group *g)
{
    return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

static weft_status new_epoch(rank_state *r)
{
    weft_comm_channel *ch;
    weft_comm_group   *g;
    int                x = 1;
    WEFT_TRY(weft_comm_open_group(r->c, 2, everyone, 5, &g));
    WEFT_TRY(weft_comm_open_channel(
        r->c, !r->rank, r->rank ? WEFT_COMM_RECV : WEFT_COMM_SEND, 1, 4, 3, &ch));
    if (r->rank == 0) {
        WEFT_TRY(weft_comm_send(r->c, ch, &x, 4));
        x = 2;
        weft_comm_set_epoch(r->c, 7);
        WEFT_TRY(weft_comm_send(r->c, ch, &x, 4));
    } else {
        weft_comm_set_epoch(r->c, 7);
        WEFT_TRY(weft_comm_recv(r->c, ch, &x, 4));
        if (x != 2) return WEFT_FAIL(WEFT_ERR_NUMERIC, "an old message came through");
    }
    WEFT_TRY(barrier(r, g));
    weft_comm_set_epoch(r->c, 3);
    if (barrier(r, g) != WEFT_ERR_PEER)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "an old member was let in");
    return WEFT_OK;
}

/* Rank 0 waits in the old epoch until rank 1 has moved on, and follows. */
static weft_status move_on(rank_state *r)
{
    weft_comm_group *g;
    WEFT_TRY(weft_comm_open_group(r->c, 3, everyone, 5, &g));
    WEFT_TRY(barrier(r, g));
    if (r->rank) {
        usleep(50000);
        if (r->rank == 2) weft_comm_abort(r->c, "a new view");
        weft_comm_set_epoch(r->c, 1);
    } else {
        if (barrier(r, g) != WEFT_ERR_PEER)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "passed a barrier alone");
        weft_comm_set_epoch(r->c, 1);
    }
    for (int i = 0; i < 3; i++) WEFT_TRY(barrier(r, g));
    return WEFT_OK;
}

static void older_epochs_are_dropped(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++) {
        run_ranks((transport)over, 2, 20, new_epoch);
        all_ok((transport)over, 2);
        run_ranks((transport)over, 3, 20, move_on);
        all_ok((transport)over, 3);
    }
}

/* Its good-bye may come before the link has said that our last message to it is sent. */
static weft_status meet_and_part(rank_state *r)
{
    weft_comm_group *g;
    WEFT_TRY(weft_comm_open_group(r->c, r->n, everyone, 5, &g));
    return weft_comm_collective(r->c, g, WEFT_BARRIER, WEFT_DTYPE_F32, NULL, NULL, 0);
}

static weft_status part_at_once(rank_state *r)
{
    (void)r;
    return WEFT_OK;
}

static void who_leaves_in_order_is_not_missed(void **state)
{
    (void)state;
    for (int over = 0; over < N_TRANSPORT; over++)
        for (int i = 0; i < (TEST_LONG ? 100 : WEFT_TEST_SANITIZED ? 4 : 12); i++) {
            run_ranks((transport)over, 2 + i % 3, 20,
                      i % 2 ? meet_and_part : part_at_once);
            all_ok((transport)over, 2 + i % 3);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(collectives),
        test_sanitized(large_collectives),
        test_plain(several_ranks_on_each_host),
        test_sanitized(every_type_that_can_be_summed),
        cmocka_unit_test(types_that_cannot),
        cmocka_unit_test(bf16_is_rounded_once),
        test_plain(overlapping_groups_and_tags),
        test_sanitized(different_calls_do_not_pass),
        cmocka_unit_test(bad_openings),
        test_sanitized(messages_in_order),
        cmocka_unit_test(a_sender_knows_of_room),
        cmocka_unit_test(sizes_must_agree),
        test_plain(the_late_are_named),
        cmocka_unit_test(giving_up_ends_all),
        cmocka_unit_test(older_epochs_are_dropped),
        test_plain(who_leaves_in_order_is_not_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
