/* src/runtime/exec/replay.c: steps as graphs, on the plugin's device over a driver without a GPU.
 * The same program on the CPU, issued and replayed. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_test.h"
#include "plugin/plugin.h"
#include "support/exec.h"

/* Two micro-batches through one slot of staging, dropout by seed, step and sample; w after the
 * commit point. */
#define PROGRAM(before, after)                                                           \
    "program graph rank 0 of 1 micro 2 lanes 2 {\n"                                      \
    "  slab state state 64\n"                                                            \
    "  slab work work 448\n"                                                             \
    "  slab staging staging 256\n"                                                       \
    "  buffer w slab state at 0 bytes 64\n"                                              \
    "  buffer t slab work at 0 bytes 64\n"                                               \
    "  buffer u slab work at 64 bytes 64\n"                                              \
    "  buffer g slab work at 128 bytes 64 slots 2 by lane\n"                             \
    "  buffer loss slab work at 256 bytes 64\n"                                          \
    "  buffer norm slab work at 320 bytes 64\n"                                          \
    "  buffer next slab work at 384 bytes 64\n"                                          \
    "  buffer x slab staging at 0 bytes 64\n"                                            \
    "  buffer lr slab staging at 64 bytes 64\n"                                          \
    "  buffer seen slab staging at 128 bytes 64\n"                                       \
    "  bind param w w f32[8]\n"                                                          \
    "  bind input x x f32[8]\n"                                                          \
    "  bind step_input lr lr f32[1]\n"                                                   \
    "  bind output seen seen f32[8]\n"                                                   \
    "  stream compute compute device 0 threads 0\n"                                      \
    "  actor read on compute { read x -> (x f32[8]) ; }\n"                               \
    "  actor bwd on compute {\n"                                                         \
    "    copy t (x f32[4,2] stride [1,4]) -> (t f32[4,2]) ;\n"                           \
    "    compute u dropout \"p=0.5 id=3\" (t f32[4,2]) -> (u f32[4,2]) ;\n"              \
    "    compute g mul (u f32[8], w f32[8]) -> (g f32[8]) ;\n"                           \
    "  }\n"                                                                              \
    "  actor merge on compute { merge g (g f32[8]) -> (g f32[8]) ; }\n"                  \
    "  actor update on compute {\n"                                                      \
    "    copy loss (g f32[1]) -> (loss f32[1]) ;\n"                                      \
    "    copy norm (g + 1 f32[1]) -> (norm f32[1]) ;\n" before                           \
    "    commit step (loss f32[], norm f32[]) ;\n" after                                 \
    "    compute next mul (g f32[8], lr f32[1]) -> (next f32[8]) ;\n"                    \
    "    compute w add (w f32[8], next f32[8]) -> (w f32[8]) ;\n"                        \
    "  }\n"                                                                              \
    "  list compute { read 0; bwd 0 first; read 1; bwd 1 lane 1 first; merge lane 1; "   \
    "update; }\n"                                                                        \
    "}\n"

#define SEEN "    copy seen (g f32[8]) -> (seen f32[8]) ;\n"

/* An output that is written after the commit point is read when the step has ended; of the other
 * program nothing but updates is left then, and the device is not waited for. */
static const char *const text[] = {PROGRAM("", SEEN), PROGRAM(SEEN, "")};

enum {
    LEAVES = 1 /* the second one */
};

enum {
    N_STEP = 7,
    HELD   = 4
};

/* What a run leaves: of each step the outcome at the commit point, and memory after it. */
typedef struct trail {
    double value[N_STEP][2];
    float  w[N_STEP][8], seen[N_STEP][8];
    int    n_read, n_commit;
    int    n_before[N_STEP]; /* reads before the commit point of each step */
} trail;

static weft_status give_samples(void *user, int64_t step, int micro, int n,
                                const weft_view *out)
{
    trail *t = user;
    t->n_read++;
    for (int k = 0; n == 1 && k < 8; k++)
        ((float *)out[0].p)[k] = 1.0f / (float)(3 + (int)step * 5 + micro * 7 + k);
    return WEFT_OK;
}

static weft_status note_commit(void *user, int64_t step, int n, const double *value,
                               bool *hold)
{
    trail *t = user;
    t->n_commit++;
    t->n_before[step] = t->n_read;
    for (int k = 0; k < n; k++) t->value[step][k] = value[k];
    *hold = step == HELD;
    return WEFT_OK;
}

