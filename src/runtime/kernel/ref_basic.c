/* Reference kernels: products, element by element, shapes. */
#include <stdlib.h>

#include "kernel/mask.h"
#include "kernel/ref_priv.h"
#include "tensor/fp8.h"

/* ---- an index that counts through a box, and where it points in each tensor ---- */

typedef struct walk {
    int     n;
    int64_t size[3 * WEFT_MAX_DIM], at[3 * WEFT_MAX_DIM];
    int64_t stride[3][3 * WEFT_MAX_DIM]; /* of up to three tensors, in elements */
    int64_t pos[3];
} walk;

static bool walk_next(walk *w)
{
    for (int d = w->n - 1; d >= 0; d--) {
        for (int t = 0; t < 3; t++) w->pos[t] += w->stride[t][d];
        if (++w->at[d] < w->size[d]) return true;
        for (int t = 0; t < 3; t++) w->pos[t] -= w->stride[t][d] * w->size[d];
        w->at[d] = 0;
    }
    return false;
}

static void strides(const weft_shape *s, int64_t *stride)
{
    int64_t step = 1;
    for (int d = s->n - 1; d >= 0; d--) {
        stride[d] = step;
        step *= s->d[d];
    }
}

/* ---- products ---- */

/* Appends the dimensions of letters that are new; each tensor's stride stands beside them. */
static void walk_letters(walk *w, char *seen, const char *letters, const weft_shape *s)
{
    for (int d = 0; letters[d]; d++)
        if (!strchr(seen, letters[d])) {
            seen[w->n]      = letters[d];
            w->size[w->n++] = s->d[d];
        }
}

/* The number of a format that is nearest to x, an even code of two. */
static double find_nearest(double x, weft_dtype t)
{
    int best = 0;
    if (isnan(x)) return x;
    for (int code = 0; code < 0x7f; code++) {
        double y = weft_fp8_decode((uint8_t)code, t), off = fabs(y - fabs(x));
        double least = fabs((double)weft_fp8_decode((uint8_t)best, t) - fabs(x));
        if (isfinite(y) && (off < least || (off == least && code % 2 == 0))) best = code;
    }
    return copysign(weft_fp8_decode((uint8_t)best, t), x);
}

/* The power of two by which the largest of a row is divided: what is left is at most the largest
 * number of the format, and more than half of it. */
static double find_unit(double largest, weft_dtype t)
{
    double most = t == WEFT_DTYPE_F8_E5M2 ? 57344 : 448;
    int    e    = 0;
    if (!isfinite(largest)) return NAN;
    if (largest < 0x1p-100) largest = 0x1p-100;
    while (ldexp(largest, -e) > most) e++;
    while (ldexp(largest, -e) <= most / 2) e--;
    return ldexp(1, e);
}

/* y = x with each row rounded to the format: letters of x that the result does not have run along
 * a row. */
static void round_rows(const weft_shape *s, const char *letters, const char *result,
                       weft_dtype t, const double *x, double *y)
{
    int64_t n = weft_shape_count(s), row_stride[WEFT_MAX_DIM] = {0}, n_row = 1;
    for (int d = s->n - 1; d >= 0; d--)
        if (strchr(result, letters[d])) row_stride[d] = n_row, n_row *= s->d[d];
    for (int64_t row = 0; row < n_row; row++) {
        double largest = 0, unit = 1;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = 0; i < n; i++) {
                int64_t at = 0, rest = i;
                for (int d = s->n - 1; d >= 0; rest /= s->d[d--])
                    at += rest % s->d[d] * row_stride[d];
                if (at != row) continue;
                if (pass)
                    y[i] = find_nearest(x[i] / unit, t) * unit;
                else if (!(fabs(x[i]) <= largest))
                    largest = isnan(largest) ? largest : fabs(x[i]);
            }
            unit = find_unit(largest, t);
        }
    }
}

/* y[..] = sum a[..] b[..] over the letters that y does not have */
static void sum_products(walk *w, const double *a, const double *b, double *y)
{
    do y[w->pos[2]] += a[w->pos[0]] * b[w->pos[1]];
    while (walk_next(w));
}

