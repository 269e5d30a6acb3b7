/* attention and its gradient by cuDNN: bf16, head sizes that are multiples of 8 up to 256, causal
 * or not, shared key heads.
 *
 * takes() makes the plan, so that a shape cuDNN cannot do goes to the own kernel; plans are kept,
 * so layers of one shape share it.  The backward pass keeps gradients of the scores, 2 b h s t
 * bytes: where that is above 2.25 GiB, one plan for a slice of the batch or of the heads runs slice
 * after slice in the same workspace (measured on an H200: 769 MB whole 0.571 ms, in 2 slices
 * 0.622, in 4 0.713). */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "cuda_priv.h"
#include "op/workspace.h"
#include "dnn.h"
#include "sdpa.h"

enum {
    MOST_HEAD_SIZE = 256
};

int64_t weft_cuda_sdpa_most_bytes = WEFT_WORKSPACE_ATTENTION;

/* A call: its operands by the names of a plan, and how it is cut. */
typedef struct sdpa_call {
    const weft_view     *view[SDPA_DV + 1]; /* NULL: not of this call */
    weft_cuda_sdpa_shape shape;             /* of a slice */
    int64_t              b, g;              /* of the call */
    float                scale;
    int64_t              sum_bytes, lse_bytes; /* own scratch, before the workspace */
} sdpa_call;

typedef struct prepared_sdpa {
    const weft_cuda_dnn  *dnn;
    const weft_cuda_sdpa *plan;
    void                 *handle;
    float                 scale, lowest, one;
    int32_t               shift;
    int                   n_pack;
    void                **pack; /* one a slice */
} prepared_sdpa;

static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the call ---- */

