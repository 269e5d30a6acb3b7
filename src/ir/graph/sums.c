#include "graph/sums.h"

enum {
    MOST_TERMS = 8
};

/* A tree of adds whose terms are matmuls: nodes, in the order of the graph. */
typedef struct sum_tree {
    int n_add, n_term;
    int add[MOST_TERMS], term[MOST_TERMS];
} sum_tree;

static bool has_type_of(const weft_graph *g, weft_vid a, weft_vid b)
{
    const weft_type *x = &g->value[a].type, *y = &g->value[b].type;
    return x->dtype == y->dtype && weft_shape_equal(&x->shape, &y->shape);
}

static void insert_sorted(int *list, int *n, int node)
{
    int i = (*n)++;
    for (; i > 0 && list[i - 1] > node; i--) list[i] = list[i - 1];
    list[i] = node;
}

/* The adds and matmuls under the add of node i; false: something else is among them. */
static bool collect_terms(const weft_graph *g, const int *n_use, int i, sum_tree *t)
{
    const weft_graph_node *n = &g->node[i];
    if (t->n_add == MOST_TERMS) return false;
    insert_sorted(t->add, &t->n_add, i);
    for (int k = 0; k < 2; k++) {
        weft_vid v     = n->in[k];
        int      maker = g->value[v].node;
        if (maker < 0 || n_use[v] != 1 || !has_type_of(g, v, n->out[0])) return false;
        if (g->node[maker].phase != n->phase) return false;
        if (g->node[maker].op == WEFT_OP_ADD) {
            if (!collect_terms(g, n_use, maker, t)) return false;
        } else if (g->node[maker].op == WEFT_OP_MATMUL && t->n_term < MOST_TERMS) {
            insert_sorted(t->term, &t->n_term, maker);
        } else {
            return false;
        }
    }
    return true;
}

/* Is the add a term of another one? */
static bool is_inner(const weft_graph *g, const int *n_use, const int *user, int i)
{
    weft_vid v = g->node[i].out[0];
    return n_use[v] == 1 && user[v] >= 0 && g->node[user[v]].op == WEFT_OP_ADD &&
           has_type_of(g, v, g->node[user[v]].out[0]);
}

static void chain_terms(weft_graph *g, const sum_tree *t)
{
    for (int k = 0; k < t->n_add; k++)
        if (t->term[k + 1] > t->add[k]) return; /* it is made later */
    for (int k = 0; k < t->n_add; k++) {
        weft_graph_node *n = &g->node[t->add[k]];
        n->in[0]           = g->node[t->term[k + 1]].out[0];
        n->in[1] = k ? g->node[t->add[k - 1]].out[0] : g->node[t->term[0]].out[0];
    }
}

weft_status weft_graph_chain_sums(weft_graph *g)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    int *n_use = WEFT_ARENA_ARRAY(tmp, int, g->n_value + 1);
    int *user  = WEFT_ARENA_ARRAY(tmp, int, g->n_value + 1);
    WEFT_GO(weft_arena_status(tmp));
    for (weft_vid v = 0; v < g->n_value; v++) user[v] = -1;
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            n_use[g->node[i].in[k]]++;
            user[g->node[i].in[k]] = i;
        }
    for (int i = 0; i < g->n_output; i++) n_use[g->output[i]]++;
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].next >= 0) n_use[g->value[v].next]++;
    for (int i = 0; i < g->n_node; i++) {
        sum_tree t = {0};
        if (g->node[i].op != WEFT_OP_ADD || is_inner(g, n_use, user, i)) continue;
        if (collect_terms(g, n_use, i, &t) && t.n_term > 2) chain_terms(g, &t);
    }
out:
    weft_arena_destroy(tmp);
    return st;
}