/* The same of operands that are rounded first. */
static weft_status sum_rounded(walk *w, const weft_op_use *u,
                               char part[3][WEFT_MAX_DIM + 1], const double *const *in,
                               double *y)
{
    double     *x[2] = {0};
    weft_status st   = WEFT_OK;
    for (int k = 0; k < 2; k++) {
        weft_dtype        t = WEFT_DTYPE_F8_E4M3;
        const weft_shape *s = &u->in[k].shape;
        x[k]                = malloc(sizeof **x * (size_t)weft_shape_count(s));
        if (!x[k]) st = WEFT_FAIL(WEFT_ERR_MEM, "no memory for a rounded operand");
        (void)weft_fp8_parse(weft_use_string(u, "fp8"), k, &t);
        if (x[k]) round_rows(s, part[k], part[2], t, in[k], x[k]);
    }
    if (st == WEFT_OK) sum_products(w, x[0], x[1], y);
    free(x[0]);
    free(x[1]);
    return st;
}

WEFT_REF(matmul)
{
    const weft_shape *shape[3] = {&u->in[0].shape, &u->in[1].shape, &u->out[0].shape};
    const char       *p        = weft_use_string(u, "spec");
    char              part[3][WEFT_MAX_DIM + 1] = {{0}}, seen[3 * WEFT_MAX_DIM + 1] = {0};
    walk              w = {0};

    for (int t = 0, n = 0; *p; p++)
        if (*p >= 'a' && *p <= 'z')
            part[t][n++] = *p;
        else if (*p != '-')
            t++, n = 0;
    walk_letters(&w, seen, part[2], shape[2]);
    walk_letters(&w, seen, part[0], shape[0]);
    walk_letters(&w, seen, part[1], shape[1]);
    for (int t = 0; t < 3; t++) {
        int64_t stride[WEFT_MAX_DIM];
        strides(shape[t], stride);
        for (int d = 0; part[t][d]; d++)
            w.stride[t][strchr(seen, part[t][d]) - seen] = stride[d];
    }
    weft_kernel__zero(out[0], &u->out[0]);
    for (int d = 0; d < w.n; d++)
        if (w.size[d] == 0) return WEFT_OK;
    const char *fp8 = weft_use_string(u, "fp8");
    if (fp8 && *fp8) return sum_rounded(&w, u, part, in, out[0]);
    sum_products(&w, in[0], in[1], out[0]);
    return WEFT_OK;
}

/* y[r,n] = sum_k x[r,k] w[expert of r; n,k]; rows past the last offset are 0 */
WEFT_REF(grouped_matmul)
{
    bool    trans = weft_use_int(u, "trans") != 0;
    int64_t K = u->in[0].shape.d[1], N = u->out[0].shape.d[1], X = u->in[1].shape.d[0];
    const double *x = in[0], *w = in[1], *offset = in[2];
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t e = 0; e < X; e++)
        for (int64_t r = (int64_t)offset[e]; r < (int64_t)offset[e + 1]; r++)
            for (int64_t n = 0; n < N; n++)
                for (int64_t k = 0; k < K; k++)
                    out[0][r * N + n] += x[r * K + k] * (trans ? w[(e * N + n) * K + k]
                                                               : w[(e * K + k) * N + n]);
    return WEFT_OK;
}

/* dw[e; n,k] = sum over e's rows r of dy[r,n] x[r,k] */
WEFT_REF(grouped_matmul_wgrad)
{
    bool    trans = weft_use_int(u, "trans") != 0;
    int64_t K = u->in[0].shape.d[1], N = u->in[1].shape.d[1], X = u->out[0].shape.d[0];
    const double *x = in[0], *dy = in[1], *offset = in[2];
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t e = 0; e < X; e++)
        for (int64_t r = (int64_t)offset[e]; r < (int64_t)offset[e + 1]; r++)
            for (int64_t n = 0; n < N; n++)
                for (int64_t k = 0; k < K; k++)
                    out[0][trans ? (e * N + n) * K + k : (e * K + k) * N + n] +=
                        dy[r * N + n] * x[r * K + k];
    return WEFT_OK;
}

/* ---- element by element ---- */

