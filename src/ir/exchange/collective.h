/* The kinds of collective, the same for programs, transports and simulation. */
#ifndef WEFT_EXCHANGE_COLLECTIVE_H
#define WEFT_EXCHANGE_COLLECTIVE_H

typedef enum weft_collective {
    WEFT_ALL_REDUCE,     /* out = sum of all in */
    WEFT_REDUCE_SCATTER, /* out = this position's share of the sum; in is n shares */
    WEFT_ALL_GATHER,     /* out = all in, in the order of positions */
    WEFT_ALL_TO_ALL,     /* share k of out = this position's share of k's in */
    WEFT_BROADCAST,      /* out = in of position 0 */
    WEFT_BARRIER,
    WEFT_SHIFT, /* out = in of the position before, of the last one for position 0 */
    /* in[0]: rows in bins, in[1]: how many everyone has of each (weft_comm_rows); out: rows of
     * own bins */
    WEFT_SEND_ROWS,
    WEFT_RETURN_ROWS, /* the reverse */
} weft_collective;
enum {
    WEFT_N_COLLECTIVE = WEFT_RETURN_ROWS + 1
};

const char *weft_collective_name(weft_collective c); /* "all_reduce" */

#endif
