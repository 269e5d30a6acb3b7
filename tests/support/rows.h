/* The planner's rows of a model, as the planner opens them. */
#ifndef TEST_ROWS_H
#define TEST_ROWS_H

#include "planner/rows.h"

void test_rows_open(const weft_compile_spec *s, const weft_cluster *c,
                    const weft_search_limits *l, weft_arena *a, weft_search_model *out);

#endif
