/* Training samples: token files in, (ids, labels) out, each sample of each epoch exactly
 * once.
 *
 *     weft_data_options o = {.seq = 1024, .vocab = 50257, .shuffle = true, .seed = 1};
 *     weft_data *d;
 *     WEFT_TRY(weft_data_open("train.bin", &o, &d));
 *     WEFT_GO(weft_data_fill(d, step * batch, batch, ids, labels));   (batch, seq) each
 *
 * Samples are numbered from the start of the job and never end: number g is sample g % n
 * of epoch g / n, where n = weft_data_samples(d).  So the position in the data is one
 * number, the same for any number of ranks, and a checkpoint holds all of it by holding
 * the step.
 *
 * What a path may be (docs/data.md):
 *     x.bin                  raw tokens, little-endian u16 or u32, or llm.c's: by what is in it
 *     (raw.c) x.idx, x.bin next to it  Megatron's pair (or its prefix x): all sequences, end to end
 *     x.safetensors          rows: input_ids and labels, i32 or i64, (n, seq)
 *     a folder, a pattern    text by bytes, files end to end in the order of their paths (text.c)
 *     x.txt, x.c, ..., x     text by bytes: a known ending, or none and bytes that are text
 *     (kind.c) anything else          refused, unless format names what it is
 * A stream of N tokens is (N - 1) / seq samples: sample i is the seq + 1 tokens from i *
 * seq on; the first seq are the ids, the last seq the labels.
 *
 * Read-only after open; any thread may fill. */
#ifndef WEFT_DATA_DATA_H
#define WEFT_DATA_DATA_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"
#include "weft/tensor.h"

#define WEFT_DATA_IGNORE (-100) /* a label that does not count */

typedef struct weft_data weft_data;

/* What the labels of rows are to the model. */
typedef enum weft_data_labels {
    WEFT_DATA_LABELS_STORED, /* no model is known: as they stand in the file */
    WEFT_DATA_LABELS_SAME, /* masked tokens, decoder outputs: position t learns labels[t] */
    /* causal, as Hugging Face has them: position t learns labels[t + 1], the last nothing */
    WEFT_DATA_LABELS_SHIFT,
    WEFT_DATA_LABELS_NEXT, /* causal, and next tokens already: position t learns labels[t] */
} weft_data_labels;

typedef struct weft_data_options {
    int64_t  seq;   /* 0: the width of a safetensors file's rows; streams need it */
    int64_t  vocab; /* ids must be below it; 0: anything goes */
    bool     shuffle;
    uint64_t seed; /* of the shuffle */
    /* "bin", "u16", "u32", "megatron", "safetensors", "text"; NULL: by the path */
    const char      *format;
    weft_data_labels labels;
    /* What the model cannot take; model is its name, for messages. */
    const char *model;
    bool        no_text;       /* its tokens are not bytes */
    bool        has_tokenizer; /* a file of one is in its folder */
    /* An encoder-decoder's: what its decoder sees first, and instead of labels that do not
     * count. */
    bool    decoder; /* it is one */
    int32_t decoder_start, decoder_pad;
    /* it needs rows with labels, and why ("has no causal mask"); NULL: any */
    const char *rows_only;
} weft_data_options;

weft_status weft_data_open(const char *path, const weft_data_options *o, weft_data **out);
void        weft_data_close(weft_data *d); /* accepts NULL */

int64_t     weft_data_samples(const weft_data *d); /* in one epoch, at least 1 */
int64_t     weft_data_tokens(const weft_data *d);  /* in the files */
int64_t     weft_data_seq(const weft_data *d);
const char *weft_data_format(const weft_data *d);
/* A hash of what the tokens are (their number, the first and the last of them), not of
 * where they lie: a resumed job compares it. */
uint64_t weft_data_id(const weft_data *d);
/* The same of tokens and labels: of all of them up to 2^24 tokens, in larger data of 256 places
 * evenly spaced, the first and the last among them. */
uint64_t weft_data_content_id(const weft_data *d);

/* Samples first .. first + n - 1 into ids and labels, (n, seq) each; labels may be NULL.
 * Allocates nothing.  A token id past the vocabulary is WEFT_ERR_ARG: file, position,
 * id.  A file that was truncated meanwhile, or cannot be read, is WEFT_ERR_IO. */
weft_status weft_data_fill(const weft_data *d, int64_t first, int64_t n, int32_t *ids,
                           int32_t *labels);
/* Labels among them that count (are not WEFT_DATA_IGNORE). */
weft_status weft_data_count_labels(const weft_data *d, int64_t first, int64_t n,
                                   int64_t *out);
bool        weft_data_is_rows(const weft_data *d); /* not a stream */
/* false: rows, and it is known that none of their labels counts */
bool weft_data_has_labels(const weft_data *d);
/* One line for people: format, type, tokens, what was found out by looking, what labels are taken
 * for. */
void weft_data_describe(const weft_data *d, weft_text *t);
/* What is likely to be a mistake, a line each; nothing: nothing. */
void weft_data_warn(const weft_data *d, weft_text *t);

/* Where sample number g lies: its epoch and its index in the file. */
void weft_data_locate(const weft_data *d, int64_t g, int64_t *epoch, int64_t *index);

/* Element i of the permutation of 0..n-1 that (seed, epoch) names.  No memory. */
int64_t weft_data_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/* Tokens of one format written as another: "bin" or "u16" (ids below 65536), "u32", or "megatron"
 * (to and its sibling .idx/.bin; i32 where u16 is too small).  format NULL: by the ending of
 * to.  Rows of a safetensors file are no stream and are refused.  Each file is old or
 * new. */
weft_status weft_data_convert(const char *from, const char *from_format, const char *to,
                              const char *format);

/* Would path be read as text, one token a byte?  format as in weft_data_options. */
bool weft_data_is_text(const char *path, const char *format);

#define WEFT_DATA_TOP 10

typedef struct weft_data_info {
    const char *format;
    const char *note; /* what was found out by looking, or NULL; borrowed from the data */
    weft_dtype  dtype; /* of the tokens in the file */
    int64_t     n_file, n_token, n_sample, seq;
    int64_t     n_label; /* labels that count, in one epoch */
    int64_t     min_id, max_id;
    int64_t     n_distinct; /* -1: ids too far apart to count */
    int         n_top;      /* the commonest ids, most first */
    int64_t     top_id[WEFT_DATA_TOP], top_count[WEFT_DATA_TOP];
} weft_data_info;

/* Reads everything once. */
weft_status weft_data_inspect(const weft_data *d, weft_data_info *out);
void weft_data_info_print(const weft_data_info *i, weft_text *t); /* lines for people */
void weft_data_info_print_json(const weft_data_info *i, weft_text *t); /* one line */

#endif
