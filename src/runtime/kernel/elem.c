/* Element by element: results of any storage and any strides, operands spread as NumPy does.
 * Elements do not meet, so the cut into tasks cannot change a bit. */
#include "kernel/cpu_priv.h"
#include "kernel/nd.h"
#include "kernel/rows.h"

enum {
    TASK = 32768
}; /* elements of a task */

typedef struct job {
    weft_kernel__nd     nd; /* operands: y, a, b */
    weft_view           y, a, b;
    weft_kernel__map_fn f;
    float               s;
    int                 add;
    int64_t piece, n_piece, n_total, grain; /* pieces of a row; all; of a task */
} job;

static void map_piece(const job *j, int64_t i)
{
    float   ta[WEFT_KERNEL__PIECE], tb[WEFT_KERNEL__PIECE], ty[WEFT_KERNEL__PIECE];
    int     in = j->nd.n - 1;
    int64_t at[WEFT_KERNEL__ND_OP], k = i % j->n_piece * j->piece;
    int64_t n = j->nd.size[in] - k, sy = j->nd.step[0][in], sa = j->nd.step[1][in],
            sb = j->nd.step[2][in];

    if (n > j->piece) n = j->piece;
    weft_kernel__nd_at(&j->nd, in, i / j->n_piece, at);
    const float *a = weft_kernel__read(j->a.p, j->a.dtype, at[1] + k * sa, sa, n, ta);
    const float *b = weft_kernel__read(j->b.p, j->b.dtype, at[2] + k * sb, sb, n, tb);
    float *y = weft_kernel__room(j->y.p, j->y.dtype, at[0] + k * sy, sy, j->add, ty);
    j->f(y, a, b, j->s, n);
    weft_kernel__write(j->y.p, j->y.dtype, at[0] + k * sy, sy, n, y, j->add);
}

static void map_task(void *arg, int64_t task, int thread)
{
    const job *j = arg;
    int64_t    i = task * j->grain, end = i + j->grain;
    (void)thread;
    for (; i < end && i < j->n_total; i++) map_piece(j, i);
}

/* One run of floats, larger than the caches, over none of its operands; pieces keep the
 * alignment. */
static bool is_far(const job *j)
{
    const weft_view *y = &j->y, *a = &j->a, *b = &j->b;
    return j->nd.n == 1 && j->nd.size[0] * 4 > WEFT_KERNEL__FAR &&
           y->dtype == WEFT_DTYPE_F32 && j->nd.step[0][0] == 1 &&
           ((uintptr_t)y->p & 63) == 0 && y->p != a->p && y->p != b->p;
}

static void run(weft_kernel__map kind, float s, const weft_view *a, const weft_view *b,
                const weft_view *y, int add, weft_pool *pool)
{
    job j = {.y = *y, .a = *a, .b = *b, .s = s, .add = add};
    j.f   = weft_kernel__rows_now()->map[kind];
    if (weft_shape_count(&y->shape) == 0) return;
    weft_kernel__nd_init(&j.nd, &y->shape);
    weft_kernel__nd_add(&j.nd, y);
    weft_kernel__nd_add(&j.nd, a);
    weft_kernel__nd_add(&j.nd, b);
    weft_kernel__nd_merge(&j.nd);
    int64_t n = j.nd.size[j.nd.n - 1];
    if (kind == MAP_ADD && !add && is_far(&j)) j.f = weft_kernel__rows_now()->add_far;
    j.piece   = n < WEFT_KERNEL__PIECE ? n : WEFT_KERNEL__PIECE;
    j.n_piece = weft_kernel__ceil(n, j.piece);
    j.n_total = weft_kernel__nd_count(&j.nd, j.nd.n - 1) * j.n_piece;
    j.grain   = weft_kernel__grain(j.piece, TASK);
    weft_pool_run(pool, weft_kernel__ceil(j.n_total, j.grain), map_task, &j);
}

static weft_kernel__map gelu(const weft_kernel_call *c, weft_kernel__map tanh_form)
{
    const char *s = weft_kernel__attr(c, "approx")->s;
    return strcmp(s, "tanh") == 0 ? tanh_form : (weft_kernel__map)(tanh_form + 1);
}

