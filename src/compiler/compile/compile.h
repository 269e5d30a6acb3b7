/* The compiler in two lifetimes: model and training graph, built once per job and read-only from
 * then on; programs of ranks, made from them without reading the model again.
 *
 *     weft_training     t = {0};
 *     weft_compiled     c = {0};
 *     weft_compile_spec s = weft_compile_spec_default("gpt2", 4, 64);
 *     WEFT_GO(weft_compile_training(&s, &t));
 *     WEFT_GO(weft_compile_program(&t, plan, rank, &c));        another plan: only this again
 *     ...
 *     weft_compiled_fini(&c);
 *     weft_training_fini(&t);                                   after every program made from it */
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

/* What decides a training graph, and with a plan and a rank a program. */
typedef struct weft_compile_spec {
    const char *model; /* its name; NULL: a graph's */
    /* what it is built from; borrowed.  NULL: what the name says is read for each model */
    const weft_model_source *source;
    int                      layers; /* at most so many of each run of layers; 0: all */
    int            longer, more;     /* 1 + the run that keeps so many more; 0: none */
    int64_t        seq, batch, micro_batch, lanes; /* seq 0: the model's own */
    weft_reduction reduction;
    const char *dtype; /* fp32, bf16, fp8 (bf16 with the linear layers' matmuls in fp8) */
    /* of those matmuls: e4m3, hybrid (gradients of results in e5m2); NULL: e4m3 */
    const char             *fp8_format;
    weft_strategy_recompute recompute;
    /* of a program without a plan, which is one rank's; and with either the bytes of gradients
     * that are updated at once, 0: WEFT_OFFLOAD_CHUNK_BYTES */
    weft_strategy_offload offload;
    int64_t               offload_bytes;
    bool                  dropout;
    /* what the device's kernels take (weft_lower_options), set by weft_compile_for_cuda() */
    int      row_elements;
    int      head_rows;
    int      join_width;
    int      align_bytes;
    unsigned fusions;
    bool     rewrites; /* gates and sums as its kernels take them (graph/) */
    weft_compile_optimizer optimizer;
} weft_compile_spec;

/* Programs for GPUs alone: rows of odd width at multiples of 64 elements, and the fusions and
 * operators that the CUDA kernels have besides. */
void weft_compile_for_cuda(weft_compile_spec *s);

/* adamw with common values, one micro-batch: for bench, lower and sim. */
weft_compile_spec weft_compile_spec_default(const char *model, int64_t batch,
                                            int64_t seq);

/* A type that others train in and this compiler does not: what to say about it.  NULL: it is not
 * known either. */
const char *weft_compile_dtype_hint(const char *name);

/* Are activations and weights in use bf16? */
bool weft_compile_is_bf16(const char *dtype);
/* The dtype of a job planned in this precision: "fp32", "bf16" (of any 16 bits) or "fp8". */
const char *weft_compile_dtype_of(const char *precision);
/* Formats of the linear layers' matmuls, as weft_graph_mark_fp8() takes them; NULL: no fp8. */
const char *weft_compile_fp8_formats(const weft_compile_spec *s);

/* Models are the same where their names and sources are. */
bool weft_compile_spec_equal(const weft_compile_spec *a, const weft_compile_spec *b);

/* What all programs of a job share.  Nothing changes it: any number of threads may read it. */
typedef struct weft_training {
    weft_compile_spec spec;  /* as given; what it points to outlives the training */
    weft_model       *model; /* of one micro-batch, with its loss */
    weft_graph       *graph; /* of a step, before it is sharded */
} weft_training;

weft_status weft_compile_training(const weft_compile_spec *s, weft_training *out);
/* Was it built for this? */
bool weft_training_is_for(const weft_training *t, const weft_compile_spec *s);
/* t, where micro_batch and lanes of a plan are t's; else *own, made like t but for these two, the
 * caller's to fini. */
