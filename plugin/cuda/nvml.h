/* What other processes hold of a GPU's memory: only NVIDIA's management library knows, and only
 * before this process has a context there. */
#ifndef WEFT_CUDA_NVML_H
#define WEFT_CUDA_NVML_H

#include <stdint.h>

/* Bytes in use on the GPU at this PCI address, as cuDeviceGetPCIBusId names it, without what the
 * driver reserves for itself.  -1: libnvidia-ml.so.1 is not here, or does not say. */
int64_t weft_cuda_used_bytes(const char *bus_id);

#endif
