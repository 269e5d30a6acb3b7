/* The commit point of compiled programs: every training program has exactly one and verifies, for
 * plans of all kinds; an update that is moved before it is found; a step that is held back there
 * changes no bit of state on any rank, and training goes on as if it had not been tried. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "program/own.h"
#include "support/plans.h"

#define FAMILY(name) "tests/fixtures/families/" name

typedef struct place {
    int actor, instr;
} place;

static int count_commits(const weft_program *p, place *at)
{
    int n = 0;
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++)
            if (p->actor[a].instr[i].kind == WEFT_INSTR_COMMIT) {
                *at = (place){a, i};
                n++;
            }
    return n;
}

/* The first instruction after the commit point, in its actor, that writes state goes before it. */
static bool move_update(weft_program *p, place at)
{
    weft_actor *a = &p->actor[at.actor];
    for (int i = at.instr + 1; i < a->n_instr; i++) {
        if (!weft_instr_writes_state(p, &a->instr[i])) continue;
        weft_instr update = a->instr[i];
        for (int k = i; k > at.instr; k--) a->instr[k] = a->instr[k - 1];
        a->instr[at.instr] = update;
        return true;
    }
    return false;
}

static void check_program(const char *words, const weft_program *p, int *n_program,
                          int *n_moved)
{
    weft_program *q;
    place         at = {0};
    if (weft_program_verify(p) != WEFT_OK) fail_msg("%s: %s", words, weft_error_text());
    int n = count_commits(p, &at);
    if (n != 1) fail_msg("%s, rank %d: %d commit points", words, p->rank, n);
    ++*n_program;
    assert_ok(weft_program_copy(p, &q));
    if (move_update(q, at)) {
        assert_fails(weft_program_verify(q), WEFT_ERR_ARG, "before the commit point");
        assert_non_null(strstr(weft_error_text(), q->actor[at.actor].name));
        assert_non_null(
            strstr(weft_error_text(), q->actor[at.actor].instr[at.instr].name));
        ++*n_moved;
    }
    weft_program_destroy(q);
}

/* ---- what ranks compute by themselves ---- */

/* Marks the elements of a state that a program computes without gathering them. */
static void mark_own(const weft_program *p, const char *name, const weft_own_run *own,
                     const weft_shape *whole, bool *seen)
{
    const weft_binding *b = weft_program_find(p, name);
    if (!b) return;
    const weft_own_run *run = &own[b - p->binding];
    for (int64_t k = run->lo; k < run->hi; k++) {
        int64_t at = 0, stride = 1, rest = k;
        for (int d = whole->n - 1; d >= 0; d--) {
            at += (rest % b->at.type.shape.d[d] + b->origin[d]) * stride;
            rest /= b->at.type.shape.d[d];
            stride *= whole->d[d];
        }
        seen[at] = true;
    }
}

/* Ranks that finish a step without each other have all of it together.  A bf16 copy may be sent by
 * the rank that has the parameter: it is cast from it again. */
static void check_own(const test_job *j, const char *words, weft_program **p, int n)
{
    const weft_graph *g = j->training.graph;
    weft_own_run     *own[TEST_MAX_RANK];
    weft_arena       *a;
    assert_ok(weft_arena_create(&a));
    for (int r = 0; r < n; r++) assert_ok(weft_program_find_own(p[r], a, &own[r]));
    for (weft_vid v = 0; v < g->n_value; v++) {
        const weft_graph_value *x    = &g->value[v];
        int64_t                 size = weft_shape_count(&x->type.shape);
        if (x->kind != WEFT_VALUE_PARAM && x->kind != WEFT_VALUE_STATE) continue;
        if (x->copy_of >= 0) continue;
        bool *seen = calloc((size_t)size + 1, sizeof *seen);
        assert_non_null(seen);
        for (int r = 0; r < n; r++) mark_own(p[r], x->name, own[r], &x->type.shape, seen);
        for (int64_t e = 0; e < size; e++)
            if (!seen[e])
                fail_msg("%s: no rank computes %s[%lld]", words, x->name, (long long)e);
        free(seen);
    }
    weft_arena_destroy(a);
}

