/* Pipeline stages: which node runs on which stage's mesh. */
#include "shard/shard_priv.h"

/* ---- cutting ---- */

static int n_forward(const weft_graph *g)
{
    int n = 0;
    while (n < g->n_node && g->node[n].phase == WEFT_PHASE_FORWARD) n++;
    return n;
}

/* Forward and backward work before each node, in flops; bytes that cross in front of it. */
static weft_status weigh(const weft_graph *g, int n, weft_arena *a, int64_t *work,
                         int64_t *cross)
{
    int *last = WEFT_ARENA_ARRAY(a, int, g->n_value + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < n; i++) {
        const weft_graph_node *o   = &g->node[i];
        weft_type             *in  = WEFT_ARENA_ARRAY(a, weft_type, o->n_in + 1);
        weft_type             *out = WEFT_ARENA_ARRAY(a, weft_type, o->n_out + 1);
        WEFT_TRY(weft_arena_status(a));
        weft_op_use u = weft_graph_use(g, o, in, out);
        work[i + 1]   = work[i] + (int64_t)weft_op_flops(&u);
        for (int k = 0; k < o->n_in; k++) last[o->in[k]] = i;
    }
    for (weft_vid v = 0; v < g->n_value;
         v++) /* made at m, used until last: crosses m+1 .. last */
        for (int i = g->value[v].node + 1; g->value[v].node >= 0 && i <= last[v]; i++)
            cross[i] += weft_shard__bytes(&g->value[v].type);
    return WEFT_OK;
}

static weft_status cut_stages(const weft_graph *g, int n, weft_arena *a, int *cut)
{
    int      n_f   = n_forward(g);
    int64_t *work  = WEFT_ARENA_ARRAY(a, int64_t, n_f + 1);
    int64_t *cross = WEFT_ARENA_ARRAY(a, int64_t, n_f + 1);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(weigh(g, n_f, a, work, cross));
    cut[0] = 0;
    for (int s = 1; s < n; s++) {
        int64_t want = work[n_f] / n * s, slack = work[n_f] / n / 8, best_off = 0;
        int     best = -1;
        for (int i = cut[s - 1] + 1; i < n_f; i++) {
            int64_t off  = work[i] > want ? work[i] - want : want - work[i];
            bool    near = off <= slack, was = best >= 0 && best_off <= slack;
            if (best < 0 || (near != was ? near
                             : near      ? cross[i] < cross[best] ||
                                          (cross[i] == cross[best] && off < best_off)
                                    : off < best_off)) {
                best     = i;
                best_off = off;
            }
        }
        if (best < 0)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "pp=%d: graph %s has work for %d stages; take fewer stages",
                             n, g->name, s);
        cut[s] = best;
    }
    return WEFT_OK;
}

weft_status weft_shard_cut_stages(const weft_graph *g, int n, int *cut)
{
    weft_arena *a = NULL;
    WEFT_TRY(weft_arena_create(&a));
    weft_status st = cut_stages(g, n, a, cut);
    weft_arena_destroy(a);
    return st;
}

/* ---- placing ---- */

typedef struct placer {
    const weft_graph *g;
    int               n;
    int16_t          *stage;
    int *last;  /* by value: the latest stage whose forward nodes use it; -1 none */
    int *first; /* leaves: the stage of its first user */
} placer;

