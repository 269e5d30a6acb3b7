/* matmul by cublasLt: bf16 or f32 operands, sums in f32 (TF32 off), results in bf16 or f32.
 *
 * prepare makes descriptors and picks the algorithm of each part: that of the pinned table where
 * it has the shape, else the first that the library offers.  Never chosen by timing.  Sums that
 * are split run through the workspace, in order. run issues the parts on the stream. */
#include <string.h>

#include "cuda_priv.h"
#include "op/workspace.h"
#include "pinned.h"
#include "product.h"

enum {
    MOST_OFFERS = 32,
    N_LAYOUT    = 4 /* A, B, C, D */
};

typedef struct product_part {
    void               *desc, *layout[N_LAYOUT];
    weft_cuda_blas_algo algo;
    float               alpha, beta;
    const char         *a, *b, *c;
    char               *d;
} product_part;

typedef struct prepared_product {
    const weft_cuda_blas *blas;
    void                 *handle;
    size_t                workspace_bytes;
    bool                  unfolds; /* steps follow as own kernels */
    weft_cuda_product     plan;
    int                   n_part;
    product_part          part[PRODUCT_MAX_PART];
} prepared_product;

/* What cublasLt sees: columns first, so A and B change places. */
typedef struct lt_matrix {
    int     type;
    bool    transposed;
    int64_t rows, cols, ld;
} lt_matrix;

static int blas_type(weft_dtype t)
{
    switch (t) {
    case WEFT_DTYPE_BF16: return WEFT_BLAS_BF16;
    case WEFT_DTYPE_F8_E4M3: return WEFT_BLAS_F8_E4M3;
    case WEFT_DTYPE_F8_E5M2: return WEFT_BLAS_F8_E5M2;
    default: return WEFT_BLAS_F32;
    }
}

static int64_t element_bytes(weft_dtype t)
{
    return weft_dtype_bytes(t);
}

/* Of cublasLt's type. */
static int64_t type_bytes(int type)
{
    return type == WEFT_BLAS_F32 ? 4 : type == WEFT_BLAS_BF16 ? 2 : 1;
}

/* The transpose of a row-major matrix, as it is or turned. */
static lt_matrix matrix_of(const weft_cuda_product *p, int o, int64_t rows, int64_t cols)
{
    int64_t   row = p->row[o], col = p->col[o];
    lt_matrix x  = {.type = blas_type(p->view[o]->dtype), .rows = cols, .cols = rows};
    x.transposed = o != PRODUCT_C && o != PRODUCT_D &&
                   weft_cuda_product_turned(rows, cols, row, col);
    if (x.transposed) x.rows = rows, x.cols = cols;
    x.ld = x.cols == 1 ? x.rows : x.transposed ? col : row;
    return x;
}

static const char *address_of(const weft_cuda_product *p, int o, int64_t r, int64_t c)
{
    return (const char *)p->view[o]->p +
           (r * p->row[o] + c * p->col[o]) * element_bytes(p->view[o]->dtype);
}

/* ---- descriptors ---- */

static weft_status blas_fail(const char *what, int status)
{
    return WEFT_FAIL(WEFT_ERR_IO, "cublasLt: %s failed with status %d", what, status);
}

#define TRY_BLAS(what, call)                                                             \
    do {                                                                                 \
        int blas_st_ = (call);                                                           \
        if (blas_st_) return blas_fail(what, blas_st_);                                  \
    } while (0)

static weft_status make_layout(const prepared_product *s, int o, const lt_matrix *x,
                               void **out)
{
    int64_t stride = s->plan.batch_stride[o];
    int32_t batch  = (int32_t)s->plan.batch;
    TRY_BLAS("layout_create", s->blas->layout_create(out, x->type, (uint64_t)x->rows,
                                                     (uint64_t)x->cols, x->ld));
    if (batch == 1) return WEFT_OK;
    TRY_BLAS("layout_set",
             s->blas->layout_set(*out, WEFT_BLAS_LAYOUT_BATCH, &batch, sizeof batch));
    TRY_BLAS("layout_set", s->blas->layout_set(*out, WEFT_BLAS_LAYOUT_BATCH_STRIDE,
                                               &stride, sizeof stride));
    return WEFT_OK;
}

