/* Pages of plans: well-formed, self-contained, deterministic, safe; and, where Chromium is,
 * without an error in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "report/report.h"
#include "support/test.h"

static char dir[64];

static int shell(const char *line, char *text, size_t n)
{
    FILE *f = popen(line, "r");
    assert_non_null(f);
    size_t got = fread(text, 1, n - 1, f);
    text[got]  = 0;
    while (fgetc(f) != EOF) {
    }
    return pclose(f);
}

static void check(const char *page)
{
    char line[512], text[4096];
    snprintf(line, sizeof line, "python3 tests/report/check_page.py %s 2>&1", page);
    if (shell(line, text, sizeof text)) fail_msg("%s", text);
}

/* ---- from the command line ---- */

static const char *const cases[] = {
    "--model tiny --cluster '2 x (2 x a100-80g)' --batch 16 --seq 64 pp=2",
    "--model tiny --cluster '1 x (1 x cpu)' --batch 8 --seq 32",
    "--model gpt3-175b --cluster '128 x (8 x a100-80g)' --batch 1536 --seq 2048 --engine "
    "Megatron-Core",
    "--model llama3-70b --cluster '4 x (8 x v100-32g) + 4 x (8 x h100-80g)' --batch 256 "
    "--seq 2048 --engine Megatron-Core",
    "--model gpt2-large --cluster '2 x (4 x t4)' --batch 64 --seq 512 pp=4 tp=2 --engine "
    "Megatron-Core",
    "--model mixtral-8x7b --cluster '4 x (8 x h100-80g)' --batch 128 --seq 2048 --engine "
    "Megatron-Core",
};

static void pages(void **state)
{
    char line[1024], text[8192], page[128], again[128];
    (void)state;
    snprintf(page, sizeof page, "%s/page.html", dir);
    snprintf(again, sizeof again, "%s/again.html", dir);
    for (size_t i = 0; i < WEFT_COUNT(cases); i += TEST_STRIDE(5)) {
        snprintf(line, sizeof line, "%s plan %s --html %s 2>&1", WEFT_TEST_COMMAND,
                 cases[i], page);
        if (shell(line, text, sizeof text)) fail_msg("%s: %s", line, text);
        check(page);
    }
    snprintf(line, sizeof line, "%s plan %s --html %s 2>&1", WEFT_TEST_COMMAND,
             cases[WEFT_COUNT(cases) - 1], again);
    assert_int_equal(shell(line, text, sizeof text), 0);
    snprintf(line, sizeof line, "cmp %s %s", page, again);
    assert_int_equal(shell(line, text, sizeof text), 0);
}

/* ---- from inside: sick clusters, names with teeth ---- */

static const char *const sick =
    "name: sick\n"
    "node:\n"
    "  - {name: old, count: 3, device: v100-32g, n_device: 8, link: nvlink2, net: "
    "ib-edr, n_port: 1}\n"
    "  - {name: new, count: 4, device: a100-80g, n_device: 8, link: nvlink3, net: "
    "ib-hdr, "
    "n_port: 8}\n"
    "health:\n"
    "  - {node: 1, state: cordoned, why: \"<b>fan</b> & 'dust'\"}\n"
    "  - {node: 4, device: 3, state: degraded, speed: 0.5, link: 1, why: \"hot\"}\n";

typedef struct bench {
    weft_arena            *a;
    weft_cluster          *k;
    weft_cost_constants   *c;
    weft_hardware         *h;
    weft_config            config;
    weft_search_machines   m;
    weft_search_problem    p;
    weft_search_result    *r;
    weft_planner_placement at;
} bench;

static void open_bench(bench *b, const char *line, const char *text, int layers,
                       int batch)
{
    weft_search_limits l = weft_search_limits_of("weft");
    memset(b, 0, sizeof *b);
    assert_ok(weft_arena_create(&b->a));
    assert_ok(text ? weft_cluster_parse("sick.yaml", text, strlen(text), &b->k)
                   : weft_cluster_load(line, NULL, &b->k));
    assert_ok(weft_cost_constants_create(&b->c));
    assert_ok(weft_search_machines_of(b->k, b->c, b->a, &b->m));
    weft_engine_open(&b->config);
    assert_ok(weft_engine_cluster(b->k, b->a, &b->config, &b->h));
    weft_config *c  = &b->config;
    c->id           = "test";
    c->family       = "gpt";
    c->attn         = "full";
    c->layers       = layers;
    c->hidden       = 4096;
    c->heads        = 32;
    c->ffn_hidden   = 4 * 4096;
    c->seq          = 1024;
    c->vocab        = 50304;
    c->global_batch = batch;
    c->precision    = "fp16";
    c->framework    = "weft";
    c->tp = c->pp = c->cp = 1;
    assert_ok(weft_config_complete("test", c));
    b->p = (weft_search_problem){.machines = &b->m, .batch = batch, .n_best = 4};
    weft_search_open(&b->p.constraints);
    assert_ok(weft_search_transformer(c, b->c, &l, b->a, &b->p.model));
}

