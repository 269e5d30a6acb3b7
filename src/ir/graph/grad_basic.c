/* Gradients: products, element by element, shapes. */
#include <stdio.h>
#include <string.h>

#include "graph/grad_priv.h"

/* ---- products ---- */

/* Letters of s that are in a or b. */
static void letters_in(const char *s, const char *a, const char *b, char *out)
{
    for (; *s; s++)
        if (strchr(a, *s) || strchr(b, *s)) *out++ = *s;
    *out = 0;
}

/* Formats of the matmul that makes operand k's gradient, of y's gradient and the other operand.
 * The rounding of operands counts as the identity. */
static const char *formats_of(const weft_graph_node *n, int k, char out[16])
{
    const char *f = n->attr[weft_op_attr_index(WEFT_OP_MATMUL, "fp8")].s;
    if (!f || strlen(f) < 14) return "";
    snprintf(out, 16, "%.4s,%.4s", k ? f : f + 10, k ? f + 10 : f + 5);
    return out;
}

/* Operand k's gradient: the product of the other two, with the letters permuted.  A letter that
 * only this operand has was summed away on its own: its gradient is the same all along it. */
static void product(weft_graph__diff *d, const weft_graph_node *n, int k,
                    char part[3][16], const weft_vid in[2], const char *a, const char *b)
{
    char       letters[16], text[64], formats[16];
    weft_attr  attr[WEFT_MAX_ATTR];
    weft_shape full = WEFT_TYPE(d, n->in[k]).shape, thin = full;
    weft_dtype t = weft_graph__grad_dtype(d, n, k);
    letters_in(part[k], a, b, letters);
    snprintf(text, sizeof text, "%s,%s->%s", a, b, letters);
    weft_op_attr_defaults(WEFT_OP_MATMUL, attr);
    weft_graph__attr(WEFT_OP_MATMUL, attr, "spec")->s = text;
    weft_graph__attr(WEFT_OP_MATMUL, attr, "fp8")->s  = formats_of(n, k, formats);
    if (WEFT_TYPE(d, in[0]).dtype != t)
        weft_graph__attr(WEFT_OP_MATMUL, attr, "dtype")->s = weft_dtype_name(t);
    weft_vid g = weft_graph__emit(d, n, k, WEFT_OP_MATMUL, attr, 2, in);
    for (int i = 0; part[k][i]; i++)
        if (!strchr(letters, part[k][i])) thin.d[i] = 1;
    g = weft_build_reshape(&d->b, g, &thin);
    weft_graph__give(d, n, k, weft_build_broadcast(&d->b, g, &full));
}

/* y = a b: da = dy b over b's letters, db = a dy: "bsn,dn->bsd" and "bsd,bsn->dn" for
 * "bsd,dn->bsn" */
WEFT_GRAD(matmul)
{
    char        part[3][16] = {{0}};
    const char *p           = n->attr[weft_op_attr_index(WEFT_OP_MATMUL, "spec")].s;
    for (int t = 0, i = 0; *p; p++)
        if (*p >= 'a' && *p <= 'z')
            part[t][i++] = *p;
        else if (*p != '-')
            t++, i = 0;
    if (weft_graph__wants(d, n, 0))
        product(d, n, 0, part, (weft_vid[]){dy[0], n->in[1]}, part[2], part[1]);
    if (weft_graph__wants(d, n, 1))
        product(d, n, 1, part, (weft_vid[]){n->in[0], dy[0]}, part[0], part[2]);
}

/* ---- element by element ---- */

static void give_spread(weft_graph__diff *d, const weft_graph_node *n, int k, weft_vid g)
{
    weft_shape s = WEFT_TYPE(d, n->in[k]).shape;
    weft_graph__give(
        d, n, k,
        weft_graph__unbroadcast(d, n, k, g, &s, weft_graph__grad_dtype(d, n, k)));
}

