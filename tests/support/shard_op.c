#include "support/shard_op.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "kernel/ref.h"

static const weft_type *type_at(const weft_op_use *u, int i)
{
    return i < u->n_in ? &u->in[i] : &u->out[i - u->n_in];
}
static const weft_dim_factors *dim_of(const test_op *o, int i, int d)
{
    return &o->f.dim[i * WEFT_MAX_DIM + d];
}
static bool has(const test_op *o, int i, int factor)
{
    for (int d = 0; d < type_at(&o->u, i)->shape.n; d++)
        for (int k = 0; k < dim_of(o, i, d)->n; k++)
            if (dim_of(o, i, d)->f[k] == factor) return true;
    return false;
}

weft_status test_op_make(test_op *o, weft_arena *a, const weft_op_use *u,
                         const weft_mesh *m, const weft_layout *cut)
{
    *o = (test_op){.a = a, .u = *u, .m = m, .cut = cut};
    WEFT_TRY(weft_shard_factors(u, a, &o->f));
    for (int i = 0; i < cut->n; i++)
        o->pair = o->pair || o->f.f.factor[cut->split[i].dim].flags & WEFT_FACTOR_SOFTMAX;
    return WEFT_OK;
}

/* ---- a part: what of each factor ---- */

typedef struct part {
    bool   *in[WEFT_MAX_FACTOR]; /* by position */
    int64_t lo[WEFT_MAX_FACTOR], hi[WEFT_MAX_FACTOR];
} part;

/* Kernels know positions only by where a part begins: such factors are taken one run at a time. */
static bool is_positional(const test_op *o, int factor)
{
    return weft_shard_is_positional(&o->u, &o->f, factor);
}

static bool inside(const test_op *o, const part *p, int i, int d, int64_t at)
{
    const weft_dim_factors *x = dim_of(o, i, d);
    for (int k = x->n - 1; k >= 0; k--) {
        int64_t size = o->f.f.factor[x->f[k]].size;
        if (!p->in[x->f[k]][at % size]) return false;
        at /= size;
    }
    return true;
}

static weft_type local_type(const test_op *o, const part *p, int i)
{
    weft_type t = *type_at(&o->u, i);
    for (int d = 0; d < t.shape.n; d++) {
        int64_t n = 0;
        for (int64_t k = 0; k < t.shape.d[d]; k++) n += inside(o, p, i, d, k);
        t.shape.d[d] = n;
    }
    return t;
}

/* Is the element of operand or result i in the part? */
static bool takes(const test_op *o, const part *p, int i, int64_t e)
{
    const weft_shape *s = &type_at(&o->u, i)->shape;
    for (int d = s->n - 1; d >= 0; d--) {
        if (!inside(o, p, i, d, e % s->d[d])) return false;
        e /= s->d[d];
    }
    return true;
}

/* ---- numbers that are positions ---- */

static int64_t get_int(const test_op *o, const char *name)
{
    return weft_op_attr_index(o->u.op, name) >= 0 ? weft_use_int(&o->u, name) : 0;
}

/* Rows of a cut table that the operator cannot be told the beginning of: counted from there. */
static void shift_index(const test_op *o, const part *p, weft_op_use *u, double **x)
{
    int v, k = weft_shard_index_operand(&o->u, &o->f, &v);
    if (k < 0 || weft_op_attr_index(o->u.op, "first") >= 0) return;
    if (p->lo[v] == 0 && p->hi[v] == o->f.f.factor[v].size) return;
    for (int64_t i = 0; i < weft_shape_count(&u->in[k].shape); i++) {
        bool mine = x[k][i] >= (double)p->lo[v] && x[k][i] < (double)p->hi[v];
        x[k][i]   = mine ? x[k][i] - (double)p->lo[v] : 1e9; /* in nobody's table */
    }
}

/* Offsets of the own experts. */
static void own_offsets(const test_op *o, const part *p, weft_type *in, double **x)
{
    if (o->f.own < 0 || o->f.expert < 0) return;
    x[2] += p->lo[o->f.expert];
    in[2].shape.d[0] = p->hi[o->f.expert] - p->lo[o->f.expert] + 1;
}