static void close_bench(bench *b)
{
    weft_planner_placement_fini(&b->at);
    weft_search_destroy(b->r);
    weft_hardware_destroy(b->h);
    weft_cost_constants_destroy(b->c);
    weft_cluster_destroy(b->k);
    weft_arena_destroy(b->a);
}

static void render(bench *b, const char *model, const char *file, weft_text *t)
{
    weft_report r = {.model     = model,
                     .where     = "a \"cluster\" <here>",
                     .precision = "fp16",
                     .engine    = "weft",
                     .seq       = 1024,
                     .flops     = 1e15,
                     .cluster   = b->k,
                     .constants = b->c,
                     .problem   = &b->p,
                     .result    = b->r,
                     .place     = &b->at};
    assert_ok(weft_report_html(&r, t));
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(t->s, 1, t->n, f), t->n);
    fclose(f);
    check(file);
}

static void text_is_escaped(void **state)
{
    bench     b;
    weft_text t = {0};
    char      file[128];
    (void)state;
    snprintf(file, sizeof file, "%s/sick.html", dir);
    open_bench(&b, NULL, sick, 24, 128);
    assert_ok(weft_search_run(&b.p, &b.r));
    assert_ok(weft_planner_place(&b.p, &b.r->choice[0], b.k, NULL, b.a, &b.at));
    render(&b, "x</title><script>alert(1)</script>\xff\"'&", file, &t);
    assert_null(strstr(t.s, "<script>alert"));
    assert_null(strstr(t.s, "<b>fan"));
    assert_non_null(strstr(t.s, "&lt;script&gt;alert(1)"));
    assert_non_null(strstr(t.s, "&lt;b&gt;fan&lt;/b&gt; &amp; &#39;dust&#39;"));
    assert_non_null(strstr(t.s, "\xef\xbf\xbd")); /* the byte that is no character */
    assert_non_null(strstr(t.s, "class=\"gone\""));
    weft_text_fini(&t);
    close_bench(&b);
}

/* Ten thousand devices are folded, and lie on their kinds. */
static void many_devices(void **state)
{
    bench     b;
    weft_text t = {0};
    char      file[128];
    (void)state;
    snprintf(file, sizeof file, "%s/many.html", dir);
    open_bench(&b, "640 x (8 x a100-80g) + 640 x (8 x h100-80g)", NULL, 96, 5120);
    weft_search_fix(&b.p.constraints, WEFT_KEY_tp, 4);
    weft_search_fix(&b.p.constraints, WEFT_KEY_pp, 16);
    b.p.n_best = 1;
    assert_ok(weft_search_run(&b.p, &b.r));
    assert_ok(weft_planner_place(&b.p, &b.r->choice[0], b.k, NULL, b.a, &b.at));
    int per = b.at.p.n_rank / b.r->choice[0].point.pp;
    for (int r = 0; r < b.at.p.n_rank; r++)
        assert_true(b.r->choice[0].point.kinds[r / per] &
                    b.at.job.kind[b.at.p.device[r]]);
    assert_true(b.at.p.price.total_s <= b.at.plain.total_s * (1 + 1e-9));
    render(&b, "many", file, &t);
    assert_non_null(strstr(t.s, "more like"));
    weft_text_fini(&t);
    close_bench(&b);
}

/* ---- after a loss ---- */

