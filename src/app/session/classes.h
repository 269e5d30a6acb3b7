/* Where the time of a step goes, by classes of instructions: for weft bench. */
#ifndef WEFT_SESSION_CLASSES_H
#define WEFT_SESSION_CLASSES_H

#include "program/timeline.h"

typedef enum weft_class {
    WEFT_CLASS_PRODUCTS,
    WEFT_CLASS_ATTENTION,
    WEFT_CLASS_NORMS,
    WEFT_CLASS_LOSS,
    WEFT_CLASS_UPDATE, /* with sums of squares and clipping */
    WEFT_CLASS_OTHER,
    WEFT_CLASS_GAPS, /* of a step without tracing: what no instruction takes */
    WEFT_N_CLASS
} weft_class;

const char *weft_class_name(weft_class c);
/* Milliseconds of each class in the timeline's last step; gaps: step_ms less all of them, at least
 * 0. */
void weft_classes_sum(const weft_timeline *t, double step_ms, double ms[WEFT_N_CLASS]);

#endif
