/* NVIDIA's driver, opened at run time: one row a function, by its published interface.  Nothing of
 * theirs is needed to build, and their error codes end here.
 *
 *     WEFT_TRY(weft_cuda_driver_open());
 *     CU_TRY(MemAlloc, &p, bytes);            an error: name, code, the driver's words
 */
#ifndef WEFT_CUDA_DRIVER_H
#define WEFT_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef uint64_t weft_cuda_ptr;
/* a context, stream, event, library, kernel, function or graph */
typedef void *weft_cuda_handle;

typedef struct weft_cuda_ipc { /* memory that another process may open */
    char bytes[64];
} weft_cuda_ipc;

/* ROW(name, symbol, parameters): all of them are there since CUDA 12.0. */
#define WEFT_CUDA_DRIVER_ROWS                                                            \
    ROW(Init, cuInit, (unsigned))                                                        \
    ROW(DriverGetVersion, cuDriverGetVersion, (int *))                                   \
    ROW(DeviceGetCount, cuDeviceGetCount, (int *))                                       \
    ROW(DeviceGet, cuDeviceGet, (int *, int))                                            \
    ROW(DeviceGetName, cuDeviceGetName, (char *, int, int))                              \
    ROW(DeviceGetUuid, cuDeviceGetUuid_v2, (unsigned char *, int))                       \
    ROW(DeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *, int, int))                      \
    ROW(DeviceGetAttribute, cuDeviceGetAttribute, (int *, int, int))                     \
    ROW(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *, int, int))                   \
    ROW(CtxRetain, cuDevicePrimaryCtxRetain, (weft_cuda_handle *, int))                  \
    ROW(CtxRelease, cuDevicePrimaryCtxRelease_v2, (int))                                 \
    ROW(CtxSetCurrent, cuCtxSetCurrent, (weft_cuda_handle))                              \
    ROW(MemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                               \
    ROW(MemAlloc, cuMemAlloc_v2, (weft_cuda_ptr *, size_t))                              \
    ROW(MemFree, cuMemFree_v2, (weft_cuda_ptr))                                          \
    ROW(MemHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned))                       \
    ROW(MemFreeHost, cuMemFreeHost, (void *))                                            \
    ROW(MemGetAddressRange, cuMemGetAddressRange_v2,                                     \
        (weft_cuda_ptr *, size_t *, weft_cuda_ptr))                                      \
    ROW(MemHostRegister, cuMemHostRegister_v2, (void *, size_t, unsigned))               \
    ROW(MemHostUnregister, cuMemHostUnregister, (void *))                                \
    ROW(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                           \
        (weft_cuda_ptr *, void *, unsigned))                                             \
    ROW(IpcGetMemHandle, cuIpcGetMemHandle, (weft_cuda_ipc *, weft_cuda_ptr))            \
    ROW(IpcOpenMemHandle, cuIpcOpenMemHandle_v2,                                         \
        (weft_cuda_ptr *, weft_cuda_ipc, unsigned))                                      \
    ROW(IpcCloseMemHandle, cuIpcCloseMemHandle, (weft_cuda_ptr))                         \
    ROW(MemsetAsync, cuMemsetD8Async,                                                    \
        (weft_cuda_ptr, unsigned char, size_t, weft_cuda_handle))                        \
    ROW(MemcpyAsync, cuMemcpyAsync,                                                      \
        (weft_cuda_ptr, weft_cuda_ptr, size_t, weft_cuda_handle))                        \
    ROW(StreamCreate, cuStreamCreate, (weft_cuda_handle *, unsigned))                    \
    ROW(StreamDestroy, cuStreamDestroy_v2, (weft_cuda_handle))                           \
    ROW(StreamSynchronize, cuStreamSynchronize, (weft_cuda_handle))                      \
    ROW(StreamWaitEvent, cuStreamWaitEvent,                                              \
        (weft_cuda_handle, weft_cuda_handle, unsigned))                                  \
    ROW(StreamWriteValue, cuStreamWriteValue32_v2,                                       \
        (weft_cuda_handle, weft_cuda_ptr, uint32_t, unsigned))                           \
    ROW(StreamWaitValue, cuStreamWaitValue32_v2,                                         \
        (weft_cuda_handle, weft_cuda_ptr, uint32_t, unsigned))                           \
    ROW(StreamBeginCapture, cuStreamBeginCapture_v2, (weft_cuda_handle, int))            \
    ROW(StreamEndCapture, cuStreamEndCapture, (weft_cuda_handle, weft_cuda_handle *))    \
    ROW(EventCreate, cuEventCreate, (weft_cuda_handle *, unsigned))                      \
    ROW(EventDestroy, cuEventDestroy_v2, (weft_cuda_handle))                             \
    ROW(EventRecord, cuEventRecord, (weft_cuda_handle, weft_cuda_handle))                \
    ROW(EventRecordWithFlags, cuEventRecordWithFlags,                                    \
        (weft_cuda_handle, weft_cuda_handle, unsigned))                                  \
    ROW(EventQuery, cuEventQuery, (weft_cuda_handle))                                    \
    ROW(EventSynchronize, cuEventSynchronize, (weft_cuda_handle))                        \
    ROW(EventElapsedTime, cuEventElapsedTime,                                            \
        (float *, weft_cuda_handle, weft_cuda_handle))                                   \
    ROW(LibraryLoadData, cuLibraryLoadData,                                              \
        (weft_cuda_handle *, const void *, void *, void *, unsigned, void *, void *,     \
         unsigned))                                                                      \
    ROW(LibraryUnload, cuLibraryUnload, (weft_cuda_handle))                              \
    ROW(LibraryGetKernel, cuLibraryGetKernel,                                            \
        (weft_cuda_handle *, weft_cuda_handle, const char *))                            \
    ROW(KernelGetFunction, cuKernelGetFunction, (weft_cuda_handle *, weft_cuda_handle))  \
    ROW(FuncGetAttribute, cuFuncGetAttribute, (int *, int, weft_cuda_handle))            \
    ROW(FuncSetAttribute, cuFuncSetAttribute, (weft_cuda_handle, int, int))              \
    ROW(LaunchKernel, cuLaunchKernel,                                                    \
        (weft_cuda_handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,   \
         unsigned, weft_cuda_handle, void **, void **))                                  \
    ROW(GraphInstantiate, cuGraphInstantiateWithFlags,                                   \
        (weft_cuda_handle *, weft_cuda_handle, unsigned long long))                      \
    ROW(GraphLaunch, cuGraphLaunch, (weft_cuda_handle, weft_cuda_handle))                \
    ROW(GraphDestroy, cuGraphDestroy, (weft_cuda_handle))                                \
    ROW(GraphExecDestroy, cuGraphExecDestroy, (weft_cuda_handle))                        \
    ROW(TensorMapEncodeTiled, cuTensorMapEncodeTiled,                                    \
        (void *, int, unsigned, void *, const uint64_t *, const uint64_t *,              \
         const uint32_t *, const uint32_t *, int, int, int, int))                        \
    ROW(GetErrorString, cuGetErrorString, (int, const char **))

