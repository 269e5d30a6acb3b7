/* A process is killed at a store of its updates; another one ends the step out of the slabs and the
 * journal, with the bits of the undisturbed step.  The store is chosen: a page that cannot be
 * written from the commit point on, of state, work or journal. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compile/compile.h"
#include "exec/exec.h"
#include "support/test.h"

enum {
    STEP     = 3,
    THREADS  = 2,
    MAX_SLAB = 8,
    PAGE     = 4096
};

/* Memory that outlives processes, and the program that works in it. */
typedef struct bench {
    weft_training training;
    weft_compiled made;
    weft_memory   slab[MAX_SLAB];
    char   *before[MAX_SLAB], *after; /* of all slabs; of the state, after the step */
    int     state;                    /* its slab */
    char   *journal;
    int64_t journal_bytes;
    char   *page; /* cannot be written after the commit point; NULL: all can */
} bench;

static char *map_shared(int64_t bytes)
{
    char *p = mmap(NULL, (size_t)(bytes ? bytes : 1), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void open_bench(bench *b, const char *optimizer, const char *model)
{
    weft_compile_spec s = weft_compile_spec_default(model, 2, 8);
    s.micro_batch       = 1;
    s.lanes             = 2;
    s.optimizer.name    = optimizer;
    *b                  = (bench){.state = -1};
    assert_ok(weft_compile_training(&s, &b->training));
    assert_ok(weft_compile_program(&b->training, NULL, 0, &b->made));
    const weft_program *p = b->made.program;
    assert_true(p->n_slab <= MAX_SLAB);
    for (int i = 0; i < p->n_slab; i++) {
        b->slab[i] = (weft_memory){weft_device_cpu(), WEFT_SPACE_SHARED,
                                   map_shared(p->slab[i].bytes), p->slab[i].bytes};
        if (p->slab[i].kind == WEFT_SLAB_STATE) b->state = i;
        b->before[i] = calloc(1, (size_t)p->slab[i].bytes + 1);
        assert_non_null(b->before[i]);
    }
    assert_true(b->state >= 0);
    float *x = (float *)(void *)b->before[b->state];
    for (int64_t k = 0; k < p->slab[b->state].bytes / 4; k++)
        x[k] = (float)((k * 7919) % 1000 + 1) * 1e-4f;
    b->journal_bytes = weft_exec_journal_bytes(p, THREADS);
    b->journal       = map_shared(b->journal_bytes);
}

static void close_bench(bench *b)
{
    for (int i = 0; i < b->made.program->n_slab; i++) {
        munmap(b->slab[i].address, (size_t)b->slab[i].bytes);
        free(b->before[i]);
    }
    munmap(b->journal, (size_t)b->journal_bytes);
    free(b->after);
    weft_compiled_fini(&b->made);
    weft_training_fini(&b->training);
}

static void reset_slabs(bench *b)
{
    for (int i = 0; i < b->made.program->n_slab; i++)
        memcpy(b->slab[i].address, b->before[i], (size_t)b->slab[i].bytes);
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

static void protect(const bench *b)
{
    if (b->page) assert_int_equal(mprotect(b->page, PAGE, PROT_READ), 0);
}

static weft_status commit(void *user, int64_t step, int n, const double *value,
                          bool *hold)
{
    (void)step, (void)n, (void)value, (void)hold;
    protect(user);
    return WEFT_OK;
}

/* The step from its beginning, or the rest of it. */
static weft_status run_step(bench *b, bool resumes)
{
    weft_pool *pool;
    weft_exec *e;
    float      lr = 1e-2f, number = STEP + 1, inv_n = 1.0f / 16;
    WEFT_TRY(weft_pool_create(THREADS, 0, &pool));
    WEFT_TRY(weft_exec_create(b->made.program,
                              &(weft_exec_options){.pool        = pool,
                                                   .slab        = b->slab,
                                                   .seed        = 1,
                                                   .batch       = 2,
                                                   .micro_batch = 1,
                                                   .read        = read_inputs,
                                                   .commit      = commit,
                                                   .user        = b,
                                                   .journal     = b->journal,
                                                   .resumes     = resumes},
                              &e));
    WEFT_TRY(weft_exec_write(e, "lr", 0, NULL, &lr));
    if (weft_program_find(b->made.program, "step"))
        WEFT_TRY(weft_exec_write(e, "step", 0, NULL, &number));
    WEFT_TRY(weft_exec_write(e, "inv_n", 0, NULL, &inv_n));
    if (resumes) protect(b);
    weft_status st = resumes ? weft_exec_resume(e, STEP) : weft_exec_run(e, STEP, 1);
    weft_exec_destroy(e);
    weft_pool_destroy(pool);
    return st;
}

static void die(int sig)
{
    (void)sig;
    kill(getpid(), SIGKILL);
}

/* true: it was killed, as it should be. */
static bool run_child(bench *b, char *page, bool resumes)
{
    int   how;
    pid_t pid = fork();
    assert_true(pid >= 0);
    b->page = page;
    if (!pid) {
        signal(SIGSEGV, die);
        _exit(run_step(b, resumes) != WEFT_OK);
    }
    b->page = NULL;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) ? WTERMSIG(how) == SIGKILL : WEXITSTATUS(how) == 0);
    return WIFSIGNALED(how);
}

static bool is_after(const bench *b)
{
    return !memcmp(b->slab[b->state].address, b->after, (size_t)b->slab[b->state].bytes);
}

/* Killed at a page, perhaps once more while it is resumed, then ended here. */
static int lose_process(bench *b, char *page, char *again)
{
    reset_slabs(b);
    if (!run_child(b, page, false)) {
        assert_true(is_after(b));
        return 0;
    }
    if (again) run_child(b, again, true);
    assert_ok(run_step(b, true));
    if (!is_after(b))
        fail_msg("killed at byte %ld: other bits", (long)(page - b->journal));
    assert_ok(run_step(b, true)); /* nothing is left */
    assert_true(is_after(b));
    return 1;
}

static int lose_at_pages(bench *b, char *from, int64_t bytes, int64_t every)
{
    int n = 0, k = 0;
    for (int64_t at = 0; at + PAGE <= bytes; at += every * PAGE, k++)
        n += lose_process(b, from + at,
                          k % 2 ? from + (at * 7 / PAGE % (bytes / PAGE)) * PAGE : NULL);
    return n;
}

static void a_killed_update_is_ended(void **state)
{
    static const struct {
        const char *optimizer, *model;
        int64_t     every;
    } list[] = {
        {"adamw", "tiny256", 167}, {"lamb", "tiny256", 331}, {"sgd", "tiny256", 97}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(list); i++) {
        bench b;
        open_bench(&b, list[i].optimizer, list[i].model);
        reset_slabs(&b);
        assert_ok(run_step(&b, false));
        b.after = malloc((size_t)b.slab[b.state].bytes);
        assert_non_null(b.after);
        memcpy(b.after, b.slab[b.state].address, (size_t)b.slab[b.state].bytes);
        assert_true(memcmp(b.after, b.before[b.state], (size_t)b.slab[b.state].bytes) !=
                    0);
        int n = lose_at_pages(&b, b.slab[b.state].address, b.slab[b.state].bytes,
                              list[i].every);
        int m = lose_at_pages(&b, b.journal, b.journal_bytes, 7);
        print_message("%s: killed at %d pages of state, %d of the journal\n",
                      list[i].optimizer, n, m);
        assert_true(n >= 4 && m >= 1); /* a thread may get no chunk, and writes no page */
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_update_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
