/* Model -> training graph -> lowered, partitioned program: all of the compile wing in one call.
 *
 *     weft_compiled     c;
 *     weft_compile_spec s = weft_compile_spec_default("gpt2", 4, 64);
 *     WEFT_TRY(weft_compile_training(&s, &c));
 *     ...
 *     weft_compiled_fini(&c);
 *
 * One rank.  Where a search over plans comes in, it comes in here. */
#ifndef WEFT_COMPILE_COMPILE_H
#define WEFT_COMPILE_COMPILE_H

#include "graph/train.h"
#include "model/model.h"
#include "program/program.h"

typedef struct weft_compile_optimizer {
    const char *name; /* adamw adam sgd adagrad lamb */
    double lr, beta[2], eps, weight_decay, momentum, clip; /* lr is the host's affair */
} weft_compile_optimizer;

/* What decides a program. */
typedef struct weft_compile_spec {
    const char            *model;
    int64_t                seq, batch, micro_batch, lanes; /* seq 0: the model's own */
    const char            *dtype;                          /* fp32, bf16 */
    const char            *recompute;
    bool                   dropout;
    weft_compile_optimizer optimizer;
    int                    world, rank; /* data-parallel ranks and this one; 0 is 1 */
} weft_compile_spec;

/* adamw with common values, one micro-batch: for bench, lower and sim. */
weft_compile_spec weft_compile_spec_default(const char *model, int64_t batch,
                                            int64_t seq);

typedef struct weft_compiled {
    weft_model   *model;    /* of one micro-batch */
    weft_training training; /* graph NULL: forward only */
    weft_graph   *graph;    /* what was lowered */
    weft_program *program;
} weft_compiled;

/* A whole training step. */
weft_status weft_compile_training(const weft_compile_spec *s, weft_compiled *out);
/* Forward with the loss summed over the step's micro-batches ("eval.loss"). */
weft_status weft_compile_eval(const weft_compile_spec *s, weft_compiled *out);
/* Forward of one micro-batch, logits out. */
weft_status weft_compile_logits(const weft_compile_spec *s, weft_compiled *out);
/* Only the training graph, without a program. */
weft_status weft_compile_graph(const weft_compile_spec *s, weft_compiled *out);

void weft_compiled_fini(weft_compiled *c); /* a zeroed one is fine */

#endif