WEFT_GRAD(add)
{
    for (int k = 0; k < 2; k++)
        if (weft_graph__wants(d, n, k)) give_spread(d, n, k, dy[0]);
}
WEFT_GRAD(mul)
{
    for (int k = 0; k < 2; k++)
        if (weft_graph__wants(d, n, k))
            give_spread(d, n, k,
                        weft_graph__emit(d, n, k, WEFT_OP_MUL, NULL, 2,
                                         (weft_vid[]){dy[0], n->in[1 - k]}));
}
WEFT_GRAD(scale)
{
    weft_graph__give(d, n, 0, weft_graph__emit(d, n, 0, WEFT_OP_SCALE, n->attr, 1, dy));
}
/* cast: weft_graph__give() casts back */
WEFT_GRAD(pass)
{
    weft_graph__give(d, n, 0, dy[0]);
}

static void give_from(weft_graph__diff *d, const weft_graph_node *n, weft_op op,
                      weft_vid dy, weft_vid other)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_graph__copy_attr(op, attr, n);
    weft_graph__give(d, n, 0,
                     weft_graph__emit(d, n, 0, op, attr, 2, (weft_vid[]){dy, other}));
}
/* dx from dy and the operand */
WEFT_GRAD(from_x)
{
    weft_op op = n->op == WEFT_OP_GELU   ? WEFT_OP_GELU_GRAD
                 : n->op == WEFT_OP_SILU ? WEFT_OP_SILU_GRAD
                                         : WEFT_OP_RELU_GRAD;
    give_from(d, n, op, dy[0], n->in[0]);
}
/* dx from dy and the result */
WEFT_GRAD(from_y)
{
    give_from(d, n, n->op == WEFT_OP_TANH ? WEFT_OP_TANH_GRAD : WEFT_OP_SOFTMAX_GRAD,
              dy[0], n->out[0]);
}
/* both from dy and the operands */
WEFT_GRAD(gate)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  g[2];
    weft_graph__copy_attr(WEFT_OP_GATE_GRAD, attr, n);
    weft_graph__emit_many(d, n, 0, WEFT_OP_GATE_GRAD, attr, 3,
                          (weft_vid[]){dy[0], n->in[0], n->in[1]}, 2, g);
    for (int k = 0; k < 2; k++)
        if (weft_graph__wants(d, n, k)) weft_graph__give(d, n, k, g[k]);
}
/* The same mask: its id is the same. */
WEFT_GRAD(dropout)
{
    weft_graph__give(d, n, 0, weft_graph__emit(d, n, 0, WEFT_OP_DROPOUT, n->attr, 1, dy));
}

/* ---- shapes ---- */

WEFT_GRAD(reduce)
{
    const weft_attr *axes = &n->attr[weft_op_attr_index(WEFT_OP_REDUCE, "axes")];
    const char      *kind = n->attr[weft_op_attr_index(WEFT_OP_REDUCE, "kind")].s;
    weft_type        x    = WEFT_TYPE(d, n->in[0]);
    weft_shape       thin = x.shape;
    weft_vid         g    = dy[0];
    if (!strcmp(kind, "max")) {
        weft_graph__fail(d, n, "a maximum has no gradient here");
        return;
    }
    for (int i = 0; i < axes->n; i++)
        thin.d[axes->l[i] < 0 ? axes->l[i] + x.shape.n : axes->l[i]] = 1;
    if (!strcmp(kind, "mean"))
        g = weft_buildf(&d->b, WEFT_OP_SCALE, NULL, 1, &g, "alpha=%.17g",
                        (double)weft_shape_count(&thin) /
                            (double)weft_shape_count(&x.shape));
    g = weft_graph__cast(d, g, x.dtype);
    if (WEFT_TYPE(d, g).shape.n > 0) g = weft_build_reshape(&d->b, g, &thin);
    weft_graph__give(d, n, 0, weft_build_broadcast(&d->b, g, &x.shape));
}
WEFT_GRAD(broadcast)
{
    give_spread(d, n, 0, dy[0]);
}
WEFT_GRAD(reshape)
{
    weft_shape s = WEFT_TYPE(d, n->in[0]).shape;
    weft_graph__give(d, n, 0, weft_build_reshape(&d->b, dy[0], &s));
}
WEFT_GRAD(transpose)
{
    weft_attr        attr[WEFT_MAX_ATTR];
    const weft_attr *perm = &n->attr[weft_op_attr_index(WEFT_OP_TRANSPOSE, "perm")];
    weft_op_attr_defaults(WEFT_OP_TRANSPOSE, attr);
    weft_attr *back = weft_graph__attr(WEFT_OP_TRANSPOSE, attr, "perm");
    back->n         = perm->n;
    for (int i = 0; i < perm->n; i++) back->l[perm->l[i]] = i;
    weft_graph__give(d, n, 0, weft_graph__emit(d, n, 0, WEFT_OP_TRANSPOSE, attr, 1, dy));
}

