/* A table of configurations: whatever it holds, reading and predicting it must not crash, and
 * what is predicted is finite and above 0. */
#include <math.h>
#include <stdlib.h>

#include "estimate/estimate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static weft_hardware       *hardware;
static weft_cost_constants *constants;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_csv *t;
    if (!hardware &&
        (weft_hardware_load("tests/fixtures/estimate", &hardware) != WEFT_OK ||
         weft_cost_constants_create(&constants) != WEFT_OK))
        abort();
    if (weft_csv_parse("fuzz", (const char *)data, n, &t) != WEFT_OK) return 0;
    for (int i = 0; i < t->n_row && i < 8; i++) {
        weft_config     c;
        weft_prediction p;
        if (weft_config_read(t, i, &c) != WEFT_OK ||
            weft_estimate_row(hardware, constants, &c, &p) != WEFT_OK)
            continue;
        if (!isfinite(p.step_s) || !(p.step_s > 0) || !(p.mem_bytes > 0)) abort();
    }
    weft_csv_destroy(t);
    return 0;
}
