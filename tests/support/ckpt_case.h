/* A small checkpoint whose contents follow from one number, for the tests of ckpt. */
#ifndef TEST_SUPPORT_CKPT_CASE_H
#define TEST_SUPPORT_CKPT_CASE_H

#include "ckpt/ckpt.h"

/* How many ranks write it (1: one, as a stream; more: by blocks, each what it holds), for all that
 * follows. */
extern int test_ckpt_n_writer;

/* The writer's epoch, likewise. */
extern uint32_t test_ckpt_epoch;

/* Saves it under a step. */
weft_status test_ckpt_save(const char *dir, int64_t step, int seed);
/* The seed its contents were made from; -1 when they are not what any seed gives. */
int test_ckpt_seed(const weft_ckpt *c);
/* Opens the newest and gives its seed; -2 when nothing opens. */
int test_ckpt_newest(const char *dir, int64_t *step, weft_ckpt_findings *found);

#endif
