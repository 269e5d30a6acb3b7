/* Expert parallel: each rank has some of the experts.  Trains like one rank within rounding, no
 * token dropped, also when all of them choose the same experts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/plans.h"
#include "spmd/spmd.h"
#include "support/test.h"

#define FAMILY(name) "tests/fixtures/families/" name

static void mixtral(void **state)
{
    static const char *const words[] = {
        "ep=2",
        "ep=3",
        "ep=4",
        "dp=2 ep=2",
        "dp=2 ep=2 zero=1",
        "ep=2 pp=2",
        "ep=2 tp=2",
        "ep=2 cp=2 mesh_order=ep,cp",
        "dp=2 ep=2 zero=3",
    };
    test_job j;
    (void)state;
    test_job_open(&j, FAMILY("mixtral"), (test_job_options){.seq = 12, .n_micro = 4});
    test_result one = test_plan_one(&j, 2);
    assert_true(one.loss[TEST_STEPS - 1] != one.loss[0]);
    for (size_t i = 0; i < WEFT_COUNT(words); i++)
        test_plan_near(&j, &one, (test_plan){words[i], 2, 1, "1f1b"}, 1e-5);
    test_job_close(&j);
}

/* Losses of routers are those of one rank: sums over a sequence's tokens and over layers, wherever
 * these are. */
static void balanced(void **state)
{
    static const char *const words[] = {
        "dp=2",         "dp=2 zero=2", "pp=2",           "ep=2", "dp=2 ep=2 zero=1",
        "tp=2 sp=true", "cp=2",        "ep=2 tp=2 pp=2",
    };
    test_job j;
    (void)state;
    test_job_open(&j, FAMILY("mixtral-balanced"),
                  (test_job_options){.seq = 8, .n_micro = 4, .rows = 2});
    test_result one = test_plan_one(&j, 2);
    for (size_t i = 0; i < WEFT_COUNT(words); i++)
        test_plan_near(&j, &one, (test_plan){words[i], 2, 1, "1f1b"}, 1e-5);
    test_job_close(&j);
}

/* Like one rank, with a router as it comes and with one that sends all tokens to the same
 * experts. */
static void train_near(const char *const *words, int n, int seq, int rows)
{
    for (int zero = 0; zero < 2; zero++) {
        test_job j;
        test_job_open(&j, FAMILY("mixtral"),
                      (test_job_options){.seq     = seq,
                                         .n_micro = 4,
                                         .rows    = rows,
                                         .zero    = zero ? "gate.weight" : NULL});
        test_result one = test_plan_one(&j, 2);
        for (int i = 0; i < n; i++)
            test_plan_near(&j, &one, (test_plan){words[i], 2, 1, "1f1b"}, 1e-5);
        test_job_close(&j);
    }
}

/* Several sequences a micro-batch: ranks along ep share them out where they divide (not in 3). */
static void sequences_too(void **state)
{
    static const char *const words[] = {
        "ep=2",
        "ep=4",
        "dp=2 ep=2 zero=1",
        "ep=2 pp=2",
        "ep=2 tp=2 sp=true",
        "ep=2 cp=2 mesh_order=ep,cp",
        "dp=2 ep=2 zero=3",
        "ep=3",
    };
    test_job j;
    (void)state;
    train_near(words, (int)WEFT_COUNT(words), 8, 4);
    /* one sequence a rank, its positions over tp: 7 of them unevenly */
    test_job_open(&j, FAMILY("mixtral"),
                  (test_job_options){.seq = 7, .n_micro = 4, .rows = 2});
    test_result one = test_plan_one(&j, 2);
    test_plan_near(&j, &one, (test_plan){"ep=2 tp=2 sp=true", 2, 1, "1f1b"}, 1e-5);
    test_plan_near(&j, &one, (test_plan){"ep=2 cp=2 mesh_order=ep,cp", 2, 1, "1f1b"},
                   1e-5);
    test_job_close(&j);
}

/* More places than experts divide into, each with a sequence; all of them, and none, to a place. */
static void uneven_experts(void **state)
{
    static const char *const words[] = {"ep=3", "ep=3 pp=2", "ep=3 tp=2",
                                        "dp=2 ep=3 zero=1"};
    (void)state;
    train_near(words, (int)WEFT_COUNT(words), 5, 3);
}

typedef struct traffic {
    int     sent, returned; /* nodes */
    int64_t rows;           /* elements at home of what they move */
    /* elements that come by gathers and sums of activations; of one such */
    int64_t tables, largest;
} traffic;

