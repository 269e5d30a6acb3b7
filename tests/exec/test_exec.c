/* Programs on the cpu: one rank with lanes, two ranks with stages, what goes wrong. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "sim/sim.h"
#include "support/count_alloc.h"
#include "support/exec.h"
#include "support/kernels.h"

static weft_program **load(const char *path, int *n)
{
    FILE *f = fopen(path, "rb");
    char *s = calloc(1, 1 << 16);
    assert_non_null(f);
    size_t         size = fread(s, 1, (1 << 16) - 1, f);
    weft_program **p;
    fclose(f);
    if (weft_program_parse_set(path, s, size, &p, n) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    free(s);
    return p;
}

static weft_program *parse(const char *text)
{
    weft_program *p;
    if (weft_program_parse("text", text, strlen(text), &p) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return p;
}

static weft_exec *create(const weft_program *p, const weft_exec_options *o)
{
    weft_exec *e;
    if (test_exec_create(p, o, &e) != WEFT_OK) fail_msg("%s", weft_error_text());
    return e;
}

static float *bound(weft_exec *e, const char *name, int micro)
{
    weft_view v;
    if (weft_exec_binding(e, name, micro, &v) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return v.p;
}

/* ---- two stages ---- */

enum {
    M = 4,
    B = 2,
    D = 4,
    H = 8
};

static float value(int seed, int i)
{
    return (float)((i * 29 + seed * 13) % 17 - 8) / 16;
}

/* Two SGD steps of the golden program, written out in double. */
static void direct(int n_step, double *w0, double *w1, double *norm)
{
    for (int step = 0; step < n_step; step++) {
        double dw0[D * H] = {0}, dw1[H * D] = {0}, sq = 0;
        for (int m = 0; m < M; m++)
            for (int b = 0; b < B; b++) {
                double h[H] = {0}, y[D] = {0}, dh[H] = {0};
                for (int k = 0; k < H; k++)
                    for (int d = 0; d < D; d++)
                        h[k] += (double)value(m, b * D + d) * w0[d * H + k];
                for (int o = 0; o < D; o++)
                    for (int k = 0; k < H; k++) y[o] += h[k] * w1[k * D + o];
                for (int k = 0; k < H; k++)
                    for (int o = 0; o < D; o++) {
                        dh[k] += y[o] * w1[k * D + o];
                        dw1[k * D + o] += h[k] * y[o];
                    }
                for (int d = 0; d < D; d++)
                    for (int k = 0; k < H; k++)
                        dw0[d * H + k] += (double)value(m, b * D + d) * dh[k];
            }
        for (int i = 0; i < D * H; i++) sq += dw0[i] * dw0[i] + dw1[i] * dw1[i];
        *norm        = sqrt(sq);
        double scale = *norm > 1 ? 1 / *norm : 1;
        for (int i = 0; i < D * H; i++) {
            w0[i] -= 0.1 * scale * dw0[i];
            w1[i] -= 0.1 * scale * dw1[i];
        }
    }
}

typedef struct rank_state {
    weft_exec  *e;
    int         n_step;
    int64_t     allocs;
    weft_status st;
    char        text[256];
} rank_state;

static void *rank_main(void *arg)
{
    rank_state *r = arg;
    r->st         = weft_exec_run(r->e, 0, r->n_step);
    snprintf(r->text, sizeof r->text, "%s", weft_error_text());
    return NULL;
}

static void run_all(rank_state *r, int n)
{
    pthread_t t[8];
    for (int i = 0; i < n; i++) pthread_create(&t[i], NULL, rank_main, &r[i]);
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
}

