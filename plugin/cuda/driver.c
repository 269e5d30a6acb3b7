/* libcuda.so.1, symbol by symbol. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

weft_cuda_driver weft_cuda_cu;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static weft_status find_symbol(void *lib, const char *symbol, void **out)
{
    *out = dlsym(lib, symbol);
    return *out ? WEFT_OK
                : WEFT_FAIL(
                      WEFT_ERR_ARG,
                      "the NVIDIA driver has no %s: one of CUDA 12.0 or later is needed",
                      symbol);
}

static weft_status check_version(weft_cuda_driver *d)
{
    int built = WEFT_CUDA_BUILD_VERSION;
    CU_TRY(DriverGetVersion, &d->version);
    if (d->version / 1000 >= built / 1000) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "the NVIDIA driver is of CUDA %d.%d, the kernels are of %d.%d: "
                     "install a newer driver, or make "
                     "with the nvcc of CUDA %d",
                     d->version / 1000, d->version % 1000 / 10, built / 1000,
                     built % 1000 / 10, d->version / 1000);
}

static weft_status open_locked(weft_cuda_driver *d)
{
    if (d->lib) return WEFT_OK;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "no NVIDIA driver: libcuda.so.1 is not here; device=cpu needs none");
#define ROW(name, symbol, parameters)                                                    \
    WEFT_TRY(find_symbol(lib, #symbol, (void **)&d->name));
    WEFT_CUDA_DRIVER_ROWS
#undef ROW
        /* queues of a context, 8 by default: what shares one waits for the other's waits */
        (void) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    int code = d->Init(0);
    if (code == WEFT_CUDA_NO_DEVICE)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "no GPU: the NVIDIA driver finds none; device=cpu needs none");
    WEFT_TRY(weft_cuda_check(code, "Init"));
    WEFT_TRY(check_version(d));
    d->lib = lib;
    return WEFT_OK;
}

weft_status weft_cuda_driver_open(void)
{
    pthread_mutex_lock(&lock);
    weft_status st = open_locked(&weft_cuda_cu);
    pthread_mutex_unlock(&lock);
    return st;
}

/* The symbol of a row, as the driver's manual names it. */
static const char *symbol_of(const char *name)
{
    static const char *const row[][2] = {
#define ROW(n, symbol, parameters) {#n, #symbol},
        WEFT_CUDA_DRIVER_ROWS
#undef ROW
    };
    for (size_t i = 0; i < WEFT_COUNT(row); i++)
        if (!strcmp(row[i][0], name)) return row[i][1];
    return name;
}

weft_status weft_cuda_check(int code, const char *call)
{
    const char *text = NULL;
    if (!code) return WEFT_OK;
    if (weft_cuda_cu.GetErrorString) weft_cuda_cu.GetErrorString(code, &text);
    return WEFT_FAIL(code == WEFT_CUDA_OUT_OF_MEMORY ? WEFT_ERR_MEM : WEFT_ERR_IO,
                     "%s fails with %d%s%s", symbol_of(call), code, text ? ": " : "",
                     text ? text : "");
}
