#include "cli/cluster_gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "probe/found.h"
#include "probe/gpu.h"
#include "probe/probe.h"
#include "session/device.h"
#include "session/sweep.h"

enum {
    COPY_BYTES = 64 << 20, /* as offload=optimizer copies them */
    N_PARAM    = 64 << 20  /* far more than caches hold, as the states of a model are */
};

static void log_line(const char *line)
{
    fprintf(stderr, "%s\n", line);
}

/* ---- what is there ---- */

/* One library a line; NCCL as ld.so finds it, where the plugin has not named its own. */
static void describe_libraries(const weft_probe_found *f, weft_text *t)
{
    char text[2400] = "", *at = text;
    if (weft_session_find_libraries(text, sizeof text) != WEFT_OK)
        weft_text_add(t, "no training on GPUs: %s\n", weft_error_text());
    bool nccl = strstr(text, "NCCL") != NULL;
    while (*at) {
        char *end = strstr(at, ", ");
        weft_text_add(t, "%.*s\n", (int)(end ? end - at : (ptrdiff_t)strlen(at)), at);
        at = end ? end + 2 : at + strlen(at);
    }
    if (!nccl) weft_text_add(t, "%s%s\n", f->nccl[0] ? "NCCL " : "no NCCL", f->nccl);
}

void weft_cli_describe_gpus(weft_text *t)
{
    weft_probe_found f;
    weft_probe_find_gpus(&f);
    if (!f.n) return;
    weft_probe_print_gpus(&f, t);
    describe_libraries(&f, t);
}

/* ---- the plugin's part ---- */

/* Algorithms are chosen when a program is made: one pass over the models' shapes before anything is
 * timed. */
static weft_status tune_algorithms(const char *file, double limit_s,
                                   const weft_sweep_gpu_options *o, weft_arena *a)
{
    weft_timing *ignored;
    int          n;
    remove(file);
    WEFT_TRY(weft_sweep_gpu(&(weft_sweep_gpu_options){.device       = o->device,
                                                      .pool         = o->pool,
                                                      .tunes        = true,
                                                      .tune_limit_s = limit_s,
                                                      .log          = o->log},
                            a, &ignored, &n));
    fprintf(stderr, "chosen algorithms: %s (jobs use it by WEFT_CUDA_PINNED=%s)\n", file,
            file);
    return WEFT_OK;
}

/* What offload=optimizer needs of the host; one without the memory for it keeps assumed speeds. */
static weft_status add_host(weft_device *device, weft_pool *pool, weft_cluster **c)
{
    weft_timing   host[2];
    weft_cluster *more = NULL;
    if (weft_sweep_host_update(device, pool, N_PARAM, &host[0]) != WEFT_OK ||
        weft_sweep_host_copy(device, COPY_BYTES, &host[1]) != WEFT_OK) {
        fprintf(stderr, "the host's updates and copies are not timed: %s\n",
                weft_error_text());
        return WEFT_OK;
    }
    for (int i = 0; i < 2; i++) host[i].device = (*c)->node[0].device;
    WEFT_TRY(weft_cluster_learn(*c, host, 2, &more));
    weft_cluster_destroy(*c);
    *c = more;
    fprintf(stderr, "host: updates at %.4g GB/s, copies at %.4g GB/s each way\n",
            1e-9 * host[0].size[0] / host[0].s, 1e-9 * host[1].size[0] / host[1].s);
    return WEFT_OK;
}

static weft_status sweep_device(const weft_cli_gpus *o, weft_device *device,
                                weft_text *list, const weft_cluster *c,
                                weft_cluster **out)
{
    weft_arena  *a      = NULL;
    weft_pool   *pool   = NULL;
    weft_timing *timing = NULL;
    int          n      = 0;
    weft_status  st     = WEFT_OK;
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(weft_pool_create(weft_pool_cores(), 0, &pool));
    weft_sweep_gpu_options sweep = {
        .device = device, .pool = pool, .list = list, .log = log_line};
    if (o->tune) WEFT_GO(tune_algorithms(o->tune, o->tune_limit_s, &sweep, a));
    if (!o->host) WEFT_GO(weft_sweep_gpu(&sweep, a, &timing, &n));
    for (int i = 0; i < n; i++) timing[i].device = c->node[0].device;
    WEFT_GO(weft_cluster_learn(c, timing, n, out));
    WEFT_GO(add_host(device, pool, out));
    if (n)
        fprintf(stderr, "%s: %d times of instructions in their place\n", device->name, n);
out:
    weft_pool_destroy(pool);
    weft_arena_destroy(a);
    return st;
}

