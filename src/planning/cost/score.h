/* The planner's fast path: a step composed from rows.
 * For each layer class under each variant (how a layer is cut over devices, at what micro-batch,
 * with what recomputation) on each device kind one row is filled, once, from its operator
 * instances by the prices of op.h and fabric.h.  A point picks a variant and lays the layers out
 * over stages, replicas and time; its score is
 * arithmetic over rows: no allocation, no graph, no formula about any operator.
 *
 *     weft_cost_score s;
 *     weft_cost_point p = {.variant = 3, .pp = 8, .dp = 4, .chunks = 1, .n_micro = 64, .zero = 1};
 *     weft_cost_score_point(table, &p, &s);
 *     if (s.mem_bytes <= s.mem_limit) printf("%g s\n", s.step_s);
 *
 * (1) Layers come in order: first (with the input side; class table->first), the segments, last
 *     (the head; class table->last).  Stages are cut between layers of the segments.
 * (2) Ranks are dealt tp fastest, then cp, dp, pp.
 * (3) Of a stage of several device kinds the slowest sets the pace and the fullest the memory. */
#ifndef WEFT_COST_SCORE_H
#define WEFT_COST_SCORE_H

#include "cost/constants.h"
#include "cost/op.h"

typedef enum weft_cost_recompute {
    WEFT_RECOMPUTE_NONE,
    WEFT_RECOMPUTE_SELECTIVE, /* what is marked core */
    WEFT_RECOMPUTE_FULL,      /* all but the layer's input */
    WEFT_RECOMPUTE_LIGHT,     /* what is marked core or light */
    WEFT_RECOMPUTE_N
} weft_cost_recompute;

const char *weft_cost_recompute_name(int r); /* "none" */

typedef enum weft_cost_schedule {
    WEFT_COST_1F1B, /* interleaved where chunks > 1 */
    WEFT_COST_GPIPE,
    WEFT_COST_ZERO_BUBBLE,
} weft_cost_schedule;

/* ---- filling ---- */

typedef enum weft_cost_phase {
    WEFT_COST_FORWARD,
    WEFT_COST_BACKWARD,
    WEFT_COST_N_PHASE
} weft_cost_phase;

typedef enum weft_cost_axis {
    WEFT_COST_TP,
    WEFT_COST_CP,
    WEFT_COST_EP,
    WEFT_COST_N_TRAFFIC
} weft_cost_axis;

/* One operator instance or collective of a layer. */
typedef struct weft_cost_item {
    weft_cost_phase phase;
    bool         core; /* run again under selective recomputation, its results not kept */
    bool         light;   /* the same under light recomputation */
    bool         routing; /* issued by the engine's routing code */
    bool         is_collective;
    double       n_launch;   /* operators that the host issues for it */
    double       keep_bytes; /* kept from forward to backward */
    weft_cost_op op;
    /* a collective */
    weft_collective coll;
    weft_cost_axis  traffic;
    weft_cost_group group;
    double          bytes;
    double copies; /* of bytes, so many are one value for several ranks; 0: none */
} weft_cost_item;

/* Collectives alike but for their sizes: how many, and the bytes of what they make or sum, whole.
 * Of those of the update
 * several may be one: parts of a call add up over layers. */
typedef struct weft_cost_calls {
    double n, bytes;
    /* instead of n where a step has one micro-batch and one stage; of what is gathered in each
     * micro-batch, where it has one stage */
    double once;
} weft_cost_calls;

/* Whom a collective over replicas takes besides: nobody, those with other parts of a sequence,
 * all places. */
typedef enum weft_cost_over {
    WEFT_COST_OVER_DP,
    WEFT_COST_OVER_CP,
    WEFT_COST_OVER_ALL,
    WEFT_COST_N_OVER
} weft_cost_over;

/* once + part / replicas. */
typedef struct weft_cost_share {
    double once, part;
} weft_cost_share;

/* A layer's update, and what its replicas say to each other, under one way to share its states.
 * Doubles only. */
