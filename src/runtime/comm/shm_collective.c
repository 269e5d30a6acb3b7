/* Collectives in shared memory.
 *
 * All members arrive at a barrier, each having left its call: what it wants, and where its memory
 *     lies. direct    all memory lies in slabs: everyone does his share straight between them,
 *               then a second barrier.
 *               Sums: position k owns the k-th slice, adds it out of all inputs and stores it
 *               into all outputs. Where ranks share processors and the call is small, no second
 *               barrier: whoever is awake when all have arrived does everyone's share at the
 *               first (shm_group.c).
 *     staged    somebody's does not: inputs go through the members' stages, chunk by chunk.  The
 *               first chunk is there before the first barrier, so a small call has only that one.
 *
 * Slots: what is written to slot t & 1 of a stage (or of the calls) before the barrier of turn t
 * is read between it and the next barrier, and written again only for turn t + 2.  So no barrier
 * is needed for leaving. */
#include "comm/shm_priv.h"

#include <string.h>

#include "base/lanes.h"
#include "comm/vec.h"

enum {
    STREAM = 1 << 20,   /* sums above this go past the caches */
    CHUNK  = 256 << 10, /* stages of all members should stay in cache */
    SLICED = 4,         /* from so many members on, a staged sum is divided among them */
    SMALL  = 256 << 10, /* where ranks share processors: done at the first barrier */
    ALONE  = 16 << 10,  /* by one of them */
};

typedef struct job {
    weft_comm_group *g;
    weft_collective  kind;
    weft_dtype       t;
    /* elements of a member, in reduce_scatter and all_to_all: the most */
    int64_t        size, count, share;
    int64_t        unit; /* 0: equal shares; else count is that of the whole, in units */
    const char    *in;
    char          *out;
    int64_t        stride;     /* of terms */
    int            n_lane;     /* 0: one term of each member */
    const int32_t *lane_share; /* weft_comm_lanes */
    uint32_t       dealt;
    int        n_in; /* what is added: members' terms, of these levels, at these places */
    const int *level;
    const void     **term;
    weft_comm_terms *terms;
    int              n_part; /* tensors in this meeting; 0: this one */
} job;

/* What term i of all is. */
static int who(const job *j, int i)
{
    return j->terms ? j->terms->who[i] : i;
}
static int which(const job *j, int i)
{
    return j->terms ? j->terms->which[i] : 0;
}
static int most_terms(const job *j)
{
    return j->terms ? j->terms->most : 1;
}
static int terms_of(const job *j, int k)
{
    int first, end;
    if (!j->terms) return 1;
    weft_lanes_of(&(weft_lanes){j->n_lane, j->g->n, j->lane_share}, k, &first, &end);
    return weft_lanes_terms(first, end, NULL);
}

static bool has_sum(weft_collective k)
{
    return k == WEFT_ALL_REDUCE || k == WEFT_REDUCE_SCATTER;
}

static bool by_shares(weft_collective k)
{
    return k == WEFT_REDUCE_SCATTER || k == WEFT_ALL_TO_ALL;
}

/* Where share k begins in the whole, and its elements. */
static int64_t share_at(const job *j, int k)
{
    return j->unit ? weft_comm_share_at(j->count, j->unit, j->g->n, k) : k * j->share;
}
static int64_t share_of(const job *j, int k)
{
    return share_at(j, k + 1) - share_at(j, k);
}

static int64_t in_count(const job *j)
{
    if (j->terms) return j->count + (terms_of(j, j->g->me) - 1) * j->stride;
    return j->unit && j->kind == WEFT_ALL_GATHER ? share_of(j, j->g->me) : j->count;
}

static int64_t out_bytes_of(const job *j, int k)
{
    if (!j->unit) return -1;
    if (j->kind == WEFT_REDUCE_SCATTER) return share_of(j, k) * j->size;
    return j->count * j->size;
}