KERNEL(map)
{
    weft_kernel__map kind = MAP_SCALE;
    float            s    = 1.0f;
    switch ((int)c->op) {
    case WEFT_OP_ADD: kind = MAP_ADD; break;
    case WEFT_OP_MUL: kind = MAP_MUL; break;
    case WEFT_OP_SCALE: s = (float)weft_kernel__attr(c, "alpha")->f; break;
    case WEFT_OP_ACCUMULATE: break;
    case WEFT_OP_GELU: kind = gelu(c, MAP_GELU_TANH); break;
    case WEFT_OP_GELU_GRAD: kind = gelu(c, MAP_GELU_TANH_GRAD); break;
    case WEFT_OP_SILU: kind = MAP_SILU; break;
    case WEFT_OP_SILU_GRAD: kind = MAP_SILU_GRAD; break;
    case WEFT_OP_RELU: kind = MAP_RELU; break;
    case WEFT_OP_RELU_GRAD: kind = MAP_RELU_GRAD; break;
    case WEFT_OP_TANH: kind = MAP_TANH; break;
    case WEFT_OP_TANH_GRAD: kind = MAP_TANH_GRAD; break;
    default:
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s is no map", weft_op_get(c->op)->name);
    }
    run(kind, s, &c->in[0], &c->in[c->n_in > 1], &c->out[0], weft_kernel__adds(c, 0),
        x->pool);
    return WEFT_OK;
}

/* act, of a gate: its map, or that of its gradient. */
static weft_status gate_maps(const weft_kernel_call *c, weft_kernel__map *act,
                             weft_kernel__map *grad)
{
    static const struct {
        const char      *name;
        weft_kernel__map act, grad;
    } map[]       = {{"silu", MAP_SILU, MAP_SILU_GRAD},
                     {"gelu", MAP_GELU_TANH, MAP_GELU_TANH_GRAD},
                     {"gelu_erf", MAP_GELU_ERF, MAP_GELU_ERF_GRAD},
                     {"relu", MAP_RELU, MAP_RELU_GRAD}};
    const char *s = weft_kernel__attr(c, "act")->s;
    for (size_t i = 0; i < WEFT_COUNT(map); i++)
        if (!strcmp(s, map[i].name)) {
            *act  = map[i].act;
            *grad = map[i].grad;
            return WEFT_OK;
        }
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: act '%s' is not silu, gelu, gelu_erf or relu",
                     weft_op_get(c->op)->name, s);
}

/* As the two operators would: what is between them is rounded to the result's type. */
KERNEL(gate)
{
    weft_kernel__map act = MAP_MUL, grad = MAP_MUL;
    const weft_view *g = &c->in[0], *u = &c->in[1], *y = &c->out[0];
    WEFT_TRY(gate_maps(c, &act, &grad));
    run(act, 1, g, g, y, 0, x->pool);
    run(MAP_MUL, 1, y, u, y, 0, x->pool);
    return WEFT_OK;
}

/* dg may be over dy: it comes last. */
KERNEL(gate_grad)
{
    weft_kernel__map act = MAP_MUL, grad = MAP_MUL;
    const weft_view *dy = &c->in[0], *g = &c->in[1], *u = &c->in[2];
    const weft_view *dg = &c->out[0], *du = &c->out[1];
    WEFT_TRY(gate_maps(c, &act, &grad));
    if (du->p) {
        run(act, 1, g, g, du, 0, x->pool);
        run(MAP_MUL, 1, du, dy, du, 0, x->pool);
    }
    if (dg->p) {
        run(MAP_MUL, 1, dy, u, dg, 0, x->pool);
        run(grad, 1, dg, g, dg, 0, x->pool);
    }
    return WEFT_OK;
}

/* stat is a sum over count micro-batches; unbias turns the variance of a batch into that of what
 * it is drawn from. */
KERNEL(ema)
{
    double m = weft_kernel__attr(c, "momentum")->f, k = weft_kernel__attr(c, "count")->f;
    double u    = weft_kernel__attr(c, "unbias")->f;
    weft_view y = c->out[0];
    run(MAP_SCALE, (float)(1.0 - m), &c->in[0], &c->in[0], &y, 0, x->pool);
    run(MAP_AXPY, (float)(m * u / k), &y, &c->in[1], &y, 0, x->pool);
    return WEFT_OK;
}

/* ---- dropout ---- */

/* A sample of the piece is n_run runs of `run` elements, each whole also in the sample it is a part
 * of; a run is taken in pieces. */
