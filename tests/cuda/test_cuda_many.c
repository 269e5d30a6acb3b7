/* plugin/cuda/ops/update.c, squares.c, copy.c: many calls in one launch have the bits of single
 * ones.
 * A program of sums of squares, updates and conversions, on the plugin's device: as one actor, and
 * as one for each instruction, which is launched alone then. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_test.h"
#include "plugin/plugin.h"
#include "support/exec.h"

enum {
    N_TENSOR  = 7,
    N_FUSED   = 3,
    MAX_COUNT = 100000,
    N_KIND    = 4 /* p, g, m, v */
};

static const struct {
    const char *shape;
    int         count;
    double      decay;
    bool        fused; /* the copy is a step of the update */
} tensors[N_TENSOR] = {{"[9000]", 9000, 0.1, true},     {"[5,20000]", 100000, 0, false},
                       {"[3000,8]", 24000, 0.1, false}, {"[8]", 8, 0, true},
                       {"[7,11]", 77, 0.2, true},       {"[1]", 1, 0, false},
                       {"[2,3,64]", 384, 0, false}};

/* What is read back. */
typedef struct results {
    float    state[3][N_TENSOR][MAX_COUNT];
    uint16_t twin[N_TENSOR][MAX_COUNT];
    double   sums[N_TENSOR];
} results;

static char *add_text(char *to, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static char *add_text(char *to, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    to += vsprintf(to, fmt, ap);
    va_end(ap);
    return to;
}

static char *add_buffer(char *t, const char *name, int i, const char *type, int size,
                        int64_t *at)
{
    int64_t bytes = (int64_t)(tensors[i].count * size + 63) / 64 * 64;
    t = add_text(t, "  buffer %s%d slab state at %ld bytes %ld\n", name, i, (long)*at,
                 (long)bytes);
    t = add_text(t, "  bind state %s%d %s%d %s%s\n", name, i, name, i, type,
                 tensors[i].shape);
    *at += bytes;
    return t;
}

/* In the slab of its kind: state or output. */
static char *add_scalar(char *t, const char *name, const char *type, const char *kind,
                        int64_t *at)
{
    const char *slab = strcmp(kind, "output") ? kind : "work";
    t = add_text(t, "  buffer %s slab %s at %ld bytes 64\n", name, slab, (long)*at);
    *at += 64;
    return add_text(t, "  bind %s %s %s %s[]\n", kind, name, name, type);
}

/* Ends an actor and begins the next, where instructions are apart. */
static char *add_border(char *t, int *actor)
{
    if (!*actor) return t;
    return add_text(t, "  }\n  actor update%d on compute {\n", (*actor)++);
}

/* *actor: the number of the next one; 0: all are in one. */
static char *add_instrs(char *t, int *actor)
{
    for (int i = 0; i < N_TENSOR; i++) {
        t = add_text(t, "    compute s%d sumsq (g%d f32%s) -> (s%d f64[]) ;\n", i, i,
                     tensors[i].shape, i);
        t = add_border(t, actor);
    }
    t = add_text(t, "    commit step (s0 f64[], s1 f64[]) ;\n");
    for (int i = 0; i < N_TENSOR; i++) {
        const char *s = tensors[i].shape;
        t             = add_border(t, actor);
        t             = add_text(t, "    compute p%d adamw \"weight_decay=%g\" ", i,
                                 tensors[i].decay);
        t = add_text(t, "(p%d f32%s, g%d f32%s, m%d f32%s, v%d f32%s, ", i, s, i, s, i, s,
                     i, s);
        t = add_text(t, "lr f32[], scale f32[], step f32[]) -> ");
        if (tensors[i].fused) {
            t = add_text(t, "(p%d f32%s, m%d f32%s, v%d f32%s | b%d bf16%s)\n", i, s, i,
                         s, i, s, i, s);
            t = add_text(t, "      post cast \"dtype=bf16\" out 3 ;\n");
            continue;
        }
        t = add_text(t, "(p%d f32%s, m%d f32%s, v%d f32%s) ;\n", i, s, i, s, i, s);
        t = add_border(t, actor);
        t = add_text(
            t, "    compute b%d cast \"dtype=bf16\" (p%d f32%s) -> (b%d bf16%s) ;\n", i,
            i, s, i, s);
    }
    return t;
}

static void make_text(char *t, bool apart)
{
    static char buffers[20000];
    int         actor = apart;
    char       *b     = buffers, name[8];
    int64_t     at = 0, work = 0;
    buffers[0]         = 0;
    const char *kind[] = {"p", "g", "m", "v"};
    for (int i = 0; i < N_TENSOR; i++) {
        for (int k = 0; k < N_KIND; k++) b = add_buffer(b, kind[k], i, "f32", 4, &at);
        b = add_buffer(b, "b", i, "bf16", 2, &at);
        snprintf(name, sizeof name, "s%d", i);
        b = add_scalar(b, name, "f64", "output", &work);
    }
    b = add_scalar(b, "lr", "f32", "state", &at);
    b = add_scalar(b, "scale", "f32", "state", &at);
    b = add_scalar(b, "step", "f32", "state", &at);
    t = add_text(t,
                 "program many rank 0 of 1 micro 1 lanes 1 {\n  slab state state %ld\n  "
                 "slab work work %ld\n%s",
                 (long)at, (long)work, buffers);
    t = add_text(t, "  stream compute compute device 0 threads 0\n"
                    "  actor update0 on compute {\n");
    t = add_instrs(t, &actor);
    t = add_text(t, "  }\n  list compute { update0; ");
    for (int i = 1; i < actor; i++) t = add_text(t, "update%d; ", i);
    add_text(t, "}\n}\n");
}

static float start_number(int tensor, int kind, int n)
{
    return (float)((n * 37 + tensor * 11 + kind * 5) % 101 + 1) / 101.0f;
}

static void write_numbers(weft_exec *e)
{
    static float x[MAX_COUNT];
    const char  *kind[] = {"p", "g", "m", "v"};
    char         name[8];
    for (int i = 0; i < N_TENSOR; i++)
        for (int k = 0; k < N_KIND; k++) {
            for (int n = 0; n < tensors[i].count; n++) x[n] = start_number(i, k, n);
            snprintf(name, sizeof name, "%s%d", kind[k], i);
            assert_ok(weft_exec_write(e, name, 0, NULL, x));
        }
    assert_ok(weft_exec_write(e, "lr", 0, NULL, &(float){0.01f}));
    assert_ok(weft_exec_write(e, "scale", 0, NULL, &(float){0.5f}));
    assert_ok(weft_exec_write(e, "step", 0, NULL, &(float){3}));
}

static void read_results(weft_exec *e, results *r)
{
    const char *kind[] = {"p", "m", "v"};
    char        name[8];
    for (int i = 0; i < N_TENSOR; i++) {
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "%s%d", kind[k], i);
            assert_ok(weft_exec_read(e, name, 0, NULL, r->state[k][i]));
        }
        snprintf(name, sizeof name, "b%d", i);
        assert_ok(weft_exec_read(e, name, 0, NULL, r->twin[i]));
        snprintf(name, sizeof name, "s%d", i);
        assert_ok(weft_exec_read(e, name, 0, NULL, &r->sums[i]));
    }
}

