/* What is here: GPUs by NVML, else processors and memory by hwloc, /proc and /sys. */
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "probe/gpu.h"
#include "probe/probe.h"

/* ---- NVML: five functions, by their published signatures ---- */

typedef struct nvml {
    void *lib;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*name)(void *, char *, unsigned);
    int (*memory)(void *, unsigned long long *); /* total, free, used */
} nvml;

static bool nvml_open(nvml *n)
{
    n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->lib) return false;
    *(void **)&n->init     = dlsym(n->lib, "nvmlInit_v2");
    *(void **)&n->shutdown = dlsym(n->lib, "nvmlShutdown");
    *(void **)&n->count    = dlsym(n->lib, "nvmlDeviceGetCount_v2");
    *(void **)&n->handle   = dlsym(n->lib, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&n->name     = dlsym(n->lib, "nvmlDeviceGetName");
    *(void **)&n->memory   = dlsym(n->lib, "nvmlDeviceGetMemoryInfo");
    return n->init && n->shutdown && n->count && n->handle && n->name && n->memory &&
           !n->init();
}

/* GPUs as text of a cluster; *found false: none. */
static weft_status put_gpus(weft_text *t, bool *found)
{
    nvml               n        = {0};
    unsigned           count    = 0;
    char               name[96] = "";
    unsigned long long mem[3]   = {0};
    void              *h;
    weft_cluster      *kinds = NULL;
    weft_status        st    = WEFT_OK;
    *found                   = false;
    if (!nvml_open(&n) || n.count(&count) || !count || n.handle(0, &h) ||
        n.name(h, name, sizeof name) || n.memory(h, mem))
        goto out;
    WEFT_GO(weft_cluster_kinds(NULL, &kinds));
    const weft_device_kind *k = weft_probe_gpu_kind(kinds, name, (double)mem[0]);
    if (!k)
        WEFT_GO(
            WEFT_FAIL(WEFT_ERR_ARG,
                      "NVML finds %u x %s, a kind we have no numbers for: weft cluster "
                      "calibrate measures it, or describe it in a file (weft cluster "
                      "kinds --yaml shows how)",
                      count, name));
    *found = true;
    weft_text_add(t,
                  "device:\n  - {name: %s, like: %s, mem_bytes: %llu, source: ", k->name,
                  k->name, mem[0]);
    char source[192];
    snprintf(source, sizeof source, "NVML: %s; peaks as %s", name, k->name);
    weft_text_put_quoted(t, source);
    weft_text_add(t, "}\nnode:\n  - {name: host, device: %s, n_device: %u, link: %s}\n",
                  k->name, count, weft_probe_gpu_link(name, k->name));
out:
    weft_cluster_destroy(kinds);
    if (n.lib && n.shutdown) n.shutdown();
    if (n.lib) dlclose(n.lib);
    return st;
}

/* ---- processors ---- */

/* What stands after "key ... :" in /proc text, up to the end of the line. */
static void find_line(const char *text, const char *key, char *out, size_t n)
{
    const char *p = text ? strstr(text, key) : NULL;
    out[0]        = 0;
    if (!p || !(p = strchr(p, ':'))) return;
    p += 1 + strspn(p + 1, " \t");
    snprintf(out, n, "%.*s", (int)strcspn(p, "\n"), p);
}

static int64_t memory_bytes(void)
{
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    char   *text;
    size_t  n;
    if (weft_io_exists("/sys/fs/cgroup/memory.max") &&
        weft_io_read_file("/sys/fs/cgroup/memory.max", &text, &n) == WEFT_OK) {
        long long most = strtoll(text, NULL, 10); /* "max": 0 */
        if (most > 0 && most < bytes) bytes = most;
        free(text);
    }
    return bytes;
}

static int cores(void)
{
    cpu_set_t all;
    return sched_getaffinity(0, sizeof all, &all) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                  : CPU_COUNT(&all);
}

/* limit: cores that count; 0: those that this process may use. */
static weft_status put_cpu(int limit, weft_text *t)
{
    char  *text = NULL, model[96], mhz[32], flags[4096], source[256];
    size_t n;
    int    n_package = 1, ours = limit > 0 ? limit : cores(), n_core = ours;
    double clock_mhz;
    WEFT_TRY(weft_io_read_file("/proc/cpuinfo", &text, &n));
    find_line(text, "model name", model, sizeof model);
    find_line(text, "cpu MHz", mhz, sizeof mhz);
    find_line(text, "flags", flags, sizeof flags);
    free(text);
    bool hwloc = weft_probe_hwloc(&n_package, &n_core);
    if (ours < n_core) n_core = ours; /* what this process may use */
    if (!weft_text_read_double(mhz, &clock_mhz) || !(clock_mhz > 0)) clock_mhz = 2500;
    int    wide  = strstr(flags, "avx512f") ? 64 : strstr(flags, "avx2") ? 32 : 8;
    double flops = n_core * clock_mhz * 1e6 * wide;
    snprintf(source, sizeof source,
             "%s, %d cores on %d sockets (%s) x %d flop x %.0f MHz; memory bandwidth and "
             "links assumed: weft cluster calibrate measures them",
             model[0] ? model : "processor", n_core, n_package, hwloc ? "hwloc" : "/proc",
             wide, clock_mhz);
    weft_text_add(t, "device:\n  - {name: cpu, like: cpu, flops: {f32: ");
    weft_text_put_double(t, flops);
    weft_text_add(t, "}, mem_bytes: %lld, source: ", (long long)memory_bytes());
    weft_text_put_quoted(t, source);
    weft_text_add(t, "}\nnode:\n  - {name: host, device: cpu}\n");
    return WEFT_OK;
}

/* GPUs, else processors; or these alone. */
static weft_status look(bool gpus, int n_core, weft_cluster **out)
{
    weft_text   t         = {0};
    bool        found     = false;
    char        host[128] = "host";
    weft_status st        = WEFT_OK;
    gethostname(host, sizeof host - 1);
    weft_text_add(&t, "name: ");
    weft_text_put_quoted(&t, host);
    weft_text_add(&t, "\n");
    if (gpus) WEFT_GO(put_gpus(&t, &found));
    if (!found) WEFT_GO(put_cpu(n_core, &t));
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_cluster_parse("this host", t.s, t.n, out));
out:
    weft_text_fini(&t);
    return st;
}

weft_status weft_probe_discover(weft_cluster **out)
{
    return look(true, 0, out);
}

weft_status weft_probe_processors(int n_core, weft_cluster **out)
{
    return look(false, n_core, out);
}