static int64_t out_bytes(const job *j)
{
    if (j->unit) return out_bytes_of(j, j->g->me);
    if (j->kind == WEFT_REDUCE_SCATTER) return j->share * j->size;
    if (j->kind == WEFT_ALL_GATHER) return j->count * j->size * j->g->n;
    return j->count * j->size;
}

/* Copies go past the caches where what all members get does not fit there (measured on 32 MB, 2
 * ranks, all_gather
 * of 16 MB: 0.78 ms against 1.06; 4 ranks: 2.5 against 1.9). */
static bool copies_stream(const job *j)
{
    return out_bytes(j) > STREAM && out_bytes(j) * j->g->n > j->g->e->cache_bytes;
}

/* out[k] = the sum, all terms to g->out[0..n_out-1]. */
static void sum_to(const job *j, int n_out, int64_t count, bool stream)
{
    enum {
        BLOCK = 2048
    };
    weft_comm_group *g = j->g;
    if (weft_comm__vec_sum(j->t, j->n_in, j->term, j->level, n_out, g->out, count,
                           stream))
        return;
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        (void)weft_comm__sum_plain(j->t, j->n_in, j->term, j->level, g->out[0], n);
        for (int k = 1; k < n_out; k++)
            memmove(g->out[k], g->out[0], (size_t)(n * j->size));
        for (int k = 0; k < j->n_in; k++)
            j->term[k] = (const char *)j->term[k] + n * j->size;
        for (int k = 0; k < n_out; k++) g->out[k] = (char *)g->out[k] + n * j->size;
    }
}

/* Slice k of n, in whole lines. */
static int64_t slice_at(const job *j, int64_t count, int k)
{
    int64_t line = 64 / j->size, lines = (count + line - 1) / line;
    int64_t at = lines * k / j->g->n * line;
    return at < count ? at : count;
}

/* ---- direct ---- */

static const shm_call *call_of(const weft_comm_group *g, int k, uint32_t turn)
{
    return &g->round->seat[k].call[turn & 1];
}

/* Pointers to the members' memory, as they gave it, moved on by `from` elements. */
static void aim(const job *j, const shm_call *const *call, int64_t from)
{
    weft_comm_group *g = j->g;
    for (int i = 0; i < j->n_in; i++)
        j->term[i] =
            g->e->base + call[who(j, i)]->in + (from + which(j, i) * j->stride) * j->size;
    for (int k = 0; k < g->n; k++) g->out[k] = g->e->base + call[k]->out + from * j->size;
}

/* One memory for all results: written once. */
static bool out_is_shared(const weft_comm_group *g, const shm_call *const *call)
{
    for (int k = 1; k < g->n; k++)
        if (call[k]->out != call[0]->out) return false;
    return true;
}

static bool overlap(int64_t a, int64_t b, int64_t bytes)
{
    return a < b + bytes && b < a + bytes;
}

/* A piece at a time, so that a death is noticed on the way. */
static weft_status add_slices(const job *j, const shm_call *const *call, int64_t lo,
                              int64_t hi, char *share, int n_out, bool stream)
{
    int64_t piece = SHM_PIECE / j->size;
    for (int64_t at = lo; at < hi; at += piece) {
        WEFT_TRY(weft_comm__shm_check(j->g->e));
        aim(j, call, at);
        if (share) j->g->out[0] = share + (at - lo) * j->size;
        sum_to(j, n_out, hi - at < piece ? hi - at : piece, stream);
    }
    return WEFT_OK;
}

static weft_status copy(const job *j, char *out, const char *in, int64_t bytes,
                        bool stream)
{
    if (out == in) return WEFT_OK;
    for (int64_t at = 0; at < bytes; at += SHM_PIECE) {
        WEFT_TRY(weft_comm__shm_check(j->g->e));
        weft_comm__vec_copy(out + at, in + at,
                            bytes - at < SHM_PIECE ? bytes - at : SHM_PIECE, stream);
    }
    return WEFT_OK;
}

