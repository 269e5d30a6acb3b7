/* The graph of one rank: its nodes, in the order of their pieces; what comes from other ranks as
 * inputs, what goes to them as outputs. */
#include "graph/extract.h"
#include "partition/assemble_priv.h"

typedef weft_partition__assembly assembly;

int weft_partition__n_piece(const assembly *build)
{
    /* the last, of several ranks: next states that come from outside */
    return 3 * build->n_chunk + build->stages.n_level + (build->pp > 1);
}

weft_work weft_partition__work(const assembly *build, int piece)
{
    int c = build->n_chunk, b = piece - c;
    if (b < 0) return (weft_work){WEFT_WORK_FORWARD, piece, 0};
    weft_work_kind whole =
        build->batch.split ? WEFT_WORK_BACKWARD_INPUT : WEFT_WORK_BACKWARD;
    return (weft_work){b % 2 ? WEFT_WORK_BACKWARD_WEIGHT : whole, c - 1 - b / 2, 0};
}

int weft_partition__piece_of(const assembly *build, const weft_work *w)
{
    int c = build->n_chunk;
    if (w->kind == WEFT_WORK_FORWARD) return w->chunk;
    return c + 2 * (c - 1 - w->chunk) + (w->kind == WEFT_WORK_BACKWARD_WEIGHT);
}

int weft_partition__piece(const assembly *build, int node)
{
    const weft_stage_map *at = &build->stages;
    weft_work             w  = {WEFT_WORK_FORWARD, at->stage[node] / build->pp, 0};
    if (build->graph->node[node].phase == WEFT_PHASE_UPDATE)
        return 3 * build->n_chunk + at->level[node];
    if (build->graph->node[node].phase == WEFT_PHASE_BACKWARD)
        w.kind = build->batch.split && at->weight[node] ? WEFT_WORK_BACKWARD_WEIGHT
                                                        : WEFT_WORK_BACKWARD;
    return weft_partition__piece_of(build, &w);
}

int weft_partition__instr_piece(const assembly *build, int instr)
{
    int n = build->segment->node[instr];
    return n < 0 ? weft_partition__n_piece(build) - 1
                 : build->part.piece[build->part.node[n]];
}

bool weft_partition__is_once(const assembly *build, int instr)
{
    int n = build->segment->node[instr];
    return n >= 0 && build->ranks->local &&
           build->part.node[n] < build->ranks->local->n_gather_once;
}

int weft_partition__peer(const assembly *build, int r)
{
    return r * build->ranks->n_place + build->ranks->place;
}

/* Made for each micro-batch? */
static bool is_micro(const assembly *build, weft_vid v)
{
    int n = build->graph->value[v].node;
    return n >= 0 && build->graph->node[n].phase != WEFT_PHASE_UPDATE;
}

bool weft_partition__sends(const assembly *build, weft_vid v, int r)
{
    return is_micro(build, v) && weft_stage_map_crosses(&build->stages, v, r) &&
           weft_stage_map_runs_on(&build->stages, build->graph->value[v].node, build->me);
}

bool weft_partition__receives(const assembly *build, weft_vid v)
{
    return is_micro(build, v) && weft_stage_map_crosses(&build->stages, v, build->me);
}

int weft_partition__wanted_by(const assembly *build, weft_vid v)
{
    bool up = build->graph->node[build->graph->value[v].node].phase == WEFT_PHASE_FORWARD;
    weft_work w = {up ? WEFT_WORK_FORWARD : WEFT_WORK_BACKWARD,
                   up ? build->part.low[v] : build->part.high[v], 0};
    return weft_partition__piece_of(build, &w);
}

/* ---- which nodes, in which piece ---- */

static int find_chunk(const assembly *build, int piece)
{
    return piece < 3 * build->n_chunk ? weft_partition__work(build, piece).chunk : -1;
}

/* A node here, of piece, uses v. */
static void note_use(assembly *build, weft_vid v, int piece)
{
    const weft_graph *g    = build->graph;
    weft_vid          base = weft_stage_map_base(&build->stages, v);
    int               c = find_chunk(build, piece), m = g->value[v].node;
    if (c >= 0 && (build->part.low[base] < 0 || c < build->part.low[base]))
        build->part.low[base] = c;
    if (c > build->part.high[base]) build->part.high[base] = c;
    if (m < 0 || !build->stages.copied[m]) return;
    if (g->node[m].phase == WEFT_PHASE_FORWARD) piece = c < 0 ? build->n_chunk - 1 : c;
    if (build->part.piece[m] < 0 || piece < build->part.piece[m])
        build->part.piece[m] = piece;
}