static void two_stages_train(void **state)
{
    (void)state;
    int              n;
    weft_program   **p = load("tests/golden/two_stage.prog", &n);
    weft_comm_local *world;
    weft_comm       *c[2];
    rank_state       r[2] = {{.n_step = 2}, {.n_step = 2}};
    double           w0[D * H], w1[H * D], norm;
    assert_int_equal(n, 2);
    if (weft_program_verify_all((const weft_program *const *)p, n) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_int_equal(weft_comm_local_create(2, &world), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft_comm_local_join(world, i, 20, &c[i]), WEFT_OK);
        r[i].e = create(p[i], &(weft_exec_options){.comm = c[i], .trace = 100});
        bound(r[i].e, "lr", 0)[0] = 0.1f;
        float *w                  = bound(r[i].e, i ? "w1" : "w0", 0);
        for (int k = 0; k < D * H; k++) w[k] = value(50 + i, k);
    }
    for (int k = 0; k < D * H; k++) {
        w0[k] = (double)value(50, k);
        w1[k] = (double)value(51, k);
    }
    for (int m = 0; m < M; m++)
        for (int k = 0; k < B * D; k++) bound(r[0].e, "x", m)[k] = value(m, k);
    run_all(r, 2);
    for (int i = 0; i < 2; i++)
        if (r[i].st != WEFT_OK) fail_msg("rank %d: %s", i, r[i].text);
    direct(2, w0, w1, &norm);
    for (int i = 0; i < 2; i++) {
        assert_true(fabs((double)bound(r[i].e, "norm", 0)[0] - norm) < 1e-5 * norm);
        for (int k = 0; k < D * H; k++)
            assert_true(fabs((double)bound(r[i].e, i ? "w1" : "w0", 0)[k] -
                             (i ? w1 : w0)[k]) < 1e-5);
    }
    /* messages under way to a rank: two of 64 bytes */
    assert_int_equal(weft_exec_mem(r[1].e).comm_bytes, 128);
    /* every firing of both steps left its slices */
    weft_timeline *t;
    weft_text      json = {0};
    assert_int_equal(weft_exec_timeline(r[0].e, &t), WEFT_OK);
    assert_int_equal(t->n_slice, 2 * (4 + 4 + 4 + 4 + 5));
    assert_int_equal(weft_timeline_json(t, &json), WEFT_OK);
    assert_non_null(strstr(json.s, "\"name\":\"sq_all\",\"cat\":\"all_reduce\""));
    weft_text_fini(&json);
    weft_timeline_destroy(t);
    for (int i = 0; i < 2; i++) {
        test_exec_destroy(r[i].e);
        weft_comm_destroy(c[i]);
    }
    weft_comm_local_destroy(world);
    weft_program_destroy_set(p, n);
}

/* ---- one rank: lanes, reading, slots ---- */

static const char lanes_text[] =
    "program lanes rank 0 of 1 micro 5 lanes 4 {\n"
    "  slab work work 640\n"
    "  slab staging staging 128\n"
    "  buffer g slab work at 0 bytes 64 slots 3 by lane\n"
    "  buffer t slab work at 256 bytes 64\n"
    "  buffer x slab staging at 0 bytes 64\n"
    "  buffer total slab staging at 64 bytes 64\n"
    "  bind input x x f32[4]\n"
    "  bind output total total f32[4]\n"
    "  stream compute compute device 0 threads 0\n"
    "  actor read on compute { read x -> (x f32[4]) ; }\n"
    "  actor bwd on compute {\n"
    "    copy t (x f32[2,2] stride [1,2]) -> (t f32[2,2]) ;\n" /* transposed */
    "    compute g reduce \"axes=[0]\" (t f32[1,4]) -> (g f32[4]) add 1 ;\n"
    "    mark here ;\n"
    "  }\n"
    "  actor merge on compute { merge g (g f32[4]) -> (g f32[4]) ; }\n"
    "  actor end on compute { copy total (g f32[4]) -> (total f32[4]) ; }\n"
    "  list compute {\n"
    "    read 0; bwd 0 first; read 1; bwd 1;\n"       /* lane 0 */
    "    read 2; bwd 2 lane 1 first; merge lane 1;\n" /* lane 1 */
    "    read 3; bwd 3 lane 1 first;\n"               /* lane 2 */
    "    read 4; bwd 4 lane 2 first; merge lane 2; merge lane 1;\n"
    "    end;\n"
    "  }\n"
    "}\n";

static weft_status give_samples(void *user, int64_t step, int micro, int n,
                                const weft_view *out)
{
    int *calls = user;
    ++*calls;
    if (n != 1 || out[0].shape.d[0] != 4)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "other shapes");
    for (int k = 0; k < 4; k++)
        ((float *)out[0].p)[k] = 1.0f / (float)(3 + (int)step * 5 + micro * 7 + k);
    return WEFT_OK;
}

static float sample(int step, int micro, int k)
{
    return 1.0f / (float)(3 + step * 5 + micro * 7 + k);
}

