/* Text of a plan: whatever it holds, reading it must not crash, and what was read must read back
 * the same. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_plan *p, *q;
    weft_text  one = {0};
    if (weft_plan_parse("fuzz.json", (const char *)data, n, &p) != WEFT_OK) return 0;
    if (weft_plan_print(p, &one) != WEFT_OK) abort();
    if (weft_plan_parse("again.json", one.s, one.n, &q) != WEFT_OK) abort();
    if (!weft_plan_equal(p, q)) abort();
    weft_plan_destroy(p);
    weft_plan_destroy(q);
    weft_text_fini(&one);
    return 0;
}
