/* From a model's forward graph to the graph of a whole training step.
 *
 *     weft_train_options o = {.loss = m->loss_sum, .optimizer = "adamw", .beta = {0.9, 0.999},
 *                             .eps = 1e-8, .clip = 1, .n_param = n, .param = param};
 *     weft_training_graph t;
 *     WEFT_TRY(weft_graph_make_training(m->graph, &o, &t));
 *     ...
 *     weft_graph_destroy(t.graph);
 *
 * forward    as the model has it
 * backward   gradients of loss * inv_n
 * update     every gradient use summed over micro-batches (accumulate), uses added in graph order,
 *            the global norm and its clipping, one optimizer operator for each parameter,
 *            running statistics
 *
 * With dtype bf16 the forward and backward passes run on states "<param>.bf16" (their copy_of is
 * the parameter) and bf16 activations; the parameters themselves stay f32 (the master weights), as
 * do weights and biases of norms. */
#ifndef WEFT_GRAPH_TRAIN_H
#define WEFT_GRAPH_TRAIN_H

#include "graph/graph.h"
#include "strategy/recompute.h"

typedef struct weft_train_param {
    weft_vid value; /* a parameter of the model's graph */
    bool     decay; /* weight_decay applies to it */
} weft_train_param;

/* rate 0: state becomes the exponential mean of stat, next = (1 - momentum) state + momentum unbias
 * mean.  Else stat is a load, and next = state + rate sign(mean over its elements - stat). */
typedef struct weft_train_stat {
    weft_vid state, stat;
    double   momentum, unbias, rate;
} weft_train_stat;

typedef struct weft_train_options {
    weft_vid loss; /* f32, a sum over labels, not a mean; any shape is summed */
    /* sgd (with momentum when that is not 0) adam adamw adagrad lamb */
    const char             *optimizer;
    double                  beta[2], eps, weight_decay, momentum;
    double                  clip;  /* global norm of the gradients; 0: never clip */
    weft_dtype              dtype; /* WEFT_DTYPE_F32 or BF16 */
    weft_strategy_recompute recompute;
    int                     n_param;
    const weft_train_param *param;
    int                     n_stat;
    const weft_train_stat  *stat;
    /* values whose sums over a step are outputs, "step.load.0" and on */
    int             n_load;
    const weft_vid *load;
    int64_t         n_micro; /* micro-batches a step: for running statistics; 0 is 1 */
} weft_train_options;

/* The new graph (the caller's) and where the outside meets it. */
typedef struct weft_training_graph {
    weft_graph *graph;
    /* inputs, f32 scalars, one a step */
    weft_vid lr;
    weft_vid step;  /* counted from 1 */
    weft_vid inv_n; /* 1 / labels of the step: the seed of the backward pass */
    /* outputs, f32 scalars, one a step */
    weft_vid loss;      /* the step's sum of losses: not divided */
    weft_vid grad_norm; /* of the gradients before clipping */
} weft_training_graph;

/* Borrows model, which stays as it is.  Values keep their names; optimizer states are called
 * "<param>.m", "<param>.v", "<param>.h", accumulated gradients "<param>.grad". */
weft_status weft_graph_make_training(const weft_graph *model, const weft_train_options *o,
                                     weft_training_graph *out);

#endif