/* number: of the GPU.  The tuner reads its file's name when a device is opened. */
static weft_status time_device(const weft_cli_gpus *o, int number, weft_text *list,
                               const weft_cluster *c, weft_cluster **out)
{
    weft_device *device = NULL;
    char         name[32];
    snprintf(name, sizeof name, "cuda:%d", number);
    if (o->tune) setenv("WEFT_CUDA_TUNE", o->tune, 1);
    WEFT_TRY(weft_session_open_device(
        &(weft_session_device){.where = "weft cluster calibrate", .list = name},
        &device));
    weft_status st = sweep_device(o, device, list, c, out);
    weft_session_close_device(device);
    return st;
}

weft_status weft_cli_time_instructions(const weft_cli_gpus *o, const weft_cluster *c,
                                       weft_cluster **out)
{
    weft_text   list = {0};
    weft_status st   = WEFT_OK;
    if (!c->n_node || weft_cluster_is_cpu(&c->device[c->node[0].device]))
        return WEFT_FAIL(WEFT_ERR_ARG, "the first node of cluster %s has no GPUs",
                         c->name);
    WEFT_GO(time_device(o, 0, &list, c, out));
    if (o->list && !o->host) WEFT_GO(weft_io_replace_file(o->list, list.s, list.n));
out:
    weft_text_fini(&list);
    return st;
}

/* ---- all of it ---- */

static weft_status keep_in_cache(const weft_cluster *c)
{
    char        path[1024];
    weft_text   t  = {0};
    weft_status st = WEFT_OK;
    WEFT_GO(weft_probe_gpu_cache_path(path, sizeof path));
    WEFT_GO(weft_cluster_print(c, &t));
    WEFT_GO(weft_io_replace_file(path, t.s, t.n));
out:
    weft_text_fini(&t);
    return st;
}

static void print_kinds(const weft_probe_gpus *g)
{
    for (int i = 0; i < g->n; i++)
        fprintf(stderr, "%d x %s%s%s\n", g->kind[i].n_device, g->kind[i].name,
                g->kind[i].note[0] ? ": " : ", measured", g->kind[i].note);
}

/* Instructions of the first kind; without a plugin the constants alone, and a line says so. */
static weft_status add_instructions(const weft_cli_gpus *o, const weft_probe_gpus *g,
                                    weft_text *list, weft_cluster **c)
{
    weft_cluster *timed = NULL;
    if (time_device(o, g->kind[0].device[0], list, *c, &timed) != WEFT_OK) {
        fprintf(stderr, "instructions are not timed: %s\n", weft_error_text());
        return WEFT_OK;
    }
    weft_cluster_destroy(*c);
    *c = timed;
    return WEFT_OK;
}

static weft_status make_cluster(const weft_cli_gpus *o, const weft_probe_gpus *g,
                                weft_text *list, weft_cluster **out)
{
    weft_cluster *cpu = NULL, *c = NULL;
    weft_status   st = WEFT_OK;
    if (o->processors) WEFT_GO(weft_cluster_load(o->processors, NULL, &cpu));
    st = weft_probe_gpus_cluster(g, cpu, &c);
    if (st == WEFT_ERR_NOFIT)
        fprintf(stderr, "GPUs are left out: %s\n", weft_error_text());
    if (st == WEFT_ERR_NOFIT) st = WEFT_OK;
    if (st != WEFT_OK || !c) goto out;
    WEFT_GO(add_instructions(o, g, list, &c));
    WEFT_GO(keep_in_cache(c));
    *out = c;
    c    = NULL;
out:
    weft_cluster_destroy(c);
    weft_cluster_destroy(cpu);
    return st;
}

weft_status weft_cli_measure_gpus(const weft_cli_gpus *o, weft_cluster **out)
{
    weft_arena      *a = NULL;
    weft_probe_gpus *g;
    weft_text        list = {0};
    weft_status      st;
    *out = NULL;
    WEFT_TRY(weft_arena_create(&a));
    g = WEFT_ARENA_NEW(a, weft_probe_gpus);
    WEFT_GO(weft_arena_status(a));
    WEFT_GO(weft_probe_gpus_measure(a, g));
    if (!g->n) fprintf(stderr, "GPUs are not measured: %s\n", g->why);
    if (!g->n) goto out;
    print_kinds(g);
    WEFT_GO(weft_probe_gpus_list(g, &list));
    WEFT_GO(make_cluster(o, g, &list, out));
    if (o->list) WEFT_GO(weft_io_replace_file(o->list, list.s, list.n));
out:
    weft_text_fini(&list);
    weft_arena_destroy(a);
    return st;
}