static void lanes_are_summed_as_a_tree(void **state)
{
    (void)state;
    weft_program *p     = parse(lanes_text);
    int           calls = 0;
    if (weft_program_verify(p) != WEFT_OK) fail_msg("%s", weft_error_text());
    weft_exec *e = create(p, &(weft_exec_options){.read = give_samples, .user = &calls});
    for (int step = 0; step < 3; step++) {
        assert_int_equal(weft_exec_run(e, step, 1), WEFT_OK);
        for (int k = 0; k < 4; k++) {
            int   j  = k % 2 * 2 + k / 2; /* the transpose */
            float l0 = sample(step, 0, j) + sample(step, 1, j), l1 = sample(step, 2, j);
            float l2 = sample(step, 3, j), l3 = sample(step, 4, j);
            assert_true(bound(e, "total", 0)[k] == (l0 + l1) + (l2 + l3));
        }
    }
    assert_int_equal(calls, 15);
    assert_int_equal(weft_exec_mem(e).slab_bytes, 768);
    test_exec_destroy(e);
    weft_program_destroy(p);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    weft_program *p     = parse(lanes_text);
    int           calls = 0;
    weft_exec    *e =
        create(p, &(weft_exec_options){.read = give_samples, .user = &calls, .trace = 8});
    assert_int_equal(weft_exec_run(e, 0, 1), WEFT_OK);
    int64_t before = weft_test_allocs();
    assert_int_equal(weft_exec_run(e, 1, 5), WEFT_OK);
    assert_int_equal(weft_test_allocs() - before, 0);
    test_exec_destroy(e);
    weft_program_destroy(p);
}

/* Slabs are the caller's: what is computed is there, and stays when the executor is gone. */
static void slabs_are_the_callers(void **state)
{
    (void)state;
    weft_program            *p     = parse(lanes_text);
    int                      calls = 0;
    static _Alignas(64) char mine[128], work[640];
    weft_memory              slab[2] = {
                     {weft_device_cpu(), WEFT_SPACE_DEVICE, work, sizeof work},
                     {weft_device_cpu(), WEFT_SPACE_PINNED, mine, sizeof mine},
    };
    weft_exec_options o    = {.read = give_samples, .user = &calls, .slab = slab};
    int64_t           held = weft_device_bytes();
    weft_exec        *e;
    assert_int_equal(weft_exec_create(p, &o, &e), WEFT_OK);
    assert_true(weft_device_bytes() - held <= 4096); /* scratch */
    assert_int_equal(weft_exec_run(e, 0, 1), WEFT_OK);
    assert_ptr_equal(bound(e, "total", 0), (float *)(void *)(mine + 64));
    weft_exec_destroy(e);
    assert_int_equal(weft_device_bytes(), held);
    assert_true(((float *)(void *)mine)[16] != 0);

    slab[0].bytes = 600;
    assert_int_equal(weft_exec_create(p, &o, &e), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "slab work: 640 bytes are needed, 600"));
    slab[0] = (weft_memory){weft_device_cpu(), WEFT_SPACE_HOST, work, sizeof work};
    assert_int_equal(weft_exec_create(p, &o, &e), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "kernels do not reach host memory"));
    weft_program_destroy(p);
}

/* A binding of two rows in every second column of a buffer. */
static const char strided_text[] = "program strided rank 0 of 1 micro 1 lanes 1 {\n"
                                   "  slab work work 64\n"
                                   "  buffer b slab work at 0 bytes 64\n"
                                   "  bind param even b f32[2,4] stride [8,2]\n"
                                   "  bind param all b f32[2,8]\n"
                                   "  stream compute compute device 0 threads 0\n"
                                   "  actor none on compute { mark here ; }\n"
                                   "  list compute { none; }\n"
                                   "}\n";

