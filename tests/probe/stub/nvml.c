/* The symbols that src/app/probe asks of libnvidia-ml: two GPUs, by name and memory;
 * STUB_CUDA=other: of a model nobody knows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub/stated.h"

#define CALL(symbol, parameters, ...)                                                    \
    int symbol parameters;                                                               \
    int symbol parameters                                                                \
    {                                                                                    \
        __VA_ARGS__;                                                                     \
        return 0;                                                                        \
    }

static const char *model(void)
{
    const char *s = getenv("STUB_CUDA");
    return s && strstr(s, "other") ? "NVIDIA Loom 7" : "NVIDIA H200";
}

CALL(nvmlInit_v2, (void), (void)0)
CALL(nvmlShutdown, (void), (void)0)
CALL(nvmlDeviceGetCount_v2, (unsigned *n), *n = 2)
CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned i, void **h), (void)i; *h = NULL)
CALL(nvmlDeviceGetName, (void *h, char *s, unsigned n), (void)h;
     snprintf(s, n, "%s", model()))
CALL(nvmlSystemGetDriverVersion, (char *s, unsigned n), snprintf(s, n, "580.159.04"))
CALL(nvmlDeviceGetNvLinkState, (void *h, unsigned link, unsigned *active), (void)h;
     *active = link < 18)
CALL(nvmlDeviceGetMemoryInfo, (void *h, unsigned long long *m), (void)h;
     m[0] = STATED_MEMORY; m[1] = STATED_FREE; m[2] = m[0] - m[1])
