/* Collectives of weft over TCP, timed as comm_mpi.c times an MPI's.
 *
 *     WEFT_RANK=r WEFT_WORLD_SIZE=2 WEFT_LOCAL_RANK=0 WEFT_LOCAL_WORLD_SIZE=1 WEFT_RDZV=host:port
 *     WEFT_TOKEN_FILE=f build/bench_comm_tcp BYTES SECONDS [KIND] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "launch/join.h"

enum {
    MAX_CALL = 20000,
    MIN_CALL = 5
};

static weft_comm       *c;
static weft_comm_group *g;
static float           *in, *out;

static void must(weft_status st)
{
    if (st == WEFT_OK) return;
    fprintf(stderr, "comm_tcp: %s\n", weft_error_text());
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double call_once(weft_collective kind, int64_t count, int turn)
{
    int64_t n = kind == WEFT_ALL_GATHER ? count / c->world : count;
    float   x = (float)(turn % 100);
    for (int64_t k = 0; k < n; k++) in[k] = x + (float)(k & 15);
    must(weft_comm_collective(c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
    double t0 = weft_clock_s();
    must(weft_comm_collective(c, g, kind, WEFT_DTYPE_F32, in,
                              kind == WEFT_ALL_REDUCE ? in : out, n));
    return weft_clock_s() - t0;
}

static void bench(weft_collective kind, int64_t bytes, double seconds)
{
    static double mine[MAX_CALL], all[64 * MAX_CALL];
    int64_t       count = bytes / 4;
    for (int i = 0; i < 3; i++) call_once(kind, count, i);
    double start = weft_clock_s();
    for (int i = 0; i < 3; i++) call_once(kind, count, i);
    double calls = seconds / ((weft_clock_s() - start) / 3);
    calls        = calls < MIN_CALL ? MIN_CALL : calls > MAX_CALL ? MAX_CALL : calls;
    must(weft_comm_collective(c, g, WEFT_BROADCAST, WEFT_DTYPE_F64, &calls, &calls, 1));
    int n = (int)calls;
    for (int i = 0; i < n; i++) mine[i] = call_once(kind, count, i);
    must(weft_comm_collective(c, g, WEFT_ALL_GATHER, WEFT_DTYPE_F64, mine, all, n));
    for (int i = 0; i < n; i++)
        for (int r = 0; r < c->world; r++)
            if (all[r * n + i] > mine[i]) mine[i] = all[r * n + i];
    if (c->rank) return;
    qsort(mine, (size_t)n, sizeof *mine, by_value);
    printf("{\"op\": \"%s\", \"bytes\": %lld, \"calls\": %d, \"median_us\": %.3f, "
           "\"best_us\": %.3f}\n",
           weft_collective_name(kind), (long long)bytes, n, 1e6 * mine[n / 2],
           1e6 * mine[0]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int64_t                 bytes   = argc > 1 ? atol(argv[1]) : 4096;
    double                  seconds = argc > 2 ? atof(argv[2]) : 0.5;
    weft_launch_environment p;
    int32_t                 rank[64];
    must(weft_launch_detect(&p));
    must(weft_launch_join(&p, &(weft_launch_join_options){.timeout_s = 60}, &c));
    for (int r = 0; r < c->world && r < 64; r++) rank[r] = r;
    must(weft_comm_open_group(c, c->world, rank, 0, &g));
    in  = calloc(1, (size_t)bytes + 64);
    out = calloc(1, (size_t)bytes + 64);
    for (int k = WEFT_ALL_REDUCE; k <= WEFT_ALL_TO_ALL; k++)
        if (argc < 4 || atoi(argv[3]) == k) bench((weft_collective)k, bytes, seconds);
    weft_comm_destroy(c);
    return 0;
}
