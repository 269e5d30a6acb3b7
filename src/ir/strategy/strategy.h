/* A strategy: how the ranks of a job share its work.  One table, strategy.def, has a row for each
 * key; reading, printing, comparing and help loop over it.
 *
 *     weft_strategy s;
 *     WEFT_TRY(weft_strategy_parse("dp=2 tp=2 pp=2 zero=1", &s));
 *     weft_strategy_world(&s)                  8 ranks
 *
 * A plain value: copied by assignment, it owns nothing.  Axes of the mesh are those whose size is
 * not 0; rank = stage * (ranks of a stage) + coordinate, the last axis of the order fastest. */
#ifndef WEFT_STRATEGY_STRATEGY_H
#define WEFT_STRATEGY_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/doc.h"
#include "base/text.h"
#include "strategy/recompute.h"

enum {
    WEFT_MAX_BATCH_RUN = 64, /* in a job; a plan file may have more */
    WEFT_MAX_SPAN      = 16,
    WEFT_MAX_STANDBY   = 3,  /* a rank holds replicas for so many others: a stream each */
    WEFT_SPAN_INPUT    = -1, /* what is before the first layer */
    WEFT_SPAN_HEAD     = 1 << 20 /* what is after the last one */
};

/* Layers first .. last of a model. */
typedef struct weft_layer_span {
    int32_t first, last;
} weft_layer_span;

/* So many ranks next to each other along dp, each with so many lanes. */
typedef struct weft_batch_run {
    int32_t ranks, lanes;
} weft_batch_run;

/* Axes of a mesh in the default order. */
typedef enum weft_strategy_axis {
    WEFT_AXIS_DP,
    WEFT_AXIS_CP,
    WEFT_AXIS_EP,
    WEFT_AXIS_TP,
    WEFT_N_STRATEGY_AXIS,
} weft_strategy_axis;

/* In which order gradients are summed: the same bits for any number of data-parallel ranks, or
 * for the same plan alone.  auto: as weft_reduction_on() says, and fixed where the planner finds
 * nothing else that fits; a plan has one of the other two. */
typedef enum weft_reduction {
    WEFT_REDUCTION_INVARIANT,
    WEFT_REDUCTION_FIXED,
    WEFT_REDUCTION_AUTO,
} weft_reduction;

const char *weft_reduction_name(weft_reduction r);
/* -1: it is none of them. */
int weft_reduction_parse(const char *name);
/* What r is on so many CPUs and GPUs; only auto depends on them.  The one owner of the rule: auto
 * is fixed on more than one GPU and on unlike kinds of devices, invariant elsewhere. */
weft_reduction weft_reduction_on(weft_reduction r, int n_cpu, int n_gpu);

/* Words of the rows, in their order. */
typedef enum weft_strategy_cp_comm {
    WEFT_CP_GATHER,
    WEFT_CP_RING,
} weft_strategy_cp_comm;

typedef enum weft_strategy_schedule {
    WEFT_STRATEGY_1F1B,
    WEFT_STRATEGY_GPIPE,
    WEFT_STRATEGY_ZB_H1,
    WEFT_STRATEGY_INTERLEAVED,
} weft_strategy_schedule;

typedef enum weft_strategy_offload {
    WEFT_OFFLOAD_NONE,
    WEFT_OFFLOAD_OPTIMIZER,
} weft_strategy_offload;

typedef struct weft_strategy {
    int  dp, tp, cp, ep; /* 0: no such axis */
    int  pp, chunks;     /* pipeline ranks, stages of each */
    int  zero;           /* 0 to 3 */
    int  copies;         /* of each shard; with zero */
    int  standby;        /* replicas of each part on other ranks; -1: as copies needs */
    int  overlap_param_gather; /* percent of the parameters; with zero 1 and 2 */
    bool sp;
    /* of the enumerations above; recompute.h */
    int     cp_comm, schedule, recompute, offload;
    int64_t bucket_bytes; /* -1: chosen at the start */
    int     n_mesh_order; /* 0: the default order */
    uint8_t mesh_order[WEFT_N_STRATEGY_AXIS];
    /* lanes of each rank along dp, as runs whose neighbours differ; 0: equal */
    int             n_batch_split;
    weft_batch_run  batch_split[WEFT_MAX_BATCH_RUN];
    int             n_tp_exclude;
    weft_layer_span tp_exclude[WEFT_MAX_SPAN];
} weft_strategy;

typedef enum weft_strategy_kind {
    WEFT_STRATEGY_INT,
    WEFT_STRATEGY_FRACTION,
    WEFT_STRATEGY_BOOL,
    WEFT_STRATEGY_WORD,
    WEFT_STRATEGY_BYTES,
    WEFT_STRATEGY_ORDER,
    WEFT_STRATEGY_SPLIT,
    WEFT_STRATEGY_LAYERS,
} weft_strategy_kind;

typedef struct weft_strategy_row {
    const char        *key;
    weft_strategy_kind kind;
    size_t             at; /* offset of the field */
    int64_t            min, max;
    const char        *words, *def, *help;
} weft_strategy_row;

extern const weft_strategy_row weft_strategy_rows[];
extern const int               weft_strategy_n_row;