/* What is traced of the second and third step: a slice for each instruction, those of one launch
 * one after another, by their bytes. */
static void check_timeline(weft_exec *e)
{
    weft_timeline *t              = NULL;
    double         s[4][N_TENSOR] = {{0}};
    int            n              = 0;
    assert_ok(weft_exec_timeline(e, &t));
    for (int i = 0; i < t->n_slice; i++) {
        const weft_instr *x =
            &t->program[0]->actor[t->slice[i].actor].instr[t->slice[i].instr];
        double took = t->slice[i].end_s - t->slice[i].start_s;
        assert_true(t->slice[i].start_s >= 0 && took >= 0 && took < 10);
        if (x->kind == WEFT_INSTR_COMMIT || t->slice[i].step != t->n_step - 1) continue;
        int kind = x->op == WEFT_OP_SUMSQ ? 0 : x->op == WEFT_OP_CAST ? 1 : 2;
        s[kind][atoi(x->name + 1)] += took;
        n++;
    }
    assert_int_equal(n, 3 * N_TENSOR - N_FUSED);
    assert_true(s[2][1] > 0);
    for (int k = 1; k < 3; k++) { /* 24,000 elements and 100,000 */
        assert_true(s[k][2] < 0.3 * s[k][1]);
        assert_true(s[k][2] > 0.2 * s[k][1]);
    }
    weft_timeline_destroy(t);
}