static void bindings_are_read_and_written_by_region(void **state)
{
    (void)state;
    weft_program *p = parse(strided_text);
    weft_exec    *e = create(p, NULL);
    float         x[16], y[16] = {0};
    for (int i = 0; i < 16; i++) x[i] = (float)i;
    assert_int_equal(weft_exec_write(e, "all", 0, NULL, x), WEFT_OK);
    assert_int_equal(weft_exec_read(e, "even", 0, NULL, y), WEFT_OK);
    for (int i = 0; i < 8; i++) assert_true(y[i] == (float)(i / 4 * 8 + i % 4 * 2));
    weft_region r = {{2, {2, 8}}, {1, 3}, {1, 4}};
    assert_int_equal(weft_exec_read(e, "all", 0, &r, y), WEFT_OK);
    for (int i = 0; i < 4; i++) assert_true(y[i] == (float)(11 + i));
    r = (weft_region){{2, {2, 4}}, {0, 1}, {2, 2}};
    assert_int_equal(weft_exec_write(e, "even", 0, &r, (float[]){-1, -2, -3, -4}),
                     WEFT_OK);
    assert_int_equal(weft_exec_read(e, "all", 0, NULL, y), WEFT_OK);
    x[2] = -1, x[4] = -2, x[10] = -3, x[12] = -4;
    assert_memory_equal(x, y, sizeof x);
    r.extent[1] = 4;
    assert_int_equal(weft_exec_read(e, "even", 0, &r, y), WEFT_ERR_ARG);
    assert_int_equal(weft_exec_read(e, "none", 0, NULL, y), WEFT_ERR_ARG);
    test_exec_destroy(e);
    weft_program_destroy(p);
}

/* ---- the commit point ---- */

/* An update of two streams: w after the commit point in its actor, m in an actor that an edge
 * orders after it. */
static const char commit_text[] =
    "program commit rank 0 of 1 micro 1 lanes 1 {\n"
    "  slab state state 128\n"
    "  slab work work 64\n"
    "  slab staging staging 256\n"
    "  buffer w slab state at 0 bytes 64\n"
    "  buffer m slab state at 64 bytes 64\n"
    "  buffer norm slab work at 0 bytes 64\n"
    "  buffer x slab staging at 0 bytes 64\n"
    "  buffer lr slab staging at 64 bytes 64\n"
    "  buffer scale slab staging at 128 bytes 64\n"
    "  buffer seen slab staging at 192 bytes 64\n"
    "  bind param w w f32[4]\n"
    "  bind state m m f32[4]\n"
    "  bind input x x f32[4]\n"
    "  bind step_input lr lr f32[]\n"
    "  bind step_input scale scale f32[]\n"
    "  bind output seen seen f32[4]\n"
    "  stream compute compute device 0 threads 0\n"
    "  stream host host device 0 threads 1\n"
    "  actor read on compute { read x -> (x f32[4]) ; }\n"
    "  actor update on compute {\n"
    "    compute norm sumsq (x f32[4]) -> (norm f64[]) ;\n"
    "    commit step (norm f64[], scale f32[]) ;\n"
    "    compute w_next sgd (w f32[4], x f32[4], lr f32[], scale f32[]) -> (w f32[4]) ;\n"
    "    copy seen (x f32[4]) -> (seen f32[4]) ;\n"
    "  }\n"
    "  actor late on host { copy m (x f32[4]) -> (m f32[4]) ; }\n"
    "  edge update -> late credits 1 per_step\n"
    "  edge late -> read credits 1 per_step delay 1\n"
    "  list compute { read 0; update; }\n"
    "  list host { late; }\n"
    "}\n";

typedef struct commit_log {
    int     n, calls;
    int64_t step[8];
    double  norm[8];
    float   w[8]; /* at the commit point, before the update */
    int64_t hold; /* this step */
    float  *state;
} commit_log;

static weft_status give_numbers(void *user, int64_t step, int micro, int n,
                                const weft_view *out)
{
    return give_samples(&((commit_log *)user)->calls, step, micro, n, out);
}

static weft_status log_commit(void *user, int64_t step, int n, const double *value,
                              bool *hold)
{
    commit_log *log = user;
    if (n != 2 || value[1] != 1 || *hold)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%d values", n);
    log->step[log->n] = step;
    log->norm[log->n] = value[0];
    log->w[log->n++]  = log->state[0];
    *hold             = step == log->hold;
    return step == 7 ? WEFT_FAIL(WEFT_ERR_NUMERIC, "no more") : WEFT_OK;
}