static void few_ranks_move(void **state)
{
    bench         b;
    weft_cluster *lost;
    (void)state;
    open_bench(&b, "9 x (8 x a100-80g)", NULL, 24, 128);
    weft_search_fix(&b.p.constraints, WEFT_KEY_tp, 2);
    weft_search_fix(&b.p.constraints, WEFT_KEY_pp, 4);
    weft_search_fix(&b.p.constraints, WEFT_KEY_dp, 8);
    assert_ok(weft_search_run(&b.p, &b.r));
    assert_ok(weft_planner_place(&b.p, &b.r->choice[0], b.k, NULL, b.a, &b.at));
    assert_ok(weft_cluster_change(b.k, "cordon node 3", &lost));
    int here = 0;
    for (int r = 0; r < b.at.p.n_rank; r++)
        here += weft_cluster_node(b.k, b.at.p.device[r], NULL) == 3;
    weft_planner_was       was = {.mesh = b.at.mesh, .device = b.at.p.device};
    weft_planner_placement now;
    weft_search_machines   m;
    assert_ok(weft_search_machines_of(lost, b.c, b.a, &m));
    b.p.machines = &m;
    assert_ok(weft_planner_place(&b.p, &b.r->choice[0], lost, &was, b.a, &now));
    assert_true(now.kept);
    assert_int_equal(now.n_moved, here);
    int moved = 0;
    for (int r = 0; r < now.p.n_rank; r++) {
        assert_int_not_equal(weft_cluster_node(lost, now.p.device[r], NULL), 3);
        moved += now.p.device[r] != b.at.p.device[r];
    }
    assert_int_equal(moved, here);
    weft_planner_placement_fini(&now);
    /* fewer replicas: those go that lost devices, nobody else moves */
    weft_search_choice x = b.r->choice[0];
    x.point.dp           = 4;
    assert_ok(weft_planner_place(&b.p, &x, lost, &was, b.a, &now));
    assert_true(now.kept);
    assert_int_equal(now.n_moved, 0);
    weft_planner_placement_fini(&now);
    weft_cluster_destroy(lost);
    close_bench(&b);
}

/* The same from the command line: cordon a node, plan again beside the old plan. */
static void the_command_keeps_ranks(void **state)
{
    char line[2048], text[16384];
    (void)state;
    snprintf(
        line, sizeof line,
        "cd %s && W=%s && $W cluster show '3 x (2 x a100-80g)' --yaml -o c.yaml && "
        "$W plan --model tiny --cluster c.yaml --batch 16 --seq 64 pp=2 dp=2 -o "
        "p.json && $W cluster show c.yaml --change 'cordon node 0 why ECC' --yaml -o "
        "d.yaml && $W plan --model tiny --cluster d.yaml --batch 16 --seq 64 pp=2 "
        "dp=2 --was p.json --json --html was.html 2>&1",
        dir, WEFT_TEST_COMMAND);
    if (shell(line, text, sizeof text)) fail_msg("%s", text);
    if (!strstr(text, "\"device_of_rank\": [4, 5, 2, 3], \"ranks_moved\": 2"))
        fail_msg("%s", text);
    snprintf(line, sizeof line, "%s/was.html", dir);
    check(line);
    snprintf(line, sizeof line, "grep -c '2 of 4 ranks move' %s/was.html", dir);
    shell(line, text, sizeof text);
    assert_string_equal(text, "1\n");
}

/* ---- in a browser ---- */

static void chromium_is_content(void **state)
{
    char line[512], text[8192];
    (void)state;
    if (WEFT_TEST_SANITIZED || shell("command -v chromium", text, sizeof text)) skip();
    snprintf(line, sizeof line,
             "timeout 60 chromium --headless --no-sandbox --disable-gpu "
             "--enable-logging=stderr --user-data-dir=%s/chromium --dump-dom "
             "file://%s/page.html 2>&1 >%s/dom.html | grep CONSOLE",
             dir, dir, dir);
    shell(line, text, sizeof text);
    if (*text) fail_msg("%s", text);
    snprintf(line, sizeof line, "grep -c 'id=\"tip\"' %s/dom.html", dir);
    shell(line, text, sizeof text);
    if (strcmp(text, "1\n")) skip(); /* it did not start here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {test_plain(pages),
                                       test_plain(text_is_escaped),
                                       test_sanitized(many_devices),
                                       cmocka_unit_test(few_ranks_move),
                                       test_sanitized(the_command_keeps_ranks),
                                       cmocka_unit_test(chromium_is_content)};
    strcpy(dir, "/tmp/weft-report-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    int  bad = cmocka_run_group_tests(tests, NULL, NULL);
    char line[128], text[16];
    snprintf(line, sizeof line, "rm -rf %s", dir);
    shell(line, text, sizeof text);
    return bad;
}