static weft_status set_first(const test_op *o, int place, const part *p, weft_attr *attr)
{
    weft_interval run[WEFT_MAX_FACTOR];
    for (int k = 0; k < o->f.f.n; k++) run[k] = (weft_interval){p->lo[k], p->hi[k]};
    if (o->f.own >= 0)
        WEFT_TRY(weft_shard_own_experts(&o->f, o->m, o->cut, get_int(o, "experts"), place,
                                        o->a, &run[o->f.own]));
    weft_shard_local_first(&o->u, &o->f, o->cut, run, attr);
    return WEFT_OK;
}

/* ---- one part ---- */

/* A pair of which the value is a loss, not a mean of rows. */
static bool is_loss(const test_op *o)
{
    return o->pair && weft_shape_equal(&o->u.out[0].shape, &o->u.out[1].shape);
}

static double *numbers(const test_op *o, const weft_type *t)
{
    return WEFT_ARENA_ARRAY(o->a, double, weft_shape_count(&t->shape) + 1);
}

static weft_status run_part(const test_op *o, int place, const part *p,
                            const double *const *in, double **y, weft_type *out,
                            uint64_t seed)
{
    int        n_in = o->u.n_in;
    weft_type *lin  = WEFT_ARENA_ARRAY(o->a, weft_type, n_in + 1);
    double   **x    = WEFT_ARENA_ARRAY(o->a, double *, n_in + 1);
    weft_attr *attr = WEFT_ARENA_ARRAY(o->a, weft_attr, WEFT_MAX_ATTR);
    weft_type *got  = WEFT_ARENA_ARRAY(o->a, weft_type, o->u.n_out + 1);
    WEFT_TRY(weft_arena_status(o->a));
    for (int i = 0; i < n_in; i++) {
        int64_t at = 0;
        lin[i]     = local_type(o, p, i);
        x[i]       = numbers(o, &lin[i]);
        for (int64_t e = 0; e < weft_shape_count(&o->u.in[i].shape); e++)
            if (takes(o, p, i, e)) x[i][at++] = in[i][e];
    }
    if (o->u.attr)
        memcpy(attr, o->u.attr, sizeof *attr * (size_t)weft_op_n_attr(o->u.op));
    weft_op_use  u   = {o->u.op, attr, n_in, o->u.n_out, lin, out};
    weft_ref_ctx ctx = {.seed = seed};
    weft_shard_local_attr(&o->u, out, attr);
    WEFT_TRY(set_first(o, place, p, attr));
    shift_index(o, p, &u, x);
    own_offsets(o, p, lin, x);
    WEFT_TRY(weft_op_infer(&u, got));
    for (int j = 0; j < o->u.n_out; j++)
        if (!weft_shape_equal(&got[j].shape, &out[j].shape))
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: a part's result has another shape",
                             weft_op_get(o->u.op)->name);
    return weft_kernel_ref_run(&u, (const double *const *)x, y, &ctx);
}

/* ---- softmax pairs ---- */

static void add_row(double *y, double *lse, const double *y2, double lse2, int64_t each,
                    bool loss)
{
    double m = fmax(*lse, lse2);
    double l = m == -INFINITY ? m : m + log(exp(*lse - m) + exp(lse2 - m));
    for (int64_t i = 0; i < each; i++)
        if (loss)
            y[i] += y2[i];
        else if (l > -INFINITY)
            y[i] = y[i] * exp(*lse - l) + y2[i] * exp(lse2 - l);
    *lse = l;
}

void test_op_add_pair(const test_op *o, double *const *to, const double *const *from)
{
    int64_t n    = weft_shape_count(&o->u.out[1].shape);
    int64_t each = n ? weft_shape_count(&o->u.out[0].shape) / n : 0;
    for (int64_t r = 0; r < n; r++)
        add_row(to[0] + r * each, &to[1][r], from[0] + r * each, from[1][r], each,
                is_loss(o));
}

void test_op_end_pair(const test_op *o, const double *const *in, double *const *out)
{
    if (!is_loss(o) || get_int(o, "first") >= 0) return;
    for (int64_t i = 0; i < weft_shape_count(&o->u.out[0].shape); i++)
        out[0][i] = in[1][i] == (double)get_int(o, "ignore") ? 0 : out[0][i] + out[1][i];
}

/* ---- all parts of a place ---- */

/* How a result takes what a further part says. */
typedef enum how {
    PUT,
    ADD,
} how;

