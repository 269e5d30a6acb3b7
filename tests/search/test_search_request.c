/* The planner as it is asked: constraints, engines, health, switches, words. */
#include <math.h>
#include <stdio.h>

#include "search/bench.h"

/* ---- constraints ---- */

static void constraints_are_kept_or_refused(void **state)
{
    static const struct {
        const char *word, *why;
    } bad[] = {
        {"tp=3", "tp=3 does not divide the model's 16 attention heads"},
        {"dp=7", "dp=7 does not divide the batch of 64"},
        {"pp=25", "pp=25: the model has 24 layers"},
        {"micro_batch=5", "micro_batch=5 does not divide the batch of 64"},
        {"ep=2", "ep=2: the model has no experts"},
        {"cp=3", "cp=3: a sequence of 1024 tokens is not cut in 6 equal pieces"},
        {"tp=16", "tp=16: the cluster has 8 devices that may be used"},
        {"zero=4", "zero: 4 is out of range, from 0 to 3"},
        {"zeroo=1", "zeroo=1: no such constraint, did you mean zero=...?"},
        {"tp", "tp: a constraint is KEY=VALUE, as in tp=8"},
        {"recompute=some", "recompute: 'some' is none of: none selective full"},
        {"schedule=x", "schedule: 'x' is none of: 1f1b gpipe zb-h1 interleaved"},
        {"batch_split=3-1",
         "batch_split=3-1: expected lanes of each rank, from 1 to 65536, such as 3,1 or "
         "3x4,1x4"},
        {"batch_split=3,2",
         "batch_split has 5 lanes in all, and lanes is a power of two: write 3,1 or 5,3 "
         "instead of 3,2"},
        {"batch_split=3,1",
         "batch_split: devices are all alike, and replicas get equal shares of "
         "the batch on them"},
        {"stages=12-11", "stages hold 23 layers, but the model has 24"},
        {"stages=12-x", "stages=12-x: expected the layers of each stage, as in 7-7-6"},
    };
    sizes z = {24, 1024, 16, 1024, 50000, 0, 64};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        bench               b;
        weft_search_result *r;
        open_bench(&b, "1 x (8 x a100-80g)", &z, "weft");
        weft_status st = weft_search_constrain(&b.p.constraints, bad[i].word, b.a);
        if (st == WEFT_OK) st = weft_search_run(&b.p, &r);
        assert_int_equal(st, WEFT_ERR_ARG);
        assert_string_equal(weft_error_text(), bad[i].why);
        close_bench(&b);
    }
    weft_search_constraints twice;
    weft_search_open(&twice);
    assert_ok(weft_search_constrain(&twice, "tp=4", NULL));
    assert_ok(weft_search_constrain(&twice, "tp=4", NULL));
    assert_int_equal(weft_search_constrain(&twice, "tp=2", NULL), WEFT_ERR_ARG);
    assert_int_equal(weft_search_given(&twice, WEFT_KEY_tp), 4);
    static const char *const good[] = {"tp=4",
                                       "pp=3",
                                       "zero=3",
                                       "micro_batch=2",
                                       "recompute=full",
                                       "chunks=2",
                                       "stages=11-13",
                                       "batch_split=3x4,1x4",
                                       "schedule=interleaved"};
    for (size_t i = 0; i < WEFT_COUNT(good); i++) {
        bench               b;
        weft_search_result *r;
        weft_text           t = {0};
        open_bench(&b,
                   strncmp(good[i], "batch_split", 11)
                       ? "1 x (8 x a100-80g)"
                       : "1 x (4 x a100-80g) + 1 x (4 x v100-32g)",
                   &z, "weft");
        assert_ok(weft_search_constrain(&b.p.constraints, good[i], b.a));
        assert_ok(weft_search_run(&b.p, &r));
        weft_search_print_choice(&r->choice[0], &t);
        if (!strstr(t.s, good[i])) fail_msg("%s: %s", good[i], t.s);
        weft_text_fini(&t);
        weft_search_destroy(r);
        close_bench(&b);
    }
}

