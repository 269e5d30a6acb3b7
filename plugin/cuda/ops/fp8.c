/* matmul with operands in fp8 (src/core/tensor/fp8.h).
 *
 * By units for it: own kernels make codes with contiguous rows and a unit for each row, cublasLt
 * multiplies the codes, sums in f32, and scales each result by the units of its row and column:
 * sm_90 with cublasLt 12.9 or later, one product without loops, columns in multiples of 16.
 * By rounding, for all other calls: the rounded numbers, which bf16 holds, and the matmul of those.
 * The same function; sums have another order.
 *
 * WEFT_CUDA_FP8_LOG=FILE: a line for each call that is prepared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_priv.h"
#include "op/workspace.h"
#include "product.h"

enum {
    LEAST_CAPABILITY = 89, /* units for fp8 */
    WARP             = 32,
    ENOUGH_BLOCKS    = 512,
    MOST_ROUNDS      = 16,
    ALIGNED          = 256
};

/* An operand of the matmul as rows of k numbers. */
typedef struct fp8_operand {
    const weft_view *from;
    bool             e5m2;
    int64_t          rows, k, row_step, k_step;
    char            *code; /* or rounded numbers */
    float           *unit;
    uint16_t        *largest;
    const uint32_t  *known;   /* the largest of each row; NULL: to be found */
    uint32_t        *columns; /* where the largest of each column go; NULL: nowhere */
} fp8_operand;

typedef struct prepared_fp8 {
    bool         units; /* else: rounded */
    fp8_operand  operand[2];
    weft_view    view[2]; /* codes, or rounded numbers */
    weft_view   *in;      /* rounded: operands of the matmul of those */
    weft_cuda_nd row[2], along[2];
    weft_cuda_nd column[2], down[2]; /* columns, and along one: where they are wanted */
    bool         plain;              /* rounded: by the plain kernel */
    weft_kernel_call call;           /* that is run behind */
    int              n_ridden; /* steps on the product; the others are own kernels */
    const weft_view *stored;   /* what the last of those made, where others follow */
    weft_kernel_call rest;     /* those others */
} prepared_fp8;

static const char *formats_of(const weft_kernel_call *c)
{
    return weft_cuda_attr(c, "fp8")->s;
}

bool weft_cuda_takes_fp8(const weft_kernel_call *c)
{
    const char *s = formats_of(c);
    return s && *s;
}

CUDA_TAKES(wide_product)
{
    return !weft_cuda_takes_fp8(c) && weft_cuda_takes_product(c);
}

CUDA_TAKES(wide_matmul)
{
    return !weft_cuda_takes_fp8(c);
}

/* ---- memory ---- */

/* Letters of operand k that the result has are rows. */
static bool is_row(const weft_kernel_call *c, int k, int d)
{
    const char *spec = weft_cuda_attr(c, "spec")->s;
    const char *part = k ? strchr(spec, ',') + 1 : spec;
    return strchr(strstr(spec, "->"), part[d]) != NULL;
}

static void count_rows(const weft_kernel_call *c, int k, int64_t *rows, int64_t *along)
{
    *rows = *along = 1;
    for (int d = 0; d < c->in[k].shape.n; d++)
        *(is_row(c, k, d) ? rows : along) *= c->in[k].shape.d[d];
}

/* What the matmul behind needs, first in the scratch. */
static size_t bytes_behind(const weft_kernel_call *c)
{
    size_t plain = weft_cuda_scratch_matmul(c, 1), by_blas = 0;
    if (weft_cuda_blas_get())
        by_blas = (size_t)weft_workspace_matmul(weft_shape_count(&c->out[0].shape));
    return (by_blas > plain ? by_blas : plain) / ALIGNED * ALIGNED + ALIGNED;
}

size_t weft_cuda_scratch_fp8(const weft_kernel_call *c, int n_thread)
{
    size_t n = bytes_behind(c);
    (void)n_thread;
    for (int k = 0; k < 2; k++) {
        int64_t rows, along;
        count_rows(c, k, &rows, &along);
        n += (size_t)weft_workspace_fp8(rows, along);
    }
    return n;
}

