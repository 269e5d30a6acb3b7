/* A process is killed in its updates; another one ends the step out of the slabs and the journal,
 * with the bits of the undisturbed step.  The instruction is chosen: so many after the first store
 * to a page of state or journal, which cannot be written from the commit point on.  (On x86, where
 * a process can trap after each of its instructions; elsewhere it is that store.) */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "compile/compile.h"
#include "exec/exec.h"
#include "support/files.h"
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
} bench;

/* Where a process is to be killed: `after` instructions after the first store to the page. */
static struct {
    char        *page; /* cannot be written after the commit point; NULL: all can */
    _Atomic long after;
} place;

static char *map_shared(int64_t bytes)
{
    char *p = mmap(NULL, (size_t)(bytes ? bytes : 1), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void open_bench(bench *b, const char *model, const char *optimizer,
                       const char *dtype)
{
    weft_compile_spec s = weft_compile_spec_default(model, 2, 8);
    s.dtype             = dtype;
    s.fusions           = WEFT_FUSION_COPY; /* the update writes the bf16 copy */
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

static void protect(void)
{
    if (place.page) assert_int_equal(mprotect(place.page, PAGE, PROT_READ), 0);
}

static weft_status commit(void *user, int64_t step, int n, const double *value,
                          bool *hold)
{
    (void)user, (void)step, (void)n, (void)value, (void)hold;
    protect();
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
    if (resumes) protect();
    weft_status st = resumes ? weft_exec_resume(e, STEP) : weft_exec_run(e, STEP, 1);
    weft_exec_destroy(e);
    weft_pool_destroy(pool);
    return st;
}

/* Of the thread that it interrupts: an instruction less, or the last one. */
static void trap(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info;
    if (atomic_fetch_sub(&place.after, 1) <= 0) kill(getpid(), SIGKILL);
#if defined(__x86_64__)
    enum {
        TRAP_FLAG = 0x100
    };
    mprotect(place.page, PAGE, PROT_READ | PROT_WRITE);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
#else
    (void)context;
    kill(getpid(), SIGKILL);
#endif
}

/* true: it was killed, as it should be. */
static bool run_child(bench *b, char *page, long after, bool resumes)
{
    struct sigaction traps = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
    int              how;
    pid_t            pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        place.page = page;
        atomic_store(&place.after, after);
        sigaction(SIGSEGV, &traps, NULL);
        sigaction(SIGTRAP, &traps, NULL);
        _exit(run_step(b, resumes) != WEFT_OK);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) ? WTERMSIG(how) == SIGKILL : WEXITSTATUS(how) == 0);
    return WIFSIGNALED(how);
}

static bool is_after(const bench *b)
{
    return !memcmp(b->slab[b->state].address, b->after, (size_t)b->slab[b->state].bytes);
}

static void run_undisturbed(bench *b)
{
    reset_slabs(b);
    assert_ok(run_step(b, false));
    b->after = malloc((size_t)b->slab[b->state].bytes);
    assert_non_null(b->after);
    memcpy(b->after, b->slab[b->state].address, (size_t)b->slab[b->state].bytes);
}

/* Killed at a page, perhaps once more while it is resumed, then ended here. */
static int lose_process(bench *b, char *page, long after, char *again)
{
    reset_slabs(b);
    if (!run_child(b, page, after, false)) {
        assert_true(is_after(b));
        return 0;
    }
    if (again) run_child(b, again, after / 2, true);
    assert_ok(run_step(b, true));
    if (!is_after(b))
        fail_msg("killed %ld instructions after byte %ld: other bits", after,
                 (long)(page - (char *)b->slab[b->state].address));
    assert_ok(run_step(b, true)); /* nothing is left */
    assert_true(is_after(b));
    return 1;
}

/* Within a block and its undo; every third time somewhere in the blocks that follow. */
static long choose_after(uint64_t *random, int k)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (long)((*random >> 33) % (k % 3 ? 120 : 900));
}

static int lose_at_pages(bench *b, char *from, int64_t bytes, int64_t every)
{
    uint64_t random = (uint64_t)every;
    int      n = 0, k = 0;
    for (int64_t at = 0; at + PAGE <= bytes; at += every * PAGE, k++)
        n += lose_process(b, from + at, choose_after(&random, k),
                          k % 2 ? from + (at * 7 / PAGE % (bytes / PAGE)) * PAGE : NULL);
    return n;
}

/* Its first page is written with every instruction. */
static int lose_at_journal(bench *b, int times)
{
    uint64_t random = 1;
    int      n      = 0;
    for (int k = 0; k < times; k++)
        n += lose_process(b, b->journal, choose_after(&random, k),
                          k % 2 ? b->journal : NULL);
    return n;
}

static void a_killed_update_is_ended(void **state)
{
    static const struct {
        const char *optimizer, *dtype;
        int64_t     every;
    } list[] = {{"adamw", "fp32", 251}, {"adamw", "bf16", 331}, {"adam", "fp32", 501},
                {"lamb", "fp32", 501},  {"sgd", "fp32", 167},   {"adagrad", "fp32", 331}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(list); i += TEST_STRIDE(3)) {
        bench b;
        open_bench(&b, "tiny256", list[i].optimizer, list[i].dtype);
        run_undisturbed(&b);
        assert_true(memcmp(b.after, b.before[b.state], (size_t)b.slab[b.state].bytes) !=
                    0);
        int n = lose_at_pages(&b, b.slab[b.state].address, b.slab[b.state].bytes,
                              list[i].every);
        int m = lose_at_journal(&b, 4);
        print_message(
            "%s %s: killed %d times after a store to state, %d to the journal\n",
            list[i].optimizer, list[i].dtype, n, m);
        assert_true(n >= 4 && m == 4);
        close_bench(&b);
    }
}

static const char mixtral[] =
    "{\"model_type\": \"mixtral\", \"architectures\": [\"MixtralForCausalLM\"], "
    "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"num_local_experts\": 4, "
    "\"num_experts_per_tok\": 2, \"vocab_size\": 256, \"max_position_embeddings\": 32, "
    "\"router_bias_update_rate\": 0.05}";

/* Before the k-th instruction after the commit point, when the one before it is done and the
 * journal still says that it is made.  false: there are not so many. */
static bool run_killed_before(bench *b, int k)
{
    char  point[64];
    int   how;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        snprintf(point, sizeof point, "update.instr:kill:nth=%d", k);
        _exit(weft_failpoint_arm(point, NULL) != WEFT_OK ||
              run_step(b, false) != WEFT_OK);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) ? WTERMSIG(how) == SIGKILL : WEXITSTATUS(how) == 0);
    return WIFSIGNALED(how);
}

/* Between any two instructions that follow the commit point, of experts with biases. */
static void biases_are_ended(void **state)
{
    bench b;
    int   n = 0;
    (void)state;
    test_files_write(test_files_path("config.json"), mixtral, sizeof mixtral - 1);
    open_bench(&b, test_files_path("."), "adamw", "fp32");
    run_undisturbed(&b);
    for (bool killed = true; killed;) {
        reset_slabs(&b);
        killed = run_killed_before(&b, ++n);
        if (killed) assert_ok(run_step(&b, true));
        assert_true(is_after(&b));
    }
    print_message("killed before each of %d instructions\n", n - 1);
    assert_true(n > 20);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_update_is_ended),
        with_files(biases_are_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
