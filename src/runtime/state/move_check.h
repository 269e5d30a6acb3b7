/* A list of moves, looked at before it is carried out: is it right, and what does it take?  Pure.
 *
 *     WEFT_TRY(weft_move_verify(&list, old, new));
 *     seconds = weft_move_simulate(load, &routes, &speed);     load: what each rank carries
 *
 * The model of time: a rank makes its pages and copies what it needs of its own host, then all
 * messages go at once; a host's go through its port in each direction, and the slowest rank and the
 * slowest host count. */
#ifndef WEFT_STATE_MOVE_CHECK_H
#define WEFT_STATE_MOVE_CHECK_H

#include "state/move.h"

/* Of all moves between two tables (weft_move_plan of rank -1): every element of a part of `new` is
 * brought exactly once, by a move from a holder that has it.  Tensors that `old` does not have are
 * left out.  WEFT_ERR_INTERNAL: it is not so; names the tensor and the rank. */
weft_status weft_move_verify(const weft_move_list *l, const weft_holders *old,
                             const weft_holders *new);

/* Who carries a move: holder h is served by rank h % world (mover.h). */
typedef struct weft_move_routes {
    int            world;
    const int32_t *host; /* of each rank; NULL: all are on one, and nothing is sent */
} weft_move_routes;

/* Bytes of one rank. */
typedef struct weft_move_load {
    int64_t copied, sent, received;
    double  make_s; /* for the pages of its memory, before it copies */
} weft_move_load;

typedef struct weft_move_speed {
    double copy_Bps; /* of one rank, bytes that arrive */
    double port_Bps; /* of a host, in each direction; 0: nothing is sent */
    double alpha_s;  /* of a message's way */
} weft_move_speed;

/* Seconds. */
double weft_move_simulate(const weft_move_load *load, const weft_move_routes *routes,
                          const weft_move_speed *speed);

#endif
