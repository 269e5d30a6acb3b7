/* Private to the room. */
#ifndef WEFT_EXCHANGE_PRIV_H
#define WEFT_EXCHANGE_PRIV_H

#include "exchange/exchange.h"

enum {
    EXCHANGE_MAX = 4 * 31 + 4 /* steps of halving in two parts at 2^31 positions */
};

typedef struct exchange_list {
    int                n;
    weft_exchange_step step[EXCHANGE_MAX];
} exchange_list;

/* All steps of one position. */
void weft_exchange__halving(const weft_exchange *x, int me, exchange_list *l);

static inline int exchange_below(int n) /* the largest power of two not above n */
{
    int m = 1;
    while (m <= n / 2) m *= 2;
    return m;
}

#endif
