#include "planner/elastic.h"

#include <math.h>

#include "base/lanes.h"
#include "planner/replan_priv.h"

enum {
    MAX_CUT = 128 /* pairs of lanes and micro_batch */
};

/* Predictions are not better than that. */
static const double AS_GOOD = 1.1;

typedef struct cut {
    int64_t micro_batch, lanes;
    double  step_s[WEFT_ELASTIC_MAX_SIZE];
    int     n_fits;
    double  mean_s; /* geometric, of the sizes at which it fits */
} cut;

typedef struct elastic_choice {
    const weft_elastic_request *q;
    int64_t                     batch;
    int                         n;
    cut                         cut[MAX_CUT];
} elastic_choice;

static int count_ranks(const weft_elastic_size *size)
{
    int n = 0;
    for (int k = 0; k < size->n_host; k++) n += size->host_ranks[k];
    return n;
}

static void add_cut(elastic_choice *c, int64_t lanes, int64_t micro)
{
    if (c->n < MAX_CUT && micro * lanes <= c->batch && c->batch % micro == 0)
        c->cut[c->n++] = (cut){.micro_batch = micro, .lanes = lanes};
}

/* Parts of a lane that are powers of two, the largest first; single sequences where lanes are not
 * alike. */
static void add_cuts(elastic_choice *c, int64_t lanes)
{
    int64_t micro = c->batch % lanes ? 1 : c->batch / lanes;
    if (c->q->micro_batch) {
        add_cut(c, lanes, c->q->micro_batch);
        return;
    }
    for (; micro > 1 && micro % 2 == 0; micro /= 2) add_cut(c, lanes, micro);
    add_cut(c, lanes, micro);
}

static void list_cuts(elastic_choice *c)
{
    const weft_elastic_request *q    = c->q;
    int64_t                     most = c->batch / (q->micro_batch ? q->micro_batch : 1);
    int n = count_ranks(&q->size[q->n_size - 1]); /* the last one has most */
    if (q->lanes) {
        add_cuts(c, q->lanes);
        return;
    }
    for (int64_t lanes = weft_lanes_default(n, most); lanes >= 1; lanes /= 2)
        add_cuts(c, lanes);
}

/* All cuts of one micro-batch share their prices. */
static weft_status price_micro(elastic_choice *c, int size, int64_t micro, int recompute)
{
    const weft_elastic_size *x = &c->q->size[size];
    weft_training       t = *c->q->training; /* its graph says how large the state is */
    weft_replanner     *r = NULL;
    weft_replan_request q = {.n_rank     = count_ranks(x),
                             .n_host     = x->n_host,
                             .host_ranks = x->host_ranks,
                             .n_least    = x->n_least};
    t.spec.micro_batch    = micro;
    t.spec.recompute      = (weft_strategy_recompute)recompute;
    weft_status st        = weft_replanner_create(&(weft_replan_job){.training = &t,
                                                                     .cluster  = x->cluster,
                                                                     .on_cpus  = c->q->on_cpus},
                                                  &r);
    if (st == WEFT_ERR_ARG || st == WEFT_ERR_NOFIT) return WEFT_OK; /* not this one */
    for (int k = 0; st == WEFT_OK && k < c->n; k++)
        if (c->cut[k].micro_batch == micro)
            st = weft_replan__predict(r, &q, micro, c->cut[k].lanes,
                                      &c->cut[k].step_s[size]);
    weft_replanner_destroy(r);
    return st;
}

static void sum_up(elastic_choice *c, cut *x)
{
    double sum = 0;
    x->n_fits  = 0;
    for (int i = 0; i < c->q->n_size; i++) {
        if (isinf(x->step_s[i])) continue;
        sum += log(x->step_s[i]);
        x->n_fits++;
    }
    x->mean_s = x->n_fits ? exp(sum / x->n_fits) : INFINITY;
}

static weft_status price_cuts(elastic_choice *c, int recompute)
{
    for (int k = 0; k < c->n; k++)
        for (int i = 0; i < c->q->n_size; i++) c->cut[k].step_s[i] = INFINITY;
    for (int k = 0; k < c->n; k++) {
        int64_t micro = c->cut[k].micro_batch;
        bool    known = false;
        for (int j = 0; j < k; j++) known = known || c->cut[j].micro_batch == micro;
        for (int i = 0; !known && i < c->q->n_size; i++)
            WEFT_TRY(price_micro(c, i, micro, recompute));
    }
    for (int k = 0; k < c->n; k++) sum_up(c, &c->cut[k]);
    return WEFT_OK;
}

/* Cuts are in the order of their lanes, most first: of one number the fastest, of those that are
 * about as good as the best the first. */
static const cut *choose_cut(const elastic_choice *c)
{
    const cut *best    = NULL;
    int        most    = 0;
    double     least_s = INFINITY;
    for (int k = 0; k < c->n; k++)
        if (c->cut[k].n_fits > most) most = c->cut[k].n_fits;
    for (int k = 0; most && k < c->n; k++)
        if (c->cut[k].n_fits == most) least_s = fmin(least_s, c->cut[k].mean_s);
    for (int k = 0; most && k < c->n; k++) {
        const cut *x = &c->cut[k];
        if (x->n_fits < most || x->mean_s > AS_GOOD * least_s) continue;
        if (!best || (x->lanes == best->lanes && x->mean_s < best->mean_s)) best = x;
    }
    return best;
}

weft_status weft_elastic_choose(const weft_elastic_request *q, weft_elastic_answer *out)
{
    elastic_choice c      = {.q = q, .batch = q->training->spec.batch};
    int            n_fits = 0;
    if (q->n_size < 1 || q->n_size > WEFT_ELASTIC_MAX_SIZE)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d sizes", q->n_size);
    list_cuts(&c);
    for (int k = 0; k <= (int)WEFT_STRATEGY_FULL && n_fits < q->n_size; k++) {
        if (q->recompute >= 0 && k != q->recompute) continue;
        WEFT_TRY(price_cuts(&c, k));
        const cut *x = choose_cut(&c);
        if (!x || x->n_fits <= n_fits) continue;
        n_fits = x->n_fits;
        *out   = (weft_elastic_answer){
              .micro_batch = x->micro_batch, .lanes = x->lanes, .recompute = k};
        for (int i = 0; i < q->n_size; i++) out->step_s[i] = x->step_s[i];
    }
    if (!n_fits)
        return WEFT_FAIL(WEFT_ERR_NOFIT, "nothing that can be priced fits at any size");
    return WEFT_OK;
}