/* From the last node to the first: a copied one is where its first user here is. */
static void find_pieces(assembly *build)
{
    const weft_graph     *g   = build->graph;
    const weft_stage_map *at  = &build->stages;
    int                   end = weft_partition__n_piece(build) - 1;
    for (int i = 0; i < g->n_node; i++) build->part.piece[i] = -1;
    for (weft_vid v = 0; v < g->n_value; v++)
        build->part.low[v] = build->part.high[v] = -1;
    for (int o = 0; o < g->n_output; o++) note_use(build, g->output[o], end);
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].next >= 0 && weft_stage_map_is_at(&build->stages, v, build->me))
            note_use(build, g->value[v].next, end);
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n = &g->node[i];
        if (!at->copied[i] && weft_stage_map_runs_on(at, i, build->me))
            build->part.piece[i] = weft_partition__piece(build, i);
        if (build->part.piece[i] < 0) continue;
        int piece = build->part.piece[i];
        if (n->op == WEFT_OP_ACCUMULATE) { /* summed right behind its maker */
            int m = g->value[weft_stage_map_base(&build->stages, n->in[0])].node;
            if (m >= 0 && at->stage[m] >= 0) piece = weft_partition__piece(build, m);
        }
        for (int x = 0; x < n->n_in; x++)
            note_use(build, weft_stage_map_operand(at, i, x), piece);
    }
}

static void order_nodes(assembly *build)
{
    for (int p = 0; p < weft_partition__n_piece(build); p++)
        for (int i = 0; i < build->graph->n_node; i++)
            if (build->part.piece[i] == p) build->part.node[build->part.n_node++] = i;
}

/* ---- what leaves the rank ---- */

static bool leaves_rank(const assembly *build, weft_vid v)
{
    int m = build->graph->value[v].node;
    if (m < 0 || build->stages.copied[m] ||
        !weft_stage_map_runs_on(&build->stages, m, build->me))
        return false;
    for (int r = 0; r < build->pp; r++)
        if (weft_stage_map_crosses(&build->stages, v, r)) return true;
    return false;
}

/* One stage runs the graph as it is. */
static weft_status take_graph(assembly *build)
{
    const weft_graph *g = build->graph;
    build->part.n_node  = g->n_node;
    build->part.graph   = g;
    for (weft_vid v = 0; v < g->n_value; v++)
        build->part.low[v] = build->part.high[v] = 0;
    for (int i = 0; i < g->n_node; i++) {
        static const int piece[] = {
            [WEFT_PHASE_FORWARD] = 0, [WEFT_PHASE_BACKWARD] = 1, [WEFT_PHASE_UPDATE] = 3};
        build->part.piece[i] = piece[g->node[i].phase];
        build->part.node[i]  = i;
    }
    return WEFT_OK;
}

static weft_status extract_graph(assembly *build)
{
    const weft_graph *g    = build->graph;
    weft_vid         *out  = WEFT_ARENA_ARRAY(build->tmp, weft_vid, g->n_value + 1);
    weft_vid         *map  = WEFT_ARENA_ARRAY(build->tmp, weft_vid, g->n_value + 1);
    bool             *leaf = WEFT_ARENA_ARRAY(build->tmp, bool, g->n_value + 1);
    int               n    = 0;
    WEFT_TRY(weft_arena_status(build->tmp));
    find_pieces(build);
    order_nodes(build);
    for (weft_vid v = 0; v < g->n_value; v++) {
        bool ends = false;
        for (int o = 0; o < g->n_output; o++) ends = ends || g->output[o] == v;
        if (ends || leaves_rank(build, v)) out[n++] = v;
        leaf[v] = weft_stage_map_is_at(&build->stages, v, build->me) ||
                  (g->value[v].kind == WEFT_VALUE_INPUT && g->value[v].per_step);
    }
    weft_graph_part part = {.n_node   = build->part.n_node,
                            .node     = build->part.node,
                            .in       = build->stages.in,
                            .n_output = n,
                            .output   = out,
                            .leaf     = leaf};
    WEFT_TRY(weft_graph_extract(g, &part, map, &build->part.extracted));
    build->part.graph = build->part.extracted;
    return WEFT_OK;
}

weft_status weft_partition__rank_graph(assembly *build)
{
    const weft_graph *g = build->graph;
    build->part.node    = WEFT_ARENA_ARRAY(build->tmp, int, g->n_node + 1);
    build->part.piece   = WEFT_ARENA_ARRAY(build->tmp, int, g->n_node + 1);
    build->part.low     = WEFT_ARENA_ARRAY(build->tmp, int, g->n_value + 1);
    build->part.high    = WEFT_ARENA_ARRAY(build->tmp, int, g->n_value + 1);
    WEFT_TRY(weft_arena_status(build->tmp));
    return build->n_stage == 1 ? take_graph(build) : extract_graph(build);
}