static int64_t round_up(int64_t n)
{
    return (n + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* Addresses of an operand's parts from `at` on; gives where they end. */
static char *place_operand(fp8_operand *o, char *at)
{
    o->code = at;
    at += round_up(2 * o->rows * weft_workspace_fp8_row(o->k));
    o->unit = (float *)(void *)at;
    at += round_up(4 * o->rows);
    o->largest = (uint16_t *)(void *)at;
    return at + round_up(2 * o->rows * WEFT_WORKSPACE_FP8_PIECES);
}

/* ---- codes ---- */

static bool is_aligned(const fp8_operand *o, int64_t step)
{
    return o->from->dtype == WEFT_DTYPE_BF16 && (uintptr_t)o->from->p % 16 == 0 &&
           step % 8 == 0;
}

static weft_cuda_fp8_args args_of(const fp8_operand *o)
{
    return (weft_cuda_fp8_args){.x       = o->from->p,
                                .code    = (uint8_t *)o->code,
                                .unit    = o->unit,
                                .largest = o->largest,
                                .known   = o->known,
                                .columns = o->columns,
                                .rows    = o->rows,
                                .k       = o->k,
                                .k_row   = weft_workspace_fp8_row(o->k),
                                .e5m2    = o->e5m2};
}

/* Rows in registers: as few threads of a row as can hold it.  k is the same of both operands. */
static bool fits_registers(const fp8_operand *o)
{
    return o->k_step == 1 && o->k % 8 == 0 && is_aligned(o, o->row_step) &&
           weft_workspace_fp8_row(o->k) <= WEFT_WORKSPACE_FP8_MOST;
}

/* Blocks of both operands, those of the first one first. */
static weft_cuda_grid grid_of(const weft_cuda_fp8_pair_args *a, int64_t threads)
{
    int64_t n = a->operand[0].n_block + a->operand[1].n_block;
    return (weft_cuda_grid){(unsigned)n, 1, 1, (unsigned)threads, 0};
}

/* A block has at least 256 threads, and rows until there are some blocks for any multiprocessor. */
static weft_status launch_rows(const fp8_operand *const *o, int n,
                               const weft_kernel_ctx *x)
{
    weft_cuda_fp8_pair_args a = {{{.x = NULL}}};
    int64_t threads           = WARP * weft_cuda_ceil(weft_workspace_fp8_row(o[0]->k),
                                                      (int64_t)8 * WARP * WEFT_CUDA_FP8_VECTORS);
    int64_t per               = weft_cuda_ceil(WEFT_CUDA_FP8_THREADS, threads);
    for (int i = 0; i < n; i++) {
        weft_cuda_fp8_args *p      = &a.operand[i];
        int64_t             rounds = o[i]->rows / (per * ENOUGH_BLOCKS);
        *p                         = args_of(o[i]);
        p->step                    = o[i]->row_step;
        p->row_threads             = (int32_t)threads;
        p->rounds                  = (int32_t)(rounds < 1             ? 1
                                               : rounds > MOST_ROUNDS ? MOST_ROUNDS
                                                                      : rounds);
        p->n_block                 = weft_cuda_ceil(p->rows, per * p->rounds);
    }
    return weft_cuda_launch(x, WEFT_CUDA_fp8_rows, grid_of(&a, per * threads), &a);
}

/* Columns of operand k where its rows do not pass through registers: a warp for each. */
static weft_status launch_columns(const prepared_fp8 *p, int k, const weft_kernel_ctx *x)
{
    weft_cuda_fp8_any_args a = {.x       = p->operand[k].from->p,
                                .largest = p->operand[k].columns,
                                .row     = p->column[k],
                                .along   = p->down[k],
                                .x_dtype = (int32_t)p->operand[k].from->dtype};
    return weft_cuda_launch(x, WEFT_CUDA_fp8_any,
                            weft_cuda_grid_1d(a.row.count * WARP, WEFT_CUDA_FP8_THREADS),
                            &a);
}

/* Rows side by side. */
static bool can_turn(const fp8_operand *o)
{
    return o->row_step == 1 && o->rows % 8 == 0 && is_aligned(o, o->k_step);
}

/* Numbers of a piece, by shapes alone: enough blocks for any GPU. */
static int64_t piece_of(const fp8_operand *o)
{
    int64_t pieces = weft_cuda_ceil(512, weft_cuda_ceil(o->rows, WEFT_CUDA_FP8_COLUMNS));
    if (pieces > WEFT_WORKSPACE_FP8_PIECES) pieces = WEFT_WORKSPACE_FP8_PIECES;
    if (pieces < 4) pieces = 4;
    return weft_cuda_ceil(weft_cuda_ceil(o->k, pieces), 64) * 64;
}

static weft_status launch_turned(const fp8_operand *const *o, int n,
                                 const weft_kernel_ctx *x)
{
    weft_cuda_fp8_pair_args a = {{{.x = NULL}}};
    for (int i = 0; i < n; i++) {
        weft_cuda_fp8_args *p = &a.operand[i];
        *p                    = args_of(o[i]);
        p->step               = o[i]->k_step;
        p->piece              = piece_of(o[i]);
        if (!p->known)
            p->n_block = weft_cuda_ceil(p->rows, WEFT_CUDA_FP8_COLUMNS) *
                         weft_cuda_ceil(p->k, p->piece);
    }
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_fp8_largest,
                              grid_of(&a, WEFT_CUDA_FP8_LARGEST_THREADS), &a));
    for (int i = 0; i < n; i++) {
        weft_cuda_fp8_args *p = &a.operand[i];
        p->n_block            = weft_cuda_ceil(p->rows, WEFT_CUDA_FP8_TURN) *
                     weft_cuda_ceil(p->k_row, WEFT_CUDA_FP8_TURN);
    }
    return weft_cuda_launch(x, WEFT_CUDA_fp8_turn, grid_of(&a, WEFT_CUDA_FP8_THREADS),
                            &a);
}

