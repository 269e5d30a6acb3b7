/* A graph as runs of layers: the longest repetition, then what repeats on either side of it, and
 * so on; what is left is cut where a single value passes, into layers of some weight.
 *
 * (1) A layer has at least 1 / SMALL of the forward flops, so that there are few of them and a
 *     stage of one layer is worth a device.  Repetitions of less (three products of one operand)
 *     are no layers.
 * (2) The longest repetition counts whatever its weight: what weft_graph_find_layers says. */
#include "graph/graph.h"
#include "graph/graph_priv.h"

enum {
    SMALL = 64, /* least share of the flops, as a divisor */
    WIDE  = 4   /* most values that cross a seam of a repetition beside the longest */
};

typedef struct finder {
    const weft_graph  *g;
    weft_arena        *a;
    int                n_node;
    double            *flops;   /* of nodes before node i */
    int               *crosses; /* values made before node i, used from it on */
    int                n, cap;
    weft_graph_layers *run;
} finder;

static weft_status count(finder *f)
{
    const weft_graph *g = f->g;
    f->flops            = WEFT_ARENA_ARRAY(f->a, double, f->n_node + 1);
    f->crosses          = WEFT_ARENA_ARRAY(f->a, int, f->n_node + 2);
    int *last           = WEFT_ARENA_ARRAY(f->a, int, g->n_value + 1);
    WEFT_TRY(weft_arena_status(f->a));
    for (int i = 0; i < f->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        weft_type *t = WEFT_ARENA_ARRAY(f->a, weft_type, n->n_in + n->n_out + 1);
        WEFT_TRY(weft_arena_status(f->a));
        weft_op_use u   = weft_graph_use(g, n, t, t + n->n_in);
        f->flops[i + 1] = f->flops[i] + weft_op_flops(&u);
        for (int k = 0; k < n->n_in; k++) last[n->in[k]] = i;
    }
    for (weft_vid v = 0; v < g->n_value; v++) {
        int made = g->value[v].node;
        if (made < 0 || made >= f->n_node || last[v] <= made) continue;
        f->crosses[made + 1]++;
        f->crosses[last[v] + 1]--;
    }
    for (int i = 1; i <= f->n_node; i++) f->crosses[i] += f->crosses[i - 1];
    return WEFT_OK;
}

static bool is_large(const finder *f, int start, int end)
{
    return (f->flops[end] - f->flops[start]) * SMALL >= f->flops[f->n_node];
}

static weft_status add(finder *f, weft_graph_layers l)
{
    WEFT_TRY(weft_arena_grow(f->a, (void **)&f->run, &f->cap, f->n + 1, sizeof *f->run));
    f->run[f->n++] = l;
    return WEFT_OK;
}

/* Nodes [start, end), where nothing repeats.  What comes before the first layer of all stays
 * outside, and so does what comes behind the last one, if that is little. */
static weft_status cut_narrow(finder *f, int start, int end)
{
    int at = start;
    for (int i = start + 1; i < end; i++)
        if (f->crosses[i] == 1 && is_large(f, at, i) && is_large(f, i, end)) {
            WEFT_TRY(add(f, (weft_graph_layers){at, i - at, 1}));
            at = i;
        }
    bool outer = (start == 0 && at == 0) || end == f->n_node;
    if (at == end || (outer && f->n_node > end - start)) return WEFT_OK;
    return add(f, (weft_graph_layers){at, end - at, 1});
}

static weft_status find(finder *f, int start, int end)
{
    weft_graph_layers l;
    if (start >= end) return WEFT_OK;
    WEFT_TRY(weft_graph__find_layers_in(f->g, start, end, &l));
    bool first = start == 0 && end == f->n_node;
    if (l.count < 2 || (!first && (!is_large(f, l.start, l.start + l.length) ||
                                   f->crosses[l.start + l.length] > WIDE)))
        return cut_narrow(f, start, end);
    WEFT_TRY(find(f, start, l.start));
    WEFT_TRY(add(f, l));
    return find(f, l.start + l.count * l.length, end);
}

weft_status weft_graph_find_runs(const weft_graph *g, weft_arena *a, int *n,
                                 weft_graph_layers **out)
{
    finder f = {.g = g, .a = a, .n_node = weft_graph_n_forward(g)};
    WEFT_TRY(count(&f));
    WEFT_TRY(find(&f, 0, f.n_node));
    *n   = f.n;
    *out = f.run;
    return WEFT_OK;
}
