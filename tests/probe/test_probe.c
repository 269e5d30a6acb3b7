/* This machine, looked at and measured: sane numbers, and a cluster that reads back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "probe/probe.h"
#include "support/files.h"

static void discovered(void **state)
{
    (void)state;
    weft_cluster *c;
    if (weft_probe_discover(&c) != WEFT_OK) fail_msg("%s", weft_error_text());
    assert_true(weft_cluster_count(c) >= 1);
    assert_true(c->device[0].mem_bytes > 1 << 20);
    assert_true(weft_cluster_flops(&c->device[0], "f32") > 1e8);
    assert_true(strlen(c->device[0].source) > 4);
    weft_cluster_destroy(c);
}

static void measured(void **state)
{
    (void)state;
    weft_probe_numbers n = {0};
    weft_cluster      *c;
    weft_pool         *pool;
    assert_int_equal(weft_pool_create(1, 0, &pool), WEFT_OK);
    assert_int_equal(weft_probe_device(pool, 1, &n), WEFT_OK);
    weft_pool_destroy(pool);
    assert_true(n.flops > 1e8 && n.mem_Bps > 1e7 && n.launch_s >= 0 && n.launch_s < 1e-2);
    for (int i = 0; i < n.n_point; i++)
        assert_true(n.point[i].share > 0 && n.point[i].share <= 1);
    n.alpha_s = 1e-6, n.Bps = 1e9;
    if (weft_probe_cluster(&n, 2, &c) != WEFT_OK) fail_msg("%s", weft_error_text());
    assert_int_equal(weft_cluster_count(c), 2);
    assert_true(weft_cluster_link(c, 0, 1)->Bps == 1e9);
    /* the cluster has what was measured */
    int last = c->device[0].n_point - 1;
    assert_int_equal(last, n.n_point - 1);
    assert_true(fabs(c->device[0].point[last].share - n.point[last].share) < 1e-9);
    weft_cluster_destroy(c);
}

/* Hosts like one, joined by wires that were timed; the one is not needed any more. */
static void hosts_are_joined(void **state)
{
    static const char one[] =
        "name: one\n"
        "device: [{name: d, flops: {f32: 1e12}, mem_Bps: 1e11, mem_bytes: 1000000000}]\n"
        "link: [{name: memory, alpha_s: 1e-06, Bps: 1e10}]\n"
        "node: [{name: n, count: 1, device: d, n_device: 2, link: memory}]\n";
    weft_probe_wire wire = {.alpha_s = 2e-5, .Bps = 1e9};
    weft_cluster   *c, *all = NULL;
    (void)state;
    if (weft_cluster_parse("one", one, strlen(one), &c) != WEFT_OK ||
        weft_probe_hosts(c, 3, &wire, &all) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    weft_cluster_destroy(c);
    assert_int_equal(weft_cluster_count(all), 6);
    assert_true(weft_cluster_link(all, 0, 1)->Bps == 1e10);
    assert_true(weft_cluster_link(all, 1, 2)->Bps == 1e9);
    assert_string_equal(weft_cluster_link(all, 1, 2)->name, "net");
    assert_int_equal(weft_probe_hosts(all, 2, &wire, &c), WEFT_ERR_ARG);
    weft_cluster_destroy(all);
}

static void cached(void **state)
{
    (void)state;
    char path[1024];
    setenv("XDG_CACHE_HOME", test_files_begin(), 1);
    assert_int_equal(weft_probe_cache_path(1, 2, path, sizeof path), WEFT_OK);
    assert_non_null(strstr(path, "/weft/cluster-"));
    assert_int_equal(weft_probe_cache_path(1, 2, path, 8), WEFT_ERR_ARG);
    test_files_end();
}

/* As a calibration of this host's two GPUs says. */
static void gpus_as_jobs_use_them(void **state)
{
    static const char two[] =
        "name: gpus\n"
        "device: [{name: own, like: h200-141g, mem_Bps: 3e12, mem_bytes: 1000000000}]\n"
        "node: [{name: host, device: own, n_device: 2, link: nvlink4}]\n";
    char          path[1024];
    const int     both[] = {2, 2}, unlike[] = {2, 1}, three[] = {3};
    weft_cluster *c;
    (void)state;
    setenv("XDG_CACHE_HOME", test_files_begin(), 1);
    assert_int_equal(weft_probe_gpu_cache_path(path, sizeof path), WEFT_OK);
    test_files_write(path, two, sizeof two - 1);
    /* one each, on one host and on two, alike and not */
    assert_int_equal(weft_probe_gpu_hosts(1, both, false, &c), WEFT_OK);
    assert_int_equal(weft_cluster_count(c), 2);
    assert_true(weft_cluster_is_cuda(c));
    assert_string_equal(weft_cluster_link(c, 0, 1)->name, "nvlink4");
    weft_cluster_destroy(c);
    assert_int_equal(weft_probe_gpu_hosts(2, both, false, &c), WEFT_OK);
    assert_int_equal(weft_cluster_count(c), 4);
    assert_int_equal(weft_cluster_n_node(c), 2);
    assert_true(weft_cluster_link(c, 1, 2) && weft_cluster_link(c, 1, 2)->Bps > 0);
    weft_cluster_destroy(c);
    assert_int_equal(weft_probe_gpu_hosts(2, unlike, false, &c), WEFT_OK);
    assert_int_equal(weft_cluster_count(c), 3);
    weft_cluster_destroy(c);
    /* one together: each has a part of its memory */
    assert_int_equal(weft_probe_gpu_hosts(1, three, true, &c), WEFT_OK);
    assert_int_equal(weft_cluster_count(c), 3);
    assert_int_equal(weft_cluster_device(c, 0)->mem_bytes, 1000000000 / 3);
    weft_cluster_destroy(c);
    /* more than there are; of several hosts nothing is known of shared ones */
    assert_int_equal(weft_probe_gpu_hosts(1, three, false, &c), WEFT_ERR_ARG);
    assert_string_equal(weft_error_text(), "3 ranks of a host, and 2 GPUs are here");
    assert_int_equal(weft_probe_gpu_hosts(2, both, true, &c), WEFT_ERR_ARG);
    test_files_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(discovered),
        cmocka_unit_test(measured),
        cmocka_unit_test(hosts_are_joined),
        cmocka_unit_test(cached),
        cmocka_unit_test(gpus_as_jobs_use_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
