/* Advice about a configuration: each change fits, is faster, and is of one option that the engine
 * has; where none helps, a plan of the search. */
#include "search/advice.h"

#include <stdlib.h>

#include "bench.h"

typedef struct asked {
    bench              b;
    weft_search_limits limits;
    weft_prediction    now;
    weft_search_advice advice;
} asked;

static void open_asked(asked *x, const char *cluster, const sizes *z, int tp, int pp,
                       int dp, int micro_batch)
{
    open_bench(&x->b, cluster, z, "megatron");
    x->limits      = weft_search_limits_of("megatron");
    weft_config *c = &x->b.config;
    c->tp          = tp;
    c->pp          = pp;
    c->dp          = dp;
    c->micro_batch = micro_batch;
    c->recompute   = "none";
    assert_ok(weft_estimate_row(x->b.h, x->b.c, c, &x->now));
}

static void ask(asked *x, int n_most)
{
    weft_config                was = x->b.config;
    weft_search_advice_request q   = {.config    = &x->b.config,
                                      .now       = &x->now,
                                      .hardware  = x->b.h,
                                      .constants = x->b.c,
                                      .cluster   = x->b.k,
                                      .limits    = &x->limits,
                                      .n_most    = n_most};
    assert_ok(weft_search_advise(&q, x->b.a, &x->advice));
    assert_memory_equal(&was, &x->b.config, sizeof was);
}

/* Options in which two configurations differ; dp follows the others. */
static int count_changed(const weft_config *a, const weft_config *b)
{
    return (a->tp != b->tp) + (a->pp != b->pp) + (a->cp != b->cp) + (a->ep != b->ep) +
           (a->micro_batch != b->micro_batch) + (a->zero != b->zero) +
           (strcmp(a->recompute, b->recompute) != 0) +
           (a->flash_attention != b->flash_attention);
}

static void check_changes(const asked *x)
{
    const weft_search_advice *v = &x->advice;
    double                    s = 0;
    for (int i = 0; i < v->n_change; i++) {
        const weft_search_change *k = &v->change[i];
        weft_prediction           p;
        assert_true(k->predicted.fits && k->predicted.step_s >= s);
        s = k->predicted.step_s;
        if (x->now.fits) assert_true(s <= 0.995 * x->now.step_s);
        assert_ok(weft_estimate_row(x->b.h, x->b.c, &k->config, &p));
        assert_true(p.step_s >= s && p.step_s <= s);
        /* sp may go with tp, chunks with pp: at most one of what is counted */
        assert_true(count_changed(&k->config, &x->b.config) <= 1);
        assert_int_equal(k->config.dp * k->config.tp * k->config.pp * k->config.cp,
                         x->b.config.dp * x->b.config.tp * x->b.config.pp *
                             x->b.config.cp);
        assert_true(*k->text);
    }
}

static bool has_text(const weft_search_advice *v, const char *part)
{
    for (int i = 0; i < v->n_change; i++)
        if (strstr(v->change[i].text, part)) return true;
    return false;
}

static const sizes seven = {32, 4096, 32, 2048, 50304, 0, 512};

/* 7B with tensor groups of 8 on 64 devices: smaller groups are faster. */
static void test_faster(void **state)
{
    asked *x = calloc(1, sizeof *x);
    (void)state;
    open_asked(x, "8 x (8 x a100-80g)", &seven, 8, 1, 8, 1);
    assert_true(x->now.fits);
    ask(x, 3);
    assert_int_equal(x->advice.n_change, 3);
    assert_string_equal(x->advice.change[0].text, "tp 8 -> 4 (dp 8 -> 16)");
    assert_null(x->advice.plan);
    check_changes(x);
    double third = x->advice.change[2].predicted.step_s;
    ask(x, 32);
    assert_true(x->advice.n_change > 3);
    assert_true(x->advice.change[2].predicted.step_s >= third &&
                x->advice.change[2].predicted.step_s <= third);
    check_changes(x);
    close_bench(&x->b);
    free(x);
}

/* What the engine has no option for is no advice. */
static void test_limits(void **state)
{
    asked *x = calloc(1, sizeof *x);
    (void)state;
    open_asked(x, "8 x (8 x a100-80g)", &seven, 8, 1, 8, 1);
    ask(x, 32);
    assert_true(has_text(&x->advice, "sequence parallelism on"));
    assert_true(has_text(&x->advice, "zero 0 -> 1"));
    x->limits.sp   = false;
    x->limits.zero = 1;
    ask(x, 32);
    assert_false(has_text(&x->advice, "sequence parallelism on"));
    assert_false(has_text(&x->advice, "zero 0 ->"));
    check_changes(x);
    close_bench(&x->b);
    free(x);
}

/* It does not fit: changes that make it fit, a plan where none does, or why there is none. */
static void test_does_not_fit(void **state)
{
    static const sizes large = {96, 12288, 96, 2048, 50304, 0, 512};
    asked             *x     = calloc(1, sizeof *x);
    (void)state;
    open_asked(x, "8 x (8 x a100-80g)", &seven, 1, 1, 64, 1);
    assert_false(x->now.fits);
    ask(x, 3);
    assert_true(x->advice.n_change > 0);
    assert_null(x->advice.plan);
    check_changes(x);
    close_bench(&x->b);

    open_asked(x, "32 x (8 x a100-80g)", &large, 2, 1, 128, 1);
    assert_false(x->now.fits);
    x->limits.zero = x->limits.zero_pp = 1; /* states of optimizers are not sharded */
    ask(x, 3);
    assert_int_equal(x->advice.n_change, 0);
    assert_true(x->advice.any_fits);
    assert_non_null(strstr(x->advice.plan, " zero=0 "));
    close_bench(&x->b);

    open_asked(x, "1 x (8 x a100-80g)", &large, 8, 1, 1, 1);
    ask(x, 3);
    assert_int_equal(x->advice.n_change, 0);
    assert_false(x->advice.any_fits);
    assert_non_null(strstr(x->advice.plan, "nothing fits"));
    close_bench(&x->b);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faster),
                                       cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_does_not_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
