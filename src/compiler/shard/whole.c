/* Layers whose tensors stay whole: where other layers are cut by tp, these have a part of the
 * samples each.
 *
 * In: spans of layers, as words or as numbers.  Out: the nodes of such layers, the weights they
 * use (which nobody cuts then), and where samples are to be cut: dimension 0 of what comes into
 * such a layer and of what is made of it first.  The rest follows by propagation; what lies
 * between products follows the samples as far as it can. */
#include <stdlib.h>
#include <string.h>

#include "shard/shard_priv.h"

/* ---- words ---- */

static const weft_layer_span blocks = {0, WEFT_SPAN_HEAD - 1};

static bool read_span(const char *word, weft_layer_span *out)
{
    char *end;
    if (!strcmp(word, "input")) {
        *out = (weft_layer_span){WEFT_SPAN_INPUT, WEFT_SPAN_INPUT};
        return true;
    }
    if (!strcmp(word, "head")) {
        *out = (weft_layer_span){WEFT_SPAN_HEAD, WEFT_SPAN_HEAD};
        return true;
    }
    *out = blocks;
    if (!strcmp(word, "blocks")) return true;
    long a = strtol(word, &end, 10), b = a;
    if (end == word) return false;
    if (!strncmp(end, "..", 2)) {
        const char *from = end + 2;
        b                = strtol(from, &end, 10);
        if (end == from) return false;
    }
    *out = (weft_layer_span){(int32_t)a, (int32_t)b};
    return !*end && a >= 0 && b >= a && b < WEFT_SPAN_HEAD;
}

weft_status weft_layer_spans_parse(const char *text, weft_layer_span *out, int *n)
{
    char *copy = strdup(text), *save = NULL;
    if (!copy) return WEFT_FAIL(WEFT_ERR_MEM, "no memory");
    weft_status st = WEFT_OK;
    *n             = 0;
    for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
        if (*n == WEFT_MAX_SPAN)
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "whole: more than %d spans", WEFT_MAX_SPAN));
        if (!read_span(w, &out[(*n)++]))
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                              "whole=%s: expected input, head, blocks or layers such as "
                              "0..3, with commas between",
                              text));
    }
    if (!*n) st = WEFT_FAIL(WEFT_ERR_ARG, "whole: which layers? write whole=head");
out:
    free(copy);
    return st;
}

void weft_layer_spans_print(const weft_layer_span *s, int n, weft_text *t)
{
    for (int i = 0; i < n; i++) {
        if (i) weft_text_add(t, ",");
        if (s[i].first == WEFT_SPAN_INPUT)
            weft_text_add(t, "input");
        else if (s[i].first == WEFT_SPAN_HEAD)
            weft_text_add(t, "head");
        else if (s[i].first == blocks.first && s[i].last == blocks.last)
            weft_text_add(t, "blocks");
        else
            weft_text_add(t, s[i].first == s[i].last ? "%d" : "%d..%d", s[i].first,
                          s[i].last);
    }
}

/* ---- on a graph ---- */

typedef struct layers {
    int        n;
    const int *first; /* and where the last one ends */
} layers;

static weft_status find_layers(const weft_shorthand *h, const weft_graph *g,
                               weft_arena *a, layers *out)
{
    weft_graph_layers *run;
    int                n_run, *first, n = 0;
    *out = (layers){h->n_layer, h->layer};
    if (h->layer) return WEFT_OK;
    WEFT_TRY(weft_graph_find_runs(g, a, &n_run, &run));
    for (int r = 0; r < n_run; r++) n += run[r].count;
    first = WEFT_ARENA_ARRAY(a, int, n + 1);
    WEFT_TRY(weft_arena_status(a));
    *out = (layers){n, first};
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
static void take(const layers *l, const weft_layer_span *s, int n_forward, bool *node)
{
    int input = l->first[0] ? 0 : 1, head = l->first[l->n] < n_forward ? l->n : l->n - 1;
    int from = 0, end = n_forward;
    if (s->first == WEFT_SPAN_INPUT)
        end = l->first[input];
    else if (s->first == WEFT_SPAN_HEAD)
        from = l->first[head];
    else if (s->last == blocks.last) {
        from = l->first[input];
        end  = l->first[head];
    } else {
        from = l->first[s->first];
        end  = l->first[s->last + 1];
    }
    for (int i = from; i < end; i++) node[i] = true;
}

static weft_status take_all(const weft_shorthand *h, const weft_graph *g, weft_arena *a,
                            bool *node)
{
    layers l;
    WEFT_TRY(find_layers(h, g, a, &l));
    for (int k = 0; k < h->n_whole; k++) {
        const weft_layer_span *s    = &h->whole[k];
        bool                   some = s->last < l.n || s->last >= blocks.last;
        if (!some || (!l.n && s->first != WEFT_SPAN_INPUT))
            return WEFT_FAIL(WEFT_ERR_ARG, "whole: layer %d of %s, which has %d", s->last,
                             g->name, l.n);
        take(&l, s, weft_graph_n_forward(g), node);
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

static weft_status add_entry(weft_shard__whole *w, weft_vid v, weft_arena *a)
{
    for (int i = 0; i < w->n_entry; i++)
        if (w->entry[i] == v) return WEFT_OK;
    WEFT_TRY(weft_arena_grow(a, (void **)&w->entry, &w->cap_entry, w->n_entry + 1,
                             sizeof *w->entry));
    w->entry[w->n_entry++] = v;
    return WEFT_OK;
}

/* What comes into a whole layer from elsewhere, and what is made of it there. */
static weft_status find_entries(const weft_graph *g, const bool *samples, weft_arena *a,
                                weft_shard__whole *w)
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

weft_status weft_shard__find_whole(const weft_shorthand *h, const weft_graph *g,
                                   const weft_node_factors *f, int parts, weft_arena *a,
                                   weft_shard__whole *out)
{
    *out        = (weft_shard__whole){0};
    out->node   = WEFT_ARENA_ARRAY(a, bool, g->n_node + 1);
    out->weight = WEFT_ARENA_ARRAY(a, bool, g->n_value + 1);
    WEFT_TRY(weft_arena_status(a));
    if (!h->n_whole) return WEFT_OK;
    int64_t batch   = weft_graph_batch(g);
    bool   *samples = find_samples(g, f, a);
    WEFT_TRY(weft_arena_status(a));
    if (batch % parts)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "whole: tp=%d does not divide the %lld samples of a micro-batch; "
            "set micro_batch to a multiple",
            parts, (long long)batch);
    WEFT_TRY(take_all(h, g, a, out->node));
    WEFT_TRY(find_entries(g, samples, a, out));
    if (out->n_entry) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "whole: these layers of %s have no samples to cut",
                     g->name);
}
