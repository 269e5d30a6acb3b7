/* A model with fewer of its layers. */
#include <string.h>

#include "graph/extract.h"
#include "model/model.h"

typedef struct shorter {
    const weft_graph  *g;
    weft_arena        *a;
    int                n_run, keep, longer, more;
    weft_graph_layers *run;
    bool              *whole;  /* run: stays as it is */
    int               *run_of; /* node; -1: of no run */
} shorter;

static int layer_of(const shorter *x, int node)
{
    const weft_graph_layers *r = &x->run[x->run_of[node]];
    return (node - r->start) / r->length;
}

static int keep_of(const shorter *x, int run)
{
    return x->keep + (run + 1 == x->longer ? x->more : 0);
}

static bool is_cut(const shorter *x, int run)
{
    return run >= 0 && !x->whole[run] && x->run[run].count > keep_of(x, run);
}

/* What stands for value v outside its run: made by the last layer, by the last that is kept; -1:
 * nothing does. */
static weft_vid stands_for(const shorter *x, weft_vid v)
{
    int node = x->g->value[v].node, r = node < 0 ? -1 : x->run_of[node];
    if (!is_cut(x, r) || layer_of(x, node) < keep_of(x, r)) return v;
    const weft_graph_layers *l = &x->run[r];
    if (layer_of(x, node) < l->count - 1) return -1;
    return x->g->node[node - (l->count - keep_of(x, r)) * l->length]
        .out[x->g->value[v].index];
}

/* Runs whose inner layers somebody else uses stay whole. */
static void find_users(shorter *x)
{
    for (int i = 0; i < x->g->n_node; i++)
        for (int k = 0; k < x->g->node[i].n_in; k++) {
            weft_vid v    = x->g->node[i].in[k];
            int      made = x->g->value[v].node;
            if (made < 0 || x->run_of[made] < 0 || x->run_of[made] == x->run_of[i])
                continue;
            if (stands_for(x, v) < 0) x->whole[x->run_of[made]] = true;
        }
}

static bool is_kept(const shorter *x, int node)
{
    int r = x->run_of[node];
    return !is_cut(x, r) || layer_of(x, node) < keep_of(x, r);
}

static weft_status list_nodes(shorter *x, weft_graph_part *p)
{
    const weft_graph *g    = x->g;
    int              *node = WEFT_ARENA_ARRAY(x->a, int, g->n_node + 1);
    weft_vid        **in   = WEFT_ARENA_ARRAY(x->a, weft_vid *, g->n_node + 1);
    WEFT_TRY(weft_arena_status(x->a));
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        if (!is_kept(x, i)) continue;
        node[p->n_node++] = i;
        in[i] = weft_arena_memdup(x->a, n->in, sizeof *n->in * (size_t)(n->n_in + 1));
        if (!in[i]) return weft_arena_status(x->a);
        for (int k = 0; k < n->n_in; k++) {
            int made = g->value[n->in[k]].node;
            if (made >= 0 && x->run_of[made] != x->run_of[i])
                in[i][k] = stands_for(x, n->in[k]);
        }
    }
    p->node = node;
    p->in   = in;
    return WEFT_OK;
}

static void move(weft_vid *v, const weft_vid *map)
{
    if (*v >= 0) *v = map[*v];
}

/* Names lie in the graph that goes away. */
static void keep_names(weft_model *m, weft_model_param *p)
{
    p->name = weft_arena_strdup(m->arena, p->name);
    for (int k = 0; k < p->n_tensor; k++)
        p->tensor[k].name = weft_arena_strdup(m->arena, p->tensor[k].name);
}

