/* What has to be moved so that every rank has the parts it shall have: a list of (tensor, region,
 * from, to), made by intersecting regions.  Pure: no memory of tensors, no messages.
 *
 *     weft_move_list l = {0};
 *     WEFT_TRY(weft_move_plan(old, new, rank, &l));        this rank's moves
 *     ...
 *     weft_move_list_fini(&l);
 *
 * (1) Every element that a rank shall have comes from exactly one rank, which holds it: from itself
 *     where it can, else from one of its host where holders know hosts, else from a replica chosen
 *     by its rank and the tensor, so that ranks which need the same elements ask different
 *     replicas.
 * (2) The list depends on the tables alone: two ranks find the same moves between them, in the same
 *     order.
 * (3) Regions are boxes, none empty. */
#ifndef WEFT_STATE_MOVE_H
#define WEFT_STATE_MOVE_H

#include "state/holders.h"

typedef struct weft_move {
    int         tensor; /* of the table that is moved from */
    int         target; /* of the one that is moved to */
    int         from, to;
    weft_region region;
} weft_move;

typedef struct weft_move_list {
    int        n, cap;
    weft_move *move;
} weft_move_list;

void weft_move_list_fini(weft_move_list *l); /* all zero is fine, before and after */

/* Adds the moves that bring a region of a tensor of h to rank `to`; turn: which of the replicas, 0
 * is the lowest rank.  WEFT_ERR_INTERNAL: nobody holds all of it; names the tensor. */
weft_status weft_move_add_region(const weft_holders *h, int tensor, const weft_region *r,
                                 int to, unsigned turn, weft_move_list *l);

/* All moves from or to a rank (-1: of all ranks) that fill the parts of `new` out of those of
 * `old`: by tensor, then by the part and by the ranks that get it.  Tensors that `old` does not
 * have are left out.  WEFT_ERR_ARG: a tensor has another type or shape in the other table. */
weft_status weft_move_plan(const weft_holders *old, const weft_holders *new, int rank,
                           weft_move_list *l);
/* Only those to it. */
weft_status weft_move_plan_to(const weft_holders *old, const weft_holders *new, int rank,
                              weft_move_list *l);
/* Every rank has each part that it shall have: all moves are from a rank to itself.  Costs no more
 * than a comparison for each tensor and rank. */
bool weft_move_is_none(const weft_holders *old, const weft_holders *new);

#endif
