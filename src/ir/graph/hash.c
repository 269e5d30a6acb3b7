/* Structure: the hash of a graph, and the layers that repeat in it.
 *
 * weft_graph_hash numbers inputs, parameters and states by their first use, so that neither names
 * nor the place of a declaration matter.
 *
 * Layers.  Two nodes p apart are alike when operator, attributes and types agree and each operand
 *   - is a parameter (input, state) in both, or the same value in both (shared by the layers), or
 *   - is made at the same distance before both, or
 *   - enters the first layer from before the run and the second one out of the first: what layer
 *     i takes from layer i-1.
 * A run of nodes alike with those p further on, at least p long, is a repetition of period p.
 * The one that covers most nodes wins, then the shortest period.  A run that is longer than whole
 * periods can be cut in several places: the cut that the fewest bytes cross is the seam.
 * What else repeats is looked for on both sides of it (runs.c). */
#include <string.h>

#include "base/hash.h"
#include "graph/graph.h"

/* ---- the hash of a node on its own ---- */
static void add_int(weft_hash_state *h, int64_t x)
{
    weft_hash_add(h, &x, sizeof x);
}

static void add_type(weft_hash_state *h, const weft_type *t)
{
    add_int(h, t->dtype);
    add_int(h, t->shape.n);
    weft_hash_add(h, t->shape.d, sizeof(int64_t) * (size_t)t->shape.n);
}

/* Checkpoints written before matmul had this attribute have the hash of their model: where it is
 * empty it does not count. */
static bool is_left_out(const weft_graph_node *n, int i)
{
    return n->op == WEFT_OP_MATMUL && i == weft_op_attr_index(n->op, "fp8") &&
           !*n->attr[i].s;
}

/* with_id: a random operator's number in the graph counts (layers differ in it alone). */
static void add_attr(weft_hash_state *h, const weft_graph_node *n, bool with_id)
{
    bool random = (weft_op_get(n->op)->flags & WEFT_OP_RANDOM) != 0;
    int  id     = random && !with_id ? weft_op_attr_index(n->op, "id") : -1;
    for (int i = 0; i < weft_op_n_attr(n->op); i++) {
        const weft_attr *a = &n->attr[i];
        if (i == id || is_left_out(n, i)) continue;
        switch (weft_op_attr_type(n->op, i)) {
        case WEFT_ATTR_INT:
        case WEFT_ATTR_BOOL: add_int(h, a->i); break;
        case WEFT_ATTR_FLOAT: weft_hash_add(h, &a->f, sizeof a->f); break;
        case WEFT_ATTR_STRING: weft_hash_add(h, a->s, strlen(a->s) + 1); break;
        case WEFT_ATTR_LIST:
            add_int(h, a->n);
            weft_hash_add(h, a->l, sizeof(int64_t) * (size_t)a->n);
            break;
        }
    }
}

/* Operators are known by name: numbers change when a row is added. */
static void add_op(weft_hash_state *h, const weft_graph_node *n)
{
    const char *name = weft_op_get(n->op)->name;
    weft_hash_add(h, name, strlen(name) + 1);
    add_int(h, n->phase);
    add_int(h, n->n_in);
    add_int(h, n->n_out);
}

static uint64_t local_hash(const weft_graph *g, const weft_graph_node *n)
{
    weft_hash_state h;
    weft_hash_init(&h, 1);
    add_op(&h, n);
    add_attr(&h, n, false);
    for (int i = 0; i < n->n_in; i++) {
        add_int(&h, g->value[n->in[i]].kind);
        add_type(&h, &g->value[n->in[i]].type);
    }
    return weft_hash_value(&h);
}

/* ---- the hash of a graph ---- */
static void add_leaf(weft_hash_state *h, const weft_graph_value *v)
{
    add_int(h, v->kind);
    add_int(h, v->per_step);
    add_type(h, &v->type);
}

uint64_t weft_graph_hash(const weft_graph *g)
{
    weft_hash_state h;
    weft_arena     *tmp;
    int             n = 0;
    if (weft_arena_create(&tmp) != WEFT_OK) return 0;
    int *number = WEFT_ARENA_ARRAY(tmp, int, g->n_value + 1); /* 0: not met yet */
    weft_hash_init(&h, 0);
    for (int i = 0; number && i < g->n_node; i++) {
        const weft_graph_node *x = &g->node[i];
        add_op(&h, x);
        add_attr(&h, x, true);
        for (int k = 0; k < x->n_in; k++) {
            if (!number[x->in[k]]) {
                add_leaf(&h, &g->value[x->in[k]]);
                number[x->in[k]] = ++n;
            }
            add_int(&h, number[x->in[k]]);
        }
        for (int j = 0; j < x->n_out; j++) number[x->out[j]] = ++n;
    }
    for (weft_vid v = 0; number && v < g->n_value; v++) /* used by no node */
        if (!number[v]) {
            add_leaf(&h, &g->value[v]);
            number[v] = ++n;
        }
    int64_t nexts = 0; /* a sum, as parameters may be declared in any order */
    for (weft_vid v = 0; number && v < g->n_value; v++)
        if (g->value[v].next >= 0) {
            int pair[2] = {number[v], number[g->value[v].next]};
            nexts += (int64_t)(weft_hash_xxh64(pair, sizeof pair, 0) >> 8);
        }
    add_int(&h, nexts);
    for (int i = 0; number && i < g->n_output; i++) add_int(&h, number[g->output[i]]);
    bool whole = number != NULL;
    weft_arena_destroy(tmp);
    return whole ? weft_hash_value(&h) : 0;
}