typedef struct drop {
    const weft_view *in, *out;
    const weft_attr *at, *whole;
    uint64_t         seed;
    int64_t          step, sample, id, run, n_run, n_piece, units, grain;
    int              n_outer; /* dimensions 1 .. n_outer count the runs */
    double           p;
} drop;

/* Where run r begins in the whole's sample. */
static int64_t run_start(const drop *d, int64_t r)
{
    const weft_shape *s  = &d->in->shape;
    int64_t           to = 0, step = 1;
    if (!d->whole->n) return r * d->run;
    for (int k = s->n - 1; k > 0; k--) {
        int64_t i = 0;
        if (k <= d->n_outer) {
            i = r % s->d[k];
            r /= s->d[k];
        }
        to += (i + d->at->l[k]) * step;
        step *= d->whole->l[k];
    }
    return to;
}

/* The mask's words serve four elements; what lies before the first whole word is taken one by
 * one. */
static void drop_piece(const drop *d, const weft_mask *m, float *y, const float *x,
                       int64_t n, int64_t element)
{
    float   scale = (float)(1.0 / (1.0 - d->p));
    int64_t i     = 0;
    for (; i < n && (element + i) % 4; i++)
        y[i] = weft_mask_keeps(m, element + i) ? x[i] * scale : 0.0f;
    weft_kernel__rows_now()->drop(y + i, x + i, n - i, m, (element + i) / 4, scale);
}

static void drop_task(void *arg, int64_t task, int thread)
{
    const drop *d = arg;
    float       ta[WEFT_KERNEL__PIECE], ty[WEFT_KERNEL__PIECE];
    (void)thread;
    for (int64_t u = task * d->grain; u < (task + 1) * d->grain && u < d->units; u++) {
        int64_t   row = u / d->n_piece, k = u % d->n_piece * WEFT_KERNEL__PIECE;
        int64_t   n  = d->run - k < WEFT_KERNEL__PIECE ? d->run - k : WEFT_KERNEL__PIECE;
        int64_t   at = row * d->run + k, element = run_start(d, row % d->n_run) + k;
        weft_mask m =
            weft_mask_make(d->seed, d->step, d->sample + row / d->n_run, d->id, d->p);
        const float *a = weft_kernel__read(d->in->p, d->in->dtype, at, 1, n, ta);
        float       *y = weft_kernel__room(d->out->p, d->out->dtype, at, 1, 0, ty);
        drop_piece(d, &m, y, a, n, element);
        weft_kernel__write(d->out->p, d->out->dtype, at, 1, n, y, 0);
    }
}

/* The dimensions behind the first one that is cut make one run with it. */
static void find_runs(drop *d)
{
    const weft_shape *s = &d->in->shape;
    int               k = s->n - 1;
    d->run = d->n_run = 1;
    for (; k > 0; k--) {
        d->run *= s->d[k];
        if (d->whole->n && d->whole->l[k] != s->d[k]) break;
    }
    d->n_outer = k > 0 ? k - 1 : 0;
    for (k = 1; k <= d->n_outer; k++) d->n_run *= s->d[k];
}

KERNEL(dropout)
{
    const weft_view         *v       = &c->in[0];
    int64_t                  samples = v->shape.n ? v->shape.d[0] : 1;
    const weft_step_scalars *s       = x->scalars;
    drop d = {.in = v, .out = &c->out[0], .seed = s->seed, .step = s->step};
    if (weft_shape_count(&v->shape) == 0) return WEFT_OK;
    d.p      = weft_kernel__attr(c, "p")->f;
    d.id     = weft_kernel__attr(c, "id")->i;
    d.at     = weft_kernel__attr(c, "at");
    d.whole  = weft_kernel__attr(c, "whole");
    d.sample = s->sample + s->micro_sample + (d.at->n ? d.at->l[0] : 0);
    if (!(d.p >= 0.0 && d.p < 1.0))
        return WEFT_FAIL(WEFT_ERR_ARG, "dropout: p = %g is not in [0,1)", d.p);
    find_runs(&d);
    d.n_piece = weft_kernel__ceil(d.run, WEFT_KERNEL__PIECE);
    d.units   = samples * d.n_run * d.n_piece;
    d.grain = weft_kernel__grain(d.run < WEFT_KERNEL__PIECE ? d.run : WEFT_KERNEL__PIECE,
                                 WEFT_KERNEL__PIECE);
    weft_pool_run(x->pool, weft_kernel__ceil(d.units, d.grain), drop_task, &d);
    return WEFT_OK;
}
