/* Inside the module. */
#ifndef WEFT_ENGINE_PRIV_H
#define WEFT_ENGINE_PRIV_H

#include "base/doc.h"
#include "engine/engine.h"

weft_status weft_engine__read_megatron(const char *file, const char *text, size_t n,
                                       weft_arena *a, weft_config *c, weft_text *ignored);
weft_status weft_engine__read_deepspeed(const char *file, const char *text, size_t n,
                                        int world, weft_arena *a, weft_config *c,
                                        weft_text *ignored);
weft_status weft_engine__read_torchtitan(const char *file, const char *text, size_t n,
                                         int world, weft_arena *a, weft_config *c,
                                         weft_text *ignored);

/* emit.c: what an engine writes where a key of the strategy has a value from low to high: the text
 * before, then the number and the text after it, if that is not NULL.  Parts of a table are
 * written one by one, what is between them has no key. */
typedef struct weft_engine__option {
    weft_strategy_key key;
    int               low, high, part;
    const char       *before, *after;
} weft_engine__option;

typedef struct weft_engine__options {
    int                        n;
    const weft_engine__option *option;
} weft_engine__options;

extern const weft_engine__options weft_engine__megatron, weft_engine__deepspeed,
    weft_engine__torchtitan, weft_engine__paddle;

void weft_engine__put_options(const weft_engine__options *o, int part,
                              const weft_engine_plan *p, weft_text *t);
/* The number of a key as other engines count: 1 where there is no such axis, dp with the ranks
 * along ep. */
int weft_engine__value(const weft_engine_plan *p, weft_strategy_key key);

weft_status weft_engine__emit_megatron(const weft_config *c, const weft_engine_plan *p,
                                       weft_text *t);
weft_status weft_engine__emit_deepspeed(const weft_config *c, const weft_engine_plan *p,
                                        weft_text *t);
weft_status weft_engine__emit_torchtitan(const weft_config *c, const weft_engine_plan *p,
                                         weft_text *t);
weft_status weft_engine__emit_paddle(const weft_config *c, const weft_engine_plan *p,
                                     weft_text *t);

bool weft_engine__has_flavour(const weft_config *c); /* torchtitan's */
/* readback.c.  WEFT_ERR_ARG: the text reads back as another model or plan; the first difference. */
weft_status weft_engine__check_written(weft_engine e, const weft_config *c,
                                       const weft_engine_plan *p, const char *text,
                                       size_t n);

void weft_engine__ignore(weft_text *ignored, const char *what);
/* A word added to c->features, once. */
weft_status weft_engine__feature(weft_arena *a, weft_config *c, const char *word);
bool        weft_engine__has(const weft_config *c, const char *feature);

/* keys.c: what there is in a file: first what is read, then what changes neither time nor memory.
 */
typedef struct weft_engine__keys {
    int                n_read, n;
    const char *const *name;
} weft_engine__keys;

/* The others are named in ignored (or NULL); WEFT_ERR_ARG: a slip of the hand, and what was
 * meant. */
weft_status weft_engine__see_keys(const weft_doc *d, const weft_engine__keys *k,
                                  weft_text *ignored);

/* Words of weft_config.features with a meaning here. */
#define WEFT_ENGINE__MX      "mx-formats" /* 8 or 4 bits with a scale a block */
#define WEFT_ENGINE__OFFLOAD "offloaded:" /* and the key that says so */

#endif