static traffic traffic_of(const test_job *j, const char *words)
{
    weft_strategy     h;
    weft_sharding    *s = test_plan_shard(j, words, &h);
    weft_spmd_options o = {.mesh_rank = 1};
    weft_local_graph *l;
    traffic           t = {0};
    assert_ok(weft_spmd_rewrite(j->training.graph, s, &o, &l));
    for (int i = 0; i < l->graph->n_node; i++) {
        const weft_graph_node *n = &l->graph->node[i];
        int64_t in  = weft_shape_count(&l->graph->value[n->in[0]].type.shape),
                out = weft_shape_count(&l->graph->value[n->out[0]].type.shape);
        if (n->phase == WEFT_PHASE_UPDATE) continue;
        if (n->op == WEFT_OP_SEND_ROWS) t.sent++, t.rows += in;
        if (n->op == WEFT_OP_RETURN_ROWS) t.returned++, t.rows += out;
        if (n->op != WEFT_OP_ALL_GATHER && n->op != WEFT_OP_REDUCE_SCATTER &&
            n->op != WEFT_OP_ALL_REDUCE)
            continue;
        t.tables += out;
        if (out > t.largest) t.largest = out;
    }
    weft_local_graph_destroy(l);
    weft_sharding_destroy(s);
    return t;
}

/* Where places have sequences of their own, only rows travel, twice there and twice back a layer,
 * and the counts. */
static void rows_are_sent(void **state)
{
    enum {
        LAYERS  = 2,
        EXPERTS = 5,
        TOP     = 3,
        SEQ     = 8,
        ROWS    = 4
    };
    test_job j;
    (void)state;
    test_job_open(&j, FAMILY("mixtral"),
                  (test_job_options){.seq = SEQ, .n_micro = 4, .rows = ROWS});
    int64_t d = 0;
    for (weft_vid v = 0; v < j.training.graph->n_value; v++)
        if (strstr(j.training.graph->value[v].name, "gate.weight") &&
            j.training.graph->value[v].kind == WEFT_VALUE_PARAM)
            d = j.training.graph->value[v].type.shape.d[1];
    assert_true(d > 0);
    for (int ep = 2; ep <= 4; ep += 2) {
        traffic t = traffic_of(&j, ep == 2 ? "ep=2" : "ep=4");
        assert_int_equal(t.sent, 2 * LAYERS);
        assert_int_equal(t.returned, 2 * LAYERS);
        assert_int_equal(t.rows, 4 * LAYERS * ROWS / ep * SEQ * TOP * d);
        assert_int_equal(t.largest, ep * (EXPERTS + 1)); /* no token is gathered */
    }
    static const char *const words[] = {"ep=2 tp=2", "ep=2 tp=2 sp=true",
                                        "ep=2 cp=2 mesh_order=ep,cp", "dp=2 ep=2 zero=3"};
    for (size_t i = 0; i < WEFT_COUNT(words); i++) {
        traffic t = traffic_of(&j, words[i]);
        assert_int_equal(t.sent, 2 * LAYERS);
        assert_int_equal(t.returned, 2 * LAYERS);
    }
    test_job_close(&j);
    /* one sequence a micro-batch: places have the same tokens, and nothing is to be sent */
    test_job_open(&j, FAMILY("mixtral"), (test_job_options){.seq = SEQ, .n_micro = 4});
    traffic t = traffic_of(&j, "ep=2");
    assert_int_equal(t.sent + t.returned, 0);
    test_job_close(&j);
}

static weft_instr *first_send(weft_program *p)
{
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++)
            if (p->actor[a].instr[i].kind == WEFT_INSTR_COLLECTIVE &&
                p->actor[a].instr[i].coll == WEFT_SEND_ROWS)
                return &p->actor[a].instr[i];
    return NULL;
}

/* Programs that send rows read back as they are written, are proved, and what is wrong with one
 * is found. */
