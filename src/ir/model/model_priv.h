/* What the files that make graphs share: reading a configuration, declaring parameters, and the
 * few modules that all transformers are made of.
 *
 * A maker is a builder with the configuration beside it.  As with the builder, after the first
 * failure (a missing key, an impossible size, shapes that do not fit) every call does nothing;
 * mk->b.st and the error text hold the reason. */
#ifndef WEFT_MODEL_PRIV_H
#define WEFT_MODEL_PRIV_H

#include "base/doc.h"
#include "graph/build.h"
#include "model/model.h"

/* A configuration, a graph's text, or a graph. */
struct weft_model_source {
    weft_arena       *arena;
    const char       *name; /* the preset's; NULL: the type's or the graph's */
    const char       *file; /* for messages: its path, or "preset gpt2" */
    const char       *dir;  /* folder that may hold weights, or NULL */
    const char       *text; /* as it was read; NULL: a graph */
    size_t            n_text;
    weft_doc         *doc; /* the text of a configuration; NULL: of a graph */
    int               family;
    const weft_graph *graph; /* borrowed; else NULL */
};

typedef struct weft_model__maker {
    weft_model        *m;
    weft_builder       b;
    const weft_doc    *doc;
    const weft_node   *cfg;
    weft_model_options o;
    int64_t            batch, seq;
    double             std;    /* initializer_range */
    int                n_drop; /* dropout operators so far: the next one's id */
    /* f32[b]: what each sequence's losses have more, as a mean over its labels; -1 nothing */
    weft_vid more_loss;
} weft_model__maker;

typedef void (*weft_model__make_fn)(weft_model__maker *mk);

void weft_model__make_gpt2(weft_model__maker *mk);
void weft_model__make_llama(weft_model__maker *mk); /* and mistral, qwen2, mixtral */
void weft_model__make_bert(weft_model__maker *mk);  /* and ernie */
void weft_model__make_t5(weft_model__maker *mk);
void weft_model__make_titan(weft_model__maker *mk);
void weft_model__make_resnet(weft_model__maker *mk);
void weft_model__make_mlp(weft_model__maker *mk);

/* ---- config.c: keys ----
 * key may give several spellings, "n_positions|n_ctx"; the first one that is there and not null
 * counts.  Sizes lie between 1 and 2^31 - 1; without a default (0) the key must be there. */
int64_t weft_model__size(weft_model__maker *mk, const char *key, int64_t def);
int64_t weft_model__layers(weft_model__maker *mk, const char *key); /* at most 10000 */
double  weft_model__number(weft_model__maker *mk, const char *key, double def);
double  weft_model__positive(weft_model__maker *mk, const char *key, double def);
bool    weft_model__flag(weft_model__maker *mk, const char *key, bool def);
const char *weft_model__word(weft_model__maker *mk, const char *key, const char *def);
bool        weft_model__has(const weft_model__maker *mk, const char *key);
const weft_node *weft_model__node(const weft_model__maker *mk, const char *key);