typedef struct weft_cost_sharing {
    weft_cost_calls sum[WEFT_COST_N_OVER], scatter[WEFT_COST_N_OVER]; /* once a step */
    weft_cost_calls tell[WEFT_COST_N_OVER];   /* gathers before all ranks meet */
    weft_cost_calls gather[WEFT_COST_N_OVER]; /* of what was updated, once a step */
    /* of what is kept in parts, in each micro-batch: forward, backward */
    weft_cost_calls fetch[2];
    double          fetch_s[2]; /* of 2, 4, 8 .. replicas, where links were timed */
    double          more_s[2]; /* in each micro-batch more than one replica alone takes */
    /* the rest of the update, up to where all ranks meet (clipping) */
    weft_cost_share before_s;
    weft_cost_share after_s; /* and from there on */
    weft_cost_share state;   /* bytes of parameters and states */
    weft_cost_share tied;    /* of these: on the first stage too */
    weft_cost_share update;  /* bytes that live in the update alone, at its fullest */
} weft_cost_sharing;

/* Which dimension of a state is dealt depends on how many replicas there are: up to 2, 4, 8, 16,
 * and more. */
enum {
    WEFT_COST_N_REPLICAS = 5
};

typedef enum weft_cost_shares {
    WEFT_COST_ALONE, /* one replica */
    WEFT_COST_WHOLE, /* zero 0 */
    WEFT_COST_STATES, /* zero 1 and 2, the same of our programs; one for each number of replicas */
    WEFT_COST_PARAMS   = WEFT_COST_STATES + WEFT_COST_N_REPLICAS, /* zero 3 */
    WEFT_COST_N_SHARES = WEFT_COST_PARAMS + WEFT_COST_N_REPLICAS
} weft_cost_shares;

/* More or less where a stage ends behind a layer, or begins there: what is fused, or made again,
 * across the seam. */
typedef struct weft_cost_seam {
    double fwd_s, bwd_s, weight_s, comm_s;
    double keep_bytes; /* from forward to backward */
} weft_cost_seam;

/* What a layer's program says beside. */
typedef struct weft_cost_program_row {
    double weight_s;   /* of bwd_s: what only gives sums over micro-batches */
    double sum_bytes;  /* of these sums */
    double tied_bytes; /* of these: summed on the first stage too */
    double n_met;      /* values that ranks of a pipeline give each other in the update */
    double meet_s; /* what each of them makes of all these; in after_s of the last one */
    double weight_bytes; /* of keep_bytes: wanted by what only gives sums */
    double back_bytes;   /* made in the backward pass, wanted by what only gives sums */
    double merge_s;      /* adding the sums of two lanes */
    /* samples; of these: wanted in the backward pass */
    double read_bytes, read_keep_bytes;
    double back_out_bytes; /* from the next layer, in the backward pass */
    /* at most at once while the layer runs, above what earlier ones keep */
    double peak_bytes;
    double split_bytes;   /* work_bytes where the backward pass is run in two parts */
    double fetched_bytes; /* zero 3: so much more while the layer runs */
    double grad_bytes;    /* the largest of its sums */
    /* of the stage that ends with the layer, that begins after it */
    weft_cost_seam    end, begin;
    weft_cost_sharing share[WEFT_COST_N_SHARES];
} weft_cost_program_row;

/* What one layer costs one device for one micro-batch. */
typedef struct weft_cost_row {
    double fwd_s, bwd_s; /* all that is waited for, recomputation in bwd_s */
    double again_s;      /* of bwd_s: running the forward pass again */
    double comm_s;       /* of both: waiting for wires */
    double host_s;       /* of both: waiting for the host */
    double keep_bytes;   /* activations kept from forward to backward */
    /* the same, of engines that keep them whole in a single stage */
    double gathered_bytes;
    double work_bytes; /* live only while the layer runs backward */
    /* parameters on this device; the latter have other replicas */
    double n_param, n_expert_param;
    double out_bytes;                       /* to the next stage */
    double wire_bytes[WEFT_COST_N_TRAFFIC]; /* that a device sends, by whom it is for */
    /* of rows that come from programs: the model's; else NULL */
    weft_cost_program_row *of;
} weft_cost_row;

