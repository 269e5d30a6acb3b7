/* Forward nodes by cut, backward nodes to where what they need already is.  See stages.h. */
#include <string.h>

#include "graph/recompute.h"
#include "partition/partition_priv.h"

typedef weft_stage_map map;

weft_vid weft_stage_map_operand(const map *p, int node, int k)
{
    return p->in[node] ? p->in[node][k] : p->g->node[node].in[k];
}

static bool is_view(const weft_graph *g, weft_vid v)
{
    int n = g->value[v].node;
    return n >= 0 && weft_op_get(g->node[n].op)->flags & WEFT_OP_VIEW;
}

weft_vid weft_stage_map_base(const map *p, weft_vid v)
{
    while (is_view(p->g, v)) v = weft_stage_map_operand(p, p->g->value[v].node, 0);
    return v;
}

bool weft_stage_map_is_at(const map *p, weft_vid v, int rank)
{
    return p->at[(size_t)v * (size_t)p->n_rank + (size_t)rank];
}

bool weft_stage_map_crosses(const map *p, weft_vid v, int rank)
{
    return p->crosses[(size_t)v * (size_t)p->n_rank + (size_t)rank];
}

bool weft_stage_map_runs_on(const map *p, int node, int rank)
{
    if (p->g->node[node].phase == WEFT_PHASE_UPDATE)
        return p->runs[node * p->n_rank + rank];
    return p->stage[node] >= 0 && p->stage[node] % p->n_rank == rank;
}

/* ---- nodes that everybody makes for himself ---- */

static void find_copied(map *p, int n_once, bool *constant)
{
    const weft_graph *g = p->g;
    for (weft_vid v = 0; v < g->n_value; v++)
        constant[v] = g->value[v].kind == WEFT_VALUE_INPUT && g->value[v].per_step;
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n     = &g->node[i];
        unsigned               flags = weft_op_get(n->op)->flags;
        bool all = !(flags & WEFT_OP_RANDOM) && n->phase != WEFT_PHASE_UPDATE;
        for (int k = 0; k < n->n_in; k++) all = all && constant[n->in[k]];
        for (int j = 0; j < n->n_out; j++) constant[n->out[j]] = all;
        p->copied[i] = all || flags & WEFT_OP_VIEW || i < n_once;
    }
}

static void find_fetched(map *p)
{
    const weft_graph *g = p->g;
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n   = &g->node[i];
        bool                   all = n->n_in > 0;
        for (int k = 0; k < n->n_in; k++) {
            weft_vid b = weft_stage_map_base(p, n->in[k]);
            int      m = g->value[b].node;
            all        = all && (m >= 0 ? p->fetched[m]
                                        : g->value[b].kind != WEFT_VALUE_INPUT &&
                                       weft_op_get(n->op)->flags & WEFT_OP_COMM);
        }
        p->fetched[i] = all && n->phase == WEFT_PHASE_BACKWARD && !p->copied[i];
    }
}

/* What is fetched again goes to who takes it; all else that is made again, to where it was made
 * first. */
static void find_repeats(map *p)
{
    const weft_graph *g = p->g;
    weft_graph_find_repeats(g, p->first_user, p->user, p->repeats);
    for (int i = 0; i < g->n_node; i++)
        for (int j = 0; j < g->node[i].n_out && p->fetched[i]; j++)
            p->repeats[g->node[i].out[j]] = -1;
}

/* ---- forward ---- */

static bool *present(const map *p, weft_vid v, int stage)
{
    return &p->present[(size_t)v * (size_t)p->n_stage + (size_t)stage];
}

static void assign_forward(map *p, const int *cut)
{
    const weft_graph *g     = p->g;
    int               stage = 0;
    for (int i = 0; i < g->n_node && g->node[i].phase == WEFT_PHASE_FORWARD; i++) {
        const weft_graph_node *n = &g->node[i];
        while (stage < p->n_stage - 1 && cut[stage] <= i) stage++;
        if (p->copied[i]) continue;
        p->stage[i] = stage;
        for (int k = 0; k < n->n_in; k++)
            *present(p, weft_stage_map_base(p, n->in[k]), stage) = true;
        for (int j = 0; j < n->n_out; j++) *present(p, n->out[j], stage) = true;
    }
}

/* ---- backward ---- */

/* Only sums over micro-batches come of it: of the node itself, or of what is made of its result
 * alone (a cast, a reduction).  The last gradients of a model come to nothing else either, but
 * have other operands. */
