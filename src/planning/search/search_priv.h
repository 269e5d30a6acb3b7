/* Inside the room. */
#ifndef WEFT_SEARCH_PRIV_H
#define WEFT_SEARCH_PRIV_H

#include "search/search.h"

enum {
    MAX_LIST         = 64,
    MAX_ORDER        = 48, /* orders of kinds, packed and in whole stages */
    MAX_STAGE        = 4096,
    MAX_TYPE         = 256,
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
    weft_cost_row             *spare;          /* of all classes, to ask with */
    bool                      *filled, *whole; /* by variant: rows, with shares */
    double *whole_s;  /* all layers of a micro-batch, [device][variant] */
    double *seam_s;   /* what a cut between two layers may save of it; 0: nothing */
    int     n_unlike; /* variants filled that leave layers whole */
    weft_device_kind device[WEFT_COST_MAX_DEVICE];
    weft_cost_fabric fabric[WEFT_COST_MAX_DEVICE];
    double ideal_s[WEFT_COST_MAX_DEVICE]; /* a unit of the batch on one device, at best */
    /* a micro-batch on one device, at best; 0: not asked */
    double floor_s[MAX_LIST][WEFT_RECOMPUTE_N];
} weft_search__space;

/* Lists, tables, bounds; WEFT_ERR_ARG: a constraint that cannot be. */
weft_status weft_search__space_init(const weft_search_problem *p, weft_arena *a,
                                    weft_search__space *out);

/* What tp does: way 0 cuts tensors, 1 also the sequence between layers (sp), from 2 on it leaves
 * some layers whole (those of model.whole[way - 1]), whose neighbours follow their samples. */
int  weft_search__ways(const weft_search__space *s);
void weft_search__set_way(weft_cost_variant *v, int way);
/* The number of a variant; its rows are filled, what replicas share where the model says so at a
 * glance only once they are to be scored. */
int  weft_search__variant(weft_search__space *s, int tp, int cp, int ep, int way,
                          int micro, int again);
bool weft_search__filled(const weft_search__space *s, int tp, int cp, int ep, int way,
                         int micro, int again);
/* whole_s of rows that were put there, on one kind of devices. */
void weft_search__sum_up(weft_search__space *s, int variant);
void weft_search__ready(weft_search__space *s, int variant);
/* All layers of a micro-batch of a variant on a kind of devices, in so many stages and any
 * chunks, at least. */
double weft_search__whole(const weft_search__space *s, int device, int variant, int pp);
/* What all layers of a micro-batch take one device at least, when run again so, of one kind of
 * devices: its rows uncut, and nothing waited for. */
double weft_search__floor(weft_search__space *s, int micro, int again);
/* The kinds of pp stages of S devices; 0: there are too few.  Gives the stages that can be had
 * when pp is 0. */
int weft_search__stages(const weft_search__space *s, const weft_search__order *o, int tp,
                        int S, int pp, uint8_t *kinds);

/* The least time that the slowest stage can take (0: there is one stage), that of an even cut,
 * and the cut itself unless cut is NULL; where layers are of several kinds it may take 1e-4 more.
 */
double weft_search__fast_cut(const weft_cost_table *t, const weft_cost_point *p,
                             int n_layer, weft_search_cuts rule, double *even_s,
                             uint16_t *cut);
/* Cuts any layers by time, and so that as far as it goes all stages fit; score is of the result.
 * False: no such cut takes less than limit_s, all layers of a micro-batch taking sum_s at least.
 * *n_scored counts. */
bool weft_search__cut(const weft_cost_table *t, const weft_cost_point *p, int n_layer,
                      double sum_s, double limit_s, uint16_t *cut, weft_cost_score *score,
                      int64_t *n_scored);

typedef struct weft_search__group {
    int32_t tp, cp, pp, dp, order; /* tp, cp: places in their lists */
    double  bound_s;               /* no plan of it is faster */
    double  promise_s;
} weft_search__group;

typedef struct weft_search__best {
    weft_search_choice x;
    uint16_t           cut[MAX_STAGE];
    uint8_t            kinds[MAX_STAGE];
} weft_search__best;

