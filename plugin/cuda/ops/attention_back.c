/* The gradient of attention in bf16 by warpgroups (sm_90), heads of 64 and of 128: what is faster
 * than cuDNN's deterministic form.
 *
 * prepare makes the tensor maps: all addresses are planned. */
#include <math.h>
#include <string.h>

#include "op/workspace.h"
#include "turned.h"

/* In the order of the call. */
enum {
    DY,
    Q,
    K,
    V,
    O,
    LSE
};

enum {
    ROW_BLOCK = 256, /* threads that make sums over rows */
    SENDERS   = 2    /* pieces of a tile of queries, and of a block of keys */
};
_Static_assert((int)WEFT_CUDA_BACK_KEYS == WEFT_ATTENTION_BLOCK &&
                   (int)WEFT_CUDA_BACK_TILE_64 == WEFT_ATTENTION_TILE_64 &&
                   (int)WEFT_CUDA_BACK_TILE_128 == WEFT_ATTENTION_TILE_128 &&
                   (int)WEFT_CUDA_BACK_PIECE == WEFT_ATTENTION_PIECE,
               "op/workspace.h");

typedef struct back_call {
    const weft_view *in, *out; /* of the call */
    int64_t          b, s, h, t, g, e;
    int64_t          ahead;
    bool             causal;
    float            scale;
    const weft_attr *turned; /* of dq and dk; NULL: they are not turned here */

    weft_attention_sums sums;
    weft_cuda_unturned  own; /* the call without steps */
} back_call;

typedef struct prepared_back {
    weft_cuda_attention_back_args back;
    weft_cuda_attention_rows_args rows;
    weft_cuda_kernel              kernel;
    weft_cuda_grid                grid, rows_grid;
    bool                          turns; /* dq and dk */
} prepared_back;

/* (b,n,heads,e) in bf16: aligned rows of e elements, strides that a tensor map holds */
static bool is_heads(const weft_view *v, int64_t b, int64_t n, int64_t heads, int64_t e)
{
    const int64_t want[4] = {b, n, heads, e};
    if (!v->p || (uintptr_t)v->p % 16 || v->dtype != WEFT_DTYPE_BF16 || v->shape.n != 4)
        return false;
    for (int d = 0; d < 4; d++) {
        if (v->shape.d[d] != want[d]) return false;
        if (d < 3 && v->shape.d[d] > 1 &&
            (v->stride[d] % 8 || v->stride[d] <= 0 || v->stride[d] >= (int64_t)1 << 38))
            return false;
    }
    return v->stride[3] == 1;
}

static bool has_views(const back_call *c)
{
    static const int of_q[] = {DY, Q, O}, of_k[] = {K, V};
    for (int i = 0; i < 3; i++)
        if (!is_heads(&c->in[of_q[i]], c->b, c->s, c->h, c->e)) return false;
    for (int i = 0; i < 2; i++)
        if (!is_heads(&c->in[of_k[i]], c->b, c->t, c->g, c->e) ||
            !is_heads(&c->out[1 + i], c->b, c->t, c->g, c->e))
            return false;
    const weft_view *lse = &c->in[LSE];
    return is_heads(&c->out[0], c->b, c->s, c->h, c->e) && lse->p &&
           lse->dtype == WEFT_DTYPE_F32;
}

static bool set_mask(const weft_kernel_call *call, back_call *c)
{
    int64_t q = weft_cuda_attr(call, "q_first")->i,
            k = weft_cuda_attr(call, "k_first")->i;
    if (weft_cuda_attr(call, "window")->i > 0) return false;
    c->causal = weft_cuda_attr(call, "causal")->i != 0;
    c->ahead  = q < 0 ? c->t - c->s : q - k;
    if (!c->causal || c->ahead >= c->t - 1) c->causal = false, c->ahead = 0;
    return weft_attention_has_sums(c->s, c->t, c->e, c->causal, c->ahead);
}

/* 32 bits hold tickets and positions. */
static bool fits_numbers(const back_call *c)
{
    return c->s < INT32_MAX / 4 && c->t < INT32_MAX / 4 && c->b < INT32_MAX / 4 &&
           c->h < INT32_MAX / 4 &&
           (double)(c->sums.n_tile * c->sums.tile) * (double)c->h < INT32_MAX &&
           (double)c->b * (double)c->h * (double)(c->sums.n_block + c->sums.n_tile) <
               INT32_MAX / 4;
}