static void find_weight(map *p)
{
    const weft_graph *g = p->g;
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n = &g->node[i];
        if (n->phase != WEFT_PHASE_BACKWARD) continue;
        bool all = true, any = false;
        for (int j = 0; j < n->n_out; j++)
            for (int k = p->first_user[n->out[j]]; k < p->first_user[n->out[j] + 1];
                 k++) {
                const weft_graph_node *u = &g->node[p->user[k]];
                any                      = true;
                all                      = all && (u->phase == WEFT_PHASE_UPDATE ||
                              (p->weight[p->user[k]] && u->n_in == 1));
            }
        for (int o = 0; o < g->n_output; o++)
            for (int j = 0; j < n->n_out; j++) all = all && g->output[o] != n->out[j];
        p->weight[i] = all && any;
    }
}

/* The parameter whose gradient v goes into: along sums up to the operator that takes both; -1
 * none. */
static weft_vid parameter_of(const map *p, weft_vid v)
{
    const weft_graph *g = p->g;
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++) {
        const weft_graph_node *u     = &g->node[p->user[k]];
        weft_vid               found = -1;
        if (u->phase == WEFT_PHASE_UPDATE)
            for (int x = 0; x < u->n_in; x++)
                if (g->value[weft_stage_map_base(p, u->in[x])].kind == WEFT_VALUE_PARAM)
                    return weft_stage_map_base(p, u->in[x]);
        if (u->phase != WEFT_PHASE_UPDATE || u->op == WEFT_OP_ACCUMULATE ||
            u->op == WEFT_OP_ADD || p->copied[p->user[k]] ||
            weft_op_get(u->op)->flags & WEFT_OP_COMM)
            found = parameter_of(p, u->out[0]);
        if (found >= 0) return found;
    }
    return -1;
}

static void find_copies(map *p)
{
    const weft_graph *g = p->g;
    for (weft_vid v = 0; v < g->n_value; v++) p->copy[v] = -1;
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].copy_of >= 0) p->copy[g->value[v].copy_of] = v;
}

static bool lives_in(const map *p, weft_vid param, int stage)
{
    return *present(p, param, stage) ||
           (p->copy[param] >= 0 && *present(p, p->copy[param], stage));
}

/* Are the forward values that node takes there already? */
static bool all_present(const map *p, const weft_graph_node *n, int stage)
{
    const weft_graph *g = p->g;
    for (int k = 0; k < n->n_in; k++) {
        weft_vid b = weft_stage_map_base(p, n->in[k]);
        int      m = g->value[b].node;
        if (m >= 0 && p->copied[m]) continue;
        if (m >= 0 && p->fetched[m]) { /* of parameters in parts, which lie somewhere */
            if (!all_present(p, &g->node[m], stage)) return false;
            continue;
        }
        if (g->value[b].kind == WEFT_VALUE_INPUT && g->value[b].per_step) continue;
        if (p->repeats[b] < 0) continue; /* a gradient */
        if (!*present(p, weft_stage_map_base(p, p->repeats[b]), stage)) return false;
    }
    return true;
}

/* Between the latest forward value it takes and the earliest gradient. */
static void bounds(const map *p, const weft_graph_node *n, int *lo, int *hi)
{
    const weft_graph *g = p->g;
    *lo                 = 0;
    *hi                 = p->n_stage - 1;
    for (int k = 0; k < n->n_in; k++) {
        weft_vid b = weft_stage_map_base(p, n->in[k]);
        if (p->repeats[b] >= 0) b = weft_stage_map_base(p, p->repeats[b]);
        int m = g->value[b].node;
        if (m < 0 || p->copied[m] || p->stage[m] < 0) continue;
        if (g->node[m].phase == WEFT_PHASE_FORWARD) {
            if (p->stage[m] > *lo) *lo = p->stage[m];
        } else if (p->stage[m] < *hi) {
            *hi = p->stage[m];
        }
    }
}

/* least[i]: the stage of the latest forward value that a gradient takes, or any gradient that is
 * made of it.  Stages of gradients descend, so at this stage or above it leaves a place for all of
 * them. */
static void find_least(map *p, int *least)
{
    const weft_graph *g = p->g;
    int               hi;
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n = &g->node[i];
        least[i]                 = 0;
        if (n->phase != WEFT_PHASE_BACKWARD || p->fetched[i]) continue;
        if (!p->copied[i] && p->repeats[n->out[0]] >= 0) continue; /* it has its stage */
        if (!p->copied[i]) bounds(p, n, &least[i], &hi);
        for (int j = 0; j < n->n_out; j++)
            for (int k = p->first_user[n->out[j]]; k < p->first_user[n->out[j] + 1]; k++)
                if (least[p->user[k]] > least[i]) least[i] = least[p->user[k]];
    }
}