static weft_status set_epilogue(const prepared_product *s, product_part *part,
                                const weft_cuda_product_part *at)
{
    const weft_cuda_product *p = &s->plan;
    TRY_BLAS("desc_set", s->blas->desc_set(part->desc, WEFT_BLAS_DESC_EPILOGUE,
                                           &p->epilogue, sizeof p->epilogue));
    if (p->bias) {
        const char *bias =
            (const char *)p->bias->p + at->n0 * element_bytes(p->bias->dtype);
        TRY_BLAS("desc_set",
                 s->blas->desc_set(part->desc, WEFT_BLAS_DESC_BIAS, &bias, sizeof bias));
    }
    if (p->view[PRODUCT_AUX]) {
        const char *aux = address_of(p, PRODUCT_AUX, at->m0, at->n0);
        int64_t     ld  = p->m == 1 ? p->n : p->row[PRODUCT_AUX];
        TRY_BLAS("desc_set",
                 s->blas->desc_set(part->desc, WEFT_BLAS_DESC_AUX, &aux, sizeof aux));
        TRY_BLAS("desc_set",
                 s->blas->desc_set(part->desc, WEFT_BLAS_DESC_AUX_LD, &ld, sizeof ld));
    }
    return WEFT_OK;
}

/* cublasLt's A is our B. */
static weft_status set_units(const prepared_product *s, product_part *part,
                             const weft_cuda_product_part *at)
{
    const float *unit[2] = {s->plan.unit[1] + at->n0, s->plan.unit[0] + at->m0};
    int32_t      mode    = WEFT_BLAS_SCALE_ROWS;
    int8_t       fast    = weft_cuda_fp8_sums_fast();
    for (int i = 0; i < 2; i++) {
        TRY_BLAS("desc_set",
                 s->blas->desc_set(part->desc, WEFT_BLAS_DESC_SCALE_MODE_A + i, &mode,
                                   sizeof mode));
        TRY_BLAS("desc_set", s->blas->desc_set(part->desc, WEFT_BLAS_DESC_SCALE_A + i,
                                               &unit[i], sizeof unit[i]));
    }
    TRY_BLAS("desc_set",
             s->blas->desc_set(part->desc, WEFT_BLAS_DESC_FAST_SUM, &fast, sizeof fast));
    return WEFT_OK;
}

/* A call's algorithm must not depend on where its buffers happen to be: they begin at multiples
 * of 64 bytes, and views into them are aligned to 16 or count as not aligned at all. */
static uint32_t alignment_of(const weft_cuda_product *plan, int o, const void *p,
                             const lt_matrix *x)
{
    int64_t bytes = type_bytes(x->type);
    int64_t steps = x->ld | plan->batch_stride[o]; /* multiples of 8 where all are */
    for (int l = 0; l < plan->n_loop; l++) steps |= plan->loop_stride[l][o];
    return (uintptr_t)p % 16 == 0 && steps * bytes % 16 == 0 ? 16 : (uint32_t)bytes;
}

static weft_cuda_pinned_key key_of(const prepared_product *s, const lt_matrix *x,
                                   const weft_cuda_product_part *at,
                                   const product_part           *part)
{
    weft_cuda_pinned_key key = {.type  = {x[0].type, x[1].type, x[3].type},
                                .trans = {x[0].transposed, x[1].transposed},
                                .m     = at->m,
                                .n     = at->n,
                                .k     = at->k,
                                .batch = s->plan.batch};
    key.epilogue             = at->last ? s->plan.epilogue : WEFT_BLAS_EPILOGUE_NONE;
    const void *p[N_LAYOUT]  = {part->b, part->a, part->c ? part->c : part->d, part->d};
    const int   o[N_LAYOUT]  = {PRODUCT_B, PRODUCT_A, part->c ? PRODUCT_C : PRODUCT_D,
                                PRODUCT_D};
    for (int i = 0; i < N_LAYOUT; i++)
        key.align[i] = alignment_of(&s->plan, o[i], p[i], &x[i]);
    return key;
}

/* cublasStatus_t of a call that went wrong, where others say that nothing is offered: not
 * initialized, no memory, failed, an internal error. */
static bool is_failure(int status)
{
    return status == 1 || status == 3 || status == 13 || status == 14;
}

