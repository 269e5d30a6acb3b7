/* The host's optimizer update (offload: optimizer) beside plain loops over memory, in turn in one
 * process: is AdamW at the speed of memory?
 *
 *     cc -O2 -march=native -std=c11 -D_GNU_SOURCE -Iinclude -Isrc/core -Isrc/ir -Isrc/runtime \
 *        -Isrc/compiler -Isrc/planning -Isrc/app bench/micro/host_update.c build/libweft.a -lm \
 *        -lpthread -ldl -o build/bench_host_update
 *     build/bench_host_update [threads [rounds]]
 *
 *     read       sum of an array                                   4 bytes an element
 *     copy       a = b                                             8 (12 with what the store reads)
 *     triad      a = b + s c, as STREAM has it                     12 (16)
 *     in place   p, m, v += g: the bytes of an update, no maths    28
 *     adamw      the host's kernel, with the bf16 copy             30 (32)
 *
 * Bytes are those that the program reads and writes, as STREAM counts them; best of all rounds. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pool.h"
#include "session/sweep.h"

enum {
    N    = 64 << 20, /* elements of an array: all of them are far more than caches hold */
    TASK = 65536,
    N_LOOP = 4
};

typedef struct arrays {
    float *p, *g, *m, *v;
    float  sum[N / TASK];
} arrays;

static void read_part(void *arg, int64_t task, int thread)
{
    arrays *a     = arg;
    float   s[16] = {0};
    (void)thread;
    for (int64_t i = task * TASK; i < (task + 1) * TASK; i += 16)
        for (int k = 0; k < 16; k++) s[k] += a->p[i + k];
    for (int k = 0; k < 16; k++) a->sum[task] += s[k];
}

static void copy_part(void *arg, int64_t task, int thread)
{
    const arrays *a = arg;
    (void)thread;
    for (int64_t i = task * TASK; i < (task + 1) * TASK; i++) a->p[i] = a->g[i];
}

static void triad_part(void *arg, int64_t task, int thread)
{
    const arrays *a = arg;
    (void)thread;
    for (int64_t i = task * TASK; i < (task + 1) * TASK; i++)
        a->p[i] = a->g[i] + 0.5f * a->m[i];
}

static void update_part(void *arg, int64_t task, int thread)
{
    const arrays *a = arg;
    (void)thread;
    float *restrict p = a->p, *restrict m = a->m, *restrict v = a->v;
    const float *restrict g = a->g;
    for (int64_t i = task * TASK; i < (task + 1) * TASK; i++) {
        p[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char  *name;
        weft_pool_fn run;
        double       bytes;
    } loop[N_LOOP]     = {{"read", read_part, 4},
                          {"copy", copy_part, 8},
                          {"triad", triad_part, 12},
                          {"in place", update_part, 28}};
    int        threads = argc > 1 ? atoi(argv[1]) : weft_pool_cores();
    int        rounds  = argc > 2 ? atoi(argv[2]) : 10;
    weft_pool *pool;
    arrays     a;
    double     best[N_LOOP + 1] = {0};
    if (weft_pool_create(threads, 0, &pool) != WEFT_OK) return 1;
    float **all[4] = {&a.p, &a.g, &a.m, &a.v};
    for (int k = 0; k < 4; k++) {
        *all[k] = aligned_alloc(64, (size_t)N * sizeof(float));
        if (!*all[k]) return 1;
        memset(*all[k], 0, (size_t)N * sizeof(float));
    }
    for (int r = 0; r < rounds; r++) {
        weft_timing host;
        for (int k = 0; k < N_LOOP; k++) {
            double start = weft_clock_s();
            weft_pool_run(pool, N / TASK, loop[k].run, &a);
            best[k] = fmax(best[k], loop[k].bytes * N / (weft_clock_s() - start));
        }
        if (weft_sweep_host_update(weft_device_cpu(), pool, N, &host) != WEFT_OK) {
            fprintf(stderr, "%s\n", weft_error_text());
            return 1;
        }
        best[N_LOOP] = fmax(best[N_LOOP], host.size[0] / host.s);
    }
    printf("# %d threads, arrays of %d MiB, GB/s, best of %d rounds\n", threads,
           N / (1 << 18), rounds);
    for (int k = 0; k <= N_LOOP; k++)
        printf("%-9s %7.2f\n", k < N_LOOP ? loop[k].name : "adamw", 1e-9 * best[k]);
    weft_pool_destroy(pool);
    return 0;
}
