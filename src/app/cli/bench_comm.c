/* weft bench comm: how fast ranks of one host exchange
 *
 * Each rank rewrites its input before each call (untimed: the data starts in its owner's cache),
 * all meet, then each takes the time of its call and meets the others again: with more ranks than
 * processors, who is done would otherwise rewrite while a peer waits to be let on.  A call counts
 * as its slowest rank.  bytes is the whole
 * vector: what all_reduce sums, reduce_scatter divides, all_gather ends up with, all_to_all
 * exchanges. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "comm/shm.h"

static int run(int argc, char **argv);

const weft_cli_command weft_cli_bench_comm = {
    .name  = "bench comm",
    .usage = "[options]",
    .about = "time collectives between ranks of this host",
    .more =
        "in_place: buffers in shared slabs, the result in the input's place; apart: in\n"
        "another buffer; result: one shared result, read in place; private: other "
        "memory,\n"
        "staged.",
    .example = "weft bench comm --ranks 2 --json",
    .run     = run,
};

enum {
    MAX_RANK = 64,
    MAX_CALL = 20000,
    MIN_CALL = 5,
    LARGE    = 64 << 20, /* from here on a call takes long enough to be warm after one */
};

typedef struct form {
    weft_collective kind;
    const char     *name;
    bool            slab, shared, apart;
} form;

static const form all_forms[] = {
    {WEFT_ALL_REDUCE, "in_place", .slab = true},
    {WEFT_ALL_REDUCE, "result", .slab = true, .shared = true},
    {WEFT_ALL_REDUCE, "private", .slab = false},
    {WEFT_REDUCE_SCATTER, "in_place", .slab = true},
    {WEFT_REDUCE_SCATTER, "apart", .slab = true, .apart = true},
    {WEFT_ALL_GATHER, "apart", .slab = true, .apart = true},
    {WEFT_ALL_TO_ALL, "apart", .slab = true, .apart = true},
};

typedef struct settings {
    int64_t     n_rank, min_bytes, max_bytes;
    double      seconds;
    const char *op;
    bool        json, progress;
} settings;

typedef struct bench {
    weft_comm       *c;
    weft_comm_group *g;
    const settings  *s;
    float           *slab_in, *slab_out, *own, *shared;
    double          *call_s, *slowest_s; /* MAX_CALL each; slowest at rank 0 */
    weft_text        text;
    int              n_result;
} bench;

