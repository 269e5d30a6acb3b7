#include "nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* nvmlMemory_v2_t */
typedef struct nvml_memory {
    unsigned           version;
    unsigned long long total, reserved, free, used;
} nvml_memory;

enum {
    MEMORY_VERSION = (int)sizeof(nvml_memory) | 2 << 24 /* nvmlMemory_v2 */
};

typedef struct nvml_calls {
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *bus_id, void **device);
    int (*memory)(void *device, nvml_memory *out);
} nvml_calls;

static bool find_symbol(void *lib, const char *name, void *out)
{
    void *symbol = dlsym(lib, name);
    memcpy(out, &symbol, sizeof symbol);
    return symbol;
}

static bool find_symbols(void *lib, nvml_calls *c)
{
    return find_symbol(lib, "nvmlInit_v2", &c->init) &&
           find_symbol(lib, "nvmlShutdown", &c->shutdown) &&
           find_symbol(lib, "nvmlDeviceGetHandleByPciBusId_v2", &c->find) &&
           find_symbol(lib, "nvmlDeviceGetMemoryInfo_v2", &c->memory);
}

static int64_t ask_memory(const nvml_calls *c, const char *bus_id)
{
    void       *device = NULL;
    nvml_memory m      = {.version = MEMORY_VERSION};
    if (c->init()) return -1;
    bool known = !c->find(bus_id, &device) && !c->memory(device, &m);
    c->shutdown();
    return known ? (int64_t)m.used : -1;
}

int64_t weft_cuda_used_bytes(const char *bus_id)
{
    nvml_calls c;
    void      *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return -1;
    int64_t used = find_symbols(lib, &c) ? ask_memory(&c, bus_id) : -1;
    dlclose(lib);
    return used;
}
