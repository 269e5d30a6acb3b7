/* Private to the room. */
#ifndef WEFT_TRACE_PRIV_H
#define WEFT_TRACE_PRIV_H

#include "program/class.h"
#include "trace/trace.h"

/* Kinds of a trace are names of operators, of other instructions, and of collectives. */
weft_class weft_trace__class_of(const char *kind);

/* weft_trace_fit() for a cluster with timings (learn.c). */
weft_status weft_trace__learn(const weft_trace *m, const weft_cluster *c,
                              weft_cluster **out, weft_trace_fitted *fit);

#endif