static void a_step_is_held_back_at_the_commit_point(void **state)
{
    (void)state;
    weft_program     *p   = parse(commit_text);
    commit_log        log = {.hold = 1};
    weft_exec_options o   = {.read = give_numbers, .commit = log_commit, .user = &log};
    if (weft_program_verify(p) != WEFT_OK) fail_msg("%s", weft_error_text());
    weft_exec *e = create(p, &o);
    float     *w = bound(e, "w", 0), *m = bound(e, "m", 0), want = 0.5f;
    log.state               = w;
    w[0]                    = want;
    bound(e, "lr", 0)[0]    = 0.25f;
    bound(e, "scale", 0)[0] = 1;
    assert_int_equal(weft_exec_run(e, 0, 1), WEFT_OK);
    want -= 0.25f * sample(0, 0, 0);
    assert_true(w[0] == want && m[0] == sample(0, 0, 0));
    assert_int_equal(weft_exec_run(e, 1, 1), WEFT_OK); /* held: no bit of state changes */
    assert_true(w[0] == want && m[0] == sample(0, 0, 0));
    assert_true(bound(e, "seen", 0)[0] == sample(1, 0, 0)); /* the rest of the step ran */
    log.hold = 3;
    assert_int_equal(weft_exec_run(e, 2, 3),
                     WEFT_OK); /* of three, the one in the middle */
    want -= 0.25f * sample(2, 0, 0);
    want -= 0.25f * sample(4, 0, 0);
    assert_true(w[0] == want && m[0] == sample(4, 0, 0));
    assert_int_equal(log.n, 5);
    assert_true(log.w[0] == 0.5f && log.w[1] == log.w[2] && log.w[3] == log.w[4]);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(log.step[i], i);
        assert_true(log.norm[i] > 0);
    }
    assert_int_equal(weft_exec_run(e, 7, 1), WEFT_ERR_NUMERIC);
    assert_string_equal(weft_error_text(), "no more");
    assert_true(w[0] == want);
    test_exec_destroy(e);
    weft_program_destroy(p);
}

/* ---- streams that stay open ---- */

/* A second device copies what the step leaves, in two firings; only the next step's commit point
 * waits for them. */
static const char open_text[] =
    "program open rank 0 of 1 micro 1 lanes 1 {\n"
    "  slab state state 128\n"
    "  slab work work 128\n"
    "  slab staging staging 64\n"
    "  buffer m slab state at 0 bytes 64\n"
    "  buffer n slab state at 64 bytes 64\n"
    "  buffer norm slab work at 0 bytes 64\n"
    "  buffer g slab work at 64 bytes 64\n"
    "  buffer x slab staging at 0 bytes 64\n"
    "  bind state m m f32[4]\n"
    "  bind state n n f32[4]\n"
    "  bind input x x f32[4]\n"
    "  stream compute compute device 0 threads 0\n"
    "  stream host host device 1 threads 1\n"
    "  actor read on compute { read x -> (x f32[4]) ; }\n"
    "  actor step on compute {\n"
    "    compute norm sumsq (x f32[4]) -> (norm f64[]) ;\n"
    "    copy g (x f32[4]) -> (g f32[4]) ;\n"
    "    commit step (norm f64[]) ;\n"
    "  }\n"
    "  actor first on host { copy m (g f32[4]) -> (m f32[4]) ; }\n"
    "  actor second on host { copy n (m f32[4]) -> (n f32[4]) ; }\n"
    "  edge step -> first credits 1 per_step\n"
    "  edge second -> step credits 1 per_step delay 1\n"
    "  list compute { read 0; step; }\n"
    "  list host { first; second; }\n"
    "}\n";

/* The second device works only while the gate is open. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t  moved;
    bool            open, fails;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static void set_gate(bool open)
{
    pthread_mutex_lock(&gate.lock);
    gate.open = open;
    pthread_cond_broadcast(&gate.moved);
    pthread_mutex_unlock(&gate.lock);
}

static weft_status launch_behind_gate(weft_stream *s, const weft_code *c)
{
    pthread_mutex_lock(&gate.lock);
    while (!gate.open) pthread_cond_wait(&gate.moved, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    return gate.fails ? WEFT_FAIL(WEFT_ERR_NUMERIC, "no update")
                      : weft_device_cpu()->launch(s, c);
}

/* Step 1 reads its samples while the device still has all of step 0 to do. */
typedef struct open_log {
    int         calls;
    weft_status st; /* of step 1's read */
} open_log;

static weft_status read_beside_update(void *user, int64_t step, int micro, int n,
                                      const weft_view *out)
{
    open_log *log = user;
    WEFT_TRY(give_samples(&log->calls, step, micro, n, out));
    if (step == 1) set_gate(true);
    return step == 1 && log->st != WEFT_OK ? WEFT_FAIL(log->st, "no samples") : WEFT_OK;
}

