/* Models: sizes as published, tables that tile, round trips, complaints. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "support/same_graph.h"

static weft_model *load(const char *what, weft_model_options o)
{
    weft_model *m;
    if (weft_model_load(what, &o, &m) != WEFT_OK) fail_msg("%s: %s", what, weft_error_text());
    return m;
}

/* ---- published sizes, and layers found by structure ---- */
static const struct {
    const char *name;
    int64_t     weights;
    int         layers; /* of the longest repetition */
} published[] = {
    {"gpt2", 124439808, 12},
    {"gpt2-medium", 354823168, 24},
    {"gpt2-large", 774030080, 36},
    {"gpt2-xl", 1557611200, 48},
    {"gpt3-175b", 174604259328, 96},
    {"mtnlg-530b", 529600819200, 105},
    {"gpt-1t", 1008038758400, 128},
    {"llama3-8b", 8030261248, 32},
    {"llama3-70b", 70553706496, 80},
    {"llama3-405b", 405853388800, 126},
    {"mixtral-8x7b", 46702792704, 32},
    {"bert-large", 335174458, 24},
};

static void sizes_as_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(published); i++) {
        weft_model_options o = {.with_loss = true, .seq = 128};
        weft_model        *m = load(published[i].name, o);
        weft_graph_layers  l;
        assert_int_equal(weft_graph_find_layers(m->graph, &l), WEFT_OK);
        if (weft_model_weights(m) != published[i].weights)
            fail_msg("%s: %lld weights", published[i].name, (long long)weft_model_weights(m));
        if (l.count != published[i].layers)
            fail_msg("%s: %d layers found", published[i].name, l.count);
        weft_model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_as_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
