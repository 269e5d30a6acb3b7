/* Plans: how to train a graph on machines, before anything runs.
 *
 *     weft_plan_request r = {.cluster = "2 x (8 x a100-80g)", .batch = 256};
 *     char             *words, *plan;
 *     if (weft_plan_for(graph, &r, &words, &plan) != WEFT_OK) ...
 *     puts(words);
 *     free(words);
 *     free(plan);
 *
 * The graph is a forward one, for a batch of any size: dimension 0 of its inputs; its first
 * output is the loss, a sum over samples.  Nothing has to be said about what model it is. */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_plan_request {
    const char *cluster;     /* a file, or one line: "4 x (8 x h100-80g)" */
    int64_t     batch;       /* samples of a step, over all devices */
    const char *dtype;       /* "fp32", "bf16"; NULL: what the devices do best */
    const char *optimizer;   /* "adamw" (NULL), "adam", "sgd", "adagrad", "lamb" */
    const char *constraints; /* "tp=1 pp=2": kept or refused; NULL: everything is open */
} weft_plan_request;

/* The fastest plan that fits, by the programs that would run: *words for people, *plan as the
 * text of a plan file; either may be NULL.  Both are malloc'ed, the caller frees them.
 * WEFT_ERR_ARG: what cannot be, and why.  WEFT_ERR_NOFIT: nothing fits; the tightest device is
 * named. */
weft_status weft_plan_for(const weft_graph *g, const weft_plan_request *r, char **words,
                          char **plan);

#ifdef __cplusplus
}
#endif
#endif