static weft_exec *start_open(const weft_program *p, weft_device *second, open_log *log)
{
    *second        = *weft_device_cpu();
    second->launch = launch_behind_gate;
    gate.fails     = false;
    set_gate(false);
    if (weft_program_verify(p) != WEFT_OK) fail_msg("%s", weft_error_text());
    weft_exec_options o = {
        .device = {weft_device_cpu(), second}, .read = read_beside_update, .user = log};
    weft_exec *e        = create(p, &o);
    bound(e, "m", 0)[0] = 0.5f;
    alarm(60); /* where it waits for the gate */
    assert_int_equal(weft_exec_start(e, 0, 1), WEFT_OK);
    assert_int_equal(weft_exec_get_progress(e).outcome, WEFT_EXEC_RAN);
    assert_true(bound(e, "m", 0)[0] == 0.5f);
    return e;
}

static void a_step_starts_while_updates_go_on(void **state)
{
    (void)state;
    weft_program *p   = parse(open_text);
    open_log      log = {.st = WEFT_OK};
    weft_device   second;
    weft_exec    *e = start_open(p, &second, &log);
    assert_int_equal(weft_exec_start(e, 1, 1), WEFT_OK);
    assert_int_equal(weft_exec_settle(e), WEFT_OK);
    assert_true(bound(e, "n", 0)[0] == sample(1, 0, 0));
    for (int64_t step = 2; step < 50; step++) /* also one that is run again */
        assert_int_equal(weft_exec_start(e, step - (step == 30), 1), WEFT_OK);
    assert_int_equal(weft_exec_run(e, 50, 1), WEFT_OK);
    assert_true(bound(e, "m", 0)[0] == sample(50, 0, 0) &&
                bound(e, "n", 0)[0] == sample(50, 0, 0));
    alarm(0);
    test_exec_destroy(e);
    weft_program_destroy(p);
}

/* A step that fails before its commit point leaves all of the state of the one before, though that
 * one's updates were not made yet. */
static void updates_are_made_when_the_next_step_fails(void **state)
{
    (void)state;
    weft_program *p = parse(open_text);
    for (int k = 0; k < 2; k++) {
        open_log    log = {.st = k ? WEFT_ERR_NUMERIC : WEFT_ERR_PEER};
        weft_device second;
        weft_exec  *e = start_open(p, &second, &log);
        assert_int_equal(weft_exec_start(e, 1, 1), log.st);
        weft_exec_progress x = weft_exec_get_progress(e);
        assert_true(x.outcome == WEFT_EXEC_HELD && x.passed == 0);
        assert_true(bound(e, "m", 0)[0] == sample(0, 0, 0) &&
                    bound(e, "n", 0)[0] == sample(0, 0, 0));
        assert_int_equal(weft_exec_start(e, 1, 1), log.st);
        alarm(0);
        test_exec_destroy(e);
    }
    weft_program_destroy(p);
}

static void an_update_that_fails_tears_the_state(void **state)
{
    (void)state;
    weft_program *p   = parse(open_text);
    open_log      log = {.st = WEFT_OK};
    weft_device   second;
    weft_exec    *e = start_open(p, &second, &log);
    gate.fails      = true;
    set_gate(true);
    assert_int_equal(weft_exec_settle(e), WEFT_ERR_NUMERIC);
    assert_int_equal(weft_exec_get_progress(e).outcome, WEFT_EXEC_TORN);
    assert_int_equal(weft_exec_start(e, 1, 1), WEFT_ERR_NUMERIC);
    alarm(0);
    test_exec_destroy(e);
    weft_program_destroy(p);
}

/* ---- edges ---- */

/* Two streams: a adds x to sum, b copies sum out; b's copy of the step before goes back into a.
 * %d: the device of stream io. */
