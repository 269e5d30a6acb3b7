#include "probe/found.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "probe/cuda_priv.h"

enum { /* CUdevice_attribute */
    N_SM         = 16,
    CAPABILITY   = 75,
    CAPABILITY_2 = 76
};

/* ---- the driver ---- */

static weft_status list_gpus(const weft_probe__cuda *c, weft_probe_found *out)
{
    int n = 0;
    WEFT_CUDA(c, DriverGetVersion, &out->cuda);
    WEFT_CUDA(c, DeviceGetCount, &n);
    if (n > WEFT_PROBE_FOUND_MOST) n = WEFT_PROBE_FOUND_MOST;
    for (int i = 0; i < n; i++) {
        weft_probe_found_gpu *g = &out->gpu[i];
        size_t                bytes;
        int                   device, major = 0, minor = 0;
        *g = (weft_probe_found_gpu){.free_bytes = -1, .n_nvlink = -1};
        WEFT_CUDA(c, DeviceGet, &device, i);
        WEFT_CUDA(c, DeviceGetName, g->name, (int)sizeof g->name - 1, device);
        WEFT_CUDA(c, DeviceTotalMem, &bytes, device);
        WEFT_CUDA(c, DeviceGetAttribute, &g->n_sm, N_SM, device);
        WEFT_CUDA(c, DeviceGetAttribute, &major, CAPABILITY, device);
        WEFT_CUDA(c, DeviceGetAttribute, &minor, CAPABILITY_2, device);
        g->capability  = 10 * major + minor;
        g->total_bytes = (int64_t)bytes;
        for (int k = 0; k < n; k++) {
            int can = 0;
            if (k != i && !c->CanAccessPeer(&can, i, k) && can) g->peers |= 1u << k;
        }
    }
    out->n = n;
    return WEFT_OK;
}

/* ---- NVML: what the driver tells no process ---- */

typedef struct nvml {
    void *lib;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*memory)(void *, unsigned long long *); /* total, free, used */
    int (*driver)(char *, unsigned);             /* the last three may be missing */
    int (*nvlink)(void *, unsigned, unsigned *);
} nvml;

static bool open_nvml(nvml *n)
{
    n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->lib) return false;
    *(void **)&n->init     = dlsym(n->lib, "nvmlInit_v2");
    *(void **)&n->shutdown = dlsym(n->lib, "nvmlShutdown");
    *(void **)&n->count    = dlsym(n->lib, "nvmlDeviceGetCount_v2");
    *(void **)&n->handle   = dlsym(n->lib, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&n->memory   = dlsym(n->lib, "nvmlDeviceGetMemoryInfo");
    *(void **)&n->driver   = dlsym(n->lib, "nvmlSystemGetDriverVersion");
    *(void **)&n->nvlink   = dlsym(n->lib, "nvmlDeviceGetNvLinkState");
    return n->init && n->shutdown && n->count && n->handle && n->memory && !n->init();
}

static int count_nvlinks(const nvml *n, void *gpu)
{
    enum {
        MOST = 18
    }; /* NVML_NVLINK_MAX_LINKS */
    unsigned active;
    int      count = 0;
    for (unsigned l = 0; n->nvlink && l < MOST; l++)
        if (!n->nvlink(gpu, l, &active)) count += active != 0;
    return n->nvlink ? count : -1;
}

/* NVML counts all GPUs; where the process sees fewer (CUDA_VISIBLE_DEVICES), numbers differ, and
 * nothing of NVML's is said. */
static void ask_nvml(weft_probe_found *out)
{
    nvml     n     = {0};
    unsigned count = 0;
    bool     open  = open_nvml(&n);
    if (open && n.driver && n.driver(out->driver, sizeof out->driver)) out->driver[0] = 0;
    if (open && !n.count(&count) && (int)count == out->n)
        for (int i = 0; i < out->n; i++) {
            void              *gpu    = NULL;
            unsigned long long mem[3] = {0};
            if (n.handle((unsigned)i, &gpu)) continue;
            if (!n.memory(gpu, mem)) out->gpu[i].free_bytes = (int64_t)mem[1];
            out->gpu[i].n_nvlink = count_nvlinks(&n, gpu);
        }
    if (open) n.shutdown();
    if (n.lib) dlclose(n.lib);
}

static void ask_nccl(weft_probe_found *out)
{
    void            *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int              v   = 0;
    struct link_map *map = NULL;
    int (*version)(int *);
    if (!lib) return;
    *(void **)&version = dlsym(lib, "ncclGetVersion");
    if (version && !version(&v) && !dlinfo(lib, RTLD_DI_LINKMAP, &map))
        snprintf(out->nccl, sizeof out->nccl, "%d.%d.%d %s", v / 10000, v / 100 % 100,
                 v % 100, map->l_name);
    dlclose(lib);
}

void weft_probe_find_gpus(weft_probe_found *out)
{
    weft_probe__cuda *c = NULL;
    *out                = (weft_probe_found){0};
    if (weft_probe__cuda_open(&c) != WEFT_OK || list_gpus(c, out) != WEFT_OK) {
        snprintf(out->why, sizeof out->why, "%s", weft_error_text());
        out->n = 0;
    } else if (!out->n) {
        snprintf(out->why, sizeof out->why, "the driver finds none");
    }
    weft_probe__cuda_close(c);
    if (out->n) ask_nvml(out);
    if (out->n) ask_nccl(out);
}

int weft_probe_count_gpus(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int   n   = 0;
    int (*init)(unsigned), (*count)(int *);
    if (!lib) return 0;
    *(void **)&init  = dlsym(lib, "cuInit");
    *(void **)&count = dlsym(lib, "cuDeviceGetCount");
    if (!init || !count || init(0) || count(&n)) n = 0;
    dlclose(lib);
    return n;
}

/* ---- for people ---- */

static void print_peers(const weft_probe_found *f, int i, weft_text *t)
{
    const weft_probe_found_gpu *g    = &f->gpu[i];
    const char                 *glue = "; peer access to cuda:";
    if (f->n < 2) return;
    for (int k = 0; k < f->n; k++) {
        if (!(g->peers >> k & 1)) continue;
        weft_text_add(t, "%s%d", glue, k);
        glue = ", ";
    }
    if (!g->peers) weft_text_add(t, "; no peer access");
}

void weft_probe_print_gpus(const weft_probe_found *f, weft_text *t)
{
    const double gib = 1073741824;
    if (!f->n) return;
    weft_text_add(t, "driver %s%sof CUDA %d.%d\n", f->driver, f->driver[0] ? ", " : "",
                  f->cuda / 1000, f->cuda % 1000 / 10);
    for (int i = 0; i < f->n; i++) {
        const weft_probe_found_gpu *g = &f->gpu[i];
        weft_text_add(t, "cuda:%d  %s, capability %d.%d, %d multiprocessors, ", i,
                      g->name, g->capability / 10, g->capability % 10, g->n_sm);
        if (g->free_bytes >= 0)
            weft_text_add(t, "%.1f of %.1f GiB free", (double)g->free_bytes / gib,
                          (double)g->total_bytes / gib);
        else
            weft_text_add(t, "%.1f GiB", (double)g->total_bytes / gib);
        if (g->n_nvlink > 0) weft_text_add(t, "; %d NVLinks", g->n_nvlink);
        if (!g->n_nvlink && f->n > 1) weft_text_add(t, "; no NVLink");
        print_peers(f, i, t);
        weft_text_add(t, "\n");
    }
}
