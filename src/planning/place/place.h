/* Placement: which device each rank of a mesh gets, so that heavy traffic takes fast links, and
 * how much work devices of different speed get.
 *
 *     weft_place_job job = {.n_axis = 2, .flops = 1e15, .dtype = "bf16",
 *                           .axis = {{"dp", 4, WEFT_PLACE_RING, 1e8, false},
 *                                    {"tp", 8, WEFT_PLACE_RING, 1e10, true}}};
 *     weft_placement p;
 *     WEFT_TRY(weft_place_map(&job, cluster, &p));
 *     ... p.device[rank] ...          rank counts the axes as written, the last one fastest
 *     weft_placement_fini(&p);
 *
 * The price of a placement (weft_place_price) is what the search lowers: the seconds of computing
 * plus, axis by axis, the seconds of the most loaded device, port or switch while all groups of
 * that axis talk at once. */
#ifndef WEFT_PLACE_PLACE_H
#define WEFT_PLACE_PLACE_H

#include "cluster/cluster.h"

#define WEFT_PLACE_MAX_AXIS 8

typedef enum weft_place_pattern {
    WEFT_PLACE_RING, /* each gives bytes to the next of a ring; the ring's order is free */
    WEFT_PLACE_CHAIN, /* each gives bytes to the one after it along the axis */
    WEFT_PLACE_ALL,   /* each gives bytes in all, an equal part to each other */
} weft_place_pattern;

typedef struct weft_place_axis {
    const char        *name;
    int                size;
    weft_place_pattern pattern;
    double             bytes; /* a rank and step */
    /* work is split evenly along it, so that the slowest sets the pace; false: shares follow
     * speed (layers of stages, samples of replicas) */
    bool even;
} weft_place_axis;

typedef struct weft_place_job {
    int             n_axis;
    weft_place_axis axis[WEFT_PLACE_MAX_AXIS];
    double          flops; /* of all ranks in a step; 0: speeds do not matter */
    const char     *dtype;
    /* Where ranks may lie: rank r on devices whose kind is a bit of may[r]; NULL: anywhere. */
    const uint8_t *may;
    const uint8_t *kind; /* [device]: its bit; 0: none may */
    /* A placement that is to be looked at before all others; NULL: first fit. */
    const int *guess;
} weft_place_job;

typedef struct weft_place_seconds {
    double compute_s, axis_s[WEFT_PLACE_MAX_AXIS];
    double total_s; /* the sum */
    double even_s;  /* the sum of all loads, to choose between equal totals */
} weft_place_seconds;

typedef struct weft_placement {
    int                n_rank;
    int               *device; /* of each rank */
    weft_place_seconds price;
    int64_t            n_tried; /* placements priced */
    bool               exact;   /* all placements there are were priced */
} weft_placement;

/* Ranks of a job: the product of its axes. */
int weft_place_n_rank(const weft_place_job *j);

/* WEFT_ERR_NOFIT: fewer usable devices than ranks.  The same input gives the same placement. */
weft_status weft_place_map(const weft_place_job *j, const weft_cluster *c,
                           weft_placement *out);
void        weft_placement_fini(weft_placement *p);

/* The price of a placement of the caller's; device[rank] are to be usable and different. */
weft_status weft_place_price(const weft_place_job *j, const weft_cluster *c,
                             const int *device, weft_place_seconds *out);

/* After devices were cordoned: ranks whose device is still usable stay (old -1: it had none); the
 * others get the devices that cost least. *n_moved is therefore the least there can be. */
weft_status weft_place_repair(const weft_place_job *j, const weft_cluster *c,
                              const int *old, weft_placement *out, int *n_moved);

/* Nodes in a row that hold alike boxes of the mesh: the ranks with lo[a] <= place along axis a <=
 * hi[a]. */
typedef struct weft_place_run {
    int  node, n_node;              /* over all kinds */
    int  first, per;                /* its first device, devices of a node */
    int  n_rank;                    /* of a node */
    int  wide[WEFT_PLACE_MAX_AXIS]; /* places of a node along an axis */
    int  lo[WEFT_PLACE_MAX_AXIS], hi[WEFT_PLACE_MAX_AXIS]; /* over the run */
    bool box; /* false: its ranks are no box, and the run is one node */
} weft_place_run;

/* A run has nodes of one kind, in the same health, with ranks of one place along the first axis
 * (a stage) or of the same ones.  In a. */
weft_status weft_place_runs(const weft_place_job *j, const weft_cluster *c,
                            const weft_placement *p, weft_arena *a, weft_place_run **run,
                            int *n);

/* Which ranks nodes have, alike ones together, and the price axis by axis. */
weft_status weft_place_print(const weft_place_job *j, const weft_cluster *c,
                             const weft_placement *p, weft_text *t);

/* ---- the mesh of a plan ---- */

/* Ranks counted stage by stage; in a stage replicas, groups of experts, context, tensor
 * (fastest): as plan files do. */
enum {
    WEFT_PLACE_PP,
    WEFT_PLACE_DP,
    WEFT_PLACE_EP,
    WEFT_PLACE_CP,
    WEFT_PLACE_TP,
    WEFT_PLACE_N_MESH
};

typedef struct weft_place_mesh {
    int    size[WEFT_PLACE_N_MESH];
    double bytes[WEFT_PLACE_N_MESH]; /* that a rank sends in a step */
} weft_place_mesh;

weft_place_job weft_place_mesh_job(const weft_place_mesh *m);

/* The devices that ranks of `now` have from the ranks of `was` with the same weights; -1: none.
 * Where replicas have become fewer, those stay that lost the fewest devices.  *same false: cut
 * otherwise, nobody keeps anything. */
weft_status weft_place_inherit(const weft_place_mesh *was, const int *was_device,
                               const weft_place_mesh *now, const weft_cluster *c,
                               int *device, bool *same);

#endif
