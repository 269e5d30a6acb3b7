/* A model from inside the library: a forward graph, and how its parameters lie in Hugging Face's
 * files.
 *
 * Always true:
 * (1) the graph verifies and has only forward nodes
 * (2) every parameter of the graph is in param[], in graph order; its tensors' regions tile it
 * (3) a region, read row by row, holds the tensor's elements in the file's own order: reading
 *     and writing files is copying, never transposing
 * (4) the same configuration and options give the same graph, value by value */
#ifndef WEFT_MODEL_MODEL_H
#define WEFT_MODEL_MODEL_H

#include "base/arena.h"
#include "graph/graph.h"
#include "weft/model.h"

/* One tensor of a file and the part of a parameter it fills. */
typedef struct weft_model_tensor {
    const char *name;  /* "transformer.h.0.attn.c_attn.weight" */
    weft_shape  shape; /* as the file has it */
    weft_region region;
} weft_model_tensor;

typedef enum weft_init_kind {
    WEFT_INIT_ZEROS,
    WEFT_INIT_ONES,
    WEFT_INIT_NORMAL, /* mean 0, init_std */
} weft_init_kind;

typedef struct weft_model_param {
    weft_vid    value;
    const char *name;  /* the graph value's */
    bool        decay; /* weight decay: the file's tensors have two or more dimensions */
    weft_init_kind     init;
    double             init_std;
    int                n_tensor;
    weft_model_tensor *tensor;
    /* Tied parameters: other names under which a file may hold the same numbers again; NULL ends.
     */
    const char *alias[4];
} weft_model_param;

/* State that a step replaces by what a value of each micro-batch says (the maker of the training
 * graph adds accumulate and next).  rate 0, running statistics: an exponential mean,
 * next = (1 - momentum) state + momentum unbias mean(stat).  Else biases of experts, stat their
 * loads: next = state + rate sign(mean of the loads - load). */
typedef struct weft_model_stat {
    weft_model_param p; /* as a parameter, but the value is a state */
    weft_vid         stat;
    double           momentum, unbias, rate;
} weft_model_stat;

typedef enum weft_model_kind {
    WEFT_MODEL_LM,      /* input_ids (b,s), labels (b,s): also masked language models */
    WEFT_MODEL_ENCDEC,  /* input_ids, decoder_input_ids, labels (b,s) */
    WEFT_MODEL_IMAGES,  /* images (b,c,h,w), labels (b) */
    WEFT_MODEL_VECTORS, /* x (b,n), labels (b) */
    WEFT_MODEL_TEXT,    /* graph text: inputs and outputs are whatever it says */
} weft_model_kind;

/* For messages and tables; 0 where it makes no sense. */
typedef struct weft_model_info {
    int64_t vocab, layers, hidden, heads, kv_heads, head_dim, ffn, context, experts,
        top_k;
} weft_model_info;

struct weft_model {
    weft_arena *arena;
    weft_graph *graph;
    /* of a compiled model: of its graph before a device's rewrites */
    uint64_t        graph_hash;
    const char     *name;   /* the preset's, else the type */
    const char     *type;   /* model_type of the configuration */
    const char     *source; /* the file or "preset gpt2" */
    weft_model_kind kind;
    weft_model_info info;

    /* What the configuration says of the file: where weights are, as what they are kept. */
    const char *dir; /* folder that may hold weights, NULL for presets and graph text */
    const char *config; /* the text of config.json, for export; NULL for graph text */
    const char *prefix; /* "transformer.": files may leave it out of the names */
    weft_dtype  file_dtype;
    const char *notice; /* one line a user should read, or NULL */

    int64_t  batch, seq;
    bool     causal;      /* labels are the next tokens (else masked tokens) */
    int64_t  n_label;     /* labels of one micro-batch, ignored ones included */
    weft_vid ids, labels; /* inputs: input_ids, images or x; labels -1 without loss */
    weft_vid decoder_ids; /* encoder-decoder only, else -1 */
    /* ... what a decoder sees first, and instead of labels that do not count */
    int32_t  decoder_start, decoder_pad;
    weft_vid logits;    /* (b,s,v) or (b,n) */
    weft_vid loss_rows; /* loss of each label, 0 where ignored; -1 without loss */
    weft_vid label_sum; /* f32[]: their sum, what evaluation reports; -1 without loss */
    /* f32[]: the same with losses of routers, what training minimizes: the graph's output */
    weft_vid loss_sum;

    int               n_param, cap_param;
    weft_model_param *param;
    int               n_stat, cap_stat;
    weft_model_stat  *stat;
    /* Of each layer with experts, where the configuration has output_router_logits or biases: how
     * often each expert was chosen, f32 (x); none without loss. */
    int       n_load, cap_load;
    weft_vid *load;

    /* Of a shortened model: its runs, as many as the whole one has. */
    int                n_run;
    weft_graph_layers *run;
};

/* What models are built from, read once: afterwards models of any micro-batch and sequence are
 * built without touching a file.  Nothing changes it: any number of threads may build from it. */
typedef struct weft_model_source weft_model_source;

/* what: as of weft_model_load().  Checked: it is there, it parses, its family is known. */
weft_status weft_model_source_open(const char *what, weft_model_source **out);
/* A graph that somebody built, as weft_model_of_graph() takes it.  g is borrowed. */
weft_status weft_model_source_of_graph(const weft_graph *g, weft_model_source **out);
int64_t     weft_model_source_bytes(const weft_model_source *s); /* NULL: 0 */
void        weft_model_source_destroy(weft_model_source *s);     /* accepts NULL */

/* The same model as weft_model_load() gives; it does not borrow from the source. */
weft_status weft_model_build(const weft_model_source *s, const weft_model_options *o,
                             weft_model **out);

/* Of each run of layers (weft_graph_find_runs) the first `keep`, what came behind the last one
 * taken from there: all that is to be known of a layer can be asked of fewer.  Runs whose layers
 * are used from elsewhere stay as they are; run longer - 1 keeps so many more. */
weft_status weft_model_shorten(weft_model *m, int keep, int longer, int more);

/* A graph that somebody built, for a batch of its own (0: as it is): its first output is the
 * loss, to be summed.  g is copied. */
weft_status weft_model_of_graph(const weft_graph *g, int64_t batch, weft_model **out);

/* Initial numbers: elements [first, first + n) of a tensor in the file's order, whatever piece is
 * asked for: a function of (seed, tensor's name, index) alone. */
void weft_model_init_values(const weft_model_param *p, const weft_model_tensor *t,
                            uint64_t seed, int64_t first, int64_t n, float *out);

/* All of them: fill gets each piece, in the order of param[] and of their tensors. */
typedef weft_status (*weft_model_fill_fn)(void *arg, const weft_model_param *p,
                                          const weft_model_tensor *t, int64_t first,
                                          int64_t n, const float *x);
weft_status weft_model_init(const weft_model *m, uint64_t seed, weft_model_fill_fn fill,
                            void *arg);

/* Are its tokens bytes?  A vocabulary of 256 and no file of a tokenizer in its folder.  The one
 * place that decides it: text may be trained on as it is, and what is sampled may be printed as
 * it is. */
bool weft_model_is_of_bytes(const weft_model *m);
bool weft_model_has_tokenizer(const weft_model *m); /* such a file is there */

/* The parameter (of param[] or stat[]) and tensor that a file's name means, with or without the
 * prefix, under an alias too; false when the graph does not use it. */
bool weft_model_find_tensor(const weft_model *m, const char *file_name,
                            const weft_model_param **p, const weft_model_tensor **t);

#endif
