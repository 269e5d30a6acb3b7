/* Plugins: devices and kernels in a shared library of their own, opened when they are asked for.
 *
 *     weft_device *d;
 *     WEFT_TRY(weft_plugin_open_device("cuda", 0, &d));      libweft_cuda.so, its first device
 *     ...                                                    its kernels are registered
 *     weft_plugin_close_device(d);
 *
 * libweft_NAME.so exports one symbol, weft_plugin_NAME: a weft_plugin.  It links nothing of ours:
 * what it calls of ours is in the table that start() gets. */
#ifndef WEFT_PLUGIN_PLUGIN_H
#define WEFT_PLUGIN_PLUGIN_H

#include "base/arena.h"
#include "comm/device_comm.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "op/op.h"

enum {
    WEFT_PLUGIN_ABI = 1
};

/* What plugins call of ours. */
typedef struct weft_plugin_host {
    /* the error text of this thread; fail_in_text: text in front of it */
    weft_status (*fail_text)(weft_status st, const char *text);
    weft_status (*fail_in_text)(weft_status st, const char *text);
#define HOST(result, name, parameters, arguments) result(*name) parameters;
#include "plugin/host.def"
#undef HOST
} weft_plugin_host;

typedef struct weft_plugin {
    int abi;   /* WEFT_PLUGIN_ABI; the fields up to build stay where they are */
    int bytes; /* of this struct */
    /* WEFT_PLUGIN_BUILD_FORMAT where the plugin was compiled */
    const char *(*build)(void);

    /* Once, before all others. */
    void (*start)(const weft_plugin_host *host);
    /* Devices of this machine.  WEFT_ERR_ARG: "no NVIDIA driver: ..." */
    weft_status (*count)(int *n);
    /* The same device for the same number; closed as often as it was opened. */
    weft_status (*device_open)(int number, weft_device **out);
    void (*device_close)(weft_device *d);
    int                             n_table;
    const weft_kernel_table *const *table;
    /* how its devices communicate with those of other ranks, the preferred backend first */
    int                               n_backend;
    const weft_device_backend *const *backend;
    /* The libraries that it uses: "cublasLt 13.1.0 /usr/lib/..., cuDNN 9.19.0 ...".
     * WEFT_ERR_ARG: one that it cannot do without is missing. */
    weft_status (*describe)(char *text, size_t n);
} weft_plugin;

/* What plugin and host must agree on, as one text: version, operators, sizes of shared structs. */
#define WEFT_PLUGIN_BUILD_SIZE 144
#define WEFT_PLUGIN_BUILD_FORMAT                                                         \
    "weft " WEFT_VERSION ", %d operators, sizes %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu"
#define WEFT_PLUGIN_BUILD_VALUES                                                         \
    (int)WEFT_N_OP, sizeof(weft_plugin_host), sizeof(weft_device), sizeof(weft_view),    \
        sizeof(weft_kernel_call), sizeof(weft_kernel_ctx), sizeof(weft_kernel),          \
        sizeof(weft_kernel_table), sizeof(weft_device_backend), sizeof(weft_comm_call),  \
        sizeof(weft_device_facts)

/* libweft_<name>.so of $WEFT_PLUGINS (folders, by ':'), or beside this library or command; its
 * kernels are registered.  Opened once, never closed.  WEFT_ERR_ARG: there is none, or it is of
 * another build. */
weft_status weft_plugin_open(const char *name, const weft_plugin **out);

weft_status weft_plugin_open_device(const char *name, int number, weft_device **out);
/* Devices that are no plugin's are left alone. */
void weft_plugin_close_device(weft_device *d);
/* The plugin of a device; NULL: it is none's. */
const weft_plugin *weft_plugin_of(const weft_device *d);

#endif
