/* A driver without a device: the symbols that src/app/probe asks of libcuda.so.1, and a clock
 * that work moves on by stated times.  STUB_CUDA tells what goes wrong, words parted by commas:
 * fail:SYMBOL (that call says 999), none (no device), one (a single GPU), other (a model that
 * nobody knows), full (memory is taken), uneven, wild (times grow as it goes). */
#include "stub/stated.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double   now; /* of the device, s */
static uint64_t next_ptr = 1ull << 40;
static int      n_event;
static double   event[64];

static int told(const char *word)
{
    const char *s = getenv("STUB_CUDA");
    size_t      n = strlen(word);
    for (; s && *s; s += strcspn(s, ","), s += *s == ',')
        if (strcspn(s, ",") == n && !strncmp(s, word, n)) return 1;
    return 0;
}

static int fails(const char *symbol)
{
    char word[80];
    snprintf(word, sizeof word, "fail:%s", symbol);
    return told(word) ? 999 : 0;
}

void stub_advance(double s)
{
    now += told("uneven") ? s * (1 + now / 40) : told("wild") ? s * (1 + now) : s;
}

int stub_fails(const char *symbol)
{
    return fails(symbol);
}

#define CALL(symbol, parameters, ...)                                                    \
    int symbol parameters;                                                               \
    int symbol parameters                                                                \
    {                                                                                    \
        if (fails(#symbol)) return 999;                                                  \
        __VA_ARGS__;                                                                     \
        return 0;                                                                        \
    }

CALL(cuInit, (unsigned flags), (void)flags)
CALL(cuDriverGetVersion, (int *v), *v = 13000)
CALL(cuDeviceGetCount, (int *n), *n = told("none") ? 0 : told("one") ? 1 : 2)
CALL(cuDeviceGet, (int *device, int i), *device = i)
CALL(cuDeviceGetName, (char *s, int n, int device), (void)device;
     snprintf(s, (size_t)n, "%s", told("other") ? "NVIDIA Loom 7" : "NVIDIA H200"))
CALL(cuDeviceTotalMem_v2, (size_t * n, int device), (void)device; *n = STATED_MEMORY)
CALL(cuDevicePrimaryCtxRetain, (void **ctx, int device),
     *ctx = (void *)(uintptr_t)(device + 1))
CALL(cuDevicePrimaryCtxRelease_v2, (int device), (void)device)
CALL(cuCtxSetCurrent, (void *ctx), (void)ctx)
CALL(cuCtxSynchronize, (void), (void)0)
CALL(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total),
     *free_bytes = told("full") ? 1 << 20 : STATED_FREE;
     *total      = STATED_MEMORY)
CALL(cuMemAlloc_v2, (uint64_t * p, size_t n), *p = next_ptr; next_ptr += n)
CALL(cuMemFree_v2, (uint64_t p), (void)p)
CALL(cuMemAllocHost_v2, (void **p, size_t n), *p = malloc(n))
CALL(cuMemFreeHost, (void *p), free(p))
CALL(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t n, void *stream),
     (void)to, (void)from, (void)stream;
     stub_advance(STATED_COPY_S + (double)n / STATED_UP))
CALL(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t n, void *stream), (void)to,
     (void)from, (void)stream;
     stub_advance(STATED_COPY_S + (double)n / STATED_DOWN))
CALL(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t n, void *stream), (void)to,
     (void)from, (void)stream;
     stub_advance(2 * (double)n / STATED_STREAM))
CALL(cuMemcpyPeerAsync,
     (uint64_t to, void *there, uint64_t from, void *here, size_t n, void *stream),
     (void)to, (void)there, (void)from, (void)here, (void)stream;
     stub_advance(STATED_PEER_S + (double)n / STATED_PEER))
CALL(cuDeviceCanAccessPeer, (int *can, int a, int b), *can = a != b)
CALL(cuCtxEnablePeerAccess, (void *ctx, unsigned flags), (void)ctx, (void)flags)
CALL(cuStreamCreate, (void **s, unsigned flags), (void)flags; *s = &now)
CALL(cuStreamDestroy_v2, (void *s), (void)s)
CALL(cuStreamSynchronize, (void *s), (void)s)
CALL(cuEventCreate, (void **e, unsigned flags), (void)flags; *e = &event[n_event++ % 64])
CALL(cuEventDestroy_v2, (void *e), (void)e)
CALL(cuEventRecord, (void *e, void *s), (void)s; *(double *)e = now)
CALL(cuEventSynchronize, (void *e), (void)e)
CALL(cuEventElapsedTime, (float *ms, void *a, void *b),
     *ms = (float)(1e3 * (*(double *)b - *(double *)a)))
CALL(cuModuleUnload, (void *m), (void)m)
CALL(cuGetErrorString, (int code, const char **s), (void)code;
     *s = "as the test wants it")

int cuDeviceGetAttribute(int *out, int what, int device);
int cuDeviceGetAttribute(int *out, int what, int device)
{
    (void)device;
    *out = what == 16   ? STATED_SM
           : what == 36 ? 3201000
           : what == 37 ? 6144
           : what == 75 ? 9
                        : 0;
    return fails("cuDeviceGetAttribute");
}

/* The text must be what a driver would take: our kernels by name. */
int cuModuleLoadData(void **module, const char *text);
int cuModuleLoadData(void **module, const char *text)
{
    *module = &event[0];
    if (strncmp(text, ".version", 8) || !strstr(text, ".entry nothing(")) return 218;
    return fails("cuModuleLoadData");
}

static const struct {
    const char *name;
    double      arrays; /* read and written */
} kernel[] = {{"nothing", 0}, {"read", 1}, {"scale", 2}, {"add", 3}, {"update", 7}};

int cuModuleGetFunction(void **f, void *module, const char *name);
int cuModuleGetFunction(void **f, void *module, const char *name)
{
    (void)module;
    for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++)
        if (!strcmp(kernel[i].name, name)) {
            *f = (void *)(uintptr_t)(i + 1);
            return fails("cuModuleGetFunction");
        }
    return 500;
}

#ifndef STUB_OLD
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **args, void **extra);
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **args, void **extra)
{
    (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)extra;
    double arrays = kernel[(uintptr_t)f - 1].arrays, bytes = 0;
    if (args) bytes = arrays * 16 * (double)*(uint64_t *)args[2];
    stub_advance(STATED_LAUNCH_S + bytes / STATED_STREAM);
    return fails("cuLaunchKernel");
}
#endif
