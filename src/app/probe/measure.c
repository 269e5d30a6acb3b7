/* How fast this machine is: the least time of several, since others only add to it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "kernel/gemm.h"
#include "probe/probe.h"

/* ---- products ---- */

static weft_status time_product(weft_pool *pool, int n_thread, int64_t n, double *best)
{
    size_t    bytes = ((size_t)(n * n) * sizeof(float) + 63) / 64 * 64;
    float    *a = aligned_alloc(64, bytes), *b = aligned_alloc(64, bytes);
    float    *c       = aligned_alloc(64, bytes);
    weft_gemm g       = weft_gemm_make(n, n, n, a, n, 1, b, n, 1, c, n);
    size_t    need    = (weft_gemm_scratch(&g, n_thread) + 64) / 64 * 64;
    void     *scratch = aligned_alloc(64, need);
    bool      got     = a && b && c && scratch;
    *best             = INFINITY;
    for (int64_t i = 0; got && i < n * n; i++) {
        a[i] = (float)(i % 7) - 3;
        b[i] = (float)(i % 5) - 2;
        c[i] = 0;
    }
    double start = weft_clock_s();
    for (int k = 0; got && (k < 3 || (k < 2000 && weft_clock_s() - start < 0.15)); k++) {
        double t0 = weft_clock_s();
        weft_gemm_run(&g, pool, scratch);
        *best = fmin(*best, weft_clock_s() - t0);
    }
    free(a);
    free(b);
    free(c);
    free(scratch);
    return got ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_MEM, "out of memory for a product of %lld",
                           (long long)n);
}

/* ---- memory ---- */

typedef struct stream {
    float  *a, *b;
    int64_t n;
} stream;

enum {
    STREAM_BYTES = 64 << 20,
    N_TASK       = 64
};

static void copy_part(void *arg, int64_t task, int thread)
{
    stream *s    = arg;
    int64_t part = s->n / N_TASK;
    (void)thread;
    for (int64_t i = task * part; i < (task + 1) * part; i++) s->a[i] = 0.5f * s->b[i];
}

static void nothing(void *arg, int64_t task, int thread)
{
    (void)arg, (void)task, (void)thread;
}

static weft_status time_memory(weft_pool *pool, double *Bps)
{
    stream s    = {malloc(STREAM_BYTES), malloc(STREAM_BYTES), STREAM_BYTES / 4};
    double best = INFINITY;
    bool   got  = s.a && s.b;
    if (got) memset(s.b, 0, STREAM_BYTES), memset(s.a, 0, STREAM_BYTES);
    for (int k = 0; got && k < 8; k++) {
        double t0 = weft_clock_s();
        weft_pool_run(pool, N_TASK, copy_part, &s);
        best = fmin(best, weft_clock_s() - t0);
    }
    free(s.a);
    free(s.b);
    *Bps = 2.0 * STREAM_BYTES / best;
    return got ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_MEM, "out of memory for %d bytes", 2 * STREAM_BYTES);
}

/* ---- element by element, in and out of caches ---- */

weft_status weft_probe_streams(weft_pool *pool, weft_arena *a, weft_timing **out, int *n)
{
    static const int64_t size[] = {4 << 10, 32 << 10, 256 << 10,   1 << 20,
                                   4 << 20, 32 << 20, STREAM_BYTES};
    stream               s      = {malloc(STREAM_BYTES / 2), malloc(STREAM_BYTES / 2), 0};
    bool                 got    = s.a && s.b;
    *out                        = WEFT_ARENA_ARRAY(a, weft_timing, WEFT_COUNT(size));
    *n                          = (int)WEFT_COUNT(size);
    if (got) memset(s.b, 0, STREAM_BYTES / 2), memset(s.a, 0, STREAM_BYTES / 2);
    for (int i = 0; got && *out && i < *n; i++) {
        double best = INFINITY, start = weft_clock_s();
        s.n = size[i] / 8; /* read and written */
        for (int k = 0; k < 4 || (k < 500 && weft_clock_s() - start < 0.02); k++) {
            double t0 = weft_clock_s();
            weft_pool_run(pool, N_TASK, copy_part, &s);
            best = fmin(best, weft_clock_s() - t0);
        }
        (*out)[i] = (weft_timing){.link   = -1,
                                  .work   = "stream",
                                  .n_size = 1,
                                  .size   = {(double)size[i]},
                                  .s      = fmax(best, 1e-9)};
    }
    free(s.a);
    free(s.b);
    if (!got) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory for %d bytes", STREAM_BYTES);
    return weft_arena_status(a);
}

