/* Shape rules: products, element by element, views, once-a-step operators. */
#include <string.h>

#include "op/op_priv.h"
#include "tensor/fp8.h"

#define NAME(u) (weft_op_get((u)->op)->name)

/* The dtype attribute, or that of operand 0 where it is empty. */
static weft_status attr_dtype(const weft_op_use *u, weft_dtype *out)
{
    const char *s = weft_use_string(u, "dtype");
    if (!*s) {
        *out = u->in[0].dtype;
        return WEFT_OK;
    }
    if (!weft_dtype_parse(s, out))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: unknown dtype '%s'", NAME(u), s);
    return WEFT_OK;
}

static weft_status need_rank(const weft_op_use *u, int in, int n)
{
    char b[WEFT_OP__TEXT];
    if (u->in[in].shape.n == n) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: operand %d must have %d dimensions, is [%s]",
                     NAME(u), in, n, weft_op__shape(u, in, b));
}

static weft_status same_shape(const weft_op_use *u, int i, int j)
{
    char a[WEFT_OP__TEXT], b[WEFT_OP__TEXT];
    if (weft_shape_equal(&u->in[i].shape, &u->in[j].shape)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: operands %d [%s] and %d [%s] must have one shape",
                     NAME(u), i, weft_op__shape(u, i, a), j, weft_op__shape(u, j, b));
}

static weft_status scalar(const weft_op_use *u, int in)
{
    if (u->in[in].shape.n == 0) return WEFT_OK;
    return need_rank(u, in, 0);
}

/* A dimension by number, negative from the end. */
static weft_status axis_of(const weft_op_use *u, int64_t axis, int n, int *out)
{
    *out = 0;
    if (axis < 0) axis += n;
    if (axis < 0 || axis >= n)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: axis %ld of a tensor with %d dimensions",
                         NAME(u), (long)axis, n);
    *out = (int)axis;
    return WEFT_OK;
}

weft_status weft_op__parse_spec(const char *spec, weft_op__spec *out)
{
    int part = 0, n = 0;
    memset(out, 0, sizeof *out);
    for (const char *p = spec; *p; p++) {
        if (*p == ',' && part == 0) {
            part = 1, n = 0;
        } else if (p[0] == '-' && p[1] == '>' && part == 1) {
            part = 2, n = 0, p++;
        } else if (*p >= 'a' && *p <= 'z' && n < WEFT_MAX_DIM &&
                   !memchr(out->part[part], *p, (size_t)n)) {
            out->part[part][n++] = *p;
        } else {
            part = -1;
            break;
        }
    }
    if (part != 2)
        return WEFT_FAIL(WEFT_ERR_ARG, "matmul: spec '%s' is not of the form bmk,kn->bmn",
                         spec);
    for (const char *p = out->part[2]; *p; p++)
        if (!strchr(out->part[0], *p) && !strchr(out->part[1], *p))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "matmul: '%c' of the result is in no operand of '%s'", *p,
                             spec);
    return WEFT_OK;
}

/* Nothing, or formats of both operands, and of the result's gradient perhaps. */
static weft_status check_fp8(const weft_op_use *u)
{
    const char *text = weft_use_string(u, "fp8");
    weft_dtype  t;
    if (!text || !*text) return WEFT_OK;
    for (int k = 0; k < 2; k++)
        if (u->in[k].dtype != WEFT_DTYPE_F32 && u->in[k].dtype != WEFT_DTYPE_BF16)
            return WEFT_FAIL(WEFT_ERR_ARG, "matmul: operands of fp8 are f32 or bf16");
    bool ok = weft_fp8_parse(text, 0, &t) && weft_fp8_parse(text, 1, &t);
    if (ok && strlen(text) != strlen("e4m3,e4m3"))
        ok = strlen(text) == strlen("e4m3,e4m3,e4m3") && weft_fp8_parse(text, 2, &t);
    if (ok) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "matmul: fp8 '%.20s' is not of the form e4m3,e5m2",
                     text);
}

/* Rows of operand k of a matmul, or columns: sizes of its letters that y has, or has not. */
static weft_type largest_type(const weft_op_use *u, const weft_op__spec *s, int k,
                              bool rows)
{
    int64_t n = 1;
    for (int d = 0; s->part[k][d]; d++)
        if ((strchr(s->part[2], s->part[k][d]) != NULL) == rows) n *= u->in[k].shape.d[d];
    return (weft_type){WEFT_DTYPE_F32, weft_shape_make(1, &n)};
}