/* Interleaved stages would be faster here, but each other schedule has one chunk a stage. */
static void schedules_are_kept(void **state)
{
    static const char *const words[] = {"schedule=1f1b", "schedule=gpipe",
                                        "schedule=zb-h1", "schedule=interleaved"};
    sizes                    z       = {48, 1600, 25, 1024, 50257, 0, 32};
    double                   step_s[WEFT_COUNT(words)];
    bench                    b;
    weft_search_result      *r;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(words); i++) {
        open_bench(&b, "2 x (8 x a100-80g)", &z, "weft");
        assert_ok(weft_search_constrain(&b.p.constraints, "pp=4", b.a));
        assert_ok(weft_search_constrain(&b.p.constraints, "dp=4", b.a));
        assert_ok(weft_search_constrain(&b.p.constraints, words[i], b.a));
        assert_ok(weft_search_run(&b.p, &r));
        for (int k = 0; i < WEFT_STRATEGY_INTERLEAVED && k < r->n; k++) {
            assert_int_equal(r->choice[k].point.chunks, 1);
            assert_int_equal(r->choice[k].point.schedule, i);
        }
        step_s[i] = r->choice[0].score.step_s;
        weft_search_destroy(r);
        close_bench(&b);
    }
    assert_true(step_s[WEFT_STRATEGY_INTERLEAVED] < step_s[0]);
    open_bench(&b, "2 x (8 x a100-80g)", &z, "weft");
    assert_ok(weft_search_constrain(&b.p.constraints, "schedule=1f1b", b.a));
    assert_ok(weft_search_constrain(&b.p.constraints, "chunks=2", b.a));
    assert_int_equal(weft_search_run(&b.p, &r), WEFT_ERR_ARG);
    assert_string_equal(weft_error_text(),
                        "chunks=2 goes with schedule=interleaved: the other schedules "
                        "have one chunk a stage");
    close_bench(&b);
}

/* Without ranks to shard over there is no ZeRO. */
static void zero_takes_ranks(void **state)
{
    sizes               z = {32, 4096, 32, 512, 128256, 0, 8};
    bench               b;
    weft_search_result *r;
    (void)state;
    for (z.batch = 2; z.batch <= 16; z.batch *= 2) {
        open_bench(&b, "1 x (8 x h100-80g)", &z, "weft");
        b.p.n_best = 12;
        assert_ok(weft_search_run(&b.p, &r));
        for (int k = 0; k < r->n; k++)
            if (r->choice[k].point.dp * r->choice[k].variant.cp < 2)
                assert_int_equal(r->choice[k].point.zero, 0);
        weft_search_destroy(r);
        close_bench(&b);
    }
}

static void nothing_fits_says_what_would_help(void **state)
{
    sizes               z = {105, 20480, 128, 2048, 51200, 0, 64};
    bench               b;
    weft_search_result *r;
    (void)state;
    open_bench(&b, "2 x (8 x a100-80g)", &z, "weft");
    assert_int_equal(weft_search_run(&b.p, &r), WEFT_ERR_NOFIT);
    assert_non_null(strstr(weft_error_text(), "optimizer state"));
    assert_non_null(strstr(weft_error_text(), "times as many devices would do"));
    close_bench(&b);
    z = (sizes){24, 4096, 32, 2048, 51200, 0, 64};
    open_bench(&b, "1 x (8 x a100-80g)", &z, "weft");
    assert_ok(weft_search_constrain(&b.p.constraints, "zero=0", b.a));
    assert_ok(weft_search_constrain(&b.p.constraints, "tp=1", b.a));
    assert_ok(weft_search_constrain(&b.p.constraints, "pp=1", b.a));
    assert_int_equal(weft_search_run(&b.p, &r), WEFT_ERR_NOFIT);
    assert_non_null(strstr(weft_error_text(), "without the constraint on zero"));
    close_bench(&b);
}

/* ---- other engines ---- */

static void emitted_plans_read_back(void **state)
{
    static const sizes       z[]       = {{32, 4096, 32, 2048, 51200, 0, 256},
                                          {96, 12288, 96, 2048, 51200, 0, 1536},
                                          {48, 8192, 64, 2048, 51200, 0, 384}};
    static const char *const cluster[] = {"4 x (8 x a100-80g)", "64 x (8 x a100-80g)",
                                          "16 x (8 x a100-80g)"};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(z); i++) {
        bench               b;
        weft_search_result *r;
        weft_text           t = {0};
        weft_prediction     p;
        open_bench(&b, cluster[i], &z[i], "megatron");
        b.p.model.shape.engine = (weft_cost_engine){0};
        weft_cost_constants_engine(b.c, "Megatron-Core", &b.p.model.shape.engine);
        assert_ok(weft_search_run(&b.p, &r));
        weft_engine_plan y = weft_search_engine_plan(&r->choice[0]);
        assert_ok(weft_engine_emit(WEFT_ENGINE_MEGATRON, &b.config, &y, &t));
        weft_config c;
        weft_engine_open(&c);
        weft_hardware *h;
        assert_ok(weft_engine_cluster(b.k, b.a, &c, &h));
        assert_ok(weft_engine_read(WEFT_ENGINE_MEGATRON, "f", t.s, t.n,
                                   weft_cluster_count(b.k), b.a, &c, NULL));
        assert_ok(weft_config_complete("f", &c));
        assert_ok(weft_estimate_row(h, b.c, &c, &p));
        assert_true(p.fits);
        if (fabs(p.step_s / r->choice[0].score.step_s - 1) > 1e-9)
            fail_msg("%s\nplanned %.9g, read back %.9g", t.s, r->choice[0].score.step_s,
                     p.step_s);
        weft_hardware_destroy(h);
        weft_text_fini(&t);
        weft_search_destroy(r);
        close_bench(&b);
    }
}

