/* For the generators: each fills the list of one rank, from left to right. */
#ifndef WEFT_PROGRAM_SCHEDULE_PRIV_H
#define WEFT_PROGRAM_SCHEDULE_PRIV_H

#include "program/schedule.h"

typedef void (*weft_schedule__fn)(weft_schedule *s, int rank);

/* The next piece of rank's list; there is room for all that a step has. */
void weft_schedule__put(weft_schedule *s, int rank, weft_work_kind kind, int chunk,
                        int micro);

void weft_schedule__gpipe(weft_schedule *s, int rank);
void weft_schedule__1f1b(weft_schedule *s, int rank);
void weft_schedule__interleaved(weft_schedule *s, int rank);
void weft_schedule__zb_h1(weft_schedule *s, int rank);

#endif