/* "file:line: key: why", at the key's line. */
void weft_model__refuse(weft_model__maker *mk, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses a whole that parts do not divide: "n_head: 12 does not divide n_embd 770". */
int64_t weft_model__divide(weft_model__maker *mk, const char *key, int64_t parts,
                           const char *whole_key, int64_t whole);
/* A dropout probability; 0 unless the options ask for dropout (then a notice is left). */
double weft_model__drop(weft_model__maker *mk, const char *key, double def);
/* The same for dropout of attention probabilities, which no kernel of ours does. */
void weft_model__no_attention_drop(weft_model__maker *mk, const char *key, double def);
/* Fixes mk->seq: the options' or the default, checked against the context's size. */
void weft_model__set_seq(weft_model__maker *mk, const char *key, int64_t context);

/* ---- make.c: parameters and modules ---- */
#define WEFT_MODEL__DIMS(...)                                                            \
    weft_shape_make((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),           \
                    (int64_t[]){__VA_ARGS__})
#define DIMS WEFT_MODEL__DIMS

/* printf into the graph's arena: names. */
const char *weft_model__name(weft_model__maker *mk, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A parameter of the graph's shape, which the file holds whole under the same name as file. */
weft_vid weft_model__param(weft_model__maker *mk, const char *name, weft_shape shape,
                           weft_shape file, weft_init_kind init, double std);
/* One that the file holds as x tensors, one for each index of dimension 0; %d in each is the
 * index. */
weft_vid weft_model__stacked(weft_model__maker *mk, const char *name, const char *each,
                             weft_shape shape, double std);
/* Another name under which a file may hold v. */
void weft_model__alias(weft_model__maker *mk, weft_vid v, const char *name);

/* y = x w (+ bias) with w = <name>.weight, bias = <name>.bias; the result is called out. */
typedef struct weft_model__linear {
    const char *spec;
    weft_shape  w, w_file;
    weft_shape  bias, bias_file; /* bias_file.n = 0: no bias */
    double      std;             /* 0: mk->std */
} weft_model__linear;
weft_vid weft_model__apply(weft_model__maker *mk, const char *name, const char *out,
                           weft_vid x, weft_model__linear l);

/* y = norm(x) with <name>.weight, <name>.bias. */
weft_vid weft_model__layer_norm(weft_model__maker *mk, const char *name, const char *out,
                                weft_vid x, double eps);
weft_vid weft_model__rms_norm(weft_model__maker *mk, const char *name, const char *out,
                              weft_vid x, double eps);
/* act is a word of the configuration (gelu, gelu_new, silu, relu, ...), key where it was read. */
weft_vid weft_model__activation(weft_model__maker *mk, const char *key, const char *act,
                                const char *out, weft_vid x);
weft_vid weft_model__dropout(weft_model__maker *mk, const char *out, double p,
                             weft_vid x);
weft_vid weft_model__attention(weft_model__maker *mk, const char *out, weft_vid q,
                               weft_vid k, weft_vid v, weft_vid bias, const char *attr);
/* Rows of a table of words.  pad_token_id names a row that learns nothing from being looked up;
 * where the key is missing it is pad (-1: none), null is none, negative counts from the end. */
weft_vid weft_model__lookup(weft_model__maker *mk, const char *out, weft_vid table,
                            weft_vid ids, int64_t pad);
/* (b,s) token ids, declared as inputs. */
weft_vid weft_model__ids(weft_model__maker *mk, const char *name);
/* Labels, loss rows and their sum behind the logits, with mk->more_loss; the graph's output. */
void weft_model__loss(weft_model__maker *mk, weft_vid logits);

/* A state of n numbers that a step replaces by a mean of the newest stat[], which the caller
 * completes; its value. */
weft_vid weft_model__stat(weft_model__maker *mk, const char *name, int64_t n,
                          weft_init_kind init);

/* ---- router.c: the choice of experts, and losses of routers ---- */
typedef struct weft_model__router {
    int64_t experts, top_k;
    double  balance, z_coef; /* weights of the losses; 0: none */
    double  bias_rate;       /* how far a step moves the biases of choices; 0: none */
    bool    reports;         /* loads are outputs of a step */
    /* over the layers so far: their number, probabilities and choices of each sequence's experts
     * (b,x), squares of log-sum-exp (b) */
    int64_t  layers;
    weft_vid p, load, z;
} weft_model__router;
/* Before the first layer. */
void weft_model__route_start(weft_model__maker *mk, weft_model__router *r);
/* A layer's logits (b s, x) to weights and chosen experts (b s, k).  gate: the name of its weights.
 */
void weft_model__route(weft_model__maker *mk, weft_model__router *r, const char *gate,
                       weft_vid logits, weft_vid pick[2]);
/* After the last layer: adds to mk->more_loss. */
void weft_model__route_loss(weft_model__maker *mk, const weft_model__router *r);

/* model.c: the family of a configuration, by its number in the table; WEFT_ERR_ARG: of none. */
weft_status weft_model__find_family(const weft_doc *doc, int *out);
weft_status weft_model__check_options(const weft_model_options *o);

/* presets.c: the configuration's text of a preset, or NULL. */
const char *weft_model__preset_text(const char *name);

#endif