/* What is to do for members first .. end - 1: one after the other, but of all_reduce one slice. */
static weft_status sum_for(const job *j, const shm_call *const *call, int first, int end)
{
    weft_comm_group *g     = j->g;
    int64_t          bytes = j->count * j->size;
    bool shared = out_is_shared(g, call), big = out_bytes(j) > STREAM && !j->terms;
    for (int k = 0; k < g->n; k++)
        if (overlap(call[k]->in, call[0]->out, bytes)) big = false;
    return add_slices(j, call, slice_at(j, j->count, first), slice_at(j, j->count, end),
                      NULL, shared ? 1 : g->n, big && shared);
}

static weft_status scatter_for(const job *j, const shm_call *const *call, int me)
{
    bool big = out_bytes(j) > STREAM && !j->terms;
    for (int k = 0; k < j->g->n; k++)
        if (overlap(call[k]->in, call[me]->out, j->count * j->size)) big = false;
    return add_slices(j, call, share_at(j, me), share_at(j, me + 1),
                      j->g->e->base + call[me]->out, 1, big);
}

static weft_status gather_for(const job *j, const shm_call *const *call, int me)
{
    weft_comm_group *g      = j->g;
    const char      *base   = g->e->base;
    char            *out    = g->e->base + call[me]->out;
    int64_t          bytes  = j->count * j->size;
    bool             shared = out_is_shared(g, call);
    bool             big = shared ? out_bytes(j) > STREAM && !j->terms : copies_stream(j);
    for (int i = 0, k = me; i < g->n && j->unit; i++, k = (k + 1) % g->n)
        WEFT_TRY(copy(j, out + share_at(j, k) * j->size, base + call[k]->in,
                      share_of(j, k) * j->size, big));
    if (j->unit) return WEFT_OK;
    if (shared) return copy(j, out + me * bytes, base + call[me]->in, bytes, big);
    for (int i = 0, k = me; i < g->n; i++, k = (k + 1) % g->n)
        WEFT_TRY(copy(j, out + k * bytes, base + call[k]->in, bytes, big));
    return WEFT_OK;
}

static weft_status copy_for(const job *j, const shm_call *const *call, int me)
{
    weft_comm_group *g     = j->g;
    const char      *base  = g->e->base;
    char            *out   = g->e->base + call[me]->out;
    int64_t          bytes = j->count * j->size, part = j->share * j->size;
    switch (j->kind) {
    case WEFT_ALL_TO_ALL:
        for (int i = 0, k = me; i < g->n; i++, k = (k + 1) % g->n)
            WEFT_TRY(copy(j, out + k * part, base + call[k]->in + me * part, part,
                          copies_stream(j)));
        return WEFT_OK;
    case WEFT_BROADCAST:
        if (out_is_shared(g, call) && me) return WEFT_OK;
        return copy(j, out, base + call[0]->in, bytes, out_bytes(j) > STREAM);
    case WEFT_SHIFT:
        return copy(j, out, base + call[(me + g->n - 1) % g->n]->in, bytes,
                    copies_stream(j));
    default: return WEFT_OK;
    }
}

static weft_status do_pieces(void *job_, int first, int end)
{
    const job             *j    = job_;
    const shm_call *const *call = j->g->call;
    if (j->kind == WEFT_ALL_REDUCE) return sum_for(j, call, first, end);
    for (int k = first; k < end; k++)
        WEFT_TRY(j->kind == WEFT_REDUCE_SCATTER ? scatter_for(j, call, k)
                 : j->kind == WEFT_ALL_GATHER   ? gather_for(j, call, k)
                                                : copy_for(j, call, k));
    return WEFT_OK;
}

/* ---- staged ---- */

/* Elements that a chunk takes of each share, or of in. */
static int64_t chunk_count(const job *j)
{
    int64_t bytes = j->g->e->crowded ? SHM_STAGE : CHUNK;
    int64_t n     = bytes / j->size / (by_shares(j->kind) ? j->g->n : 1) / most_terms(j);
    if (n < 64) return n > 1 ? n : 1;
    return n / 64 * 64;
}

