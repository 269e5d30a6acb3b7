/* A pipeline of our own programs, played: every rank does the works of its schedule's list, one
 * after another, as soon as what they need has come. */
#ifndef WEFT_COST_PIPE_PRIV_H
#define WEFT_COST_PIPE_PRIV_H

#include "cost/score.h"

enum {
    /* a pipeline's, chunks counted; of more the last ones are left out */
    WEFT_COST__STAGES = 256
};

/* A stage: a chunk of a rank. */
typedef struct weft_cost__work {
    /* back_s: without weight_s where the pass is run in two parts */
    double fwd_s, back_s, weight_s;
    double next_s, from_s; /* a message to the next stage, and back from there */
} weft_cost__work;

typedef struct weft_cost__pipe {
    int             pp, chunks, n_micro;
    bool            split, all_first;         /* zb-h1; gpipe */
    weft_cost__work stage[WEFT_COST__STAGES]; /* stage i is on rank i % pp */
    /* [rank]: of the update */
    double before_s[WEFT_COST__STAGES], after_s[WEFT_COST__STAGES];
    double meet_s; /* between the two: what ranks give each other */
    /* before that: sums of what the first and last rank share, both ways */
    double tied_s;
} weft_cost__pipe;

/* From where all ranks have met in one step to where they do in the next. */
double weft_cost__pipe_seconds(const weft_cost__pipe *x);

#endif
