/* ZB-H1 (Qi et al. 2023): 1F1B with the backward in two parts.  The stage before waits for the
 * gradient of the input alone; rank s keeps the weights' part of s micro-batches back and does
 * them where it would stand idle at the end.  With equal parts idle is a third of 1F1B's:
 * (P-1)/(3M+P-1); a rank keeps at most P micro-batches, as many as 1F1B's first. */
#include "program/schedule_priv.h"

void weft_schedule__zb_h1(weft_schedule *s, int rank)
{
    int n = s->of.n_micro, warm = s->of.n_rank - 1 - rank, w = 0;
    if (warm > n) warm = n;
    for (int m = 0; m < warm; m++) weft_schedule__put(s, rank, WEFT_WORK_FORWARD, 0, m);
    for (int m = 0; m < n; m++) {
        if (warm + m < n) weft_schedule__put(s, rank, WEFT_WORK_FORWARD, 0, warm + m);
        weft_schedule__put(s, rank, WEFT_WORK_BACKWARD_INPUT, 0, m);
        if (m >= rank) weft_schedule__put(s, rank, WEFT_WORK_BACKWARD_WEIGHT, 0, w++);
    }
    while (w < n) weft_schedule__put(s, rank, WEFT_WORK_BACKWARD_WEIGHT, 0, w++);
}