static int least(int a, int b)
{
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

/* A gradient's node reads gradients, which come from its stage or a later one, and forward
 * values, which its own stage uses. */
static int backward_stage(const placer *p, const weft_graph_node *n)
{
    int grad = -1, own = -1;
    for (int k = 0; k < n->n_in; k++) {
        const weft_graph_value *v = &p->g->value[n->in[k]];
        bool back = v->node >= 0 && p->g->node[v->node].phase == WEFT_PHASE_BACKWARD;
        int  s    = back ? p->stage[v->node] : p->last[n->in[k]];
        if (!back && v->node >= 0 && s < p->stage[v->node]) s = p->stage[v->node];
        if (back)
            grad = least(grad, s);
        else if (s > own)
            own = s;
    }
    return grad < 0 && own < 0 ? p->n - 1
                               : least(grad, own); /* seeds: where the loss is */
}

/* The stage that computes v before the update phase, -1: it is of that phase. */
static int maker_stage(const placer *p, weft_vid v)
{
    int node = p->g->value[v].node;
    return node >= 0 && p->g->node[node].phase != WEFT_PHASE_UPDATE ? p->stage[node] : -1;
}

/* Sums of gradients go where the parameter is updated, updates where it is first used, other sums
 * where their summands are; what is left (the norm) to the first stage. */
static void place_updates(placer *p)
{
    const weft_graph *g = p->g;
    for (int i = g->n_node - 1; i >= 0 && g->node[i].phase == WEFT_PHASE_UPDATE; i--) {
        const weft_graph_node *n = &g->node[i];
        int                    s = -1;
        for (int k = 0; k < n->n_in; k++)
            if (g->value[n->in[k]].kind == WEFT_VALUE_PARAM ||
                (g->value[n->in[k]].kind == WEFT_VALUE_STATE && s < 0))
                s = least(p->first[n->in[k]], s);
        for (int j = 0; j < n->n_out && s < 0; j++) s = p->first[n->out[j]];
        for (int k = 0; k < n->n_in && s < 0; k++) s = p->first[n->in[k]];
        for (int k = 0; k < n->n_in && s < 0; k++) s = maker_stage(p, n->in[k]);
        p->stage[i] = (int16_t)(s < 0 ? 0 : s);
        for (int k = 0; k < n->n_in; k++) /* what it alone uses is made there */
            if (g->value[n->in[k]].node >= 0 && p->first[n->in[k]] < 0 &&
                g->value[n->in[k]].type.shape.n)
                p->first[n->in[k]] = p->stage[i];
    }
}

/* A node of one gradient (a bias' sum, a reshape) goes where its results are used, if its operand
 * goes there anyway. */
static weft_status move_followers(placer *p, weft_arena *a)
{
    const weft_graph *g = p->g;
    int              *first, *user;
    WEFT_TRY(weft_graph_users(g, a, &first, &user));
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n   = &g->node[i];
        int                    to  = -1;
        bool                   one = true, there = false;
        if (n->phase != WEFT_PHASE_BACKWARD || n->n_in != 1 || n->n_out != 1) continue;
        for (int k = first[n->out[0]]; k < first[n->out[0] + 1]; k++) {
            one = one && (to < 0 || to == p->stage[user[k]]);
            to  = p->stage[user[k]];
        }
        for (int k = first[n->in[0]]; k < first[n->in[0] + 1]; k++)
            there = there || (user[k] != i && p->stage[user[k]] == to);
        if (one && to >= 0 && there) p->stage[i] = (int16_t)to;
    }
    return WEFT_OK;
}

weft_status weft_shard_place_stages(const weft_graph *g, int n, const int *cut,
                                    int16_t *node_mesh)
{
    placer      p  = {.g = g, .n = n, .stage = node_mesh};
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&a));
    p.last  = WEFT_ARENA_ARRAY(a, int, g->n_value + 1);
    p.first = WEFT_ARENA_ARRAY(a, int, g->n_value + 1);
    WEFT_GO(weft_arena_status(a));
    for (weft_vid v = 0; v < g->n_value; v++) p.last[v] = p.first[v] = -1;
    for (int i = 0; i < g->n_node; i++) {
        int s = 0;
        while (s + 1 < n && i >= cut[s + 1]) s++;
        if (g->node[i].phase == WEFT_PHASE_BACKWARD) s = backward_stage(&p, &g->node[i]);
        node_mesh[i] = (int16_t)s;
        if (g->node[i].phase != WEFT_PHASE_FORWARD) continue;
        for (int k = 0; k < g->node[i].n_in; k++) {
            weft_vid v = g->node[i].in[k];
            if (s > p.last[v]) p.last[v] = s;
            if (p.first[v] < 0 && g->value[v].node < 0) p.first[v] = s;
        }
    }
    place_updates(&p);
    WEFT_GO(move_followers(&p, a));
out:
    weft_arena_destroy(a);
    return st;
}
