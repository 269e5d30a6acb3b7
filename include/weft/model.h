/* Models: a Hugging Face config.json, a preset's name or graph text becomes a graph.
 *
 *     weft_model        *m;
 *     weft_model_options o = {.batch = 4, .seq = 64, .with_loss = true};
 *     if (weft_model_load("gpt2", &o, &m) != WEFT_OK) ...
 *     weft_graph_to_text(weft_model_graph(m), &text);
 *     weft_model_destroy(m);
 */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_model weft_model;

typedef struct weft_model_options {
    int64_t    batch; /* sequences (images) of one micro-batch; 0: 1 */
    int64_t    seq;   /* tokens of a sequence; 0: what the model allows, at most 1024 */
    weft_dtype dtype; /* of parameters and activations: f32 (0), bf16, f64 */
    bool       with_loss; /* labels in, sum of the losses out; without: logits out */
    /* use the configuration's dropout probabilities; else none is dropped */
    bool dropout;
} weft_model_options;

/* what: a folder that holds config.json, a config.json itself, a file that ends in .graph, or a
 * preset's name.  A folder of a preset's name wins where it holds a config.json.
 * On WEFT_OK *out is the caller's; free it with weft_model_destroy().
 * WEFT_ERR_ARG: one line with the file, the key, why, and what to do. */
weft_status weft_model_load(const char *what, const weft_model_options *o,
                            weft_model **out);
void        weft_model_destroy(weft_model *m); /* accepts NULL */

/* The model's own graph, which a maker of the training graph goes on to add to. */
weft_graph *weft_model_graph(const weft_model *m);

/* Trained numbers; tied ones count once. */
int64_t weft_model_weights(const weft_model *m);

/* Flops of forward and backward for one micro-batch: products, convolutions and attention only, the
 * backward pass twice the forward one.  What "model flops" means in published numbers. */
double weft_model_flops(const weft_model *m);

/* The i-th preset's name; NULL past the last one. */
const char *weft_model_preset(int i);

#ifdef __cplusplus
}
#endif
#endif
