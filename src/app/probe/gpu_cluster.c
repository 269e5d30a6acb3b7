/* Measured GPUs as a cluster, with where each number is from. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "probe/gpu.h"

#define UNSTEADY 0.1

/* ---- names ---- */

static void lower(const char *s, char *out, size_t n)
{
    size_t i = 0;
    for (; s[i] && i + 1 < n; i++) out[i] = (char)tolower((unsigned char)s[i]);
    out[i] = 0;
}

/* The kind whose letters up to the '-' are in the model's name, nearest in memory. */
const weft_device_kind *weft_probe_gpu_kind(const weft_cluster *kinds, const char *model,
                                            double mem_bytes)
{
    const weft_device_kind *best = NULL;
    double                  off  = INFINITY;
    char                    low[96];
    lower(model, low, sizeof low);
    for (int i = 0; i < kinds->n_device; i++) {
        const weft_device_kind *k = &kinds->device[i];
        char                    stem[32];
        size_t                  m = strcspn(k->name, "-");
        if (strcmp(k->vendor, "nvidia") || m >= sizeof stem) continue;
        memcpy(stem, k->name, m);
        stem[m]     = 0;
        double away = fabs((double)k->mem_bytes - mem_bytes);
        if (strstr(low, stem) && away < off) best = k, off = away;
    }
    return best;
}

const char *weft_probe_gpu_link(const char *model, const char *kind)
{
    if (!strstr(model, "SXM") && !strstr(model, "H200") && !strstr(model, "B200"))
        return "pcie4";
    return strstr(kind, "v100")   ? "nvlink2"
           : strstr(kind, "a100") ? "nvlink3"
           : strstr(kind, "b200") ? "nvlink5"
                                  : "nvlink4";
}