static weft_status infer_largest(const weft_op_use *u, const weft_op__spec *s,
                                 weft_type *o)
{
    for (int k = 0; k < u->n_in - 2; k++) {
        weft_type t = largest_type(u, s, k, true);
        char      b[WEFT_OP__TEXT];
        if (u->in[2 + k].shape.n == 0) continue; /* left out */
        if (u->in[2 + k].dtype != t.dtype ||
            !weft_shape_equal(&u->in[2 + k].shape, &t.shape))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "matmul: operand %d is [%s], should be f32 of %ld rows",
                             2 + k, weft_op__shape(u, 2 + k, b), (long)t.shape.d[0]);
    }
    for (int k = 0; k < u->n_out - 1; k++) o[1 + k] = largest_type(u, s, k, false);
    if ((u->n_in > 2 || u->n_out > 1) && !*weft_use_string(u, "fp8"))
        return WEFT_FAIL(WEFT_ERR_ARG, "matmul: largest magnitudes are of fp8 alone");
    return WEFT_OK;
}

weft_status weft_op__shape_spec(const weft_op_use *u, weft_type *o)
{
    weft_op__spec s;
    int64_t       size[128] = {0};
    char          b[WEFT_OP__TEXT];
    const char   *spec = weft_use_string(u, "spec");

    WEFT_TRY(weft_op__parse_spec(spec, &s));
    for (int i = 0; i < 2; i++) {
        if ((int)strlen(s.part[i]) != u->in[i].shape.n)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "matmul: '%s' wants %zu dimensions of operand %d, is [%s]",
                             spec, strlen(s.part[i]), i, weft_op__shape(u, i, b));
        for (int d = 0; s.part[i][d]; d++) {
            int64_t *z = &size[s.part[i][d] & 127], have = u->in[i].shape.d[d];
            if (*z && *z != have)
                return WEFT_FAIL(WEFT_ERR_ARG,
                                 "matmul '%s': sizes %ld and %ld of '%c' differ", spec,
                                 (long)*z, (long)have, s.part[i][d]);
            *z = have;
        }
    }
    WEFT_TRY(check_fp8(u));
    WEFT_TRY(attr_dtype(u, &o[0].dtype));
    o[0].shape.n = (int)strlen(s.part[2]);
    for (int d = 0; d < o[0].shape.n; d++) o[0].shape.d[d] = size[s.part[2][d] & 127];
    return infer_largest(u, &s, o);
}

/* NumPy's rule: align at the last dimension, sizes equal or 1. */
static weft_status broadcast_shapes(const weft_op_use *u, const weft_shape *a,
                                    const weft_shape *b, weft_shape *out)
{
    int n  = a->n > b->n ? a->n : b->n;
    out->n = n;
    for (int i = 1; i <= n; i++) {
        int64_t x = i <= a->n ? a->d[a->n - i] : 1, y = i <= b->n ? b->d[b->n - i] : 1;
        if (x != y && x != 1 && y != 1) {
            char s[WEFT_OP__TEXT], t[WEFT_OP__TEXT];
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: shapes [%s] and [%s] do not broadcast",
                             NAME(u), weft_shape_text(a, s, sizeof s),
                             weft_shape_text(b, t, sizeof t));
        }
        out->d[n - i] = x == 1 ? y : x;
    }
    return WEFT_OK;
}

weft_status weft_op__shape_broadcast2(const weft_op_use *u, weft_type *o)
{
    o[0].dtype = u->in[0].dtype;
    return broadcast_shapes(u, &u->in[0].shape, &u->in[1].shape, &o[0].shape);
}

weft_status weft_op__shape_same(const weft_op_use *u, weft_type *o)
{
    for (int i = 1; i < u->n_in; i++) WEFT_TRY(same_shape(u, 0, i));
    o[0] = u->in[0];
    return WEFT_OK;
}

weft_status weft_op__shape_same2(const weft_op_use *u, weft_type *o)
{
    o[1] = u->in[0];
    return weft_op__shape_same(u, o);
}

weft_status weft_op__shape_dropout(const weft_op_use *u, weft_type *o)
{
    const weft_shape *s  = &u->in[0].shape;
    const weft_attr  *at = weft_use_attr(u, "at"), *whole = weft_use_attr(u, "whole");
    if (at->n != whole->n || (at->n && at->n != s->n))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "dropout: at and whole must have as many numbers as x dimensions");
    for (int d = 0; d < at->n; d++)
        if (at->l[d] < 0 || whole->l[d] < s->d[d] || at->l[d] > whole->l[d] - s->d[d])
            return WEFT_FAIL(WEFT_ERR_ARG, "dropout: x reaches out of whole");
    o[0] = u->in[0];
    return WEFT_OK;
}

