/* Inside score.c, stage.c, memory.c, once.c, deal.c, own_step.c, hop.c: stages of a point. */
#ifndef WEFT_COST_SCORE_PRIV_H
#define WEFT_COST_SCORE_PRIV_H

#include "cost/own_priv.h"

typedef struct weft_cost__stage {
    double         fwd_s, bwd_s, again_s, comm_s, host_s;
    double         keep, gathered, work, n_param, n_expert, max_param;
    weft_cost__own own; /* of programs */
    double ahead;       /* share of its time in which the host runs ahead of the device */
    int    n_layer;
} weft_cost__stage;

/* The kinds of devices of stage s, as bits. */
int                  weft_cost__kinds(const weft_cost_point *p, int s);
const weft_cost_row *weft_cost__rows(const weft_cost_table *t, int device, int variant);

/* Layers from..from+n of the segments as stage s on one device kind, of those that the stage has.
 */
weft_cost__stage weft_cost__sum_stage(const weft_cost_table *t, const weft_cost_point *p,
                                      int device, int kinds, int from, int n, int s);

/* hop.c: the links of a device kind in groups that extend over these kinds (bits; 0: that kind
 * alone); tmp is theirs. */
const weft_cost_fabric *weft_cost__fabric_of(const weft_cost_table *t,
                                             const weft_cost_point *p, int device,
                                             int kinds, weft_cost_fabric *tmp);
/* Seconds of a message between two stages; the slowest of all neighbouring stages, and of the
 * last to the first where stages are interleaved. */
double weft_cost__hop_seconds(const weft_cost_table *t, const weft_cost_point *p,
                              int from, int to, double bytes);
double weft_cost__slowest_hop(const weft_cost_table *t, const weft_cost_point *p,
                              double bytes);
/* How many stages from s on are alike: as many layers of one class on the same devices.  The
 * first and the last are like no other. */
int weft_cost__alike(const weft_cost_table *t, const weft_cost_point *p, int n, int s,
                     int from, int mine);

/* Where an engine stalls: a floor under each layer, more for each micro-batch of a stage. */
typedef struct weft_cost__stalls {
    double layer_s, micro_s;
} weft_cost__stalls;

double            weft_cost__stall(const weft_cost_table *t, const weft_cost_point *p);
weft_cost__stalls weft_cost__stalls_of(const weft_cost_table *t,
                                       const weft_cost_point *p);
void weft_cost__apply_stalls(weft_cost__stage *s, const weft_cost__stalls *w);

/* Ranks that share states; of experts. */
int    weft_cost__shards(const weft_cost_point *p, const weft_cost_variant *v);
double weft_cost__expert_shards(const weft_cost_point *p, const weft_cost_variant *v);

/* What a device holds, apart from what its engine adds. */
typedef struct weft_cost__held {
    double weight, grad, state, keep, work, late;
} weft_cost__held;

weft_cost__held weft_cost__held_by(const weft_cost_table *t, const weft_cost_point *p,
                                   int s, const weft_cost__stage *x);
/* Where the stage is the fullest so far, out's memory is its. */
void weft_cost__add_memory(const weft_cost_table *t, const weft_cost_point *p, int device,
                           int s, const weft_cost__stage *x, weft_cost_score *out);

/* Summing gradients and handing weights round, as far as it is waited for; the optimizer. */
double weft_cost__replica_seconds(const weft_cost_table *t, const weft_cost_point *p,
                                  int device, const weft_cost__stage *x);
double weft_cost__optimizer_seconds(const weft_cost_table *t, const weft_cost_point *p,
                                    int device, const weft_cost__stage *x);

/* weft_cost_score_point of our own programs, n layers in all; of replicas of unlike speed. */
void weft_cost__score_program(const weft_cost_table *t, const weft_cost_point *of, int n,
                              weft_cost_score *out);
void weft_cost__score_deal(const weft_cost_table *t, const weft_cost_point *p,
                           weft_cost_score *out);

#endif
