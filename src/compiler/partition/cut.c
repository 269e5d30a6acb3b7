/* Where a model is cut into stages when nobody says: between layers, so that stages have about
 * equal flops. */
#include "partition/partition.h"

static weft_status flops_of(const weft_graph *g, int node, double *out)
{
    const weft_graph_node *n  = &g->node[node];
    weft_arena            *a  = NULL;
    weft_status            st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&a));
    weft_type *in = WEFT_ARENA_ARRAY(a, weft_type, n->n_in + n->n_out + 1);
    WEFT_GO(weft_arena_status(a));
    weft_op_use u = weft_graph_use(g, n, in, in + n->n_in);
    *out          = weft_op_flops(&u);
out:
    weft_arena_destroy(a);
    return st;
}

/* Pieces between seams: [seam[k], seam[k+1]); what stands before the first layer goes with it,
 * what stands behind the last one too. */
typedef struct pieces {
    int     n;
    int    *seam;
    double *flops;
} pieces;

/* No two layers alike: any place that a single value passes. */
static weft_status narrow_places(const weft_graph *g, int n_node, weft_arena *a,
                                 pieces *p)
{
    int *last = WEFT_ARENA_ARRAY(a, int, g->n_value + 1),
        *n    = WEFT_ARENA_ARRAY(a, int, n_node + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) last[g->node[i].in[k]] = i;
    for (weft_vid v = 0; v < g->n_value; v++)
        for (int i = g->value[v].node; i >= 0 && i < last[v]; i++) n[i + 1]++;
    p->n = 0;
    for (int i = 1; i < n_node; i++)
        if (n[i] == 1) p->seam[++p->n] = i;
    p->n++;
    return WEFT_OK;
}

/* The same operators in the same order: layers whose attributes differ (a window, for one) are
 * still layers. */
static bool same_operators(const weft_graph *g, int a, int b, int n)
{
    for (int i = 0; i < n; i++)
        if (g->node[a + i].op != g->node[b + i].op) return false;
    return true;
}

/* What repeats may be several layers, and layers that are a little unlike may stand before and
 * behind. */
static void find_unlike(const weft_graph *g, int n_node, weft_graph_layers *l)
{
    for (int many = l->length; many > 1; many--) {
        int length = l->length / many;
        if (length < 2 || l->length % many) continue;
        if (!same_operators(g, l->start, l->start + length, l->length - length)) continue;
        l->length = length;
        l->count *= many;
        break;
    }
    while (l->start >= l->length &&
           same_operators(g, l->start - l->length, l->start, l->length))
        l->start -= l->length, l->count++;
    while (l->start + (l->count + 1) * l->length <= n_node &&
           same_operators(g, l->start, l->start + l->count * l->length, l->length))
        l->count++;
}

static weft_status find_pieces(const weft_graph *g, weft_arena *a, pieces *out)
{
    weft_graph_layers l;
    int               n_node = 0;
    WEFT_TRY(weft_graph_find_layers(g, &l));
    while (n_node < g->n_node && g->node[n_node].phase == WEFT_PHASE_FORWARD) n_node++;
    if (l.count > 1) find_unlike(g, n_node, &l);
    out->n     = l.count;
    out->seam  = WEFT_ARENA_ARRAY(a, int, n_node + 1);
    out->flops = WEFT_ARENA_ARRAY(a, double, n_node + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int k = 1; k < l.count; k++) out->seam[k] = l.start + k * l.length;
    if (l.count < 2) WEFT_TRY(narrow_places(g, n_node, a, out));
    out->seam[out->n] = n_node;
    for (int k = 0; k < out->n; k++)
        for (int i = out->seam[k]; i < out->seam[k + 1]; i++) {
            double f;
            WEFT_TRY(flops_of(g, i, &f));
            out->flops[k] += f;
        }
    return WEFT_OK;
}

/* The consecutive runs whose squares sum to the least: best[s][k] over pieces 0..k-1 in s runs. */
static weft_status split(const pieces *p, int n_stage, weft_arena *a, int *cut)
{
    int     w    = p->n + 1;
    double *best = WEFT_ARENA_ARRAY(a, double, (n_stage + 1) * w);
    int    *from = WEFT_ARENA_ARRAY(a, int, (n_stage + 1) * w);
    WEFT_TRY(weft_arena_status(a));
    for (int s = 0; s <= n_stage; s++)
        for (int k = 0; k < w; k++) best[s * w + k] = s + k ? -1 : 0;
    for (int s = 1; s <= n_stage; s++)
        for (int k = s; k < w; k++) {
            double sum = 0;
            for (int j = k - 1; j >= s - 1; j--) {
                sum += p->flops[j];
                double before = best[(s - 1) * w + j], now = before + sum * sum;
                if (before < 0 || (best[s * w + k] >= 0 && best[s * w + k] <= now))
                    continue;
                best[s * w + k] = now;
                from[s * w + k] = j;
            }
        }
    for (int s = n_stage, k = p->n; s > 1; s--) {
        k          = from[s * w + k];
        cut[s - 2] = p->seam[k];
    }
    return WEFT_OK;
}

weft_status weft_partition_cuts(const weft_graph *g, int n_stage, int *cut)
{
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    pieces      p;
    if (n_stage <= 1) return WEFT_OK;
    WEFT_TRY(weft_arena_create(&a));
    WEFT_GO(find_pieces(g, a, &p));
    if (p.n < n_stage)
        WEFT_GO(WEFT_FAIL(
            WEFT_ERR_ARG,
            "%d stages, but %s has %d layers: a stage without layers; take at most "
            "%d stages, or say where to cut",
            n_stage, g->name, p.n, p.n));
    WEFT_GO(split(&p, n_stage, a, cut));
out:
    weft_arena_destroy(a);
    return st;
}

weft_status weft_partition_check_cuts(const weft_graph *g, int n_stage, const int *cut)
{
    int n = 0, before = 0;
    while (n < g->n_node && g->node[n].phase == WEFT_PHASE_FORWARD) n++;
    for (int k = 0; k < n_stage - 1; k++) {
        if (cut[k] <= before || cut[k] >= n)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "cut %d before node %d: cuts ascend between nodes 1 and %d of %s, and "
                "no stage is empty",
                k, cut[k], n - 1, g->name);
        before = cut[k];
    }
    return WEFT_OK;
}
