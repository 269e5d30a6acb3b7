/* Inside the job module: the rows of job.def. */
#ifndef WEFT_JOB_JOB_PRIV_H
#define WEFT_JOB_JOB_PRIV_H

#include "job/job.h"

#define WEFT_JOB_MAX_MICRO 65536

typedef enum weft_job__kind {
    WEFT_JOB__STRING,
    WEFT_JOB__INT,
    WEFT_JOB__REAL,
    WEFT_JOB__BOOL,
    WEFT_JOB__WORD,
    WEFT_JOB__WORDS, /* a list of them, kept as text with commas */
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

#endif
