/* What the host does for a GPU whose optimizer states are in its memory (cost/host.c): updates on
 * its cores, in pinned memory, and copies both ways at once.  The least of several times. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "exec/exec.h"
#include "session/sweep.h"

enum {
    TRIES      = 3,
    COPIES     = 4, /* one after the other, in a try */
    MIN_BUFFER = 64
};

/* An update of a bf16 job: AdamW in f32, and the copy of the new parameter. */
static const char update_text[] =
    "program host rank 0 of 1 micro 1 lanes 1 {\n"
    "  slab memory host_work %lld\n"
    "  buffer p slab memory at 0 bytes %lld\n"
    "  buffer g slab memory at %lld bytes %lld\n"
    "  buffer m slab memory at %lld bytes %lld\n"
    "  buffer v slab memory at %lld bytes %lld\n"
    "  buffer copy slab memory at %lld bytes %lld\n"
    "  buffer lr slab memory at %lld bytes 64\n"
    "  stream update host device 0 threads 0\n"
    "  actor update on update {\n"
    "    compute p adamw (p f32[%lld], g f32[%lld], m f32[%lld], v f32[%lld], lr f32[], "
    "lr + 1 f32[], lr + 2 f32[]) -> (p f32[%lld], m f32[%lld], v f32[%lld] | copy "
    "bf16[%lld])\n"
    "      post cast \"dtype=bf16\" out 3 ;\n"
    "  }\n"
    "  list update { update; }\n"
    "}\n";

static weft_status make_program(int64_t n, weft_program **out)
{
    char      text[2048];
    long long b = 4 * n, e = n;
    int       len =
        snprintf(text, sizeof text, update_text, 4 * b + b / 2 + MIN_BUFFER, b, b, b,
                 2 * b, b, 3 * b, b, 4 * b, b / 2, 4 * b + b / 2, e, e, e, e, e, e, e, e);
    return weft_program_parse("host update", text, (size_t)len, out);
}

/* Memory as a step leaves it: all of it was written. */
static void fill_memory(const weft_memory *m, int64_t n)
{
    float *scalar = (float *)(void *)((char *)m->address + 4 * 4 * n + 2 * n);
    memset(m->address, 0, (size_t)m->bytes);
    scalar[0] = 1e-5f; /* lr */
    scalar[1] = 1;     /* scale */
    scalar[2] = 1;     /* step */
}

weft_status weft_sweep_host_update(weft_device *d, weft_pool *pool, int64_t n,
                                   weft_timing *out)
{
    weft_program *p    = NULL;
    weft_exec    *e    = NULL;
    weft_memory   m    = {0};
    double        best = INFINITY;
    weft_status   st   = WEFT_OK;
    WEFT_GO(make_program(n, &p));
    WEFT_GO(weft_device_alloc(d, WEFT_SPACE_PINNED, p->slab[0].bytes, &m));
    fill_memory(&m, n);
    WEFT_GO(weft_exec_create(p, &(weft_exec_options){.pool = pool, .slab = &m}, &e));
    for (int k = 0; k < TRIES; k++) {
        double start = weft_clock_s();
        WEFT_GO(weft_exec_run(e, k, 1));
        best = fmin(best, weft_clock_s() - start);
    }
    *out = (weft_timing){.link = -1, .work = "host update", .n_size = 1, .s = best};
    out->size[0] = weft_instr_bytes(&p->actor[0].instr[0]);
out:
    weft_exec_destroy(e);
    weft_device_free(&m);
    weft_program_destroy(p);
    return st;
}

/* ---- copies ---- */

typedef struct copier {
    weft_device *d;
    weft_stream  stream[2];
    weft_memory  host[2], device[2];
} copier;

static weft_status open_copier(copier *c, int64_t bytes)
{
    for (int k = 0; k < 2; k++) {
        WEFT_TRY(c->d->stream_open(c->d, k ? "copy_in" : "copy_out", &c->stream[k]));
        WEFT_TRY(weft_device_alloc(c->d, WEFT_SPACE_PINNED, bytes, &c->host[k]));
        WEFT_TRY(weft_device_alloc(c->d, WEFT_SPACE_DEVICE, bytes, &c->device[k]));
        memset(c->host[k].address, 0, (size_t)bytes);
    }
    return WEFT_OK;
}

static void close_copier(copier *c)
{
    for (int k = 0; k < 2; k++) {
        weft_device_free(&c->host[k]);
        weft_device_free(&c->device[k]);
        if (c->stream[k].device) c->d->stream_close(&c->stream[k]);
    }
}

/* Out on one stream, in on the other. */
static weft_status copy_both(copier *c)
{
    for (int i = 0; i < COPIES; i++) {
        WEFT_TRY(c->d->copy(c->d, &c->stream[0], &c->host[0], &c->device[0]));
        WEFT_TRY(c->d->copy(c->d, &c->stream[1], &c->device[1], &c->host[1]));
    }
    WEFT_TRY(c->d->finish(&c->stream[0]));
    return c->d->finish(&c->stream[1]);
}

weft_status weft_sweep_host_copy(weft_device *d, int64_t bytes, weft_timing *out)
{
    copier      c    = {.d = d};
    double      best = INFINITY;
    weft_status st   = WEFT_OK;
    WEFT_GO(open_copier(&c, bytes));
    for (int k = 0; k < TRIES; k++) {
        double start = weft_clock_s();
        WEFT_GO(copy_both(&c));
        best = fmin(best, (weft_clock_s() - start) / COPIES);
    }
    *out         = (weft_timing){.link = -1, .work = "host copy", .n_size = 1, .s = best};
    out->size[0] = (double)bytes;
out:
    close_copier(&c);
    return st;
}