static int64_t total_count(const job *j)
{
    if (j->unit) return j->share;
    return by_shares(j->kind) ? j->share : j->count;
}

static weft_status populate_bytes(weft_comm_group *g, int64_t need)
{
    if (need <= g->staged) return WEFT_OK;
    need = (need + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
    for (int k = 0; k < 2; k++)
        WEFT_TRY(weft_comm__shm_populate(g->stage[g->me] + k * SHM_STAGE, need));
    g->e->c.bytes += 2 * (need - g->staged);
    g->staged = (int)need;
    return WEFT_OK;
}

static weft_status populate(const job *j)
{
    int64_t most = chunk_count(j) < total_count(j) ? chunk_count(j) : total_count(j);
    return populate_bytes(j->g, most * j->size * (by_shares(j->kind) ? j->g->n : 1) *
                                    most_terms(j));
}

static char *stage_at(const weft_comm_group *g, int k, uint32_t turn)
{
    return g->stage[k] + (turn & 1) * SHM_STAGE;
}

/* How many of elements lo .. lo + n - 1 share k has. */
static int64_t clip(const job *j, int k, int64_t lo, int64_t n)
{
    if (!j->unit) return n;
    int64_t left = share_of(j, k) - lo;
    return left < 0 ? 0 : left < n ? left : n;
}

/* Elements lo .. lo + n - 1 of in (of each share) into the own stage. */
static void stage_term(const job *j, const char *in, char *to, int64_t lo, int64_t n)
{
    weft_comm_group *g     = j->g;
    int64_t          bytes = n * j->size;
    if (!bytes || (j->kind == WEFT_BROADCAST && g->me)) return;
    if (!by_shares(j->kind)) {
        int64_t have = j->terms ? bytes : clip(j, g->me, lo, n) * j->size;
        if (have) memcpy(to, in + lo * j->size, (size_t)have);
        return;
    }
    for (int k = 0; k < g->n; k++) {
        int64_t have = clip(j, k, lo, n) * j->size;
        if (have)
            memcpy(to + k * bytes, in + (share_at(j, k) + lo) * j->size, (size_t)have);
    }
}

static int64_t staged_term(const job *j, int64_t n)
{
    return n * j->size * (by_shares(j->kind) ? j->g->n : 1);
}

static void stage(const job *j, uint32_t turn, int64_t lo, int64_t n)
{
    char *to = stage_at(j->g, j->g->me, turn);
    for (int i = 0; i < terms_of(j, j->g->me); i++)
        stage_term(j, j->in + i * j->stride * j->size, to + i * staged_term(j, n), lo, n);
}

/* Where the members' terms of n elements lie, from element `skip` on. */
static void aim_staged(const job *j, uint32_t turn, int64_t n, int64_t skip)
{
    for (int i = 0; i < j->n_in; i++)
        j->term[i] = stage_at(j->g, who(j, i), turn) + which(j, i) * staged_term(j, n) +
                     skip * j->size;
}

/* The same elements out of all stages. */
static void take(const job *j, uint32_t turn, int64_t lo, int64_t n)
{
    weft_comm_group *g     = j->g;
    int64_t          bytes = n * j->size;
    char            *out   = j->out + lo * j->size;
    if (!bytes) return;
    switch (j->kind) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE_SCATTER: {
        aim_staged(j, turn, n, j->kind == WEFT_ALL_REDUCE ? 0 : g->me * n);
        g->out[0] = out;
        if (j->kind == WEFT_REDUCE_SCATTER) n = clip(j, g->me, lo, n);
        if (n) sum_to(j, 1, n, out_bytes(j) > STREAM && j->in != j->out);
        return;
    }
    case WEFT_ALL_GATHER:
        for (int k = 0; k < g->n && j->unit; k++)
            if (clip(j, k, lo, n))
                weft_comm__vec_copy(out + share_at(j, k) * j->size, stage_at(g, k, turn),
                                    clip(j, k, lo, n) * j->size, out_bytes(j) > STREAM);
        if (j->unit) return;
        for (int k = 0; k < g->n; k++)
            weft_comm__vec_copy(out + k * j->count * j->size, stage_at(g, k, turn), bytes,
                                out_bytes(j) > STREAM);
        return;
    case WEFT_ALL_TO_ALL:
        for (int k = 0; k < g->n; k++)
            weft_comm__vec_copy(out + k * j->share * j->size,
                                stage_at(g, k, turn) + g->me * bytes, bytes,
                                out_bytes(j) > STREAM);
        return;
    case WEFT_BROADCAST:
        if (g->me || j->in != j->out)
            memcpy(out, g->me ? stage_at(g, 0, turn) : j->in + lo * j->size,
                   (size_t)bytes);
        return;
    case WEFT_SHIFT:
        weft_comm__vec_copy(out, stage_at(g, (g->me + g->n - 1) % g->n, turn), bytes,
                            out_bytes(j) > STREAM);
        return;
    default: return;
    }
}

