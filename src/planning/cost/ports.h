/* Who uses the ports of a node at the same time.
 *
 * The ranks of a job run in lockstep, so ranks on one node that execute the same message or
 * collective share the node's ports; different messages and collectives are not counted together.
 *     message      the ranks of the sender's stage on its node whose receiver is outside the
 *                  node's island (all tp, cp and dp ranks of a stage send together; other stages
 *                  send at other times).  At the receiver's node likewise those that receive.
 *     collective   the ranks of the job on the node whose group over the same mesh axes reaches
 *                  into another island; all stages are counted, since the sums of a step come
 *                  together at its end.
 * Each of n such ranks gets min(one port, all ports / n).  The simulator (link.c) and the fast
 * estimate (hop.c) both use these functions. */
#ifndef WEFT_COST_PORTS_H
#define WEFT_COST_PORTS_H

#include "cluster/cluster.h"

/* Ranks of a stage on a node whose partner, `move` ranks further, is not in the node's island. */
int weft_cost_count_crossing(weft_rank_range node, weft_rank_range island,
                             weft_rank_range stage, int64_t move);
/* Ranks of the job (0 .. world - 1) on the node of `rank` whose group reaches into another
 * island.  Groups of one kind are equal up to their place in the mesh, whose first rank is
 * `origin`: group[] is one of them, sorted, of n ranks. */
int weft_cost_count_members(const weft_cluster *c, int origin, int world,
                            const int32_t *group, int n, int rank);
/* What each of n ranks gets of a node's ports. */
double weft_cost_port_share(double one_Bps, double all_Bps, int n);

#endif
