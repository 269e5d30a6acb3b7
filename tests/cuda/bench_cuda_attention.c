/* Times the gradient of attention in bf16 on the first GPU, at shapes of models: by each fast row
 * of the table that takes it.  Not a test.
 *
 * WEFT_PLUGINS=build build/bench_cuda_attention
 *
 * Rates count the products of the causal half alone, 2.5 times those of the forward pass. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/status.h"
#include "kernel/kernel.h"
#include "plugin/plugin.h"

typedef struct shape {
    const char *name;
    int64_t     b, s, h, g, e;
    bool        causal, packed;
} shape;

static const shape shapes[] = {
    {"gpt2", 32, 1024, 12, 12, 64, true, true},
    {"llama 1.2B", 8, 2048, 32, 8, 64, true, false},
    {"mixtral-like", 16, 1024, 16, 4, 64, true, false},
    {"gpt 1.3B", 8, 1024, 16, 16, 128, true, true},
    {"llama 8B, s 4096", 2, 4096, 32, 8, 128, true, false},
    {"bert, not causal", 32, 512, 12, 12, 64, false, true},
    {"e 128, s 2048", 4, 2048, 16, 16, 128, true, true},
    {"one sequence", 1, 2048, 12, 12, 64, true, true},
    {"one, 4 key heads", 1, 1024, 16, 4, 64, true, false},
    {"one key head", 1, 2048, 16, 1, 64, true, false},
};

enum {
    N_BLOCK   = 16,
    N_ROW     = 4,
    N_PATTERN = 1 << 20,
    ROUNDS    = 9
};
static const double ROUND_S = 0.02;

static weft_device *device;
static weft_stream  stream;
static weft_memory  block[N_BLOCK];
static int          n_block;

static void fail(void)
{
    fprintf(stderr, "%s\n", weft_error_text());
    exit(1);
}
#define MUST(call)                                                                       \
    do                                                                                   \
        if ((call) != WEFT_OK) fail();                                                   \
    while (0)

/* Memory with numbers between -2 and 2. */
static void *place(int64_t count, int64_t size)
{
    uint16_t *x    = malloc(N_PATTERN * 2);
    uint32_t  seed = 1;
    if (!x || n_block == N_BLOCK) exit(1);
    for (int i = 0; i < N_PATTERN; i++) {
        seed = seed * 1664525 + 1013904223;
        union {
            float    f;
            uint32_t u;
        } v  = {(float)(seed >> 8) / (float)(1 << 22) - 2};
        x[i] = (uint16_t)(v.u >> 16);
    }
    weft_memory *m = &block[n_block++];
    MUST(weft_device_alloc(device, WEFT_SPACE_DEVICE, count * size, m));
    for (int64_t at = 0, n; at < count * size; at += n) {
        n = count * size - at < N_PATTERN * 2 ? count * size - at : N_PATTERN * 2;
        MUST(weft_device_write(m, at, x, n));
    }
    free(x);
    return m->address;
}

/* q, k, v or their gradients. */
static void place_three(const shape *z, weft_view v[3])
{
    const int64_t heads[3] = {z->h, z->g, z->g}, all = z->h + 2 * z->g;
    char         *p = z->packed ? place(z->b * z->s * all * z->e, 2) : NULL;
    for (int i = 0; i < 3; i++) {
        int64_t    n = z->packed ? all : heads[i];
        weft_shape s = weft_shape_make(4, (int64_t[]){z->b, z->s, n, z->e});
        if (!z->packed) p = place(weft_shape_count(&s), 2);
        v[i]            = weft_view_make(p, WEFT_DTYPE_BF16, &s);
        v[i].shape.d[2] = heads[i];
        p += heads[i] * z->e * 2;
    }
}

typedef struct timed {
    const weft_kernel *kernel;
    weft_kernel_call   call;
    weft_kernel_ctx    ctx;
    weft_code          code;
    weft_task          task;
    weft_memory        scratch;
} timed;

static weft_status run(void *arg)
{
    const timed *t = arg;
    return t->kernel->run(&t->call, &t->ctx);
}

/* kernel NULL: the one that a program takes. */
static void open_call(timed *t, const weft_kernel *kernel, weft_arena *a, void *scalars)
{
    t->kernel = kernel;
    if (!kernel) MUST(weft_kernel_find(device->kernels, &t->call, &t->kernel));
    size_t bytes = weft_kernel_scratch(t->kernel, &t->call, 1);
    MUST(weft_device_alloc(device, WEFT_SPACE_DEVICE, (int64_t)bytes + 256, &t->scratch));
    t->ctx = (weft_kernel_ctx){
        .scratch = t->scratch.address, .scalars = scalars, .queue = stream.impl};
    MUST(weft_kernel_prepare(t->kernel, &t->ctx, a, &t->call));
    t->task = (weft_task){.run = run, .arg = t};
    MUST(device->load(device, &t->task, 1, &t->code));
}

