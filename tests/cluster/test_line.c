/* One-line descriptions, and kinds that can be named. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cluster/cluster.h"
#include "support/files.h"

static weft_cluster *load(const char *line)
{
    weft_cluster *c = NULL;
    if (weft_cluster_load(line, NULL, &c) != WEFT_OK)
        fail_msg("%s: %s", line, weft_error_text());
    return c;
}

static void same_again(const weft_cluster *c)
{
    weft_text     a = {0}, b = {0};
    weft_cluster *d;
    assert_int_equal(weft_cluster_print(c, &a), WEFT_OK);
    if (weft_cluster_parse("again", a.s, a.n, &d) != WEFT_OK)
        fail_msg("%s\n%s", weft_error_text(), a.s);
    assert_int_equal(weft_cluster_print(d, &b), WEFT_OK);
    assert_string_equal(a.s, b.s);
    assert_true(weft_cluster_hash_shape(c) == weft_cluster_hash_shape(d));
    assert_true(weft_cluster_hash_constants(c) == weft_cluster_hash_constants(d));
    weft_cluster_destroy(d);
    weft_text_fini(&a);
    weft_text_fini(&b);
}

static void lines(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int         n_node, n_device, n_kind;
        const char *link, *net;
        int         n_port;
    } want[] = {
        {"12 x (8 x a100-80g)", 12, 96, 1, "nvlink3", "ib-hdr", 8},
        {"12 x (8 x a100-80g, nvlink3), ib-hdr", 12, 96, 1, "nvlink3", "ib-hdr", 8},
        {"4x(8xv100-32g)+4x(8xh100-80g)", 8, 64, 2, "nvlink2", "ib-edr", 1},
        {"4 x (8 x h100-80g, 4 x eth-100g)", 4, 32, 1, "nvlink4", "eth-100g", 4},
        {"4 x (8 x h100-80g, pcie5), 2 x ib-xdr", 4, 32, 1, "pcie5", "ib-xdr", 2},
        {"1250 x (8 x h100-80g)", 1250, 10000, 1, "nvlink4", "ib-ndr", 8},
        {"(4 x a100-40g)", 1, 4, 1, "nvlink3", "ib-hdr", 4},
        {"2 x t4", 1, 2, 1, "pcie3-shared", "eth-50g", 1},
        {"cpu", 1, 1, 1, NULL, "eth-10g", 1},
    };
    for (size_t i = 0; i < WEFT_COUNT(want); i++) {
        weft_cluster         *c = load(want[i].line);
        const weft_host_kind *k = &c->node[0];
        assert_int_equal(weft_cluster_n_node(c), want[i].n_node);
        assert_int_equal(weft_cluster_count(c), want[i].n_device);
        assert_int_equal(weft_cluster_usable(c), want[i].n_device);
        assert_int_equal(c->n_node, want[i].n_kind);
        assert_int_equal(c->n_device, want[i].n_kind);
        if (want[i].link)
            assert_string_equal(c->link[k->link].name, want[i].link);
        else
            assert_int_equal(k->link, -1);
        assert_string_equal(c->link[k->net].name, want[i].net);
        assert_int_equal(k->n_port, want[i].n_port);
        same_again(c);
        weft_cluster_destroy(c);
    }
}

/* Every kind can be named, reads back, and says where its numbers are from. */
static void every_kind(void **state)
{
    (void)state;
    static const char *const must[] = {
        "t4",       "v100-16g",      "v100-32g",  "a40",      "a100-40g",
        "a100-80g", "h100-80g",      "b200",      "b300",     "gb200",
        "gb300",    "h100-96g-500w", "h200-141g", "ascend910"};
    weft_cluster *all, *c;
    char          line[128];
    assert_int_equal(weft_cluster_kinds(NULL, &all), WEFT_OK);
    for (int i = 0; i < all->n_device; i++) {
        snprintf(line, sizeof line, "3 x (2 x %s)", all->device[i].name);
        c = load(line);
        same_again(c);
        assert_true(strlen(all->device[i].source) > 4);
        weft_cluster_destroy(c);
    }
    for (int i = 0; i < all->n_link; i++) {
        snprintf(line, sizeof line, "3 x (2 x a100-80g, %s)", all->link[i].name);
        c = load(line);
        weft_cluster_destroy(c);
        assert_true(strlen(all->link[i].source) > 4);
    }
    for (size_t i = 0; i < WEFT_COUNT(must); i++) {
        c = load(must[i]);
        assert_string_equal(c->device[0].name, must[i]);
        weft_cluster_destroy(c);
    }
    weft_cluster_destroy(all);
}

