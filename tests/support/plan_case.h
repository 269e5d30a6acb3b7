/* Plans of a model's training graph, from short words.
 *
 *     assert_ok(test_plan_make(&c, "dp=2 pp=3", 2, &p));     two chunks a rank
 *     char *text = test_plan_text(p);
 *
 * Any failure of test_plan_text fails the running cmocka test. */
#ifndef WEFT_TEST_PLAN_CASE_H
#define WEFT_TEST_PLAN_CASE_H

#include "plan/plan.h"
#include "support/shard_case.h"

/* Batch 16 in micro-batches of 2, 8 lanes; stages are cut anywhere. */
weft_status test_plan_make(const test_shard *c, const char *words, int chunks,
                           weft_plan **out);
/* The caller's. */
char *test_plan_text(const weft_plan *p);

#endif
