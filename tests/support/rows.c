#include "support/rows.h"

#include "support/test.h"

void test_rows_open(const weft_compile_spec *s, const weft_cluster *c,
                    const weft_search_limits *l, weft_arena *a, weft_search_model *out)
{
    weft_compile_spec whole = *s;
    weft_model       *m;
    whole.batch = whole.micro_batch = 1;
    whole.layers                    = 0;
    assert_ok(weft_compile_model(&whole, &m));
    assert_ok(weft_planner_rows(s, m, c, l, 0, a, out));
    weft_model_destroy(m);
}