static void sweep_plan(const test_job *j, test_plan x, int64_t bucket, int *n_program,
                       int *n_moved)
{
    weft_strategy  h;
    weft_program  *p[TEST_MAX_RANK];
    weft_sharding *s = test_plan_shard(j, x.words, &h);
    int            n = s->mesh[0].n_rank * h.pp;
    for (int r = 0; r < n; r++) {
        weft_partition_options o = {.n_micro             = j->o.n_micro,
                                    .n_lane              = x.n_lane,
                                    .pp                  = h.pp,
                                    .rank                = r,
                                    .schedule            = x.schedule,
                                    .n_chunk             = x.n_chunk,
                                    .reduce_bucket_bytes = bucket,
                                    .shard_bucket_bytes  = bucket,
                                    .gather_once         = h.overlap_param_gather > 0,
                                    .ring_axes = h.cp_comm == WEFT_CP_RING ? ~0u : 0};
        if (weft_partition_program(j->training.graph, s, &o, &p[r]) != WEFT_OK)
            fail_msg("%s, rank %d: %s", x.words, r, weft_error_text());
        check_program(x.words, p[r], n_program, n_moved);
    }
    check_own(j, x.words, p, n);
    for (int r = 0; r < n; r++) weft_program_destroy(p[r]);
    weft_sharding_destroy(s);
}

static const test_plan any_plan[] = {
    {"dp=1", 4, 1, NULL},        {"dp=2", 4, 1, NULL},
    {"dp=2 zero=1", 4, 1, NULL}, {"dp=2 zero=2", 4, 1, NULL},
    {"dp=2 zero=3", 4, 1, NULL}, {"dp=2 zero=1 overlap_param_gather=0.6", 4, 1, NULL},
    {"tp=2", 4, 1, NULL},        {"dp=2 tp=2 zero=1", 4, 1, NULL},
    {"pp=2", 4, 1, "gpipe"},     {"pp=2", 4, 1, "1f1b"},
    {"pp=2", 4, 1, "zb-h1"},     {"dp=2 pp=2 zero=2", 4, 1, "zb-h1"},
};

static const test_plan of_sequences[] = {
    {"cp=2", 4, 1, NULL},
    {"cp=2 cp_comm=ring", 4, 1, NULL},
    {"tp=2 sp=true", 4, 1, NULL},
    {"pp=2", 4, 2, "interleaved"},
};

static void sweep_job(const char *model, test_job_options o, const test_plan *x, int n,
                      int *n_program, int *n_moved)
{
    test_job j;
    test_job_open(&j, model, o);
    for (int i = 0; i < n; i++)
        for (int bucket = 0; bucket < 2; bucket++)
            sweep_plan(&j, x[i], bucket ? 2000 : 0, n_program, n_moved);
    test_job_close(&j);
}

static void every_program_has_one(void **state)
{
    static const char *const optimizer[] = {"adamw", "sgd", "adagrad", "lamb"};
    int                      n = 0, moved = 0;
    (void)state;
    for (int k = 0; k < 4; k++) {
        test_job_options o = {.seq       = 6,
                              .n_micro   = 4,
                              .optimizer = optimizer[k],
                              .no_clip   = k % 2,
                              .dtype     = k < 2 ? WEFT_DTYPE_F32 : WEFT_DTYPE_BF16};
        sweep_job("tests/fixtures/four", o, any_plan, WEFT_COUNT(any_plan), &n, &moved);
    }
    test_job_options o = {.seq = 8, .n_micro = 4, .optimizer = "lamb"};
    sweep_job("tests/fixtures/four", o, of_sequences, WEFT_COUNT(of_sequences), &n,
              &moved);
    /* running statistics */
    sweep_job(FAMILY("resnet"), (test_job_options){.seq = 6, .n_micro = 4}, any_plan + 8,
              3, &n, &moved);
    sweep_job(FAMILY("resnet"), (test_job_options){.seq = 6, .n_micro = 4}, any_plan + 1,
              3, &n, &moved);
    static const test_plan ep[] = {{"ep=2", 4, 1, NULL},
                                   {"dp=2 ep=2 zero=1", 4, 1, NULL}};
    sweep_job(FAMILY("mixtral"), (test_job_options){.seq = 6, .n_micro = 4, .rows = 2},
              ep, 2, &n, &moved);
    print_message("%d programs have one commit point each; %d moved updates were found\n",
                  n, moved);
    assert_true(n >= 200);
    assert_true(moved > n / 2);
}

/* ---- plans by chance ---- */

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

/* A plan that the compiler takes, of at most 8 ranks. */
static test_plan draw_plan(uint32_t *seed, char *words, size_t size)
{
    static const char *const schedule[] = {"gpipe", "1f1b", "zb-h1", "interleaved"};
    int       dp = 1 << draw(seed, 3), tp = 1 << draw(seed, 2), pp = 1 << draw(seed, 2);
    int       zero = dp > 1 ? (int)draw(seed, 4) : 0;
    bool      cp = draw(seed, 4) == 0, sp = draw(seed, 2), ring = draw(seed, 2);
    test_plan x = {.words = words, .n_lane = 4, .n_chunk = 1};
    if (dp * tp * pp > 8) dp = 2;
    int n = snprintf(words, size, "dp=%d pp=%d zero=%d", dp, pp, zero);
    if (cp && tp == 2)
        snprintf(words + n, size - (size_t)n, " cp=2%s", ring ? " cp_comm=ring" : "");
    else
        snprintf(words + n, size - (size_t)n, " tp=%d%s", tp,
                 tp == 2 && sp ? " sp=true" : "");
    n = (int)strlen(words);
    if ((zero == 1 || zero == 2) && pp == 1 && draw(seed, 2))
        snprintf(words + n, size - (size_t)n, " overlap_param_gather=0.%d",
                 1 + (int)draw(seed, 9));
    if (pp > 1) x.schedule = schedule[draw(seed, 4)];
    if (x.schedule && !strcmp(x.schedule, "interleaved")) x.n_chunk = 2;
    return x;
}

