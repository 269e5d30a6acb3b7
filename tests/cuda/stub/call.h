/* Libraries over tests/cuda/stub/driver.cpp: work for one of its streams runs when the stream
 * does. */
#ifndef CUDA_STUB_CALL_H
#define CUDA_STUB_CALL_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* run(args) on the stream, with args copied; at once where there is no stream.  The driver's
 * code. */
static inline int stub_call(void *stream, const char *name, void (*run)(const void *args),
                            const void *args, size_t bytes)
{
    int (*call)(void *, const char *, void (*)(const void *), const void *, size_t);
    void *so     = stream ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *symbol = so ? dlsym(so, "stub_gpu_call") : NULL;
    if (so) dlclose(so);
    if (!symbol) {
        run(args);
        return 0;
    }
    memcpy(&call, &symbol, sizeof call);
    return call(stream, name, run, args, bytes);
}

#endif