static weft_status launch_any(const prepared_fp8 *p, int k, const weft_kernel_ctx *x)
{
    const fp8_operand     *o = &p->operand[k];
    weft_cuda_fp8_any_args a = {.x       = o->from->p,
                                .y       = o->code,
                                .unit    = p->units ? o->unit : NULL,
                                .row     = p->row[k],
                                .along   = p->along[k],
                                .k_row   = weft_workspace_fp8_row(o->k),
                                .x_dtype = (int32_t)o->from->dtype,
                                .e5m2    = o->e5m2};
    return weft_cuda_launch(x, WEFT_CUDA_fp8_any,
                            weft_cuda_grid_1d(o->rows * WARP, WEFT_CUDA_FP8_THREADS), &a);
}

/* Rows that pass through registers give the largest of columns on the way, from 0 up. */
static weft_status start_columns(const prepared_fp8 *p, int k, const weft_kernel_ctx *x)
{
    const fp8_operand *o = &p->operand[k];
    if (!o->columns) return WEFT_OK;
    if (!p->units || !fits_registers(o)) return launch_columns(p, k, x);
    weft_view y =
        weft_view_make(o->columns, WEFT_DTYPE_F32, &(weft_shape){.n = 1, .d = {o->k}});
    return weft_cuda_fill(x, &y, 0);
}

static weft_status launch_operands(const prepared_fp8 *p, const weft_kernel_ctx *x)
{
    const fp8_operand *row[2], *turned[2];
    int                n_row = 0, n_turned = 0;
    for (int k = 0; k < 2; k++) {
        const fp8_operand *o = &p->operand[k];
        WEFT_TRY(start_columns(p, k, x));
        if (p->units && fits_registers(o))
            row[n_row++] = o;
        else if (p->units && can_turn(o))
            turned[n_turned++] = o;
        else
            WEFT_TRY(launch_any(p, k, x));
    }
    if (n_row) WEFT_TRY(launch_rows(row, n_row, x));
    return n_turned ? launch_turned(turned, n_turned, x) : WEFT_OK;
}

/* ---- by units ---- */

