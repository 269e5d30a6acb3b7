/* The graph of one rank: its nodes, in the order of their pieces; what comes from other ranks as
 * inputs, what goes to them as outputs. */
#include "graph/extract.h"
#include "partition/pipe_priv.h"

typedef weft_partition__pipe pipe;

int weft_partition__n_piece(const pipe *k)
{
    return 3 * k->n_chunk + k->stages.n_level +
           1; /* the last: next states that come from outside */
}

weft_work weft_partition__work(const pipe *k, int piece)
{
    int c = k->n_chunk, b = piece - c;
    if (b < 0) return (weft_work){WEFT_WORK_FORWARD, piece, 0};
    weft_work_kind whole = k->split ? WEFT_WORK_BACKWARD_INPUT : WEFT_WORK_BACKWARD;
    return (weft_work){b % 2 ? WEFT_WORK_BACKWARD_WEIGHT : whole, c - 1 - b / 2, 0};
}

int weft_partition__piece_of(const pipe *k, const weft_work *w)
{
    int c = k->n_chunk;
    if (w->kind == WEFT_WORK_FORWARD) return w->chunk;
    return c + 2 * (c - 1 - w->chunk) + (w->kind == WEFT_WORK_BACKWARD_WEIGHT);
}

int weft_partition__piece(const pipe *k, int node)
{
    const weft_stage_map *at = &k->stages;
    weft_work             w  = {WEFT_WORK_FORWARD, at->stage[node] / k->pp, 0};
    if (k->g->node[node].phase == WEFT_PHASE_UPDATE)
        return 3 * k->n_chunk + at->level[node];
    if (k->g->node[node].phase == WEFT_PHASE_BACKWARD)
        w.kind =
            k->split && at->weight[node] ? WEFT_WORK_BACKWARD_WEIGHT : WEFT_WORK_BACKWARD;
    return weft_partition__piece_of(k, &w);
}

int weft_partition__instr_piece(const pipe *k, int instr)
{
    int n = k->s->node[instr];
    return n < 0 ? weft_partition__n_piece(k) - 1 : k->piece[k->node[n]];
}

bool weft_partition__is_once(const pipe *k, int instr)
{
    int n = k->s->node[instr];
    return n >= 0 && k->r->local && k->node[n] < k->r->local->n_gather_once;
}

int weft_partition__peer(const pipe *k, int r)
{
    return r * k->r->n_place + k->r->place;
}

static bool crosses(const pipe *k, weft_vid v, int r)
{
    return k->stages.crosses[(size_t)v * (size_t)k->pp + (size_t)r];
}

/* Made for each micro-batch? */
static bool is_micro(const pipe *k, weft_vid v)
{
    int n = k->g->value[v].node;
    return n >= 0 && k->g->node[n].phase != WEFT_PHASE_UPDATE;
}

bool weft_partition__sends(const pipe *k, weft_vid v, int r)
{
    return is_micro(k, v) && crosses(k, v, r) &&
           weft_stage_map_runs_on(&k->stages, k->g->value[v].node, k->me);
}

bool weft_partition__receives(const pipe *k, weft_vid v)
{
    return is_micro(k, v) && crosses(k, v, k->me);
}

int weft_partition__wanted_by(const pipe *k, weft_vid v)
{
    bool      up = k->g->node[k->g->value[v].node].phase == WEFT_PHASE_FORWARD;
    weft_work w  = {up ? WEFT_WORK_FORWARD : WEFT_WORK_BACKWARD,
                   up ? k->low[v] : k->high[v], 0};
    return weft_partition__piece_of(k, &w);
}

/* ---- which nodes, in which piece ---- */

static int chunk_of(const pipe *k, int piece)
{
    return piece < 3 * k->n_chunk ? weft_partition__work(k, piece).chunk : -1;
}

