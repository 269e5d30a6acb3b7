#include "support/device_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum {
    CANARY        = 0xff, /* not a number in every floating type */
    GAP           = 64,   /* canary bytes between ranges, at least */
    ALIGN         = 64,   /* of a program's buffers */
    SCRATCH_ALIGN = 4096  /* of what a device allocates */
};

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- ranges ---- */

/* The bytes from a view's first element to its last one. */
static device_range cover_view(const weft_view *v)
{
    int64_t low = 0, high = 1, size = weft_dtype_bytes(v->dtype);
    for (int d = 0; d < v->shape.n; d++) {
        int64_t span = (v->shape.d[d] - 1) * v->stride[d];
        if (v->shape.d[d] == 0) return (device_range){.host = v->p};
        if (span < 0)
            low += span;
        else
            high += span;
    }
    return (device_range){.host  = (char *)v->p + low * size,
                          .bytes = (high - low) * size};
}

static bool ranges_overlap(const device_range *a, const device_range *b)
{
    if (!a->bytes || !b->bytes) return a->host == b->host;
    return a->host < b->host + b->bytes && b->host < a->host + a->bytes;
}

/* Joins what overlaps, so that ranges stay apart from each other. */
static void add_range(device_call *c, const weft_view *v)
{
    if (!v->p) return;
    device_range new = cover_view(v);
    for (int i = 0; i < c->n_range;) {
        device_range *r = &c->range[i];
        if (!ranges_overlap(&new, r)) {
            i++;
            continue;
        }
        char *end = new.host + new.bytes, *other = r->host + r->bytes;
        new.host  = new.host < r->host ? new.host : r->host;
        new.bytes = (end > other ? end : other) - new.host;
        *r        = c->range[--c->n_range];
        i         = 0;
    }
    c->range[c->n_range++] = new;
}

static void *find_address(const device_call *c, const weft_view *v)
{
    device_range want = cover_view(v);
    for (int i = 0; v->p && i < c->n_range; i++)
        if (ranges_overlap(&want, &c->range[i]))
            return (char *)c->block.address + c->range[i].offset +
                   ((char *)v->p - c->range[i].host);
    return NULL;
}

/* ---- the block ---- */

/* Ranges at odd multiples of 64, which is all that programs promise. */
static int64_t place_ranges(device_call *c)
{
    int64_t at = GAP;
    for (int i = 0; i < c->n_range; i++) {
        device_range *r    = &c->range[i];
        int64_t       bias = (int64_t)((uintptr_t)r->host % ALIGN);
        at                 = round_up(at, 2 * ALIGN) + ALIGN;
        r->offset          = at + bias;
        at                 = r->offset + r->bytes + GAP;
    }
    c->scalars_at = round_up(at, ALIGN);
    c->scratch_at =
        round_up(c->scalars_at + (int64_t)sizeof(weft_step_scalars) + GAP, SCRATCH_ALIGN);
    return c->scratch_at + c->scratch_bytes + GAP;
}

static const weft_view *place_views(device_call *c, int n, const weft_view *host)
{
    weft_view *v = WEFT_ARENA_ARRAY(c->arena, weft_view, n + 1);
    for (int i = 0; v && i < n; i++) {
        v[i]   = host[i];
        v[i].p = find_address(c, &host[i]);
    }
    return v;
}

static weft_status make_block(device_call *c, const weft_kernel_call *host, int n_thread)
{
    c->range = WEFT_ARENA_ARRAY(c->arena, device_range, host->n_in + host->n_out + 1);
    WEFT_TRY(weft_arena_status(c->arena));
    for (int i = 0; i < host->n_in; i++) add_range(c, &host->in[i]);
    for (int i = 0; i < host->n_out; i++) add_range(c, &host->out[i]);
    c->scratch_bytes = (int64_t)weft_kernel_scratch(c->kernel, host, n_thread);
    int64_t bytes    = place_ranges(c);
    WEFT_TRY(weft_device_alloc(c->device, WEFT_SPACE_DEVICE, bytes, &c->block));
    c->image = malloc((size_t)bytes);
    if (!c->image)
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %lld bytes", (long long)bytes);
    c->call        = *host;
    c->call.in     = place_views(c, host->n_in, host->in);
    c->call.out    = place_views(c, host->n_out, host->out);
    c->ctx.scratch = (char *)c->block.address + c->scratch_at;
    c->ctx.scalars = (void *)((char *)c->block.address + c->scalars_at);
    return weft_arena_status(c->arena);
}