/* Of an f32 result cublasLt would read a bias as bf16. */
static bool can_have_units(const weft_cuda_product *p)
{
    const weft_view *d         = p->view[PRODUCT_D];
    int64_t          row_bytes = p->row[PRODUCT_D] * weft_dtype_bytes(d->dtype);
    if (p->bias && d->dtype != WEFT_DTYPE_BF16) return false;
    return p->n_loop == 0 && p->batch == 1 && p->n % WEFT_WORKSPACE_FP8_UNIT == 0 &&
           (uintptr_t)d->p % 16 == 0 && (p->m == 1 || row_bytes % 16 == 0);
}

/* What other matmuls have found of an operand, and want to know. */
static void set_largest(const weft_kernel_call *c, int k, fp8_operand *o)
{
    if (c->n_own_in > 2 + k) o->known = c->in[2 + k].p;
    if (c->n_own_out > 1 + k) o->columns = c->out[1 + k].p;
}

/* Operand o of the plan, which stands where the plan has it: k is the operand's number. */
static fp8_operand operand_of(const weft_kernel_call *c, const weft_cuda_product *p,
                              int o, int *k)
{
    bool        left = o == PRODUCT_A;
    fp8_operand x    = {.from     = p->view[o],
                        .rows     = left ? p->m : p->n,
                        .k        = p->k,
                        .row_step = left ? p->row[o] : p->col[o],
                        .k_step   = left ? p->col[o] : p->row[o]};
    *k               = p->view[o] == &c->in[0] ? 0 : 1;
    x.e5m2           = !strncmp(formats_of(c) + 5 * *k, "e5m2", 4);
    set_largest(c, *k, &x);
    return x;
}

static weft_cuda_nd line_of(int64_t size, int64_t from, int64_t to)
{
    weft_cuda_nd nd = {.n_op = 2, .count = 1};
    weft_cuda_nd_dim(&nd, size, (int64_t[]){from, to});
    return nd;
}

/* The plan on codes. */
static void take_codes(const weft_kernel_call *c, prepared_fp8 *p, char *scratch,
                       weft_cuda_product *plan)
{
    char *at = scratch;
    for (int o = PRODUCT_A; o <= PRODUCT_B; o++) {
        int         k;
        fp8_operand x     = operand_of(c, plan, o, &k);
        int64_t     k_row = weft_workspace_fp8_row(x.k);
        at                = place_operand(&x, at);
        p->operand[k]     = x;
        p->row[k]         = line_of(x.rows, x.row_step, k_row);
        p->along[k]       = line_of(x.k, x.k_step, 1);
        p->view[k] =
            (weft_view){.p      = x.code,
                        .dtype  = x.e5m2 ? WEFT_DTYPE_F8_E5M2 : WEFT_DTYPE_F8_E4M3,
                        .shape  = weft_shape_make(2, (int64_t[]){x.rows, k_row}),
                        .stride = {k_row, 1}};
        plan->unit[o == PRODUCT_B] = x.unit;
        plan->view[o]              = &p->view[k];
        plan->row[o]               = o == PRODUCT_A ? k_row : 1;
        plan->col[o]               = o == PRODUCT_A ? 1 : k_row;
    }
    plan->k = weft_workspace_fp8_row(plan->k);
}

/* WEFT_ERR_NOFIT: not this call. */
static weft_status prepare_units(const weft_kernel_call *c, const weft_kernel_ctx *x,
                                 bool ride, weft_arena *arena, prepared_fp8 *p)
{
    weft_cuda_product plan;
    if (!weft_cuda_blas_get() || !weft_cuda_product_plan(c, ride, &plan) ||
        !can_have_units(&plan))
        return WEFT_ERR_NOFIT;
    size_t workspace = (size_t)weft_workspace_matmul(plan.m * plan.n);
    take_codes(c, p, (char *)x->scratch + bytes_behind(c), &plan);
    p->units = true;
    return weft_cuda_product_prepare(&plan, !ride, workspace, x, arena,
                                     &p->call.prepared);
}

/* All steps but the last ride, which is an own kernel: it begins with a rounded value, whether or
 * not somebody keeps that, so that a forward pass and its recomputation have the same bits. */