/* A node here, of piece, uses v. */
static void use(pipe *k, weft_vid v, int piece)
{
    const weft_graph *g    = k->g;
    weft_vid          base = weft_stage_map_base(&k->stages, v);
    int               c = chunk_of(k, piece), m = g->value[v].node;
    if (c >= 0 && (k->low[base] < 0 || c < k->low[base])) k->low[base] = c;
    if (c > k->high[base]) k->high[base] = c;
    if (m < 0 || !k->stages.copied[m]) return;
    if (g->node[m].phase == WEFT_PHASE_FORWARD) piece = c < 0 ? k->n_chunk - 1 : c;
    if (k->piece[m] < 0 || piece < k->piece[m]) k->piece[m] = piece;
}

/* From the last node to the first: a copied one is where its first user here is. */
static void find_pieces(pipe *k)
{
    const weft_graph     *g   = k->g;
    const weft_stage_map *at  = &k->stages;
    int                   end = weft_partition__n_piece(k) - 1;
    for (int i = 0; i < g->n_node; i++) k->piece[i] = -1;
    for (weft_vid v = 0; v < g->n_value; v++) k->low[v] = k->high[v] = -1;
    for (int o = 0; o < g->n_output; o++) use(k, g->output[o], end);
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].next >= 0 && at->at[(size_t)v * (size_t)k->pp + (size_t)k->me])
            use(k, g->value[v].next, end);
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n = &g->node[i];
        if (!at->copied[i] && weft_stage_map_runs_on(at, i, k->me))
            k->piece[i] = weft_partition__piece(k, i);
        if (k->piece[i] < 0) continue;
        int piece = k->piece[i];
        if (n->op == WEFT_OP_ACCUMULATE) { /* summed right behind its maker */
            int m = g->value[weft_stage_map_base(&k->stages, n->in[0])].node;
            if (m >= 0 && at->stage[m] >= 0) piece = weft_partition__piece(k, m);
        }
        for (int x = 0; x < n->n_in; x++) use(k, weft_stage_map_operand(at, i, x), piece);
    }
}

static weft_status order_nodes(pipe *k)
{
    k->node = WEFT_ARENA_ARRAY(k->tmp, int, k->g->n_node + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    for (int p = 0; p < weft_partition__n_piece(k); p++)
        for (int i = 0; i < k->g->n_node; i++)
            if (k->piece[i] == p) k->node[k->n_node++] = i;
    return WEFT_OK;
}

/* ---- what leaves the rank ---- */

static bool leaves(const pipe *k, weft_vid v)
{
    int m = k->g->value[v].node;
    if (m < 0 || k->stages.copied[m] || !weft_stage_map_runs_on(&k->stages, m, k->me))
        return false;
    for (int r = 0; r < k->pp; r++)
        if (crosses(k, v, r)) return true;
    return false;
}

weft_status weft_partition__rank_graph(pipe *k)
{
    const weft_graph *g    = k->g;
    weft_vid         *out  = WEFT_ARENA_ARRAY(k->tmp, weft_vid, g->n_value + 1);
    weft_vid         *map  = WEFT_ARENA_ARRAY(k->tmp, weft_vid, g->n_value + 1);
    bool             *leaf = WEFT_ARENA_ARRAY(k->tmp, bool, g->n_value + 1);
    int               n    = 0;
    k->piece               = WEFT_ARENA_ARRAY(k->tmp, int, g->n_node + 1);
    k->low                 = WEFT_ARENA_ARRAY(k->tmp, int, g->n_value + 1);
    k->high                = WEFT_ARENA_ARRAY(k->tmp, int, g->n_value + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    find_pieces(k);
    WEFT_TRY(order_nodes(k));
    for (weft_vid v = 0; v < g->n_value; v++) {
        bool ends = false;
        for (int o = 0; o < g->n_output; o++) ends = ends || g->output[o] == v;
        if (ends || leaves(k, v)) out[n++] = v;
        leaf[v] = k->stages.at[(size_t)v * (size_t)k->pp + (size_t)k->me] ||
                  (g->value[v].kind == WEFT_VALUE_INPUT && g->value[v].per_step);
    }
    weft_graph_part part = {.n_node   = k->n_node,
                            .node     = k->node,
                            .in       = k->stages.in,
                            .n_output = n,
                            .output   = out,
                            .leaf     = leaf};
    return weft_graph_extract(g, &part, map, &k->part);
}
