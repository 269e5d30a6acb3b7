/* A copy of a cluster says what the cluster says and outlives it; what is wrong is not copied. */
#include "support/test.h"

#include <stdlib.h>

#include "cluster/cluster.h"

static char *text_of(const weft_cluster *c)
{
    weft_text t = {0};
    assert_ok(weft_cluster_print(c, &t));
    return t.s;
}

static void copies(void **state)
{
    static const struct {
        const char *name, *event; /* event NULL: none */
    } rows[] = {
        {"1 x (1 x t4)", NULL},
        {"2 x (8 x a100-80g), 1 x eth-25g", NULL},
        {"4 x (8 x v100-32g) + 4 x (8 x h100-80g)", "cordon node 3 why ECC errors"},
        {"10 x (8 x h100-80g)", "degrade node 5 device 1 speed 0.5 link 0.25"},
        {"tests/fixtures/planner/timed.yaml", NULL},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
        weft_cluster *c, *d;
        assert_ok(weft_cluster_load(rows[i].name, NULL, &c));
        if (rows[i].event) {
            assert_ok(weft_cluster_change(c, rows[i].event, &d));
            weft_cluster_destroy(c);
            c = d;
        }
        char    *one  = text_of(c);
        uint64_t hash = weft_cluster_hash_constants(c);
        int      n    = weft_cluster_usable(c);
        assert_ok(weft_cluster_copy(c, &d));
        weft_cluster_destroy(c);
        char *two = text_of(d);
        assert_string_equal(one, two);
        assert_true(weft_cluster_hash_constants(d) == hash);
        assert_int_equal(weft_cluster_usable(d), n);
        free(one);
        free(two);
        weft_cluster_destroy(d);
    }
}

static void mistakes_are_not_copied(void **state)
{
    weft_cluster *c, *d = NULL;
    (void)state;
    assert_ok(weft_cluster_load("2 x (8 x a100-80g)", NULL, &c));
    c->node[0].device = 99;
    assert_fails(weft_cluster_copy(c, &d), WEFT_ERR_ARG, "device");
    assert_null(d);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(copies),
        cmocka_unit_test(mistakes_are_not_copied),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