static int axis_of(weft_graph__diff *d, const weft_graph_node *n)
{
    int64_t a = n->attr[weft_op_attr_index(n->op, "axis")].i;
    return (int)(a < 0 ? a + WEFT_TYPE(d, n->in[0]).shape.n : a);
}

/* [start, start + size) of x's axis */
static weft_vid slice(weft_graph__diff *d, const weft_graph_node *n, int k, weft_vid x,
                      int axis, int64_t start, int64_t size)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_op_attr_defaults(WEFT_OP_SLICE, attr);
    weft_graph__attr(WEFT_OP_SLICE, attr, "axis")->i  = axis;
    weft_graph__attr(WEFT_OP_SLICE, attr, "start")->i = start;
    weft_graph__attr(WEFT_OP_SLICE, attr, "stop")->i  = start + size;
    return weft_graph__emit(d, n, k, WEFT_OP_SLICE, attr, 1, &x);
}

WEFT_GRAD(concat)
{
    int     axis = axis_of(d, n);
    int64_t at   = 0;
    for (int k = 0; k < n->n_in; k++) {
        int64_t size = WEFT_TYPE(d, n->in[k]).shape.d[axis];
        if (weft_graph__wants(d, n, k))
            weft_graph__give(d, n, k, slice(d, n, k, dy[0], axis, at, size));
        at += size;
    }
}

static weft_vid zeros(weft_graph__diff *d, weft_type t)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  out = -1;
    weft_op_attr_defaults(WEFT_OP_FILL, attr);
    weft_attr *s = weft_graph__attr(WEFT_OP_FILL, attr, "shape");
    s->n         = t.shape.n;
    memcpy(s->l, t.shape.d, sizeof(int64_t) * (size_t)t.shape.n);
    weft_graph__attr(WEFT_OP_FILL, attr, "dtype")->s = weft_dtype_name(t.dtype);
    if (d->b.st == WEFT_OK)
        d->b.st =
            weft_graph_add_node(d->b.g, WEFT_OP_FILL, attr, 0, NULL, "zeros", 1, &out);
    return out;
}

/* One concat of the parts' gradients, zeros for parts that have none. */
WEFT_GRAD(split)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  part[WEFT_MAX_OUT];
    for (int j = 0; j < n->n_out; j++)
        part[j] = dy[j] >= 0 ? dy[j] : zeros(d, WEFT_TYPE(d, n->out[j]));
    weft_op_attr_defaults(WEFT_OP_CONCAT, attr);
    weft_graph__attr(WEFT_OP_CONCAT, attr, "axis")->i = axis_of(d, n);
    weft_graph__give(d, n, 0,
                     weft_graph__emit(d, n, 0, WEFT_OP_CONCAT, attr, n->n_out, part));
}
WEFT_GRAD(slice)
{
    weft_attr attr[WEFT_MAX_ATTR];
    int       axis = axis_of(d, n);
    weft_graph__copy_attr(WEFT_OP_SLICE_GRAD, attr, n);
    weft_graph__attr(WEFT_OP_SLICE_GRAD, attr, "axis")->i = axis;
    weft_graph__attr(WEFT_OP_SLICE_GRAD, attr, "size")->i =
        WEFT_TYPE(d, n->in[0]).shape.d[axis];
    weft_graph__give(d, n, 0, weft_graph__emit(d, n, 0, WEFT_OP_SLICE_GRAD, attr, 1, dy));
}
WEFT_GRAD(slice_grad)
{
    int     axis  = axis_of(d, n);
    int64_t start = n->attr[weft_op_attr_index(WEFT_OP_SLICE_GRAD, "start")].i;
    weft_graph__give(
        d, n, 0,
        slice(d, n, 0, dy[0], axis, start, WEFT_TYPE(d, n->in[0]).shape.d[axis]));
}
