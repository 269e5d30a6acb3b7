#include "session/classes.h"

#include <string.h>

void weft_classes_sum(const weft_timeline *t, double step_ms, double ms[WEFT_N_CLASS])
{
    double all = 0;
    memset(ms, 0, sizeof *ms * WEFT_N_CLASS);
    for (int k = 0; k < t->n_slice; k++) {
        const weft_slice *s = &t->slice[k];
        if (s->step != t->n_step - 1) continue;
        const weft_instr *i    = &t->program[s->program]->actor[s->actor].instr[s->instr];
        double            took = 1e3 * (s->end_s - s->start_s);
        ms[weft_instr_class(i)] += took;
        all += took;
    }
    ms[WEFT_CLASS_GAPS] = step_ms > all ? step_ms - all : 0;
}
