/* Making a graph: values, nodes, names. */
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "graph/graph_priv.h"

/* Names by open addressing: slot -> value + 1. */
typedef struct names {
    int  n_slot; /* a power of two, at least twice the values */
    int *slot;
} names;

static uint64_t hash_name(const char *s)
{
    return weft_hash_xxh64(s, strlen(s), 0);
}

static weft_status names_put(weft_graph *g, const char *name, weft_vid v)
{
    names *t = g->names;
    if (2 * (g->n_value + 1) > t->n_slot) {
        int  n    = t->n_slot ? 2 * t->n_slot : 256;
        int *slot = WEFT_ARENA_ARRAY(g->arena, int, n);
        if (!slot) return weft_arena_status(g->arena);
        t->slot   = slot;
        t->n_slot = n;
        for (weft_vid i = 0; i < g->n_value; i++) {
            uint64_t h = hash_name(g->value[i].name);
            while (slot[h & (uint64_t)(n - 1)]) h++;
            slot[h & (uint64_t)(n - 1)] = i + 1;
        }
    }
    uint64_t h = hash_name(name), mask = (uint64_t)(t->n_slot - 1);
    while (t->slot[h & mask]) h++;
    t->slot[h & mask] = v + 1;
    return WEFT_OK;
}

weft_vid weft_graph_find(const weft_graph *g, const char *name)
{
    const names *t = g->names;
    if (!t->n_slot) return -1;
    uint64_t mask = (uint64_t)(t->n_slot - 1);
    for (uint64_t h = hash_name(name); t->slot[h & mask]; h++) {
        weft_vid v = t->slot[h & mask] - 1;
        if (!strcmp(g->value[v].name, name)) return v;
    }
    return -1;
}

weft_status weft_graph_create(const char *name, weft_graph **out)
{
    weft_arena *a;
    WEFT_TRY(weft_arena_create(&a));
    weft_graph *g = WEFT_ARENA_NEW(a, weft_graph);
    if (g) {
        g->arena = a;
        g->name  = weft_arena_strdup(a, name);
        g->names = WEFT_ARENA_NEW(a, names);
    }
    if (weft_arena_status(a) != WEFT_OK) {
        weft_arena_destroy(a);
        return WEFT_FAIL(WEFT_ERR_MEM, "graph %s: no memory", name);
    }
    *out = g;
    return WEFT_OK;
}

void weft_graph_destroy(weft_graph *g)
{
    if (g) weft_arena_destroy(g->arena);
}

static bool is_taken(const weft_graph *g, const char *name, int i)
{
    char        text[512];
    const char *s = text;
    int         n = snprintf(text, sizeof text, "%s.%d", name, i);
    if (n >= (int)sizeof text) s = weft_arena_printf(g->arena, "%s.%d", name, i);
    return s && weft_graph_find(g, s) >= 0;
}

/* The name itself, or name.1, name.2, ... when it is taken.  Numbers are taken one after the
 * other, so that the first free one is found by halving. */
static const char *unique_name(weft_graph *g, const char *name)
{
    int lo = 0, hi = 1; /* lo is taken, hi is free */
    if (weft_graph_find(g, name) < 0) return weft_arena_strdup(g->arena, name);
    while (is_taken(g, name, hi)) {
        lo = hi;
        hi *= 2;
    }
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (is_taken(g, name, mid))
            lo = mid;
        else
            hi = mid;
    }
    return weft_arena_printf(g->arena, "%s.%d", name, hi);
}

static weft_status add_value(weft_graph *g, weft_value_kind kind, const char *name,
                             weft_type type, weft_vid *out)
{
    WEFT_TRY(weft_shape_verify(&type.shape));
    WEFT_TRY(weft_arena_grow(g->arena, (void **)&g->value, &g->cap_value, g->n_value + 1,
                             sizeof *g->value));
    const char *s = unique_name(g, name);
    if (!s) return weft_arena_status(g->arena);
    WEFT_TRY(names_put(g, s, g->n_value));
    g->value[g->n_value] = (weft_graph_value){
        .name = s, .type = type, .kind = kind, .node = -1, .next = -1, .copy_of = -1};
    *out = g->n_value++;
    return WEFT_OK;
}