/* A search under way. */
typedef struct weft_search__work {
    const weft_search_problem  *p;   /* on the kinds of devices at hand */
    const weft_search_machines *all; /* kinds there are */
    int                         map[WEFT_COST_MAX_DEVICE]; /* ours among them */
    weft_search__space          s;
    int                         n_group, cap_group;
    weft_search__group         *group;
    int                         n_best, max_best;
    weft_search__best         **best;  /* fastest first */
    weft_search__best          *close; /* of those that do not fit, the closest */
    bool                        have_close, any_group;
    double                      limit_s; /* what a newcomer has to be below */
    double                      relaxed_s;
    bool                        probing; /* only whether anything fits is asked */
    bool    seeding; /* the constraint on zero is a guess of the search, not the user's */
    bool    unlike;  /* ways that leave layers whole are looked at, else the others */
    int64_t n_scored;
    /* of the group at hand */
    uint8_t  kinds[MAX_STAGE];
    uint16_t cut[MAX_STAGE], spare[MAX_STAGE];
    int      n_type; /* kinds of stages, and how many of each there are */
    struct {
        uint8_t kinds;
        int     count;
    } type[MAX_TYPE];
    int    ep, way, micro; /* of the variant at hand */
    double sum_s;          /* of it: all layers of a micro-batch, at least */
    double param_s;        /* of it with zero at hand: all about parameters, at least */
    double least_full; /* memory over its limit, the least of the points asked for last */
    double fullest;    /* the least of all points of the variant at hand */
    bool   by_time;    /* cut[] is of the variant at hand, and better than an even one */
} weft_search__work;

/* points.c: plans that are no faster than this are not among the best. */
/* weft_search_has_copies, and on as many hosts; shards as there. */
bool weft_search__holds_copies(const weft_search_constraints *q,
                               const weft_cost_variant *v, const weft_cost_point *p,
                               int zero, int shards);
bool weft_search__hopeless(const weft_search__work *z, double bound_s);
/* By how much interleaving or splitting the backward pass can shorten idle time. */
double weft_search__finest(const weft_search__work *z, int pp);
/* May stages be as weft_cost_even_cut has them? */
bool weft_search__even_allowed(const weft_search__work *z, int pp);
/* Scores all points of p's variant, dp, pp and micro-batches, whose slowest stage takes least_s
 * at least. */
void weft_search__points(weft_search__work *z, weft_cost_point *p, double least_s);
/* on.c: "layers 0..3 on node 2"; against the model; a cut that keeps them (false: there is none),
 * S devices a stage. */
weft_status weft_search__read_on(weft_search_constraints *p, const char *word);
weft_status weft_search__check_on(const weft_search_constraints *p, int n_layer);
weft_status weft_search__refuse_on(const weft_search_constraints *p);
bool weft_search__bend(const weft_search_problem *q, const weft_cost_point *p, int S,
                       int n_layer, uint16_t *cut);

void weft_search__consider(weft_search__work *z, const weft_cost_point *p,
                           const weft_cost_score *s);
/* May layers be cut over a group's devices so? */
bool weft_search__may_split(const weft_search__work *z, const weft_search__group *g,
                            int ep, int way);
/* deals.c: replicas of several kinds, each with its share of the batch. */
void weft_search__deals(weft_search__work *z);
/* Shares that were constrained go with nothing here. */
weft_status weft_search__refuse_shares(const weft_search_problem *p);

/* Does anything fit? */
bool weft_search__any(const weft_search_problem *p);

/* constraints.c: is batch_split one of them? */
bool weft_search__has_split(const weft_search_constraints *p);

/* choice.c: whole is of the variant. */
weft_strategy weft_search__strategy_of(const weft_cost_variant *v,
                                       const weft_cost_point   *p,
                                       const weft_search_whole *whole);
/* space.c: set i of the model's layers is what tp_exclude names. */
bool weft_search__is_whole(const weft_search_model *m, int i, const weft_strategy *y);
/* Are all stages as weft_cost_even_cut has them? */
bool weft_search__is_even(const weft_search_choice *c);

/* Why b lost against a, in words. */
void weft_search__why(const weft_search_choice *a, const weft_search_choice *b,
                      const weft_search_machines *m, weft_text *t);
/* What is wrong with the closest point when none fits. */
weft_status weft_search__nofit(const weft_search_problem *p, const weft_search_choice *x);

#endif
