/* How long messages and collectives take between the ranks of this host, by size and by how many
 * there are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/shm.h"
#include "probe/probe.h"

enum {
    LARGEST   = 4 << 20,
    MOST      = 60, /* calls of a size */
    FIRST_TAG = 1000
};

#define LONGEST_TURN_S 3e-3 /* what is above is others' doing */

static const int64_t all_sizes[] = {64, 4 << 10, 32 << 10, 256 << 10, 1 << 20, LARGEST};

typedef struct prober {
    weft_comm   *c;
    weft_arena  *a;
    void        *in, *out; /* LARGEST, and as much for each rank */
    int          tag, fit;
    int          n;
    weft_timing *timing;
} prober;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int calls_of(int64_t bytes)
{
    int64_t n = (16 << 20) / (bytes + (64 << 10));
    return n < 8 ? 8 : n > MOST ? MOST : (int)n;
}

/* What is sent has just been written, as in a step: it lies in this core's caches, not in the
 * reader's. */
static void touch(void *p, int64_t bytes)
{
    memset(p, 0, (size_t)bytes);
}

static void keep(prober *p, const char *work, int ranks, int64_t bytes, double *s, int n)
{
    qsort(s, (size_t)n, sizeof *s, by_value);
    p->timing[p->n++] = (weft_timing){.device = -1,
                                      .link   = 0,
                                      .work   = work,
                                      .n      = ranks,
                                      .n_size = 1,
                                      .size   = {(double)bytes},
                                      .s      = s[n / 2]};
}

/* ---- collectives ---- */

/* Elements that a rank calls with so that it gives bytes. */
static weft_status call(prober *p, weft_comm_group *g, weft_collective k, int n,
                        int64_t bytes)
{
    int64_t count = bytes / 4 / n * n;
    if (!count) count = n;
    return weft_comm_collective(p->c, g, k, WEFT_DTYPE_F32, p->in, p->out, count);
}

static weft_status time_kind(prober *p, weft_comm_group *g, weft_collective k, int n)
{
    for (size_t i = 0; i < WEFT_COUNT(all_sizes); i++) {
        double s[MOST];
        int    calls = calls_of(all_sizes[i]);
        for (int m = 0; m < calls; m++) {
            touch(p->in, all_sizes[i]);
            WEFT_TRY(weft_comm_collective(p->c, g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL,
                                          NULL, 0));
            double t0 = weft_clock_s();
            WEFT_TRY(call(p, g, k, n, all_sizes[i]));
            s[m] = weft_clock_s() - t0;
        }
        keep(p, weft_collective_name(k), n, all_sizes[i], s, calls);
    }
    return WEFT_OK;
}

/* ---- meeting while ranks take turns ---- */

/* So many seconds of this thread's own time. */
static void work(double s)
{
    struct timespec t;
    double          start = -1, now;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
        if (start < 0) start = now;
    } while (now - start < s);
}

/* What a meeting of n costs above its time alone, where `busy` ranks work on the cores of fit and
 * meet now and then: who comes last finds the others asleep, or behind somebody who is still at
 * work. */
static weft_status turns(prober *p, weft_comm_group *g, int n, int busy, double *extra)
{
    static const double piece[] = {3e-4, 3e-3};
    static const int    calls[] = {MOST, 20};
    *extra                      = 0;
    for (size_t i = 0; i < WEFT_COUNT(piece); i++) {
        double s[MOST], last;
        WEFT_TRY(call(p, g, WEFT_ALL_REDUCE, n, 4096));
        last = weft_clock_s();
        for (int k = 0; k < calls[i]; k++) {
            work(piece[i]);
            WEFT_TRY(call(p, g, WEFT_ALL_REDUCE, n, 4096));
            double now = weft_clock_s();
            s[k]       = now - last;
            last       = now;
        }
        qsort(s, (size_t)calls[i], sizeof *s, by_value);
        double over = s[calls[i] / 2] - piece[i] * busy / p->fit;
        if (over > 0) *extra += fmin(over, LONGEST_TURN_S) / WEFT_COUNT(piece);
    }
    return WEFT_OK;
}

