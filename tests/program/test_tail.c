/* A process that has no peers follows a job: it holds the state after a step and makes each later
 * update by the tail of its own program, out of inputs that another program had at its commit
 * point.  Pieces of the state come late, and what is not there yet is updated meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "compile/compile.h"
#include "exec/exec.h"
#include "program/tail.h"
#include "support/exec.h"
#include "support/test.h"

enum {
    STEPS  = 6,
    BATCH  = 4,
    SEQ    = 8,
    PIECES = 7
};

/* A program of a job: of one rank, or the last rank of a plan. */
typedef struct side {
    weft_plan    *plan;
    weft_compiled made;
    weft_tail     tail;
    weft_exec    *exec;
} side;

typedef struct job {
    weft_arena   *arena;
    weft_training training;
    side          teacher, learner;
    char         *inputs; /* of the last step */
} job;

static void make_side(job *j, const char *words, side *out)
{
    int rank = 0;
    if (words) {
        weft_strategy s;
        assert_ok(weft_strategy_parse(words, &s));
        rank = weft_strategy_world(&s) - 1;
        assert_ok(weft_compile_plan(&j->training, &s, rank + 1, &out->plan));
    }
    assert_ok(weft_compile_program(&j->training, out->plan, rank, &out->made));
    assert_ok(weft_program_find_tail(out->made.program, j->arena, &out->tail));
}

static void open_job(job *j, const char *model, const char *optimizer, const char *dtype,
                     const char *words)
{
    weft_compile_spec s = weft_compile_spec_default(model, BATCH, SEQ);
    *j                  = (job){0};
    s.dtype             = dtype;
    s.micro_batch       = 1;
    s.lanes             = 4;
    s.optimizer.name    = optimizer;
    s.optimizer.clip    = 1;
    assert_ok(weft_arena_create(&j->arena));
    assert_ok(weft_compile_training(&s, &j->training));
    make_side(j, NULL, &j->teacher);
    make_side(j, words, &j->learner);
    j->inputs = malloc((size_t)j->teacher.tail.bytes + 1);
    assert_non_null(j->inputs);
}

static void close_job(job *j)
{
    side *of[] = {&j->teacher, &j->learner};
    for (size_t k = 0; k < WEFT_COUNT(of); k++) {
        test_exec_destroy(of[k]->exec);
        weft_compiled_fini(&of[k]->made);
        weft_plan_destroy(of[k]->plan);
    }
    free(j->inputs);
    weft_training_fini(&j->training);
    weft_arena_destroy(j->arena);
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

static weft_status commit(void *user, int64_t step, int n, const double *value,
                          bool *hold)
{
    job        *j  = user;
    const side *t  = &j->teacher;
    char       *to = j->inputs;
    (void)step, (void)n, (void)value, (void)hold;
    for (int k = 0; k < t->tail.n_input; k++) {
        memcpy(to, weft_exec_tail_input(t->exec, &t->tail.input[k]),
               (size_t)t->tail.input[k].bytes);
        to += t->tail.input[k].bytes;
    }
    return WEFT_OK;
}

static void open_execs(job *j)
{
    weft_exec_options o = {.seed        = 1,
                           .batch       = BATCH,
                           .micro_batch = 1,
                           .read        = read_inputs,
                           .commit      = commit,
                           .user        = j};
    assert_ok(test_exec_create(j->teacher.made.program, &o, &j->teacher.exec));
    o = (weft_exec_options){
        .n_thread = 2, .seed = 1, .batch = BATCH, .micro_batch = 1, .alone = true};
    assert_ok(test_exec_create(j->learner.made.program, &o, &j->learner.exec));
}

static bool is_state(const weft_binding *b)
{
    return b->kind == WEFT_BIND_PARAM || b->kind == WEFT_BIND_STATE;
}

static void fill_state(const job *j)
{
    const weft_program *p = j->teacher.made.program;
    for (int i = 0; i < p->n_binding; i++) {
        weft_view v;
        if (!is_state(&p->binding[i])) continue;
        assert_ok(weft_exec_binding(j->teacher.exec, p->binding[i].name, 0, &v));
        int64_t n = weft_shape_count(&v.shape);
        memset(v.p, 0, (size_t)(n * weft_dtype_bytes(v.dtype)));
        for (int64_t k = 0; k < n && v.dtype == WEFT_DTYPE_F32; k++)
            ((float *)v.p)[k] = (float)((k * 7919) % 1000 + 1) * 1e-4f;
    }
}

/* The which-th of PIECES of the learner's states, as the teacher has them: of those that belong
 * together the same elements. */
static void copy_states(const job *j, int which)
{
    const weft_program *p = j->teacher.made.program;
    for (int i = 0; i < p->n_binding; i++) {
        weft_view from, to;
        if (!is_state(&p->binding[i])) continue;
        assert_true(j->teacher.tail.unit[i].by_element);
        assert_ok(weft_exec_binding(j->teacher.exec, p->binding[i].name, 0, &from));
        assert_ok(weft_exec_binding(j->learner.exec, p->binding[i].name, 0, &to));
        int64_t n = weft_shape_count(&from.shape), size = weft_dtype_bytes(from.dtype);
        int64_t lo = n * which / PIECES, hi = n * (which + 1) / PIECES;
        memcpy((char *)to.p + lo * size, (char *)from.p + lo * size,
               (size_t)((hi - lo) * size));
    }
}

/* A parameter's moments are of its unit, another parameter's are not. */
static void check_units(const side *x)
{
    const weft_program   *p    = x->made.program;
    const weft_binding   *w    = weft_program_find(p, "transformer.wte.weight");
    const weft_binding   *m    = weft_program_find(p, "transformer.wte.weight.m");
    const weft_binding   *v    = weft_program_find(p, "transformer.wpe.weight.m");
    const weft_tail_unit *unit = x->tail.unit;
    assert_non_null(w);
    if (m) assert_int_equal(unit[m - p->binding].first, unit[w - p->binding].first);
    if (v) assert_int_not_equal(unit[v - p->binding].first, unit[w - p->binding].first);
}

/* What a program of several ranks does after its commit point with others, it cannot do alone. */
static void refuses_gathers(void **state)
{
    weft_strategy s;
    job           j = {0};
    side          x = {0};
    (void)state;
    weft_compile_spec c = weft_compile_spec_default("tiny256", BATCH, SEQ);
    c.micro_batch       = 1;
    c.lanes             = 4;
    assert_ok(weft_arena_create(&j.arena));
    assert_ok(weft_compile_training(&c, &j.training));
    assert_ok(weft_strategy_parse("dp=2 zero=1", &s));
    assert_ok(weft_compile_plan(&j.training, &s, 2, &x.plan));
    assert_ok(weft_compile_program(&j.training, x.plan, 1, &x.made));
    weft_status st = weft_program_find_tail(x.made.program, j.arena, &x.tail);
    assert_int_equal(st, WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "after the commit point"));
    weft_compiled_fini(&x.made);
    weft_plan_destroy(x.plan);
    weft_training_fini(&j.training);
    weft_arena_destroy(j.arena);
}

