/* 1F1B: as many forwards as there are stages behind, then one forward, one backward in turn, then
 * the backwards that are left.  Idle (P-1)/(M+P-1); rank s keeps at most P - s micro-batches. */
#include "program/schedule_priv.h"

void weft_schedule__1f1b(weft_schedule *s, int rank)
{
    int n = s->of.n_micro, warm = s->of.n_rank - 1 - rank;
    if (warm > n) warm = n;
    for (int m = 0; m < warm; m++) weft_schedule__put(s, rank, WEFT_WORK_FORWARD, 0, m);
    for (int m = 0; m < n; m++) {
        if (warm + m < n) weft_schedule__put(s, rank, WEFT_WORK_FORWARD, 0, warm + m);
        weft_schedule__put(s, rank, WEFT_WORK_BACKWARD, 0, m);
    }
}