/* "NVIDIA GeForce RTX 4090" -> "geforce-rtx-4090". */
static void name_of(const weft_probe_gpu *g, const weft_device_kind *sheet, char *out,
                    size_t n)
{
    char low[96], *s = low;
    lower(sheet ? sheet->name : g->name, low, sizeof low);
    if (!strncmp(s, "nvidia ", 7)) s += 7;
    for (char *c = s; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '-';
    snprintf(out, n, "%s", *s ? s : "gpu");
}

/* ---- where numbers are from ---- */

static void put_bandwidths(const weft_probe_gpu *g, weft_text *t)
{
    if (g->scale_Bps > 0)
        weft_text_add(t,
                      "; memory in TB/s: copy %.3g, read %.3g, scale %.3g, add %.3g, "
                      "update %.3g",
                      1e-12 * g->copy_Bps, 1e-12 * g->read_Bps, 1e-12 * g->scale_Bps,
                      1e-12 * g->add_Bps, 1e-12 * g->update_Bps);
    if (g->launch_s > 0)
        weft_text_add(t, "; an empty kernel %.3g us, the host's part %.3g",
                      1e6 * g->launch_s, 1e6 * g->issue_s);
}

static weft_status put_source(const weft_probe_gpus *all, const weft_probe_gpu *g,
                              const weft_device_kind *sheet, double error, weft_text *t)
{
    weft_text_add(t, "%s by weft cluster calibrate: %s, %d multiprocessors, CUDA %d.%d",
                  g->n_product ? "measured" : "partly measured", g->name, g->n_sm,
                  all->driver / 1000, all->driver % 1000 / 10);
    if (g->n_product)
        weft_text_add(t, "; %d products, constants within %.1f %% of them", g->n_product,
                      100 * error);
    put_bandwidths(g, t);
    weft_text_add(t, "; %.1f of %.1f GiB free", (double)g->free_bytes / 1073741824,
                  (double)g->mem_bytes / 1073741824);
    if (sheet)
        weft_text_add(t, "; peaks as %s, attention not measured", sheet->name);
    else
        weft_text_add(t, "; no data sheet known: peaks are the best that was reached");
    if (g->drift > UNSTEADY)
        weft_text_add(t, "; disturbed: one product took %.0f %% longer at times",
                      100 * g->drift);
    if (g->note[0]) weft_text_add(t, "; %s", g->note);
    return weft_text_status(t);
}

/* ---- the file ---- */

static weft_status put_kind(const weft_probe_gpus *all, const weft_probe_gpu *g,
                            const weft_device_kind *sheet, const char *name, weft_text *t)
{
    weft_arena      *a    = NULL;
    weft_text        from = {0};
    weft_device_kind d;
    double           error;
    weft_status      st;
    WEFT_TRY(weft_arena_create(&a));
    WEFT_GO(weft_probe_gpu_fit(g, sheet, a, &d, &error));
    WEFT_GO(put_source(all, g, sheet, error, &from));
    d.name      = name;
    d.vendor    = "nvidia";
    d.source    = from.s;
    d.attention = 0; /* not measured: as products do */
    weft_cluster_print_device(&d, t);
out:
    weft_text_fini(&from);
    weft_arena_destroy(a);
    return st;
}

static weft_link_kind link_of(const weft_cluster *kinds, const char *name)
{
    for (int i = 0; i < kinds->n_link; i++)
        if (!strcmp(kinds->link[i].name, name)) return kinds->link[i];
    return (weft_link_kind){.name = name, .share = 1};
}

/* Between GPUs: as it was measured, and for the rest as the data sheet has it. */
static void put_peer(const weft_probe_gpu *g, weft_link_kind l, weft_text *t)
{
    char               from[256];
    weft_link_measured sum[WEFT_PROBE_GPU_SUMS];
    if (!(g->peer.Bps > 0)) return;
    snprintf(from, sizeof from,
             "copies of 128 MiB between GPUs, the slowest pair, by weft cluster "
             "calibrate: %.4g GB/s%s",
             1e-9 * g->peer.Bps, g->n_sum ? "; measured: NCCL's sums" : "");
    l.alpha_s = g->peer.alpha_s;
    l.Bps     = fmax(l.Bps, g->peer.Bps);
    l.share   = g->peer.Bps / l.Bps;
    l.source  = from;
    if (g->n_sum) {
        memcpy(sum, g->sum, sizeof sum);
        l.n_measured = g->n_sum;
        l.measured   = sum;
    }
    weft_cluster_print_link(&l, t);
}

static void put_to_host(const weft_probe_gpu *g, weft_text *t)
{
    char from[256];
    if (!(g->up.Bps > 0)) return;
    snprintf(from, sizeof from,
             "copies of 64 MiB of pinned memory by weft cluster calibrate: to the GPU "
             "%.4g GB/s and %.3g us, back %.4g GB/s and %.3g us",
             1e-9 * g->up.Bps, 1e6 * g->up.alpha_s, 1e-9 * g->down.Bps,
             1e6 * g->down.alpha_s);
    weft_link_kind l = {.name    = "to-host",
                        .alpha_s = fmax(g->up.alpha_s, g->down.alpha_s),
                        .Bps = g->down.Bps > 0 ? fmin(g->up.Bps, g->down.Bps) : g->up.Bps,
                        .share  = 1,
                        .source = from};
    weft_cluster_print_link(&l, t);
}

static weft_status put_all(const weft_probe_gpus *g, const weft_cluster *kinds,
                           weft_text *t)
{
    const weft_probe_gpu   *of        = &g->kind[0];
    const weft_device_kind *sheet     = NULL;
    char                    host[128] = "host", name[96], first[96];
    gethostname(host, sizeof host - 1);
    weft_text_add(t, "name: ");
    weft_text_put_quoted(t, host);
    weft_text_add(t, "\ndevice:\n");
    for (int i = g->n - 1; i >= 0; i--) {
        const weft_probe_gpu *k = &g->kind[i];
        sheet = weft_probe_gpu_kind(kinds, k->name, (double)k->mem_bytes);
        name_of(k, sheet, name, sizeof name);
        if (!i) snprintf(first, sizeof first, "%s", name);
        WEFT_TRY(put_kind(g, k, sheet, name, t));
    }
    const char *link = weft_probe_gpu_link(of->name, first);
    if (of->peer.Bps > 0 || of->up.Bps > 0) weft_text_add(t, "link:\n");
    put_peer(of, link_of(kinds, link), t);
    put_to_host(of, t);
    weft_text_add(t, "node:\n  - {name: host, device: ");
    weft_text_put_quoted(t, first);
    weft_text_add(t, ", n_device: %d, link: %s}\n", of->n_device, link);
    return weft_text_status(t);
}

weft_status weft_probe_gpus_cluster(const weft_probe_gpus *g,
                                    const weft_cluster *processors, weft_cluster **out)
{
    weft_cluster *kinds = NULL, *own = NULL;
    weft_text     t = {0};
    weft_status   st;
    WEFT_GO(weft_cluster_kinds(NULL, &kinds));
    WEFT_GO(put_all(g, kinds, &t));
    WEFT_GO(weft_cluster_parse("calibration", t.s, t.n, &own));
    if (processors)
        WEFT_GO(weft_cluster_beside(own, processors, out));
    else
        *out = own, own = NULL;
out:
    weft_text_fini(&t);
    weft_cluster_destroy(own);
    weft_cluster_destroy(kinds);
    return st;
}

/* ---- all of it ---- */

static void list_rate(weft_text *t, const char *what, double Bps)
{
    if (Bps > 0) weft_text_add(t, "%s,,,,,,%.6g\n", what, Bps);
}

static void list_wire(weft_text *t, const char *what, const weft_probe_gpu_wire *w)
{
    if (w->Bps > 0) weft_text_add(t, "%s,,,,,%.6g,%.6g\n", what, w->alpha_s, w->Bps);
}

weft_status weft_probe_gpus_list(const weft_probe_gpus *all, weft_text *t)
{
    for (int i = 0; i < all->n; i++) {
        const weft_probe_gpu *g = &all->kind[i];
        weft_text_add(t, "# %d x %s, %d multiprocessors, CUDA %d.%d; drift %.4f%s%s\n",
                      g->n_device, g->name, g->n_sm, all->driver / 1000,
                      all->driver % 1000 / 10, g->drift, g->note[0] ? "; " : "", g->note);
        weft_text_add(t, "what,m,n,k,bytes,seconds,per_s\n");
        weft_text_add(t, "launch on the device,,,,,%.6g,\nlaunch by the host,,,,,%.6g,\n",
                      g->launch_s, g->issue_s);
        list_rate(t, "copy", g->copy_Bps);
        list_rate(t, "read", g->read_Bps);
        list_rate(t, "scale", g->scale_Bps);
        list_rate(t, "add", g->add_Bps);
        list_rate(t, "update", g->update_Bps);
        list_wire(t, "host to device", &g->up);
        list_wire(t, "device to host", &g->down);
        list_wire(t, "device to device", &g->peer);
        for (int k = 0; k < g->n_sum; k++)
            weft_text_add(t, "sum over %d,,,,,%.6g,%.6g\n", g->sum[k].n,
                          g->sum[k].alpha_s, g->sum[k].Bps);
        for (int k = 0; k < g->n_product; k++) {
            const weft_probe_gpu_product *p = &g->product[k];
            weft_text_add(t, "product %s,%.0f,%.0f,%.0f,%.0f,%.6g,%.6g\n", p->dtype, p->m,
                          p->n, p->k,
                          p->bytes * (p->m * p->k + p->k * p->n + p->m * p->n), p->s,
                          2 * p->m * p->n * p->k / p->s);
        }
    }
    return weft_text_status(t);
}