static void rewrite(float *p, int64_t n, int turn)
{
    float x = (float)(turn % 100);
    for (int64_t k = 0; k < n; k++) p[k] = x + (float)(k & 15);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static weft_status meet(bench *b)
{
    return weft_comm_collective(b->c, b->g, WEFT_BARRIER, WEFT_DTYPE_U8, NULL, NULL, 0);
}

/* One timed call. */
static weft_status call_once(bench *b, const form *f, int64_t bytes, int turn, double *s)
{
    int     n     = b->c->world;
    float  *in    = f->slab ? b->slab_in : b->own;
    float  *out   = f->shared ? b->shared : f->apart ? b->slab_out : in;
    int64_t count = bytes / 4;
    if (f->kind == WEFT_REDUCE_SCATTER && !f->apart) out += count / n * b->c->rank;
    if (f->kind == WEFT_ALL_GATHER) count /= n;
    rewrite(in, count, turn + b->c->rank);
    WEFT_TRY(meet(b));
    double t0 = weft_clock_s();
    WEFT_TRY(weft_comm_collective(b->c, b->g, f->kind, WEFT_DTYPE_F32, in, out, count));
    *s = weft_clock_s() - t0;
    return meet(b);
}

/* The slowest rank of each call, at rank 0. */
static weft_status take_slowest(bench *b, int n)
{
    double *all = malloc(sizeof *all * (size_t)(n * b->c->world));
    if (!all) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_status st = weft_comm_collective(b->c, b->g, WEFT_ALL_GATHER, WEFT_DTYPE_F64,
                                          b->call_s, all, n);
    for (int i = 0; i < n; i++) {
        b->slowest_s[i] = 0;
        for (int r = 0; r < b->c->world; r++)
            if (all[r * n + i] > b->slowest_s[i]) b->slowest_s[i] = all[r * n + i];
    }
    free(all);
    return st;
}

static void put_result(bench *b, const form *f, int64_t bytes, int n)
{
    qsort(b->slowest_s, (size_t)n, sizeof(double), by_value);
    double median = b->slowest_s[n / 2], best = b->slowest_s[0];
    if (b->s->progress)
        fprintf(stderr, "\r\033[K%s %s, %lld bytes: %.1f us",
                weft_collective_name(f->kind), f->name, (long long)bytes, 1e6 * median);
    if (b->s->json)
        weft_text_add(&b->text,
                      "%s{\"op\": \"%s\", \"form\": \"%s\", \"bytes\": %lld, \"calls\": "
                      "%d, \"median_us\": %.3f, \"best_us\": %.3f}",
                      b->n_result++ ? ", " : "", weft_collective_name(f->kind), f->name,
                      (long long)bytes, n, 1e6 * median, 1e6 * best);
    else
        weft_text_add(&b->text, "%-15s %-9s %10lld  %12.1f %12.1f us  %7.2f GB/s\n",
                      weft_collective_name(f->kind), f->name, (long long)bytes,
                      1e6 * median, 1e6 * best, 1e-9 * (double)bytes / median);
}

static weft_status time_form(bench *b, const form *f, int64_t bytes)
{
    double one  = 0;
    int    warm = bytes < LARGE ? 3 : 1;
    for (int i = 0; i < warm; i++) WEFT_TRY(call_once(b, f, bytes, i, &one)); /* pages */
    double start = weft_clock_s();
    for (int i = 0; i < warm; i++) WEFT_TRY(call_once(b, f, bytes, i, &one));
    /* how often: rank 0's clock counts */
    double calls = b->s->seconds / ((weft_clock_s() - start) / warm);
    calls        = calls < MIN_CALL ? MIN_CALL : calls > MAX_CALL ? MAX_CALL : calls;
    WEFT_TRY(weft_comm_collective(b->c, b->g, WEFT_BROADCAST, WEFT_DTYPE_F64, &calls,
                                  &calls, 1));
    int n = calls > MAX_CALL ? MAX_CALL : calls > 1 ? (int)calls : 1; /* rank 0's word */
    for (int i = 0; i < n; i++) WEFT_TRY(call_once(b, f, bytes, i, &b->call_s[i]));
    WEFT_TRY(take_slowest(b, n));
    if (!b->c->rank) put_result(b, f, bytes, n);
    return WEFT_OK;
}

static weft_status open_all(bench *b)
{
    int32_t rank[MAX_RANK];
    int64_t at[2] = {0}, bytes = b->s->max_bytes;
    for (int i = 0; i < b->c->world; i++) rank[i] = i;
    WEFT_TRY(weft_comm_open_group(b->c, b->c->world, rank, 0, &b->g));
    WEFT_TRY(weft_comm_shm_alloc(b->c, bytes, (void **)&b->slab_in));
    WEFT_TRY(weft_comm_shm_alloc(b->c, bytes, (void **)&b->slab_out));
    if (!b->c->rank) {
        WEFT_TRY(weft_comm_shm_alloc(b->c, bytes, (void **)&b->shared));
        at[0] = weft_comm_shm_find(b->c, b->shared, &at[1]);
    }
    WEFT_TRY(weft_comm_collective(b->c, b->g, WEFT_BROADCAST, WEFT_DTYPE_I64, at, at, 2));
    b->shared    = weft_comm_shm_at(b->c, (int)at[0], at[1]);
    b->own       = malloc((size_t)bytes);
    b->call_s    = malloc(sizeof(double) * MAX_CALL);
    b->slowest_s = malloc(sizeof(double) * MAX_CALL);
    return b->own && b->call_s && b->slowest_s ? WEFT_OK
                                               : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

static weft_status time_all(bench *b)
{
    WEFT_TRY(open_all(b));
    if (b->s->json)
        weft_text_add(&b->text, "{\"ranks\": %d, \"transport\": \"shm\", \"results\": [",
                      b->c->world);
    for (size_t i = 0; i < WEFT_COUNT(all_forms); i++) {
        const char *name = weft_collective_name(all_forms[i].kind);
        if (b->s->op && strcmp(b->s->op, name) != 0) continue;
        for (int64_t bytes = b->s->min_bytes; bytes <= b->s->max_bytes; bytes *= 2) {
            int64_t k = bytes >> 10; /* 4 KB, 64 KB, 1 MB, 16 MB, 64 MB, 512 MB */
            if (k == 4 || k == 64 || k == 1024 || k == 16384 || k == 65536 || k == 524288)
                WEFT_TRY(time_form(b, &all_forms[i], bytes));
        }
    }
    if (b->s->progress && !b->c->rank) fprintf(stderr, "\r\033[K");
    if (b->s->json) weft_text_add(&b->text, "]}");
    return WEFT_OK;
}

static void pin(int r, int n)
{
    cpu_set_t all, own;
    if (sched_getaffinity(0, sizeof all, &all) || n > CPU_COUNT(&all)) return;
    CPU_ZERO(&own);
    for (size_t i = 0, k = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && (int)k++ == r) CPU_SET(i, &own);
    sched_setaffinity(0, sizeof own, &own);
}

static int be_rank(const settings *s, const weft_comm_shm *w, int r)
{
    const weft_cli_command *c = &weft_cli_bench_comm;
    bench                   b = {.s = s};
    pin(r, (int)s->n_rank);
    weft_status st = weft_comm_shm_join(weft_comm_shm_fd(w), r, 120, &b.c);
    if (st == WEFT_OK) st = time_all(&b);
    int code = st == WEFT_OK ? 0 : weft_cli_fail(c, st);
    if (st == WEFT_OK && !r) code = weft_cli_put(c, &b.text, NULL);
    weft_comm_destroy(b.c);
    free(b.own);
    free(b.call_s);
    free(b.slowest_s);
    return code;
}

static bool is_timed(const char *op)
{
    for (size_t i = 0; i < WEFT_COUNT(all_forms); i++)
        if (!strcmp(op, weft_collective_name(all_forms[i].kind))) return true;
    return false;
}

static int run(int argc, char **argv)
{
    const weft_cli_command *c = &weft_cli_bench_comm;
    settings s = {.n_rank = 2, .min_bytes = 4096, .max_bytes = 512 << 20, .seconds = 0.5};
    weft_comm_shm        *w;
    int                   n_word, code, how;
    const weft_cli_option option[] = {
        {"ranks", 0, WEFT_CLI_INT, &s.n_rank, "N", "processes (2)"},
        {"op", 0, WEFT_CLI_TEXT, &s.op, "NAME", "only this one, as all_reduce"},
        {"min-bytes", 0, WEFT_CLI_INT, &s.min_bytes, "N", "from this size on (4096)"},
        {"max-bytes", 0, WEFT_CLI_INT, &s.max_bytes, "N", "up to this size (512 MB)"},
        {"seconds", 0, WEFT_CLI_REAL, &s.seconds, "S", "for each row (0.5)"},
        {"json", 0, WEFT_CLI_FLAG, &s.json, NULL, "one line of JSON"},
    };
    code = weft_cli_parse(c, option, (int)WEFT_COUNT(option), argc, argv, &n_word);
    if (code >= 0) return code;
    if (n_word) return weft_cli_usage(c, "unexpected '%s'", argv[0]);
    if (s.n_rank < 1 || s.n_rank > MAX_RANK)
        return weft_cli_usage(c, "--ranks: from 1 to %d", MAX_RANK);
    if (s.min_bytes < 1024 || s.max_bytes < s.min_bytes ||
        s.min_bytes & (s.min_bytes - 1))
        return weft_cli_usage(c,
                              "--min-bytes is a power of two from 1024 on, --max-bytes "
                              "no less");
    if (s.op && !is_timed(s.op))
        return weft_cli_usage(c, "--op: '%s' is none of the collectives", s.op);
    s.progress     = isatty(STDERR_FILENO) != 0;
    weft_status st = weft_comm_shm_create((int)s.n_rank, &w);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    fflush(NULL);
    pid_t pid[MAX_RANK];
    for (int r = 0; r < (int)s.n_rank; r++) {
        pid[r] = fork();
        if (!pid[r]) _exit(be_rank(&s, w, r));
        if (pid[r] < 0) weft_comm_shm_report(w, r, "fork failed");
    }
    for (int r = 0; r < (int)s.n_rank; r++) {
        if (pid[r] < 0 || waitpid(pid[r], &how, 0) < 0 || how) code = WEFT_EXIT_FAILED;
    }
    weft_comm_shm_destroy(w);
    return code < 0 ? WEFT_EXIT_OK : code;
}
