/* Model -> training graph -> lowered, partitioned program: the whole compiler in one call.
 *
 *     weft_compiled     c;
 *     weft_compile_spec s = weft_compile_spec_default("gpt2", 4, 64);
 *     WEFT_TRY(weft_compile_training(&s, &c));
 *     ...
 *     weft_compiled_fini(&c); */
#ifndef WEFT_COMPILE_COMPILE_H
#define WEFT_COMPILE_COMPILE_H

#include "graph/train.h"
#include "model/model.h"
#include "plan/plan.h"
#include "program/program.h"

typedef struct weft_compile_optimizer {
    const char *name; /* adamw adam sgd adagrad lamb */
    double lr, beta[2], eps, weight_decay, momentum, clip; /* lr is the host's affair */
} weft_compile_optimizer;

/* What decides a program. */
typedef struct weft_compile_spec {
    const char       *model;
    const weft_graph *graph;  /* instead of a model by name, for any batch; borrowed */
    int               layers; /* at most so many of each run of layers; 0: all */
    int               longer, more; /* 1 + the run that keeps so many more; 0: none */
    int64_t           seq, batch, micro_batch, lanes; /* seq 0: the model's own */
    const char       *dtype;                          /* fp32, bf16 */
    const char       *recompute;
    bool              dropout;
    weft_compile_optimizer optimizer;
    const weft_plan       *plan; /* borrowed; NULL: one rank */
    int                    rank; /* of the plan's world */
    /* evaluation: parameters lie as they do there, or it is refused; NULL */
    const struct weft_compiled *kept;
} weft_compile_spec;

/* adamw with common values, one micro-batch: for bench, lower and sim. */
weft_compile_spec weft_compile_spec_default(const char *model, int64_t batch,
                                            int64_t seq);

typedef struct weft_compiled {
    weft_model    *model;    /* of one micro-batch */
    weft_training  training; /* graph NULL: forward only */
    weft_graph    *graph;    /* what was lowered, or cut over ranks and then lowered */
    weft_program  *program;
    weft_sharding *sharding; /* how it was cut; NULL: every rank has whole values */
    int            place;    /* of this rank in its mesh */
    bool           lent;     /* all but the program is another's, which outlives it */
} weft_compiled;

/* A strategy and what it means for this model.  of.batch, seq, micro_batch, lanes are the spec's,
 * and recompute is in both.  world 0: as many ranks as it takes. */
weft_status weft_compile_plan(const weft_compile_spec *s, const weft_strategy *y,
                              int world, weft_plan **out);
/* The same with the layers of each of the pp * chunks stages; NULL: cut by flops. */
weft_status weft_compile_plan_layers(const weft_compile_spec *s, const weft_strategy *y,
                                     const int *layers, int world, weft_plan **out);
/* Runs of a model's layers (weft_graph_find_runs; a shortened model knows its own). */
weft_status weft_compile_runs(const weft_model *m, weft_arena *a, int *n,
                              weft_graph_layers **out);
/* Layers that stages are cut between, of the training graph: their first nodes in node[], in a;
 * behind those one number more, where the last layer ends.  What is before the first goes with
 * it, and what is behind the last one. */
weft_status weft_compile_layers(const weft_compiled *c, weft_arena *a, int *n,
                                int **node);
/* What a plan must be for to fit; of->model borrows m. */
void weft_compile_plan_of(const weft_compile_spec *s, const weft_model *m,
                          weft_plan_of *of);

/* Which part of a parameter or state this program's rank has. */
typedef struct weft_compiled_part {
    weft_type type; /* of the whole */
    int       n
        [WEFT_MAX_DIM]; /* runs of each dimension, ascending; side by side they are the local one */
    weft_interval *run[WEFT_MAX_DIM];
} weft_compiled_part;
weft_status weft_compiled_part_of(const weft_compiled *c, const char *name, weft_arena *a,
                                  weft_compiled_part *out);

/* A whole training step. */
weft_status weft_compile_training(const weft_compile_spec *s, weft_compiled *out);
#define WEFT_COMPILE_EVAL_TAG (1 << 21) /* what its messages' tags begin with */
/* Forward with the loss summed over the step's micro-batches ("eval.loss"). */
weft_status weft_compile_eval(const weft_compile_spec *s, weft_compiled *out);
/* Forward of one micro-batch, logits out. */
weft_status weft_compile_logits(const weft_compile_spec *s, weft_compiled *out);
/* Only the model, of one micro-batch, with its loss. */
weft_status weft_compile_model(const weft_compile_spec *s, weft_model **out);
/* Only the training graph, without a program. */
weft_status weft_compile_graph(const weft_compile_spec *s, weft_compiled *out);

/* What all of it holds as long as it is there. */
int64_t weft_compiled_bytes(const weft_compiled *c);

void weft_compiled_fini(weft_compiled *c); /* a zeroed one is fine */

#endif
