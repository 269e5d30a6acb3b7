/* What devices of this module share. */
#ifndef WEFT_DEVICE_PRIV_H
#define WEFT_DEVICE_PRIV_H

#include "device/device.h"

/* cpu.c: pages of the host, for every space. */
weft_status weft_device__cpu_alloc(weft_device *d, weft_space space, int64_t bytes,
                                   weft_memory *out);
void        weft_device__cpu_free(weft_device *d, const weft_memory *m);

#endif
