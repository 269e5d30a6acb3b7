/* Jobs of the plan matrix (tests/flow/plans.def): their models, data and keys, and what a run of
 * one comes to beside that of one rank.
 *
 *     test_plan_jobs_write();                         into the scratch folder of support/files.h
 *     test_plan_job_keys("gpt2 micro_batch=2", 20);   "model=... data=... seq=16 ..."
 *
 * Any failure fails the running cmocka test. */
#ifndef TEST_SUPPORT_PLAN_JOBS_H
#define TEST_SUPPORT_PLAN_JOBS_H

#include <stdbool.h>

enum {
    TEST_PLAN_MAX_STEPS = 20
};

typedef enum test_plan_kind {
    BITWISE, /* losses, norms and weights of one rank */
    CLOSE    /* sums are split differently: within 1e-5 */
} test_plan_kind;

typedef enum test_plan_when {
    MATRIX, /* make matrix alone */
    QUICK,  /* also in make test */
    LATER   /* not there yet: it may fail */
} test_plan_when;

/* One row of plans.def. */
typedef struct test_plan_row {
    const char    *model; /* and what else belongs to the job */
    int            n;     /* processes */
    const char    *words;
    test_plan_kind kind;
    test_plan_when when;
} test_plan_row;

extern const test_plan_row test_plan_table[];
extern const int           test_plan_table_rows;

/* Configurations of all families with four layers, tokens.bin and rows.safetensors. */
void test_plan_jobs_write(void);
/* The keys of a row's model for so many steps; valid until the next call. */
const char *test_plan_job_keys(const char *model, int steps);

/* What a run came to. */
typedef struct test_plan_outcome {
    int    code; /* 0: it trained */
    int    n;    /* steps */
    double loss[TEST_PLAN_MAX_STEPS], norm[TEST_PLAN_MAX_STEPS];
    double eval; /* of the last step */
    char   hash[32], words[400];
    double seconds;
} test_plan_outcome;

/* Losses, norms and eval from a metrics.jsonl. */
void test_plan_read_metrics(const char *path, test_plan_outcome *o);
/* Is o what its row promises of one?  *loss, *norm: the largest relative differences. */
bool test_plan_same(test_plan_kind kind, const test_plan_outcome *one,
                    const test_plan_outcome *o, double *loss, double *norm);

#endif