static weft_status prepare_first_steps(const weft_kernel_call *c,
                                       const weft_kernel_ctx *x, weft_arena *arena,
                                       prepared_fp8 *p)
{
    int               n = c->n_post - 1;
    weft_view        *rest;
    weft_kernel_post *first;
    if (n < 1) return WEFT_ERR_NOFIT;
    rest  = WEFT_ARENA_ARRAY(arena, weft_view, c->n_out);
    first = WEFT_ARENA_ARRAY(arena, weft_kernel_post, n);
    WEFT_TRY(weft_arena_status(arena));
    memcpy(rest, c->out, sizeof *rest * (size_t)c->n_out);
    memcpy(first, c->post, sizeof *first * (size_t)n);
    int out = first[n - 1].out;
    if (out < 0 || !c->out[out].p) out = first[n - 1].out = c->post[n].out;
    p->rest        = *c;
    p->rest.n_post = n;
    p->rest.post   = first;
    WEFT_TRY(prepare_units(&p->rest, x, true, arena, p));
    rest[0].p      = NULL;
    p->stored      = &c->out[out];
    p->rest.out    = rest;
    p->rest.post   = &c->post[n];
    p->rest.n_post = 1;
    p->n_ridden    = n;
    return WEFT_OK;
}

/* cublasLt has gelu on an epilogue for some calls in fp8, and not where its operand is kept.  With
 * its gradient there a product of 8192 x 8192 x 2048 takes 0.81 ms instead of 0.24 and 0.11 for a
 * kernel of its own (H200, bench/results/gpu-fp8.txt). */
static bool may_ride(const weft_kernel_call *c)
{
    for (int i = 0; i < c->n_post; i++)
        if (c->post[i].op == WEFT_OP_GELU_GRAD || (i > 0 && c->post[i].op == WEFT_OP_GELU))
            return false;
    return true;
}

/* ---- by rounding ---- */

static weft_status prepare_rounded(const weft_kernel_call *c, const weft_kernel_ctx *x,
                                   weft_arena *arena, prepared_fp8 *p)
{
    char *at = (char *)x->scratch + bytes_behind(c);
    p->units = false;
    p->in    = WEFT_ARENA_ARRAY(arena, weft_view, c->n_in);
    WEFT_TRY(weft_arena_status(arena));
    memcpy(p->in, c->in, sizeof *p->in * (size_t)c->n_in);
    for (int k = 0; k < 2; k++) {
        fp8_operand *o = &p->operand[k];
        *o             = (fp8_operand){.from = &c->in[k],
                                       .e5m2 = !strncmp(formats_of(c) + 5 * k, "e5m2", 4)};
        set_largest(c, k, o);
        count_rows(c, k, &o->rows, &o->k);
        at        = place_operand(o, at);
        p->in[k]  = weft_view_make(o->code, WEFT_DTYPE_BF16, &c->in[k].shape);
        p->row[k] = p->along[k] = (weft_cuda_nd){.n_op = 2, .count = 1};
        for (int d = 0; d < c->in[k].shape.n; d++)
            weft_cuda_nd_dim(is_row(c, k, d) ? &p->row[k] : &p->along[k],
                             c->in[k].shape.d[d],
                             (int64_t[]){c->in[k].stride[d], p->in[k].stride[d]});
        weft_cuda_nd_merge(&p->row[k]);
        weft_cuda_nd_merge(&p->along[k]);
    }
    p->call.in = p->in;
    p->plain   = !weft_cuda_takes_product(&p->call);
    if (p->plain) return WEFT_OK;
    return weft_cuda_prepare_product(&p->call, x, arena, &p->call.prepared);
}

/* ---- the row ---- */

static void list_columns(const weft_kernel_call *c, prepared_fp8 *p)
{
    for (int k = 0; k < 2; k++) {
        const weft_view *v = &c->in[k];
        p->column[k] = p->down[k] = (weft_cuda_nd){.n_op = 2, .count = 1};
        for (int d = 0; d < v->shape.n; d++)
            weft_cuda_nd_dim(is_row(c, k, d) ? &p->down[k] : &p->column[k], v->shape.d[d],
                             (int64_t[]){v->stride[d], 0});
    }
}