/* A staged sum divided among the members: each adds its slice into the other slot of its stage,
 * from where all take it after one more barrier. */
static weft_status take_sliced(const job *j, uint32_t turn, int64_t lo, int64_t n)
{
    weft_comm_group *g  = j->g;
    int64_t          me = slice_at(j, n, g->me), end = slice_at(j, n, g->me + 1);
    aim_staged(j, turn, n, me);
    g->out[0] = stage_at(g, g->me, turn + 1) + me * j->size;
    if (me < end) sum_to(j, 1, end - me, false);
    WEFT_TRY(weft_comm__shm_barrier(g, j->kind));
    for (int k = 0; k < g->n; k++) {
        int64_t from = slice_at(j, n, k), to = slice_at(j, n, k + 1);
        if (from < to)
            weft_comm__vec_copy(
                j->out + (lo + from) * j->size, stage_at(g, k, turn + 1) + from * j->size,
                (to - from) * j->size, out_bytes(j) > STREAM && j->in != j->out);
    }
    return WEFT_OK;
}

/* From behind the barrier of `turn`, with the first chunk staged. */
static weft_status go_staged(const job *j, uint32_t turn)
{
    int64_t chunk = chunk_count(j), total = total_count(j);
    bool    sliced = j->kind == WEFT_ALL_REDUCE && j->g->n >= SLICED &&
                  j->count * j->size > 4 * CHUNK / j->g->n;
    for (int64_t lo = 0; lo < total; lo += chunk) {
        int64_t n = total - lo < chunk ? total - lo : chunk;
        if (lo) {
            turn = weft_comm__shm_turn(j->g);
            stage(j, turn, lo, n);
            WEFT_TRY(weft_comm__shm_barrier(j->g, j->kind));
        }
        if (sliced)
            WEFT_TRY(take_sliced(j, turn, lo, n));
        else
            take(j, turn, lo, n);
    }
    return WEFT_OK;
}

/* ---- the call ---- */