/* ---- health ---- */

static void lost_nodes_are_left_out(void **state)
{
    sizes               z = {32, 4096, 32, 2048, 50000, 0, 240};
    bench               b;
    weft_cluster       *k;
    weft_search_result *r, *again;
    (void)state;
    open_bench(&b, "4 x (8 x a100-80g)", &z, "weft");
    assert_ok(weft_search_run(&b.p, &r));
    assert_int_equal(r->n_device, 32);
    assert_ok(weft_cluster_change(b.k, "cordon node 2 device 3", &k));
    assert_ok(weft_search_machines_of(k, b.c, b.a, &b.m));
    assert_int_equal(weft_search_usable(&b.m.kind[0], 1), 31);
    assert_int_equal(weft_search_usable(&b.m.kind[0], 4), 28);
    assert_int_equal(weft_search_usable(&b.m.kind[0], 8), 24);
    assert_ok(weft_search_run(&b.p, &again));
    assert_true(again->choice[0].score.step_s > r->choice[0].score.step_s);
    weft_search_destroy(again);
    weft_cluster_destroy(k);
    assert_ok(weft_cluster_change(b.k, "degrade node 1 speed 0.5", &k));
    assert_ok(weft_search_machines_of(k, b.c, b.a, &b.m));
    assert_int_equal(b.m.n, 2);
    assert_ok(weft_search_run(&b.p, &again));
    assert_true(again->choice[0].score.step_s > r->choice[0].score.step_s);
    weft_search_destroy(again);
    weft_search_destroy(r);
    weft_cluster_destroy(k);
    close_bench(&b);
}

/* Links of a whole rack are one domain; what a switch does not carry is not there. */
static void switches_count(void **state)
{
    static const char *const text =
        "name: two\ndevice:\n  - {name: x, like: a100-80g}\nlink:\n  - {name: in, "
        "alpha_s: "
        "1e-06, Bps: 1e11}\n  - {name: out, scope: net, alpha_s: 1e-06, Bps: "
        "1e10}\nnode:\n"
        "  - {name: box, count: 8, device: x, n_device: 8, link: in, net: out, n_port: "
        "8}\n"
        "switch:\n  - {name: pod, span: %d, alpha_s: 0, taper: 1}\n"
        "  - {name: spine, span: 0, alpha_s: 0, taper: 0.5}\n";
    sizes                z = {24, 2048, 16, 2048, 50000, 0, 96};
    bench                b;
    weft_search_machines m[2];
    (void)state;
    open_bench(&b, "36 x (4 x gb200)", &z, "weft");
    assert_int_equal(b.m.kind[0].per_node, 4);
    assert_int_equal(b.m.kind[0].fabric.domain, 72);
    for (int i = 0; i < 2; i++) { /* all in one pod, in two */
        char          yaml[800];
        weft_cluster *k;
        int           n = snprintf(yaml, sizeof yaml, text, i ? 4 : 8);
        assert_ok(weft_cluster_parse("two", yaml, (size_t)n, &k));
        assert_ok(weft_search_machines_of(k, b.c, b.a, &m[i]));
        weft_cluster_destroy(k);
    }
    assert_true(m[1].kind[0].fabric.out.Bps == 0.5 * m[0].kind[0].fabric.out.Bps);
    close_bench(&b);
}

static void the_same_twice(void **state)
{
    sizes     z    = {24, 2048, 16, 2048, 50000, 0, 96};
    weft_text t[2] = {{0}, {0}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        bench               b;
        weft_search_result *r;
        open_bench(&b, "2 x (4 x v100-32g) + 2 x (4 x a100-80g)", &z, "weft");
        assert_ok(weft_search_run(&b.p, &r));
        assert_ok(weft_search_print(&b.p, r, true, &t[i]));
        assert_ok(weft_search_print_json(&b.p, r, &t[i]));
        weft_search_destroy(r);
        close_bench(&b);
    }
    assert_string_equal(t[0].s, t[1].s);
    weft_text_fini(&t[0]);
    weft_text_fini(&t[1]);
}

