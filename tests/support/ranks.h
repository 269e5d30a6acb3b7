/* Ranks of a job as threads of this process: each trains its program, and all must agree.
 *
 *     test_job j = test_job_open("tiny256", (test_job_options){.seq = 16, .n_micro = 8});
 *     test_result one = test_job_run(&j, programs, n, threads);
 *
 * Any failure fails the running cmocka test. */
#ifndef WEFT_TEST_RANKS_H
#define WEFT_TEST_RANKS_H

#include "graph/train.h"
#include "model/model.h"
#include "program/program.h"

enum {
    TEST_STEPS    = 3,
    TEST_MAX_RANK = 16
};

typedef struct test_job_options {
    int         seq, n_micro, rows; /* rows: sequences a micro-batch, 0 is one */
    weft_dtype  dtype;
    const char *optimizer; /* NULL: adamw */
    weft_strategy_recompute recompute;
    bool                    no_clip;
    /* 1 + a step that is tried first with a weight of NaN for its loss: what comes of it is not
     * finite, and it is held back; no bit of any state may change by it.  0: none */
    int         bad_step;
    const char *zero; /* parameters with this in their names begin at 0; NULL: none */
} test_job_options;

typedef struct test_job {
    test_job_options    o;
    weft_model         *model;
    weft_training_graph training;
} test_job;

typedef struct test_result {
    float    loss[TEST_STEPS], norm[TEST_STEPS];
    uint64_t weights; /* of all parameters and states */
} test_result;

void test_job_open(test_job *j, const char *model, test_job_options o);
void test_job_close(test_job *j);
/* Verifies the n programs as a set, runs them for TEST_STEPS steps and destroys them.  All ranks
 * must have the same loss and norm, and the same bits where two of them hold one tensor. */
test_result test_job_run(const test_job *j, weft_program **p, int n, int n_thread);

#endif
