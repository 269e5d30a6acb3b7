/* Inside the session room: the rows of job.def. */
#ifndef WEFT_SESSION_JOB_PRIV_H
#define WEFT_SESSION_JOB_PRIV_H

#include "session/job.h"

#define WEFT_JOB_MAX_MICRO 65536

typedef enum weft_job__kind {
    WEFT_JOB__STRING,
    WEFT_JOB__INT,
    WEFT_JOB__REAL,
    WEFT_JOB__BOOL,
    WEFT_JOB__WORD,
    WEFT_JOB__PAIR,
    WEFT_JOB__STRATEGY,
} weft_job__kind;

typedef struct weft_job__key {
    const char    *map, *key;
    weft_job__kind kind;
    size_t         at; /* offset of the field in weft_job */
    double         min, max;
    const char    *words, *def;
    int            same; /* 1, 2: a resumed job must agree; 2: unless --allow names it */
    const char    *help;
} weft_job__key;

extern const weft_job__key weft_job__keys[];
extern const int           weft_job__n_key;

/* Key i as all ranks of a job must have it: "batch is 8".  False: each rank may have its own. */
bool weft_job__print_common(const weft_job *j, int i, weft_text *t);

/* Does it name keys of a strategy, besides those that any plan takes (bucket_bytes, recompute)? */
bool weft_job__names_strategy(const weft_job *j);
/* micro_batch where it was not given: the whole batch, or as much of it as a lane has. */
void weft_job__default_cut(weft_job *j);
/* micro_batch and lanes against batch; lanes is chosen when it was not given. */
weft_status weft_job__check_cut(weft_job *j);

#endif