static weft_status add_leaf(weft_graph *g, weft_value_kind kind, const char *name,
                            weft_dtype t, int n, const int64_t *d, weft_vid *out)
{
    if (n < 0 || n > WEFT_MAX_DIM)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %d dimensions, at most %d are possible", name,
                         n, WEFT_MAX_DIM);
    return add_value(g, kind, name, (weft_type){t, weft_shape_make(n, d)}, out);
}

weft_status weft_graph_add_input(weft_graph *g, const char *name, weft_dtype t, int n_dim,
                                 const int64_t *dim, weft_vid *out)
{
    return add_leaf(g, WEFT_VALUE_INPUT, name, t, n_dim, dim, out);
}
weft_status weft_graph_add_param(weft_graph *g, const char *name, weft_dtype t, int n_dim,
                                 const int64_t *dim, weft_vid *out)
{
    return add_leaf(g, WEFT_VALUE_PARAM, name, t, n_dim, dim, out);
}
weft_status weft_graph_add_state(weft_graph *g, const char *name, weft_dtype t, int n_dim,
                                 const int64_t *dim, weft_vid *out)
{
    return add_leaf(g, WEFT_VALUE_STATE, name, t, n_dim, dim, out);
}

weft_op_use weft_graph_use(const weft_graph *g, const weft_graph_node *n, weft_type *in,
                           weft_type *out)
{
    for (int i = 0; i < n->n_in; i++) in[i] = g->value[n->in[i]].type;
    for (int j = 0; j < n->n_out; j++) out[j] = g->value[n->out[j]].type;
    return (weft_op_use){n->op, n->attr, n->n_in, n->n_out, in, out};
}

/* The name of result j: "name" when there is one result, "name.mean" when the row names several. */
static const char *result_name(weft_graph *g, weft_op op, const char *name, int n_out,
                               int j)
{
    const char *p = weft_op_get(op)->out;
    if (n_out == 1 || j == 0) return name;
    for (int k = 0; k < j; k++) {
        size_t n = strcspn(p, " ");
        p += n + (p[n] == ' ');
    }
    size_t n = strcspn(p, " ?*");
    if (!n || p[n] == '*') return weft_arena_printf(g->arena, "%s.%d", name, j);
    return weft_arena_printf(g->arena, "%s.%.*s", name, (int)n, p);
}

weft_status weft_graph__add_named(weft_graph *g, weft_op op, const weft_attr *attr,
                                  int n_in, const weft_vid *in, const char *const *name,
                                  int n_out, weft_vid *out)
{
    weft_graph_node n = {.op = op, .phase = g->phase, .n_in = n_in, .n_out = n_out};

    n.in           = weft_arena_memdup(g->arena, in, sizeof(weft_vid) * (size_t)n_in);
    n.out          = WEFT_ARENA_ARRAY(g->arena, weft_vid, n_out);
    weft_type *tin = WEFT_ARENA_ARRAY(g->arena, weft_type, n_in + n_out);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(weft_op_copy_attr(op, attr, g->arena, &n.attr));
    WEFT_TRY(weft_arena_grow(g->arena, (void **)&g->node, &g->cap_node, g->n_node + 1,
                             sizeof *g->node));

    weft_type *tout = tin + n_in;
    for (int i = 0; i < n_in; i++) tin[i] = g->value[in[i]].type;
    weft_op_use use = {op, n.attr, n_in, n_out, tin, tout};
    weft_status st  = weft_op_infer(&use, tout);
    if (st != WEFT_OK) return weft_fail_in(st, "%s: ", name[0]);

    for (int j = 0; j < n_out; j++) {
        WEFT_TRY(add_value(g, WEFT_VALUE_NODE, name[j], tout[j], &n.out[j]));
        g->value[n.out[j]].node  = g->n_node;
        g->value[n.out[j]].index = j;
        out[j]                   = n.out[j];
    }
    g->node[g->n_node++] = n;
    return WEFT_OK;
}

weft_status weft_graph_add_node(weft_graph *g, weft_op op, const weft_attr *attr,
                                int n_in, const weft_vid *in, const char *name, int n_out,
                                weft_vid *out)
{
    const char *each[WEFT_MAX_OUT];

    if (n_in > WEFT_MAX_IN || n_out > WEFT_MAX_OUT || n_out < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: too many operands or results",
                         weft_op_get(op)->name);
    for (int i = 0; i < n_in; i++)
        if (in[i] < 0 || in[i] >= g->n_value)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: operand %d is no value of graph %s",
                             weft_op_get(op)->name, i, g->name);
    if (!name) name = weft_op_get(op)->name;
    for (int j = 0; j < n_out; j++)
        if (!(each[j] = result_name(g, op, name, n_out, j)))
            return weft_arena_status(g->arena);
    return weft_graph__add_named(g, op, attr, n_in, in, each, n_out, out);
}