/* How codes are made: in one reading, turned, or by the kernel for all other strides, which is
 * slow. */
static const char *passes_of(const fp8_operand *o)
{
    return fits_registers(o) ? "in rows" : can_turn(o) ? "turned" : "one by one";
}

static void log_call(const weft_kernel_call *c, const prepared_fp8 *p)
{
    const char *path = getenv("WEFT_CUDA_FP8_LOG");
    FILE       *f    = path && *path ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f, "%s %s, %ld x %ld x %ld, %d steps: %s", weft_cuda_attr(c, "spec")->s,
            formats_of(c), (long)p->operand[0].rows, (long)p->operand[1].rows,
            (long)p->operand[0].k, c->n_post,
            p->units   ? "units"
            : p->plain ? "rounded, own kernel"
                       : "rounded, cublasLt in bf16");
    if (p->units && p->n_ridden < c->n_post)
        fprintf(f, ", own steps from %d on", p->n_ridden);
    for (int k = 0; k < 2; k++) {
        if (p->operand[k].known) fprintf(f, ", rows of %c known", "ab"[k]);
        if (p->operand[k].columns) fprintf(f, ", columns of %c found", "ab"[k]);
    }
    if (p->units)
        fprintf(f, "; a %s, b %s", passes_of(&p->operand[0]), passes_of(&p->operand[1]));
    fprintf(f, "\n");
    fclose(f);
}

/* What runs at all on units for fp8 elsewhere is refused where a GPU has none: it would be slower
 * than bf16. */
static weft_status check_machine(void)
{
    const weft_cuda_library *l = weft_cuda_library_get(WEFT_CUDA_BLAS);
    int                      n = weft_cuda_capability();
    if (n && n < LEAST_CAPABILITY)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "dtype=fp8 needs a GPU of compute capability 8.9 or later, this "
                         "one has %d.%d: dtype=bf16",
                         n / 10, n % 10);
    if (n && l->handle &&
        (l->version[0] < 12 || (l->version[0] == 12 && l->version[1] < 9)))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "dtype=fp8 needs cublasLt 12.9 or later, which scales rows; %s is "
            "%d.%d: dtype=bf16",
            l->path, l->version[0], l->version[1]);
    return WEFT_OK;
}

weft_status weft_cuda_prepare_fp8(const weft_kernel_call *c, const weft_kernel_ctx *x,
                                  weft_arena *arena, void **out)
{
    prepared_fp8 *p = WEFT_ARENA_NEW(arena, prepared_fp8);
    WEFT_TRY(weft_arena_status(arena));
    WEFT_TRY(check_machine());
    p->call          = *c;
    p->call.prepared = NULL;
    p->n_ridden      = c->n_post;
    weft_status st   = WEFT_ERR_NOFIT;
    if (may_ride(c)) st = prepare_units(c, x, true, arena, p);
    if (st == WEFT_ERR_NOFIT) st = prepare_first_steps(c, x, arena, p);
    if (st == WEFT_ERR_NOFIT) {
        p->n_ridden = 0;
        st          = prepare_units(c, x, false, arena, p);
    }
    if (st == WEFT_ERR_NOFIT) st = prepare_rounded(c, x, arena, p);
    WEFT_TRY(st);
    list_columns(c, p);
    log_call(c, p);
    *out = p;
    return WEFT_OK;
}

void weft_cuda_release_fp8(void *prepared)
{
    prepared_fp8 *p = prepared;
    if (p->call.prepared) weft_cuda_release_product(p->call.prepared);
}

CUDA_RUN(fp8)
{
    const prepared_fp8 *p = c->prepared;
    WEFT_TRY(launch_operands(p, x));
    if (p->plain) return weft_cuda_run_matmul(&p->call, x);
    WEFT_TRY(weft_cuda_run_product(&p->call, x));
    return p->stored ? weft_cuda_steps(&p->rest, x, p->stored, NULL) : WEFT_OK;
}
