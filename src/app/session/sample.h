/* Text from a trained byte-level model (or token ids from any). */
#ifndef WEFT_SESSION_SAMPLE_H
#define WEFT_SESSION_SAMPLE_H

#include <stdbool.h>

#include "base/text.h"

typedef struct weft_sample_options {
    const char *prompt; /* bytes; "" or NULL: a newline */
    int64_t     tokens;
    double      temperature; /* 0: always the likeliest */
    int64_t     top_k;       /* 0: all */
    uint64_t    seed;
    int         threads;
    const char *device; /* as the job's key; NULL: cpu */
    /* tokens the model sees at once; 0: as many as it was trained on where the folder names them,
     * else its context, at most 256 */
    int64_t window;
} weft_sample_options;

/* model: a folder with config.json and weights, or an output folder of weft train (its final/,
 * else its newest checkpoint).  Adds prompt and continuation to text; with ids, token numbers
 * with spaces between them.  A model whose vocabulary is not bytes needs ids. */
weft_status weft_sample_run(const char *model, const weft_sample_options *o, bool ids,
                            weft_text *text);

#endif
