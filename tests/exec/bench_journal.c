/* What memory that outlives the process and a journal in it cost a step whose updates are large:
 * processor time with the executor's own memory, with slabs in shared memory, and with a journal
 * too, in turns.  The parts of a pair are alike but for that.
 *
 *     bench_journal [MODEL] [ROUNDS]      gpt2, 9: one rank, batch 1, seq 8, adamw
 *
 * Of differences the median, with the second least and second most (the least and most of fewer
 * than five). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "compile/compile.h"
#include "exec/exec.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* linux 6.1 */
#endif

enum {
    MAX_ROUND = 101,
    MAX_SLAB  = 16,
    HUGE      = 2 << 20
};

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static weft_status read_inputs(void *user, int64_t step, int micro, int n,
                               const weft_view *out)
{
    (void)user;
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < weft_shape_count(&out[k].shape); i++)
            ((int32_t *)out[k].p)[i] = (int32_t)((i * 31 + micro * 7 + step) % 200);
    return WEFT_OK;
}

/* With large pages, as those of ranks have (comm/shm_heap.c). */
static char *map_shared(int64_t bytes)
{
    size_t n = ((size_t)bytes + HUGE - 1) / HUGE * HUGE;
    char  *p = mmap(NULL, n + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
    p += (HUGE - (uintptr_t)p % HUGE) % HUGE;
    if (mmap(p, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != p)
        exit(1);
    for (int64_t at = 0; at < bytes; at += HUGE) p[at] = 0;
    (void)madvise(p, n, MADV_COLLAPSE);
    memset(p, 0, (size_t)bytes);
    return p;
}

static weft_exec *make_exec(const weft_program *p, const weft_memory *slab, void *journal)
{
    weft_exec *e;
    float      lr = 1e-3f, step = 1, inv_n = 1.0f / 8;
    if (weft_exec_create(p,
                         &(weft_exec_options){.slab        = slab,
                                              .seed        = 1,
                                              .batch       = 1,
                                              .micro_batch = 1,
                                              .n_thread    = 1,
                                              .read        = read_inputs,
                                              .journal     = journal},
                         &e) != WEFT_OK ||
        weft_exec_write(e, "lr", 0, NULL, &lr) != WEFT_OK ||
        weft_exec_write(e, "step", 0, NULL, &step) != WEFT_OK ||
        weft_exec_write(e, "inv_n", 0, NULL, &inv_n) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        exit(1);
    }
    return e;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct spread {
    double least, median, most;
} spread;

static spread find_spread(const double *x, int n)
{
    double y[MAX_ROUND];
    int    out = n >= 5; /* left out on both sides */
    memcpy(y, x, sizeof *y * (size_t)n);
    qsort(y, (size_t)n, sizeof *y, by_size);
    return (spread){y[out], y[n / 2], y[n - 1 - out]};
}

static void print_difference(const char *what, const double *more, const double *than,
                             int n, int64_t n_parameter)
{
    double d[MAX_ROUND];
    for (int r = 0; r < n; r++) d[r] = 1e3 * (more[r] - than[r]);
    spread s = find_spread(d, n);
    printf("    %s: %+.2f ms (%+.2f to %+.2f), %+.3f ns a parameter\n", what, s.median,
           s.least, s.most, 1e6 * s.median / (double)n_parameter);
}

/* How slabs are kept. */
enum {
    OWN,
    SHARED,
    JOURNALED,
    N_KIND
};

int main(int argc, char **argv)
{
    const char       *model  = argc > 1 ? argv[1] : "gpt2";
    int               rounds = argc > 2 ? atoi(argv[2]) : 9;
    weft_compile_spec spec   = weft_compile_spec_default(model, 1, 8);
    weft_training     t;
    weft_compiled     made           = {0};
    weft_memory       slab[MAX_SLAB] = {{0}}, own[MAX_SLAB] = {{0}};
    double            s[N_KIND][MAX_ROUND];
    if (rounds < 1 || rounds > MAX_ROUND || weft_compile_training(&spec, &t) != WEFT_OK ||
        weft_compile_program(&t, NULL, 0, &made) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    const weft_program *p = made.program;
    for (int i = 0; i < p->n_slab && i < MAX_SLAB; i++) {
        slab[i] = (weft_memory){weft_device_cpu(), WEFT_SPACE_SHARED,
                                map_shared(p->slab[i].bytes), p->slab[i].bytes};
        if (weft_device_alloc(weft_device_cpu(), WEFT_SPACE_DEVICE, p->slab[i].bytes,
                              &own[i]) != WEFT_OK)
            return 1;
        memset(own[i].address, 0, (size_t)own[i].bytes);
    }
    weft_exec *e[N_KIND] = {
        make_exec(p, own, NULL), make_exec(p, slab, NULL),
        make_exec(p, slab, map_shared(weft_exec_journal_bytes(p, 1)))};
    for (int r = -1; r < rounds; r++)
        for (int k = 0; k < N_KIND; k++) {
            int    kind  = (k + r + 1) % N_KIND;
            double begin = cpu_s();
            if (weft_exec_run(e[kind], r + 1, 1) != WEFT_OK) return 1;
            if (r >= 0) s[kind][r] = cpu_s() - begin;
        }
    int64_t n = p->slab[0].bytes / 12;
    printf("%s: %lld parameters, processor ms of a step: own memory %.1f, shared %.1f, "
           "with a "
           "journal %.1f; differences of pairs:\n",
           model, (long long)n, 1e3 * find_spread(s[OWN], rounds).median,
           1e3 * find_spread(s[SHARED], rounds).median,
           1e3 * find_spread(s[JOURNALED], rounds).median);
    print_difference("shared memory", s[SHARED], s[OWN], rounds, n);
    print_difference("journal", s[JOURNALED], s[SHARED], rounds, n);
    return 0;
}
