/* libnvidia-ml.so.1 for tests: one GPU, on which other processes hold WEFT_STUB_OTHERS bytes. */
#include <stdlib.h>
#include <string.h>

typedef struct nvml_memory {
    unsigned           version;
    unsigned long long total, reserved, free, used;
} nvml_memory;

enum {
    OK        = 0,
    NOT_FOUND = 6
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device);
int nvmlDeviceGetMemoryInfo_v2(void *device, nvml_memory *m);

int nvmlInit_v2(void)
{
    return OK;
}

int nvmlShutdown(void)
{
    return OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    static int a_device;
    if (strcmp(bus_id, "0000:01:00.0") != 0) return NOT_FOUND;
    *device = &a_device;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, nvml_memory *m)
{
    const char *others = getenv("WEFT_STUB_OTHERS");
    if (!device || m->version != (sizeof *m | 2 << 24)) return NOT_FOUND;
    m->used = others ? (unsigned long long)atof(others) : 0;
    return OK;
}
