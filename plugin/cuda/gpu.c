/* The GPUs of this machine: found, opened once, closed with their last user. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "library.h"
#include "nvml.h"

enum {
    MAJOR_ATTRIBUTE          = 75, /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
    MINOR_ATTRIBUTE          = 76,
    MAX_SHARED_ATTRIBUTE     = 97, /* ..._MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    MULTIPROCESSOR_ATTRIBUTE = 16,
    TENSOR_MAP_ATTRIBUTE     = 127, /* ..._TENSOR_MAP_ACCESS_SUPPORTED */
    LEAST_CAPABILITY         = 80,
    WGMMA_CAPABILITY         = 90, /* sm_90a: no earlier one, no later one */
    NON_BLOCKING             = 1
};

static weft_cuda_gpu   gpus[WEFT_CUDA_MAX_GPU];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Contexts are numbered: one that is opened again is another. */
static int64_t               last_serial;
static _Thread_local int64_t current;

weft_status weft_cuda_use(weft_cuda_gpu *g)
{
    if (current == g->serial) return WEFT_OK;
    CU_TRY(CtxSetCurrent, g->context);
    current = g->serial;
    return WEFT_OK;
}

weft_status weft_cuda_count(int *n)
{
    WEFT_TRY(weft_cuda_driver_open());
    CU_TRY(DeviceGetCount, n);
    return WEFT_OK;
}

static weft_status find_device(weft_cuda_gpu *g)
{
    int n, major, minor;
    WEFT_TRY(weft_cuda_count(&n));
    if (!n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "no GPU: the NVIDIA driver finds none; device=cpu needs none");
    if (g->number >= n)
        return WEFT_FAIL(
            WEFT_ERR_ARG, "device cuda:%d: this machine has %d GPU%s, cuda:0%s%.0d",
            g->number, n, n > 1 ? "s" : "", n > 1 ? " to cuda:" : "", n > 1 ? n - 1 : 0);
    CU_TRY(DeviceGet, &g->ordinal, g->number);
    CU_TRY(DeviceGetAttribute, &major, MAJOR_ATTRIBUTE, g->ordinal);
    CU_TRY(DeviceGetAttribute, &minor, MINOR_ATTRIBUTE, g->ordinal);
    g->capability = 10 * major + minor;
    if (g->capability >= LEAST_CAPABILITY) return WEFT_OK;
    char name[80] = "?";
    weft_cuda_cu.DeviceGetName(name, sizeof name, g->ordinal);
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "%s is a %s of compute capability %d.%d: 8.0 is the least (Ampere and later)",
        g->name, name, major, minor);
}

static weft_status ask_limits(weft_cuda_gpu *g)
{
    int maps;
    CU_TRY(DeviceGetAttribute, &g->max_shared_bytes, MAX_SHARED_ATTRIBUTE, g->ordinal);
    CU_TRY(DeviceGetAttribute, &g->n_multiprocessor, MULTIPROCESSOR_ATTRIBUTE,
           g->ordinal);
    CU_TRY(DeviceGetAttribute, &maps, TENSOR_MAP_ATTRIBUTE, g->ordinal);
    g->has_wgmma = maps && g->capability == WGMMA_CAPABILITY;
    return WEFT_OK;
}

static bool is_set(const char *name, const char *value)
{
    const char *x = getenv(name);
    return x && !strcmp(x, value);
}

static weft_status use_gpu(void *g)
{
    return weft_cuda_use(g);
}

/* WEFT_CUDA_LIBS=none: own kernels alone. */
static weft_status bind_libraries(weft_cuda_gpu *g)
{
    char name[80] = "", kind[96];
    bool none     = is_set("WEFT_CUDA_LIBS", "none");
    if (!none) WEFT_TRY(weft_cuda_libraries_open(weft_cuda_cu.version));
    CU_TRY(DeviceGetName, name, sizeof name, g->ordinal);
    snprintf(kind, sizeof kind, "sm_%d %s", g->capability, name);
    if (!none) WEFT_TRY(weft_cuda_read_pinned(name));
    weft_cuda_libraries_bind(use_gpu, g, kind);
    return none ? WEFT_OK : weft_cuda_open_tuner();
}

/* Before there is a context of ours. */
static weft_status ask_other_bytes(weft_cuda_gpu *g)
{
    char bus_id[32] = "";
    CU_TRY(DeviceGetPCIBusId, bus_id, (int)sizeof bus_id, g->ordinal);
    g->other_bytes = weft_cuda_used_bytes(bus_id);
    return WEFT_OK;
}

static weft_status open_gpu(weft_cuda_gpu *g)
{
    WEFT_TRY(find_device(g));
    WEFT_TRY(ask_limits(g));
    WEFT_TRY(ask_other_bytes(g));
    CU_TRY(CtxRetain, &g->context, g->ordinal);
    g->has_context = true;
    g->serial      = ++last_serial;
    WEFT_TRY(weft_cuda_use(g));
    CU_TRY(StreamCreate, &g->copies, NON_BLOCKING);
    CU_TRY(EventCreate, &g->base, 0);
    WEFT_TRY(weft_cuda_set_base(g));
    WEFT_TRY(weft_cuda_load_kernels(g));
    WEFT_TRY(bind_libraries(g));
    g->sync = is_set("WEFT_CUDA_SYNC", "1");
    weft_cuda_fill_device(g);
    if (g->sync || is_set("WEFT_CUDA_GRAPH", "0")) g->device.capture_begin = NULL;
    return WEFT_OK;
}

static void close_gpu(weft_cuda_gpu *g)
{
    int number = g->number;
    if (g->has_context) {
        (void)weft_cuda_use(g);
        weft_cuda_libraries_unbind(g);
        weft_cuda_close_tuner();
        if (g->base) weft_cuda_cu.EventDestroy(g->base);
        if (g->copies) weft_cuda_cu.StreamDestroy(g->copies);
        weft_cuda_unload_kernels(g);
        weft_cuda_cu.CtxSetCurrent(NULL);
        weft_cuda_cu.CtxRelease(g->ordinal);
    }
    current = 0;
    *g      = (weft_cuda_gpu){.number = number};
}

weft_status weft_cuda_open(int number, weft_device **out)
{
    weft_status st = WEFT_OK;
    if (number < 0 || number >= WEFT_CUDA_MAX_GPU)
        return WEFT_FAIL(WEFT_ERR_ARG, "device cuda:%d: numbers are 0 to %d", number,
                         WEFT_CUDA_MAX_GPU - 1);
    weft_cuda_gpu *g = &gpus[number];
    pthread_mutex_lock(&lock);
    if (!g->n_open) {
        g->number = number;
        snprintf(g->name, sizeof g->name, "cuda:%d", number);
        st = open_gpu(g);
        if (st != WEFT_OK) close_gpu(g);
    }
    if (st == WEFT_OK) {
        g->n_open++;
        *out = &g->device;
    }
    pthread_mutex_unlock(&lock);
    return st;
}

void weft_cuda_close(weft_device *d)
{
    pthread_mutex_lock(&lock);
    if (--weft_cuda_gpu_of(d)->n_open == 0) close_gpu(weft_cuda_gpu_of(d));
    pthread_mutex_unlock(&lock);
}
