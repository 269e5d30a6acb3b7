/* Edges and credits as counters; see order.h. */
#include "program/order.h"

#include <stdlib.h>

typedef struct by_micro {
    int32_t micro, k;
} by_micro;

typedef struct ends {
    int       n_from, n_to;
    int32_t  *from, *to; /* places in their streams' lists */
    by_micro *sorted;    /* the producer's firings by micro-batch */
} ends;

static weft_status list_firings(const weft_program *p, weft_arena *a, int32_t actor,
                                int *n, int32_t **out)
{
    int s = (int)p->actor[actor].stream;
    *n    = 0;
    *out  = WEFT_ARENA_ARRAY(a, int32_t, p->stream[s].n_firing + 1);
    if (!*out) return weft_arena_status(a);
    for (int i = 0; i < p->stream[s].n_firing; i++)
        if (p->stream[s].firing[i].actor == actor) (*out)[(*n)++] = i;
    return WEFT_OK;
}

static int32_t micro_of(const weft_program *p, int32_t actor, int32_t place)
{
    return p->stream[p->actor[actor].stream].firing[place].micro;
}

static int compare_micro(const void *a, const void *b)
{
    const by_micro *x = a, *y = b;
    return x->micro < y->micro ? -1 : x->micro > y->micro;
}

static weft_status sort_micro(const weft_program *p, weft_arena *a, const weft_edge *e,
                              ends *x)
{
    x->sorted = WEFT_ARENA_ARRAY(a, by_micro, x->n_from);
    if (!x->sorted) return weft_arena_status(a);
    for (int k = 0; k < x->n_from; k++)
        x->sorted[k] = (by_micro){micro_of(p, e->from, x->from[k]), k};
    qsort(x->sorted, (size_t)x->n_from, sizeof *x->sorted, compare_micro);
    return WEFT_OK;
}

/* Which of the producer's firings has this micro-batch; -1 none, -2 several. */
static int find_micro(const ends *x, int32_t micro)
{
    by_micro  key = {.micro = micro};
    by_micro *f = bsearch(&key, x->sorted, (size_t)x->n_from, sizeof key, compare_micro);
    if (!f) return -1;
    bool twice = (f > x->sorted && f[-1].micro == micro) ||
                 (f + 1 < x->sorted + x->n_from && f[1].micro == micro);
    return twice ? -2 : f->k;
}

static weft_status mismatch(const weft_program *p, const weft_edge *e, const char *what)
{
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "program %s: edge %s -> %s: %s; both ends fire once for the same "
                     "micro-batches, or the edge is per_step",
                     p->name, p->actor[e->from].name, p->actor[e->to].name, what);
}

static weft_status add_wait(weft_arena *a, weft_firing_order *f, weft_wait w)
{
    int   cap = f->n_wait;
    void *v   = f->wait;
    WEFT_TRY(weft_arena_grow(a, &v, &cap, f->n_wait + 1, sizeof w));
    f->wait              = v;
    f->wait[f->n_wait++] = w;
    return WEFT_OK;
}

static weft_status add_give(weft_arena *a, weft_firing_order *f, int32_t edge,
                            bool credit)
{
    int   cap = f->n_give;
    void *v   = f->give;
    WEFT_TRY(weft_arena_grow(a, &v, &cap, f->n_give + 1, sizeof(weft_give)));
    f->give              = v;
    f->give[f->n_give++] = (weft_give){.edge = edge, .credit = credit};
    return WEFT_OK;
}

/* Message n (from 0, over all steps) may be given once taken >= n + 1 + delay * N - credits. */
static weft_status add_edge(const weft_program *p, weft_arena *a, int32_t id,
                            const ends *x, weft_order *o)
{
    const weft_edge   *e  = &p->edge[id];
    weft_firing_order *ff = o->firing[p->actor[e->from].stream];
    weft_firing_order *ft = o->firing[p->actor[e->to].stream];
    int32_t            n  = o->per_step[id];
    for (int k = 0; k < n; k++) {
        int32_t first = x->to[k], last = first, giver = x->from[k], begin = giver;
        int     from = k;
        if (e->per_step) {
            last  = x->to[x->n_to - 1];
            giver = x->from[x->n_from - 1];
            /* from its first firing on it fills what the message hands over */
            begin = x->from[0];
        } else {
            from = find_micro(x, micro_of(p, e->to, first));
            if (from < 0)
                return mismatch(p, e,
                                from == -1 ? "a micro-batch is taken that is not given"
                                           : "a micro-batch is given twice");
        }
        weft_wait data = {
            .edge = id, .per_step = n, .at = from + 1 - (int64_t)e->delay * n};
        weft_wait credit = {.edge     = id,
                            .credit   = true,
                            .per_step = n,
                            .at       = k + 1 + (int64_t)e->delay * n - e->credits};
        o->giver[id][k]  = giver;
        o->taker[id][k]  = last;
        WEFT_TRY(add_wait(a, &ft[first], data));
        WEFT_TRY(add_wait(a, &ff[begin], credit));
        WEFT_TRY(add_give(a, &ff[giver], id, false));
        WEFT_TRY(add_give(a, &ft[last], id, true));
    }
    return WEFT_OK;
}

static weft_status make_edge(const weft_program *p, weft_arena *a, int32_t id,
                             weft_order *o)
{
    const weft_edge *e = &p->edge[id];
    ends             x;
    WEFT_TRY(list_firings(p, a, e->from, &x.n_from, &x.from));
    WEFT_TRY(list_firings(p, a, e->to, &x.n_to, &x.to));
    WEFT_TRY(sort_micro(p, a, e, &x));
    if (e->per_step) {
        if (!x.n_from != !x.n_to) return mismatch(p, e, "only one end fires");
        o->per_step[id] = x.n_from > 0;
    } else {
        if (x.n_from != x.n_to)
            return mismatch(p, e, "one end fires more often than the other");
        o->per_step[id] = x.n_from;
    }
    o->giver[id] = WEFT_ARENA_ARRAY(a, int32_t, o->per_step[id]);
    o->taker[id] = WEFT_ARENA_ARRAY(a, int32_t, o->per_step[id]);
    WEFT_TRY(weft_arena_status(a));
    return add_edge(p, a, id, &x, o);
}

weft_status weft_order_make(const weft_program *p, weft_arena *a, bool all,
                            weft_order *out)
{
    weft_order o = {0};
    for (int s = 0; s < p->n_stream; s++)
        o.firing[s] = WEFT_ARENA_ARRAY(a, weft_firing_order, p->stream[s].n_firing);
    o.per_step = WEFT_ARENA_ARRAY(a, int32_t, p->n_edge);
    o.giver    = WEFT_ARENA_ARRAY(a, int32_t *, p->n_edge);
    o.taker    = WEFT_ARENA_ARRAY(a, int32_t *, p->n_edge);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < p->n_edge; i++)
        if (all || p->actor[p->edge[i].from].stream != p->actor[p->edge[i].to].stream)
            WEFT_TRY(make_edge(p, a, i, &o));
    *out = o;
    return WEFT_OK;
}