/* WEFT_TEST_PROGRAMS: how many; bench/results/commit-walk.txt has a long run. */
static void programs_of_any_plan_have_one(void **state)
{
    static const char *const optimizer[] = {"adamw", "sgd", "adagrad", "lamb"};
    static const int64_t     bucket[]    = {0, 500, 2000, 20000};
    const char              *asked       = getenv("WEFT_TEST_PROGRAMS");
    int                      want = asked ? atoi(asked) : WEFT_TEST_SANITIZED ? 8 : 100;
    uint32_t                 seed = 15;
    int                      n = 0, moved = 0, plans = 0;
    (void)state;
    while (n < want) {
        test_job_options o = {.seq       = 8,
                              .n_micro   = 4 << draw(&seed, 2),
                              .optimizer = optimizer[draw(&seed, 4)],
                              .no_clip   = draw(&seed, 2),
                              .recompute = draw(&seed, 3),
                              .dtype = draw(&seed, 2) ? WEFT_DTYPE_F32 : WEFT_DTYPE_BF16};
        test_job         j;
        test_job_open(&j, "tests/fixtures/four", o);
        for (int k = 0; k < 8; k++, plans++) {
            char words[128];
            sweep_plan(&j, draw_plan(&seed, words, sizeof words), bucket[draw(&seed, 4)],
                       &n, &moved);
        }
        test_job_close(&j);
    }
    print_message("%d plans, %d programs, %d moved updates found\n", plans, n, moved);
    assert_true(moved > n / 2);
}

static void evaluation_has_none(void **state)
{
    test_job               j;
    weft_program          *p;
    place                  at = {0};
    weft_partition_options o  = {.n_micro = 2, .n_lane = 1};
    (void)state;
    test_job_open(&j, "tests/fixtures/four", (test_job_options){.seq = 6, .n_micro = 2});
    assert_ok(weft_partition_program(j.model->graph, NULL, &o, &p));
    assert_ok(weft_program_verify(p));
    assert_int_equal(count_commits(p, &at), 0);
    weft_program_destroy(p);
    test_job_close(&j);
}

/* A step of NaN is tried before step 1 and held back; see test_job_options.bad_step. */
static void a_step_that_is_held_back_leaves_no_trace(void **state)
{
    static const struct {
        test_plan   plan;
        const char *optimizer;
        int64_t     bucket;
    } list[] = {
        {{"dp=1", 4, 1, NULL}, "adamw", 0},
        {{"dp=2", 4, 1, NULL}, "adamw", 2000},
        {{"dp=2 zero=1", 4, 1, NULL}, "lamb", 2000},
        {{"dp=2 zero=3", 4, 1, NULL}, "lamb", 2000},
        {{"dp=2 zero=2", 4, 1, NULL}, "sgd", 0},
        {{"dp=2 zero=1 overlap_param_gather=0.6", 4, 1, NULL}, "adamw", 2000},
        {{"tp=2", 4, 1, NULL}, "lamb", 0},
        {{"pp=2", 4, 1, "zb-h1"}, "adamw", 0},
        {{"dp=2 pp=2 zero=1", 4, 2, "interleaved"}, "lamb", 2000},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(list); i++) {
        test_job_options o = {.seq = 6, .n_micro = 8, .optimizer = list[i].optimizer};
        test_job         j;
        test_result      r[2];
        for (int bad = 0; bad < 2; bad++) {
            o.bad_step = bad ? 2 : 0;
            test_job_open(&j, "tests/fixtures/four", o);
            r[bad] =
                test_plan_run_beside(&j, list[i].plan, list[i].bucket, list[i].bucket);
            test_job_close(&j);
        }
        if (memcmp(&r[0], &r[1], sizeof r[0]) != 0)
            fail_msg("%s, %s: other bits after a step that was held back",
                     list[i].plan.words, list[i].optimizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(every_program_has_one),
        test_sanitized(programs_of_any_plan_have_one),
        cmocka_unit_test(evaluation_has_none),
        cmocka_unit_test(a_step_that_is_held_back_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