/* window: steps a run. */
static void run_steps(weft_device *d, int which, int window, trail *t)
{
    weft_program     *p = NULL;
    weft_exec        *e = NULL;
    float             w[8], lr;
    weft_exec_options o = {.device      = {d},
                           .read        = give_samples,
                           .commit      = note_commit,
                           .user        = t,
                           .seed        = 11,
                           .batch       = 4,
                           .micro_batch = 2};
    memset(t, 0, sizeof *t);
    assert_ok(weft_program_parse("graph", text[which], strlen(text[which]), &p));
    assert_ok(weft_program_verify(p));
    assert_ok(test_exec_create(p, &o, &e));
    for (int k = 0; k < 8; k++) w[k] = 1.0f + (float)k;
    assert_ok(weft_exec_write(e, "w", 0, NULL, w));
    for (int step = 0; step < N_STEP; step += window) {
        int n = step + window > N_STEP ? N_STEP - step : window;
        lr    = 0.125f;
        assert_ok(weft_exec_write(e, "lr", 0, NULL, &lr));
        assert_ok(weft_exec_start(e, step, n));
        assert_ok(weft_exec_read(e, "seen", 0, NULL, t->seen[step + n - 1]));
        assert_ok(weft_exec_settle(e));
        if (n == 1 && step == HELD) assert_ok(weft_exec_run(e, step, n)); /* once more */
        assert_ok(weft_exec_read(e, "w", 0, NULL, t->w[step + n - 1]));
    }
    test_exec_destroy(e);
    weft_program_destroy(p);
}

static weft_device *open_gpu(const char *graph)
{
    weft_device *d = NULL;
    setenv("WEFT_CUDA_GRAPH", graph, 1);
    assert_ok(weft_plugin_open_device("cuda", 0, &d));
    assert_true((d->capture_begin != NULL) == (*graph == '1'));
    return d;
}

static void compare_devices(int which)
{
    trail        cpu, plain, graph;
    weft_device *d;
    run_steps(weft_device_cpu(), which, 1, &cpu);
    run_steps(d = open_gpu("0"), which, 1, &plain);
    weft_plugin_close_device(d);
    run_steps(d = open_gpu("1"), which, 1, &graph);
    weft_plugin_close_device(d);
    assert_int_equal(cpu.n_read, 2 * (N_STEP + 1));
    assert_int_equal(cpu.n_commit, N_STEP + 1);
    assert_memory_equal(&plain, &cpu,
                        sizeof cpu); /* these kernels round as the CPU's do */
    /* samples of the next step are read while the device works on this one; a step that runs again
     * reads its own, and has the next one's */
    for (int k = 0; k < N_STEP; k++)
        assert_int_equal(graph.n_before[k], 2 * (k + 2 + (k >= HELD)));
    graph.n_read = cpu.n_read;
    memcpy(graph.n_before, cpu.n_before, sizeof cpu.n_before);
    assert_memory_equal(&graph, &cpu, sizeof cpu);
}

static void replayed_steps_have_the_bits_of_issued_ones(void **state)
{
    (void)state;
    compare_devices(0);
    compare_devices(LEAVES);
}

static void a_held_step_writes_no_state(void **state)
{
    (void)state;
    trail        t;
    weft_device *d = open_gpu("1");
    run_steps(d, LEAVES, 1, &t);
    assert_memory_equal(t.w[HELD], t.w[HELD - 1], sizeof t.w[0]);
    assert_memory_not_equal(t.seen[HELD], t.seen[HELD - 1],
                            sizeof t.seen[0]); /* the rest ran */
    assert_memory_not_equal(t.w[HELD + 1], t.w[HELD], sizeof t.w[0]);
    weft_plugin_close_device(d);
}

static void steps_of_one_run_are_replayed_too(void **state)
{
    (void)state;
    for (int which = 0; which <= LEAVES; which++) {
        trail        one, all;
        weft_device *d = open_gpu("1");
        run_steps(d, which, 1, &one);
        run_steps(d, which, N_STEP, &all);
        assert_memory_equal(all.w[N_STEP - 1], one.w[N_STEP - 1], sizeof one.w[0]);
        assert_memory_equal(all.value, one.value, sizeof one.value);
        weft_plugin_close_device(d);
    }
}

/* ---- a peer that is lost at the commit point ---- */

enum {
    LOST = 3
};

