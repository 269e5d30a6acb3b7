/* Libraries over tests/cuda/stub/driver.cpp: work for one of its streams runs when the stream
 * does. */
#ifndef CUDA_STUB_CALL_H
#define CUDA_STUB_CALL_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* A function of the stub driver; NULL: another driver is open, or none. */
static inline void *stub_find(const char *name)
{
    void *so     = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = so ? dlsym(so, name) : NULL;
    if (so) dlclose(so);
    return symbol;
}

/* Counts a call of a library as the driver counts its own; not 0: it is to fail. */
static inline int stub_enter(const char *name)
{
    int (*enter)(const char *);
    void *symbol = stub_find("stub_gpu_enter");
    if (!symbol) return 0;
    memcpy(&enter, &symbol, sizeof enter);
    return enter(name);
}

/* run(args) on the stream, with args copied; at once where there is no stream.  The driver's
 * code. */
static inline int stub_call(void *stream, const char *name, void (*run)(const void *args),
                            const void *args, size_t bytes)
{
    int (*call)(void *, const char *, void (*)(const void *), const void *, size_t);
    void *symbol = stream ? stub_find("stub_gpu_call") : NULL;
    if (!symbol) {
        run(args);
        return 0;
    }
    memcpy(&call, &symbol, sizeof call);
    return call(stream, name, run, args, bytes);
}

/* poll(args) on the stream again and again until it is 0: work that waits for other processes.
 * args are copied; a poll that gives 0 leaves them as they were, for graphs run them again. */
static inline int stub_poll(void *stream, const char *name, int (*poll)(void *args),
                            const void *args, size_t bytes)
{
    int (*call)(void *, const char *, int (*)(void *), const void *, size_t);
    void *symbol = stub_find("stub_gpu_poll");
    if (!symbol) return 999;
    memcpy(&call, &symbol, sizeof call);
    return call(stream, name, poll, args, bytes);
}

#endif
