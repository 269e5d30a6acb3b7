/* The folder of --hardware: hardware.csv (devices) and network.csv (nodes and wires). */
#ifndef WEFT_ESTIMATE_HARDWARE_H
#define WEFT_ESTIMATE_HARDWARE_H

#include "cluster/cluster.h"

typedef struct weft_hw_net {
    const char *name;
    int         dev_per_node, fast_domain;
    const char *intra_kind, *inter_kind;
    double      intra_Bps, inter_Bps; /* of one device; 0: not given */
    const char *mix;                  /* "v100_aws10g*3+t4_aws50g*1", or "" */
} weft_hw_net;

typedef struct weft_hardware {
    weft_arena       *arena;
    int               n_device, n_net;
    weft_device_kind *device; /* efficiencies open: cost/constants.h fills them */
    const char      **default_net;
    weft_hw_net      *net;
} weft_hardware;

weft_status weft_hardware_load(const char *dir, weft_hardware **out);
void        weft_hardware_destroy(weft_hardware *h);
/* Devices that c measured (those with a curve) take the place of ours of the same name; *n: how
 * many did. */
weft_status weft_hardware_learn(weft_hardware *h, const weft_cluster *c, int *n);

int weft_hardware_device(const weft_hardware *h, const char *name); /* -1: none */
int weft_hardware_net(const weft_hardware *h, const char *name);

#endif
