/* Paddle's cluster.json. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cluster/cluster.h"

static void add_machine(weft_text *t, int m, const char *model, int gib)
{
    weft_text_add(t,
                  "%s{\"hostname\": \"m%d\", \"addr\": \"0.0.0.1\", \"port\": \"768\",\n",
                  m ? ",\n" : "", m);
    weft_text_add(t, "\"devices\": [");
    for (int i = 0; i < 2; i++)
        weft_text_add(
            t,
            "{\"global_id\": %d, \"local_id\": %d, \"type\": \"GPU\", \"model\": "
            "\"%s\", \"sp_gflops\": 15700, \"dp_gflops\": 7800, \"memory\": %d},\n",
            4 * m + i, i, model, gib);
    weft_text_add(
        t,
        "{\"global_id\": %d, \"local_id\": 0, \"type\": \"CPU\", \"model\": "
        "\"x\", \"memory\": 503},\n{\"global_id\": %d, \"local_id\": 0, \"type\": "
        "\"NIC\"}],\n\"links\": [",
        4 * m + 2, 4 * m + 3);
    weft_text_add(
        t,
        "{\"source_global_id\": %d, \"target_global_id\": %d, \"type\": \"NVL\", "
        "\"bandwidth\": 252},\n{\"source_global_id\": %d, \"target_global_id\": "
        "%d, \"type\": \"PHB\", \"bandwidth\": 12},\n",
        4 * m, 4 * m + 1, 4 * m, 4 * m + 2);
    weft_text_add(
        t,
        "{\"source_global_id\": %d, \"target_global_id\": %d, \"type\": \"NET\", "
        "\"bandwidth\": 1}]}",
        4 * m + 3, 4 * ((m + 1) % 3) + 3);
}

static void machines(void **state)
{
    (void)state;
    weft_text     t = {0}, again = {0};
    weft_cluster *c, *d;
    weft_text_add(&t,
                  "{\"alpha_latency\": {\"inter\": {\"ring\": \"NET\"}, \"base\": "
                  "{\"ring\": 8.4, \"tree\": 0}, \"switch\": 10.0},\n\"machines\": [");
    add_machine(&t, 0, " Tesla V100-SXM2-32GB", 32);
    add_machine(&t, 1, " Tesla V100-SXM2-32GB", 32);
    add_machine(&t, 2, "A100-SXM4-40GB", 40);
    weft_text_add(&t, "]}");
    if (weft_cluster_parse("cluster.json", t.s, t.n, &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_int_equal(c->n_node, 2);
    assert_int_equal(weft_cluster_count(c), 6);
    assert_int_equal(c->node[0].count, 2);
    assert_string_equal(weft_cluster_device(c, 0)->name, "Tesla V100-SXM2-32GB");
    assert_true(weft_cluster_flops(weft_cluster_device(c, 0), "f16") == 1.25e14);
    assert_true(weft_cluster_flops(weft_cluster_device(c, 5), "bf16") == 3.12e14);
    assert_true(weft_cluster_device(c, 5)->mem_bytes == 40LL << 30);
    assert_true(weft_cluster_link(c, 0, 1)->Bps == 252e9);
    assert_true(weft_cluster_link(c, 0, 5)->Bps == 1e9);
    assert_true(fabs(weft_cluster_link(c, 0, 5)->alpha_s - 8.4e-6) < 1e-12);
    assert_int_equal(weft_cluster_print(c, &again), WEFT_OK);
    assert_int_equal(weft_cluster_parse("ours", again.s, again.n, &d), WEFT_OK);
    assert_true(weft_cluster_hash_constants(c) == weft_cluster_hash_constants(d));
    weft_cluster_destroy(c);
    weft_cluster_destroy(d);
    weft_text_fini(&t);
    weft_text_fini(&again);
}

static void bad_ones(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"{\"machines\": 3}", "f:1: machines: expected a list"},
        {"{\"machines\": [{\n\"devices\": []}]}", "without a GPU"},
        {"{\"machines\": [{\"devices\": [\n{\"type\": \"GPU\"}]}]}", "f:2: global_id"},
        {"{\"machines\": [{\"devices\": [\n{\"type\": \"GPU\", \"global_id\": 0}]}]}",
         "f:2: sp_gflops"},
        {"{\"machines\": [{\"devices\": [{\"type\": \"GPU\", \"global_id\": 0,"
         "\"sp_gflops\": 1, \"memory\": 1}],\n\"links\": [{\"source_global_id\": 0, "
         "\"target_global_id\": 9}]}]}",
         "f:2: a link to a global_id that no device has"},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        weft_cluster *c;
        assert_int_equal(weft_cluster_parse("f", bad[i][0], strlen(bad[i][0]), &c),
                         WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), bad[i][1]))
            fail_msg("%s: %s", bad[i][0], weft_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines),
        cmocka_unit_test(bad_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