static weft_status check_calls(const job *j, const shm_call *const *call, int *n_staged)
{
    weft_comm_group *g = j->g;
    *n_staged          = 0;
    for (int k = 0; k < g->n; k++) {
        const shm_call *x = call[k];
        if (x->kind < 0 || x->kind > WEFT_RETURN_ROWS || x->dtype < 0 ||
            x->dtype >= WEFT_N_DTYPE)
            return WEFT_FAIL(WEFT_ERR_PEER, "the call of rank %d is damaged", g->rank[k]);
        if (x->kind != (int)j->kind || x->dtype != (int)j->t || x->count != j->count)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "rank %d calls %s of %lld %s where rank %d calls %s of %lld %s",
                weft_comm_name(&g->e->c, g->rank[g->me]), weft_collective_name(j->kind),
                (long long)j->count, weft_dtype_name(j->t),
                weft_comm_name(&g->e->c, g->rank[k]),
                weft_collective_name((weft_collective)x->kind), (long long)x->count,
                weft_dtype_name((weft_dtype)x->dtype));
        if (x->n_lane != j->n_lane || x->stride != j->stride || x->dealt != j->dealt)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "rank %d calls %s over %d lanes where rank %d has %d, or has "
                "other memory or shares for them",
                weft_comm_name(&g->e->c, g->rank[g->me]), weft_collective_name(j->kind),
                j->n_lane, weft_comm_name(&g->e->c, g->rank[k]), x->n_lane);
        if (x->n_part != j->n_part)
            return WEFT_FAIL(
                WEFT_ERR_ARG, "rank %d calls %s of %d tensors where rank %d has %d",
                weft_comm_name(&g->e->c, g->rank[g->me]), weft_collective_name(j->kind),
                j->n_part, weft_comm_name(&g->e->c, g->rank[k]), x->n_part);
        *n_staged += x->staged != 0;
    }
    if (*n_staged || j->n_part) return WEFT_OK;
    for (int k = 0; k < g->n; k++) {
        bool    reads = j->kind != WEFT_BROADCAST || !k;
        int64_t in    = j->unit && j->kind == WEFT_ALL_GATHER ? share_of(j, k) : j->count;
        if (j->terms) in += (terms_of(j, k) - 1) * j->stride;
        int64_t out = j->unit ? out_bytes_of(j, k) : out_bytes(j);
        if (!weft_comm__shm_slab(g->e, call[k]->out, out) ||
            (reads && !weft_comm__shm_slab(g->e, call[k]->in, in * j->size)))
            return WEFT_FAIL(WEFT_ERR_PEER, "the call of rank %d is damaged", g->rank[k]);
    }
    return WEFT_OK;
}

static int64_t whole_bytes(const job *j)
{
    bool parts = j->kind == WEFT_ALL_GATHER && !j->unit;
    return j->count * j->size * (parts ? j->g->n : 1);
}

/* Very small calls are staged even from slabs: a barrier costs more than copying. */
static bool wants_stage(const job *j, const shm_call *x)
{
    if (j->kind == WEFT_BROADCAST && j->g->me) return x->out < 0;
    if (x->in < 0 || x->out < 0) return true;
    return !j->g->e->crowded && j->count * j->size <= 1 << 10;
}

/* All memory lies in slabs, and all want the same. */
static bool is_direct(void *job_)
{
    const job *j = job_;
    int        n_staged;
    return j->count && check_calls(j, j->g->call, &n_staged) == WEFT_OK && !n_staged;
}

static void leave_call(const job *j, shm_call *x)
{
    const shm_end *e = j->g->e;
    x->kind          = (int32_t)j->kind;
    x->dtype         = (int32_t)j->t;
    x->count         = j->count;
    x->n_lane        = j->n_lane;
    x->n_part        = 0;
    x->stride        = j->stride;
    x->dealt         = j->dealt;
    x->in            = weft_comm__shm_offset(e, j->in, in_count(j) * j->size);
    x->out           = weft_comm__shm_offset(e, j->out, out_bytes(j));
    x->staged        = wants_stage(j, x);
}