/* Walks the shape of y; operands are spread where their dimension is 1 or missing. */
static walk walk_broadcast(const weft_op_use *u)
{
    const weft_shape *y = &u->out[0].shape;
    walk              w = {.n = y->n};
    memcpy(w.size, y->d, sizeof(int64_t) * (size_t)y->n);
    for (int t = 0; t < u->n_in; t++) {
        const weft_shape *s = &u->in[t].shape;
        int64_t           stride[WEFT_MAX_DIM];
        strides(s, stride);
        for (int d = 0; d < s->n; d++)
            if (s->d[d] != 1) w.stride[t][y->n - s->n + d] = stride[d];
    }
    strides(y, w.stride[2]);
    return w;
}

WEFT_REF(add)
{
    walk w = walk_broadcast(u);
    if (!weft_kernel__count(&u->out[0])) return WEFT_OK;
    do out[0][w.pos[2]] = in[0][w.pos[0]] + in[1][w.pos[1]];
    while (walk_next(&w));
    return WEFT_OK;
}

WEFT_REF(mul)
{
    walk w = walk_broadcast(u);
    if (!weft_kernel__count(&u->out[0])) return WEFT_OK;
    do out[0][w.pos[2]] = in[0][w.pos[0]] * in[1][w.pos[1]];
    while (walk_next(&w));
    return WEFT_OK;
}

WEFT_REF(broadcast)
{
    walk w = walk_broadcast(u);
    if (!weft_kernel__count(&u->out[0])) return WEFT_OK;
    do out[0][w.pos[2]] = in[0][w.pos[0]];
    while (walk_next(&w));
    return WEFT_OK;
}

WEFT_REF(copy)
{
    memcpy(out[0], in[0], sizeof(double) * (size_t)weft_kernel__count(&u->out[0]));
    return WEFT_OK;
}

/* out[i] = expr of x = in[0][i] and z = in[1][i] */
#define EACH(expr)                                                                       \
    for (int64_t i = 0, n = weft_kernel__count(&u->out[0]); i < n; i++) {                \
        double x  = in[0][i];                                                            \
        out[0][i] = (expr);                                                              \
    }                                                                                    \
    return WEFT_OK
#define EACH2(expr)                                                                      \
    for (int64_t i = 0, n = weft_kernel__count(&u->out[0]); i < n; i++) {                \
        double dy = in[0][i], z = in[1][i];                                              \
        out[0][i] = (expr);                                                              \
    }                                                                                    \
    return WEFT_OK

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double slope_silu(double x)
{
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

#define SQRT_2_PI 0.79788456080286535588 /* sqrt(2 / pi) */

/* tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));  erf: x/2 (1 + erf(x / sqrt 2)) */
static double gelu(double x, bool erf_form)
{
    if (erf_form) return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    return 0.5 * x * (1 + tanh(SQRT_2_PI * (x + 0.044715 * x * x * x)));
}
static double slope_gelu(double x, bool erf_form)
{
    if (erf_form)
        return 0.5 * (1 + erf(x / sqrt(2.0))) + 0.5 * x * SQRT_2_PI * exp(-0.5 * x * x);
    double t = tanh(SQRT_2_PI * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_PI * (1 + 3 * 0.044715 * x * x);
}
static weft_status is_erf(const weft_op_use *u, bool *out)
{
    const char *s = weft_use_string(u, "approx");
    *out          = !strcmp(s, "erf");
    if (*out || !strcmp(s, "tanh")) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: approx '%s' is not tanh or erf",
                     weft_op_get(u->op)->name, s);
}

/* The activation of a gate and its slope. */
static weft_status gate_of(const weft_op_use *u, double x, double *y, double *slope)
{
    const char *act = weft_use_string(u, "act");
    if (!strcmp(act, "silu"))
        *y = x * sigmoid(x), *slope = slope_silu(x);
    else if (!strcmp(act, "gelu") || !strcmp(act, "gelu_erf"))
        *y = gelu(x, act[4]), *slope = slope_gelu(x, act[4]);
    else if (!strcmp(act, "relu"))
        *y = x > 0 ? x : 0, *slope = x > 0;
    else
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: act '%s' is not silu, gelu, gelu_erf or relu",
                         weft_op_get(u->op)->name, act);
    return WEFT_OK;
}