static void compare_states(const job *j)
{
    const weft_program *p = j->teacher.made.program;
    for (int i = 0; i < p->n_binding; i++) {
        weft_view a, b;
        if (!is_state(&p->binding[i])) continue;
        assert_ok(weft_exec_binding(j->teacher.exec, p->binding[i].name, 0, &a));
        assert_ok(weft_exec_binding(j->learner.exec, p->binding[i].name, 0, &b));
        if (memcmp(a.p, b.p,
                   (size_t)(weft_shape_count(&a.shape) * weft_dtype_bytes(a.dtype))))
            fail_msg("%s differs", p->binding[i].name);
    }
}

static void put(const job *j, const char *name, float x)
{
    if (weft_program_find(j->teacher.made.program, name))
        assert_ok(weft_exec_write(j->teacher.exec, name, 0, NULL, &x));
}

static void follow(const job *j, int64_t step)
{
    const char *from = j->inputs;
    for (int k = 0; k < j->learner.tail.n_input; k++) {
        const weft_tail_input *x = &j->learner.tail.input[k];
        memcpy(weft_exec_tail_input(j->learner.exec, x), from, (size_t)x->bytes);
        from += x->bytes;
    }
    assert_ok(weft_exec_run_tail(j->learner.exec, &j->learner.tail, step));
}

static void check_follows(const char *model, const char *optimizer, const char *dtype,
                          const char *words)
{
    job j;
    open_job(&j, model, optimizer, dtype, words);
    assert_true(j.teacher.tail.hash == j.learner.tail.hash);
    assert_int_equal(j.teacher.tail.n_input, j.learner.tail.n_input);
    check_units(&j.teacher);
    check_units(&j.learner);
    open_execs(&j);
    fill_state(&j);
    for (int64_t step = 0; step < PIECES + STEPS; step++) {
        if (step < PIECES) copy_states(&j, (int)step);
        put(&j, "lr", 1e-3f * (float)(step + 1));
        put(&j, "step", (float)(step + 1));
        put(&j, "inv_n", 1.0f / (BATCH * SEQ));
        assert_ok(weft_exec_run(j.teacher.exec, step, 1));
        follow(&j, step);
        if (step >= PIECES - 1) compare_states(&j);
    }
    close_job(&j);
}

static void follows_one_rank(void **state)
{
    static const char *const optimizer[] = {"adamw", "adam", "sgd", "adagrad", "lamb"};
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(optimizer); k++)
        check_follows("tiny256", optimizer[k], "fp32", "dp=2");
    check_follows("tiny256", "adamw", "bf16", "dp=2");
    check_follows("tiny256", "adamw", "fp32", "dp=4");
    check_follows("tiny256", "adamw", "fp32", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_one_rank),
        cmocka_unit_test(refuses_gathers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
