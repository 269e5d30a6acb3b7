/* Rows in bins through shared memory: everyone fetches what is its own.
 *
 *     direct    all in lie in slabs: runs are copied straight out of them, then a second barrier
 *     staged    in goes through the members' stages, chunk by chunk of its bytes; who needs a
 *               part of a chunk takes it.  All know from the table how many chunks the longest in
 *               has.
 *
 * Slots of stages and calls as in shm_collective.c: what is written before the barrier of a turn
 * is read until the next one and written again only for the turn behind that. */
#include "comm/shm_priv.h"

#include <string.h>

#include "comm/vec.h"

enum {
    CHUNK  = 256 << 10,
    STREAM = 1 << 20, /* copies above this go past the caches */
};

typedef struct job {
    weft_comm_group      *g;
    weft_collective       kind;
    weft_dtype            t;
    const weft_comm_rows *r;
    const char           *in;
    char                 *out;
    int64_t               row;        /* bytes */
    int64_t               mine, most; /* bytes of in: here, of anybody */
} job;

static int64_t bytes_of(const job *j, int k, bool in)
{
    return j->row * weft_comm_count_rows(j->r, j->g->n, j->kind, k, in);
}

static int64_t chunk_of(const job *j)
{
    int64_t n = j->g->e->crowded ? SHM_STAGE : CHUNK;
    return j->most < n ? j->most : n;
}

static char *stage_at(const weft_comm_group *g, int k, uint32_t turn)
{
    return g->stage[k] + (turn & 1) * SHM_STAGE;
}

static weft_status populate(const job *j)
{
    weft_comm_group *g    = j->g;
    int64_t          need = (chunk_of(j) + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
    if (need <= g->staged) return WEFT_OK;
    for (int k = 0; k < 2; k++)
        WEFT_TRY(weft_comm__shm_populate(g->stage[g->me] + k * SHM_STAGE, need));
    g->e->c.bytes += 2 * (need - g->staged);
    g->staged = (int)need;
    return WEFT_OK;
}

static void stage(const job *j, uint32_t turn, int64_t lo)
{
    int64_t n = j->mine - lo < chunk_of(j) ? j->mine - lo : chunk_of(j);
    if (n > 0) memcpy(stage_at(j->g, j->g->me, turn), j->in + lo, (size_t)n);
}

/* Of every run to here, the part that lies in [lo, hi) of its sender's in; `from` says where that
 * begins. */
static void fetch(const job *j, const void *const *from, int64_t lo, int64_t hi)
{
    weft_comm_row_run x      = {.home = -1};
    bool              stream = bytes_of(j, j->g->me, false) > STREAM;
    while (weft_comm_next_run(j->r, j->g->n, &x)) {
        weft_comm_way w = weft_comm_way_of(j->r, j->kind, j->t, &x);
        int64_t a = w.in > lo ? w.in : lo, b = w.in + w.bytes < hi ? w.in + w.bytes : hi;
        if (w.to != j->g->me || a >= b) continue;
        weft_comm__vec_copy(j->out + w.out + (a - w.in),
                            (const char *)from[w.from] + (a - lo), b - a, stream);
    }
}

static weft_status go_staged(const job *j, uint32_t turn)
{
    weft_comm_group *g = j->g;
    for (int64_t lo = 0; lo < j->most; lo += chunk_of(j)) {
        if (lo) {
            turn = weft_comm__shm_turn(g);
            stage(j, turn, lo);
            WEFT_TRY(weft_comm__shm_barrier(g, j->kind));
        }
        for (int k = 0; k < g->n; k++) g->in[k] = stage_at(g, k, turn);
        fetch(j, g->in, lo, lo + chunk_of(j));
    }
    return WEFT_OK;
}

/* All call the same; *n_staged: who does not lie in a slab. */
static weft_status check_calls(const job *j, uint32_t turn, int *n_staged)
{
    weft_comm_group *g = j->g;
    *n_staged          = 0;
    for (int k = 0; k < g->n; k++) {
        const shm_call *x = g->call[k] = &g->round->seat[k].call[turn & 1];
        if (x->kind != (int)j->kind || x->dtype != (int)j->t || x->count != j->r->width ||
            x->n_lane != j->r->n_bin)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "rank %d calls %s of %lld %s a row where rank %d calls "
                             "something else",
                             weft_comm_name(&g->e->c, g->rank[g->me]),
                             weft_collective_name(j->kind), (long long)j->r->width,
                             weft_dtype_name(j->t), weft_comm_name(&g->e->c, g->rank[k]));
        *n_staged += x->staged != 0;
    }
    for (int k = 0; k < g->n && !*n_staged; k++) {
        g->in[k] = weft_comm__shm_slab(g->e, g->call[k]->in, bytes_of(j, k, true));
        if (!g->in[k])
            return WEFT_FAIL(WEFT_ERR_PEER, "the call of rank %d is damaged", g->rank[k]);
    }
    return WEFT_OK;
}

static weft_status run(const job *j)
{
    weft_comm_group *g    = j->g;
    uint32_t         turn = weft_comm__shm_turn(g);
    shm_call        *x    = &g->round->seat[g->me].call[turn & 1];
    int              n_staged;
    x->kind   = (int32_t)j->kind;
    x->dtype  = (int32_t)j->t;
    x->count  = j->r->width;
    x->n_lane = j->r->n_bin;
    x->stride = 0;
    x->in     = weft_comm__shm_offset(g->e, j->in, j->mine);
    x->out    = -1;
    x->staged = x->in < 0 || j->most <= (g->e->crowded ? 32 << 10 : 1 << 10);
    if (x->staged) {
        WEFT_TRY(populate(j));
        stage(j, turn, 0);
    }
    WEFT_TRY(weft_comm__shm_barrier(g, j->kind));
    WEFT_TRY(check_calls(j, turn, &n_staged));
    if (!n_staged) {
        fetch(j, g->in, 0, INT64_MAX);
        return weft_comm__shm_barrier(g, j->kind);
    }
    if (n_staged < g->n) {
        WEFT_TRY(populate(j));
        turn = weft_comm__shm_turn(g);
        stage(j, turn, 0);
        WEFT_TRY(weft_comm__shm_barrier(g, j->kind));
    }
    return go_staged(j, turn);
}

weft_status weft_comm__shm_rows(weft_comm *c, weft_comm_group *g, weft_collective kind,
                                weft_dtype t, const void *in, void *out,
                                const weft_comm_rows *r)
{
    job j = {.g = g, .kind = kind, .t = t, .r = r, .in = in, .out = out};
    (void)c;
    WEFT_TRY(weft_comm_check_rows(r, g->n, kind, g->me));
    j.row  = r->width * weft_dtype_bytes(t);
    j.mine = bytes_of(&j, g->me, true);
    for (int k = 0; k < g->n; k++)
        if (bytes_of(&j, k, true) > j.most) j.most = bytes_of(&j, k, true);
    WEFT_TRY(weft_comm__shm_enter(g));
    if (g->n > 1) return run(&j);
    if (j.mine && out != in) memmove(out, in, (size_t)j.mine);
    return WEFT_OK;
}