static weft_status assign_gradient(map *p, int i, int least)
{
    const weft_graph_node *n     = &p->g->node[i];
    weft_vid               param = p->weight[i] ? parameter_of(p, n->out[0]) : -1;
    int                    lo, hi, best = -1, score = -1;
    bounds(p, n, &lo, &hi);
    if (lo < least) lo = least;
    if (lo > hi)
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "stages: %s takes a value of stage %d and a gradient of stage "
                         "%d",
                         p->g->value[n->out[0]].name, lo, hi);
    for (int t = hi; t >= lo; t--) {
        int s = (param >= 0 && lives_in(p, param, t) ? 2 : 0) + all_present(p, n, t);
        if (s > score) best = t, score = s;
    }
    p->stage[i] = best;
    return WEFT_OK;
}

static weft_status replace(map *p, int node, int k, weft_vid by)
{
    const weft_graph_node *n = &p->g->node[node];
    if (!p->in[node]) {
        p->in[node] = weft_arena_memdup(p->tmp, n->in, sizeof *n->in * (size_t)n->n_in);
        if (!p->in[node]) return weft_arena_status(p->tmp);
    }
    p->in[node][k] = by;
    return WEFT_OK;
}

/* What was recomputed on another stage has come from there already, as it was: it, or what a view
 * is of. */
static weft_status replace_repeats(map *p, int i)
{
    const weft_graph *g = p->g;
    for (int k = 0; k < g->node[i].n_in; k++) {
        weft_vid v = weft_stage_map_operand(p, i, k), b = weft_stage_map_base(p, v);
        int      m = g->value[b].node, node = i, at = k;
        if (m < 0 || p->copied[m] || g->node[m].phase != WEFT_PHASE_BACKWARD) continue;
        if (p->repeats[b] < 0 || p->stage[m] == p->stage[i]) continue;
        for (; p->repeats[v] < 0; at = 0) {
            node = g->value[v].node;
            v    = weft_stage_map_operand(p, node, 0);
        }
        WEFT_TRY(replace(p, node, at, p->repeats[v]));
    }
    return WEFT_OK;
}

/* Node i is placed: so is what it fetches. */
static void assign_fetched(map *p, int i)
{
    const weft_graph *g = p->g;
    for (int k = 0; k < g->node[i].n_in; k++) {
        int m = g->value[weft_stage_map_base(p, g->node[i].in[k])].node;
        if (m < 0 || !p->fetched[m] || p->stage[m] >= 0) continue;
        p->stage[m] = p->stage[i];
        assign_fetched(p, m);
    }
}

static weft_status assign_backward(map *p)
{
    const weft_graph *g     = p->g;
    int              *least = WEFT_ARENA_ARRAY(p->tmp, int, (size_t)g->n_node + 1);
    WEFT_TRY(weft_arena_status(p->tmp));
    find_least(p, least);
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        if (n->phase != WEFT_PHASE_BACKWARD || p->copied[i] || p->fetched[i]) continue;
        if (p->repeats[n->out[0]] >= 0)
            p->stage[i] = p->stage[g->value[p->repeats[n->out[0]]].node];
        else
            WEFT_TRY(assign_gradient(p, i, least[i]));
        assign_fetched(p, i);
    }
    for (int i = 0; i < g->n_node; i++)
        if (p->stage[i] >= 0) WEFT_TRY(replace_repeats(p, i));
    return WEFT_OK;
}

weft_status weft_stage_map_make(const weft_graph *g, int n_stage, int n_rank,
                                const int *cut, int n_once, weft_arena *tmp, map *out)
{
    map    p = {.g = g, .tmp = tmp, .n_stage = n_stage, .n_rank = n_rank};
    size_t n = (size_t)g->n_node + 1, v = (size_t)g->n_value + 1;
    p.copied       = WEFT_ARENA_ARRAY(tmp, bool, n);
    p.weight       = WEFT_ARENA_ARRAY(tmp, bool, n);
    p.fetched      = WEFT_ARENA_ARRAY(tmp, bool, n);
    p.stage        = WEFT_ARENA_ARRAY(tmp, int, n);
    p.level        = WEFT_ARENA_ARRAY(tmp, int, n);
    p.after        = WEFT_ARENA_ARRAY(tmp, bool, n);
    p.in           = WEFT_ARENA_ARRAY(tmp, weft_vid *, n);
    p.runs         = WEFT_ARENA_ARRAY(tmp, bool, n *(size_t)n_rank);
    p.repeats      = WEFT_ARENA_ARRAY(tmp, weft_vid, v);
    p.copy         = WEFT_ARENA_ARRAY(tmp, weft_vid, v);
    p.present      = WEFT_ARENA_ARRAY(tmp, bool, v *(size_t)n_stage);
    p.at           = WEFT_ARENA_ARRAY(tmp, bool, v *(size_t)n_rank);
    p.crosses      = WEFT_ARENA_ARRAY(tmp, bool, v *(size_t)n_rank);
    bool *constant = WEFT_ARENA_ARRAY(tmp, bool, v);
    WEFT_TRY(weft_arena_status(tmp));
    WEFT_TRY(weft_graph_users(g, tmp, &p.first_user, &p.user));
    for (int i = 0; i < g->n_node; i++) p.stage[i] = -1;
    find_copied(&p, n_once, constant);
    find_fetched(&p);
    find_repeats(&p);
    assign_forward(&p, cut);
    find_weight(&p);
    find_copies(&p);
    WEFT_TRY(assign_backward(&p));
    WEFT_TRY(weft_partition__assign_update(&p));
    *out = p;
    return WEFT_OK;
}

