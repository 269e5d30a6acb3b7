/* Times row kernels of a GPU at the shapes of a transformer's step, next to the bytes that they
 * have to move.  Not a test.
 *
 *     build/bench_rows [operator]          a real GPU: the row that weft_kernel_find gives
 *     build/bench_rows small [operator]    few rows, for a driver that only computes
 *
 * Prints milliseconds (median of 20 launches), TB/s and the part of 4.3 TB/s, the copy rate of an
 * H200. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "kernel/kernel.h"
#include "plugin/plugin.h"
#include "support/op_cases.h"

enum {
    LAUNCHES = 20,
    PATTERN  = 1 << 20 /* numbers that operands repeat */
};

static const double copy_Bps = 4.3e12;

/* In texts '@' is the number of rows (samples of 2048 positions: '#'). */
typedef struct bench_case {
    weft_op     op;
    const char *attr, *in;
    int         n_out;
    bool        fused; /* cross_entropy: with its gradient, in place */
} bench_case;

static const bench_case cases[] = {
    {WEFT_OP_CROSS_ENTROPY, "", "bf16[@,50304] i32[@]<50257", 2, true},
    {WEFT_OP_CROSS_ENTROPY, "", "bf16[@,50257] i32[@]<50257", 2, true},
    {WEFT_OP_CROSS_ENTROPY, "", "bf16[#,128256] i32[#]<128000", 2, true},
    {WEFT_OP_CROSS_ENTROPY, "", "bf16[@,50304] i32[@]<50257", 2, false},
    {WEFT_OP_CROSS_ENTROPY_GRAD, "", "bf16[@,50304] i32[@]<50257 f32[@]+ f32[@]", 1,
     false},
    {WEFT_OP_EMBEDDING, "", "bf16[50304,768] i32[@]<50257", 1, false},
    {WEFT_OP_EMBEDDING_GRAD, "rows=50304 dtype=f32", "bf16[@,768] i32[@]<50257", 1,
     false},
    {WEFT_OP_EMBEDDING_GRAD, "rows=2 dtype=f32", "bf16[@,768] i32[@]<2", 1, false},
    {WEFT_OP_ROTARY, "", "bf16[8,#,32,64]", 1, false},
    {WEFT_OP_ROTARY, "", "bf16[8,#,8,64]", 1, false},
    {WEFT_OP_LAYER_NORM, "", "bf16[@,768] bf16[768] bf16[768]", 3, false},
    {WEFT_OP_LAYER_NORM_GRAD, "", "bf16[@,768] bf16[@,768] bf16[768] f32[@] f32[@]+", 3,
     false},
    {WEFT_OP_RMS_NORM, "", "bf16[@,2048] bf16[2048]", 2, false},
    {WEFT_OP_RMS_NORM_GRAD, "", "bf16[@,2048] bf16[@,2048] bf16[2048] f32[@]+", 2, false},
    {WEFT_OP_GELU_GRAD, "", "bf16[@,3072] bf16[@,3072]", 1, false},
    {WEFT_OP_ADD, "", "bf16[@,768] bf16[@,768]", 1, false},
    {WEFT_OP_REDUCE, "axes=[0] dtype=f32", "bf16[@,2304]", 1, false},
    {WEFT_OP_ADAMW, "",
     "f32[124439808] f32[124439808] f32[124439808] f32[124439808]+ f32[]=0.001 f32[]=1 "
     "f32[]=3",
     3, false},
    {WEFT_OP_SUMSQ, "", "f32[50304,768]", 1, false},
    {WEFT_OP_ROUTE, "k=2", "bf16[@,8]", 2, false},
    {WEFT_OP_DISPATCH, "experts=8", "bf16[@,1024] i32[@,2]!8", 3, false},
};

typedef struct bench_run {
    weft_device *device;
    weft_arena  *arena;
    const char  *rows, *positions; /* what '@' and '#' stand for */
    float       *pattern;
    weft_stream  stream;
    weft_event   event;
} bench_run;

/* One call in device memory. */
typedef struct bench_call {
    bench_run         *run;
    weft_memory        memory[16];
    int                n_memory;
    weft_view          in[8], out[8];
    weft_kernel_post   post;
    weft_kernel_call   call;
    weft_kernel_ctx    ctx;
    const weft_kernel *kernel;
    int64_t            bytes; /* read and written, at least */
} bench_call;