static void close_call(timed *t)
{
    device->unload(device, &t->code);
    weft_kernel_release(t->kernel, &t->call);
    weft_device_free(&t->scratch);
}

static double time_runs(timed *t, int n)
{
    double start = weft_clock_s();
    for (int i = 0; i < n; i++) MUST(device->launch(&stream, &t->code));
    MUST(device->finish(&stream));
    return (weft_clock_s() - start) / n;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle of some rounds, each of calls that follow each other. */
static double time_call(timed *t)
{
    double round[ROUNDS];
    time_runs(t, 2);
    int n = (int)(ROUND_S / time_runs(t, 2)) + 1;
    for (int i = 0; i < ROUNDS; i++) round[i] = time_runs(t, n);
    qsort(round, ROUNDS, sizeof round[0], compare);
    return round[ROUNDS / 2];
}

/* The rows that take some calls and this one, in the table's order. */
static int list_rows(const weft_kernel_call *c, const weft_kernel *found[N_ROW])
{
    int n = 0;
    for (int i = 0; weft_kernel_table_at(i); i++) {
        const weft_kernel_table *table = weft_kernel_table_at(i);
        if (strcmp(table->device, device->kernels)) continue;
        for (int k = 0; k < table->n && n < N_ROW; k++) {
            const weft_kernel *row = &table->kernel[k];
            if (row->op == c->op && row->takes && row->takes(c)) found[n++] = row;
        }
    }
    return n;
}

static void time_shape(const shape *z)
{
    weft_arena *a;
    weft_view   in[6], out[3], made[2], three[3];
    weft_attr   attr[2][WEFT_MAX_ATTR];
    int64_t     rows = z->b * z->s * z->h;
    weft_shape  o    = weft_shape_make(4, (int64_t[]){z->b, z->s, z->h, z->e});
    weft_shape  lse  = weft_shape_make(3, (int64_t[]){z->b, z->s, z->h});
    MUST(weft_arena_create(&a));
    place_three(z, three);
    place_three(z, out);
    made[0] = weft_view_make(place(rows * z->e, 2), WEFT_DTYPE_BF16, &o);
    made[1] = weft_view_make(place(rows, 4), WEFT_DTYPE_F32, &lse);
    in[0]   = weft_view_make(place(rows * z->e, 2), WEFT_DTYPE_BF16, &o);
    memcpy(in + 1, three, sizeof three);
    memcpy(in + 4, made, sizeof made);
    void *scalars = place(sizeof(weft_step_scalars), 1);

    const char *words = z->causal ? "causal=1" : "causal=0";
    MUST(weft_op_parse_attr(WEFT_OP_ATTENTION, words, a, attr[0]));
    MUST(weft_op_parse_attr(WEFT_OP_ATTENTION_GRAD, words, a, attr[1]));
    timed forward = {.call = {.op        = WEFT_OP_ATTENTION,
                              .attr      = attr[0],
                              .n_in      = 3,
                              .n_own_in  = 3,
                              .n_out     = 2,
                              .n_own_out = 2,
                              .in        = three,
                              .out       = made}};
    open_call(&forward, NULL, a, scalars);
    time_runs(&forward, 1);
    close_call(&forward);
    timed              t = {.call = {.op        = WEFT_OP_ATTENTION_GRAD,
                                     .attr      = attr[1],
                                     .n_in      = 6,
                                     .n_own_in  = 6,
                                     .n_out     = 3,
                                     .n_own_out = 3,
                                     .in        = in,
                                     .out       = out}};
    const weft_kernel *row[N_ROW];
    int                n_row = list_rows(&t.call, row);
    for (int i = 0; i < n_row; i++) {
        timed now = t;
        open_call(&now, row[i], a, scalars);
        double s     = time_call(&now);
        double flops = 10 * (double)rows * (double)(z->s * z->e) * (z->causal ? 0.5 : 1);
        printf("%9.4f ms %6.1f TFLOP/s %8.1f MB  %-18s %s\n", s * 1e3, flops / s / 1e12,
               (double)now.scratch.bytes / 1e6, z->name,
               row[i]->release ? "cuDNN" : "by warpgroups"); /* plans are given back */
        fflush(stdout);
        close_call(&now);
    }
    while (n_block) weft_device_free(&block[--n_block]);
    weft_arena_destroy(a);
}

int main(void)
{
    weft_device_facts facts;
    MUST(weft_plugin_open_device("cuda", 0, &device));
    MUST(device->facts(device, &facts));
    MUST(device->stream_open(device, "bench", &stream));
    printf("%s, %s\n", facts.name, facts.versions);
    for (size_t i = 0; i < WEFT_COUNT(shapes); i++) time_shape(&shapes[i]);
    device->stream_close(&stream);
    weft_plugin_close_device(device);
    return 0;
}