/* ---- some layers run again, not all ---- */

/* Of one constrained point every number of layers is tried: the least that fits is taken. */
static void as_few_layers_as_fit_run_again(void **state)
{
    sizes               z = {48, 6144, 48, 2048, 50000, 0, 64};
    bench               b;
    weft_search_result *r, *one;
    double              best  = INFINITY;
    int                 least = 0;
    (void)state;
    open_bench(&b, "2 x (8 x a100-80g)", &z, "megatron");
    weft_search_open(&b.p.constraints);
    weft_search_fix(&b.p.constraints, WEFT_KEY_tp, 1);
    weft_search_fix(&b.p.constraints, WEFT_KEY_cp, 1);
    weft_search_fix(&b.p.constraints, WEFT_KEY_ep, 1);
    weft_search_fix(&b.p.constraints, WEFT_KEY_zero, 1);
    weft_search_fix(&b.p.constraints, WEFT_KEY_chunks, 1);
    weft_search_fix(&b.p.constraints, WEFT_KEY_pp, 4);
    weft_search_fix(&b.p.constraints, WEFT_KEY_dp, 4);
    weft_search_fix(&b.p.constraints, WEFT_KEY_sp, 0);
    b.p.constraints.micro_batch = 2;
    assert_ok(weft_search_run(&b.p, &r));
    const weft_search_choice *x = &r->choice[0];
    assert_true(x->point.n_again > 0);
    assert_int_equal(x->variant.recompute, WEFT_RECOMPUTE_FULL);
    for (int k = 1; k < 12; k++) {
        b.p.constraints.recompute_layers = k;
        weft_status st                   = weft_search_run(&b.p, &one);
        if (st == WEFT_ERR_NOFIT) continue;
        assert_ok(st);
        assert_int_equal(one->choice[0].point.n_again, k);
        if (one->choice[0].score.step_s < best) {
            best  = one->choice[0].score.step_s;
            least = k;
        }
        weft_search_destroy(one);
    }
    assert_int_equal(least, x->point.n_again);
    assert_true(best == x->score.step_s);
    weft_search_destroy(r);
    close_bench(&b);
}

/* The first and the last stage hold a layer less; written for Megatron and read back. */
static void chunks_with_short_ends(void **state)
{
    sizes               z = {30, 8192, 64, 2048, 50000, 0, 128};
    bench               b;
    weft_search_result *r;
    weft_text           t = {0};
    weft_config         c;
    (void)state;
    open_bench(&b, "8 x (8 x a100-80g)", &z, "megatron");
    weft_search_fix(&b.p.constraints, WEFT_KEY_pp, 8);
    weft_search_fix(&b.p.constraints, WEFT_KEY_chunks, 2);
    assert_ok(weft_search_run(&b.p, &r));
    const weft_search_choice *x = &r->choice[0];
    assert_int_equal(x->point.cut[0], 3);
    assert_int_equal(x->point.cut[1], 4);
    assert_int_equal(x->point.cut[7], 3);
    assert_int_equal(weft_search_chunk_layers(x, 0), 1);
    assert_int_equal(weft_search_chunk_layers(x, 7), 2);
    assert_int_equal(weft_search_chunk_layers(x, 8), 2);
    assert_int_equal(weft_search_chunk_layers(x, 15), 1);
    weft_engine_plan y = weft_search_engine_plan(x);
    assert_ok(weft_engine_emit(WEFT_ENGINE_MEGATRON, &b.config, &y, &t));
    assert_non_null(strstr(t.s, "--account-for-embedding-in-pipeline-split "
                                "--account-for-loss-in-pipeline-split"));
    weft_engine_open(&c);
    assert_ok(weft_engine_read(WEFT_ENGINE_MEGATRON, "f", t.s, t.n, 64, b.a, &c, NULL));
    assert_string_equal(c.stage_layers, "3-4-4-4-4-4-4-3");
    assert_int_equal(c.vpp, 2);
    weft_text_fini(&t);
    weft_search_destroy(r);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constraints_are_kept_or_refused),
        cmocka_unit_test(schedules_are_kept),
        cmocka_unit_test(zero_takes_ranks),
        cmocka_unit_test(nothing_fits_says_what_would_help),
        cmocka_unit_test(emitted_plans_read_back),
        cmocka_unit_test(lost_nodes_are_left_out),
        cmocka_unit_test(switches_count),
        cmocka_unit_test(the_same_twice),
        cmocka_unit_test(as_few_layers_as_fit_run_again),
        cmocka_unit_test(chunks_with_short_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
