#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "cluster/cluster.h"

static const char two_kinds[] =
    "name: mixed\n"
    "device:\n"
    "  - {name: h100, flops: {bf16: 9.89e14, f32: 6.7e13}, efficiency: 0.7, mem_Bps: "
    "3.35e12,\n"
    "     mem_bytes: 80000000000, launch_s: 4e-06, half_size: 300, "
    "attention: 0.5, stream: 0.85, efficiency_of: {bf16: 0.6}}\n"
    "  - {name: cpu, flops: {f32: 1e11}, mem_Bps: 1e10, mem_bytes: 64000000000}\n"
    "link:\n"
    "  - {name: nvlink, alpha_s: 2e-06, Bps: 4.5e11}\n"
    "  - {name: ib, alpha_s: 5e-06, Bps: 5e10}\n"
    "node:\n"
    "  - {name: box, count: 1250, device: h100, n_device: 8, link: nvlink}\n"
    "  - {name: host, count: 3, device: cpu}\n"
    "net: ib\n";

static void questions(void **state)
{
    (void)state;
    weft_cluster *c;
    assert_int_equal(weft_cluster_parse("t", two_kinds, strlen(two_kinds), &c), WEFT_OK);
    assert_int_equal(weft_cluster_count(c), 10003);
    assert_string_equal(weft_cluster_device(c, 9999)->name, "h100");
    assert_string_equal(weft_cluster_device(c, 10002)->name, "cpu");
    assert_null(weft_cluster_device(c, 10003));
    assert_string_equal(weft_cluster_link(c, 8, 15)->name, "nvlink");
    assert_string_equal(weft_cluster_link(c, 7, 8)->name, "ib");
    assert_string_equal(weft_cluster_link(c, 10000, 10001)->name, "ib");
    assert_null(weft_cluster_link(c, 0, 10003));
    assert_true(weft_cluster_flops(&c->device[0], "bf16") == 9.89e14);
    assert_true(weft_cluster_flops(&c->device[1], "bf16") == 1e11);
    weft_cluster_destroy(c);
}

static void text_and_back(void **state)
{
    (void)state;
    weft_cluster *c, *d;
    weft_text     a = {0}, b = {0};
    assert_int_equal(weft_cluster_parse("t", two_kinds, strlen(two_kinds), &c), WEFT_OK);
    assert_int_equal(weft_cluster_print(c, &a), WEFT_OK);
    if (weft_cluster_parse("again", a.s, a.n, &d) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_int_equal(weft_cluster_print(d, &b), WEFT_OK);
    assert_string_equal(a.s, b.s);
    assert_int_equal(d->node[0].count, 1250);
    assert_true(d->device[0].launch_s == 4e-06 && d->device[1].efficiency == 1);
    weft_text_fini(&a);
    weft_text_fini(&b);
    weft_cluster_destroy(c);
    weft_cluster_destroy(d);
}

static void this_host(void **state)
{
    (void)state;
    weft_cluster         *c;
    weft_cluster_measured m = {.n_device = 4, .f32_flops = 5e10};
    assert_int_equal(weft_cluster_this_host(NULL, &c), WEFT_OK);
    assert_int_equal(weft_cluster_count(c), 1);
    weft_cluster_destroy(c);
    assert_int_equal(weft_cluster_this_host(&m, &c), WEFT_OK);
    assert_int_equal(weft_cluster_count(c), 4);
    assert_true(weft_cluster_flops(weft_cluster_device(c, 3), "f32") == 5e10);
    assert_non_null(weft_cluster_link(c, 0, 3));
    weft_cluster_destroy(c);
}

static void bad_ones(void **state)
{
    (void)state;
    static const char *const text[][2] = {
        {"name: x\n", "no nodes"},
        {"name: x\nnodes: []\n", "did you mean 'node'"},
        {"name: x\ndevice: 3\n", "expected a list"},
        {"name: x\nnode:\n  - {name: a, device: b}\n", "no such device"},
        {"name: x\ndevice:\n  - {name: b, flops: {f32: 0}, mem_Bps: 1, mem_bytes: 1}\n"
         "node:\n  - {name: a, device: b}\n",
         "above 0"},
        {"name: x\ndevice:\n  - {name: b, flops: {f32: 1}, mem_Bps: 1, mem_bytes: 1}\n"
         "node:\n  - {name: a, device: b, count: 2}\n",
         "no net"},
    };
    for (size_t i = 0; i < WEFT_COUNT(text); i++) {
        weft_cluster *c;
        assert_int_equal(weft_cluster_parse("t", text[i][0], strlen(text[i][0]), &c),
                         WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), text[i][1])) fail_msg("%s", weft_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions),
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(this_host),
        cmocka_unit_test(bad_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