weft_status weft_op__shape_cast(const weft_op_use *u, weft_type *o)
{
    o[0] = u->in[0];
    return attr_dtype(u, &o[0].dtype);
}

weft_status weft_op__shape_accumulate(const weft_op_use *u, weft_type *o)
{
    o[0] = u->in[0];
    return WEFT_OK;
}

static weft_status list_shape(const weft_op_use *u, const char *attr, weft_shape *out)
{
    const weft_attr *l = weft_use_attr(u, attr);
    out->n             = l->n;
    memcpy(out->d, l->l, sizeof(int64_t) * (size_t)l->n);
    return weft_shape_verify(out);
}

weft_status weft_op__shape_broadcast(const weft_op_use *u, weft_type *o)
{
    weft_shape s, got;
    char       a[WEFT_OP__TEXT], b[WEFT_OP__TEXT];
    WEFT_TRY(list_shape(u, "shape", &s));
    WEFT_TRY(broadcast_shapes(u, &u->in[0].shape, &s, &got));
    if (!weft_shape_equal(&s, &got))
        return WEFT_FAIL(WEFT_ERR_ARG, "broadcast: [%s] does not spread to [%s]",
                         weft_op__shape(u, 0, a), weft_shape_text(&s, b, sizeof b));
    o[0].dtype = u->in[0].dtype;
    o[0].shape = s;
    return WEFT_OK;
}

weft_status weft_op__shape_reshape(const weft_op_use *u, weft_type *o)
{
    char a[WEFT_OP__TEXT], b[WEFT_OP__TEXT];
    o[0].dtype = u->in[0].dtype;
    WEFT_TRY(list_shape(u, "shape", &o[0].shape));
    if (weft_shape_count(&o[0].shape) != weft_shape_count(&u->in[0].shape))
        return WEFT_FAIL(WEFT_ERR_ARG, "reshape: [%s] has not as many elements as [%s]",
                         weft_op__shape(u, 0, a),
                         weft_shape_text(&o[0].shape, b, sizeof b));
    return WEFT_OK;
}

weft_status weft_op__shape_transpose(const weft_op_use *u, weft_type *o)
{
    const weft_attr  *p    = weft_use_attr(u, "perm");
    const weft_shape *s    = &u->in[0].shape;
    unsigned          seen = 0;
    if (p->n != s->n)
        return WEFT_FAIL(WEFT_ERR_ARG, "transpose: %d numbers in perm for %d dimensions",
                         p->n, s->n);
    o[0].dtype   = u->in[0].dtype;
    o[0].shape.n = s->n;
    for (int i = 0; i < s->n; i++) {
        if (p->l[i] < 0 || p->l[i] >= s->n || (seen >> p->l[i] & 1))
            return WEFT_FAIL(WEFT_ERR_ARG, "transpose: perm is no permutation of 0..%d",
                             s->n - 1);
        seen |= 1u << p->l[i];
        o[0].shape.d[i] = s->d[p->l[i]];
    }
    return WEFT_OK;
}

weft_status weft_op__shape_concat(const weft_op_use *u, weft_type *o)
{
    int axis;
    if (u->n_in < 1) return WEFT_FAIL(WEFT_ERR_ARG, "concat: no operands");
    WEFT_TRY(axis_of(u, weft_use_int(u, "axis"), u->in[0].shape.n, &axis));
    o[0] = u->in[0];
    for (int i = 1; i < u->n_in; i++) {
        weft_shape t = u->in[i].shape;
        if (t.n != o[0].shape.n) return need_rank(u, i, o[0].shape.n);
        int64_t add = t.d[axis];
        t.d[axis]   = o[0].shape.d[axis];
        if (!weft_shape_equal(&t, &o[0].shape)) return same_shape(u, 0, i);
        o[0].shape.d[axis] += add;
        WEFT_TRY(weft_shape_verify(&o[0].shape));
    }
    return WEFT_OK;
}

