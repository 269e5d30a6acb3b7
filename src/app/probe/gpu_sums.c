/* Sums over the GPUs of this host by NCCL, which is opened at run time: one message of few bytes
 * and a long one, of 2, 4, 8 GPUs and all, as training sends them. */
#include <dlfcn.h>

#include "probe/gpu_priv.h"

enum {
    FEW   = 256,     /* numbers of a short sum */
    MANY  = 1 << 26, /* and of a long one: 256 MiB */
    F32   = 7,       /* ncclFloat */
    SUM   = 0,
    BYTES = 4
};
#define LEAST_S 0.1

typedef struct nccl {
    void *lib;
    int (*init)(void **comm, int n, const int *device);
    int (*destroy)(void *comm);
    int (*begin)(void);
    int (*end)(void);
    int (*all_reduce)(const void *in, void *out, size_t n, int dtype, int kind,
                      void *comm, weft_cuda_handle stream);
} nccl;

/* One GPU's part; the first works on the bench's stream, which is timed. */
typedef struct member {
    weft_cuda_handle ctx, stream;
    weft_cuda_ptr    data;
    void            *comm;
} member;

typedef struct sum {
    weft_probe__bench *b;
    nccl               lib;
    int                n;
    size_t             count;
    member             m[WEFT_PROBE_GPU_MOST];
} sum;

static weft_status open_library(nccl *l)
{
    l->lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!l->lib) return WEFT_FAIL(WEFT_ERR_IO, "libnccl.so.2 is not here");
    *(void **)&l->init       = dlsym(l->lib, "ncclCommInitAll");
    *(void **)&l->destroy    = dlsym(l->lib, "ncclCommDestroy");
    *(void **)&l->begin      = dlsym(l->lib, "ncclGroupStart");
    *(void **)&l->end        = dlsym(l->lib, "ncclGroupEnd");
    *(void **)&l->all_reduce = dlsym(l->lib, "ncclAllReduce");
    return l->init && l->destroy && l->begin && l->end && l->all_reduce
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_IO, "libnccl.so.2 lacks a function of NCCL 2");
}

static weft_status check(int code, const char *call)
{
    return code ? WEFT_FAIL(WEFT_ERR_IO, "%s fails with %d", call, code) : WEFT_OK;
}

static weft_status add_all(void *arg, int i)
{
    sum *s = arg;
    (void)i;
    WEFT_TRY(check(s->lib.begin(), "ncclGroupStart"));
    for (int k = 0; k < s->n; k++) {
        void *p = (void *)(uintptr_t)s->m[k].data;
        WEFT_TRY(check(
            s->lib.all_reduce(p, p, s->count, F32, SUM, s->m[k].comm, s->m[k].stream),
            "ncclAllReduce"));
    }
    return check(s->lib.end(), "ncclGroupEnd");
}

/* ---- members ---- */

static weft_status open_member(sum *s, int device, int i)
{
    const weft_probe__cuda *c = s->b->c;
    member                 *m = &s->m[i];
    if (!i) { /* the bench has all it needs */
        m->stream = s->b->stream;
        m->data   = s->b->area;
        return WEFT_OK;
    }
    WEFT_CUDA(c, CtxRetain, &m->ctx, device);
    WEFT_CUDA(c, CtxSetCurrent, m->ctx);
    WEFT_CUDA(c, MemAlloc, &m->data, (size_t)MANY * BYTES);
    WEFT_CUDA(c, StreamCreate, &m->stream, 1);
    return WEFT_OK;
}

static void close_members(sum *s, const weft_probe_gpu *g)
{
    const weft_probe__cuda *c = s->b->c;
    for (int i = 1; i < g->n_device; i++) {
        member *m = &s->m[i];
        if (!m->ctx) continue;
        c->CtxSetCurrent(m->ctx);
        if (m->data) c->MemFree(m->data);
        if (m->stream) c->StreamDestroy(m->stream);
        c->CtxRelease(g->device[i]);
    }
    c->CtxSetCurrent(s->b->ctx);
}

/* ---- sums of the first n ---- */

static weft_status time_both(sum *s, double *few, double *many)
{
    s->count = FEW;
    WEFT_TRY(weft_probe__bench_time(s->b, add_all, s, LEAST_S, few));
    s->count = MANY;
    return weft_probe__bench_time(s->b, add_all, s, LEAST_S, many);
}

static weft_status time_group(sum *s, const weft_probe_gpu *g, weft_link_measured *out)
{
    void  *comm[WEFT_PROBE_GPU_MOST] = {0};
    double few, many;
    WEFT_TRY(check(s->lib.init(comm, s->n, g->device), "ncclCommInitAll"));
    for (int i = 0; i < s->n; i++) s->m[i].comm = comm[i];
    weft_status st = time_both(s, &few, &many);
    for (int i = 0; i < s->n; i++) s->lib.destroy(comm[i]);
    WEFT_TRY(st);
    if (!(many > few)) return WEFT_FAIL(WEFT_ERR_IO, "long sums take no longer");
    *out = (weft_link_measured){.n       = s->n,
                                .alpha_s = few,
                                .Bps     = 2.0 * (s->n - 1) / s->n * MANY * BYTES /
                                       (many - few)};
    return WEFT_OK;
}

weft_status weft_probe__time_sums(weft_probe__bench *b, weft_probe_gpu *g)
{
    sum         s  = {.b = b};
    weft_status st = WEFT_OK;
    g->n_sum       = 0;
    if (g->n_device < 2) return WEFT_OK;
    WEFT_GO(open_library(&s.lib));
    if (b->bytes < (size_t)MANY * BYTES)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "too little memory is free"));
    for (int i = 0; i < g->n_device; i++) WEFT_GO(open_member(&s, g->device[i], i));
    b->c->CtxSetCurrent(b->ctx);
    for (s.n = 2; g->n_sum < WEFT_PROBE_GPU_SUMS; s.n *= 2) {
        if (s.n > g->n_device) s.n = g->n_device;
        WEFT_GO(time_group(&s, g, &g->sum[g->n_sum]));
        g->n_sum++;
        if (s.n == g->n_device) break;
    }
out:
    close_members(&s, g);
    if (s.lib.lib) dlclose(s.lib.lib);
    if (st != WEFT_OK) g->n_sum = 0;
    return st;
}