typedef struct weft_cost_layer {
    int                   n_item;
    const weft_cost_item *item;
    double                in_bytes; /* what full recomputation keeps */
    double                n_param, n_expert_param;
    double                out_bytes;
    double gathered; /* values that every rank of a split layer gathers whole */
} weft_cost_layer;

void weft_cost_fill(const weft_cost_layer *l, weft_cost_recompute recompute,
                    bool tp_overlap, const weft_device_kind *d, const weft_cost_fabric *f,
                    const weft_cost_engine *e, weft_cost_row *out);

/* ---- table and points ---- */

typedef struct weft_cost_variant {
    int                 tp, cp, ep;
    bool                sp;
    int                 micro_batch; /* sequences */
    weft_cost_recompute recompute;
    /* which layers tp leaves whole, cutting their samples: a number of the model's; 0 none */
    int whole;
} weft_cost_variant;

typedef struct weft_cost_segment {
    int layer_class;
    int count;
} weft_cost_segment;

enum {
    WEFT_COST_MAX_DEVICE = 8
};

typedef struct weft_cost_table {
    int n_class, first, last; /* first, last: -1 where there is none */
    int n_segment;
    const weft_cost_segment *segment;
    int                      n_variant;
    const weft_cost_variant *variant;
    int                      n_device;
    const weft_device_kind  *device; /* at most WEFT_COST_MAX_DEVICE */
    const weft_cost_fabric  *fabric; /* by device kind: of the nodes that hold it */
    const weft_cost_row     *row;    /* [device][variant][class] */
    weft_cost_engine         engine;
    double                   grad_bytes;  /* of a parameter's gradient when summed */
    double                   param_bytes; /* of a parameter when gathered */
    bool                     tied;        /* first and last share their parameters */
    /* ranks along ep have the same micro-batches: a row stands for ep of them */
    bool rounds;
    /* rows come from programs: the update is in them, sums over replicas are a collective for
     * each parameter, behind the pass; messages are waited for where nothing else is to do */
    bool programs;
    /* programs: zero 2 and 3 reduce-scatter gradients in every micro-batch and sum them in shards
     * (reduction: fixed) */
    bool shard_sums;
    int  copies; /* programs: ranks that hold each shard of ZeRO; 0 is 1 */
    int standby; /* programs: replicas of each rank's state on others; below 1: as copies say */
    /* programs: of collectives that share a call (program/coalesce.h); 0: not given */
    int64_t bucket_bytes;
} weft_cost_table;

/* Replicas of one kind of devices each, kind by kind along dp, with lanes of the batch by their
 * speed. */
typedef struct weft_cost_deal {
    int n;        /* kinds; 0: replicas are alike */
    int per_lane; /* micro-batches of a lane */
    int terms;    /* that a replica brings to a sum, at most (base/lanes.h) */
    /* sums that a replica of the kind has open, at most; 0: as aligned lanes do */
    int open[WEFT_COST_MAX_DEVICE];
    int kind[WEFT_COST_MAX_DEVICE];
    int replicas[WEFT_COST_MAX_DEVICE];
    /* of all replicas of the kind: as equal as can be, larger first */
    int lanes[WEFT_COST_MAX_DEVICE];
} weft_cost_deal;

int weft_cost_deal_lanes(const weft_cost_deal *d); /* all of them */
/* Lanes of all replicas together where nobody says: weft_lanes_default(), and more where replicas
 * whose number is no power of two then have more equal numbers of micro-batches, as long as sums
 * that are held besides stay within room_bytes. */
int weft_cost_lanes(int replicas, int micro, double sum_bytes, double room_bytes);
/* Micro-batches of the replica that has most. */
int weft_cost_most_micro(int replicas, int lanes, int micro);
/* Terms and open sums of the lanes as they are dealt. */
void weft_cost_deal_count(weft_cost_deal *d);
/* The lanes of replica i, and its place in kind[]; kind may be NULL. */
int weft_cost_deal_share(const weft_cost_deal *d, int i, int *kind);

