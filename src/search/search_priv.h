/* Inside the room. */
#ifndef WEFT_SEARCH_PRIV_H
#define WEFT_SEARCH_PRIV_H

#include "search/search.h"

enum {
    MAX_LIST         = 64,
    MAX_ORDER        = 48, /* orders of kinds, packed and in whole stages */
    MAX_STAGE        = 4096,
    WEFT_SEARCH__FEW = 6 /* stages whose cuts are tried one by one */
};

typedef struct weft_search__list {
    int n, x[MAX_LIST];
} weft_search__list;

/* Device kinds along the pipeline: those of each stage of S devices. */
typedef struct weft_search__order {
    int  n, kind[WEFT_COST_MAX_DEVICE]; /* in this order */
    bool whole;                         /* no stage has two kinds */
} weft_search__order;

typedef struct weft_search__space {
    const weft_search_problem *p;
    weft_search__list          tp, cp, ep, micro, chunks;
    int                        n_dp, *dp; /* divisors of the batch */
    int                        n_layer;
    int                        n_order;
    weft_search__order         order[MAX_ORDER];
    weft_cost_table            t;
    weft_cost_variant         *variant;
    weft_cost_row             *row;
    bool                      *filled; /* by variant */
    double          *whole_s; /* all layers of a micro-batch, [device][variant] */
    weft_device_kind device[WEFT_COST_MAX_DEVICE];
    weft_cost_fabric fabric[WEFT_COST_MAX_DEVICE];
    double ideal_s[WEFT_COST_MAX_DEVICE]; /* a unit of the batch on one device, at best */
} weft_search__space;

/* Lists, tables, bounds; WEFT_ERR_ARG: a pin that cannot be. */
weft_status weft_search__space_init(const weft_search_problem *p, weft_arena *a,
                                    weft_search__space *out);

/* The number of a variant; its rows are filled. */
int weft_search__variant(weft_search__space *s, int tp, int cp, int ep, int sp, int micro,
                         int again);
/* The kinds of pp stages of S devices; 0: there are too few.  Gives the stages that can be had when pp is 0. */
int weft_search__stages(const weft_search__space *s, const weft_search__order *o, int tp,
                        int S, int pp, uint8_t *kinds);

/* The least time that the slowest stage can take (0: there is one stage), that of an even cut, and the cut itself unless
 * cut is NULL; where layers are of several kinds it may take 1e-4 more. */
double weft_search__fast_cut(const weft_cost_table *t, const weft_cost_point *p,
                             int n_layer, weft_search_cuts rule, double *even_s,
                             uint16_t *cut);
/* Cuts any layers by time, and so that as far as it goes all stages fit; score is of the result.  False: no such cut
 * takes less than limit_s, all layers of a micro-batch taking sum_s at least.  *n_scored counts. */
bool weft_search__cut(const weft_cost_table *t, const weft_cost_point *p, int n_layer,
                      double sum_s, double limit_s, uint16_t *cut, weft_cost_score *score,
                      int64_t *n_scored);

/* Does anything fit? */
bool weft_search__any(const weft_search_problem *p);

/* Why b lost against a, in words. */
void weft_search__why(const weft_search_choice *a, const weft_search_choice *b,
                      const weft_search_machines *m, weft_text *t);
/* What is wrong with the closest point when none fits. */
weft_status weft_search__nofit(const weft_search_problem *p, const weft_search_choice *x);

#endif
