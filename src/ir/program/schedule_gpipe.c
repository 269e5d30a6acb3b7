/* GPipe: all forwards, then all backwards.  Idle (P-1)/(M+P-1); a rank keeps all M micro-batches.
 * Backwards go from left to right too, as sums do. */
#include "program/schedule_priv.h"

void weft_schedule__gpipe(weft_schedule *s, int rank)
{
    for (int m = 0; m < s->of.n_micro; m++)
        weft_schedule__put(s, rank, WEFT_WORK_FORWARD, 0, m);
    for (int m = 0; m < s->of.n_micro; m++)
        weft_schedule__put(s, rank, WEFT_WORK_BACKWARD, 0, m);
}
