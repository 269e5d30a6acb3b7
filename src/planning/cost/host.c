/* The host's part of a step (offload): updates on its cores, which read and write its memory, and
 * copies between its memory and a device's.
 *
 *     update    bytes / what the host's memory carries, which the ranks of a node share
 *     copy      launch + bytes / what the link between host and device carries, one direction
 *
 * A cluster's timings say both, by kind of device: work "host update" and "host copy", size the
 * bytes (weft cluster calibrate).  Else copies are those of the cluster's link to-host, and the
 * rest is the numbers below. */
#include "cost/cost.h"

#include <string.h>

#include "cost/cost_priv.h"

/* Assumed, not measured: a node of two sockets whose memory carries 200 GB/s to optimizer kernels
 * on all cores, and a PCIe 4.0 x16 link (32 GB/s) of which pinned copies reach about 25. */
#define UPDATE_BPS 2e11
#define COPY_BPS   2.5e10

static bool is_host_operand(const weft_program *p, const weft_operand *o)
{
    return o->buffer >= 0 &&
           weft_slab_kind_is_host(p->slab[p->buffer[o->buffer].slab].kind);
}

bool weft_cost__is_on_host(const weft_program *p, const weft_instr *i)
{
    if (!p->n_buffer) return false; /* prices of single instructions */
    if (i->kind == WEFT_INSTR_COPY)
        return is_host_operand(p, &i->in[0]) || is_host_operand(p, &i->out[0]);
    return i->kind == WEFT_INSTR_COMPUTE && weft_instr_is_on_host(p, i);
}

/* Bytes a second that were timed of a work; otherwise. */
static double find_Bps(const weft_cluster *c, const weft_device_kind *d, const char *work,
                       double otherwise)
{
    int                n = 0;
    const weft_timing *t =
        weft_cluster_timings(c, (int)(d - c->device), -1, work, -1, &n);
    return t && n && t[n - 1].s > 0 ? t[n - 1].size[0] / t[n - 1].s : otherwise;
}

static double find_copy_Bps(const weft_cluster *c, const weft_device_kind *d)
{
    double otherwise = COPY_BPS;
    for (int i = 0; i < c->n_link; i++)
        if (!strcmp(c->link[i].name, "to-host"))
            otherwise = c->link[i].Bps * c->link[i].share;
    return find_Bps(c, d, "host copy", otherwise);
}

/* Ranks of the job whose updates run at the same time. */
static int count_ranks(const weft_program *p, const weft_cluster *c)
{
    weft_rank_range node = weft_cluster_node_ranks(c, p->rank);
    int             end  = node.first + node.n;
    if (p->world > 0 && end > p->world) end = p->world;
    return end > node.first ? end - node.first : 1;
}

static weft_status find_device(const weft_program *p, const weft_cluster *c,
                               const weft_device_kind **out)
{
    *out = weft_cluster_device(c, p->rank);
    return *out ? WEFT_OK
                : WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has no device for rank %d", c->name,
                            p->rank);
}

weft_status weft_cost_update_on_host(const weft_program *p, const weft_instr *i,
                                     const weft_cluster *c, double *seconds)
{
    const weft_device_kind *d;
    WEFT_TRY(find_device(p, c, &d));
    *seconds = weft_instr_bytes(i) * count_ranks(p, c) /
               find_Bps(c, d, "host update", UPDATE_BPS);
    return WEFT_OK;
}

weft_status weft_cost__host_seconds(const weft_program *p, const weft_instr *i,
                                    const weft_cluster *c, double *seconds)
{
    const weft_device_kind *d;
    if (i->kind == WEFT_INSTR_COMPUTE) return weft_cost_update_on_host(p, i, c, seconds);
    WEFT_TRY(find_device(p, c, &d));
    double bytes = (double)weft_shape_count(&i->in[0].type.shape) *
                   (double)weft_dtype_bytes(i->in[0].type.dtype);
    *seconds = d->launch_s + bytes / find_copy_Bps(c, d);
    return WEFT_OK;
}
