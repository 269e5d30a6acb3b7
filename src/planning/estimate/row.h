/* One configuration: a transformer, a plan and a cluster, as a row of the table says it. */
#ifndef WEFT_ESTIMATE_ROW_H
#define WEFT_ESTIMATE_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "estimate/csv.h"

typedef struct weft_config {
    const char *id, *framework, *hw, *net, *family, *attn, *precision, *features,
        *stage_layers, *stage_hw, *recompute, *grad_dtype;
    int line;
#define NUMBER(name, low, high) int name; /* -1: not said */
#include "estimate/row_fields.def"
#undef NUMBER
    /* no price knows these, only other engines' words; 0, false: not said */
    double rotary_base, rotary_factor; /* llama3's factor */
    bool   qkv_bias;
} weft_config;

/* Parameters of a complete configuration, without tables of positions. */
double weft_config_params(const weft_config *c);

/* The layers of each of pp stages, as stage_layers ("7-7-7-1") says; false where it does not, or
 * does not match pp and layers. */
bool weft_config_cut(const weft_config *c, uint16_t *cut);

/* Row i of a table; strings are borrowed from it.  What a plan can leave open (dp, micro_batch,
 * vpp, recompute) stays -1 or ""; what follows from the rest is filled in. */
weft_status weft_config_read(const weft_csv *table, int i, weft_config *out);

/* Fills in what follows from the rest; the line is in messages where it is not 0. */
weft_status weft_config_complete(const char *file, weft_config *c);

#endif
