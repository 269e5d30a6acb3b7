/* What ranks of a host cost each other: the same work, done by 1, 2, ... of them at once; and by
 * how much the slowest of them is behind, since a step waits for it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernel/gemm.h"
#include "probe/probe.h"

enum {
    SIDE    = 256,
    CELL    = 1 << 20, /* floats that are streamed through */
    N_ROUND = 5,
    N_SWAY  = 15 /* more rounds for what chance has a hand in */
};

#define LASTS_S   0.06
#define MOST_SWAY 1.4 /* beyond it the machine has other work */

typedef struct load {
    weft_pool *pool;
    float     *a, *b, *c, *x;
    void      *scratch;
    weft_gemm  g;
} load;

static void halve(void *arg, int64_t task, int thread)
{
    float *x = (float *)arg + task * (CELL / 16);
    (void)thread;
    for (int i = 0; i < CELL / 16; i++) x[i] = 0.5f * x[i];
}

static void work_once(load *l)
{
    for (int i = 0; i < 8; i++) weft_gemm_run(&l->g, l->pool, l->scratch);
    weft_pool_run(l->pool, 16, halve, l->x);
}

/* Seconds of one turn while this and others work for a while. */
static double work(load *l)
{
    int    n     = 0;
    double start = weft_clock_s(), now = start;
    for (; now - start < LASTS_S; now = weft_clock_s(), n++) work_once(l);
    return (now - start) / n;
}

typedef struct turn {
    double mean, most; /* over the ranks at work, seconds */
} turn;

/* A turn with the first k ranks at work. */
static weft_status time_ranks(weft_comm *c, weft_comm_group *all, load *l, int k, turn *t)
{
    double mine = 0, each[WEFT_PROBE_RANKS];
    WEFT_TRY(weft_comm_collective(c, all, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0));
    if (c->rank < k) mine = work(l);
    WEFT_TRY(
        weft_comm_collective(c, all, WEFT_ALL_GATHER, WEFT_DTYPE_F64, &mine, each, 1));
    *t = (turn){0};
    for (int i = 0; i < k; i++) {
        t->mean += each[i] / k;
        t->most = fmax(t->most, each[i]);
    }
    return WEFT_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

/* Round by round, so that a machine that changes its pace does so for all; the median of the
 * rounds. */
static weft_status time_rounds(weft_comm *c, weft_comm_group *all, load *l, int fit,
                               double *oversubscription)
{
    turn   t[N_ROUND][WEFT_PROBE_RANKS];
    double of[N_ROUND];
    for (int i = 0; i < N_ROUND; i++)
        for (int k = 0; k < c->world; k++)
            WEFT_TRY(time_ranks(c, all, l, k + 1, &t[i][k]));
    for (int k = 0; k < c->world; k++) {
        for (int i = 0; i < N_ROUND; i++) of[i] = t[i][k].mean / t[i][fit - 1].mean;
        oversubscription[k] = median(of, N_ROUND);
        /* more ranks make none faster, and cores do no more than they can: what says so is noise */
        oversubscription[k] = k < fit
                                  ? fmin(oversubscription[k], 1)
                                  : fmax(oversubscription[k],
                                         fmax(oversubscription[k - 1], (k + 1.0) / fit));
    }
    return WEFT_OK;
}

/* How far the slowest of those with cores of their own is behind the mean. */
static weft_status time_slowest(weft_comm *c, weft_comm_group *all, load *l, int fit,
                                double *sway)
{
    double of[N_SWAY];
    turn   t;
    for (int i = 0; i < N_SWAY; i++) {
        WEFT_TRY(time_ranks(c, all, l, fit, &t));
        of[i] = t.most / t.mean;
    }
    *sway = fmin(median(of, N_SWAY), MOST_SWAY);
    return WEFT_OK;
}

weft_status weft_probe_oversubscription(weft_comm *c, weft_pool *pool, int fit,
                                        double *oversubscription)
{
    size_t           side = sizeof(float) * SIDE * SIDE;
    load             l    = {.pool = pool};
    int32_t          rank[WEFT_PROBE_RANKS];
    weft_comm_group *all;
    double           sway = 1;
    weft_status      st   = WEFT_OK;
    l.a                   = aligned_alloc(64, side);
    l.b                   = aligned_alloc(64, side);
    l.c                   = aligned_alloc(64, side);
    l.x                   = aligned_alloc(64, CELL * sizeof(float));
    l.g       = weft_gemm_make(SIDE, SIDE, SIDE, l.a, SIDE, 1, l.b, SIDE, 1, l.c, SIDE);
    l.scratch = aligned_alloc(
        64, (weft_gemm_scratch(&l.g, weft_pool_threads(pool)) + 64) / 64 * 64);
    if (!l.a || !l.b || !l.c || !l.x || !l.scratch)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    memset(l.a, 0, side);
    memset(l.b, 0, side);
    memset(l.x, 0, CELL * sizeof(float));
    for (int i = 0; i < c->world; i++) rank[i] = i;
    WEFT_GO(weft_comm_open_group(c, c->world, rank, 990, &all));
    work_once(&l);
    WEFT_GO(time_rounds(c, all, &l, fit, oversubscription));
    WEFT_GO(time_slowest(c, all, &l, fit, &sway));
    for (int k = fit - 1; k < c->world; k++)
        oversubscription[k] = fmax(oversubscription[k], sway);
out:
    free(l.a);
    free(l.b);
    free(l.c);
    free(l.x);
    free(l.scratch);
    return st;
}