typedef struct weft_cost_point {
    int variant;
    int dp, pp;
    int chunks;  /* of a stage, interleaved; 1: none */
    int n_micro; /* micro-batches of a replica in a step */
    /* of a replica, whose sums stay apart; 0: as many as plans have where nobody says */
    int lanes;
    int open;  /* sums of these lanes at once; 0: as many as lanes of one subtree have */
    int terms; /* that a replica brings to a sum, at most; 0: one */
    int zero;  /* 0 to 3 */
    int zero_group; /* ranks that share states; 0: dp * cp */
    weft_cost_schedule schedule;
    const uint16_t    *cut;     /* layers of each stage; NULL: as even as can be */
    const uint8_t     *kinds;   /* device kinds of each stage as bits; NULL: kind 0 */
    int                only;    /* instead: all stages are on kind only - 1; 0: not so */
    int                only_dp; /* with only: replicas on that kind; 0: all */
    int reach; /* device kinds that groups over replicas extend over, as bits; 0: the stage's */
    /* n > 0: kinds, n_micro and lanes are said here, the slowest kind counts */
    weft_cost_deal deal;
    bool           dp_overlap; /* gradient sums run beside the backward pass */
    int            n_again,
        /* n_again > 0: only so many layers of a stage are as variant says, the others as rest */
        rest;
} weft_cost_point;

typedef struct weft_cost_score {
    double step_s;
    double mem_bytes, mem_limit; /* of the tightest device */
    /* at most, where the host runs ahead of the device and frees late */
    double late_bytes;
    int    tightest; /* its stage */
    /* what step_s is made of */
    double compute_s, comm_s, host_s, again_s; /* of the slowest stage's micro-batches */
    double bubble_s, p2p_s, dp_s, optimizer_s, fixed_s;
    /* what mem_bytes is made of */
    double weight_bytes, state_bytes, keep_bytes, work_bytes, engine_bytes;
} weft_cost_score;

void weft_cost_score_point(const weft_cost_table *t, const weft_cost_point *p,
                           weft_cost_score *out);

/* One stage of a point: a micro-batch on the device kind that sets its pace, memory on the one
 * that it fills most. */
typedef struct weft_cost_stage {
    int    n_layer, device, mem_device;
    double fwd_s, bwd_s;                               /* of a micro-batch */
    double again_s, comm_s, host_s;                    /* of both */
    double dp_s, optimizer_s;                          /* of a step */
    double n_param;                                    /* on a device, experts too */
    double out_bytes, wire_bytes[WEFT_COST_N_TRAFFIC]; /* of a micro-batch */
    double mem_bytes, mem_limit;
    /* what mem_bytes is made of */
    double weight_bytes, grad_bytes, state_bytes, keep_bytes, work_bytes, engine_bytes;
} weft_cost_stage;

/* out: p->pp of them. */
void weft_cost_score_stages(const weft_cost_table *t, const weft_cost_point *p,
                            weft_cost_stage *out);

/* By how much a stage s of n layers from layer `from` on is too full (below 0: not); p's cut does
 * not count. */
double weft_cost_stage_over(const weft_cost_table *t, const weft_cost_point *p, int s,
                            int from, int n);

/* No score of p under any cut is below the sum of these where the slowest stage takes slow_s a
 * micro-batch and all together sum_s at least.  The second: what gradients, weights and the
 * optimizer take when no stage holds more than its share of the parameters and all that can hide
 * is hidden; chunks and schedules do not change it. */
double weft_cost_floor(const weft_cost_table *t, const weft_cost_point *p, double slow_s,
                       double sum_s);
double weft_cost_floor_param(const weft_cost_table *t, const weft_cost_point *p);

/* Layers of stage s when n are dealt as evenly as can be to pp stages: the ends get fewer. */
int weft_cost_even_cut(int n, int pp, int s);

/* What a score is made of, in words for people: seconds, then bytes. */
typedef struct weft_cost_part {
    const char *name;
    double      x;
} weft_cost_part;

enum {
    WEFT_COST_N_TIME   = 9,
    WEFT_COST_N_MEMORY = 5
};

void weft_cost_time_parts(const weft_cost_score *s, weft_cost_part out[WEFT_COST_N_TIME]);
void weft_cost_memory_parts(const weft_cost_score *s,
                            weft_cost_part         out[WEFT_COST_N_MEMORY]);

#endif