static weft_status run(job *j)
{
    weft_comm_group *g    = j->g;
    shm_end         *e    = g->e;
    uint32_t         turn = weft_comm__shm_turn(g);
    shm_call        *x    = &g->round->seat[g->me].call[turn & 1];
    int64_t  first   = chunk_count(j) < total_count(j) ? chunk_count(j) : total_count(j);
    shm_work at_once = {is_direct, do_pieces, j, whole_bytes(j) <= ALONE};
    bool     small   = e->crowded && j->kind != WEFT_BARRIER && whole_bytes(j) <= SMALL;
    bool     done;
    leave_call(j, x);
    if (x->staged) {
        WEFT_TRY(populate(j));
        stage(j, turn, 0, first);
    }
    for (int k = 0; k < g->n; k++) g->call[k] = call_of(g, k, turn);
    WEFT_TRY(weft_comm__shm_barrier_work(g, j->kind, small ? &at_once : NULL, &done));
    if (done || j->kind == WEFT_BARRIER) return WEFT_OK;

    int n_staged;
    WEFT_TRY(check_calls(j, g->call, &n_staged));
    if (!j->count) return WEFT_OK;
    if (!n_staged) {
        int k = g->me;
        WEFT_TRY(do_pieces(j, k, k + 1));
        return weft_comm__shm_barrier(g, j->kind);
    }
    if (n_staged < g->n) { /* the others have not staged: all do, now that they know */
        WEFT_TRY(populate(j));
        turn = weft_comm__shm_turn(g);
        stage(j, turn, 0, first);
        WEFT_TRY(weft_comm__shm_barrier(g, j->kind));
    }
    return go_staged(j, turn);
}

static void set_share(job *j)
{
    int n    = j->g->n;
    j->size  = weft_dtype_bytes(j->t);
    j->share = j->unit ? weft_comm_share_at(j->count, j->unit, n, 1) : j->count / n;
}

static weft_status set_terms(job *j)
{
    weft_comm_group *g = j->g;
    if (j->terms) {
        WEFT_TRY(weft_comm_terms_of(
            &(weft_comm_lanes){j->n_lane, j->stride, j->lane_share}, g->n, j->terms));
        j->n_in  = j->terms->n;
        j->level = j->terms->level;
        j->term  = j->terms->in;
    } else {
        j->n_in = g->n;
        j->term = g->in;
    }
    return WEFT_OK;
}

static weft_status start(weft_comm_group *g, job *j)
{
    set_share(j);
    WEFT_TRY(set_terms(j));
    WEFT_TRY(weft_comm__shm_enter(g));
    if (has_sum(j->kind)) /* can be summed? */
        WEFT_TRY(weft_comm__sum_plain(j->t, 0, NULL, NULL, NULL, 0));
    if (g->n > 1) return run(j);
    if (j->out != j->in && j->count) memmove(j->out, j->in, (size_t)(j->count * j->size));
    return WEFT_OK;
}

static weft_status run_one(const weft_comm_call *call)
{
    const weft_comm_part *x = &call->tensor;
    weft_comm_terms       terms;
    weft_comm_lanes       l = weft_comm_lanes_of(call);
    job                   j = {.g     = call->group,
                               .kind  = call->kind,
                               .t     = call->dtype,
                               .count = x->count,
                               .unit  = x->unit,
                               .in    = x->in,
                               .out   = x->out};
    if (call->n_lane) {
        j.n_lane     = l.n_lane;
        j.stride     = l.stride;
        j.lane_share = l.share;
        j.dealt      = weft_comm_dealt(&l, call->group->n);
        j.terms      = &terms;
    }
    return start(call->group, &j);
}

/* ---- several tensors ---- */

enum {
    PARTS = 4096 /* of one meeting */
};

static void take_part(job *j, const weft_comm_part *x)
{
    j->count  = x->count;
    j->unit   = x->unit;
    j->in     = x->in;
    j->out    = x->out;
    j->stride = j->terms ? x->stride : 0;
    set_share(j);
}

/* Says where all tensors lie; false: some not in slabs. */
static bool say_parts(job *j, int n, const weft_comm_part *part, shm_part *to,
                      int64_t *count)
{
    bool slabs = true;
    for (int i = 0; i < n; i++) {
        take_part(j, &part[i]);
        to[i].in  = weft_comm__shm_offset(j->g->e, j->in, in_count(j) * j->size);
        to[i].out = weft_comm__shm_offset(j->g->e, j->out, out_bytes(j));
        slabs     = slabs && to[i].in >= 0 && to[i].out >= 0;
        *count += j->count;
    }
    return slabs;
}

