/* Counting allocations between two points, and failing the n-th, in any test.
 *
 *     int64_t before = weft_test_allocs();
 *     run_a_step();
 *     assert_int_equal(weft_test_allocs() - before, 0);
 *
 * Two implementations, chosen by the build: glibc's malloc behind our own (count_alloc_glibc.c),
 * and the sanitizers' hooks (count_alloc_san.c), which count but cannot fail a call. */
#ifndef WEFT_TEST_COUNT_ALLOC_H
#define WEFT_TEST_COUNT_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* Calls of malloc, calloc, realloc and their aligned kin so far, by all threads. */
int64_t weft_test_allocs(void);

/* From now on the n-th of them (1 = the next) gives NULL; 0 turns it off.  false where calls
 * cannot be made to fail. */
bool weft_test_alloc_fail_at(int64_t n);

#endif