static void run_program(weft_device *d, int trace, bool apart, results *r)
{
    static char       text[40000];
    weft_program     *p = NULL;
    weft_exec        *e = NULL;
    weft_exec_options o = {.device = {d}, .trace = trace};
    make_text(text, apart);
    assert_ok(weft_program_parse("many", text, strlen(text), &p));
    assert_ok(weft_program_verify(p));
    assert_ok(test_exec_create(p, &o, &e));
    write_numbers(e);
    memset(r, 0, sizeof *r);
    assert_ok(weft_exec_run(e, 0, 1));
    read_results(e, r);
    if (trace) assert_ok(weft_exec_run(e, 1, 2));
    if (trace) check_timeline(e);
    test_exec_destroy(e);
    weft_program_destroy(p);
}

/* Launches since the device was opened last. */
static int count_launches(void)
{
    char  line[256];
    int   n = 0;
    FILE *f = fopen(getenv("WEFT_STUB_LOG"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strstr(line, "cuDevicePrimaryCtxRetain")) n = 0;
        if (strstr(line, "cuLaunchKernel")) n++;
    }
    fclose(f);
    return n;
}

static float widen_bf16(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float    f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* adamw by its formula, and the copy in bf16. */
static void check_rule(const results *r, int i)
{
    for (int n = 0; n < tensors[i].count; n++) {
        double p = start_number(i, 0, n), g = 0.5 * start_number(i, 1, n);
        double m = 0.9 * start_number(i, 2, n) + 0.1 * g;
        double v = 0.999 * start_number(i, 3, n) + 0.001 * g * g;
        p *= 1 - 0.01 * tensors[i].decay;
        p -= 0.01 * m / (1 - pow(0.9, 3)) / (sqrt(v / (1 - pow(0.999, 3))) + 1e-8);
        float near = 2e-6f, x = r->state[0][i][n];
        assert_float_equal(x, p, near);
        assert_float_equal(r->state[1][i][n], m, near);
        assert_float_equal(r->state[2][i][n], v, near);
        float copy = widen_bf16(r->twin[i][n]);
        assert_true(fabsf(copy - x) <= fabsf(x) / 256);
    }
}

static void many_calls_have_the_bits_of_single_ones(void **state)
{
    (void)state;
    static results single, many;
    weft_device   *d = NULL;
    assert_ok(weft_plugin_open_device("cuda", 0, &d));
    run_program(d, 0, true, &single);
    weft_plugin_close_device(d);
    if (!test_gpu_is_real()) assert_int_equal(count_launches(), N_TENSOR * 4 - N_FUSED);
    assert_ok(weft_plugin_open_device("cuda", 0, &d));
    run_program(d, 0, false, &many);
    weft_plugin_close_device(d);
    if (!test_gpu_is_real()) assert_int_equal(count_launches(), 4);
    assert_memory_equal(single.state, many.state, sizeof many.state);
    assert_memory_equal(single.twin, many.twin, sizeof many.twin);
    assert_memory_equal(single.sums, many.sums, sizeof many.sums);
    assert_true(many.sums[1] > 1000 && many.state[0][1][99999] != 0);
    for (int i = 0; i < N_TENSOR; i++) check_rule(&many, i);
}

/* With a record before and after each launch, issued and as a graph: the launches and the bits are
 * those of a step that is not traced. */
static void traced_calls_are_grouped(void **state)
{
    (void)state;
    static results plain, traced;
    weft_device   *d = NULL;
    assert_ok(weft_plugin_open_device("cuda", 0, &d));
    run_program(d, 0, false, &plain);
    weft_plugin_close_device(d);
    for (int graph = 0; graph < 2; graph++) {
        setenv("WEFT_CUDA_GRAPH", graph ? "1" : "0", 1);
        assert_ok(weft_plugin_open_device("cuda", 0, &d));
        run_program(d, 100, false, &traced);
        weft_plugin_close_device(d);
        /* three steps; of those as graphs one is issued and one captured */
        if (!test_gpu_is_real()) assert_int_equal(count_launches(), graph ? 8 : 12);
        assert_memory_equal(plain.state, traced.state, sizeof plain.state);
        assert_memory_equal(plain.sums, traced.sums, sizeof plain.sums);
    }
    setenv("WEFT_CUDA_GRAPH", "0", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_calls_have_the_bits_of_single_ones),
        cmocka_unit_test(traced_calls_are_grouped),
    };
    char log[] = "/tmp/weft-test-XXXXXX";
    int  fd    = mkstemp(log);
    if (fd < 0) return 1;
    setenv("WEFT_STUB_LOG", log, 1);
    setenv("WEFT_CUDA_GRAPH", "0", 1);
    if (!test_gpu_start()) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(log);
    return failed;
}
