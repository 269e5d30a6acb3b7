/* Standby replicas: what one rank alone holds, another one holds and updates, too.  The same bits
 * as without them, every replica the same as what it is a replica of, and no rank that is lost at
 * any moment makes them differ.  Ranks are threads of this process. */
#include <stdio.h>
#include <string.h>

#include "support/plans.h"
#include "support/test.h"

/* Pipelines give the bits of one rank; replicas are compared by test_job_run(). */
static void trains_like_one_rank(void **state)
{
    static const test_plan pipelines[] = {
        {"pp=2", 2, 1, "1f1b"},  {"pp=4", 4, 1, "1f1b"},        {"pp=2", 4, 1, "gpipe"},
        {"pp=2", 2, 1, "zb-h1"}, {"pp=2", 1, 2, "interleaved"}, {"pp=3", 2, 1, "1f1b"}};
    static const char *const optimizer[] = {"adamw", "lamb",    "sgd",
                                            "adam",  "adagrad", "adamw"};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(pipelines); i += TEST_STRIDE(6))
        test_plan_each(
            "tests/fixtures/four",
            (test_job_options){.seq       = 8,
                               .n_micro   = 4,
                               .optimizer = optimizer[i],
                               .dtype     = i % 2 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32},
            &pipelines[i], 1, &(test_plan_how){.standby_bytes = 3000},
            test_plan_same_bits);
}

#define FAMILY(name) "tests/fixtures/families/" name

/* Shards of matrices and experts, running statistics, biases of routers: the bits of the same plan
 * without replicas. */
static void trains_as_without(void **state)
{
    static const struct {
        const char *model;
        test_plan   plan;
        const char *optimizer;
    } row[] = {{"tests/fixtures/four", {"tp=2", 1, 1, NULL}, "adamw"},
               {"tests/fixtures/four", {"tp=2 sp=true", 1, 1, NULL}, "sgd"},
               {"tests/fixtures/four", {"tp=2", 2, 1, NULL}, "lamb"},
               {"tests/fixtures/four", {"tp=4", 1, 1, NULL}, "adagrad"},
               {"tests/fixtures/four", {"tp=2 pp=2", 2, 1, "1f1b"}, "adamw"},
               {"tests/fixtures/four", {"tp=2 pp=2", 1, 1, "zb-h1"}, "lamb"},
               {"tests/fixtures/four", {"tp=2 pp=3", 1, 1, "1f1b"}, "adam"},
               {FAMILY("llama"), {"tp=2 pp=2", 1, 1, "1f1b"}, "adamw"},
               {FAMILY("resnet"), {"pp=2", 2, 1, "1f1b"}, "sgd"},
               {FAMILY("mixtral-balanced"), {"ep=2", 1, 1, NULL}, "adamw"},
               {FAMILY("mixtral-balanced"), {"ep=2 pp=2", 1, 1, "1f1b"}, "adamw"},
               {FAMILY("t5"), {"pp=2", 2, 1, "1f1b"}, "lamb"}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(row); i += TEST_STRIDE(6)) {
        test_plan_how    with = {.standby_bytes   = 3000,
                                 .standby_credits = i % 3 ? 0 : 2,
                                 .reduce_bytes    = i % 2 ? 2000 : 0};
        test_job         j;
        test_job_options o = {.seq       = 8,
                              .n_micro   = i % 3 ? 4 : 2,
                              .rows      = 2,
                              .optimizer = row[i].optimizer,
                              .dtype     = i % 2 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32};
        if (strstr(row[i].model, "resnet")) o.dtype = WEFT_DTYPE_F32;
        test_job_open(&j, row[i].model, o);
        test_result without = test_plan_run(&j, row[i].plan);
        test_plan_same_bits(&j, &without, row[i].plan, &with);
        test_job_close(&j);
    }
}