/* Heads of 64 whose queries and keys are at the same positions are turned as they are stored. */
static const weft_attr *find_turns(const weft_kernel_call *call, const back_call *c)
{
    if (!call->n_post || c->e != 64 || c->s != c->t) return NULL;
    weft_cuda_angles q = weft_cuda_angles_of(call->post[0].attr, c->e);
    weft_cuda_angles k = weft_cuda_angles_of(call->post[1].attr, c->e);
    return memcmp(&q, &k, sizeof q) ? NULL : call->post[0].attr;
}

static bool read_call(const weft_kernel_call *call, back_call *c)
{
    *c = (back_call){.in = call->in};
    if (!weft_cuda_leave_turned(call, &c->own)) return false;
    c->out = c->own.call.out;
    if (call->add || call->n_own_in != 6 || call->n_own_out != 3) return false;
    const int64_t *q = call->in[Q].shape.d, *k = call->in[K].shape.d;
    c->b = q[0], c->s = q[1], c->h = q[2], c->e = q[3], c->t = k[1], c->g = k[2];
    if (c->b < 1 || c->s < 1 || c->t < 1 || c->g < 1 || c->h < 1 || c->h % c->g)
        return false;
    if (!has_views(c) || !set_mask(call, c)) return false;
    c->sums = weft_workspace_attention_sums(c->b, c->h, c->g, c->s, c->t, c->e, c->causal,
                                            c->ahead);
    c->scale = (float)weft_cuda_attr(call, "scale")->f;
    if (c->scale == 0) c->scale = 1 / sqrtf((float)c->e);
    c->turned = find_turns(call, c);
    return c->scale > 0 && fits_numbers(c);
}

static weft_status make_maps(const back_call *c, weft_cuda_attention_back_args *a)
{
    int64_t keys = WEFT_CUDA_BACK_KEYS, piece = 64;
    WEFT_TRY(weft_cuda_map_heads(&c->in[Q], c->sums.tile, &a->q));
    WEFT_TRY(weft_cuda_map_heads(&c->in[DY], c->sums.tile, &a->dy));
    WEFT_TRY(weft_cuda_map_heads(&c->in[K], keys, &a->k));
    WEFT_TRY(weft_cuda_map_heads(&c->in[V], keys, &a->v));
    WEFT_TRY(weft_cuda_map_heads(&c->out[0], piece, &a->dq));
    WEFT_TRY(weft_cuda_map_heads(&c->out[1], piece, &a->dk));
    return weft_cuda_map_heads(&c->out[2], piece, &a->dv);
}

/* In which order blocks of keys are taken: by the shape alone, so that the order of sums is, too
 * (bench/results/gpu-attention.txt, an H200).  Causal: the last keys first, since then every sum's
 * turn has come when it is asked for, and of as many key heads in turns as have operands and sums
 * in the L2 cache.  Not causal: every block has the same length, and blocks of one head that run
 * at the same time would wait for each other at every tile: those of 33 key heads in turns. */
static void choose_order(const back_call *c, weft_cuda_attention_back_args *a)
{
    enum {
        MOST  = 16,
        CACHE = 24 << 20
    };
    /* bf16: q, dy, k and v; f32: the sums of dq, and of dk and dv where there are any */
    int64_t bytes = c->e * (8 * c->s + (c->h > c->g ? 12 : 4) * c->t);
    a->rising     = !c->causal;
    a->units      = (int32_t)(c->b * c->g);
    a->together   = c->causal ? MOST : 33;
    while (c->causal && a->together > 1 && a->together * bytes > CACHE) a->together /= 2;
}