/* WEFT_ERR_NOFIT: there are none. */
static weft_status list_offers(const prepared_product *s, const product_part *part,
                               const weft_cuda_pinned_key *key,
                               weft_cuda_blas_offer *offer, int most, int *n)
{
    const weft_cuda_blas *blas       = s->blas;
    void *const          *layout     = part->layout;
    void                 *preference = NULL;
    uint64_t              bytes      = s->workspace_bytes;
    uint32_t              scheme     = WEFT_BLAS_REDUCTION_IN_ORDER_F32;
    TRY_BLAS("preference_create", blas->preference_create(&preference));
    int st = blas->preference_set(preference, WEFT_BLAS_PREFER_WORKSPACE, &bytes,
                                  sizeof bytes);
    if (!st)
        st = blas->preference_set(preference, WEFT_BLAS_PREFER_REDUCTIONS, &scheme,
                                  sizeof scheme);
    for (int i = 0; i < N_LAYOUT && !st; i++)
        st = blas->preference_set(preference, WEFT_BLAS_PREFER_ALIGN_A + i,
                                  &key->align[i], sizeof key->align[i]);
    if (!st)
        st = blas->heuristic(s->handle, part->desc, layout[0], layout[1], layout[2],
                             layout[3], preference, most, offer, n);
    blas->preference_destroy(preference);
    if (!st && *n > 0 && !offer[0].status) return WEFT_OK;
    if (is_failure(st)) return blas_fail("heuristic", st);
    return WEFT_FAIL(WEFT_ERR_NOFIT,
                     "cublasLt has no algorithm for a product of %ld x %ld x %ld "
                     "(status %d)",
                     (long)key->m, (long)key->n, (long)key->k, st);
}

/* One run of a part, for whoever measures it. */
typedef struct part_trial {
    const prepared_product *s;
    const product_part     *part;
    const weft_kernel_ctx  *x;
} part_trial;

static int issue_part(const prepared_product *s, const product_part *part,
                      const weft_kernel_ctx *x, const weft_cuda_blas_algo *algo)
{
    return s->blas->matmul(s->handle, part->desc, &part->alpha, part->b, part->layout[0],
                           part->a, part->layout[1], &part->beta,
                           part->c ? part->c : part->d, part->layout[2], part->d,
                           part->layout[3], algo, x->scratch, s->workspace_bytes,
                           weft_cuda_stream(x));
}

static int issue_trial(void *arg, const weft_cuda_blas_algo *algo)
{
    const part_trial *t = arg;
    return issue_part(t->s, t->part, t->x, algo);
}

static int check_part(const prepared_product *s, const product_part *part,
                      const weft_cuda_blas_algo *algo, weft_cuda_blas_offer *offer)
{
    void *const *layout = part->layout;
    int st = s->blas->check(s->handle, part->desc, layout[0], layout[1], layout[2],
                            layout[3], algo, offer);
    return st ? st : offer->workspace_bytes > s->workspace_bytes;
}

static int check_trial(void *arg, const weft_cuda_blas_algo *algo,
                       weft_cuda_blas_offer *offer)
{
    const part_trial *t = arg;
    return check_part(t->s, t->part, algo, offer);
}

/* From the first element to the last one. */
static weft_cuda_factor factor_of(const weft_cuda_product *p, int o, const void *at,
                                  const lt_matrix *x)
{
    int64_t n = (x->cols - 1) * x->ld + x->rows + (p->batch - 1) * p->batch_stride[o];
    return (weft_cuda_factor){at, n * type_bytes(x->type), x->type};
}

/* Pinned, or measured where that is asked for, or the first offer. */
static weft_status choose_algorithm(const prepared_product *s, const lt_matrix *x,
                                    const weft_cuda_product_part *at,
                                    const weft_kernel_ctx *ctx, product_part *part)
{
    weft_cuda_blas_offer offer[MOST_OFFERS] = {{.status = 0}};
    weft_cuda_pinned_key key                = key_of(s, x, at, part);
    int                  n                  = 0;
    if (weft_cuda_pinned_find(&key, &part->algo) &&
        !check_part(s, part, &part->algo, &offer[0]))
        return WEFT_OK;
    WEFT_TRY(list_offers(s, part, &key, offer, weft_cuda_tuner ? MOST_OFFERS : 1, &n));
    part->algo = offer[0].algo;
    if (!weft_cuda_tuner) return WEFT_OK;
    part_trial t = {s, part, ctx};
    weft_cuda_tuner(
        &(weft_cuda_trial){.issue  = issue_trial,
                           .check  = check_trial,
                           .arg    = &t,
                           .stream = weft_cuda_stream(ctx),
                           .blas   = s->blas,
                           .key    = &key,
                           .factor = {factor_of(&s->plan, PRODUCT_B, part->b, &x[0]),
                                      factor_of(&s->plan, PRODUCT_A, part->a, &x[1])},
                           .result = factor_of(&s->plan, PRODUCT_D, part->d, &x[3])},
        offer, n, &part->algo);
    return WEFT_OK;
}