/* More replicas than one, and shares of them where ranks hold the same state anyway. */
static void trains_with_several(void **state)
{
    static const struct {
        const char *model;
        test_plan   plan;
        int         n_standby;
        const char *optimizer;
    } row[] = {
        {"tests/fixtures/four", {"pp=3", 2, 1, "1f1b"}, 2, "adamw"},
        {"tests/fixtures/four", {"dp=2 pp=2", 2, 1, "1f1b"}, 1, "adamw"},
        {"tests/fixtures/four", {"pp=4", 4, 1, "1f1b"}, 3, "lamb"},
        {"tests/fixtures/four", {"tp=4", 1, 1, NULL}, 3, "adamw"},
        {"tests/fixtures/four", {"tp=2 pp=2", 2, 1, "zb-h1"}, 2, "adam"},
        {"tests/fixtures/four", {"dp=2 pp=2", 4, 1, "1f1b"}, 3, "lamb"},
        {"tests/fixtures/four", {"dp=2 tp=2", 2, 1, NULL}, 1, "sgd"},
        {"tests/fixtures/four", {"dp=3 pp=2", 4, 1, "gpipe"}, 1, "adagrad"},
        {"tests/fixtures/four", {"cp=2 pp=2", 2, 1, "1f1b"}, 1, "adamw"},
        {"tests/fixtures/four", {"dp=2 pp=2 zero=3", 2, 1, "1f1b"}, 1, "adamw"},
        {"tests/fixtures/four", {"dp=2 pp=2 zero=1 copies=2", 2, 1, "1f1b"}, 1, "adamw"},
        {FAMILY("mixtral-balanced"), {"ep=2 pp=2", 1, 1, "1f1b"}, 2, "adamw"}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(row); i += TEST_STRIDE(3)) {
        test_plan_how    with = {.standby_bytes   = 3000,
                                 .n_standby       = row[i].n_standby,
                                 .standby_credits = i % 3 ? 0 : 2,
                                 .reduce_bytes    = i % 2 ? 2000 : 0};
        test_job         j;
        test_job_options o = {.seq       = 8,
                              .n_micro   = 4,
                              .rows      = 2,
                              .optimizer = row[i].optimizer,
                              .dtype     = i % 2 ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32};
        test_job_open(&j, row[i].model, o);
        test_result without = test_plan_run(&j, row[i].plan);
        test_plan_same_bits(&j, &without, row[i].plan, &with);
        test_job_close(&j);
    }
}

static int64_t bytes_of(const weft_type *t)
{
    return weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
}

/* Bytes of a tensor that a program has, also for other ranks. */
static int64_t held_bytes(const weft_program *p, const char *name)
{
    char                standby[256];
    const weft_binding *own = weft_program_find(p, name), *other;
    int64_t             sum = own ? bytes_of(&own->at.type) : 0;
    for (int k = 1; k <= weft_program_n_standby(p); k++) {
        snprintf(standby, sizeof standby, "standby.%d.%s", k, name);
        other = weft_program_find(p, standby);
        if (!other) continue;
        assert_int_equal(other->kind, WEFT_BIND_STANDBY);
        sum += bytes_of(&other->at.type);
    }
    return sum;
}

/* Bytes that a program sends for its replica: overlapped, and after the backward pass. */
static void count_sent(const weft_program *p, int64_t sent[2])
{
    for (int s = 0; s < p->n_stream; s++)
        for (int f = 0; f < p->stream[s].n_firing; f++) {
            const weft_actor *a = &p->actor[p->stream[s].firing[f].actor];
            for (int n = 0; n < a->n_instr; n++) {
                const weft_instr *i = &a->instr[n];
                if (i->kind != WEFT_INSTR_SEND || !weft_instr_is_standby(i)) continue;
                assert_int_equal(p->stream[s].kind, WEFT_STREAM_COMM);
                sent[i->tag != WEFT_STANDBY_TAG] += bytes_of(&i->in[0].type);
            }
        }
}

/* Every element in as many ranks as there are replicas and one more; gradients alone are sent,
 * once to each, nearly all of them while the backward pass runs (both uses of a tied embedding are
 * summed after it, and sums over data-parallel ranks). */
