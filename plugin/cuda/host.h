/* What the plugin calls of ours, by the table it is given. */
#ifndef WEFT_CUDA_HOST_H
#define WEFT_CUDA_HOST_H

#include "plugin/plugin.h"

void weft_cuda_set_host(const weft_plugin_host *h);

#endif
