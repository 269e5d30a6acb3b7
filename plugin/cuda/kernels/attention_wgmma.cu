/* The gradient of attention in bf16 by warpgroups (sm_90a): heads of 64 and of 128.
 *
 * p = e^(scale q.k - lse)    ds = p (dy.v - dy.o) dv = p^T dy    dk = scale ds^T q    dq = scale
 * ds k
 *
 * A block stays and takes tickets: a block of keys of one query head each.  It goes over the tiles
 * of queries that see these keys, dk and dv stay in registers.  Scores are computed turned, (keys,
 * queries): as they are, they are the left operand of dk and dv, and of dq by way of shared
 * memory.
 *
 * dq is a sum over blocks of keys, each the work of another block: every tile's sum is in f32 in
 * global memory, blocks of keys add to it in a fixed order, and the last one rounds it.  Where key
 * heads are shared, dk and dv are such sums over the query heads.  A turn waits only for tickets
 * that were taken before, so it always comes.  With the last keys first, and queries from the
 * first that sees them on, the block before has passed a tile when this one comes there.
 *
 * Warps: one copies operands, two send sums away, and two warpgroups of 64 keys each multiply. */
#include "cuda_block.h"
#include "cuda_rotary.h"
#include "cuda_vec.h"
#include "cuda_wgmma.h"

enum {
    PRODUCERS = 128, /* threads, of which three work */
    CONSUMERS = 256,
    WARPS     = CONSUMERS / 32,
    KEYS      = WEFT_CUDA_BACK_KEYS,
    PIECE     = WEFT_CUDA_BACK_PIECE * 4, /* bytes of 64 x 64 in f32 */
    ROW       = 128                       /* bytes of a row in shared memory */
};

#ifdef CU_WGMMA

/* A ticket: keys from `block` on of one query head. */
struct back_ticket {
    int head, sample, block; /* head: of the sample; block < 0: no more */
    int from;                /* tiles of queries from this one on */
};

/* When a barrier that is waited for n times comes to its next phase. */
struct back_ring {
    int at, phase;

    template <int N> CU_FN_MEMBER void advance(void)
    {
        if (++at == N) at = 0, phase ^= 1;
    }
};