static weft_status move_model(weft_model *m, const weft_vid *map)
{
    int n   = 0;
    m->name = weft_arena_strdup(m->arena, m->name);
    move(&m->ids, map);
    move(&m->labels, map);
    move(&m->decoder_ids, map);
    move(&m->logits, map);
    move(&m->loss_rows, map);
    move(&m->label_sum, map);
    move(&m->loss_sum, map);
    for (int i = 0; i < m->n_param; i++) {
        move(&m->param[i].value, map);
        if (m->param[i].value >= 0) keep_names(m, &m->param[i]);
        if (m->param[i].value >= 0) m->param[n++] = m->param[i];
    }
    m->n_param = n;
    n          = 0;
    for (int i = 0; i < m->n_stat; i++) {
        move(&m->stat[i].stat, map);
        move(&m->stat[i].p.value, map);
        if (m->stat[i].stat < 0 || m->stat[i].p.value < 0) continue;
        keep_names(m, &m->stat[i].p);
        m->stat[n++] = m->stat[i];
    }
    m->n_stat = n;
    n         = 0;
    for (int i = 0; i < m->n_load; i++) {
        move(&m->load[i], map);
        if (m->load[i] >= 0) m->load[n++] = m->load[i];
    }
    m->n_load = n;
    return weft_arena_status(m->arena);
}

/* Where the runs are in the shorter graph. */
static weft_status keep_runs(const shorter *x, weft_model *m)
{
    int gone = 0;
    m->run   = WEFT_ARENA_ARRAY(m->arena, weft_graph_layers, x->n_run + 1);
    WEFT_TRY(weft_arena_status(m->arena));
    m->n_run = x->n_run;
    for (int r = 0; r < x->n_run; r++) {
        weft_graph_layers *l = &m->run[r];
        *l                   = x->run[r];
        l->start -= gone;
        if (!is_cut(x, r)) continue;
        gone += (l->count - keep_of(x, r)) * l->length;
        l->count = keep_of(x, r);
    }
    return WEFT_OK;
}

static weft_status make(shorter *x, weft_model *m, weft_graph **out)
{
    weft_graph_part p = {.n_output = x->g->n_output};
    x->run_of         = WEFT_ARENA_ARRAY(x->a, int, x->g->n_node + 1);
    weft_vid *map     = WEFT_ARENA_ARRAY(x->a, weft_vid, x->g->n_value + 1);
    weft_vid *output  = WEFT_ARENA_ARRAY(x->a, weft_vid, x->g->n_output + 1);
    bool     *leaf    = WEFT_ARENA_ARRAY(x->a, bool, x->g->n_value + 1);
    WEFT_TRY(weft_graph_find_runs(x->g, x->a, &x->n_run, &x->run));
    x->whole = WEFT_ARENA_ARRAY(x->a, bool, x->n_run + 1);
    WEFT_TRY(weft_arena_status(x->a));
    for (int i = 0; i < x->g->n_node; i++) x->run_of[i] = -1;
    for (int r = 0; r < x->n_run; r++)
        for (int i = 0; i < x->run[r].length * x->run[r].count; i++)
            x->run_of[x->run[r].start + i] = r;
    find_users(x);
    WEFT_TRY(list_nodes(x, &p));
    for (int i = 0; i < x->g->n_output; i++) output[i] = stands_for(x, x->g->output[i]);
    for (int i = 0; i < m->n_stat; i++)
        leaf[m->stat[i].p.value] =
            m->stat[i].stat < 0 || is_kept(x, x->g->value[m->stat[i].stat].node);
    p.output = output;
    p.leaf   = leaf;
    WEFT_TRY(weft_graph_extract(x->g, &p, map, out));
    WEFT_TRY(keep_runs(x, m));
    return move_model(m, map);
}

weft_status weft_model_shorten(weft_model *m, int keep, int longer, int more)
{
    shorter     x = {.g = m->graph, .keep = keep, .longer = longer, .more = more};
    weft_graph *g = NULL;
    if (keep < 2) return WEFT_FAIL(WEFT_ERR_ARG, "at least two layers of a run are kept");
    WEFT_TRY(weft_arena_create(&x.a));
    weft_status st = make(&x, m, &g);
    weft_arena_destroy(x.a);
    if (st != WEFT_OK) {
        weft_graph_destroy(g);
        return st;
    }
    weft_graph_destroy(m->graph);
    m->graph = g;
    return WEFT_OK;
}