/* Everybody's call as if it were of tensor i alone. */
static weft_status do_part(job *j, const weft_comm_part *part, int i, uint32_t turn)
{
    weft_comm_group *g = j->g;
    int              n_staged;
    take_part(j, &part[i]);
    for (int k = 0; k < g->n; k++) {
        const shm_part *at = (const shm_part *)(const void *)stage_at(g, k, turn) + i;
        g->one[k]          = *call_of(g, k, turn);
        g->one[k].in       = at->in;
        g->one[k].out      = at->out;
        g->one[k].count    = j->count;
        g->one[k].stride   = j->stride;
        g->one[k].n_part   = 0;
        g->call[k]         = &g->one[k];
    }
    WEFT_TRY(check_calls(j, g->call, &n_staged));
    return j->count ? do_pieces(j, g->me, g->me + 1) : WEFT_OK;
}

static weft_status run_parts(job *j, int n, const weft_comm_part *part, bool *direct)
{
    weft_comm_group *g     = j->g;
    uint32_t         turn  = weft_comm__shm_turn(g);
    shm_call        *x     = &g->round->seat[g->me].call[turn & 1];
    int64_t          count = 0;
    int              n_staged;
    WEFT_TRY(populate_bytes(g, n * (int64_t)sizeof(shm_part)));
    x->staged =
        !say_parts(j, n, part, (shm_part *)(void *)stage_at(g, g->me, turn), &count);
    x->kind  = (int32_t)j->kind;
    x->dtype = (int32_t)j->t;
    x->count = j->count = count;
    x->n_lane           = j->n_lane;
    x->dealt            = j->dealt;
    x->n_part = j->n_part = n;
    x->stride = j->stride = 0;
    WEFT_TRY(weft_comm__shm_barrier(g, j->kind));
    for (int k = 0; k < g->n; k++) g->call[k] = call_of(g, k, turn);
    WEFT_TRY(check_calls(j, g->call, &n_staged));
    j->n_part = 0;
    *direct   = !n_staged;
    if (n_staged) return WEFT_OK;
    for (int i = 0; i < n; i++) WEFT_TRY(do_part(j, part, i, turn));
    return weft_comm__shm_barrier(g, j->kind);
}

static weft_status run_several(const weft_comm_call *call)
{
    weft_comm_group *g = call->group;
    weft_comm_terms  x;
    for (int at = 0, m; at < call->n_part; at += m) {
        bool direct = false;
        job  j      = {.g = g, .kind = call->kind, .t = call->dtype};
        if (call->n_lane) {
            weft_comm_lanes l = weft_comm_lanes_of(call);
            j.terms           = &x;
            j.n_lane          = l.n_lane;
            j.lane_share      = l.share;
            j.dealt           = weft_comm_dealt(&l, g->n);
        }
        m = call->n_part - at < PARTS ? call->n_part - at : PARTS;
        set_share(&j);
        WEFT_TRY(set_terms(&j));
        WEFT_TRY(weft_comm__shm_enter(g));
        if (has_sum(j.kind)) WEFT_TRY(weft_comm__sum_plain(j.t, 0, NULL, NULL, NULL, 0));
        if (g->n > 1) WEFT_TRY(run_parts(&j, m, call->part + at, &direct));
        for (int i = at; i < at + m && !direct; i++) {
            take_part(&j, &call->part[i]);
            WEFT_TRY(start(g, &j));
        }
    }
    return WEFT_OK;
}

weft_status weft_comm__shm_run(weft_comm *c, const weft_comm_call *call)
{
    const weft_comm_part *x = &call->tensor;
    if (call->n_part) return run_several(call);
    if (call->rows.n_bin)
        return weft_comm__shm_rows(c, call->group, call->kind, call->dtype, x->in, x->out,
                                   &call->rows);
    return run_one(call);
}