/* ---- layers ---- */
typedef struct run {
    int start, nodes; /* nodes [start, start + nodes) have period */
    int period;
} run;

typedef struct finder {
    const weft_graph *g;
    int               from_node, n; /* nodes that are looked at: [from_node, n) */
    const uint64_t   *hash;
    /* what enters the first layer, and what takes its place in the second */
    int      n_enter;
    weft_vid enter[32], from[32];
} finder;

static int maker(const weft_graph *g, weft_vid v)
{
    return g->value[v].node;
}

/* An operand of the first layer from before the run: its partner comes out of the first layer. */
static bool enters(finder *f, int start, int p, weft_vid a, weft_vid b)
{
    if (maker(f->g, a) >= start || maker(f->g, b) < start || maker(f->g, b) >= start + p)
        return false;
    for (int i = 0; i < f->n_enter; i++)
        if (f->enter[i] == a) return f->from[i] == b;
    if (f->n_enter == (int)WEFT_COUNT(f->enter)) return false;
    f->enter[f->n_enter]  = a;
    f->from[f->n_enter++] = b;
    return true;
}

static bool alike(finder *f, int start, int i, int p)
{
    const weft_graph_node *x = &f->g->node[i], *y = &f->g->node[i + p];
    if (f->hash[i] != f->hash[i + p]) return false;
    for (int k = 0; k < x->n_in; k++) {
        weft_vid a = x->in[k], b = y->in[k];
        int      ma = maker(f->g, a), mb = maker(f->g, b);
        if (a == b || ma < 0) continue; /* kinds and types are in the hash */
        if (mb - ma == p && f->g->value[a].index == f->g->value[b].index) continue;
        if (i - start >= p || !enters(f, start, p, a, b)) return false;
    }
    return true;
}

/* The runs of period p, the best of them all kept in best. */
static void find_runs(finder *f, int p, run *best)
{
    for (int start = f->from_node; start + 2 * p <= f->n;) {
        int i      = start;
        f->n_enter = 0;
        while (i + p < f->n && alike(f, start, i, p)) i++;
        int whole = (i - start) / p; /* periods alike with the next one */
        if (whole >= 1 && (whole + 1) * p > best->nodes / best->period * best->period)
            *best = (run){start, i - start + p, p};
        /* what spoilt a short run may have been its own beginning */
        start = i - start < p && i > start ? start + 1 : i + 1;
    }
}

/* Bytes made before node i and used by forward nodes from i on. */
static double crossing(const weft_graph *g, const int *last_use, int from, int i)
{
    double bytes = 0;
    for (int k = from; k < i; k++)
        for (int j = 0; j < g->node[k].n_out; j++) {
            weft_vid v = g->node[k].out[j];
            if (last_use[v] >= i)
                bytes += (double)weft_shape_count(&g->value[v].type.shape) *
                         weft_dtype_bytes(g->value[v].type.dtype);
        }
    return bytes;
}

/* Moves the start of a run to its seam: the last of the narrowest places that lose no layer. */
static void find_seam(const finder *f, const int *last_use, run *r)
{
    int    slack = r->nodes % r->period, seam = r->start;
    double least = -1;
    for (int i = r->start; i <= r->start + slack; i++) {
        double b = crossing(f->g, last_use, 0, i);
        if (least < 0 || b <= least) {
            least = b;
            seam  = i;
        }
    }
    r->start = seam;
}

weft_status weft_graph__find_layers_in(const weft_graph *g, int first, int end,
                                       weft_graph_layers *out)
{
    weft_arena *tmp;
    finder      f    = {.g = g, .from_node = first, .n = end};
    run         best = {.period = 1};

    WEFT_TRY(weft_arena_create(&tmp));
    uint64_t *hash     = WEFT_ARENA_ARRAY(tmp, uint64_t, g->n_node + 1);
    int      *last_use = WEFT_ARENA_ARRAY(tmp, int, g->n_value + 1);
    if (!hash || !last_use) {
        weft_arena_destroy(tmp);
        return WEFT_FAIL(WEFT_ERR_MEM, "graph %s: no memory to look for layers", g->name);
    }
    f.hash = hash;
    for (int i = 0; i < g->n_node && g->node[i].phase == WEFT_PHASE_FORWARD; i++) {
        if (i >= first && i < end) hash[i] = local_hash(g, &g->node[i]);
        for (int k = 0; k < g->node[i].n_in; k++) last_use[g->node[i].in[k]] = i;
    }
    for (int p = 1; 2 * p <= end - first; p++) find_runs(&f, p, &best);
    *out = (weft_graph_layers){first, end - first, 1};
    if (best.nodes) {
        find_seam(&f, last_use, &best);
        *out = (weft_graph_layers){best.start, best.period, best.nodes / best.period};
    }
    weft_arena_destroy(tmp);
    return WEFT_OK;
}

int weft_graph_n_forward(const weft_graph *g)
{
    int n = 0;
    while (n < g->n_node && g->node[n].phase == WEFT_PHASE_FORWARD) n++;
    return n;
}

weft_status weft_graph_find_layers(const weft_graph *g, weft_graph_layers *out)
{
    return weft_graph__find_layers_in(g, 0, weft_graph_n_forward(g), out);
}