static void holds_everything_again(void **state)
{
    static const struct {
        const char *words;
        int64_t     late; /* bytes, all ranks; -1: all */
        int         n_standby, n_held;
    } row[] = {{"pp=2", 0, 1, 2},
               {"pp=4", 2 * 31 * 16 * 4, 1, 2},
               {"tp=2", 31 * 16 * 4, 1, 2},
               {"tp=2 pp=2", 0, 1, 2},
               {"tp=4", 3 * 31 * 16 * 4, 3, 4},
               {"pp=3", 2 * 31 * 16 * 4, 2, 3},
               {"dp=2 pp=2", -1, 1, 3},
               {"dp=2 pp=2", -1, 3, 4}};
    test_job j;
    (void)state;
    test_job_open(&j, "tests/fixtures/four", (test_job_options){.seq = 8, .n_micro = 4});
    for (size_t w = 0; w < WEFT_COUNT(row); w++) {
        weft_program     *p[TEST_MAX_RANK];
        const weft_graph *g       = j.training.graph;
        int64_t           sent[2] = {0, 0}, standby = 0;
        test_plan_how     how  = {.standby_bytes = 3000, .n_standby = row[w].n_standby};
        test_plan         plan = {row[w].words, 4, 1, "1f1b"};
        int               n    = test_plan_programs(&j, plan, &how, p);
        for (weft_vid v = 0; v < g->n_value; v++) {
            int64_t held = 0;
            if (g->value[v].kind != WEFT_VALUE_PARAM &&
                !(g->value[v].kind == WEFT_VALUE_STATE && g->value[v].node < 0))
                continue;
            for (int r = 0; r < n; r++) held += held_bytes(p[r], g->value[v].name);
            if (held < row[w].n_held * bytes_of(&g->value[v].type))
                fail_msg("%s: %ld bytes of %s are held", row[w].words, (long)held,
                         g->value[v].name);
        }
        for (int r = 0; r < n; r++) {
            count_sent(p[r], sent);
            for (int b = 0; b < p[r]->n_binding; b++)
                if (p[r]->binding[b].kind == WEFT_BIND_STANDBY)
                    standby += bytes_of(&p[r]->binding[b].at.type);
            weft_program_destroy(p[r]);
        }
        print_message("%s: %ld bytes of replicas, %ld sent, %ld of them late\n",
                      row[w].words, (long)standby, (long)(sent[0] + sent[1]),
                      (long)sent[1]);
        assert_int_equal(3 * (sent[0] + sent[1]), standby); /* p, m, v */
        assert_int_equal(sent[1], row[w].late < 0 ? sent[0] + sent[1] : row[w].late);
    }
    test_job_close(&j);
}

/* A rank is lost in the middle of a call: a step is committed with its replicas, or not at all. */
static void survives_a_lost_rank(void **state)
{
    static const char *const words[] = {"pp=2", "tp=2"};
    (void)state;
    for (size_t w = 0; w < WEFT_COUNT(words); w++) {
        weft_program *p[TEST_MAX_RANK];
        test_job      j;
        test_lost     t = {0};
        test_job_open(&j, "tests/fixtures/four",
                      (test_job_options){.seq = 8, .n_micro = 2});
        int n = test_plan_programs(&j, (test_plan){words[w], 2, 1, "1f1b"},
                                   &(test_plan_how){.standby_bytes = 6000}, p);
        for (int lost = 0; lost < n; lost++) {
            test_job_run_lost(&j, p, n, lost, TEST_STRIDE(3) > 1 ? 12 : 4, &t);
            print_message("%s, rank %d lost: %d trials, %d held, %d alone, %d finished\n",
                          words[w], lost, t.n_trial, t.n_held, t.n_alone, t.n_finished);
            assert_true(t.n_held > 0 && t.n_trial > 4);
        }
        for (int r = 0; r < n; r++) weft_program_destroy(p[r]);
        test_job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(trains_like_one_rank), cmocka_unit_test(trains_as_without),
        cmocka_unit_test(trains_with_several),  cmocka_unit_test(holds_everything_again),
        cmocka_unit_test(survives_a_lost_rank),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