static void programs_are_proved(void **state)
{
    test_job      j;
    weft_strategy h;
    weft_program *p[2], *again;
    weft_text     a = {0}, b = {0};
    (void)state;
    test_job_open(&j, FAMILY("mixtral"),
                  (test_job_options){.seq = 8, .n_micro = 4, .rows = 4});
    weft_sharding *s = test_plan_shard(&j, "ep=2", &h);
    for (int r = 0; r < 2; r++) {
        weft_partition_options o = {.n_micro = 4, .n_lane = 2, .pp = 1, .rank = r};
        assert_ok(weft_partition_program(j.training.graph, s, &o, &p[r]));
    }
    assert_ok(weft_program_verify_all((const weft_program *const *)p, 2));
    assert_ok(weft_program_print(p[0], &a));
    assert_ok(weft_program_parse("test", a.s, a.n, &again));
    assert_ok(weft_program_print(again, &b));
    assert_string_equal(a.s, b.s);
    weft_instr  *i    = first_send(p[0]);
    weft_operand kept = i->in[1];
    assert_non_null(i);
    i->in[1].type.dtype = WEFT_DTYPE_F32; /* a table of something else */
    assert_int_equal(weft_program_verify(p[0]), WEFT_ERR_ARG);
    i->in[1] = kept;
    i->in[1].type.shape.d[0] -= 1; /* of fewer ranks */
    assert_int_equal(weft_program_verify(p[0]), WEFT_ERR_ARG);
    i->in[1] = kept;
    i->coll  = WEFT_RETURN_ROWS; /* one sends what the other returns */
    assert_int_equal(weft_program_verify_all((const weft_program *const *)p, 2),
                     WEFT_ERR_ARG);
    for (int r = 0; r < 2; r++) weft_program_destroy(p[r]);
    weft_program_destroy(again);
    weft_text_fini(&a);
    weft_text_fini(&b);
    weft_sharding_destroy(s);
    test_job_close(&j);
}

/* Attention of a place is over its own sequences. */
static void own_sequences(void **state)
{
    test_job      j;
    weft_strategy h;
    double        own[2] = {0};
    (void)state;
    test_job_open(&j, FAMILY("mixtral"),
                  (test_job_options){.seq = 8, .n_micro = 4, .rows = 4});
    for (int ep = 1; ep <= 2; ep++) {
        weft_sharding    *s = test_plan_shard(&j, ep == 1 ? "ep=1" : "ep=2", &h);
        weft_spmd_options o = {.mesh_rank = ep - 1};
        weft_local_graph *l;
        assert_ok(weft_spmd_rewrite(j.training.graph, s, &o, &l));
        for (int i = 0; i < l->graph->n_node; i++) {
            const weft_graph_node *x = &l->graph->node[i];
            weft_type              in[16], out[8];
            if (x->op != WEFT_OP_ATTENTION && x->op != WEFT_OP_ATTENTION_GRAD) continue;
            weft_op_use u = weft_graph_use(l->graph, x, in, out);
            own[ep - 1] += weft_op_flops(&u);
        }
        weft_local_graph_destroy(l);
        weft_sharding_destroy(s);
    }
    assert_true(own[0] > 0 && 2 * own[1] == own[0]);
    test_job_close(&j);
}

/* Each place holds its share of the experts' weights, and nobody another's. */
static void shares(void **state)
{
    test_job      j;
    weft_strategy h;
    int64_t       mine = 0, whole = 0; /* experts, of all places */
    (void)state;
    test_job_open(&j, FAMILY("mixtral"), (test_job_options){.seq = 12, .n_micro = 4});
    const weft_graph *g = j.training.graph;
    weft_sharding    *s = test_plan_shard(&j, "ep=4", &h);
    for (int place = 0; place < 4; place++) {
        weft_spmd_options o = {.mesh_rank = place};
        weft_local_graph *l;
        assert_ok(weft_spmd_rewrite(g, s, &o, &l));
        for (weft_vid v = 0; v < g->n_value; v++) {
            if (g->value[v].kind == WEFT_VALUE_NODE || g->value[v].type.shape.n != 3)
                continue;
            if (!strstr(g->value[v].name, "experts")) continue;
            whole += g->value[v].type.shape.d[0];
            mine += l->graph->value[l->value[v]].type.shape.d[0];
        }
        weft_local_graph_destroy(l);
    }
    assert_true(mine > 0);
    assert_int_equal(mine * 4, whole);
    weft_sharding_destroy(s);
    test_job_close(&j);
}

/* A router of zeros chooses the first experts for every token: all rows are on one rank, none is
 * dropped. */
static void all_to_one(void **state)
{
    static const char *const words[] = {"ep=2", "ep=4", "dp=2 ep=2"};
    test_job                 j;
    (void)state;
    test_job_open(&j, FAMILY("mixtral"),
                  (test_job_options){.seq = 12, .n_micro = 4, .zero = "gate.weight"});
    test_result one = test_plan_one(&j, 2);
    for (size_t i = 0; i < WEFT_COUNT(words); i++)
        test_plan_near(&j, &one, (test_plan){words[i], 2, 1, "1f1b"}, 1e-5);
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_sanitized(mixtral),
        test_plain(balanced),
        test_plain(sequences_too),
        cmocka_unit_test(own_sequences),
        cmocka_unit_test(shares),
        cmocka_unit_test(all_to_one),
        test_sanitized(uneven_experts),
        cmocka_unit_test(rows_are_sent),
        cmocka_unit_test(programs_are_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
