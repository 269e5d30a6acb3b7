/* The GPUs of this host, kind by kind; what cannot be measured is left out and said. */
#include "probe/gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "probe/gpu_priv.h"

/* Numbers of cuda.h's CUdevice_attribute. */
enum {
    N_SM         = 16,
    MEMORY_KHZ   = 36,
    MEMORY_BITS  = 37,
    CAPABILITY   = 75,
    CAPABILITY_2 = 76
};

static void add_note(weft_probe_gpu *g, const char *what)
{
    size_t n = strlen(g->note);
    snprintf(g->note + n, sizeof g->note - n, "%s%s not measured: %s", n ? "; " : "",
             what, weft_error_text());
}

static weft_status describe(const weft_probe__cuda *c, int i, weft_probe_gpu *g)
{
    int    device, khz = 0, bits = 0, major = 0, minor = 0;
    size_t bytes;
    *g = (weft_probe_gpu){.n_device = 1};
    WEFT_CUDA(c, DeviceGet, &device, i);
    WEFT_CUDA(c, DeviceGetName, g->name, (int)sizeof g->name - 1, device);
    WEFT_CUDA(c, DeviceTotalMem, &bytes, device);
    WEFT_CUDA(c, DeviceGetAttribute, &g->n_sm, N_SM, device);
    c->DeviceGetAttribute(&khz, MEMORY_KHZ, device); /* not said by all */
    c->DeviceGetAttribute(&bits, MEMORY_BITS, device);
    c->DeviceGetAttribute(&major, CAPABILITY, device);
    c->DeviceGetAttribute(&minor, CAPABILITY_2, device);
    g->device[0]  = device;
    g->mem_bytes  = (int64_t)bytes;
    g->peak_Bps   = 2e3 * khz * bits / 8; /* two transfers a clock */
    g->capability = 10 * major + minor;
    return WEFT_OK;
}

/* One entry a kind. */
static weft_status list(const weft_probe__cuda *c, weft_probe_gpus *out)
{
    int count;
    WEFT_CUDA(c, DriverGetVersion, &out->driver);
    WEFT_CUDA(c, DeviceGetCount, &count);
    for (int i = 0; i < count; i++) {
        weft_probe_gpu g;
        int            at = 0;
        WEFT_TRY(describe(c, i, &g));
        while (at < out->n && (strcmp(out->kind[at].name, g.name) ||
                               out->kind[at].mem_bytes != g.mem_bytes))
            at++;
        if (at == WEFT_PROBE_GPU_KINDS) continue;
        if (at == out->n) {
            out->kind[out->n++] = g;
            continue;
        }
        weft_probe_gpu *k = &out->kind[at];
        if (k->n_device < WEFT_PROBE_GPU_MOST) k->device[k->n_device++] = g.device[0];
    }
    return WEFT_OK;
}

/* A part that fails leaves the others standing. */
static void measure(weft_probe__bench *b, weft_probe_gpu *g)
{
    size_t free_bytes = 0, total;
    if (!b->c->MemGetInfo(&free_bytes, &total))
        g->free_bytes = (int64_t)(free_bytes + b->bytes);
    if (weft_probe__time_launch(b, g) != WEFT_OK) add_note(g, "launches");
    if (weft_probe__time_memory(b, g) != WEFT_OK) add_note(g, "memory");
    if (weft_probe__time_host(b, g) != WEFT_OK) add_note(g, "copies to the host");
    if (weft_probe__time_products(b, g) != WEFT_OK) add_note(g, "products");
    if (weft_probe__time_peers(b, g) != WEFT_OK) add_note(g, "copies between GPUs");
    if (weft_probe__time_sums(b, g) != WEFT_OK) add_note(g, "sums over GPUs");
}

/* false: nothing of it can be measured, and out->why says why. */
static bool measure_kind(const weft_probe__cuda *c, weft_probe_gpu *g,
                         weft_probe_gpus *out)
{
    weft_probe__bench b;
    if (weft_probe__bench_open(c, g->device[0], &b) == WEFT_OK) {
        measure(&b, g);
        weft_probe__bench_close(&b);
        if (g->n_product || g->scale_Bps > 0) return true;
        snprintf(out->why, sizeof out->why, "%.60s: %.180s", g->name, g->note);
        return false;
    }
    snprintf(out->why, sizeof out->why, "%.60s: %.180s", g->name, weft_error_text());
    return false;
}

weft_status weft_probe_gpus_measure(weft_arena *a, weft_probe_gpus *out)
{
    weft_probe__cuda *c     = NULL;
    weft_status       st    = WEFT_OK;
    int               found = 0;
    *out                    = (weft_probe_gpus){0};
    if (weft_probe__cuda_open(&c) != WEFT_OK || list(c, out) != WEFT_OK) {
        snprintf(out->why, sizeof out->why, "%s", weft_error_text());
        out->n = 0;
        goto out;
    }
    if (!out->n) snprintf(out->why, sizeof out->why, "the driver finds none");
    for (int i = 0; i < out->n; i++) {
        weft_probe_gpu *g = &out->kind[i];
        g->product = WEFT_ARENA_ARRAY(a, weft_probe_gpu_product, WEFT_PROBE_GPU_PRODUCTS);
        WEFT_GO(weft_arena_status(a));
        if (measure_kind(c, g, out)) out->kind[found++] = *g;
    }
    out->n = found;
out:
    weft_probe__cuda_close(c);
    return st;
}