template <int E> struct attention_back {
    enum {
        TILE        = E == 64 ? 128 : 64, /* queries */
        STAGES      = E == 64 ? 3 : 2,
        PANELS      = E / 64,
        KEY_BYTES   = KEYS * E * 2,
        QUERY_BYTES = TILE * E * 2,
        ROWS_BYTES  = TILE * 8,
        STAGE_BYTES = 2 * QUERY_BYTES,
        UNITS       = E / 64, /* pieces of a warpgroup's dk */

        K_AT     = 0, /* two blocks */
        V_AT     = K_AT + 2 * KEY_BYTES,
        STAGE_AT = V_AT + KEY_BYTES, /* q, dy */
        DS_AT    = STAGE_AT + STAGES * STAGE_BYTES,
        SENT_AT  = DS_AT + KEYS * TILE * 2, /* a piece for each warpgroup */
        ROWS_AT  = SENT_AT + 2 * PIECE,
        TAKEN_AT = ROWS_AT + STAGES * ROWS_BYTES, /* the tickets of the two blocks of k */
        BAR_AT   = TAKEN_AT + 16,
        K_FULL   = BAR_AT,
        K_EMPTY  = K_FULL + 16,
        V_FULL   = K_EMPTY + 16,
        V_EMPTY  = V_FULL + 8,
        FULL     = V_EMPTY + 8,
        EMPTY    = FULL + STAGES * 8,
        DS_EMPTY = EMPTY + STAGES * 8,
        FREE     = DS_EMPTY + 8,      /* of a piece: it may be written, */
        READY    = FREE + 16,         /* is written, */
        LOADED   = READY + 16,        /* has the sum so far */
        BYTES    = LOADED + 16 + 1024 /* to begin at a multiple of 1024 */
    };
    static_assert((int)BYTES <= (int)WEFT_CUDA_BACK_BYTES, "args");
    static_assert((int)TILE ==
                      (int)(E == 64 ? WEFT_CUDA_BACK_TILE_64 : WEFT_CUDA_BACK_TILE_128),
                  "args");

    const weft_cuda_attention_back_args &a;
    uint32_t                             base;

    CU_FN_MEMBER attention_back(const weft_cuda_attention_back_args &args, uint32_t from)
        : a(args), base(from)
    {
    }

    CU_FN_MEMBER uint32_t k_of(int slot) const { return base + K_AT + slot * KEY_BYTES; }
    CU_FN_MEMBER uint32_t stage_of(int i) const
    {
        return base + STAGE_AT + i * STAGE_BYTES;
    }
    CU_FN_MEMBER uint32_t rows_of(int i) const { return base + ROWS_AT + i * ROWS_BYTES; }
    CU_FN_MEMBER uint32_t bar(int at, int i) const { return base + at + i * 8; }

    CU_FN_MEMBER void init(void) const
    {
        for (int i = 0; i < 2; i++) {
            cu_barrier_init(bar(K_FULL, i), 1);
            cu_barrier_init(bar(K_EMPTY, i), WARPS + 2);
            cu_barrier_init(bar(FREE, i), 1);
            cu_barrier_init(bar(READY, i), WARPS / 2);
            cu_barrier_init(bar(LOADED, i), 1);
        }
        for (int i = 0; i < STAGES; i++) {
            cu_barrier_init(bar(FULL, i), 1);
            cu_barrier_init(bar(EMPTY, i), WARPS);
        }
        cu_barrier_init(bar(V_FULL, 0), 1);
        cu_barrier_init(bar(V_EMPTY, 0), WARPS);
        cu_barrier_init(bar(DS_EMPTY, 0), WARPS);
        cu_barrier_publish();
    }

    /* ---- tickets ---- */

    CU_FN_MEMBER back_ticket find(uint32_t ticket) const
    {
        back_ticket w = {0, 0, -1, 0};
        if (ticket >= (uint32_t)(a.heads * a.n_block)) return w;
        uint32_t set   = (uint32_t)(a.together * a.ratio * a.n_block);
        int      first = (int)(ticket / set) * a.together;
        int      n     = a.units - first < a.together ? a.units - first : a.together;
        int      rest = (int)(ticket % set), i = rest / (n * a.n_block);
        rest -= i * (n * a.n_block);
        int head = (first + rest % n) * a.ratio + i;
        w.sample = head / a.h;
        w.head   = head - w.sample * a.h;
        w.block  = a.rising ? rest / n : a.n_block - 1 - rest / n;
        int seen = w.block * KEYS - a.ahead;
        w.from   = a.causal && seen > 0 ? seen / TILE : 0;
        return w;
    }

    /* The ticket in a slot that is full. */
    CU_FN_MEMBER back_ticket read_ticket(int slot) const
    {
        return find(cu_shared_word(base + TAKEN_AT + slot * 4));
    }

    /* Blocks of keys that add to a tile, and which of them this one is. */
    CU_FN_MEMBER int count_blocks(int tile) const
    {
        int n = (tile * TILE + TILE - 1 + a.ahead) / KEYS + 1;
        return a.causal && n < a.n_block ? n : a.n_block;
    }
    CU_FN_MEMBER int place(int block, int n) const
    {
        return a.rising ? block : n - 1 - block;
    }

    /* ---- the warp that copies ---- */

    CU_FN_MEMBER void load_tile(const back_ticket &w, int tile, int stage) const
    {
        uint32_t to = stage_of(stage), full = bar(FULL, stage);
        int64_t  at = (int64_t)((w.sample * a.h + w.head) * a.n_tile + tile) * (2 * TILE);
        cu_barrier_expect(full, STAGE_BYTES + ROWS_BYTES);
        CU_UNROLL
        for (int p = 0; p < PANELS; p++)
            cu_head_load(&a.q, to + p * TILE * ROW, full, p * 64, tile * TILE, w.head,
                         w.sample);
        cu_bulk_load(rows_of(stage), a.rows + at, ROWS_BYTES, full);
        CU_UNROLL
        for (int p = 0; p < PANELS; p++)
            cu_head_load(&a.dy, to + QUERY_BYTES + p * TILE * ROW, full, p * 64,
                         tile * TILE, w.head, w.sample);
    }

    CU_FN_MEMBER void load_keys(const weft_cuda_tensor_map *map, const back_ticket &w,
                                uint32_t to, uint32_t full) const
    {
        cu_barrier_expect(full, KEY_BYTES);
        CU_UNROLL
        for (int p = 0; p < PANELS; p++)
            cu_head_load(map, to + p * KEYS * ROW, full, p * 64, w.block * KEYS,
                         w.head / a.ratio, w.sample);
    }

    CU_FN_MEMBER void copy(void) const
    {
        back_ring k = {0, 0}, stage = {0, 0};
        int       v_phase = 0;
        for (;;) {
            uint32_t    ticket = atomicAdd(a.ticket, 1u);
            back_ticket w      = find(ticket);
            cu_barrier_wait(bar(K_EMPTY, k.at), k.phase ^ 1);
            cu_shared_put(base + TAKEN_AT + k.at * 4, ticket);
            if (w.block < 0) break;
            load_keys(&a.k, w, k_of(k.at), bar(K_FULL, k.at));
            CU_ROLLED
            for (int tile = w.from; tile < a.n_tile; tile++) {
                cu_barrier_wait(bar(EMPTY, stage.at), stage.phase ^ 1);
                load_tile(w, tile, stage.at);
                stage.template advance<STAGES>();
                if (tile != w.from) continue;
                cu_barrier_wait(bar(V_EMPTY, 0), v_phase ^ 1);
                load_keys(&a.v, w, base + V_AT, bar(V_FULL, 0));
                v_phase ^= 1;
            }
            k.template advance<2>();
        }
        cu_barrier_arrive(bar(K_FULL, k.at));
    }

    /* ---- the warps that send sums, one for each warpgroup ---- */

    /* A piece of 64 x 64 of a sum, and which of its n terms this one is. */
    struct piece {
        float    *sum;
        /* the counter, where its turn is waited for, and where it ends */
        uint32_t *wait, *pass;
        uint32_t  turn;
        int       i, n;
    };

    CU_FN_MEMBER void send(int group, int &phase, const piece &p,
                           const weft_cuda_tensor_map *map, int e, int row, int head,
                           int sample) const
    {
        uint32_t from = base + SENT_AT + group * PIECE;
        bool     last = p.i == p.n - 1;
        if (last && p.i) {
            if (p.wait) cu_turn_wait(p.wait, p.turn);
            cu_barrier_expect(bar(LOADED, group), PIECE);
            cu_bulk_load(from, p.sum, PIECE, bar(LOADED, group));
        }
        cu_barrier_wait(bar(READY, group), phase);
        phase ^= 1;
        if (last) {
            cu_head_store(map, from, e, row, head, sample);
        } else if (p.i) {
            if (p.wait) cu_turn_wait(p.wait, p.turn);
            cu_bulk_add(p.sum, from, PIECE);
        } else {
            cu_bulk_store(p.sum, from, PIECE);
        }
        cu_bulk_wait_read();
        cu_barrier_arrive(bar(FREE, group));
        if (!p.pass) return;
        cu_bulk_wait();
        cu_turn_pass(p.pass, p.turn + 1);
    }

    CU_FN_MEMBER void send_query(const back_ticket &w, int tile, int group,
                                 int &phase) const
    {
        int     n = count_blocks(tile), i = place(w.block, n);
        int64_t head = w.sample * a.h + w.head;
        int64_t at   = (head * a.n_tile + tile) * 2 + group;
        int64_t sum  = (head * (a.n_tile - a.alone) + tile - a.alone) * 2 + group;
        piece   p    = {a.dq_sum + sum * WEFT_CUDA_BACK_PIECE, /* of n > 1 terms */
                   i ? a.dq_turn + at : NULL,
                   i < n - 1 ? a.dq_turn + at : NULL,
                        (uint32_t)i,
                        i,
                        n};
        send(group, phase, p, &a.dq, E == 64 ? 0 : group * 64,
             tile * TILE + (E == 64 ? group * 64 : 0), w.head, w.sample);
    }

    CU_FN_MEMBER void send_keys(const back_ticket &w, int unit, int group,
                                int &phase) const
    {
        int     g = w.head / a.ratio, i = w.head - g * a.ratio;
        int64_t at = ((int64_t)(w.sample * a.g + g) * a.n_block + w.block) * 2 + group;
        piece   p  = {a.dkv_sum + (at * 2 * UNITS + unit) * WEFT_CUDA_BACK_PIECE,
                   i && unit == 0 ? a.dkv_turn + at : NULL,
                   i < a.ratio - 1 && unit == 2 * UNITS - 1 ? a.dkv_turn + at : NULL,
                      (uint32_t)i,
                      i,
                      a.ratio};
        send(group, phase, p, unit < UNITS ? &a.dk : &a.dv, unit % UNITS * 64,
             w.block * KEYS + group * 64, g, w.sample);
    }

    CU_FN_MEMBER void send_all(int group) const
    {
        back_ring k     = {0, 0};
        int       phase = 0;
        for (;;) {
            cu_barrier_wait(bar(K_FULL, k.at), k.phase);
            back_ticket w = read_ticket(k.at);
            cu_barrier_arrive(bar(K_EMPTY, k.at));
            if (w.block < 0) break;
            CU_ROLLED
            for (int tile = w.from; tile < a.n_tile; tile++)
                send_query(w, tile, group, phase);
            CU_ROLLED
            for (int unit = 0; unit < 2 * UNITS; unit++) send_keys(w, unit, group, phase);
            k.template advance<2>();
        }
    }

    /* ---- the warpgroups that multiply ---- */

    enum {
        N_SCORE = TILE / 2, /* of a thread: 64 keys by a tile of queries in a warpgroup */
        N_KEY   = E / 2,    /* 64 keys by E */
        N_PIECE = 64 * 64 / 128
    };

    /* The place of a thread in its warpgroup. */
    struct place_of {
        int group, warp, lane;
        int g, t; /* rows g and g + 8 of 16, columns 2t and 2t + 1 of 8 */
    };

    CU_FN_MEMBER void arrive(int at, int i, const place_of &me) const
    {
        if (me.lane == 0) cu_barrier_arrive(bar(at, i));
    }

    /* d = rows of 64 keys from `keys` on times the queries' rows in `tile`, turned. */
    CU_FN_MEMBER void multiply_scores(float (&d)[N_SCORE], uint32_t keys, uint32_t tile,
                                      int group) const
    {
        cu_wgmma_begin();
        CU_UNROLL
        for (int k = 0; k < E / 16; k++) {
            uint64_t x = cu_operand(
                keys + group * 64 * ROW + k / 4 * (KEYS * ROW) + k % 4 * 32, 16);
            uint64_t y = cu_operand(tile + k / 4 * (TILE * ROW) + k % 4 * 32, 16);
            cu_wgmma<0, 0>(d, x, y, k > 0);
        }
        cu_wgmma_commit();
    }

    /* d += p times the tile's rows: 64 keys by E. */
    CU_FN_MEMBER void multiply_keys(float (&d)[N_KEY], const uint32_t (&p)[N_SCORE / 2],
                                    uint32_t tile, bool with_d) const
    {
        cu_wgmma_begin();
        CU_UNROLL
        for (int k = 0; k < TILE / 16; k++)
            cu_wgmma_from<1>(d, p + k * 4, cu_operand(tile + k * 16 * ROW, TILE * ROW),
                             with_d || k);
        cu_wgmma_commit();
    }

    /* d = ds of the tile times the block of keys: 64 queries by 64 of E. */
    CU_FN_MEMBER void multiply_query(float (&d)[N_PIECE], uint32_t keys, int group) const
    {
        uint32_t ds = base + DS_AT + (E == 64 ? group * KEYS * ROW : 0);
        keys += E == 64 ? 0 : group * KEYS * ROW;
        cu_wgmma_begin();
        CU_UNROLL
        for (int k = 0; k < KEYS / 16; k++)
            cu_wgmma<1, 1>(d, cu_operand(ds + k * 16 * ROW, 16),
                           cu_operand(keys + k * 16 * ROW, 16), k > 0);
        cu_wgmma_commit();
    }

    /* Keys that a query does not see, and keys that are not there. */
    CU_FN_MEMBER void mask(float (&s)[N_SCORE], const back_ticket &w, int tile,
                           const place_of &me) const
    {
        int first = w.block * KEYS + me.group * 64;
        int most = a.causal ? tile * TILE + a.ahead : first + 64; /* of the first query */
        if (first + 63 <= most && first + 64 <= a.t) return;
        CU_UNROLL
        for (int i = 0; i < N_SCORE; i++) {
            int key   = first + me.warp * 16 + me.g + i / 2 % 2 * 8;
            int query = i / 4 * 8 + me.t * 2 + i % 2;
            if (key > most + query || key >= a.t) s[i] = -INFINITY;
        }
    }

    /* In words of two. */
    CU_FN_MEMBER void make_p(const float (&s)[N_SCORE], uint32_t (&p)[N_SCORE / 2],
                             uint32_t rows, const place_of &me) const
    {
        CU_UNROLL
        for (int j = 0; j < N_SCORE / 4; j++) {
            float2 lse   = cu_shared_get2(rows + j * 32 + me.t * 8);
            p[2 * j]     = cu_pair(cu_exp2(fmaf(s[4 * j], a.scale_2, -lse.x)),
                                   cu_exp2(fmaf(s[4 * j + 1], a.scale_2, -lse.y)));
            p[2 * j + 1] = cu_pair(cu_exp2(fmaf(s[4 * j + 2], a.scale_2, -lse.x)),
                                   cu_exp2(fmaf(s[4 * j + 3], a.scale_2, -lse.y)));
        }
    }

    /* Of p as it was rounded. */
    CU_FN_MEMBER void make_ds(const uint32_t (&p)[N_SCORE / 2],
                              const float (&dp)[N_SCORE], uint32_t (&ds)[N_SCORE / 2],
                              uint32_t rows, const place_of &me) const
    {
        CU_UNROLL
        for (int j = 0; j < N_SCORE / 2; j++) {
            float2 own = cu_shared_get2(rows + TILE * 4 + j / 2 * 32 + me.t * 8);
            ds[j]      = cu_pair(cu_low(p[j]) * (dp[2 * j] - own.x),
                                 cu_high(p[j]) * (dp[2 * j + 1] - own.y));
        }
    }

    /* Words of two, 16 rows of a warp by 64 columns a panel, to shared memory. */
    template <int N>
    CU_FN_MEMBER void store_rows(uint32_t to, const uint32_t (&v)[N], int first,
                                 int panel_bytes, const place_of &me) const
    {
        int row = first + me.lane % 16;
        CU_UNROLL
        for (int j = 0; j < N / 2; j += 2) {
            uint32_t at = to + j / 8 * panel_bytes + row * ROW +
                          ((j % 8 + me.lane / 16) ^ (row % 8)) * 16;
            cu_store_matrices(at, v + j * 2);
        }
    }

    CU_FN_MEMBER void store_ds(const uint32_t (&ds)[N_SCORE / 2],
                               const place_of &me) const
    {
        store_rows(base + DS_AT, ds, me.group * 64 + me.warp * 16, KEYS * ROW, me);
        cu_async_fence();
    }

    /* 16 rows of a warp, of a piece whose first is at position `row`, as they are stored: pairs
     * (i, i + 32) are turned.  Where a thread's angles are is found anew each time: kept from
     * piece to piece, it would take registers of the products. */
    CU_FN_MEMBER void turn_rows(uint32_t (&y)[N_PIECE / 2], int row) const
    {
        uint32_t      thread = cu_again(threadIdx.x) % 128;
        uint32_t      first  = (uint32_t)row + thread / 32 * 16 + thread % 32 / 4;
        const float4 *by     = (const float4 *)a.turned + first * 16 + thread % 4;
        CU_UNROLL
        for (int k = 0; k < N_PIECE / 4; k++) { /* 8 rows, 8 pairs */
            int      j = k / 2, r = k % 2;
            float4   c = by[r * 8 * 16 + j * 4];
            uint32_t u = y[2 * j + r], v = y[2 * (j + 4) + r];
            float    p[2], q[2];
            cu_turn(cu_low(u), cu_low(v), c.x, c.y, p[0], q[0]);
            cu_turn(cu_high(u), cu_high(v), c.z, c.w, p[1], q[1]);
            y[2 * j + r]       = cu_pair(p[0], p[1]);
            y[2 * (j + 4) + r] = cu_pair(q[0], q[1]);
        }
    }

    /* A piece to the warp that sends it: one term of a sum of n, the last one rounded, and turned
     * where its first row is at a position (row >= 0). */
    template <int N>
    CU_FN_MEMBER void put(const float (&d)[N], int from, int i, int n, float scale,
                          int row, int &sent, int &loaded, const place_of &me) const
    {
        uint32_t at = base + SENT_AT + me.group * PIECE, thread = threadIdx.x % 128;
        if (i < n - 1) {
            cu_barrier_wait(bar(FREE, me.group), sent ^ 1);
            CU_UNROLL
            for (int q = 0; q < N_PIECE / 4; q++) {
                const float *v = d + from + q * 4;
                cu_shared_put4(at + q * 2048 + thread * 16,
                               make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]),
                                          __float_as_uint(v[2]), __float_as_uint(v[3])));
            }
        } else {
            uint32_t y[N_PIECE / 2];
            if (i) {
                cu_barrier_wait(bar(LOADED, me.group), loaded);
                loaded ^= 1;
            } else {
                cu_barrier_wait(bar(FREE, me.group), sent ^ 1);
            }
            CU_UNROLL
            for (int q = 0; q < N_PIECE / 4; q++) {
                const float *v = d + from + q * 4;
                uint4        u = make_uint4(0, 0, 0, 0);
                if (i) u = cu_shared_get(at + q * 2048 + thread * 16);
                y[2 * q]     = cu_pair((__uint_as_float(u.x) + v[0]) * scale,
                                       (__uint_as_float(u.y) + v[1]) * scale);
                y[2 * q + 1] = cu_pair((__uint_as_float(u.z) + v[2]) * scale,
                                       (__uint_as_float(u.w) + v[3]) * scale);
            }
            if (E == 64 && a.turned && row >= 0) turn_rows(y, row + me.group * 64);
            if (i) { /* all have read the sum before it is written over */
                if (me.group)
                    cu_meet<3, 128>();
                else
                    cu_meet<2, 128>();
            }
            store_rows(at, y, me.warp * 16, 0, me);
        }
        cu_async_fence();
        __syncwarp();
        arrive(READY, me.group, me);
        sent ^= 1;
    }

    /* The pieces of dk, then those of dv: of one query head of the key head. */
    CU_FN_MEMBER void put_keys(const float (&dk)[N_KEY], const float (&dv)[N_KEY],
                               const back_ticket &w, int &sent, int &loaded,
                               const place_of &me) const
    {
        int i = w.head % a.ratio;
        CU_UNROLL
        for (int u = 0; u < UNITS; u++)
            put(dk, u * N_PIECE, i, a.ratio, a.scale, w.block * KEYS, sent, loaded, me);
        CU_UNROLL
        for (int u = 0; u < UNITS; u++)
            put(dv, u * N_PIECE, i, a.ratio, 1, -1, sent, loaded, me);
    }

    CU_FN_MEMBER void multiply(void) const
    {
        place_of  me = {(int)threadIdx.x / 128 - 1, (int)threadIdx.x / 32 % 4,
                        (int)threadIdx.x % 32, (int)threadIdx.x % 32 / 4,
                        (int)threadIdx.x % 4};
        float     s[N_SCORE], dp[N_SCORE], dk[N_KEY], dv[N_KEY];
        back_ring k = {0, 0}, stage = {0, 0};
        float     dq[N_PIECE];
        /* phases; a tile sends one piece, a ticket an even number besides */
        int sent = 0, loaded = 0;

        cu_barrier_wait(bar(K_FULL, 0), 0);
        back_ticket w    = read_ticket(0);
        int         tile = w.from;
        while (w.block >= 0) {
            uint32_t p[N_SCORE / 2], ds[N_SCORE / 2];
            uint32_t at = stage_of(stage.at), rows = rows_of(stage.at), keys = k_of(k.at);
            bool     first = tile == w.from, last = tile == a.n_tile - 1;
            cu_barrier_wait(bar(FULL, stage.at), stage.phase);
            multiply_scores(s, keys, at, me.group);
            if (first) {
                cu_barrier_wait(bar(V_FULL, 0), k.at);
            }
            multiply_scores(dp, base + V_AT, at + QUERY_BYTES, me.group);
            cu_wgmma_wait<1>();
            cu_wgmma_hold(s);
            mask(s, w, tile, me);
            make_p(s, p, rows, me);
            multiply_keys(dv, p, at + QUERY_BYTES, !first);
            cu_wgmma_wait<1>();
            cu_wgmma_hold(dp);
            if (last) arrive(V_EMPTY, 0, me);
            make_ds(p, dp, ds, rows, me);
            cu_barrier_wait(bar(DS_EMPTY, 0), sent ^ 1);
            store_ds(ds, me);
            multiply_keys(dk, ds, at, !first);
            cu_meet<1, CONSUMERS>(); /* ds is there */
            multiply_query(dq, keys, me.group);
            cu_wgmma_wait<0>();
            cu_wgmma_hold(dq);
            cu_wgmma_hold(dk);
            cu_wgmma_hold(dv);
            arrive(EMPTY, stage.at, me);
            arrive(DS_EMPTY, 0, me);
            stage.template advance<STAGES>();

            int n = count_blocks(tile);
            put(dq, 0, place(w.block, n), n, a.scale, tile * TILE, sent, loaded, me);
            tile++;
            if (!last) continue;
            arrive(K_EMPTY, k.at, me);
            put_keys(dk, dv, w, sent, loaded, me);
            k.template advance<2>();
            cu_barrier_wait(bar(K_FULL, k.at), k.phase);
            w    = read_ticket(k.at);
            tile = w.from;
        }
    }

    CU_FN_MEMBER void run(void)
    {
        int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
        if (threadIdx.x == 0) init();
        __syncthreads();
        if (threadIdx.x < PRODUCERS) {
            cu_fewer_registers<40>();
            if (warp == 0 && lane == 0) copy();
            if ((warp == 1 || warp == 2) && lane == 0) send_all(warp - 1);
        } else {
            cu_more_registers<232>();
            multiply();
        }
    }
};