static void fill_image(device_call *c, const weft_step_scalars *scalars)
{
    memset(c->image, CANARY, (size_t)c->block.bytes);
    for (int i = 0; i < c->n_range; i++)
        if (c->range[i].bytes)
            memcpy(c->image + c->range[i].offset, c->range[i].host,
                   (size_t)c->range[i].bytes);
    memcpy(c->image + c->scalars_at, scalars, sizeof *scalars);
}

/* Copies ranges back and sets every byte that may have changed to CANARY, so that all of the
 * image is CANARY afterwards. */
static weft_status check_image(device_call *c, const weft_step_scalars *scalars)
{
    const char *op = weft_op_get(c->call.op)->name;
    if (memcmp(c->image + c->scalars_at, scalars, sizeof *scalars) != 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s wrote to the scalars of the step", op);
    memset(c->image + c->scalars_at, CANARY, sizeof *scalars);
    memset(c->image + c->scratch_at, CANARY, (size_t)c->scratch_bytes);
    for (int i = 0; i < c->n_range; i++) {
        if (!c->range[i].bytes) continue;
        memcpy(c->range[i].host, c->image + c->range[i].offset,
               (size_t)c->range[i].bytes);
        memset(c->image + c->range[i].offset, CANARY, (size_t)c->range[i].bytes);
    }
    if (!memcmp(c->image, c->image + 1, (size_t)c->block.bytes - 1)) return WEFT_OK;
    int64_t at = 0;
    while ((unsigned char)c->image[at] == CANARY) at++;
    return WEFT_FAIL(
        WEFT_ERR_INTERNAL,
        "%s wrote to byte %lld of its block, outside of operands, results and "
        "scratch (%lld bytes at %lld)",
        op, (long long)at, (long long)c->scratch_bytes, (long long)c->scratch_at);
}

/* ---- the call ---- */

static weft_status run_task(void *arg)
{
    device_call *c = arg;
    return c->kernel->run(&c->call, &c->ctx);
}

static weft_status open_call(device_call *c, const weft_kernel_call *host)
{
    int n_thread = c->ctx.pool ? weft_pool_threads(c->ctx.pool) : 1;
    WEFT_TRY(weft_arena_create(&c->arena));
    if (!c->kernel) WEFT_TRY(weft_kernel_find(c->device->kernels, host, &c->kernel));
    WEFT_TRY(c->device->stream_open(c->device, "test", &c->stream));
    c->ctx.queue = c->stream.impl;
    WEFT_TRY(make_block(c, host, n_thread));
    WEFT_TRY(weft_kernel_prepare(c->kernel, &c->ctx, c->arena, &c->call));
    c->task = (weft_task){.run = run_task, .arg = c};
    return c->device->load(c->device, &c->task, 1, &c->code);
}

weft_status device_call_open(device_call *c, weft_device *device,
                             const weft_kernel *kernel, const weft_kernel_call *call,
                             weft_pool *pool)
{
    *c = (device_call){.device = device, .kernel = kernel, .ctx = {.pool = pool}};
    weft_status st = open_call(c, call);
    if (st != WEFT_OK) device_call_close(c);
    return st;
}

weft_status device_call_launch(device_call *c)
{
    WEFT_TRY(c->device->launch(&c->stream, &c->code));
    return c->device->finish(&c->stream);
}

weft_status device_call_run(device_call *c, const weft_step_scalars *scalars)
{
    fill_image(c, scalars);
    WEFT_TRY(weft_device_write(&c->block, 0, c->image, c->block.bytes));
    WEFT_TRY(device_call_launch(c));
    WEFT_TRY(weft_device_read(c->image, &c->block, 0, c->block.bytes));
    return check_image(c, scalars);
}

void device_call_close(device_call *c)
{
    if (c->code.n) c->device->unload(c->device, &c->code);
    if (c->kernel) weft_kernel_release(c->kernel, &c->call);
    if (c->stream.device) c->device->stream_close(&c->stream);
    weft_device_free(&c->block);
    weft_arena_destroy(c->arena);
    free(c->image);
    *c = (device_call){0};
}