static how how_to(const test_op *o, int j, const int *n_run)
{
    for (int k = 0; k < o->f.f.n; k++) {
        bool operand = false;
        if (n_run[k] < 2 || has(o, o->u.n_in + j, k)) continue;
        if (o->f.f.factor[k].flags & WEFT_FACTOR_FREE) continue;
        for (int i = 0; i < o->u.n_in; i++) operand = operand || has(o, i, k);
        if (operand) return ADD;
    }
    return PUT;
}

static void put_results(const test_op *o, const part *p, double **y, double *const *out,
                        const int *n_run)
{
    if (o->pair) { /* both results have the same rows */
        int64_t n = weft_shape_count(&o->u.out[1].shape), r = 0;
        int64_t each = n ? weft_shape_count(&o->u.out[0].shape) / n : 0, at = 0;
        for (int64_t i = 0; i < n; i++) {
            double row[256];
            if (!takes(o, p, o->u.n_in + 1, i)) continue;
            for (int64_t k = 0; k < each;
                 k++) /* the value's last factor may be cut: gaps stay */
                row[k] = takes(o, p, o->u.n_in, i * each + k) ? y[0][at++]
                                                              : out[0][i * each + k];
            add_row(out[0] + i * each, &out[1][i], row, y[1][r++], each, is_loss(o));
        }
        return;
    }
    for (int j = 0; j < o->u.n_out; j++) {
        int64_t at  = 0;
        how     add = how_to(o, j, n_run);
        for (int64_t e = 0; e < weft_shape_count(&o->u.out[j].shape); e++)
            if (takes(o, p, o->u.n_in + j, e)) {
                out[j][e] = add == ADD ? out[j][e] + y[j][at] : y[j][at];
                at++;
            }
    }
}

weft_status test_op_run(const test_op *o, int place, const double *const *in,
                        double *const *out, uint64_t seed)
{
    weft_interval *v[WEFT_MAX_FACTOR];
    int            n_v[WEFT_MAX_FACTOR], n_run[WEFT_MAX_FACTOR], total = 1;
    for (int k = 0; k < o->f.f.n; k++) {
        WEFT_TRY(weft_layout_intervals(o->cut, o->m, k, o->f.f.factor[k].size, place,
                                       o->a, &v[k], &n_v[k]));
        n_run[k] = is_positional(o, k) ? n_v[k] : 1;
        total *= n_run[k];
    }
    for (int j = 0; j < o->u.n_out; j++) /* nothing yet */
        for (int64_t e = 0; e < weft_shape_count(&o->u.out[j].shape); e++)
            out[j][e] = o->pair && j == 1 ? -INFINITY : 0;
    for (int run = 0; run < total; run++) {
        part       p   = {{0}, {0}, {0}};
        int        at  = run;
        bool       any = true;
        double   **y   = WEFT_ARENA_ARRAY(o->a, double *, o->u.n_out + 1);
        weft_type *t   = WEFT_ARENA_ARRAY(o->a, weft_type, o->u.n_out + 1);
        for (int k = 0; k < o->f.f.n; k++) {
            int one = n_run[k] == n_v[k] && is_positional(o, k) ? at % n_run[k] : -1;
            p.in[k] = WEFT_ARENA_ARRAY(o->a, bool, o->f.f.factor[k].size + 1);
            if (is_positional(o, k)) at /= n_run[k];
            WEFT_TRY(weft_arena_status(o->a));
            for (int i = 0; i < n_v[k]; i++)
                for (int64_t x = v[k][i].lo; x < v[k][i].hi && (one < 0 || i == one); x++)
                    p.in[k][x] = true;
            p.lo[k] = one >= 0 ? v[k][one].lo : 0;
            p.hi[k] = one >= 0 ? v[k][one].hi : o->f.f.factor[k].size;
        }
        for (int k = 0; k < o->f.f.n;
             k++) /* an empty part of a free factor changes nothing else */
            any = any && (n_v[k] || !o->f.f.factor[k].size ||
                          o->f.f.factor[k].flags & WEFT_FACTOR_FREE);
        for (int j = 0; j < o->u.n_out; j++) {
            t[j] = local_type(o, &p, o->u.n_in + j);
            y[j] = numbers(o, &t[j]);
        }
        if (!any) continue;
        WEFT_TRY(run_part(o, place, &p, in, y, t, seed));
        put_results(o, &p, y, out, n_run);
    }
    return WEFT_OK;
}
