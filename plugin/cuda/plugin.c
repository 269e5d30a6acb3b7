/* What libweft_cuda.so exports: one symbol. */
#include "plugin/plugin.h"

#include <stdio.h>

#include "gpu.h"
#include "host.h"
#include "peer.h"
#include "library.h"

static const weft_kernel_table *const tables[] = {&weft_cuda_table};

/* In the order in which they are preferred. */
static const weft_device_backend *const backends[] = {
    &weft_cuda_peer_backend, &weft_cuda_nccl_backend, &weft_cuda_staged_backend};

static const char *print_build(void)
{
    static char text[WEFT_PLUGIN_BUILD_SIZE];
    snprintf(text, sizeof text, WEFT_PLUGIN_BUILD_FORMAT, WEFT_PLUGIN_BUILD_VALUES);
    return text;
}

static weft_status describe_libraries(char *text, size_t n)
{
    WEFT_TRY(weft_cuda_driver_open());
    WEFT_TRY(weft_cuda_libraries_open(weft_cuda_cu.version));
    weft_cuda_libraries_print(text, n);
    return WEFT_OK;
}

extern const weft_plugin                                 weft_plugin_cuda;
__attribute__((visibility("default"))) const weft_plugin weft_plugin_cuda = {
    .abi          = WEFT_PLUGIN_ABI,
    .bytes        = (int)sizeof(weft_plugin),
    .build        = print_build,
    .start        = weft_cuda_set_host,
    .count        = weft_cuda_count,
    .device_open  = weft_cuda_open,
    .device_close = weft_cuda_close,
    .n_table      = (int)WEFT_COUNT(tables),
    .table        = tables,
    .n_backend    = (int)WEFT_COUNT(backends),
    .backend      = backends,
    .describe     = describe_libraries,
};
