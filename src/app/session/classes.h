/* Where the time of a step goes, by classes of instructions: for weft bench. */
#ifndef WEFT_SESSION_CLASSES_H
#define WEFT_SESSION_CLASSES_H

#include "program/class.h"
#include "program/timeline.h"

/* Milliseconds of each class in the timeline's last step; gaps: step_ms less all of them, at least
 * 0. */
void weft_classes_sum(const weft_timeline *t, double step_ms, double ms[WEFT_N_CLASS]);

#endif