static const char edges_text[] =
    "program edges rank 0 of 1 micro 3 lanes 1 {\n"
    "  slab state state 256\n"
    "  buffer x slab state at 0 bytes 64\n"
    "  buffer sum slab state at 64 bytes 64\n"
    "  buffer out slab state at 128 bytes 64\n"
    "  buffer last slab state at 192 bytes 64\n"
    "  bind state x x f32[4]\n"
    "  bind state sum sum f32[4]\n"
    "  bind state out out f32[4]\n"
    "  bind state last last f32[4]\n"
    "  stream compute compute device 0 threads 0\n"
    "  stream io io device %d threads 1\n"
    "  actor begin on compute { commit step ; }\n"
    "  actor a on compute { compute sum add (sum f32[4], x f32[4]) -> (sum f32[4]) "
    "seconds 0.002 ; }\n"
    "  actor b on io { copy out (sum f32[4]) -> (out f32[4]) seconds 0.003 ; }\n"
    "  actor c on compute { copy last (out f32[4]) -> (last f32[4]) seconds 0.001 ; }\n"
    "  edge a -> b credits 1\n"
    "  edge b -> c credits 3 per_step delay 1\n"
    "  list compute { begin; c; a 0; a 1; a 2; }\n"
    "  list io { b 0; b 1; b 2; }\n"
    "}\n";

static weft_program *parse_edges(int io_device)
{
    char text[2048];
    snprintf(text, sizeof text, edges_text, io_device);
    weft_program *p = parse(text);
    return p;
}

static void run_edges(weft_exec *e, int n_window, int window)
{
    float one[4] = {1, 1, 1, 1}, zero[4] = {0}, sum[4], out[4], last[4];
    assert_int_equal(weft_exec_write(e, "x", 0, NULL, one), WEFT_OK);
    assert_int_equal(weft_exec_write(e, "sum", 0, NULL, zero), WEFT_OK);
    assert_int_equal(weft_exec_write(e, "out", 0, NULL, zero), WEFT_OK);
    for (int k = 0; k < n_window; k++) {
        if (weft_exec_run(e, k * window, window) != WEFT_OK)
            fail_msg("%s", weft_error_text());
        int steps = (k + 1) * window;
        assert_int_equal(weft_exec_read(e, "sum", 0, NULL, sum), WEFT_OK);
        assert_int_equal(weft_exec_read(e, "out", 0, NULL, out), WEFT_OK);
        assert_int_equal(weft_exec_read(e, "last", 0, NULL, last), WEFT_OK);
        assert_true(sum[3] == (float)(3 * steps) && out[3] == sum[3]);
        assert_true(last[3] == (float)(3 * (steps - 1))); /* what the step before gave */
    }
    assert_int_equal(weft_exec_get_stats(e).steps, n_window * window);
}

/* Messages that a run leaves on an edge are there in the next one. */
static void runs_are_windows_of_steps(void **state)
{
    (void)state;
    weft_program *p = parse_edges(0);
    if (weft_program_verify(p) != WEFT_OK) fail_msg("%s", weft_error_text());
    for (int window = 1; window < 5; window++) {
        weft_exec *e = create(p, NULL);
        run_edges(e, 50, window);
        assert_int_equal(weft_exec_get_stats(e).host_wakeups, 0);
        test_exec_destroy(e);
    }
    weft_program_destroy(p);
}

/* A second device, as the first: its streams' edges are the host's. */
static void edges_between_devices_wake_the_host(void **state)
{
    (void)state;
    weft_program *p     = parse_edges(1);
    weft_device   other = *weft_device_cpu();
    weft_exec    *e     = NULL;
    assert_int_equal(test_exec_create(p, NULL, &e), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "stream io: there is no device 1"));
    e = create(p, &(weft_exec_options){.device = {weft_device_cpu(), &other}});
    run_edges(e, 20, 3);
    /* 3 messages and 3 credits a step, but for those that are there at first */
    assert_true(weft_exec_get_stats(e).host_wakeups >= 60 * 6 - 4);
    test_exec_destroy(e);
    weft_program_destroy(p);
}

/* Launches only have deadlines: all steps are given out long before the first one ends, by one
 * thread that nothing wakes. */
static void emulated_edges_are_the_devices(void **state)
{
    (void)state;
    weft_program *p = parse_edges(0);
    weft_device  *d;
    assert_int_equal(weft_device_emu_create(&d), WEFT_OK);
    weft_exec *e =
        create(p, &(weft_exec_options){
                      .device = {d}, .price = weft_exec_stated_seconds, .trace = 100});
    weft_timeline *t;
    assert_int_equal(weft_exec_run(e, 0, 4), WEFT_OK);
    assert_int_equal(weft_exec_run(e, 4, 2), WEFT_OK);
    assert_int_equal(weft_exec_get_stats(e).host_wakeups, 0);
    assert_int_equal(weft_exec_timeline(e, &t), WEFT_OK);
    assert_int_equal(t->n_slice, 6 * 8);
    weft_timeline_destroy(t);
    test_exec_destroy(e);
    weft_device_emu_destroy(d);
    weft_program_destroy(p);
}

