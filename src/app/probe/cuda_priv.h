/* NVIDIA's driver and its matrix products, opened at run time: what measuring needs of them, by
 * their published interfaces.  Nothing of theirs is needed to build.  Their error codes end here.
 *
 *     weft_probe__cuda *c;
 *     WEFT_TRY(weft_probe__cuda_open(&c));                   WEFT_ERR_IO: the library, or what of
 *     it, is missing WEFT_CUDA(c, MemAlloc, &p, bytes);                     a call that fails:
 *     WEFT_ERR_IO with its name
 *     weft_probe__cuda_close(c);
 */
#ifndef WEFT_PROBE_CUDA_PRIV_H
#define WEFT_PROBE_CUDA_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef uint64_t weft_cuda_ptr;
typedef void    *weft_cuda_handle; /* a context, stream, event, module or function */

/* ROW(name, symbol, parameters): the driver's; all of them are there since CUDA 11. */
#define WEFT_CUDA_ROWS                                                                   \
    ROW(Init, cuInit, (unsigned))                                                        \
    ROW(DriverGetVersion, cuDriverGetVersion, (int *))                                   \
    ROW(DeviceGetCount, cuDeviceGetCount, (int *))                                       \
    ROW(DeviceGet, cuDeviceGet, (int *, int))                                            \
    ROW(DeviceGetName, cuDeviceGetName, (char *, int, int))                              \
    ROW(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t *, int))                            \
    ROW(DeviceGetAttribute, cuDeviceGetAttribute, (int *, int, int))                     \
    ROW(CtxRetain, cuDevicePrimaryCtxRetain, (weft_cuda_handle *, int))                  \
    ROW(CtxRelease, cuDevicePrimaryCtxRelease_v2, (int))                                 \
    ROW(CtxSetCurrent, cuCtxSetCurrent, (weft_cuda_handle))                              \
    ROW(CtxSynchronize, cuCtxSynchronize, (void))                                        \
    ROW(MemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                               \
    ROW(MemAlloc, cuMemAlloc_v2, (weft_cuda_ptr *, size_t))                              \
    ROW(MemFree, cuMemFree_v2, (weft_cuda_ptr))                                          \
    ROW(MemAllocHost, cuMemAllocHost_v2, (void **, size_t))                              \
    ROW(MemFreeHost, cuMemFreeHost, (void *))                                            \
    ROW(CopyIn, cuMemcpyHtoDAsync_v2,                                                    \
        (weft_cuda_ptr, const void *, size_t, weft_cuda_handle))                         \
    ROW(CopyOut, cuMemcpyDtoHAsync_v2,                                                   \
        (void *, weft_cuda_ptr, size_t, weft_cuda_handle))                               \
    ROW(Copy, cuMemcpyDtoDAsync_v2,                                                      \
        (weft_cuda_ptr, weft_cuda_ptr, size_t, weft_cuda_handle))                        \
    ROW(CopyPeer, cuMemcpyPeerAsync,                                                     \
        (weft_cuda_ptr, weft_cuda_handle, weft_cuda_ptr, weft_cuda_handle, size_t,       \
         weft_cuda_handle))                                                              \
    ROW(CanAccessPeer, cuDeviceCanAccessPeer, (int *, int, int))                         \
    ROW(EnablePeer, cuCtxEnablePeerAccess, (weft_cuda_handle, unsigned))                 \
    ROW(StreamCreate, cuStreamCreate, (weft_cuda_handle *, unsigned))                    \
    ROW(StreamDestroy, cuStreamDestroy_v2, (weft_cuda_handle))                           \
    ROW(StreamSynchronize, cuStreamSynchronize, (weft_cuda_handle))                      \
    ROW(EventCreate, cuEventCreate, (weft_cuda_handle *, unsigned))                      \
    ROW(EventDestroy, cuEventDestroy_v2, (weft_cuda_handle))                             \
    ROW(EventRecord, cuEventRecord, (weft_cuda_handle, weft_cuda_handle))                \
    ROW(EventSynchronize, cuEventSynchronize, (weft_cuda_handle))                        \
    ROW(EventElapsedTime, cuEventElapsedTime,                                            \
        (float *, weft_cuda_handle, weft_cuda_handle))                                   \
    ROW(ModuleLoadData, cuModuleLoadData, (weft_cuda_handle *, const void *))            \
    ROW(ModuleUnload, cuModuleUnload, (weft_cuda_handle))                                \
    ROW(ModuleGetFunction, cuModuleGetFunction,                                          \
        (weft_cuda_handle *, weft_cuda_handle, const char *))                            \
    ROW(LaunchKernel, cuLaunchKernel,                                                    \
        (weft_cuda_handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,   \
         unsigned, weft_cuda_handle, void **, void **))

typedef struct weft_probe__cuda {
    void *lib;
#define ROW(name, symbol, parameters) int(*name) parameters;
    WEFT_CUDA_ROWS
#undef ROW
    int (*GetErrorString)(int, const char **); /* may be missing */
} weft_probe__cuda;

weft_status weft_probe__cuda_open(weft_probe__cuda **out);
void        weft_probe__cuda_close(weft_probe__cuda *c);
/* WEFT_ERR_MEM where the device has no memory, else WEFT_ERR_IO: the call, its code and the
 * driver's words. */
weft_status weft_probe__cuda_check(const weft_probe__cuda *c, int code, const char *call);
#define WEFT_CUDA(c, name, ...)                                                          \
    WEFT_TRY(weft_probe__cuda_check((c), (c)->name(__VA_ARGS__), #name))

/* ---- products: cublasLt ---- */

/* How values are stored and summed, by numbers of library_types.h and cublas_api.h. */
typedef struct weft_probe__type {
    const char *dtype; /* as in a cluster: "bf16", "tf32" */
    int         a, b, c, compute;
    int         bytes; /* an element of a and b */
} weft_probe__type;

/* Row-major C (m,n) = A (m,k) B; the forms are those of a layer's passes. */
typedef enum weft_probe__form {
    WEFT_PROBE_NT, /* B is (n,k): forward */
    WEFT_PROBE_NN, /* B is (k,n): the input's gradient */
    WEFT_PROBE_TN, /* A is (k,m), B is (k,n): the weight's gradient */
} weft_probe__form;

typedef struct weft_probe__blas weft_probe__blas;
/* For the context that is current. */
weft_status weft_probe__blas_open(weft_probe__blas **out);
void        weft_probe__blas_close(weft_probe__blas *b);

typedef struct weft_probe__product weft_probe__product;
/* WEFT_ERR_NOFIT: the library has no such product on this device. */
weft_status weft_probe__product_open(weft_probe__blas *b, const weft_probe__type *t,
                                     weft_probe__form form, int64_t m, int64_t n,
                                     int64_t k, size_t scratch_bytes,
                                     weft_probe__product **out);
weft_status weft_probe__product_run(weft_probe__product *p, weft_cuda_ptr a,
                                    weft_cuda_ptr b, weft_cuda_ptr c,
                                    weft_cuda_ptr scratch, weft_cuda_handle stream);
void        weft_probe__product_close(weft_probe__product *p);

/* PTX of our kernels: "nothing", and for each of these one that reads and writes so many arrays. */
typedef struct weft_probe__stream {
    const char *name;
    int         n_read, n_write;
} weft_probe__stream;
extern const weft_probe__stream weft_probe__streams[];
enum {
    WEFT_PROBE_N_STREAM = 4
};
struct weft_text;
weft_status weft_probe__kernels(struct weft_text *t);

#endif
