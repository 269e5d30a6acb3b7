/* Inside rows*.c. */
#ifndef WEFT_PLANNER_ROWS_PRIV_H
#define WEFT_PLANNER_ROWS_PRIV_H

#include "lower/lower.h"
#include "partition/partition.h"
#include "partition/passes.h"
#include "planner/rows.h"
#include "spmd/spmd.h"

enum {
    WEFT_PLANNER__KEEP = 3 /* layers of a run: a first, a last and one like all between */
};

/* The rows of one variant on one kind of device: the input side, each layer that is kept, the
 * head. */
typedef struct weft_planner__filled {
    weft_cost_variant v;
    int               kind;
    bool              failed, shared; /* shared: its shares are there too */
    weft_cost_row    *row;
    weft_cost_row    *seen[2]; /* by class, as searches have them: without shares, with */
    struct weft_planner__filled *next;
} weft_planner__filled;

/* A training graph of few layers. */
typedef struct weft_planner__short {
    int                         micro_batch, layers, longer, more;
    weft_cost_recompute         recompute;
    weft_training               t;
    weft_arena                 *a;
    int                         n_layer, *node; /* weft_compile_layers */
    struct weft_planner__short *next;
} weft_planner__short;

typedef struct weft_planner__kind {
    const weft_device_kind *device;
    const weft_host_kind   *node;
    double                  speed;
    int                     rank;   /* the first of them */
    weft_cost_fabric        fabric; /* its links, to tell kinds of one device apart */
} weft_planner__kind;

/* rows_machines.c: the links of the devices from `first` on, of a job of so many ranks. */
weft_status weft_planner__read_links(const weft_cluster *c, int world, int first,
                                     weft_cost_fabric *f);

/* Updates of replicas under a variant (its micro-batch does not count) on a kind of device. */
typedef struct weft_planner__shared {
    weft_cost_variant v;
    int               kind;
    /* as row[] of weft_planner__price: shares, fetched bytes */
    weft_cost_program_row *of;
    /* of each row: by how much zero 3's more_s grow with each sequence */
    double (*more_s)[2];
    struct weft_planner__shared *next;
} weft_planner__shared;

typedef struct weft_planner__allowed {
    weft_cost_variant             v;
    const char                   *why; /* "": yes */
    struct weft_planner__allowed *next;
} weft_planner__allowed;

typedef struct weft_planner__rows {
    weft_compile_spec   s;
    const weft_cluster *c;
    weft_arena         *a;
    weft_search_limits  limits;
    int                 world;
    int64_t             bucket_bytes; /* of the plans; 0: not given */
    int                 n_kind;
    weft_planner__kind *kind;
    int                 n_run;
    weft_graph_layers  *run;     /* of the whole model */
    int                 n_short; /* layers in the short one */
    bool each; /* layers alternate under tp: a class for each that is looked at */
    int  n_class;
    int *layer; /* [class]: which of the short one's layers; first, last: -1 */
    weft_planner__filled  *filled;
    weft_planner__short   *shorts;
    weft_planner__shared  *shared;
    weft_planner__allowed *allowed;
    int                    n_whole;        /* as the search's */
    uint32_t whole[WEFT_SEARCH_MAX_WHOLE]; /* bits: the input side, runs, the head */
    bool tied; /* set when rows are filled: the input side's parameter is the head's */
    bool looked[3], seams[3], grows[3]; /* by recomputation: rows_seam.c */
    weft_cost_program_row never;        /* of cuts that cannot be made: fits nowhere */
} weft_planner__rows;

/* The step of a short model as replica 0 of dp runs it: its graph, cut and lowered, layers told
 * apart. */
typedef struct weft_planner__pricer {
    weft_planner__rows      *x;
    const weft_cost_variant *v;
    int                      kind, dp, zero;
    int longer, more; /* 1 + the run of which more layers are looked at; 0: none */
    weft_arena          *a;
    weft_planner__short *s;
    weft_sharding       *sharding;
    weft_local_graph    *local;
    const weft_graph    *g; /* what is lowered: the place's, or the whole */
    weft_segment        *seg;
    int                 *stage;  /* [node of g]: 0 the input side, 1.. layers; -1 */
    bool                *weight; /* [node of g] */
    bool          *late; /* [node of g]: behind where all ranks meet in the update */
    bool          *own;  /* [node of g]: of the update, about a parameter */
    weft_program   p;    /* of ranks and groups alone */
    int            n_stage;
    weft_cost_row *row; /* [n_stage] */
} weft_planner__pricer;

