/* Private to the room. */
#ifndef WEFT_COST_PRIV_H
#define WEFT_COST_PRIV_H

#include "program/program.h"

/* Seconds of a collective of n ranks, each giving bytes, over links of alpha seconds and beta seconds a byte. */
double weft_cost__collective(weft_collective k, int n, double bytes, double alpha,
                             double beta);

#endif