/* ---- what goes wrong ---- */

static weft_status fail_kernel(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    (void)c;
    (void)x;
    return WEFT_FAIL(WEFT_ERR_ARG, "token 9 is past the vocabulary");
}

static weft_kernel choose_failing(weft_op op)
{
    (void)op;
    return (weft_kernel){.run = fail_kernel};
}

static weft_kernel choose_but_reduce(weft_op op)
{
    return (weft_kernel){.run = op == WEFT_OP_REDUCE ? NULL : fail_kernel};
}

static weft_device *failing_device(void)
{
    static weft_device *d;
    if (!d) d = test_device_with("failing", choose_failing);
    return d;
}

static void errors_name_the_instruction(void **state)
{
    (void)state;
    weft_program     *p     = parse(lanes_text);
    int               calls = 0;
    weft_exec        *e     = NULL;
    weft_exec_options o     = {.read = give_samples, .user = &calls};
    o.device[0]             = test_device_with("without reduce", choose_but_reduce);
    assert_int_equal(test_exec_create(p, &o, &e), WEFT_ERR_ARG);
    assert_string_equal(weft_error_text(),
                        "program lanes, actor bwd: compute 'g': no kernel for reduce on "
                        "without reduce in f32");
    o.device[0] = failing_device();
    e           = create(p, &o);
    for (int i = 0; i < 2; i++) { /* and stays failed */
        assert_int_equal(weft_exec_run(e, 0, 1), WEFT_ERR_ARG);
        assert_string_equal(weft_error_text(),
                            "bwd, compute 'g': token 9 is past the vocabulary");
    }
    test_exec_destroy(e);
    assert_int_equal(test_exec_create(p, NULL, &e), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "nobody gives samples"));
    weft_program_destroy(p);
}

/* One rank's kernel fails: the other rank, waiting for its message, comes back at once. */
static void a_failure_ends_all_ranks(void **state)
{
    (void)state;
    int              n;
    weft_program   **p = load("tests/golden/two_stage.prog", &n);
    weft_comm_local *world;
    weft_comm       *c[2];
    rank_state       r[2] = {{.n_step = 1}, {.n_step = 1}};
    assert_int_equal(weft_comm_local_create(2, &world), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        weft_exec_options o = {.device = {i ? failing_device() : NULL}};
        assert_int_equal(weft_comm_local_join(world, i, 60, &o.comm), WEFT_OK);
        c[i]   = o.comm;
        r[i].e = create(p[i], &o);
    }
    run_all(r, 2);
    assert_int_equal(r[1].st, WEFT_ERR_ARG);
    assert_string_equal(r[1].text, "fwd, compute 'y': token 9 is past the vocabulary");
    assert_int_equal(r[0].st, WEFT_ERR_PEER);
    assert_non_null(strstr(r[0].text, "rank 1 gave up: fwd, compute 'y'"));
    for (int i = 0; i < 2; i++) {
        test_exec_destroy(r[i].e);
        weft_comm_destroy(c[i]);
    }
    weft_comm_local_destroy(world);
    weft_program_destroy_set(p, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_stages_train),
        cmocka_unit_test(lanes_are_summed_as_a_tree),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(slabs_are_the_callers),
        cmocka_unit_test(bindings_are_read_and_written_by_region),
        cmocka_unit_test(a_step_is_held_back_at_the_commit_point),
        cmocka_unit_test(a_step_starts_while_updates_go_on),
        cmocka_unit_test(updates_are_made_when_the_next_step_fails),
        cmocka_unit_test(an_update_that_fails_tears_the_state),
        cmocka_unit_test(runs_are_windows_of_steps),
        cmocka_unit_test(edges_between_devices_wake_the_host),
        cmocka_unit_test(emulated_edges_are_the_devices),
        cmocka_unit_test(errors_name_the_instruction),
        cmocka_unit_test(a_failure_ends_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