static char *spell(bench_run *r, const char *text)
{
    char *out = weft_arena_alloc(r->arena, strlen(text) * 8 + 1), *to = out;
    for (; *text; text++) {
        const char *add = *text == '@' ? r->rows : *text == '#' ? r->positions : NULL;
        if (add)
            to = stpcpy(to, add);
        else
            *to++ = *text;
    }
    return out;
}

static weft_status allocate(bench_call *b, int64_t bytes, void **out)
{
    weft_memory *m = &b->memory[b->n_memory];
    WEFT_TRY(weft_device_alloc(b->run->device, WEFT_SPACE_DEVICE, bytes, m));
    b->n_memory++;
    *out = m->address;
    return WEFT_OK;
}

static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)(u >> 16);
}

/* Numbers of the pattern over and over; integers as the case says. */
static weft_status write_operand(bench_call *b, const weft_test_case *c,
                                 const weft_op_use *u, int k, const weft_memory *m)
{
    int64_t n = weft_shape_count(&u->in[k].shape);
    if (u->in[k].dtype == WEFT_DTYPE_I32 || n <= 16) {
        double  *x   = WEFT_ARENA_ARRAY(b->run->arena, double, n + 1);
        int32_t *ids = WEFT_ARENA_ARRAY(b->run->arena, int32_t, n + 1);
        WEFT_TRY(weft_arena_status(b->run->arena));
        weft_test_case_fill(c, u, k, 11, x);
        for (int64_t i = 0; i < n; i++) {
            float f = (float)x[i];
            ids[i]  = (int32_t)x[i];
            if (u->in[k].dtype == WEFT_DTYPE_F32) memcpy(&ids[i], &f, sizeof f);
        }
        return weft_device_write(m, 0, ids, n * 4);
    }
    uint16_t   *half = WEFT_ARENA_ARRAY(b->run->arena, uint16_t, PATTERN);
    bool        wide = u->in[k].dtype == WEFT_DTYPE_F32;
    const void *from = wide ? (const void *)b->run->pattern : half;
    int64_t     size = wide ? 4 : 2;
    WEFT_TRY(weft_arena_status(b->run->arena));
    for (int i = 0; i < PATTERN; i++) half[i] = to_bf16(b->run->pattern[i]);
    for (int64_t at = 0; at < n; at += PATTERN) {
        int64_t some = n - at < PATTERN ? n - at : PATTERN;
        WEFT_TRY(weft_device_write(m, at * size, from, some * size));
    }
    return WEFT_OK;
}

static weft_status make_view(bench_call *b, const weft_type *t, weft_view *out)
{
    void   *p;
    int64_t bytes = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
    WEFT_TRY(allocate(b, bytes, &p));
    *out = weft_view_make(p, t->dtype, &t->shape);
    b->bytes += bytes;
    return WEFT_OK;
}

/* The gradient goes where the logits were. */
static weft_status add_gradient(bench_call *b)
{
    static const weft_attr none[WEFT_MAX_ATTR];
    weft_type              dloss = {WEFT_DTYPE_F32, b->in[1].shape};
    WEFT_TRY(make_view(b, &dloss, &b->in[2]));
    b->out[2] = b->in[0];
    b->bytes += weft_shape_count(&b->in[0].shape) * 2;
    b->post        = (weft_kernel_post){WEFT_OP_CROSS_ENTROPY_GRAD, none, 2, 2};
    b->call.n_in   = 3;
    b->call.n_out  = 3;
    b->call.n_post = 1;
    b->call.post   = &b->post;
    return WEFT_OK;
}

