/* Prices: how long an instruction takes on a kind of device, from what it does, never from what
 * model it belongs to.
 *   compute      as it was measured (table.c), on GPUs with the gap to the next launch; else
 *                the longer of flops / (peak * efficiency) and bytes / memory bandwidth, plus the
 *   launch send         alpha + bytes / the path's share, with health
 *   recv         nothing of its own: the time is the send's
 *   host         updates and copies in the host's memory: its bandwidth, its link to the device
 *   (host.c)
 *   collectives  alpha and beta terms inside the group's islands and between them (link.c,
 *   collective.c)
 * Where ports are shared, by the ranks of the node that execute the same instruction (ports.h). */
#ifndef WEFT_COST_COST_H
#define WEFT_COST_COST_H

#include "cluster/cluster.h"
#include "program/program.h"

/* Seconds of instruction i of p.  A stated time (i->seconds >= 0) is taken as it stands. */
weft_status weft_cost_instr(const weft_program *p, const weft_instr *i,
                            const weft_cluster *c, double *seconds);
/* Seconds of an update that runs on the host's cores, wherever its operands are. */
weft_status weft_cost_update_on_host(const weft_program *p, const weft_instr *i,
                                     const weft_cluster *c, double *seconds);
/* Seconds of all instructions of p, by number (weft_program_instr_base), in a. */
weft_status weft_cost_program(const weft_program *p, const weft_cluster *c, weft_arena *a,
                              double **seconds);

/* Memory of p on a device of this kind while it trains: its slabs, of GPUs without those in host
 * memory and with what kernels take besides (op/workspace.h).  Without what driver and libraries
 * take for themselves. */
int64_t weft_cost_program_bytes(const weft_program *p, const weft_device_kind *d);

/* The path of a message, Bps being what it gets of the ports that it shares; stages are of so
 * many ranks, one after another.  The shape of a group of n ranks, outer.Bps being what each
 * member gets; the job has ranks origin .. world - 1. */
weft_status weft_cost_message_path(const weft_cluster *c, int stage_ranks, int from,
                                   int to, weft_path *out);
weft_status weft_cost_group_shape(const weft_cluster *c, int origin, int world,
                                  const int32_t *rank, int n, weft_group_shape *out);

enum {
    WEFT_COST_LEVELS = 16
};

/* Adds the bytes that p's rank sends in i to level[] (weft_path.level). */
weft_status weft_cost_traffic(const weft_program *p, const weft_instr *i,
                              const weft_cluster *c, double *level);

/* What the cluster's timings (measured tables, table.c) say: seconds of a work on a kind of
 * device, of a message (ranks 0) or collective over a kind of link, each rank giving bytes.
 * False: nothing. */
struct weft_workload;
bool weft_cost_timed_work(const weft_cluster *c, int device,
                          const struct weft_workload *w, double *out);
bool weft_cost_timed_link(const weft_cluster *c, int link, const char *work, int ranks,
                          double bytes, double *out);

/* The same from numbers alone: what a compute instruction of so many flops and bytes takes, and a
 * collective of n ranks, each giving bytes, over links of alpha seconds and beta seconds a byte. */
double weft_cost_roofline(const weft_device_kind *d, const char *dtype, double flops,
                          double bytes);
double weft_cost_collective(weft_collective k, int n, double bytes, double alpha,
                            double beta);

#endif
