/* One step of a model in double precision: weights of a folder in, loss and gradient norm out.
 *
 *     test_step s;
 *     test_step_open(&s, "tests/fixtures/families/t5", (weft_model_options){.batch = 2, .seq =
 *     10}); ... fill s.e.data[s.m->ids] and the other inputs ...
 *     test_step_run(&s, &loss, &norm);
 *     test_step_close(&s);
 *
 * Any failure fails the running cmocka test. */
#ifndef WEFT_TEST_MODEL_STEP_H
#define WEFT_TEST_MODEL_STEP_H

#include "model/model.h"
#include "support/eval.h"

typedef struct test_step {
    weft_model    *m; /* its graph holds the gradient too */
    weft_arena    *a;
    weft_test_eval e;
    weft_vid      *grad; /* of each parameter */
} test_step;

void test_step_open(test_step *s, const char *dir, weft_model_options o);
/* The mean loss over labels that are not -100, and the norm of its gradient. */
void test_step_run(test_step *s, double *loss, double *norm);
void test_step_close(test_step *s);

#endif