weft_status weft_graph_add_op(weft_graph *g, const char *op, const char *attr, int n_in,
                              const weft_vid *in, const char *name, int n_out,
                              weft_vid *out)
{
    weft_attr a[WEFT_MAX_ATTR];
    weft_op   id;
    if (!weft_op_find(op, &id)) {
        const char *near = weft_op_suggest(op);
        return WEFT_FAIL(WEFT_ERR_ARG, "unknown operator '%s'%s%s%s", op,
                         near ? ", did you mean '" : "", near ? near : "",
                         near ? "'?" : "");
    }
    WEFT_TRY(weft_op_parse_attr(id, attr, g->arena, a));
    return weft_graph_add_node(g, id, a, n_in, in, name, n_out, out);
}

static weft_status known(const weft_graph *g, weft_vid v)
{
    if (v >= 0 && v < g->n_value) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%d is no value of graph %s", (int)v, g->name);
}

weft_status weft_graph_set_output(weft_graph *g, weft_vid v)
{
    WEFT_TRY(known(g, v));
    WEFT_TRY(weft_arena_grow(g->arena, (void **)&g->output, &g->cap_output,
                             g->n_output + 1, sizeof *g->output));
    g->output[g->n_output++] = v;
    return WEFT_OK;
}

weft_status weft_graph_set_copy(weft_graph *g, weft_vid copy, weft_vid param)
{
    WEFT_TRY(known(g, copy));
    WEFT_TRY(known(g, param));
    weft_graph_value *c = &g->value[copy], *p = &g->value[param];
    if (c->kind != WEFT_VALUE_STATE || p->kind != WEFT_VALUE_PARAM ||
        c->type.dtype == p->type.dtype)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: only a state is a copy, of a parameter of another type",
                         c->name);
    c->copy_of = param;
    return WEFT_OK;
}

weft_vid weft_graph_find_copy(const weft_graph *g, weft_vid param)
{
    for (weft_vid v = 0; v < g->n_value && param >= 0; v++)
        if (g->value[v].copy_of == param) return v;
    return -1;
}

weft_status weft_graph_set_next(weft_graph *g, weft_vid state, weft_vid next)
{
    WEFT_TRY(known(g, state));
    WEFT_TRY(known(g, next));
    weft_graph_value *s = &g->value[state], *n = &g->value[next];
    if (s->kind != WEFT_VALUE_STATE && s->kind != WEFT_VALUE_PARAM)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s is no state: it has no next value", s->name);
    if (s->type.dtype != n->type.dtype ||
        !weft_shape_equal(&s->type.shape, &n->type.shape))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: its next value %s has another type", s->name,
                         n->name);
    s->next = next;
    return WEFT_OK;
}

int weft_graph_n_value(const weft_graph *g)
{
    return g->n_value;
}
const char *weft_graph_value_name(const weft_graph *g, weft_vid v)
{
    return v >= 0 && v < g->n_value ? g->value[v].name : "";
}
weft_status weft_graph_value_type(const weft_graph *g, weft_vid v, weft_dtype *t,
                                  weft_shape *s)
{
    WEFT_TRY(known(g, v));
    *t = g->value[v].type.dtype;
    *s = g->value[v].type.shape;
    return WEFT_OK;
}

weft_status weft_graph_users(const weft_graph *g, weft_arena *a, int **first, int **users)
{
    int *f = WEFT_ARENA_ARRAY(a, int, g->n_value + 2), n = 0;
    for (int i = 0; i < g->n_node; i++) n += g->node[i].n_in;
    int *u = WEFT_ARENA_ARRAY(a, int, n ? n : 1);
    if (weft_arena_status(a) != WEFT_OK) return weft_arena_status(a);
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) f[g->node[i].in[k] + 2]++;
    for (int v = 0; v < g->n_value; v++) f[v + 2] += f[v + 1];
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) u[f[g->node[i].in[k] + 1]++] = i;
    *first = f;
    *users = u;
    return WEFT_OK;
}