static void hashes(void **state)
{
    (void)state;
    weft_cluster *a = load("12 x (8 x a100-80g)"), *b, *c;
    b               = load("12 x (8 x a100-80g, nvlink3), 8 x ib-hdr");
    c               = load("12 x (8 x a100-80g), ib-edr");
    assert_true(weft_cluster_hash_shape(a) == weft_cluster_hash_shape(b));
    assert_true(weft_cluster_hash_shape(a) != weft_cluster_hash_shape(c));
    a->device[0].efficiency = 0.5;
    assert_true(weft_cluster_hash_shape(a) == weft_cluster_hash_shape(b));
    assert_true(weft_cluster_hash_constants(a) != weft_cluster_hash_constants(b));
    weft_cluster_destroy(a);
    weft_cluster_destroy(b);
    weft_cluster_destroy(c);
}

static void own_kinds(void **state)
{
    (void)state;
    static const char text[] =
        "device:\n"
        "  - {name: mine, like: h100-80g, efficiency: 0.5, usual: {n_device: 2, link: "
        "wire}}\n"
        "  - {name: a40, like: a40, mem_bytes: 1000}\n"
        "link:\n"
        "  - {name: wire, alpha_s: 1e-06, Bps: 7e10}\n";
    test_files_begin();
    const char   *file = test_files_path("kinds.yaml");
    weft_cluster *c;
    test_files_write(file, text, strlen(text));
    assert_int_equal(weft_cluster_load("2 x mine", file, &c), WEFT_OK);
    assert_true(c->device[0].efficiency == 0.5);
    assert_true(weft_cluster_flops(&c->device[0], "bf16") == 9.89e14);
    assert_string_equal(weft_cluster_link(c, 0, 1)->name, "wire");
    weft_cluster_destroy(c);
    assert_int_equal(weft_cluster_load("8 x a40", file, &c), WEFT_OK);
    assert_int_equal(c->device[0].mem_bytes, 1000);
    weft_cluster_destroy(c);
    test_files_end();
}

static void bad_lines(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"12 x (8 x a100-80)", "at 11: there is no device 'a100-80', did you mean"},
        {"a100", "did you mean 'a100-"},
        {"2 x (8 x a100-80g, nvlnk3)", "at 20: there is no link 'nvlnk3', did you mean "
                                       "'nvlink3'?"},
        {"16 x h100-80g", "write 2 x (8 x h100-80g)"},
        {"2 x (8 x a100-80g", "expected ')'"},
        {"2 x (8 x a100-80g) 3", "expected '+', ',' or the end"},
        {"2 x (8 x a100-80g), nvlink3", "between nodes goes a net"},
        {"3 h100-80g", "expected 'x'"},
        {"0 x (8 x a100-80g)", "a count is"},
        {"99999999999 x (8 x a100-80g)", "a count is"},
        {"16777216 x (8 x a100-80g)", "16777216 nodes"},
        {"", "expected the name"},
        {"absent.yaml", "absent.yaml"},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        weft_cluster *c;
        assert_int_equal(weft_cluster_load(bad[i][0], NULL, &c), WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), bad[i][1]))
            fail_msg("%s: %s", bad[i][0], weft_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),     cmocka_unit_test(every_kind),
        cmocka_unit_test(hashes),    cmocka_unit_test(own_kinds),
        cmocka_unit_test(bad_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