weft_status weft_op__shape_split(const weft_op_use *u, weft_type *o)
{
    int              axis;
    const weft_attr *z   = weft_use_attr(u, "sizes");
    int64_t          sum = 0;
    WEFT_TRY(axis_of(u, weft_use_int(u, "axis"), u->in[0].shape.n, &axis));
    if (z->n != u->n_out)
        return WEFT_FAIL(WEFT_ERR_ARG, "split: %d sizes for %d results", z->n, u->n_out);
    for (int j = 0; j < u->n_out; j++) {
        o[j]               = u->in[0];
        o[j].shape.d[axis] = z->l[j];
        WEFT_TRY(weft_shape_verify(&o[j].shape));
        sum += z->l[j];
    }
    if (sum != u->in[0].shape.d[axis])
        return WEFT_FAIL(WEFT_ERR_ARG, "split: sizes add up to %ld, dimension %d has %ld",
                         (long)sum, axis, (long)u->in[0].shape.d[axis]);
    return WEFT_OK;
}

weft_status weft_op__shape_slice(const weft_op_use *u, weft_type *o)
{
    int     axis;
    int64_t start = weft_use_int(u, "start"), stop = weft_use_int(u, "stop");
    WEFT_TRY(axis_of(u, weft_use_int(u, "axis"), u->in[0].shape.n, &axis));
    if (start < 0 || stop < start || stop > u->in[0].shape.d[axis])
        return WEFT_FAIL(WEFT_ERR_ARG, "slice: %ld..%ld of dimension %d with %ld",
                         (long)start, (long)stop, axis, (long)u->in[0].shape.d[axis]);
    o[0]               = u->in[0];
    o[0].shape.d[axis] = stop - start;
    return WEFT_OK;
}

weft_status weft_op__shape_slice_grad(const weft_op_use *u, weft_type *o)
{
    int     axis;
    int64_t start = weft_use_int(u, "start"), size = weft_use_int(u, "size");
    WEFT_TRY(axis_of(u, weft_use_int(u, "axis"), u->in[0].shape.n, &axis));
    if (start < 0 || size < 0 || start > size - u->in[0].shape.d[axis])
        return WEFT_FAIL(WEFT_ERR_ARG, "slice_grad: %ld at %ld does not lie within %ld",
                         (long)u->in[0].shape.d[axis], (long)start, (long)size);
    o[0]               = u->in[0];
    o[0].shape.d[axis] = size;
    return WEFT_OK;
}

weft_status weft_op__shape_fill(const weft_op_use *u, weft_type *o)
{
    const char *s = weft_use_string(u, "dtype");
    if (!weft_dtype_parse(s, &o[0].dtype))
        return WEFT_FAIL(WEFT_ERR_ARG, "fill: unknown dtype '%s'", s);
    return list_shape(u, "shape", &o[0].shape);
}

weft_status weft_op__shape_reduce(const weft_op_use *u, weft_type *o)
{
    const weft_attr *axes               = weft_use_attr(u, "axes");
    const char      *kind               = weft_use_string(u, "kind");
    bool             gone[WEFT_MAX_DIM] = {0};
    if (strcmp(kind, "sum") && strcmp(kind, "mean") && strcmp(kind, "max"))
        return WEFT_FAIL(WEFT_ERR_ARG, "reduce: kind '%s' is not sum, mean or max", kind);
    for (int i = 0; i < axes->n; i++) {
        int a;
        WEFT_TRY(axis_of(u, axes->l[i], u->in[0].shape.n, &a));
        gone[a] = true;
    }
    WEFT_TRY(attr_dtype(u, &o[0].dtype));
    o[0].shape.n = 0;
    for (int d = 0; d < u->in[0].shape.n; d++)
        if (!gone[d] || weft_use_int(u, "keep"))
            o[0].shape.d[o[0].shape.n++] = gone[d] ? 1 : u->in[0].shape.d[d];
    return WEFT_OK;
}

weft_status weft_op__shape_sumsq(const weft_op_use *u, weft_type *o)
{
    (void)u;
    o[0] = (weft_type){.dtype = WEFT_DTYPE_F64};
    return WEFT_OK;
}

/* A partial for each index of dimension 0; of a vector for each 256 elements. */
weft_status weft_op__shape_sumsq_parts(const weft_op_use *u, weft_type *o)
{
    const weft_shape *x = &u->in[0].shape;
    o[0] = (weft_type){.dtype = WEFT_DTYPE_F64, .shape.n = 1, .shape.d[0] = 1};
    if (x->n) o[0].shape.d[0] = x->n > 1 ? x->d[0] : (x->d[0] + 255) / 256;
    return WEFT_OK;
}

weft_status weft_op__shape_sumsq_tree(const weft_op_use *u, weft_type *o)
{
    if (u->in[0].dtype != WEFT_DTYPE_F64 || u->in[0].shape.n != 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "sumsq_tree: partials are a vector of f64");
    o[0] = (weft_type){.dtype = WEFT_DTYPE_F64};
    return WEFT_OK;
}

