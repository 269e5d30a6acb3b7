/* The builder: nodes without a status check on every line. */
#include "graph/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

weft_builder weft_build_start(weft_graph *g)
{
    return (weft_builder){.g = g, .st = WEFT_OK};
}

static const char *full_name(weft_builder *b, weft_op op, const char *name)
{
    if (!name) name = weft_op_get(op)->name;
    return b->prefix ? weft_arena_printf(b->g->arena, "%s.%s", b->prefix, name) : name;
}

void weft_build_many(weft_builder *b, weft_op op, const char *name, const char *attr,
                     int n_in, const weft_vid *in, int n_out, weft_vid *out)
{
    weft_attr a[WEFT_MAX_ATTR];
    for (int j = 0; j < n_out; j++) out[j] = -1;
    if (b->st != WEFT_OK) return;
    b->st = weft_op_parse_attr(op, attr, b->g->arena, a);
    if (b->st == WEFT_OK)
        b->st = weft_graph_add_node(b->g, op, a, n_in, in, full_name(b, op, name), n_out,
                                    out);
}

weft_vid weft_build(weft_builder *b, weft_op op, const char *name, const char *attr,
                    int n_in, ...)
{
    weft_vid in[16], out;
    va_list  ap;
    if (n_in > (int)WEFT_COUNT(in)) n_in = (int)WEFT_COUNT(in);
    va_start(ap, n_in);
    for (int i = 0; i < n_in; i++) in[i] = va_arg(ap, weft_vid);
    va_end(ap);
    weft_build_many(b, op, name, attr, n_in, in, 1, &out);
    return out;
}

weft_vid weft_buildf(weft_builder *b, weft_op op, const char *name, int n_in,
                     const weft_vid *in, const char *fmt, ...)
{
    char     attr[512];
    va_list  ap;
    weft_vid out;
    va_start(ap, fmt);
    vsnprintf(attr, sizeof attr, fmt, ap);
    va_end(ap);
    weft_build_many(b, op, name, attr, n_in, in, 1, &out);
    return out;
}

typedef weft_status (*add_fn)(weft_graph *, const char *, weft_dtype, int,
                              const int64_t *, weft_vid *);

static weft_vid leaf(weft_builder *b, add_fn add, const char *name, weft_dtype t, int n,
                     const int64_t *d)
{
    weft_vid v = -1;
    if (b->st == WEFT_OK) b->st = add(b->g, name, t, n, d, &v);
    return b->st == WEFT_OK ? v : -1;
}
weft_vid weft_build_input(weft_builder *b, const char *name, weft_dtype t, int n,
                          const int64_t *d)
{
    return leaf(b, weft_graph_add_input, name, t, n, d);
}
weft_vid weft_build_param(weft_builder *b, const char *name, weft_dtype t, int n,
                          const int64_t *d)
{
    return leaf(b, weft_graph_add_param, name, t, n, d);
}
weft_vid weft_build_state(weft_builder *b, const char *name, weft_dtype t, int n,
                          const int64_t *d)
{
    return leaf(b, weft_graph_add_state, name, t, n, d);
}

weft_type weft_build_type(const weft_builder *b, weft_vid v)
{
    if (v < 0 || v >= b->g->n_value) return (weft_type){.dtype = WEFT_DTYPE_F32};
    return b->g->value[v].type;
}

static weft_vid shaped(weft_builder *b, weft_op op, weft_vid x, const weft_shape *s)
{
    weft_attr a[WEFT_MAX_ATTR];
    weft_vid  out = -1;
    if (b->st != WEFT_OK) return -1;
    weft_type t = weft_build_type(b, x);
    if (weft_shape_equal(&t.shape, s)) return x;
    weft_op_attr_defaults(op, a);
    weft_attr *l = &a[weft_op_attr_index(op, "shape")];
    l->n         = s->n;
    memcpy(l->l, s->d, sizeof(int64_t) * (size_t)s->n);
    b->st = weft_graph_add_node(b->g, op, a, 1, &x, full_name(b, op, NULL), 1, &out);
    return out;
}
weft_vid weft_build_reshape(weft_builder *b, weft_vid x, const weft_shape *s)
{
    return shaped(b, WEFT_OP_RESHAPE, x, s);
}
weft_vid weft_build_broadcast(weft_builder *b, weft_vid x, const weft_shape *s)
{
    return shaped(b, WEFT_OP_BROADCAST, x, s);
}
