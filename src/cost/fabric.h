/* The wires as a group of ranks sees them: devices in domains of fast links (a node, a rack), domains
 * joined by a network of so many bytes a second for each device.
 * A group is n ranks, each stride after the one before.  Of an all-reduce and its halves each domain's
 * members carry the traffic that leaves it together; all-to-all leaves by each member's own wire. */
#ifndef WEFT_COST_FABRIC_H
#define WEFT_COST_FABRIC_H

#include <stdbool.h>

#include "cluster/cluster.h"
#include "program/program.h"

typedef struct weft_cost_wire {
    double alpha_s;
    double Bps; /* of one device, reached by large messages */
    double Bps_4,
        Bps_2; /* the same in groups of up to 4, of 2: meshes of links are uneven; 0: Bps */
    double alpha_4_s, alpha_2_s; /* of such groups; 0: alpha_s */
    double send_s, send_Bps;     /* of a single message; 0: as of a group of 2 */
    double decay; /* between domains: Bps falls as (number of domains) ^ -decay */
} weft_cost_wire;

typedef struct weft_cost_fabric {
    int            domain; /* devices in a fast domain */
    weft_cost_wire in, out;
    bool
        levels; /* groups work inside domains and then between them, one after the other, as programs are priced (link.c);
                  * else all at once */
    /* where what goes over the links inside a domain was timed */
    const weft_cluster *timed; /* NULL: nothing was */
    int                 link;  /* of it */
    double              slow;  /* than timed: its health */
} weft_cost_fabric;

typedef struct weft_cost_group {
    int n, stride;
} weft_cost_group;

/* Seconds of a collective in which each rank gives bytes (all_reduce: the whole of what is summed;
 * reduce_scatter: the whole; all_gather: its share; all_to_all: all that it sends). */
double weft_cost_group_seconds(const weft_cost_fabric *f, weft_cost_group g,
                               weft_collective k, double bytes);
/* Seconds of one message between neighbours of g; the border of a domain sets the pace where g crosses one. */
double weft_cost_send_seconds(const weft_cost_fabric *f, weft_cost_group g, double bytes);
/* What one of n ranks sends in it. */
double weft_cost_group_sent(int n, weft_collective k, double bytes);
/* How many domains the group reaches into. */
int weft_cost_group_domains(const weft_cost_fabric *f, weft_cost_group g);

#endif