/* ---- one stage for each node ---- */

/* The parameter that a state is a copy of: its next value is made of the parameter's by operators
 * of one operand (a cast, a gather).  -1: of none.  by_next: the parameter of each next value. */
static weft_vid copied_param(const map *p, weft_vid state, const weft_vid *by_next)
{
    const weft_graph *g = p->g;
    weft_vid v = g->value[state].kind == WEFT_VALUE_STATE ? g->value[state].next : -1;
    while (v >= 0 && by_next[v] < 0) {
        int m = g->value[v].node;
        v     = m >= 0 && g->node[m].n_in == 1 ? g->node[m].in[0] : -1;
    }
    return v < 0 ? -1 : by_next[v];
}

/* first[v]: the first stage whose forward nodes use a leaf, or the copy of a parameter; -1: none
 * does. */
static weft_status find_first_uses(const map *p, int *first)
{
    const weft_graph *g       = p->g;
    weft_vid         *by_next = WEFT_ARENA_ARRAY(p->tmp, weft_vid, g->n_value + 1);
    WEFT_TRY(weft_arena_status(p->tmp));
    for (weft_vid v = 0; v < g->n_value; v++) by_next[v] = -1;
    for (weft_vid v = 0; v < g->n_value; v++) {
        first[v] = -1;
        for (int s = p->n_stage - 1; s >= 0 && !g->value[v].per_step; s--)
            if (*present(p, v, s)) first[v] = s;
        if (g->value[v].kind == WEFT_VALUE_PARAM && g->value[v].next >= 0)
            by_next[g->value[v].next] = v;
    }
    for (weft_vid v = 0; v < g->n_value; v++) {
        weft_vid param = copied_param(p, v, by_next);
        if (param >= 0) first[param] = first[v];
    }
    return WEFT_OK;
}

/* An update node is counted where the parameter it is about is used first; else on the last stage
 * that runs it. */
static int update_home(const map *p, int i, const int *first, const int *home, bool *own)
{
    const weft_graph_node *n    = &p->g->node[i];
    int                    made = -1, param = -1;
    for (int k = 0; k < n->n_in; k++) {
        int m  = p->g->value[n->in[k]].node;
        int at = m >= 0 ? home[m] : first[n->in[k]];
        if (at > made) made = at;
        if ((m < 0 || own[m]) && at > param) param = at;
    }
    own[i] = param >= 0;
    if (own[i]) return param;
    for (int r = p->n_rank - 1; r >= 0; r--)
        if (weft_stage_map_runs_on(p, i, r)) return r;
    return made;
}

weft_status weft_stage_map_homes(const map *p, int *home, bool *own)
{
    const weft_graph *g = p->g;
    if (p->n_rank != p->n_stage)
        return WEFT_FAIL(WEFT_ERR_ARG, "homes of %d stages on %d ranks: a rank each",
                         p->n_stage, p->n_rank);
    int *first = WEFT_ARENA_ARRAY(p->tmp, int, g->n_value + 1);
    WEFT_TRY(weft_arena_status(p->tmp));
    WEFT_TRY(find_first_uses(p, first));
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n = &g->node[i];
        home[i]                  = p->stage[i];
        own[i]                   = false;
        for (int j = 0; j < n->n_out && n->phase != WEFT_PHASE_UPDATE; j++)
            for (int k = p->first_user[n->out[j]];
                 k < p->first_user[n->out[j] + 1] && home[i] < 0; k++)
                home[i] = home[p->user[k]];
    }
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].phase == WEFT_PHASE_UPDATE)
            home[i] = update_home(p, i, first, home, own);
    return WEFT_OK;
}