/* A row by number: weft_strategy_rows[WEFT_KEY_dp] is that of "dp". */
typedef enum weft_strategy_key {
#define STRATEGY(key, kind, min, max, words, def, help) WEFT_KEY_##key,
#include "strategy/strategy.def"
#undef STRATEGY
    WEFT_N_STRATEGY_KEY,
} weft_strategy_key;

/* The value of an INT, FRACTION (percent), BOOL or WORD (its number) row. */
int  weft_strategy_number(const weft_strategy *s, weft_strategy_key key);
void weft_strategy_set_number(weft_strategy *s, weft_strategy_key key, int x);

/* NULL: there is no such key. */
const weft_strategy_row *weft_strategy_find(const char *key);

/* Every key at its default: one rank. */
weft_strategy weft_strategy_default(void);

/* One value of a document; WEFT_ERR_ARG begins with the key. */
weft_status weft_strategy_read(weft_strategy *s, const weft_strategy_row *row,
                               const weft_node *n);
/* "dp=2"; row: of its key, may be NULL. */
weft_status weft_strategy_assign(weft_strategy *s, const char *assignment,
                                 const weft_strategy_row **row);
/* "dp=2 tp=2 zero=1": checked.  Each key at most once, with blanks between. */
weft_status weft_strategy_parse(const char *text, weft_strategy *out);
/* What keys ask of each other: zero of dp, sp of tp, ... */
weft_status weft_strategy_check(const weft_strategy *s);

/* Values other than the default, in the order of the rows; parse() reads them back. */
void weft_strategy_print(const weft_strategy *s, weft_text *t);
/* One value, as in key=value or as JSON (null: nothing). */
void weft_strategy_print_value(const weft_strategy *s, const weft_strategy_row *row,
                               bool json, weft_text *t);
bool weft_strategy_row_equal(const weft_strategy *a, const weft_strategy *b,
                             const weft_strategy_row *row);
bool weft_strategy_equal(const weft_strategy *a, const weft_strategy *b);
bool weft_layer_spans_equal(const weft_layer_span *a, int n, const weft_layer_span *b,
                            int m);

/* Ranks in all; -1: too many. */
int weft_strategy_world(const weft_strategy *s);
/* Ranks along dp that hold the same shards: copies with zero, else 1 (nothing is sharded). */
int weft_strategy_shard_copies(const weft_strategy *s);
/* Ranks that hold the same state without standby replicas: replicas of dp (with zero copies of
 * shards) and cp; *at: which of them the rank is. */
int weft_strategy_sharers(const weft_strategy *s, int rank, int *at);
/* Standby replicas of each part of the state: with dp and cp of 1 copies - 1, else none, or as
 * standby says; fewer where there are fewer ranks.  Sharers hold parts of them each. */
int weft_strategy_n_standby(const weft_strategy *s);
/* The rank that holds the k-th of n standby replicas of a rank, and the one whose k-th it holds:
 * evenly around the ring of ranks, so on other hosts wherever there are enough with equal numbers
 * of ranks. */
int weft_standby_guard(int rank, int world, int n, int k);
int weft_standby_ward(int rank, int world, int n, int k);
/* The fewest hosts that hold any part of the state, by replicas, copies of shards or standby
 * replicas, where ranks are on hosts in their order: host_ranks[k] on the k-th. */
int weft_strategy_state_hosts(const weft_strategy *s, int n_host, const int *host_ranks);
/* Sets standby: to -1 where that has copies on as many hosts (or all there are), else to the fewest
 * with which they are on as many as they can be.  Without copies it stays. */
void weft_strategy_spread(weft_strategy *s, int n_host, const int *host_ranks);
/* The lanes that batch_split needs; 0 without. */
int weft_strategy_lanes(const weft_strategy *s);
/* The ranks that batch_split has lanes for; 0 without. */
int weft_strategy_split_ranks(const weft_strategy *s);
/* The lanes of each of these ranks, one number a rank. */
void weft_strategy_expand_split(const weft_strategy *s, int32_t *lanes);
/* More ranks at its end; false: more than WEFT_MAX_BATCH_RUN runs. */
bool weft_strategy_add_split(weft_strategy *s, int ranks, int lanes);
/* Axes (of weft_strategy_axis) that there are, in order; returns how many. */
int         weft_strategy_axes(const weft_strategy *s, int out[WEFT_N_STRATEGY_AXIS]);
int         weft_strategy_size(const weft_strategy *s, int axis);
const char *weft_strategy_axis_name(int axis);
/* Where the axis is in the order; -1: there is none. */
int weft_strategy_axis_at(const weft_strategy *s, int axis);

/* What a value looks like, for help: "whole number", "gather ring". */
const char *weft_strategy_kind_text(const weft_strategy_row *row);
/* The number of a word of a WORD row; -1: it is none of them. */
int         weft_strategy_word(const char *key, const char *word);
const char *weft_strategy_schedule_name(const weft_strategy *s);
const char *weft_strategy_recompute_name(const weft_strategy *s);

/* "input,0..5,head"; "blocks": all layers between the two. */
weft_status weft_layer_spans_parse(const char *text, weft_layer_span *out, int *n);
void        weft_layer_spans_print(const weft_layer_span *s, int n, weft_text *t);

/* What a key of another program, or of an earlier build, is called here; NULL: not known. */
const char *weft_strategy_hint(const char *key);

#endif