/* Rows that are nothing yet; NULL: no memory.  A copy has a program's row of its own. */
weft_cost_row *weft_planner__new_rows(weft_arena *a, int n);
void           weft_planner__copy_row(weft_cost_row *to, const weft_cost_row *from);

weft_status weft_planner__pricer_open(weft_planner__pricer *z);
void        weft_planner__pricer_close(weft_planner__pricer *z);
/* The layer of an instruction; what belongs to none goes with the head. */
int weft_planner__layer_of(const weft_planner__pricer *z, int instr);

/* What the program of a layer says besides its row. */
typedef struct weft_planner__facts {
    double            fwd_s, bwd_s, before_s, after_s; /* nothing over replicas in them */
    double            state, tied, update, peak;       /* bytes; see weft_cost_sharing */
    weft_cost_sharing calls;                           /* over replicas: calls alone */
} weft_planner__facts;

/* of[] is n_stage long, and zeroed. */
weft_status weft_planner__find_facts(weft_planner__pricer *z, weft_planner__facts *of);
/* rows_memory.c: rows' activations; bytes of states and of the update */
weft_status weft_planner__add_memory(weft_planner__pricer *z);
weft_status weft_planner__find_states(weft_planner__pricer *z, weft_planner__facts *of);
weft_status weft_planner__add_merges(weft_planner__pricer *z);
/* Whom besides replicas a collective takes; N_OVER: it is none over replicas. */
weft_cost_over weft_planner__over(const weft_planner__pricer *z, const weft_instr *i);
/* Bytes of what a collective makes or sums, whole. */
double weft_planner__call_bytes(const weft_planner__pricer *z, const weft_instr *c);
/* rows_meet.c: calls of the update, as often as replicas meet */
weft_status weft_planner__add_meetings(weft_planner__pricer *z, weft_planner__facts *of);
/* Whole values on every rank: the calls that a layer's sums over micro-batches are, in buckets of
 * bucket_bytes; where that is not given 0, as all are one. */
double weft_planner__whole_calls(const weft_planner__pricer *z, int layer);
/* rows_share.c */
weft_status weft_planner__share(weft_planner__rows *x, const weft_cost_variant *v,
                                int kind, const weft_planner__shared **out);

/* rows_seam.c: what stages that end or begin at a layer have more; what grows with the number of
 * layers */
weft_status weft_planner__add_seams(weft_planner__pricer *z);
weft_status weft_planner__add_growth(weft_planner__pricer *z);
/* Seconds of the two passes alone. */
weft_status weft_planner__add_seconds(weft_planner__pricer *z);

/* The graph of few layers, of run longer - 1 so many more, for a micro-batch and a recomputation,
 * made when first asked for. */
weft_status weft_planner__short_of(weft_planner__rows *x, int longer, int more,
                                   int micro_batch, weft_cost_recompute r,
                                   weft_planner__short **out);
/* Mesh and marks of a variant, of dp replicas and with states shared as zero says, on a short
 * model; in a. */
weft_status weft_planner__expand(const weft_planner__rows *x, const weft_cost_variant *v,
                                 int dp, int zero, const weft_planner__short *s,
                                 weft_arena *a, weft_shard_options *out);
/* rows_whole.c: sets of layers that may stay whole; the layers of a set, of runs of such lengths.
 */
weft_status weft_planner__list_whole(weft_planner__rows *x, weft_search_model *m);
void        weft_planner__whole_spans(const weft_planner__rows *x, uint32_t kinds,
                                      const weft_graph_layers *run, weft_strategy *out);
/* row[0] the input side, row[1 ..] the layers, then the head, on devices of kind k; row is new. */
weft_status weft_planner__price(weft_planner__rows *x, const weft_cost_variant *v, int k,
                                weft_cost_row *row);
/* What replicas say to each other, into rows that were priced. */
weft_status weft_planner__price_shares(weft_planner__rows *x, const weft_cost_variant *v,
                                       int k, weft_cost_row *row);

#endif
