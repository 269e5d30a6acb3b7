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

typedef enum sought {
    GPUS       = 1,
    PROCESSORS = 2
} sought;

/* GPUs, else processors; or one of both alone. */
static weft_status look(int what, int n_core, weft_cluster **out)
{
    weft_text   t         = {0};
    bool        found     = false;
    char        host[128] = "host";
    weft_status st        = WEFT_OK;
    gethostname(host, sizeof host - 1);
    weft_text_add(&t, "name: ");
    weft_text_put_quoted(&t, host);
    weft_text_add(&t, "\n");
    if (what & GPUS) WEFT_GO(put_gpus(&t, &found));
    if (!found && !(what & PROCESSORS))
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "NVML finds no GPU here"));
    if (!found) WEFT_GO(put_cpu(n_core, &t));
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_cluster_parse("this host", t.s, t.n, out));
out:
    weft_text_fini(&t);
    return st;
}

weft_status weft_probe_discover(weft_cluster **out)
{
    return look(GPUS | PROCESSORS, 0, out);
}

weft_status weft_probe_processors(int n_core, weft_cluster **out)
{
    return look(PROCESSORS, n_core, out);
}

/* ---- GPUs as jobs use them ---- */

static weft_status find_gpus(weft_cluster **out)
{
    char path[1024];
    WEFT_TRY(weft_probe_gpu_cache_path(path, sizeof path));
    return weft_io_exists(path) ? weft_cluster_load(path, NULL, out) : look(GPUS, 0, out);
}

/* Hosts like the first node, local[i] of its devices each, one run of equal hosts a node; n_device
 * of it are here. */
static weft_status make_nodes(const weft_cluster *base, int n_host, const int *local,
                              weft_host_kind *node, int *n_node)
{
    const weft_host_kind *like = &base->node[0];
    *n_node                    = 0;
    for (int i = 0; i < n_host; i++) {
        if (local[i] > like->n_device)
            return WEFT_FAIL(WEFT_ERR_ARG, "%d ranks of a host, and %d GPU%s are here",
                             local[i], like->n_device, like->n_device > 1 ? "s" : "");
        if (i && local[i] == local[i - 1]) {
            node[*n_node - 1].count++;
            continue;
        }
        node[*n_node]          = *like;
        node[*n_node].count    = 1;
        node[*n_node].n_device = local[i];
        if (local[i] < 2) node[*n_node].link = -1;
        ++*n_node;
    }
    return WEFT_OK;
}

/* Where nothing is known of the network: as of hosts that were not measured. */
static void add_net(weft_cluster *c, weft_link_kind *link, weft_host_kind *node, int n)
{
    int net = c->n_link;
    if (c->n_link) memcpy(link, c->link, sizeof *link * (size_t)c->n_link);
    link[c->n_link++] = (weft_link_kind){.name    = "net",
                                         .scope   = WEFT_LINK_NET,
                                         .alpha_s = 3e-5,
                                         .Bps     = 1.1e9,
                                         .share   = 1,
                                         .source  = "assumed"};
    c->link           = link;
    for (int i = 0; i < n; i++) {
        node[i].net    = net;
        node[i].n_port = 1;
    }
}

static weft_status share_gpu(int ranks, weft_cluster **c)
{
    char          event[64];
    weft_cluster *shared = NULL;
    if (ranks < 2) return WEFT_OK;
    snprintf(event, sizeof event, "share node 0 ranks %d", ranks);
    WEFT_TRY(weft_cluster_change(*c, event, &shared));
    weft_cluster_destroy(*c);
    *c = shared;
    return WEFT_OK;
}

weft_status weft_probe_gpu_hosts(int n_host, const int *local, bool shared,
                                 weft_cluster **out)
{
    static const int one  = 1;
    weft_cluster    *base = NULL, all, *c = NULL;
    weft_host_kind  *node = calloc((size_t)n_host + 1, sizeof *node);
    weft_link_kind  *link = NULL;
    weft_status      st   = WEFT_OK;
    if (!node) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (shared && n_host > 1)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "ranks of several hosts share GPUs"));
    WEFT_GO(find_gpus(&base));
    if (!weft_cluster_is_cuda(base))
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s has other devices than GPUs", base->name));
    all  = *base;
    link = calloc((size_t)base->n_link + 1, sizeof *link);
    if (!link) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    WEFT_GO(make_nodes(base, n_host, shared ? &one : local, node, &all.n_node));
    if (n_host > 1 && node[0].net < 0) add_net(&all, link, node, all.n_node);
    all.node     = node;
    all.n_health = 0;
    WEFT_GO(weft_cluster_copy(&all, &c));
    if (shared) WEFT_GO(share_gpu(local[0], &c));
    *out = c;
    c    = NULL;
out:
    weft_cluster_destroy(c);
    weft_cluster_destroy(base);
    free(link);
    free(node);
    return st;
}