WEFT_REF(gate)
{
    for (int64_t i = 0, n = weft_kernel__count(&u->out[0]); i < n; i++) {
        double y, slope;
        WEFT_TRY(gate_of(u, in[0][i], &y, &slope));
        out[0][i] = y * in[1][i];
    }
    return WEFT_OK;
}
WEFT_REF(gate_grad)
{
    for (int64_t i = 0, n = weft_kernel__count(&u->out[0]); i < n; i++) {
        double y, slope, dy = in[0][i];
        WEFT_TRY(gate_of(u, in[1][i], &y, &slope));
        out[0][i] = dy * in[2][i] * slope;
        out[1][i] = dy * y;
    }
    return WEFT_OK;
}

WEFT_REF(scale)
{
    double alpha = weft_use_float(u, "alpha");
    EACH(alpha * x);
}
WEFT_REF(gelu)
{
    bool e;
    WEFT_TRY(is_erf(u, &e));
    EACH(gelu(x, e));
}
WEFT_REF(gelu_grad)
{
    bool e;
    WEFT_TRY(is_erf(u, &e));
    EACH2(dy * slope_gelu(z, e));
}
WEFT_REF(silu)
{
    EACH(x * sigmoid(x));
}
WEFT_REF(silu_grad)
{
    EACH2(dy * slope_silu(z));
}
WEFT_REF(relu)
{
    EACH(x > 0 ? x : 0);
}
WEFT_REF(relu_grad)
{
    EACH2(z > 0 ? dy : 0);
}
WEFT_REF(tanh)
{
    EACH(tanh(x));
}
WEFT_REF(tanh_grad)
{
    EACH2(dy * (1 - z * z));
} /* z is tanh's result */

/* The index within its sample of the whole that element i of a piece's sample has. */
static int64_t whole_index(const weft_op_use *u, int64_t i)
{
    const weft_shape *s  = &u->in[0].shape;
    const weft_attr  *at = weft_use_attr(u, "at"), *whole = weft_use_attr(u, "whole");
    int64_t           to = 0, step = 1;
    if (!whole->n) return i;
    for (int d = s->n - 1; d > 0; d--) {
        to += (i % s->d[d] + at->l[d]) * step;
        i /= s->d[d];
        step *= whole->l[d];
    }
    return to;
}

/* Dimension 0 counts samples, the rest are the elements of one: kernel/mask.h. */
WEFT_REF(dropout)
{
    double  p       = weft_use_float(u, "p");
    int64_t samples = u->in[0].shape.n ? u->in[0].shape.d[0] : 1;
    int64_t each    = samples ? weft_kernel__count(&u->in[0]) / samples : 0;
    int64_t first   = weft_use_attr(u, "at")->n ? weft_use_attr(u, "at")->l[0] : 0;
    if (!(p >= 0 && p < 1)) return WEFT_FAIL(WEFT_ERR_ARG, "dropout: p must be in [0,1)");
    for (int64_t s = 0; s < samples; s++) {
        weft_mask m = weft_mask_make(c->seed, c->step, c->first_sample + first + s,
                                     weft_use_int(u, "id"), p);
        for (int64_t i = 0; i < each; i++)
            out[0][s * each + i] = weft_mask_keeps(&m, whole_index(u, i))
                                       ? in[0][s * each + i] / (1 - p)
                                       : 0;
    }
    return WEFT_OK;
}

/* ---- shapes ---- */

