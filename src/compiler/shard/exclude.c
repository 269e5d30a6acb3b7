/* Layers that tensor parallelism leaves replicated (tp_exclude): each rank along tp has a part of
 * their samples instead.
 *
 * In: spans of layers.  Out: the nodes of such layers, the weights they use (which nobody shards
 * then), and where samples are to be sharded: dimension 0 of what comes into such a layer and of
 * what is made of it first.  The rest follows by propagation; what lies
 * between products follows the samples as far as it can. */
#include <stdlib.h>
#include <string.h>

#include "shard/shard_priv.h"

static weft_status find_layers(const weft_graph *g, weft_arena *a, weft_shard_layers *out)
{
    weft_graph_layers *run;
    int                n_run, *first, n = 0;
    WEFT_TRY(weft_graph_find_runs(g, a, &n_run, &run));
    for (int r = 0; r < n_run; r++) n += run[r].count;
    first = WEFT_ARENA_ARRAY(a, int, n + 1);
    WEFT_TRY(weft_arena_status(a));
    *out = (weft_shard_layers){n, first};
    n    = 0;
    for (int r = 0; r < n_run; r++)
        for (int k = 0; k <= run[r].count; k++) {
            first[n + k] = run[r].start + k * run[r].length;
            if (k == run[r].count) n += k;
        }
    return WEFT_OK;
}

/* Where nothing is before the first layer, that is the input side; so it is with the last one and
 * the head. */
static void take_span(const weft_shard_layers *l, const weft_layer_span *s, int n_forward,
                      bool *node)
{
    int input = l->first[0] ? 0 : 1, head = l->first[l->n] < n_forward ? l->n : l->n - 1;
    int from = 0, end = n_forward;
    if (s->first == WEFT_SPAN_INPUT)
        end = l->first[input];
    else if (s->first == WEFT_SPAN_HEAD)
        from = l->first[head];
    else if (s->last == WEFT_SPAN_HEAD - 1) {
        from = l->first[input];
        end  = l->first[head];
    } else {
        from = l->first[s->first];
        end  = l->first[s->last + 1];
    }
    for (int i = from; i < end; i++) node[i] = true;
}

static weft_status take_spans(const weft_strategy *y, const weft_shard_layers *layers,
                              const weft_graph *g, weft_arena *a, bool *node)
{
    weft_shard_layers l;
    if (layers)
        l = *layers;
    else
        WEFT_TRY(find_layers(g, a, &l));
    for (int k = 0; k < y->n_tp_exclude; k++) {
        const weft_layer_span *s    = &y->tp_exclude[k];
        bool                   some = s->last < l.n || s->last >= WEFT_SPAN_HEAD - 1;
        if (!some || (!l.n && s->first != WEFT_SPAN_INPUT))
            return WEFT_FAIL(WEFT_ERR_ARG, "tp_exclude: layer %d of %s, which has %d",
                             s->last, g->name, l.n);
        take_span(&l, s, weft_graph_n_forward(g), node);
    }
    return WEFT_OK;
}

/* Is dimension 0 of each value the samples (or begins with them)? */
static bool *find_samples(const weft_graph *g, const weft_node_factors *f, weft_arena *a)
{
    bool   *of    = WEFT_ARENA_ARRAY(a, bool, g->n_value + 1);
    int64_t batch = weft_graph_batch(g);
    for (weft_vid v = 0; of && v < g->n_value; v++) {
        const weft_graph_value *x = &g->value[v];
        of[v] = x->kind == WEFT_VALUE_INPUT && !x->per_step && x->type.shape.n > 0 &&
                x->type.shape.d[0] == batch;
    }
    for (int i = 0; of && i < weft_graph_n_forward(g); i++) {
        const weft_graph_node *n = &g->node[i];
        for (int j = 0; j < n->n_out; j++) {
            const weft_dim_factors *y = &f[i].dim[(n->n_in + j) * WEFT_MAX_DIM];
            for (int k = 0; k < n->n_in && g->value[n->out[j]].type.shape.n; k++) {
                const weft_dim_factors *x = &f[i].dim[k * WEFT_MAX_DIM];
                if (of[n->in[k]] && x->n && y->n && x->f[0] == y->f[0])
                    of[n->out[j]] = true;
            }
        }
    }
    return of;
}

static weft_status add_entry(weft_shard__excluded *w, weft_vid v, weft_arena *a)
{
    for (int i = 0; i < w->n_entry; i++)
        if (w->entry[i] == v) return WEFT_OK;
    WEFT_TRY(weft_arena_grow(a, (void **)&w->entry, &w->cap_entry, w->n_entry + 1,
                             sizeof *w->entry));
    w->entry[w->n_entry++] = v;
    return WEFT_OK;
}

/* What comes into such a layer from elsewhere, and what is made of it there. */
static weft_status find_entries(const weft_graph *g, const bool *samples, weft_arena *a,
                                weft_shard__excluded *w)
{
    for (int i = 0; i < weft_graph_n_forward(g); i++) {
        const weft_graph_node *n     = &g->node[i];
        bool                   first = false;
        if (!w->node[i]) continue;
        for (int k = 0; k < n->n_in; k++) {
            weft_vid v    = n->in[k];
            int      made = g->value[v].node;
            if (made < 0 && g->value[v].kind != WEFT_VALUE_INPUT) w->weight[v] = true;
            if (!samples[v] || (made >= 0 && w->node[made])) continue;
            WEFT_TRY(add_entry(w, v, a));
            first = true;
        }
        for (int j = 0; j < n->n_out && first; j++)
            if (samples[n->out[j]]) WEFT_TRY(add_entry(w, n->out[j], a));
    }
    return WEFT_OK;
}

weft_status weft_shard__find_excluded(const weft_strategy     *y,
                                      const weft_shard_layers *layers,
                                      const weft_graph *g, const weft_node_factors *f,
                                      weft_arena *a, weft_shard__excluded *out)
{
    *out        = (weft_shard__excluded){0};
    out->node   = WEFT_ARENA_ARRAY(a, bool, g->n_node + 1);
    out->weight = WEFT_ARENA_ARRAY(a, bool, g->n_value + 1);
    WEFT_TRY(weft_arena_status(a));
    if (!y->n_tp_exclude) return WEFT_OK;
    int64_t batch   = weft_graph_batch(g);
    bool   *samples = find_samples(g, f, a);
    WEFT_TRY(weft_arena_status(a));
    if (batch % (y->tp ? y->tp : 1))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "tp_exclude: tp=%d does not divide the %lld samples of a micro-batch; "
            "set micro_batch to a multiple",
            y->tp, (long long)batch);
    WEFT_TRY(take_spans(y, layers, g, a, out->node));
    WEFT_TRY(find_entries(g, samples, a, out));
    if (out->n_entry) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "tp_exclude: these layers of %s have no samples to split", g->name);
}