static int64_t round_up(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void list_views(const weft_kernel_call *c, sdpa_call *s)
{
    static const int forward[]  = {SDPA_Q, SDPA_K, SDPA_V};
    static const int backward[] = {SDPA_DO, SDPA_Q, SDPA_K, SDPA_V, SDPA_O, SDPA_LSE};
    if (c->op == WEFT_OP_ATTENTION) {
        for (int i = 0; i < 3; i++) s->view[forward[i]] = &c->in[i];
        s->view[SDPA_O]   = &c->out[0];
        s->view[SDPA_LSE] = &c->out[1];
        return;
    }
    for (int i = 0; i < 6; i++) s->view[backward[i]] = &c->in[i];
    for (int i = 0; i < 3; i++) s->view[SDPA_DQ + i] = &c->out[i];
}

/* (b,n,heads,e) in bf16: aligned rows of e elements */
static bool is_heads(const weft_view *v, int64_t b, int64_t n, int64_t heads, int64_t e)
{
    const int64_t want[4] = {b, n, heads, e};
    if (!v->p || (uintptr_t)v->p % 16 || v->dtype != WEFT_DTYPE_BF16 || v->shape.n != 4)
        return false;
    for (int d = 0; d < 4; d++)
        if (v->shape.d[d] != want[d] ||
            (d < 3 && v->shape.d[d] > 1 && v->stride[d] % 8) ||
            (v->shape.d[d] > 1 && v->stride[d] <= 0))
            return false;
    return v->stride[3] == 1;
}

/* In cuDNN's order (b,heads,n,e); a dimension of one index gets a stride that is no overlap. */
static void set_strides(sdpa_call *s, int name)
{
    const weft_view *v      = s->view[name];
    int64_t         *out    = s->shape.stride[name];
    static const int from[] = {0, 2, 1, 3};
    int64_t          most   = 1;
    for (int d = 0; d < v->shape.n; d++)
        if (v->shape.d[d] * v->stride[d] > most) most = v->shape.d[d] * v->stride[d];
    for (int d = 0; d < 4; d++) {
        if (from[d] >= v->shape.n)
            out[d] = 1;
        else
            out[d] = v->shape.d[from[d]] > 1 ? v->stride[from[d]] : most;
    }
    if (v->shape.n == 4) out[3] = 1;
}

static bool has_views(const sdpa_call *s)
{
    const weft_cuda_sdpa_shape *x      = &s->shape;
    bool                        grad   = x->backward != 0;
    static const int            of_q[] = {SDPA_Q, SDPA_O, SDPA_DO, SDPA_DQ};
    static const int            of_k[] = {SDPA_K, SDPA_V, SDPA_DK, SDPA_DV};
    for (int i = 0; i < (grad ? 4 : 2); i++)
        if (!is_heads(s->view[of_q[i]], x->b, x->s, x->h, x->e) ||
            !is_heads(s->view[of_k[i]], x->b, x->t, x->g, x->e))
            return false;
    const weft_view *lse = s->view[SDPA_LSE];
    return lse->dtype == WEFT_DTYPE_F32 && (lse->p || !grad) &&
           (uintptr_t)lse->p % 16 == 0;
}

/* Which keys a query sees, by the call's attributes; false: some query may see none. */
static bool set_mask(const weft_kernel_call *c, weft_cuda_sdpa_shape *x)
{
    int64_t q = weft_cuda_attr(c, "q_first")->i, k = weft_cuda_attr(c, "k_first")->i;
    if (weft_cuda_attr(c, "window")->i > 0) return false;
    x->causal = weft_cuda_attr(c, "causal")->i != 0;
    x->shift  = q < 0 ? x->t - x->s : q - k;
    if (!x->causal || x->shift >= x->t - 1) x->causal = x->shift = 0;
    return x->shift >= 0;
}

/* As much of the batch as fits the workspace; of one sequence, as many key heads. */
static void cut_slices(sdpa_call *s)
{
    weft_cuda_sdpa_shape *x     = &s->shape;
    int64_t               ratio = x->h / x->g;
    if (!x->backward) return;
    weft_attention_slice slice = weft_workspace_attention(s->b, s->g, ratio, x->s, x->t,
                                                          weft_cuda_sdpa_most_bytes);
    x->b                       = slice.b;
    x->g                       = slice.g;
    x->h                       = x->g * ratio;
}

static bool read_call(const weft_kernel_call *c, sdpa_call *s)
{
    bool grad = c->op == WEFT_OP_ATTENTION_GRAD;
    memset(s, 0, sizeof *s); /* shapes are compared as bytes */
    if (c->n_post || c->add || c->n_own_in != (grad ? 6 : 3)) return false;
    list_views(c, s);
    weft_cuda_sdpa_shape *x = &s->shape;
    const int64_t        *q = s->view[SDPA_Q]->shape.d, *k = s->view[SDPA_K]->shape.d;
    x->b = q[0], x->s = q[1], x->h = q[2], x->e = q[3], x->t = k[1], x->g = k[2];
    x->backward = grad;
    if (x->b < 1 || x->s < 1 || x->t < 1 || x->g < 1 || x->h < 1 || x->h % x->g)
        return false;
    if (x->e < 8 || x->e > MOST_HEAD_SIZE || x->e % 8) return false;
    if (!has_views(s) || !set_mask(c, x)) return false;
    s->b     = x->b;
    s->g     = x->g;
    s->scale = (float)weft_cuda_attr(c, "scale")->f;
    if (s->scale == 0) s->scale = 1 / sqrtf((float)x->e);
    for (int name = SDPA_Q; name <= (grad ? SDPA_DV : SDPA_LSE); name++)
        set_strides(s, name);
    cut_slices(s);
    if (grad) s->sum_bytes = round_up(4 * x->b * x->h * x->s);
    if (!s->view[SDPA_LSE]->p) s->lse_bytes = round_up(4 * x->b * x->h * x->s);
    return true;
}

static const weft_cuda_sdpa *find_plan(const sdpa_call *s)
{
    const weft_cuda_dnn *dnn    = weft_cuda_dnn_get();
    void                *handle = NULL;
    if (!dnn || weft_cuda_dnn_handle(&handle) != WEFT_OK) return NULL;
    const weft_cuda_sdpa *plan = weft_cuda_sdpa_get(dnn, handle, NULL, &s->shape);
    return plan && plan->plan ? plan : NULL;
}

/* ---- the row ---- */

bool weft_cuda_takes_sdpa(const weft_kernel_call *c)
{
    sdpa_call s;
    return weft_cuda_dnn_get() && read_call(c, &s) && find_plan(&s);
}

size_t weft_cuda_scratch_sdpa(const weft_kernel_call *c, int n_thread)
{
    sdpa_call s;
    (void)n_thread;
    if (!read_call(c, &s)) return 0;
    const weft_cuda_sdpa *plan = find_plan(&s);
    return plan ? (size_t)(s.sum_bytes + s.lse_bytes + plan->workspace_bytes) : 0;
}

/* The address of a plan's tensor in slice (b, g). */
static void *tensor_address(const sdpa_call *s, prepared_sdpa *p, char *scratch,
                            int64_t name, int64_t b, int64_t g)
{
    int64_t ratio = s->shape.h / s->shape.g;
    switch (name) {
    case SDPA_SCALE: return &p->scale;
    case SDPA_LOWEST: return &p->lowest;
    case SDPA_SHIFT: return &p->shift;
    case SDPA_ONE: return &p->one;
    case SDPA_SUM: return scratch;
    default: break;
    }
    const weft_view *v = s->view[name];
    if (!v->p) return scratch + s->sum_bytes; /* lse that is not kept */
    bool    keys = name == SDPA_K || name == SDPA_V || name == SDPA_DK || name == SDPA_DV;
    int64_t at =
        b * s->shape.stride[name][0] + (keys ? g : g * ratio) * s->shape.stride[name][1];
    return (char *)v->p + at * (v->dtype == WEFT_DTYPE_F32 ? 4 : 2);
}

static weft_status dnn_fail(const weft_cuda_dnn *dnn, const char *what)
{
    char text[400] = "";
    dnn->last_error(text, sizeof text);
    text[strcspn(text, "\n")] = 0;
    return WEFT_FAIL(WEFT_ERR_IO, "cuDNN: %s fails: %s", what, text);
}

/* What a run of the plan works on. */
static weft_status make_pack(const sdpa_call *s, prepared_sdpa *p, char *scratch,
                             int64_t b, int64_t g, void **out)
{
    const weft_cuda_dnn *dnn = p->dnn;
    void                *address[N_SDPA_TENSOR];
    void                *workspace = scratch + s->sum_bytes + s->lse_bytes;
    for (int i = 0; i < p->plan->n_tensor; i++)
        address[i] = tensor_address(s, p, scratch, p->plan->tensor[i], b, g);
    if (dnn->desc_create(DNN_VARIANT_PACK, out)) return dnn_fail(dnn, "a variant pack");
    if (dnn->desc_set(*out, DNN_PACK_WORKSPACE, DNN_TYPE_POINTER, 1, &workspace) ||
        dnn->desc_set(*out, DNN_PACK_POINTERS, DNN_TYPE_POINTER, p->plan->n_tensor,
                      address) ||
        dnn->desc_set(*out, DNN_PACK_UNIQUE_IDS, DNN_TYPE_INT64, p->plan->n_tensor,
                      p->plan->tensor) ||
        dnn->desc_finalize(*out))
        return dnn_fail(dnn, "a variant pack");
    return WEFT_OK;
}

void weft_cuda_release_sdpa(void *prepared)
{
    prepared_sdpa *p = prepared;
    for (int i = 0; i < p->n_pack; i++)
        if (p->pack[i]) p->dnn->desc_destroy(p->pack[i]);
}

weft_status weft_cuda_prepare_sdpa(const weft_kernel_call *c, const weft_kernel_ctx *x,
                                   weft_arena *arena, void **out)
{
    sdpa_call      s;
    prepared_sdpa *p = WEFT_ARENA_NEW(arena, prepared_sdpa);
    WEFT_TRY(weft_arena_status(arena));
    p->dnn  = weft_cuda_dnn_get();
    p->plan = read_call(c, &s) ? find_plan(&s) : NULL;
    if (!p->plan) return WEFT_FAIL(WEFT_ERR_INTERNAL, "attention: not a call for cuDNN");
    WEFT_TRY(weft_cuda_dnn_handle(&p->handle));
    p->scale    = s.scale;
    p->lowest   = -INFINITY;
    p->one      = 1;
    p->shift    = (int32_t)s.shape.shift;
    int64_t n_b = s.b / s.shape.b, n_g = s.g / s.shape.g;
    p->pack = WEFT_ARENA_ARRAY(arena, void *, n_b *n_g);
    WEFT_TRY(weft_arena_status(arena));
    for (int64_t b = 0; b < n_b; b++)
        for (int64_t g = 0; g < n_g; g++) {
            weft_status st = make_pack(&s, p, x->scratch, b * s.shape.b, g * s.shape.g,
                                       &p->pack[p->n_pack]);
            p->n_pack++;
            if (st == WEFT_OK) continue;
            weft_cuda_release_sdpa(p);
            return st;
        }
    *out = p;
    return WEFT_OK;
}

CUDA_RUN(sdpa)
{
    const prepared_sdpa *p  = c->prepared;
    int                  st = 0;
    pthread_mutex_lock(&stream_lock); /* the handle has one stream at a time */
    st = p->dnn->set_stream(p->handle, weft_cuda_stream(x));
    for (int i = 0; i < p->n_pack && !st; i++)
        st = p->dnn->execute(p->handle, p->plan->plan, p->pack[i]);
    pthread_mutex_unlock(&stream_lock);
    return st ? dnn_fail(p->dnn, "attention") : WEFT_OK;
}
