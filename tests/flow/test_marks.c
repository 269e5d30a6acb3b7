/* Whatever is marked, on whatever value, trains like one rank: marks by hand where something
 * broke once, and random marks.  Ranks are threads of this process; cuts into more parts
 * than there are units are among them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/lex.h"
#include "base/random.h"
#include "base/text.h"
#include "support/plans.h"
#include "support/test.h"

#define FAMILY(name) "tests/fixtures/families/" name

enum {
    N_LANE   = 2,
    MAX_MARK = 8
};

/* What the words say: a mesh, then marks; NULL where they are refused. */
static weft_sharding *shard(const test_job *j, const char *words, uint32_t lanes)
{
    weft_arena        *a;
    weft_lex           x;
    weft_mesh          m;
    weft_mark          k[MAX_MARK];
    weft_shard_options o = {.n_mesh = 1, .mesh = &m, .mark = k, .lanes = lanes};
    weft_sharding     *s = NULL;
    assert_ok(weft_arena_create(&a));
    weft_lex_init(&x, a, "marks", words, strlen(words));
    assert_ok(weft_mesh_parse(&x, a, &m));
    while (x.tok != WEFT_TOK_END) assert_ok(weft_mark_parse(&x, &m, &k[o.n_mark++]));
    if (weft_shard_propagate(j->training.graph, &o, &s) != WEFT_OK) s = NULL;
    weft_arena_destroy(a);
    return s;
}

static void like_one(const test_job *j, const test_result *one, const char *words,
                     uint32_t lanes)
{
    weft_program  *p[TEST_MAX_RANK];
    weft_sharding *s = shard(j, words, lanes);
    if (!s) fail_msg("%s: %s", words, weft_error_text());
    int n = s->mesh[0].n_rank;
    for (int r = 0; r < n; r++) {
        weft_partition_options o = {
            .n_micro = j->o.n_micro, .n_lane = N_LANE, .pp = 1, .rank = r, .n_chunk = 1};
        if (weft_partition_program(j->training.graph, s, &o, &p[r]) != WEFT_OK)
            fail_msg("%s, rank %d: %s", words, r, weft_error_text());
    }
    weft_sharding_destroy(s);
    test_result many = test_job_run(j, p, n, 1);
    for (int i = 0; i < TEST_STEPS; i++) {
        double loss = fabs((double)(many.loss[i] / one->loss[i]) - 1);
        double norm = fabs((double)(many.norm[i] / one->norm[i]) - 1);
        if (!(loss < 1e-5) || !(norm < 1e-4))
            fail_msg("%s: step %d apart by %.3g in loss, %.3g in norm", words, i, loss,
                     norm);
    }
}

#define LN "transformer.h.0.ln_1.weight"

/* A norm's weights or their state in parts: its gradient is cut before it is summed over
 * micro-batches. */
static void norms_in_parts(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, FAMILY("gpt2"), (test_job_options){.seq = 6, .n_micro = 4});
    test_result one = test_plan_one(&j, N_LANE);
    like_one(&j, &one, "mesh m [a=2] from 0 mark \"" LN "\" [a ?]", 0);
    like_one(&j, &one, "mesh m [a=3] from 0 mark \"" LN ".m\" [a]", 0);
    like_one(&j, &one, "mesh m [a=2, x=2] from 0 mark \"" LN "\" [a ?]", 2);
    test_job_close(&j);
}

/* Three ranks, two sequences: one has nothing, and sums over nothing are zero, in every step. */
static void ranks_without_anything(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, FAMILY("bert"),
                  (test_job_options){.seq = 6, .n_micro = 2, .rows = 2});
    test_result one = test_plan_one(&j, N_LANE);
    like_one(&j, &one, "mesh m [a=3] from 0 mark \"input_ids\" [a ?, ?]", 0);
    like_one(&j, &one, "mesh m [a=2, b=3] from 0 mark \"input_ids\" [b ?, a ?]", 0);
    if (!WEFT_TEST_SANITIZED)
        like_one(&j, &one, "mesh m [a=7] from 0 mark \"input_ids\" [?, a ?]", 0);
    test_job_close(&j);
    test_job_open(&j, "tests/fixtures/flow/mixtral",
                  (test_job_options){.seq = 5, .n_micro = 2, .rows = 2});
    one = test_plan_one(&j, N_LANE);
    like_one(&j, &one, "mesh m [a=3] from 0 mark \"input_ids\" [a ?, ?]", 0);
    test_job_close(&j);
}

/* ---- random ---- */

static uint32_t draw(uint32_t *at, uint32_t n)
{
    uint32_t key[2] = {3, 11}, ctr[4] = {(*at)++, 0, 0, 0}, w[4];
    weft_random_philox(key, ctr, w);
    return w[0] % n;
}

/* Marks one value: axes on some of its dimensions, the others open or closed. */
static void draw_mark(const weft_graph *g, uint32_t *at, weft_text *t)
{
    weft_vid v;
    int      n_axis = 2;
    do v = (weft_vid)draw(at, (uint32_t)g->n_value);
    while (!g->value[v].type.shape.n || g->value[v].per_step ||
           (g->value[v].kind == WEFT_VALUE_NODE &&
            g->node[g->value[v].node].phase != WEFT_PHASE_FORWARD));
    weft_text_add(t, " mark \"%s\" [", g->value[v].name);
    for (int d = 0; d < g->value[v].type.shape.n; d++) {
        bool cut = n_axis && draw(at, 2);
        weft_text_add(t, "%s%s%s", d ? ", " : "", cut ? (n_axis == 2 ? "a" : "b") : "",
                      cut && draw(at, 3) ? " ?"
                      : cut              ? ""
                      : draw(at, 4)      ? "?"
                                         : "*");
        n_axis -= cut;
    }
    weft_text_add(t, "]");
}

static void by_lot(void **state)
{
    static const char *const model[] = {FAMILY("gpt2"), FAMILY("bert"), FAMILY("llama"),
                                        FAMILY("qwen2")};
    static const char *const mesh[]  = {"[a=2, b=2]", "[a=2, b=3]", "[a=3, b=1]",
                                        "[a=5, b=1]"};
    uint32_t                 at      = 0;
    (void)state;
    for (size_t m = 0; m < WEFT_COUNT(model); m++) {
        test_job j;
        test_job_open(&j, model[m],
                      (test_job_options){.seq       = 6,
                                         .n_micro   = 2,
                                         .rows      = 2,
                                         .recompute = m == 1 ? WEFT_STRATEGY_FULL
                                                             : WEFT_STRATEGY_KEEP});
        test_result one = test_plan_one(&j, N_LANE);
        for (int i = 0; i < (WEFT_TEST_SANITIZED ? 4 : 16); i++) {
            weft_text t = {0};
            weft_text_add(&t, "mesh m %s from 0", mesh[i % 4]);
            for (uint32_t k = draw(&at, 4) + 1; k; k--)
                draw_mark(j.training.graph, &at, &t);
            like_one(&j, &one, t.s, 0);
            weft_text_fini(&t);
        }
        test_job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_in_parts),
        test_sanitized(ranks_without_anything),
        test_plain(by_lot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
