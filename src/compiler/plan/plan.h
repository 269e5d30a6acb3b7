/* A plan: one choice of mesh, marks, stages and schedule for one job.  Read-only once made.
 *
 *     weft_plan *p;
 *     WEFT_TRY(weft_plan_load("plan.json", &p));
 *     WEFT_GO(weft_plan_check(p, "plan.json", &of, world));
 *     ...
 *     weft_plan_destroy(p);
 *
 * The mesh is that of one stage; all stages have alike ones.  Rank = stage * places + place,
 * places counted by the axes as written, the last one fastest.  Text form: JSON, versioned,
 * parse(print(p)) == p.
 *
 * Always true (weft_plan_verify): axes differ; stages are as many as pp * chunks and only the
 * first has no first value; the schedule exists; every mark is of the mesh; lanes is a power of
 * two that the lane axis does not exceed, and all of it is shared out; micro_batch divides batch.
 */
#ifndef WEFT_PLAN_PLAN_H
#define WEFT_PLAN_PLAN_H

#include "shard/shard.h"

#define WEFT_PLAN_VERSION 2
/* Bytes of a bucket between hosts, where nobody says otherwise: as DistributedDataParallel's. */
#define WEFT_PLAN_BUCKET (25 << 20)

/* What the plan is for: a run refuses one that is for something else. */
typedef struct weft_plan_of {
    const char    *model;      /* its name, for messages */
    uint64_t       graph_hash; /* of the model's graph for one micro-batch */
    const char    *kernels;    /* the kernel set's id; NULL: any */
    const char    *dtype;      /* of compute: "fp32", "bf16"; NULL: any */
    int64_t        batch, seq, micro_batch, lanes; /* seq 0: samples are no sequences */
    weft_reduction reduction;
} weft_plan_of;

/* The machines it was made for.  A run refuses another shape; other constants are worth a word. */
typedef struct weft_plan_machines {
    const char *name;      /* for messages: "2 x (8 x a100-80g)"; NULL: nothing is said */
    uint64_t    shape;     /* weft_cluster_hash_shape() */
    uint64_t    constants; /* weft_cluster_hash_constants() */
    int         n_device;  /* 0: rank r has device r; else the number of ranks */
    int        *device;
} weft_plan_machines;

/* A step of the busiest rank, second by second. */
typedef struct weft_plan_time {
    double compute_s, update_s;
    double comm_s; /* sums and gathers that compute waits for */
    double idle_s; /* waiting for others: the pipeline's filling, messages */
} weft_plan_time;

/* What is expected of it; nothing here decides a program. */
typedef struct weft_plan_predicted {
    double         step_s;           /* 0: not known */
    double         step_lo, step_hi; /* of 90 %; 0: not known */
    double         bound_s; /* no plan that was looked at is below; 0: not known */
    weft_plan_time time;    /* all 0: not known */
    int            n_mem;   /* 0, or the number of ranks */
    int64_t       *mem_bytes;
    int            n_other; /* plans that lost */
    const char   **other;   /* each with the reason, in words */
} weft_plan_predicted;

typedef struct weft_plan {
    weft_arena    *arena;
    weft_plan_of   of;
    int            n_axis;
    weft_mesh_axis axis[WEFT_MAX_AXIS];
    int lane_axis; /* whose sums are taken behind `accumulate`, in the lanes' tree; -1 none */
    int32_t     *share; /* lanes of each position along it (base/lanes.h); NULL: equal */
    const char **first; /* of each stage, the first value it makes; of stage 0 NULL */
    /* pp, chunks, schedule, recompute and overlaps as they run; of the other keys the mesh, share
     * and marks are what counts.  bucket_bytes is at least 0 */
    weft_strategy       strategy;
    int                 n_mark;
    weft_mark          *mark; /* by name */
    weft_plan_machines  machines;
    weft_plan_predicted predicted;
} weft_plan;

/* WEFT_ERR_ARG with file and line. */
weft_status weft_plan_parse(const char *file, const char *text, size_t n,
                            weft_plan **out);
weft_status weft_plan_load(const char *path, weft_plan **out);
weft_status weft_plan_print(const weft_plan *p, weft_text *t);
weft_status weft_plan_verify(const weft_plan *p);
/* Does all of a that its text has say the same in b?  Then the two texts are the same. */
bool weft_plan_equal(const weft_plan *a, const weft_plan *b);
/* A plan of its own: it shares nothing with p and outlives it.  WEFT_ERR_MEM: *out is as it was. */
weft_status weft_plan_copy(const weft_plan *p, weft_plan **out);
void        weft_plan_destroy(weft_plan *p); /* accepts NULL */

int weft_plan_places(const weft_plan *p);     /* ranks of a stage */
int weft_plan_world(const weft_plan *p);      /* ranks */
int weft_plan_lane_ranks(const weft_plan *p); /* the lane axis' size; 1 without */
int weft_plan_copies(const weft_plan *p); /* ranks along it that hold the same shards */
/* Replicas that every rank's state has on other ranks (partition/standby.c), or its share of them
 * (weft_strategy_sharers): 0 where replicas of data or context parallelism are the copies. */
int weft_plan_n_standby(const weft_plan *p);

/* Is it for this?  want.kernels and want.dtype NULL are not compared.  WEFT_ERR_ARG names what
 * differs; where: the file. */
weft_status weft_plan_check(const weft_plan *p, const char *where,
                            const weft_plan_of *want, int world);

/* Is it for these machines?  have: what is here, n_device how many.  WEFT_ERR_ARG names what
 * differs; *warn: other constants than it was made with.  A plan that names no machines is for
 * all. */
weft_status weft_plan_check_machines(const weft_plan *p, const char *where,
                                     const weft_plan_machines *have, bool *warn);

/* What a plan is made of. */
typedef struct weft_plan_input {
    weft_strategy strategy;
    weft_plan_of  of;
    /* first nodes of stages 1, 2, ... of the graph; pp * chunks - 1 of them */
    const int               *cut;
    const weft_shard_layers *layers; /* for tp_exclude; NULL: found */
} weft_plan_input;

/* g: the training graph that will be partitioned, batch of all lanes' ranks wide.  world 0: as
 * many ranks as it takes. */
weft_status weft_plan_make(const weft_plan_input *w, const weft_graph *g, int world,
                           weft_plan **out);

/* Stages on a graph: cut[0 .. pp * chunks - 2], the first nodes of stages 1, 2, ...
 * WEFT_ERR_ARG: a value that the graph has not. */
weft_status weft_plan_cuts(const weft_plan *p, const weft_graph *g, int *cut);
/* WEFT_ERR_ARG: a mark on nothing, or on a value of other dimensions. */
weft_status weft_plan_check_marks(const weft_plan *p, const weft_graph *g);
/* Mesh and marks on a graph, as propagation takes them: one mesh of ranks 0 .. places - 1, which
 * stands for every stage's.  With copies the lane axis is two axes of it
 * (weft_shard_split_lanes).  Everything in a.  WEFT_ERR_ARG: a mark on nothing. */
weft_status weft_plan_shard(const weft_plan *p, const weft_graph *g, weft_arena *a,
                            weft_shard_options *out);
/* True when nothing but dimension 0 of inputs is cut, and that by the lane axis alone (other axes
 * being of size 1): every rank then has whole values, and the graph of one micro-batch is each
 * rank's. */
bool weft_plan_lanes_only(const weft_plan *p, const weft_graph *g);

#endif
