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
#include "partition/partition.h"
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
    const char *fp8;  /* formats of the linear layers' matmuls; NULL: none are in fp8 */
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
/* A rank's program.  words: of a sharding; NULL: none.  by_lanes: lanes lie on its dp axis. */
weft_program *test_job_compile(const test_job *j, const char *words, bool by_lanes,
                               const weft_partition_options *o);
/* Verifies the n programs as a set, runs them for TEST_STEPS steps and destroys them.  All ranks
 * must have the same loss and norm, and the same bits where two of them hold one tensor. */
test_result test_job_run(const test_job *j, weft_program **p, int n, int n_thread);

/* How the second step of ranks ended when one of them was lost in it, over all trials. */
typedef struct test_lost {
    int n_trial;
    int n_held, n_alone, n_ran;
    int n_finished; /* that were lost at the commit point and made their updates afterwards */
} test_lost;
/* Trains two steps again and again; in the second one a rank is lost in the middle of a call, every
 * call in turn (`every`-th).  The step must be committed by all ranks or by none: state is then
 * that of the undisturbed run after this step or the one before, to the bit, what ranks gather
 * from each other excepted.  Borrows the programs. */
void test_job_run_lost(const test_job *j, weft_program **p, int n, int lost, int every,
                       test_lost *out);

#endif