/* ---- between ranks ---- */

static weft_status parts_of(const weft_op_use *u, int64_t *parts)
{
    *parts = weft_use_int(u, "parts");
    if (*parts < 1 || u->in[0].shape.n < 1 || weft_use_int(u, "group") < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: a tensor over %lld parts of group %lld",
                         weft_op_get(u->op)->name, (long long)*parts,
                         (long long)weft_use_int(u, "group"));
    return WEFT_OK;
}

/* Positions of dimension 0 that part is dealt. */
static weft_status share_of(const weft_op_use *u, int64_t size, int64_t *out)
{
    int64_t parts, part = weft_use_int(u, "part"), unit = weft_use_int(u, "unit");
    WEFT_TRY(parts_of(u, &parts));
    if (part < 0 || part >= parts || unit < 1 || size < 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: part %lld of %lld, %lld positions in units of %lld",
                         weft_op_get(u->op)->name, (long long)part, (long long)parts,
                         (long long)size, (long long)unit);
    *out = weft_part_start(size, unit, parts, part + 1) -
           weft_part_start(size, unit, parts, part);
    return WEFT_OK;
}

weft_status weft_op__shape_reduce_scatter(const weft_op_use *u, weft_type *o)
{
    o[0] = u->in[0];
    return share_of(u, u->in[0].shape.n ? u->in[0].shape.d[0] : -1, &o[0].shape.d[0]);
}

weft_status weft_op__shape_all_gather(const weft_op_use *u, weft_type *o)
{
    int64_t mine, size = weft_use_int(u, "size");
    WEFT_TRY(share_of(u, size, &mine));
    o[0] = u->in[0];
    if (o[0].shape.d[0] != mine)
        return WEFT_FAIL(WEFT_ERR_ARG, "all_gather: a share of %lld positions, not %lld",
                         (long long)o[0].shape.d[0], (long long)mine);
    o[0].shape.d[0] = size;
    return WEFT_OK;
}

weft_status weft_op__shape_all_to_all(const weft_op_use *u, weft_type *o)
{
    int64_t parts;
    WEFT_TRY(parts_of(u, &parts));
    o[0] = u->in[0];
    if (o[0].shape.d[0] % parts)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "all_to_all: %lld positions are no %lld equal shares",
                         (long long)o[0].shape.d[0], (long long)parts);
    return WEFT_OK;
}

weft_status weft_op__shape_move_rows(const weft_op_use *u, weft_type *o)
{
    int64_t          parts, size = weft_use_int(u, "size");
    const weft_type *table = &u->in[1];
    WEFT_TRY(parts_of(u, &parts));
    if (u->in[0].shape.n != 2 || table->dtype != WEFT_DTYPE_I32 || table->shape.n != 2 ||
        table->shape.d[0] != parts || table->shape.d[1] < 2 || size < 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: rows, and offsets of %lld parts; room for %lld",
                         weft_op_get(u->op)->name, (long long)parts, (long long)size);
    o[0]            = u->in[0];
    o[0].shape.d[0] = size;
    return WEFT_OK;
}

weft_status weft_op__shape_clip(const weft_op_use *u, weft_type *o)
{
    for (int i = 0; i < u->n_in; i++) WEFT_TRY(scalar(u, i));
    o[0] = o[1] = (weft_type){.dtype = WEFT_DTYPE_F32};
    return WEFT_OK;
}

weft_status weft_op__shape_ema(const weft_op_use *u, weft_type *o)
{
    WEFT_TRY(same_shape(u, 0, 1));
    o[0] = u->in[0];
    return WEFT_OK;
}

/* Updates: operands of the parameter's shape first, then scalars (lr, scale, step). */
static weft_status update(const weft_op_use *u, weft_type *o, int n_out)
{
    bool tail = false;
    for (int i = 1; i < u->n_in; i++) {
        tail = tail || u->in[i].shape.n == 0;
        if (tail && u->in[0].shape.n > 0)
            WEFT_TRY(scalar(u, i));
        else if (!tail)
            WEFT_TRY(same_shape(u, 0, i));
    }
    for (int j = 0; j < n_out; j++) o[j] = u->in[0];
    return WEFT_OK;
}
weft_status weft_op__shape_update1(const weft_op_use *u, weft_type *o)
{
    return update(u, o, 1);
}
weft_status weft_op__shape_update2(const weft_op_use *u, weft_type *o)
{
    return update(u, o, 2);
}
weft_status weft_op__shape_update3(const weft_op_use *u, weft_type *o)
{
    return update(u, o, 3);
}