static weft_status open_call(bench_call *b, const bench_case *c)
{
    weft_test_case text = {c->op, c->attr, spell(b->run, c->in), c->n_out};
    weft_op_use    u;
    WEFT_TRY(weft_test_case_make(&text, b->run->arena, &u));
    for (int k = 0; k < u.n_in; k++) {
        WEFT_TRY(make_view(b, &u.in[k], &b->in[k]));
        WEFT_TRY(write_operand(b, &text, &u, k, &b->memory[b->n_memory - 1]));
    }
    for (int k = 0; k < u.n_out; k++) WEFT_TRY(make_view(b, &u.out[k], &b->out[k]));
    if (c->op == WEFT_OP_EMBEDDING) /* the rows that are taken, not the table */
        b->bytes = 2 * weft_shape_count(&u.out[0].shape) * 2;
    b->call = (weft_kernel_call){.op        = c->op,
                                 .attr      = u.attr,
                                 .n_in      = u.n_in,
                                 .n_own_in  = u.n_in,
                                 .n_out     = u.n_out,
                                 .n_own_out = u.n_out,
                                 .in        = b->in,
                                 .out       = b->out};
    if (c->fused) WEFT_TRY(add_gradient(b));
    WEFT_TRY(weft_kernel_find(b->run->device->kernels, &b->call, &b->kernel));
    WEFT_TRY(allocate(b, (int64_t)weft_kernel_scratch(b->kernel, &b->call, 1),
                      &b->ctx.scratch));
    b->ctx.queue = b->run->stream.impl;
    return weft_kernel_prepare(b->kernel, &b->ctx, b->run->arena, &b->call);
}

static weft_status run_task(void *arg)
{
    bench_call *b = arg;
    return b->kernel->run(&b->call, &b->ctx);
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static weft_status time_call(bench_call *b, double *seconds)
{
    static int64_t count; /* records so far */
    weft_device   *d    = b->run->device;
    weft_task      task = {.run = run_task, .arg = b};
    weft_code      code;
    double         s[LAUNCHES], before, after;
    WEFT_TRY(d->load(d, &task, 1, &code));
    for (int i = -3; i < LAUNCHES; i++) {
        WEFT_TRY(d->record(&b->run->stream, &b->run->event));
        WEFT_TRY(d->launch(&b->run->stream, &code));
        WEFT_TRY(d->record(&b->run->stream, &b->run->event));
        WEFT_TRY(d->sync(&b->run->event, ++count, &before));
        WEFT_TRY(d->sync(&b->run->event, ++count, &after));
        if (i >= 0) s[i] = after - before;
    }
    WEFT_TRY(d->finish(&b->run->stream));
    d->unload(d, &code);
    qsort(s, LAUNCHES, sizeof *s, compare_seconds);
    *seconds = s[LAUNCHES / 2];
    return WEFT_OK;
}

static weft_status run_case(bench_run *r, const bench_case *c)
{
    bench_call  b  = {.run = r};
    double      s  = 0;
    weft_status st = weft_arena_create(&r->arena);
    if (st == WEFT_OK) st = open_call(&b, c);
    if (st == WEFT_OK) st = time_call(&b, &s);
    if (st == WEFT_OK)
        printf("%-20s %-52.52s%s %8.3f ms  %5.2f TB/s  %3.0f %%\n",
               weft_op_get(c->op)->name, spell(r, c->in), c->fused ? " +grad" : "      ",
               s * 1e3, (double)b.bytes / s * 1e-12,
               100 * (double)b.bytes / s / copy_Bps);
    else
        printf("%-20s %s\n", weft_op_get(c->op)->name, weft_error_text());
    fflush(stdout);
    if (b.kernel) weft_kernel_release(b.kernel, &b.call);
    for (int i = 0; i < b.n_memory; i++) weft_device_free(&b.memory[i]);
    weft_arena_destroy(r->arena);
    return st;
}

int main(int argc, char **argv)
{
    bool        small = argc > 1 && !strcmp(argv[1], "small");
    const char *only  = argc > 1 + small ? argv[1 + small] : NULL;
    bench_run   r = {.rows = small ? "64" : "32768", .positions = small ? "16" : "2048"};
    int         bad = 0;
    r.pattern       = malloc(sizeof(float) * PATTERN);
    if (!r.pattern) return 1;
    for (int i = 0; i < PATTERN; i++)
        r.pattern[i] = (float)(i % 8191 * 7919 % 8191) / 2048.0f - 2.0f;
    if (weft_plugin_open_device("cuda", 0, &r.device) != WEFT_OK ||
        r.device->stream_open(r.device, "bench", &r.stream) != WEFT_OK ||
        r.device->event_open(r.device, 4, &r.event) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    for (size_t i = 0; i < WEFT_COUNT(cases); i++)
        if (!only || !strcmp(only, weft_op_get(cases[i].op)->name))
            bad += run_case(&r, &cases[i]) != WEFT_OK;
    r.device->event_close(&r.event);
    r.device->stream_close(&r.stream);
    weft_plugin_close_device(r.device);
    free(r.pattern);
    return bad > 0;
}