weft_status weft_probe_device(weft_pool *pool, int n_thread, weft_probe_numbers *out)
{
    static const int64_t side[] = {32, 64, 128, 256, 512, 1024, 1536};
    double               s[WEFT_COUNT(side)];
    out->flops = 0;
    for (size_t i = 0; i < WEFT_COUNT(side); i++) {
        WEFT_TRY(time_product(pool, n_thread, side[i], &s[i]));
        out->point[i].flops = 2.0 * (double)(side[i] * side[i] * side[i]);
        out->flops          = fmax(out->flops, out->point[i].flops / s[i]);
    }
    out->n_point = (int)WEFT_COUNT(side);
    for (int i = 0; i < out->n_point; i++)
        out->point[i].share = fmin(1, out->point[i].flops / s[i] / out->flops);
    WEFT_TRY(time_memory(pool, &out->mem_Bps));
    double best = INFINITY;
    for (int k = 0; k < 20; k++) {
        double t0 = weft_clock_s();
        for (int i = 0; i < 50; i++) weft_pool_run(pool, n_thread, nothing, NULL);
        best = fmin(best, (weft_clock_s() - t0) / 50);
    }
    out->launch_s = best;
    return WEFT_OK;
}

/* ---- links ---- */

/* Half of the least time there and back. */
static weft_status ping(weft_comm *c, weft_comm_channel *to, weft_comm_channel *from,
                        void *p, int64_t bytes, int n, double *out)
{
    *out = INFINITY;
    for (int i = 0; i < n; i++) {
        double t0 = weft_clock_s();
        if (c->rank == 0) {
            WEFT_TRY(weft_comm_send(c, to, p, bytes));
            WEFT_TRY(weft_comm_recv(c, from, p, bytes));
        } else {
            WEFT_TRY(weft_comm_recv(c, from, p, bytes));
            WEFT_TRY(weft_comm_send(c, to, p, bytes));
        }
        *out = fmin(*out, (weft_clock_s() - t0) / 2);
    }
    return WEFT_OK;
}

static weft_status ping_all(weft_comm *c, weft_probe_numbers *out)
{
    enum {
        LARGE = 8 << 20
    };
    weft_comm_channel *to, *from;
    double             small, large;
    char              *p = calloc(1, LARGE);
    weft_status        st;
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    WEFT_GO(weft_comm_open_channel(c, 1 - c->rank, WEFT_COMM_SEND, 900 + c->rank, LARGE,
                                   1, &to));
    WEFT_GO(weft_comm_open_channel(c, 1 - c->rank, WEFT_COMM_RECV, 901 - c->rank, LARGE,
                                   1, &from));
    WEFT_GO(ping(c, to, from, p, 64, 500, &small));
    WEFT_GO(ping(c, to, from, p, LARGE, 12, &large));
    out->alpha_s = small;
    out->Bps     = LARGE / (large - small);
out:
    free(p);
    return st;
}

weft_status weft_probe_link(weft_comm *c, weft_probe_numbers *out)
{
    int32_t          rank[256];
    weft_comm_group *g;
    double           x[2] = {0};
    if (c->world < 2) return WEFT_OK;
    for (int i = 0; i < c->world && i < 256; i++) rank[i] = i;
    WEFT_TRY(weft_comm_open_group(c, c->world, rank, 900, &g));
    if (c->rank < 2) WEFT_TRY(ping_all(c, out));
    if (c->rank == 0) x[0] = out->alpha_s, x[1] = out->Bps;
    WEFT_TRY(weft_comm_collective(c, g, WEFT_BROADCAST, WEFT_DTYPE_F64, x, x, 2));
    out->alpha_s = x[0];
    out->Bps     = x[1];
    return WEFT_OK;
}

