/* libcuda.so.1 of test_sdpa_plan: lets cuDNN compile kernels for a device that is not here and
 * says that they are loaded. Nothing runs. */
#include <stddef.h>
#include <stdint.h>

enum {
    OK          = 0,
    NO_LIBRARY  = 34, /* CUDA_ERROR_STUB_LIBRARY */
    SOME_HANDLE = 64
};

/* Asked for by name, called only where there is a device. */
#define ABSENT(name)                                                                     \
    int name(void);                                                                      \
    int name(void)                                                                       \
    {                                                                                    \
        return NO_LIBRARY;                                                               \
    }
ABSENT(cuInit)
ABSENT(cuDeviceGet)
ABSENT(cuDeviceGetCount)
ABSENT(cuCtxGetCurrent)
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuStreamGetCtx)
ABSENT(cuLinkCreate)
ABSENT(cuLinkAddData)
ABSENT(cuLinkComplete)
ABSENT(cuLinkDestroy)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLibraryUnload)
ABSENT(cuKernelSetAttribute)
ABSENT(cuOccupancyMaxPotentialClusterSize)

/* Gives something that is not NULL. */
#define HANDLE(name)                                                                     \
    int name(void **out);                                                                \
    int name(void **out)                                                                 \
    {                                                                                    \
        *out = (void *)(uintptr_t)SOME_HANDLE;                                           \
        return OK;                                                                       \
    }
HANDLE(cuLibraryLoadData)
HANDLE(cuLibraryGetKernel)
HANDLE(cuLibraryGetModule)
HANDLE(cuKernelGetFunction)
HANDLE(cuModuleLoadData)
HANDLE(cuModuleLoadDataEx)
HANDLE(cuModuleGetFunction)

#define NUMBER(name, value)                                                              \
    int name(int *out);                                                                  \
    int name(int *out)                                                                   \
    {                                                                                    \
        *out = (value);                                                                  \
        return OK;                                                                       \
    }
NUMBER(cuDriverGetVersion, 13000)
NUMBER(cuFuncGetAttribute, 0)
NUMBER(cuKernelGetAttribute, 0)

#define TEXT(name)                                                                       \
    int name(int code, const char **out);                                                \
    int name(int code, const char **out)                                                 \
    {                                                                                    \
        (void)code;                                                                      \
        *out = "no device";                                                              \
        return OK;                                                                       \
    }
TEXT(cuGetErrorName)
TEXT(cuGetErrorString)

int cuLibraryGetGlobal(void **p, size_t *bytes);
int cuLibraryGetGlobal(void **p, size_t *bytes)
{
    if (p) *p = (void *)(uintptr_t)4096;
    if (bytes) *bytes = 4096;
    return OK;
}