static weft_status make_part(const prepared_product *s, const weft_cuda_product_part *at,
                             const weft_kernel_ctx *ctx, product_part *part)
{
    const weft_cuda_product *p = &s->plan;
    bool      to_d             = !at->first || p->view[PRODUCT_C] == p->view[PRODUCT_D];
    lt_matrix x[N_LAYOUT]      = {matrix_of(p, PRODUCT_B, at->k, at->n),
                                  matrix_of(p, PRODUCT_A, at->m, at->k)};
    x[3]                       = matrix_of(p, PRODUCT_D, at->m, at->n);
    x[2] = to_d || !p->view[PRODUCT_C] ? x[3] : matrix_of(p, PRODUCT_C, at->m, at->n);

    part->alpha = p->alpha;
    part->beta  = at->first ? p->beta : 1;
    part->a     = address_of(p, PRODUCT_A, at->m0, at->k0);
    part->b     = address_of(p, PRODUCT_B, at->k0, at->n0);
    part->d     = (char *)p->view[PRODUCT_D]->p +
              (address_of(p, PRODUCT_D, at->m0, at->n0) - (char *)p->view[PRODUCT_D]->p);
    if (!to_d && p->view[PRODUCT_C]) part->c = address_of(p, PRODUCT_C, at->m0, at->n0);

    int trans[2] = {x[0].transposed ? WEFT_BLAS_T : WEFT_BLAS_N,
                    x[1].transposed ? WEFT_BLAS_T : WEFT_BLAS_N};
    TRY_BLAS("desc_create",
             s->blas->desc_create(&part->desc, WEFT_BLAS_COMPUTE_F32, WEFT_BLAS_F32));
    for (int i = 0; i < 2; i++)
        TRY_BLAS("desc_set", s->blas->desc_set(part->desc, WEFT_BLAS_DESC_TRANS_A + i,
                                               &trans[i], sizeof trans[i]));
    if (at->last && p->epilogue != WEFT_BLAS_EPILOGUE_NONE)
        WEFT_TRY(set_epilogue(s, part, at));
    if (p->unit[0]) WEFT_TRY(set_units(s, part, at));
    WEFT_TRY(make_layout(s, PRODUCT_B, &x[0], &part->layout[0]));
    WEFT_TRY(make_layout(s, PRODUCT_A, &x[1], &part->layout[1]));
    WEFT_TRY(make_layout(s, part->c ? PRODUCT_C : PRODUCT_D, &x[2], &part->layout[2]));
    WEFT_TRY(make_layout(s, PRODUCT_D, &x[3], &part->layout[3]));
    return choose_algorithm(s, x, at, ctx, part);
}

/* ---- the row ---- */

/* By the epilogue, or without one. */
static bool plan_call(const weft_kernel_call *c, weft_cuda_product *p)
{
    return weft_cuda_product_plan(c, true, p) || weft_cuda_product_plan(c, false, p);
}

bool weft_cuda_takes_product(const weft_kernel_call *c)
{
    weft_cuda_product p;
    return weft_cuda_blas_get() && plan_call(c, &p);
}

/* Of shapes alone, since it decides which algorithms are offered. */
size_t weft_cuda_scratch_product(const weft_kernel_call *c, int n_thread)
{
    weft_cuda_product p;
    (void)n_thread;
    if (!plan_call(c, &p)) return 0;
    return (size_t)weft_workspace_matmul(p.m * p.n * p.batch);
}

void weft_cuda_release_product(void *prepared)
{
    prepared_product *s = prepared;
    for (int i = 0; i < s->n_part; i++) {
        product_part *part = &s->part[i];
        if (part->desc) s->blas->desc_destroy(part->desc);
        for (int l = 0; l < N_LAYOUT; l++)
            if (part->layout[l]) s->blas->layout_destroy(part->layout[l]);
    }
    memset(s->part, 0, sizeof s->part);
    s->n_part = 0;
}

