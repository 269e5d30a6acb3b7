/* A stage of our own programs, summed from rows: what they do once a step, and the memory that
 * they plan. */
#ifndef WEFT_COST_OWN_PRIV_H
#define WEFT_COST_OWN_PRIV_H

#include "cost/score.h"

typedef struct weft_cost__own {
    int kinds; /* device kinds that groups over replicas extend over, as bits; 0: its own */
    double weight_s, sum_bytes, tied_bytes, n_met, meet_s, merge_s;
    double keep_bytes, weight_bytes, back_bytes; /* of a micro-batch; see score.h */
    double work_bytes, split_bytes, fetched_bytes;
    double grad_bytes; /* the largest sum of a layer */
    double peak_bytes; /* of one micro-batch at a time */
    double last_bytes; /* the same less all sums of the layers up to there */
    /* with a layer's largest sum, less a replica's part of all up to there */
    double part_bytes;
    double first_bytes, head_bytes; /* of keep_bytes: of the input side, of the head */
    /* messages of a micro-batch: from the stage before, to the next */
    double            in_bytes, out_bytes;
    double            in_back_bytes, out_back_bytes; /* and back */
    double            read_bytes, read_keep_bytes;
    double            given_bytes; /* sums of tied parameters that the other end gives */
    weft_cost_sharing share;
} weft_cost__own;

/* Ranks that states are sharded over. */
double weft_cost__sharers(const weft_cost_table *t, const weft_cost_point *p);
/* n rows alike, behind those that are there; of so many replicas. */
void             weft_cost__own_add(weft_cost__own *x, const weft_cost_row *r, int n,
                                    weft_cost_shares k, double replicas);
weft_cost_shares weft_cost__own_shares(const weft_cost_point   *p,
                                       const weft_cost_variant *v);
/* The collectives that these are in a step, of all layers of a stage: of identical ranks, with
 * whole values, all meet at once where nothing is said of buckets.  In a step of one micro-batch
 * what is shared, `sums` bytes, is summed in the backward pass; there a bucket is a fraction of it
 * at most (program/coalesce.h). */
double weft_cost__own_calls(const weft_cost_table *t, const weft_cost_point *p,
                            const weft_cost_calls *c, double sums);
/* What is gathered in each micro-batch, of all layers of a stage: only where it is the one stage it
 * is put in buckets. */
weft_cost_calls weft_cost__own_fetches(const weft_cost_point *p,
                                       const weft_cost_calls *c);
/* Gradients summed over replicas and what else comes before all ranks meet; the rest of the
 * update. */
double weft_cost__own_before(const weft_cost_table *t, const weft_cost_point *p,
                             int device, const weft_cost__own *x);
double weft_cost__own_after(const weft_cost_table *t, const weft_cost_point *p,
                            int device, const weft_cost__own *x);
/* The point as the replica with most micro-batches has it. */
void weft_cost__own_deal(const weft_cost_table *t, weft_cost_point *p);
/* What is gathered in every micro-batch. */
double weft_cost__own_fetch(const weft_cost_table *t, const weft_cost_point *p,
                            int device, const weft_cost__own *x, bool back);

typedef struct weft_cost__room {
    double state, sums, keep, work, read;
} weft_cost__room;

weft_cost__room weft_cost__own_room(const weft_cost_table *t, const weft_cost_point *p,
                                    int s, const weft_cost__own *x);

#endif
