/* What other engines are told, read and written: a configuration from Megatron-LM's arguments, a
 * DeepSpeed JSON or a torchtitan TOML file; a strategy as such a file.
 *
 *     weft_config c;
 *     weft_engine_open(&c);                                              nothing said yet
 *     WEFT_TRY(weft_engine_read(WEFT_ENGINE_MEGATRON, "arguments", text, n, 64, a, &c, NULL));
 *     weft_engine_plan p;
 *     WEFT_TRY(weft_engine_plan_of(&c, a, &p));
 *     weft_engine_emit(WEFT_ENGINE_MEGATRON, &c, &p, &out);              reads back to the same
 *     plan
 *
 * Only what decides time and memory is read; the rest is named in `ignored`. */
#ifndef WEFT_ENGINE_ENGINE_H
#define WEFT_ENGINE_ENGINE_H

#include "base/arena.h"
#include "base/text.h"
#include "cluster/cluster.h"
#include "cost/constants.h"
#include "cost/score.h"
#include "estimate/hardware.h"
#include "estimate/row.h"
#include "model/model.h"
#include "strategy/strategy.h"

typedef enum weft_engine {
    WEFT_ENGINE_MEGATRON,
    WEFT_ENGINE_DEEPSPEED,
    WEFT_ENGINE_TORCHTITAN,
    WEFT_ENGINE_PADDLE, /* written, not read */
    WEFT_N_ENGINE
} weft_engine;

const char *weft_engine_name(weft_engine e); /* "megatron" */
bool        weft_engine_find(const char *name, weft_engine *out);

/* An engine or release that constants are there for, or one of ours above, or "weft";
 * WEFT_ERR_ARG: all of them. */
weft_status weft_engine_know(const weft_cost_constants *k, const char *name);

/* WEFT_ERR_ARG: the device does no products in 8 or 4 bits. */
weft_status weft_engine_know_precision(const weft_device_kind *d, const char *precision);

/* The same of all that a configuration was read to have: also MX formats, which only some devices
 * with 8 bits have. */
weft_status weft_engine_know_formats(const weft_device_kind *d, const weft_config *c);

/* Keys that were read, decide memory and time, and are not counted: offloading to the host. "a, b"
 */
void weft_engine_put_uncounted(const weft_config *c, weft_text *t);

/* Can the engine ("megatron", "torchtitan", ...) train this model from what is written for it?
 * WEFT_ERR_ARG: it cannot, and why.  Names that nothing is written for pass. */
weft_status weft_engine_can_train(const char *engine, const weft_model *m);

/* That no step of the framework was measured on some of the devices, which, and what that means for
 * the interval, without an end of line; nothing where steps were measured on all of them. */
void weft_engine_tell_unmeasured(const weft_cluster *k, const weft_cost_constants *c,
                                 const char *framework, weft_text *t);

/* A line where devices have no products in 16 bits of this kind: which, and at what rate they are
 * counted instead; ours: by programs of ours.  Nothing where all have. */
void weft_engine_tell_precision(const weft_cluster *c, const char *precision, bool ours,
                                weft_text *t);

/* Every number -1, every word "". */
void weft_engine_open(weft_config *c);

/* Puts what the text says into c and leaves the rest as it is.  world: devices there are, 0: not
 * known (counts that follow from it stay open).  ignored: what was not understood, or NULL.
 * Strings go to a. */
weft_status weft_engine_read(weft_engine e, const char *file, const char *text, size_t n,
                             int world, weft_arena *a, weft_config *c,
                             weft_text *ignored);

/* A plan for another engine: a strategy, and what a strategy has no key for. */
typedef struct weft_engine_plan {
    weft_strategy       strategy;
    int                 dp; /* replicas, with the ranks along ep */
    int                 micro_batch, global_batch;
    weft_cost_recompute recompute;         /* light is no value of a strategy */
    int                 recompute_layers;  /* of a stage; below 1: all of them */
    int                 recompute_modules; /* of weft_again; below 1: those of the mode */
    const uint16_t     *cut; /* layers of each stage; NULL: as even as can be */
} weft_engine_plan;

/* The plan of a complete configuration (weft_config_complete); its cut goes to a. */
weft_status weft_engine_plan_of(const weft_config *c, weft_arena *a,
                                weft_engine_plan *out);

/* model: sizes, seq, precision, features.  WEFT_ERR_ARG: a plan that the engine has no words
 * for. */
weft_status weft_engine_emit(weft_engine e, const weft_config *model,
                             const weft_engine_plan *p, weft_text *t);

/* Sizes of a transformer into c; WEFT_ERR_ARG: a model of another kind. */
weft_status weft_engine_model(const weft_model *m, weft_arena *a, weft_config *c);

/* The cluster's nodes into c (hw, net, counts) and its kinds as the tables that estimates read.
 * Caller frees *out. */
weft_status weft_engine_cluster(const weft_cluster *k, weft_arena *a, weft_config *c,
                                weft_hardware **out);

#endif
