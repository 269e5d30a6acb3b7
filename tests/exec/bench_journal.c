/* What the journal costs a step whose updates are large: processor time with and without it, in
 * turns.
 *
 *     bench_journal [MODEL] [ROUNDS]      gpt2, 9: one rank, batch 1, seq 8, adamw */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "compile/compile.h"
#include "exec/exec.h"

enum {
    MAX_ROUND = 101,
    MAX_SLAB  = 16
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

static char *map_shared(int64_t bytes)
{
    char *p = mmap(NULL, (size_t)(bytes ? bytes : 1), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
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

static double median(const double *x, int n)
{
    double y[MAX_ROUND];
    memcpy(y, x, sizeof *y * (size_t)n);
    qsort(y, (size_t)n, sizeof *y, by_size);
    return y[n / 2];
}

int main(int argc, char **argv)
{
    const char       *model  = argc > 1 ? argv[1] : "gpt2";
    int               rounds = argc > 2 ? atoi(argv[2]) : 9;
    weft_compile_spec spec   = weft_compile_spec_default(model, 1, 8);
    weft_training     t;
    weft_compiled     made           = {0};
    weft_memory       slab[MAX_SLAB] = {{0}};
    double            s[2][MAX_ROUND], more[MAX_ROUND];
    if (rounds < 1 || rounds > MAX_ROUND || weft_compile_training(&spec, &t) != WEFT_OK ||
        weft_compile_program(&t, NULL, 0, &made) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    const weft_program *p = made.program;
    for (int i = 0; i < p->n_slab && i < MAX_SLAB; i++)
        slab[i] = (weft_memory){weft_device_cpu(), WEFT_SPACE_SHARED,
                                map_shared(p->slab[i].bytes), p->slab[i].bytes};
    weft_exec *e[2] = {make_exec(p, slab, NULL),
                       make_exec(p, slab, map_shared(weft_exec_journal_bytes(p, 1)))};
    for (int r = -1; r < rounds; r++) {
        for (int k = 0; k < 2; k++) {
            int    which = k ^ (r & 1);
            double begin = cpu_s();
            if (weft_exec_run(e[which], r + 1, 1) != WEFT_OK) return 1;
            if (r >= 0) s[which][r] = cpu_s() - begin;
        }
        if (r >= 0) more[r] = s[1][r] - s[0][r];
    }
    printf(
        "%s: %lld parameters, processor ms of a step: without %.1f, with a journal %.1f; "
        "difference of pairs %.2f, %.3f ns a parameter\n",
        model, (long long)(p->slab[0].bytes / 12), 1e3 * median(s[0], rounds),
        1e3 * median(s[1], rounds), 1e3 * median(more, rounds),
        1e9 * median(more, rounds) / (double)(p->slab[0].bytes / 12));
    return 0;
}
