/* Collectives of an MPI, timed as `weft bench comm` times ours.
 *
 *     mpicc.openmpi -O2 bench/micro/comm_mpi.c -o comm_openmpi
 *     mpirun.openmpi -n 2 ./comm_openmpi BYTES SECONDS
 *
 * Prints one line of JSON for each operation.  Before each call every rank rewrites its input
 * (untimed) and all meet, before and after; a call counts as its slowest rank.  bytes: the whole
 * vector, as in weft bench comm. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CALL = 20000,
    MIN_CALL = 5,
    N_OP     = 4
};
static const char *const op_name[N_OP] = {"all_reduce", "reduce_scatter", "all_gather",
                                          "all_to_all"};

static int    rank, world;
static float *in, *out;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double call_once(int op, long count, int turn)
{
    long  n = op == 2 ? count / world : count, part = count / world;
    float x = (float)(turn % 100);
    for (long k = 0; k < n; k++) in[k] = x + (float)(k & 15);
    MPI_Barrier(MPI_COMM_WORLD);
    double t0 = MPI_Wtime();
    switch (op) {
    case 0:
        MPI_Allreduce(MPI_IN_PLACE, in, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case 1:
        MPI_Reduce_scatter_block(in, out, (int)part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case 2:
        MPI_Allgather(in, (int)part, MPI_FLOAT, out, (int)part, MPI_FLOAT,
                      MPI_COMM_WORLD);
        break;
    case 3:
        MPI_Alltoall(in, (int)part, MPI_FLOAT, out, (int)part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    }
    t0 = MPI_Wtime() - t0;
    MPI_Barrier(MPI_COMM_WORLD);
    return t0;
}

static void bench(int op, long bytes, double seconds)
{
    static double mine[MAX_CALL], slowest[MAX_CALL];
    long          count = bytes / 4;
    int           warm  = bytes < 64 << 20 ? 3 : 1;
    for (int i = 0; i < warm; i++) call_once(op, count, i);
    double start = MPI_Wtime();
    for (int i = 0; i < warm; i++) call_once(op, count, i);
    double calls = seconds / ((MPI_Wtime() - start) / warm);
    calls        = calls < MIN_CALL ? MIN_CALL : calls > MAX_CALL ? MAX_CALL : calls;
    MPI_Bcast(&calls, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    int n = (int)calls;
    for (int i = 0; i < n; i++) mine[i] = call_once(op, count, i);
    MPI_Reduce(mine, slowest, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank) return;
    qsort(slowest, (size_t)n, sizeof *slowest, by_value);
    printf("{\"op\": \"%s\", \"bytes\": %ld, \"calls\": %d, \"median_us\": %.3f, "
           "\"best_us\": %.3f}\n",
           op_name[op], bytes, n, 1e6 * slowest[n / 2], 1e6 * slowest[0]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    long   bytes   = argc > 1 ? atol(argv[1]) : 4096;
    double seconds = argc > 2 ? atof(argv[2]) : 0.5;
    in             = aligned_alloc(4096, (size_t)bytes + 4096 - (size_t)bytes % 4096);
    out            = aligned_alloc(4096, (size_t)bytes + 4096 - (size_t)bytes % 4096);
    memset(in, 0, (size_t)bytes);
    memset(out, 0, (size_t)bytes);
    for (int op = 0; op < N_OP; op++) bench(op, bytes, seconds);
    MPI_Finalize();
    return 0;
}
