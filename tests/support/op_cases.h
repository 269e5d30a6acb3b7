/* The op-test table: sample uses of every operator, shapes odd and of size 1 among them.  Whoever
 * tests something about operators loops over it.
 *
 *     for (int i = 0; i < weft_n_test_case; i++) {
 *         weft_op_use u;
 *         weft_test_case_make(&weft_test_cases[i], arena, &u);
 *         for (int k = 0; k < u.n_in; k++)
 *             weft_test_case_fill(&weft_test_cases[i], &u, k, seed, data[k]);
 *     }
 *
 * Operands are words "dtype[dims]kind":
 *     f32[2,3]      normal numbers               f32[2,3]+     between 0.2 and 2
 *     f32[]=0.01    that number                  i32[4]<7      0 .. 6
 *     i32[4]<7?     the same or, one in four, -100 (an ignored label)
 *     i32[4]:9      offsets of 3 groups into 9 rows
 *     i32[4]%       a permutation of 0 .. 3      i32[4,2]!5    rows of distinct numbers below 5
 *     i32[4]%?      the same, one in four of them -1 (a row that is elsewhere) */
#ifndef WEFT_TESTS_OP_CASES_H
#define WEFT_TESTS_OP_CASES_H

#include "op/op.h"

typedef struct weft_test_case {
    weft_op     op;
    const char *attr;
    const char *in;
    int         n_out;
} weft_test_case;

#define WEFT_TEST_CASE(ID, attr, in, n_out)                                              \
    {                                                                                    \
        WEFT_OP_##ID, attr, in, n_out                                                    \
    }

extern const weft_test_case weft_test_cases[];
extern const int            weft_n_test_case;

/* More, for tests of kernels alone: ranks that have nothing of a dimension (sums over it are 0,
 * attention sees no keys); forms that only kernels meet, and shapes with more than one task. */
extern const weft_test_case weft_empty_cases[], weft_kernel_cases[];
extern const int            weft_n_empty_case, weft_n_kernel_case;

/* Types of operands and results, attributes; all in a. */
weft_status weft_test_case_make(const weft_test_case *c, weft_arena *a, weft_op_use *u);

/* Operand k's numbers, the same for the same seed; data has as many doubles as the operand
 * elements. */
void weft_test_case_fill(const weft_test_case *c, const weft_op_use *u, int k,
                         uint64_t seed, double *data);

/* Element i of numbers of a type. */
void weft_test_put(void *p, weft_dtype t, int64_t i, double x);

/* "matmul spec=.. (f32[2,3] f32[3,4])" for messages. */
const char *weft_test_case_text(const weft_test_case *c, char *buf, size_t n);

#endif