WEFT_REF(reduce)
{
    const weft_shape *s                  = &u->in[0].shape;
    const weft_attr  *axes               = weft_use_attr(u, "axes");
    const char       *kind               = weft_use_string(u, "kind");
    bool              gone[WEFT_MAX_DIM] = {0};
    int64_t           step = 1, n_in = weft_kernel__count(&u->in[0]);
    walk              w = {.n = s->n};

    for (int i = 0; i < axes->n; i++)
        gone[axes->l[i] < 0 ? axes->l[i] + s->n : axes->l[i]] = true;
    memcpy(w.size, s->d, sizeof(int64_t) * (size_t)s->n);
    strides(s, w.stride[0]);
    for (int d = s->n - 1; d >= 0;
         d--) /* a dimension that is kept with size 1 has no stride */
        if (!gone[d]) {
            w.stride[2][d] = step;
            step *= s->d[d];
        }
    for (int64_t i = 0; i < step; i++) out[0][i] = !strcmp(kind, "max") ? -INFINITY : 0;
    if (!n_in) return WEFT_OK;
    do {
        double *y = &out[0][w.pos[2]], x = in[0][w.pos[0]];
        *y = !strcmp(kind, "max") ? fmax(*y, x) : *y + x;
    } while (walk_next(&w));
    if (!strcmp(kind, "mean"))
        for (int64_t i = 0; i < step; i++) out[0][i] /= (double)(n_in / step);
    return WEFT_OK;
}

WEFT_REF(transpose)
{
    const weft_attr *perm = weft_use_attr(u, "perm");
    walk             w    = {.n = u->in[0].shape.n};
    int64_t          stride[WEFT_MAX_DIM];
    strides(&u->in[0].shape, stride);
    strides(&u->out[0].shape, w.stride[2]);
    for (int d = 0; d < w.n; d++) {
        w.size[d]      = u->out[0].shape.d[d];
        w.stride[0][d] = stride[perm->l[d]];
    }
    if (!weft_kernel__count(&u->out[0])) return WEFT_OK;
    do out[0][w.pos[2]] = in[0][w.pos[0]];
    while (walk_next(&w));
    return WEFT_OK;
}

/* n elements out of every from_step into every to_step, `times` times. */
static void copy_runs(const double *from, int64_t from_step, double *to, int64_t to_step,
                      int64_t n, int64_t times)
{
    for (int64_t b = 0; b < times; b++)
        memcpy(to + b * to_step, from + b * from_step, sizeof(double) * (size_t)n);
}

/* What a part of a tensor's axis needs: sizes around the axis, of x (the part) and y (the whole).
 */
static int64_t axis_of(const weft_op_use *u, int64_t *before, int64_t *behind)
{
    int64_t a = weft_use_int(u, "axis");
    if (a < 0) a += u->in[0].shape.n;
    weft_kernel__around(&u->in[0].shape, a, before, behind);
    return a;
}

WEFT_REF(concat)
{
    int64_t before, behind, a = axis_of(u, &before, &behind);
    int64_t whole = u->out[0].shape.d[a] * behind, at = 0;
    for (int i = 0; i < u->n_in; i++) {
        int64_t part = u->in[i].shape.d[a] * behind;
        copy_runs(in[i], part, out[0] + at, whole, part, before);
        at += part;
    }
    return WEFT_OK;
}
WEFT_REF(split)
{
    int64_t before, behind, a = axis_of(u, &before, &behind);
    int64_t whole = u->in[0].shape.d[a] * behind, at = 0;
    for (int j = 0; j < u->n_out; j++) {
        int64_t part = u->out[j].shape.d[a] * behind;
        copy_runs(in[0] + at, whole, out[j], part, part, before);
        at += part;
    }
    return WEFT_OK;
}
WEFT_REF(slice)
{
    int64_t before, behind, a = axis_of(u, &before, &behind);
    int64_t whole = u->in[0].shape.d[a] * behind, part = u->out[0].shape.d[a] * behind;
    copy_runs(in[0] + weft_use_int(u, "start") * behind, whole, out[0], part, part,
              before);
    return WEFT_OK;
}
/* dy back at its place, zeros around it */
WEFT_REF(slice_grad)
{
    int64_t before, behind, a = axis_of(u, &before, &behind);
    int64_t whole = u->out[0].shape.d[a] * behind, part = u->in[0].shape.d[a] * behind;
    weft_kernel__zero(out[0], &u->out[0]);
    copy_runs(in[0], part, out[0] + weft_use_int(u, "start") * behind, whole, part,
              before);
    return WEFT_OK;
}
WEFT_REF(fill)
{
    for (int64_t i = 0, n = weft_kernel__count(&u->out[0]); i < n; i++)
        out[0][i] = weft_use_float(u, "value");
    return WEFT_OK;
}