static weft_status lose_peer(void *user, int64_t step, int n, const double *value,
                             bool *hold)
{
    if (step == LOST) return WEFT_FAIL(WEFT_ERR_PEER, "rank 1 is lost");
    return note_commit(user, step, n, value, hold);
}

/* Before the commit point nothing is written; the updates can be made afterwards, by what is in
 * memory, and have the bits of the undisturbed step. */
static void lose_at_commit(weft_device *d, int which, const trail *want)
{
    weft_program      *p = NULL;
    weft_exec         *e = NULL;
    float              w[8], lr = 0.125f;
    trail              t;
    weft_exec_progress x;
    weft_exec_options  o = {.device      = {d},
                            .read        = give_samples,
                            .commit      = lose_peer,
                            .user        = &t,
                            .seed        = 11,
                            .batch       = 4,
                            .micro_batch = 2};
    memset(&t, 0, sizeof t);
    assert_ok(weft_program_parse("graph", text[which], strlen(text[which]), &p));
    assert_ok(test_exec_create(p, &o, &e));
    for (int k = 0; k < 8; k++) w[k] = 1.0f + (float)k;
    assert_ok(weft_exec_write(e, "w", 0, NULL, w));
    assert_ok(weft_exec_write(e, "lr", 0, NULL, &lr));
    for (int step = 0; step < LOST; step++) assert_ok(weft_exec_start(e, step, 1));
    assert_int_equal(weft_exec_get_progress(e).outcome, WEFT_EXEC_RAN);
    assert_int_equal(weft_exec_finish_alone(e), WEFT_ERR_ARG);
    assert_int_equal(weft_exec_run(e, LOST, 1), WEFT_ERR_PEER);
    x = weft_exec_get_progress(e);
    assert_int_equal(x.outcome, WEFT_EXEC_HELD);
    assert_true(x.arrived == LOST && x.passed == LOST - 1);
    assert_ok(weft_exec_read(e, "w", 0, NULL, w));
    assert_memory_equal(w, want->w[LOST - 1], sizeof w);
    assert_ok(weft_exec_finish_alone(e));
    assert_int_equal(weft_exec_get_progress(e).outcome, WEFT_EXEC_ALONE);
    assert_ok(weft_exec_read(e, "w", 0, NULL, w));
    assert_memory_equal(w, want->w[LOST], sizeof w);
    assert_int_equal(weft_exec_finish_alone(e), WEFT_ERR_ARG);
    assert_int_equal(weft_exec_run(e, LOST + 1, 1), WEFT_ERR_PEER);
    test_exec_destroy(e);
    weft_program_destroy(p);
}

static void updates_are_made_without_peers(void **state)
{
    (void)state;
    for (int which = 0; which <= LEAVES; which++) {
        trail        want;
        weft_device *d;
        run_steps(weft_device_cpu(), which, 1, &want);
        lose_at_commit(weft_device_cpu(), which, &want);
        lose_at_commit(d = open_gpu("0"), which, &want);
        weft_plugin_close_device(d);
        lose_at_commit(d = open_gpu("1"), which, &want);
        weft_plugin_close_device(d);
    }
}

/* From the second step on a step is two graphs, and nothing is issued beside them. */
static void a_step_is_two_graphs(void **state)
{
    (void)state;
    if (test_gpu_is_real()) skip(); /* nobody writes down its calls */
    char         line[256];
    int          launches = 0, replays = 0;
    const char  *log = getenv("WEFT_STUB_LOG");
    FILE        *f;
    trail        t;
    weft_device *d = open_gpu("1");
    run_steps(d, 0, 1, &t);
    weft_plugin_close_device(d);
    assert_non_null(log);
    assert_non_null(f = fopen(log, "r"));
    while (fgets(line, sizeof line, f)) {
        if (strstr(line, "cuDevicePrimaryCtxRetain")) launches = replays = 0;
        if (strstr(line, "cuLaunchKernel")) launches++;
        if (strstr(line, "cuGraphLaunch")) replays++;
    }
    fclose(f);
    /* the last device: one step issued, one captured, of the held one the rest issued, twice */
    assert_int_equal(replays, 2 * (N_STEP - 1) - 1 + 1);
    assert_true(launches > 0 && launches < 3 * 12);
}

/* ---- steps that end before their updates ---- */

static weft_status pass(void *user, int64_t step, int n, const double *value, bool *hold)
{
    (void)user, (void)step, (void)n, (void)value;
    *hold = false;
    return WEFT_OK;
}

