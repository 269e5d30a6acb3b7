/* Any bytes as a trace of hosts: what is accepted runs, and its parts are within the wall clock. */
#include <stddef.h>
#include <stdint.h>

#include "goodput/goodput.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const double step_s[] = {0, 5000, 3000, 2000};
    weft_goodput_trace  t;
    weft_goodput_result r;
    weft_goodput_spec   s = {.step_s       = step_s,
                             .n_step_s     = 4,
                             .detect_s     = 10,
                             .pause_s      = 1,
                             .join_s       = 100,
                             .restart_s    = 60,
                             .notice_s     = n & 1 ? 4000 : 0,
                             .checkpoint_s = 1e5,
                             .copies       = 2};

    if (weft_goodput_parse("fuzz", (const char *)p, n, &t) != WEFT_OK) return 0;
    /* long traces are many steps */
    if (t.event[t.n - 1].at_s < 1e9 && weft_goodput_run(&t, &s, &r) == WEFT_OK &&
        (r.effective_s < -1 || r.effective_s > r.wall_s * (1 + 1e-9) + 1))
        __builtin_trap();
    weft_goodput_trace_fini(&t);
    return 0;
}