typedef struct weft_cuda_driver {
    void *lib;
    int   version; /* 13000 is 13.0 */
#define ROW(name, symbol, parameters) int(*name) parameters;
    WEFT_CUDA_DRIVER_ROWS
#undef ROW
} weft_cuda_driver;

/* Codes that mean something here; names as in NVIDIA's manual. */
enum {
    WEFT_CUDA_OUT_OF_MEMORY = 2,
    WEFT_CUDA_NO_DEVICE     = 100,
    WEFT_CUDA_NOT_FOUND     = 500,
    WEFT_CUDA_NOT_READY     = 600
};

/* Of the process: valid once weft_cuda_driver_open() was OK, and never closed. */
extern weft_cuda_driver weft_cuda_cu;

/* WEFT_ERR_ARG: there is no driver, or one too old for this build.  Any thread, any time. */
weft_status weft_cuda_driver_open(void);
/* WEFT_ERR_MEM: no memory on the device; else WEFT_ERR_IO. */
weft_status weft_cuda_check(int code, const char *call);
#define CU_TRY(name, ...) WEFT_TRY(weft_cuda_check(weft_cuda_cu.name(__VA_ARGS__), #name))
#define CU_GO(name, ...)  WEFT_GO(weft_cuda_check(weft_cuda_cu.name(__VA_ARGS__), #name))

#endif