#define BACK_KERNEL(name, e)                                                             \
    CU_KERNEL_BLOCKS(name, weft_cuda_attention_back_args, WEFT_CUDA_BACK_THREADS, 1)     \
    {                                                                                    \
        CU_SHARED(unsigned char, bytes);                                                 \
        uint32_t from = (cu_shared_address(bytes) + 1023) & ~1023u;                      \
        attention_back<e>(a, from).run();                                                \
    }

#else

/* No other architecture is ever given these. */
#define BACK_KERNEL(name, e)                                                             \
    CU_KERNEL(name, weft_cuda_attention_back_args, WEFT_CUDA_BACK_THREADS)               \
    {                                                                                    \
        (void)a;                                                                         \
        CU_TRAP();                                                                       \
    }

#endif

BACK_KERNEL(attention_back_64, 64)
BACK_KERNEL(attention_back_128, 128)

/* ---- rows of queries, on any GPU ---- */

/* Eight elements of two rows, multiplied. */
CU_FN float dot_8(uint4 u, uint4 v)
{
    const uint32_t x[4] = {u.x, u.y, u.z, u.w}, y[4] = {v.x, v.y, v.z, v.w};
    float          sum = 0;
    CU_UNROLL
    for (int i = 0; i < 4; i++) {
        sum += cu_float((cu_bf16)x[i]) * cu_float((cu_bf16)y[i]);
        sum += cu_float((cu_bf16)(x[i] >> 16)) * cu_float((cu_bf16)(y[i] >> 16));
    }
    return sum;
}

