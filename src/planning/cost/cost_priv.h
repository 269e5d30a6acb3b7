/* Private to the room. */
#ifndef WEFT_COST_PRIV_H
#define WEFT_COST_PRIV_H

#include "cluster/cluster.h"
#include "program/program.h"

/* Seconds of a collective of n ranks, each giving bytes, over links of alpha seconds and beta
 * seconds a byte. */
double weft_cost__collective(weft_collective k, int n, double bytes, double alpha,
                             double beta);
/* Of a rank's own message or collective, over the links that it takes (link.c). */
weft_status weft_cost__send_seconds(const weft_program *p, const weft_instr *i,
                                    const weft_cluster *c, double *out);
/* shape: of the group, found here where its n is 0; NULL: it is not kept. */
weft_status weft_cost__collective_seconds(const weft_program *p, const weft_instr *i,
                                          const weft_cluster *c, weft_group_shape *shape,
                                          double *out);

/* The sum over all ranks at the commit point. */
weft_status weft_cost__vote_seconds(const weft_program *p, const weft_cluster *c,
                                    double *out);

/* Seconds that the cluster's timings give for i on a device kind; false: they say nothing about
 * it. */
bool weft_cost__measured_work(const weft_cluster *c, int device, const weft_instr *i,
                              double *out);
/* The same for a message (ranks 0) or a collective over the link of w; else *out stays. */
void weft_cost__measured_link(const weft_cluster *c, const weft_path *w, const char *work,
                              int ranks, double bytes, double *out);

/* host.c: does the host run it, or does it cross the link to the host; and how long. */
bool        weft_cost__is_on_host(const weft_program *p, const weft_instr *i);
weft_status weft_cost__host_seconds(const weft_program *p, const weft_instr *i,
                                    const weft_cluster *c, double *seconds);

#endif
