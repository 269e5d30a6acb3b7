/* Which layers tp may leave whole: sets of kinds of layers, of which it cuts the samples instead
 * (shard/exclude.c).
 *
 * Kinds are the input side, each run of layers, the head; an input side and a head that share a
 * table are one.  Of up to four all sets are tried, of more those that begin or end the model:
 * the first so many kinds, or the last. */
#include <string.h>

#include "planner/rows_priv.h"

enum {
    FEW = 4 /* kinds whose sets are all tried */
};

static uint32_t input_bit(void)
{
    return 1u;
}

static uint32_t head_bit(const weft_planner__rows *x)
{
    return 1u << (x->n_run + 1);
}

static void add_span(weft_strategy *y, int first, int last)
{
    if (y->n_tp_exclude < WEFT_MAX_SPAN)
        y->tp_exclude[y->n_tp_exclude++] = (weft_layer_span){first, last};
}

void weft_planner__whole_spans(const weft_planner__rows *x, uint32_t kinds,
                               const weft_graph_layers *run, weft_strategy *out)
{
    int at = 0, from = -1;
    out->n_tp_exclude = 0;
    if (kinds & input_bit()) add_span(out, WEFT_SPAN_INPUT, WEFT_SPAN_INPUT);
    for (int r = 0; r <= x->n_run; r++) {
        bool is = r < x->n_run && kinds >> (r + 1) & 1;
        if (is && from < 0) from = at;
        if (!is && from >= 0) {
            add_span(out, from, at - 1);
            from = -1;
        }
        if (r < x->n_run) at += run[r].count;
    }
    if (kinds & head_bit(x)) add_span(out, WEFT_SPAN_HEAD, WEFT_SPAN_HEAD);
}

/* ---- the list ---- */

/* Of the whole model; all its runs, between an input side and a head, are "blocks". */
static void name_set(const weft_planner__rows *x, uint32_t kinds, bool ends,
                     weft_search_whole *out)
{
    weft_strategy y    = {0};
    uint32_t      runs = (head_bit(x) - 1) & ~1u;
    weft_planner__whole_spans(x, kinds, x->run, &y);
    for (int i = 0; ends && i < y.n_tp_exclude && (kinds & runs) == runs; i++)
        if (y.tp_exclude[i].first == 0) y.tp_exclude[i].last = WEFT_SPAN_HEAD - 1;
    out->n_span = y.n_tp_exclude;
    memcpy(out->span, y.tp_exclude, sizeof out->span);
}

/* Classes of layers as bits: the input side, the head, then those of the runs. */
static uint64_t classes_of(const weft_planner__rows *x, const weft_planner__short *s,
                           uint32_t kinds)
{
    uint64_t out = (kinds & 1) | (kinds & head_bit(x) ? 2 : 0);
    for (int k = 2; k < x->n_class && k < 64; k++) {
        int r = 0, left = x->layer[k];
        while (left >= s->t.model->run[r].count) left -= s->t.model->run[r++].count;
        if (kinds >> (r + 1) & 1) out |= (uint64_t)1 << k;
    }
    return out;
}

static void add_set(weft_planner__rows *x, const weft_planner__short *s, uint32_t kinds,
                    bool ends, weft_search_model *m)
{
    if (m->n_whole == WEFT_SEARCH_MAX_WHOLE) return;
    weft_search_whole *set = &m->whole[m->n_whole];
    *set = (weft_search_whole){.classes = classes_of(x, s, kinds), .kinds = kinds};
    name_set(x, kinds, ends, set);
    x->whole[m->n_whole++] = kinds;
    x->n_whole             = m->n_whole;
}

weft_status weft_planner__list_whole(weft_planner__rows *x, weft_search_model *m)
{
    weft_planner__short *s;
    uint32_t             kind[34];
    int                  n = 0;
    m->n_whole = x->n_whole = 1; /* none */
    m->whole[0]             = (weft_search_whole){0};
    if (!x->limits.whole || x->n_run < 1 || x->n_run > 30) return WEFT_OK;
    WEFT_TRY(weft_planner__short_of(x, 0, 0, 1, WEFT_RECOMPUTE_NONE, &s));
    bool input = s->node[0] > 0,
         head  = s->node[s->n_layer] < weft_graph_n_forward(s->t.graph);
    if (input) kind[n++] = input_bit() | (x->tied && head ? head_bit(x) : 0);
    for (int r = 0; r < x->n_run; r++) kind[n++] = 2u << r;
    if (head && !(input && x->tied)) kind[n++] = head_bit(x);
    for (uint32_t set = 1; n <= FEW && set + 1 < 1u << n; set++) {
        uint32_t kinds = 0;
        for (int k = 0; k < n; k++) kinds |= set >> k & 1 ? kind[k] : 0;
        add_set(x, s, kinds, input && head, m);
    }
    for (int k = 1; n > FEW && k < n; k++) {
        uint32_t first = 0, last = 0;
        for (int i = 0; i < n; i++) *(i < k ? &first : &last) |= kind[i];
        add_set(x, s, first, input && head, m);
        add_set(x, s, last, input && head, m);
    }
    return WEFT_OK;
}