static weft_status make_parts(prepared_product *s, const weft_kernel_ctx *ctx)
{
    weft_cuda_product_part part[PRODUCT_MAX_PART];
    int                    n = weft_cuda_product_parts(&s->plan, part);
    for (int i = 0; i < n; i++) {
        s->n_part      = i + 1;
        weft_status st = make_part(s, &part[i], ctx, &s->part[i]);
        if (st == WEFT_OK) continue;
        weft_cuda_release_product(s);
        return st;
    }
    return WEFT_OK;
}

static weft_status open_product(size_t workspace_bytes, weft_arena *arena,
                                prepared_product **out)
{
    prepared_product *s = WEFT_ARENA_NEW(arena, prepared_product);
    WEFT_TRY(weft_arena_status(arena));
    s->blas            = weft_cuda_blas_get();
    s->workspace_bytes = workspace_bytes;
    if (!s->blas) return WEFT_FAIL(WEFT_ERR_INTERNAL, "matmul: cublasLt is not open");
    WEFT_TRY(weft_cuda_blas_handle(&s->handle));
    *out = s;
    return WEFT_OK;
}

weft_status weft_cuda_product_prepare(const weft_cuda_product *p, bool unfolds,
                                      size_t workspace_bytes, const weft_kernel_ctx *x,
                                      weft_arena *arena, void **out)
{
    prepared_product *s = NULL;
    WEFT_TRY(open_product(workspace_bytes, arena, &s));
    s->plan    = *p;
    s->unfolds = unfolds;
    WEFT_TRY(make_parts(s, x));
    *out = s;
    return WEFT_OK;
}

weft_status weft_cuda_prepare_product(const weft_kernel_call *c, const weft_kernel_ctx *x,
                                      weft_arena *arena, void **out)
{
    prepared_product *s  = NULL;
    weft_status       st = WEFT_ERR_NOFIT;
    WEFT_TRY(open_product(weft_cuda_scratch_product(c, 1), arena, &s));
    if (weft_cuda_product_plan(c, true, &s->plan)) st = make_parts(s, x);
    if (st == WEFT_ERR_NOFIT && weft_cuda_product_plan(c, false, &s->plan)) {
        s->unfolds =
            c->n_post > 0; /* no epilogue for this one: the plain product has one */
        st = make_parts(s, x);
    }
    if (st == WEFT_OK) *out = s;
    return st;
}

/* Part by part at one place of the loops: offsets in elements from the first. */
static weft_status issue_parts(const prepared_product *s, const weft_kernel_ctx *x,
                               const int64_t at[N_PRODUCT_OPERAND], bool goes_on)
{
    const weft_cuda_product *p  = &s->plan;
    int64_t                  in = element_bytes(p->view[PRODUCT_A]->dtype);
    int64_t                  to = element_bytes(p->view[PRODUCT_D]->dtype);
    for (int i = 0; i < s->n_part; i++) {
        const product_part *part = &s->part[i];
        float               beta = goes_on ? 1 : part->beta;
        char               *d    = part->d + at[PRODUCT_D] * to;
        const char         *c    = d;
        if (part->c && !goes_on) c = part->c + at[PRODUCT_C] * to;
        TRY_BLAS("matmul",
                 s->blas->matmul(s->handle, part->desc, &part->alpha,
                                 part->b + at[PRODUCT_B] * in, part->layout[0],
                                 part->a + at[PRODUCT_A] * in, part->layout[1], &beta, c,
                                 part->layout[2], d, part->layout[3], &part->algo,
                                 x->scratch, s->workspace_bytes, weft_cuda_stream(x)));
    }
    return WEFT_OK;
}

CUDA_RUN(product)
{
    const prepared_product  *s = c->prepared;
    const weft_cuda_product *p = &s->plan;
    int64_t                  n = 1, n_sum = 1;
    int                      outer = p->n_loop - p->n_sum_loop;
    for (int l = 0; l < p->n_loop; l++) {
        n *= p->loop_size[l];
        if (l >= outer) n_sum *= p->loop_size[l];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at[N_PRODUCT_OPERAND] = {0}, rest = i;
        for (int l = p->n_loop - 1; l >= 0; l--) {
            for (int o = 0; o < N_PRODUCT_OPERAND; o++)
                at[o] += rest % p->loop_size[l] * p->loop_stride[l][o];
            rest /= p->loop_size[l];
        }
        WEFT_TRY(issue_parts(s, x, at, i % n_sum != 0));
    }
    if (!s->unfolds) return WEFT_OK;
    return weft_cuda_steps(c, x, p->view[PRODUCT_D], NULL);
}