weft_status weft_compile_training_of(const weft_training *t, const weft_plan_of *of,
                                     weft_training *own, const weft_training **out);
int64_t     weft_training_bytes(const weft_training *t);
void        weft_training_fini(weft_training *t); /* a zeroed one is fine */

/* The program of one rank.  model and graph are borrowed: of the training, or of whoever loaded
 * the model. */
typedef struct weft_compiled {
    const weft_model *model;
    const weft_graph *graph; /* what was sharded and lowered */
    weft_graph    *forward;  /* the graph where it was made here: evaluation; else NULL */
    weft_sharding *sharding; /* of graph's values; NULL: every rank has whole values */
    int            place;    /* of this rank in its mesh */
    int            n_standby; /* replicas that every rank's state has on others */
    weft_program  *program;
} weft_compiled;

/* A strategy and what it means for this model.  of.batch, seq, micro_batch, lanes are the
 * training's, and recompute is in both.  world 0: as many ranks as it takes. */
weft_status weft_compile_plan(const weft_training *t, const weft_strategy *y, int world,
                              weft_plan **out);
/* The same with the layers of each of the pp * chunks stages; NULL: cut by flops. */
weft_status weft_compile_plan_layers(const weft_training *t, const weft_strategy *y,
                                     const int *layers, int world, weft_plan **out);
/* Layers that stages are cut between, of the training graph: their first nodes in node[], in a;
 * behind those one number more, where the last layer ends.  What is before the first goes with
 * it, and what is behind the last one. */
weft_status weft_compile_layers(const weft_training *t, weft_arena *a, int *n,
                                int **node);
/* auto is invariant: only the planner makes fixed of it. */
weft_reduction weft_compile_reduction(const weft_compile_spec *s);
/* What a plan must be for to fit; of->model borrows the training's. */
void weft_compile_plan_of(const weft_training *t, weft_plan_of *of);

/* Which part of a parameter or state this program's rank has. */
weft_status weft_compiled_part_of(const weft_compiled *c, const char *name, weft_arena *a,
                                  weft_part *out);

/* Which part of its value after a step this rank computes, where ranks compute parts and gather the
 * rest (ZeRO 1 and 2); an empty one where they do not. */
weft_status weft_compiled_computed_part_of(const weft_compiled *c, const char *name,
                                           weft_arena *a, weft_part *out);

/* The same of what it holds for the k-th of the ranks whose standby replicas it has. */
weft_status weft_compiled_standby_part_of(const weft_compiled *c, int k, const char *name,
                                          weft_arena *a, weft_part *out);

/* A training step of one rank of a plan, which is borrowed for the call; plan NULL: one rank. */
weft_status weft_compile_program(const weft_training *t, const weft_plan *plan, int rank,
                                 weft_compiled *out);

#define WEFT_COMPILE_EVAL_TAG (1 << 21) /* what its messages' tags begin with */
/* Forward without dropout, the loss summed over the step's micro-batches ("eval.loss").  m: of
 * weft_compile_model() or a training; outlives out.  beside: the training program of the same
 * rank, whose parameters it shares: they are sharded alike, or it is refused; NULL: none. */
weft_status weft_compile_eval(const weft_compile_spec *s, const weft_model *m,
                              const weft_plan *plan, int rank,
                              const weft_compiled *beside, weft_compiled *out);
/* Forward on one rank, logits out.  m: of weft_compile_logits_model(); outlives out. */
weft_status weft_compile_logits(const weft_compile_spec *s, const weft_model *m,
                                weft_compiled *out);

/* Only the model, of one micro-batch: with its loss; without one and without dropout. */
weft_status weft_compile_model(const weft_compile_spec *s, weft_model **out);
weft_status weft_compile_logits_model(const weft_compile_spec *s, weft_model **out);

/* What a program holds as long as it is there, without what it borrows. */
int64_t weft_compiled_bytes(const weft_compiled *c);

void weft_compiled_fini(weft_compiled *c); /* a zeroed one is fine */

#endif
