/* The wires as a group of ranks sees them: devices in domains of fast links (a node, a rack),
 * domains joined by a network of so many bytes a second for each device.
 * A group is n ranks, each stride after the one before.  Of an all-reduce and its halves each
 * domain's members carry the traffic that leaves it together; all-to-all leaves by each member's
 * own wire. */
#ifndef WEFT_COST_FABRIC_H
#define WEFT_COST_FABRIC_H

#include <stdbool.h>

#include "cluster/cluster.h"
#include "program/program.h"

typedef struct weft_cost_wire {
    double alpha_s;
    double Bps; /* of one device, reached by large messages */
    /* the same in groups of up to 4, of 2: meshes of links are uneven; 0: Bps */
    double Bps_4, Bps_2;
    double alpha_4_s, alpha_2_s; /* of such groups; 0: alpha_s */
    double send_s, send_Bps;     /* of a single message; 0: as of a group of 2 */
    double decay; /* between domains: Bps falls as (number of domains) ^ -decay */
} weft_cost_wire;

typedef struct weft_cost_fabric {
    int            domain; /* devices in a fast domain */
    weft_cost_wire in, out;
    int            node; /* devices that share ports to other domains; 0: a domain's */
    /* of one port, of all of them; 0: not known, each has out.Bps */
    double port_Bps, ports_Bps;
    /* groups work inside domains and then between them, one after the other, as programs are
     * priced (link.c); else all at once */
    bool levels;
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
/* Seconds of one message between neighbours of g, all ranks between them sending at the same
 * time; the border of a domain sets the pace where g crosses one. */
double weft_cost_send_seconds(const weft_cost_fabric *f, weft_cost_group g, double bytes);
/* Seconds of one message inside a domain; between two domains, where n_from ranks of the sender's
 * node send at the same time and n_to of the receiver's receive (ports.h). */
double weft_cost_near_seconds(const weft_cost_fabric *f, double bytes);
double weft_cost_far_seconds(const weft_cost_fabric *from, int n_from,
                             const weft_cost_fabric *to, int n_to, double bytes);
/* Devices that share ports. */
int weft_cost_port_node(const weft_cost_fabric *f);
/* f between domains of its own kind and of others: the slower end sets the pace. */
void weft_cost_slower_end(weft_cost_fabric *f, const weft_cost_fabric *other);
/* What one of n ranks sends in it. */
double weft_cost_group_sent(int n, weft_collective k, double bytes);
/* How many domains the group reaches into. */
int weft_cost_group_domains(const weft_cost_fabric *f, weft_cost_group g);

#endif