static void start_steps(weft_device *d, int which, int n, float *w, weft_exec_gap *gap)
{
    weft_program     *p = NULL;
    weft_exec        *e = NULL;
    trail             t = {.n_read = 0};
    weft_exec_options o = {.device      = {d},
                           .read        = give_samples,
                           .commit      = pass,
                           .user        = &t,
                           .seed        = 11,
                           .batch       = 4,
                           .micro_batch = 2,
                           .gaps        = gap != NULL};
    assert_ok(weft_program_parse("graph", text[which], strlen(text[which]), &p));
    assert_ok(test_exec_create(p, &o, &e));
    for (int k = 0; k < 8; k++) w[k] = 1.0f + (float)k;
    assert_ok(weft_exec_write(e, "w", 0, NULL, w));
    for (int step = 0; step < n; step++) {
        float lr = 0.125f / (float)(step + 1), seen[8];
        assert_ok(weft_exec_write(e, "lr", 0, NULL, &lr));
        assert_ok(weft_exec_start(e, step, 1));
        assert_ok(weft_exec_read(e, "seen", 0, NULL, seen));
    }
    assert_ok(weft_exec_settle(e));
    if (gap) weft_exec_get_gaps(e, &gap[0], &gap[1]);
    assert_ok(weft_exec_read(e, "w", 0, NULL, w));
    test_exec_destroy(e);
    weft_program_destroy(p);
}

/* Launches of graphs that follow another one with no wait in between, since the device was
 * opened. */
static int count_unwaited(void)
{
    char  line[256];
    int   n      = 0;
    bool  waited = true;
    FILE *f      = fopen(getenv("WEFT_STUB_LOG"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strstr(line, "cuDevicePrimaryCtxRetain")) n = 0;
        if (strstr(line, "Synchronize")) waited = true;
        if (!strstr(line, "cuGraphLaunch")) continue;
        n += !waited;
        waited = false;
    }
    fclose(f);
    return n;
}

/* The next step's inputs are written, and its graph is launched, while the device has the updates:
 * with the bits of a program whose steps are waited for, and of the CPU's. */
static void a_step_is_launched_before_the_last_ones_updates_are_over(void **state)
{
    (void)state;
    float        cpu[8], waited[8], left[8];
    weft_device *d;
    start_steps(weft_device_cpu(), LEAVES, N_STEP, cpu, NULL);
    start_steps(d = open_gpu("1"), 0, N_STEP, waited, NULL);
    weft_plugin_close_device(d);
    if (!test_gpu_is_real()) assert_int_equal(count_unwaited(), 0);
    start_steps(d = open_gpu("1"), LEAVES, N_STEP, left, NULL);
    weft_plugin_close_device(d);
    /* the first one is issued, the second one captured */
    if (!test_gpu_is_real()) assert_int_equal(count_unwaited(), N_STEP - 2);
    assert_memory_equal(waited, cpu, sizeof cpu);
    assert_memory_equal(left, cpu, sizeof cpu);
}

static void gaps_are_measured(void **state)
{
    (void)state;
    float         w[8], with[8];
    weft_exec_gap gap[2];
    weft_device  *d = open_gpu("1");
    start_steps(d, LEAVES, N_STEP, w, NULL);
    start_steps(d, LEAVES, N_STEP, with, gap);
    weft_plugin_close_device(d);
    assert_memory_equal(with, w, sizeof w);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(gap[k].n, N_STEP - 2 - (k == 1));
        assert_true(gap[k].median_s > -1e-6 && gap[k].median_s <= gap[k].most_s);
        assert_true(gap[k].mean_s <= gap[k].most_s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replayed_steps_have_the_bits_of_issued_ones),
        cmocka_unit_test(a_held_step_writes_no_state),
        cmocka_unit_test(steps_of_one_run_are_replayed_too),
        cmocka_unit_test(updates_are_made_without_peers),
        cmocka_unit_test(a_step_is_two_graphs),
        cmocka_unit_test(a_step_is_launched_before_the_last_ones_updates_are_over),
        cmocka_unit_test(gaps_are_measured),
    };
    char log[] = "/tmp/weft-test-XXXXXX";
    int  fd    = mkstemp(log);
    if (fd < 0) return 1;
    setenv("WEFT_STUB_LOG", log, 1);
    if (!test_gpu_start()) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(log);
    return failed;
}
