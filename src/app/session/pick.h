/* One token from logits.  temperature 0: the largest; else softmax(logits / temperature) over the
 * top_k
 * largest (0: all), drawn by a number u in [0, 1).  Ties go to the smaller id. */
#ifndef WEFT_SESSION_PICK_H
#define WEFT_SESSION_PICK_H

#include "base/status.h"

/* order: room for n ids. */
int32_t weft_pick(const float *logit, int32_t n, double temperature, int64_t top_k,
                  double u, int32_t *order);

/* The number u of draw i: philox(seed, i). */
double weft_pick_uniform(uint64_t seed, int64_t i);

#endif