static void set_back(const back_call *c, char *scratch, prepared_back *p)
{
    int64_t   heads = c->b * c->h, n_ticket = heads * c->sums.n_block;
    int64_t   most     = weft_cuda_wgmma_blocks();
    uint32_t *counters = (uint32_t *)(scratch + c->sums.counters);

    weft_cuda_attention_back_args *a = &p->back;

    a->rows     = (float *)(scratch + c->sums.rows);
    a->dq_sum   = (float *)(scratch + c->sums.dq);
    a->dkv_sum  = (float *)(scratch + c->sums.dkv);
    a->ticket   = counters;
    a->dq_turn  = counters + 1;
    a->dkv_turn = counters + 1 + heads * c->sums.n_tile * SENDERS;
    a->heads    = (int32_t)heads;
    a->h        = (int32_t)c->h;
    a->g        = (int32_t)c->g;
    a->ratio    = (int32_t)(c->h / c->g);
    a->s        = (int32_t)c->s;
    a->t        = (int32_t)c->t;
    a->n_tile   = (int32_t)c->sums.n_tile;
    a->alone    = (int32_t)c->sums.alone;
    a->n_block  = (int32_t)c->sums.n_block;
    a->ahead    = (int32_t)c->ahead;
    a->causal   = c->causal;
    a->scale    = c->scale;
    a->scale_2  = c->scale * 1.4426950408889634f;
    a->turned   = c->turned ? (float *)(scratch + c->sums.turned) : NULL;
    choose_order(c, a);
    p->turns  = c->turned != NULL;
    p->kernel = c->e == 64 ? WEFT_CUDA_attention_back_64 : WEFT_CUDA_attention_back_128;
    p->grid   = (weft_cuda_grid){(unsigned)(n_ticket < most ? n_ticket : most), 1, 1,
                                 WEFT_CUDA_BACK_THREADS, WEFT_CUDA_BACK_BYTES};
}

static void set_rows(const back_call *c, char *scratch, prepared_back *p)
{
    p->rows = (weft_cuda_attention_rows_args){.dy       = weft_cuda_heads_of(&c->in[DY]),
                                              .o        = weft_cuda_heads_of(&c->in[O]),
                                              .lse      = weft_cuda_heads_of(&c->in[LSE]),
                                              .rows     = p->back.rows,
                                              .counters = p->back.ticket,
                                              .n_counter = c->sums.n_counter,
                                              .b         = (int32_t)c->b,
                                              .s         = (int32_t)c->s,
                                              .h         = (int32_t)c->h,
                                              .e         = (int32_t)c->e,
                                              .n_tile    = (int32_t)c->sums.n_tile,
                                              .tile      = (int32_t)c->sums.tile};
    if (c->turned) {
        p->rows.by       = weft_cuda_angles_of(c->turned, c->e);
        p->rows.turned   = (float *)(scratch + c->sums.turned);
        p->rows.n_turned = c->sums.n_turned;
    }
    int64_t per  = weft_cuda_ceil(c->sums.n_tile * c->sums.tile * c->h * c->e / 8,
                                  ROW_BLOCK * WEFT_CUDA_BACK_ROWS);
    p->rows_grid = (weft_cuda_grid){(unsigned)(c->b * per), 1, 1, ROW_BLOCK, 0};
}

CUDA_TAKES(attention_back)
{
    back_call b;
    return weft_cuda_wgmma_blocks() && read_call(c, &b);
}

CUDA_SCRATCH(attention_back)
{
    back_call b;
    (void)n_thread;
    return read_call(c, &b) ? (size_t)b.sums.bytes : 0;
}

CUDA_PREPARE(attention_back)
{
    enum {
        MAP = _Alignof(prepared_back)
    };
    back_call b;
    if (!read_call(c, &b))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "attention_grad: not a call for warpgroups");
    char *room = weft_arena_alloc(arena, sizeof(prepared_back) + MAP);
    if (!room) return weft_arena_status(arena);
    prepared_back *p = (prepared_back *)(((uintptr_t)room + MAP - 1) / MAP * MAP);
    *p               = (prepared_back){0};
    set_back(&b, x->scratch, p);
    set_rows(&b, x->scratch, p);
    *out = p;
    return make_maps(&b, &p->back);
}

CUDA_RUN(attention_back)
{
    const prepared_back *p = c->prepared;
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_attention_rows, p->rows_grid, &p->rows));
    WEFT_TRY(weft_cuda_launch(x, p->kernel, p->grid, &p->back));
    return p->turns ? WEFT_OK : weft_cuda_turn(c, x);
}