/* ---- the cluster of them ---- */

weft_status weft_probe_cluster(const weft_probe_numbers *n, int n_rank,
                               weft_cluster **out)
{
    weft_cluster *here      = NULL;
    weft_text     t         = {0};
    char          host[128] = "host";
    weft_status   st;
    WEFT_GO(weft_probe_processors(0, &here));
    gethostname(host, sizeof host - 1);
    weft_text_add(&t, "name: ");
    weft_text_put_quoted(&t, host);
    weft_text_add(&t, "\ndevice:\n  - {name: cpu, flops: {f32: ");
    weft_text_put_double(&t, n->flops);
    weft_text_add(&t, "}, curve: [");
    for (int i = 0; i < n->n_point; i++) {
        weft_text_add(&t, "%s{flops: ", i ? ", " : "");
        weft_text_put_double(&t, n->point[i].flops);
        weft_text_add(&t, ", share: ");
        weft_text_put_double(&t, n->point[i].share);
        weft_text_add(&t, "}");
    }
    weft_text_add(&t, "], mem_Bps: ");
    weft_text_put_double(&t, n->mem_Bps);
    weft_text_add(&t, ", launch_s: ");
    weft_text_put_double(&t, n->launch_s);
    weft_text_add(&t, ", mem_bytes: %lld, source: measured by weft cluster calibrate}\n",
                  (long long)(here->device[0].mem_bytes / n_rank));
    if (n->Bps > 0) {
        weft_text_add(&t, "link:\n  - {name: memory, alpha_s: ");
        weft_text_put_double(&t, n->alpha_s);
        weft_text_add(&t, ", Bps: ");
        weft_text_put_double(&t, n->Bps);
        weft_text_add(&t, ", source: measured by weft cluster calibrate}\n");
    }
    weft_text_add(&t, "node:\n  - {name: host, device: cpu, n_device: %d%s", n_rank,
                  n_rank > 1 ? ", link: memory" : "");
    for (int i = 0; i < n->n_oversubscription; i++) {
        weft_text_add(&t, i ? ", " : ", oversubscription: [");
        weft_text_put_double(&t, n->oversubscription[i]);
    }
    weft_text_add(&t, n->n_oversubscription ? "]}\n" : "}\n");
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_cluster_parse("calibration", t.s, t.n, out));
out:
    weft_cluster_destroy(here);
    weft_text_fini(&t);
    return st;
}

/* The folder, a '/', "cluster-" and the host's name; *len: how long that is. */
static weft_status cache_start(char *path, size_t n, int *len)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char        host[128] = "host";
    gethostname(host, sizeof host - 1);
    if (base && base[0])
        *len = snprintf(path, n, "%s/weft", base);
    else
        *len = snprintf(path, n, "%s/.cache/weft", home ? home : ".");
    if (*len < 0 || (size_t)*len >= n)
        return WEFT_FAIL(WEFT_ERR_ARG, "the path is too long");
    WEFT_TRY(weft_io_mkdirs(path));
    *len += snprintf(path + *len, n - (size_t)*len, "/cluster-%s", host);
    return (size_t)*len < n ? WEFT_OK : WEFT_FAIL(WEFT_ERR_ARG, "the path is too long");
}

weft_status weft_probe_cache_path(int n_host, int n_rank, char *path, size_t n)
{
    char hosts[16] = "";
    int  len;
    WEFT_TRY(cache_start(path, n, &len));
    if (n_host > 1) snprintf(hosts, sizeof hosts, "%dx", n_host);
    len += snprintf(path + len, n - (size_t)len, "-%s%d.yaml", hosts, n_rank);
    return (size_t)len < n ? WEFT_OK : WEFT_FAIL(WEFT_ERR_ARG, "the path is too long");
}

weft_status weft_probe_gpu_cache_path(char *path, size_t n)
{
    int len;
    WEFT_TRY(cache_start(path, n, &len));
    len += snprintf(path + len, n - (size_t)len, "-gpu.yaml");
    return (size_t)len < n ? WEFT_OK : WEFT_FAIL(WEFT_ERR_ARG, "the path is too long");
}
