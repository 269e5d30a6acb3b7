/* metrics.jsonl: one object a step, in order, each step once.
 *
 * Opening keeps the lines of the steps that are done and drops the rest: lines of steps after the
 * checkpoint that a run resumes from, and a line that a crash cut short.
 * An earlier writer that was replaced while it was stopped may wake and go on.  Where it may be on
 * another host, opening replaces the file: what that one still writes is in none (fences). */
#ifndef WEFT_SESSION_METRICS_H
#define WEFT_SESSION_METRICS_H

#include <stdbool.h>

#include "base/text.h"

typedef struct weft_metrics weft_metrics;

typedef struct weft_metrics_row {
    int64_t step;
    double  loss, grad_norm, lr, tokens_per_s, step_ms;
    int64_t labels;
    bool    skipped;   /* no label counted: no update */
    double  eval_loss; /* NaN: no evaluation */
    /* of each layer with experts: the largest expert's load by the mean of all; borrowed */
    int          n_load;
    const float *load;
} weft_metrics_row;

weft_status weft_metrics_open(const char *dir, int64_t done, bool fences,
                              weft_metrics **out);
/* Appends one line; allocates nothing. */
weft_status weft_metrics_add(weft_metrics *m, const weft_metrics_row *r);
/* The same of an object that is text already. */
weft_status weft_metrics_add_text(weft_metrics *m, const char *object, size_t n);
/* The last step that has a line, of those that opening has kept; 0: none. */
int64_t weft_metrics_kept(const weft_metrics *m);
/* A row as an object. */
void        weft_metrics_print(const weft_metrics_row *r, weft_text *t);
weft_status weft_metrics_close(weft_metrics *m); /* accepts NULL */

#endif
