/* Private to the room. */
#ifndef WEFT_PLACE_PRIV_H
#define WEFT_PLACE_PRIV_H

#include "place/place.h"

/* A cluster's devices as arrays, and room for loads: pricing allocates nothing. */
typedef struct weft_place_table {
    const weft_cluster *c;
    weft_arena         *arena;
    int     n_device, n_node, n_level; /* levels: switches and the net outside */
    int     n_usable, *usable;         /* device numbers, rising */
    int    *node, *island;             /* of a device */
    int    *alike; /* devices of one class price the same; class of a device */
    double *speed; /* flop/s it reaches */
    double *own_Bps, *port_Bps; /* of a device: its links, its port */
    double *node_Bps;           /* of a node: all ports */
    double *taper;              /* of a level, and of those within it */
    /* scratch */
    double *dev_in, *dev_out, *node_in, *node_out; /* seconds; bytes by level */
    int    *member;
} weft_place_table;

weft_status weft_place__open(const weft_place_job *j, const weft_cluster *c,
                             weft_place_table *t);
void        weft_place__close(weft_place_table *t);
void weft_place__price(const weft_place_job *j, weft_place_table *t, const int *device,
                       weft_place_seconds *out);
/* May rank r lie on device d? */
static inline bool weft_place__may(const weft_place_job *j, int r, int d)
{
    return !j->may || (j->may[r] & j->kind[d]) != 0;
}
/* a better than b, by more than rounding. */
bool weft_place__better(const weft_place_seconds *a, const weft_place_seconds *b);

/* Lowers the price by swaps of two ranks, or of a rank and an idle device; n_try of them.  Ranks
 * with
 * fixed[rank] stay (NULL: none). */
weft_status weft_place__swap(const weft_place_job *j, weft_place_table *t,
                             const bool *fixed, int n_try, weft_placement *p);
/* All placements, if they are at most `most`; *done false: too many, p is as it was. */
weft_status weft_place__all(const weft_place_job *j, weft_place_table *t, int64_t most,
                            weft_placement *p, bool *done);

#endif