/* Runs of n ranks, all complete ones at once; the others wait. */
static weft_status time_groups(prober *p, weft_comm_group *all, int n)
{
    static const weft_collective kind[] = {WEFT_ALL_REDUCE, WEFT_REDUCE_SCATTER,
                                           WEFT_ALL_GATHER, WEFT_ALL_TO_ALL,
                                           WEFT_BROADCAST,  WEFT_SHIFT};
    int32_t                      rank[WEFT_PROBE_RANKS];
    weft_comm_group             *g     = NULL;
    int                          first = p->c->rank / n * n;
    bool                         in    = first + n <= p->c->world;
    for (int i = 0; i < n; i++) rank[i] = first + i;
    if (in) WEFT_TRY(weft_comm_open_group(p->c, n, rank, p->tag, &g));
    p->tag++;
    int    from = p->n, busy = p->c->world / n * n;
    double extra = 0;
    for (size_t i = 0; in && i < WEFT_COUNT(kind); i++)
        WEFT_TRY(time_kind(p, g, kind[i], n));
    if (in && busy > p->fit) WEFT_TRY(turns(p, g, n, busy, &extra));
    for (int i = from; i < p->n; i++) p->timing[i].s += extra;
    return weft_comm_collective(p->c, all, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

/* ---- messages ---- */

static weft_status there_and_back(prober *p, weft_comm_channel *to,
                                  weft_comm_channel *from, int64_t bytes, double *s)
{
    touch(p->in, bytes);
    double t0 = weft_clock_s();
    if (p->c->rank % 2 == 0) {
        WEFT_TRY(weft_comm_send(p->c, to, p->in, bytes));
        WEFT_TRY(weft_comm_recv(p->c, from, p->out, bytes));
    } else {
        WEFT_TRY(weft_comm_recv(p->c, from, p->out, bytes));
        WEFT_TRY(weft_comm_send(p->c, to, p->in, bytes));
    }
    *s = (weft_clock_s() - t0) / 2;
    return WEFT_OK;
}

static weft_status time_messages(prober *p)
{
    int                me = p->c->rank, peer = me ^ 1, tag = p->tag;
    weft_comm_channel *to, *from;
    p->tag += 2;
    if (peer >= p->c->world) return WEFT_OK;
    WEFT_TRY(weft_comm_open_channel(p->c, peer, WEFT_COMM_SEND, tag + me % 2, LARGEST, 1,
                                    &to));
    WEFT_TRY(weft_comm_open_channel(p->c, peer, WEFT_COMM_RECV, tag + peer % 2, LARGEST,
                                    1, &from));
    for (size_t i = 0; i < WEFT_COUNT(all_sizes); i++) {
        double s[MOST];
        int    calls = calls_of(all_sizes[i]);
        for (int m = 0; m < calls; m++)
            WEFT_TRY(there_and_back(p, to, from, all_sizes[i], &s[m]));
        keep(p, "send", 0, all_sizes[i], s, calls);
    }
    return WEFT_OK;
}

/* ---- all of it ---- */

/* 2, 3, 4, 8, 16, ..., all. */
static int next_size(int n, int world)
{
    if (n == world) return 0;
    int next = n < 4 ? n + 1 : 2 * n;
    return next < world ? next : world;
}

static weft_status time_all(prober *p)
{
    int32_t          rank[WEFT_PROBE_RANKS];
    weft_comm_group *all;
    for (int i = 0; i < p->c->world; i++) rank[i] = i;
    WEFT_TRY(weft_comm_open_group(p->c, p->c->world, rank, p->tag++, &all));
    WEFT_TRY(time_messages(p));
    for (int n = 2; n; n = next_size(n, p->c->world)) WEFT_TRY(time_groups(p, all, n));
    return WEFT_OK;
}

weft_status weft_probe_links(weft_comm *c, int fit, weft_arena *a, weft_timing **out,
                             int *n)
{
    prober      p  = {.c = c, .a = a, .tag = FIRST_TAG, .fit = fit};
    weft_status st = WEFT_OK;
    *out           = NULL;
    *n             = 0;
    if (c->world < 2) return WEFT_OK;
    if (c->world > WEFT_PROBE_RANKS)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d ranks are more than %d", c->world,
                         WEFT_PROBE_RANKS);
    p.timing = WEFT_ARENA_ARRAY(a, weft_timing, 1024);
    WEFT_GO(weft_arena_status(a));
    WEFT_GO(weft_comm_shm_alloc(c, LARGEST, &p.in));
    WEFT_GO(weft_comm_shm_alloc(c, (int64_t)LARGEST * c->world, &p.out));
    memset(p.in, 0, LARGEST);
    memset(p.out, 0, (size_t)LARGEST * (size_t)c->world);
    WEFT_GO(time_all(&p));
    *out = p.timing;
    *n   = c->rank ? 0 : p.n;
out:
    weft_comm_shm_free(c, p.in);
    weft_comm_shm_free(c, p.out);
    return st;
}