/* Cosines and sines of pairs i .. i + 8 at a position. */
CU_FN void find_turns(const weft_cuda_attention_rows_args &a, int position, int i)
{
    float s[8], c[8];
    cu_find_angles<8>(a.by, position, i, s, c);
    CU_UNROLL
    for (int j = 0; j < 8; j += 2)
        *(float4 *)(a.turned + ((int64_t)position * 32 + i + j) * 2) =
            make_float4(c[j], s[j], c[j + 1], s[j + 1]);
}

/* e / 8 lanes a row; rows of a sample in the order (s, h), AHEAD of them read before the first is
 * summed.  Rows that are not there, and rows that see nothing, have p = 0. */
CU_KERNEL(attention_rows, weft_cuda_attention_rows_args, 256)
{
    enum {
        AHEAD = WEFT_CUDA_BACK_ROWS
    };
    unsigned lanes = (unsigned)a.e / 8, x = threadIdx.x % lanes * 8;
    unsigned per = gridDim.x / (unsigned)a.b, b = blockIdx.x / per;
    unsigned step  = blockDim.x / lanes;
    unsigned first = (blockIdx.x - b * per) * AHEAD * step + threadIdx.x / lanes;
    unsigned rows = (unsigned)(a.n_tile * a.tile * a.h), there = (unsigned)(a.s * a.h);
    const int64_t *sy = a.dy.stride, *so = a.o.stride, *sl = a.lse.stride;
    const cu_bf16 *of_y     = (const cu_bf16 *)a.dy.p + b * sy[0] + x;
    const cu_bf16 *of_o     = (const cu_bf16 *)a.o.p + b * so[0] + x;
    const float   *of_l     = (const float *)a.lse.p + b * sl[0];
    uint4          y[AHEAD] = {}, o[AHEAD] = {};
    float          lse[AHEAD];
    CU_UNROLL
    for (unsigned k = 0; k < AHEAD; k++) {
        unsigned row = first + k * step, i = row / (unsigned)a.h;
        unsigned h = row - i * (unsigned)a.h;
        lse[k]     = -INFINITY;
        if (row >= there) continue;
        y[k]   = *(const uint4 *)(of_y + i * sy[1] + h * sy[2]);
        o[k]   = *(const uint4 *)(of_o + i * so[1] + h * so[2]);
        lse[k] = of_l[i * sl[1] + h * sl[2]];
    }
    for (int64_t c = cu_index(); c < a.n_counter; c += (int64_t)gridDim.x * blockDim.x)
        a.counters[c] = 0;
    for (int64_t c = cu_index(); c < a.n_turned * 4; c += (int64_t)gridDim.x * blockDim.x)
        find_turns(a, (int)(c / 4), (int)(c % 4) * 8);
    CU_UNROLL
    for (unsigned k = 0; k < AHEAD; k++) {
        unsigned row = first + k * step, i = row / (unsigned)a.h;
        unsigned h   = row - i * (unsigned)a.h;
        unsigned at  = i / (unsigned)a.tile * 2 * (unsigned)a.tile + i % (unsigned)a.tile;
        float    sum = dot_8(y[k], o[k]);
        for (unsigned j = lanes / 2; j; j /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, (int)j);
        if (x || row >= rows) continue;
        float *to  = a.rows + ((int64_t)b * a.h + h) * a.n_tile * 2 * a.tile + at;
        to[0]      = lse[k] == -INFINITY ? INFINITY : lse[k] * 1.4426950408889634f;
        to[a.tile] = sum;
    }
}
