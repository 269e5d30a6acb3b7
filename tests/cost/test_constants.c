#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cost/constants.h"

/* No constant lies beyond its physical limits, and every kind is found by its name. */
static void limits(void **state)
{
    (void)state;
    weft_cost_constants *c;
    assert_int_equal(weft_cost_constants_create(&c), WEFT_OK);
    for (int f = 0; f < WEFT_COST_N_FAMILY; f++)
        for (int k = 0; k < weft_cost_n_kind(c, (weft_cost_family)f); k++)
            for (int i = 0; i < weft_cost_n_term((weft_cost_family)f); i++) {
                const weft_cost_term *t = weft_cost_term_at((weft_cost_family)f, i);
                double v = weft_cost_value(c, (weft_cost_family)f, k, i, NULL);
                if (!(v >= t->low && v <= t->high))
                    fail_msg("%s.%s is %g, outside of %g to %g",
                             weft_cost_kind_name(c, (weft_cost_family)f, k), t->name, v,
                             t->low, t->high);
            }
    weft_cost_constants_destroy(c);
}

static const char *engine_of(const weft_cost_constants *c, const char *framework)
{
    int k = weft_cost_kind_of(c, WEFT_COST_ENGINE, framework);
    return weft_cost_kind_name(c, WEFT_COST_ENGINE, k);
}

static void names(void **state)
{
    (void)state;
    weft_cost_constants *c;
    weft_cost_engine     e;
    assert_int_equal(weft_cost_constants_create(&c), WEFT_OK);
    assert_string_equal(engine_of(c, "Megatron-LM 2021"), "megatron-lm-2021");
    assert_string_equal(engine_of(c, "Megatron-LM 2022"), "megatron-lm");
    assert_string_equal(engine_of(c, "Megatron-DeepSpeed"), "megatron-deepspeed");
    assert_string_equal(engine_of(c, "NeMo 25.02"), "nemo");
    assert_string_equal(engine_of(c, "an engine nobody named"), "default");
    assert_string_equal(engine_of(c, ""), "default");
    weft_cost_constants_engine(c, "an engine nobody named", &e);
    assert_false(e.known);
    int a100 = weft_cost_kind_of(c, WEFT_COST_DEVICE, "a100-80g");
    int v100 = weft_cost_kind_of(c, WEFT_COST_DEVICE, "v100-16g"); /* no rows */
    assert_true(a100 > 0 && weft_cost_kind_fitted(c, WEFT_COST_DEVICE, a100));
    assert_true(v100 > 0 && !weft_cost_kind_fitted(c, WEFT_COST_DEVICE, v100));
    assert_false(weft_cost_kind_fitted(c, WEFT_COST_DEVICE, 0));
    assert_int_equal(weft_cost_constants_set(c, "engine.default.stream", 1.5), WEFT_OK);
    weft_cost_constants_engine(c, "an engine nobody named", &e);
    assert_true(e.stream == 1.5);
    weft_cost_constants_destroy(c);
}

static void refused(void **state)
{
    (void)state;
    weft_cost_constants *c;
    assert_int_equal(weft_cost_constants_create(&c), WEFT_OK);
    assert_int_equal(weft_cost_constants_set(c, "device.a100.efficiency", 1.9),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "limits"));
    assert_int_equal(weft_cost_constants_set(c, "engine.default.steam", 1), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "did you mean 'stream'"));
    assert_int_equal(weft_cost_constants_set(c, "engine.nobody.stream", 1), WEFT_ERR_ARG);
    assert_int_equal(weft_cost_constants_set(c, "stream", 1), WEFT_ERR_ARG);
    weft_cost_constants_destroy(c);
}

static void fills_devices(void **state)
{
    (void)state;
    weft_cost_constants *c;
    weft_flop_rate       rate[] = {{"f16", 1e14, 0}};
    weft_device_kind d = {.name = "v100-32g", .n_rate = 1, .rate = rate, .mem_Bps = 1};
    weft_cost_wire   w;
    assert_int_equal(weft_cost_constants_create(&c), WEFT_OK);
    d.half_size = 77; /* what is known stays */
    weft_cost_constants_device(c, &d);
    assert_true(d.half_size == 77 && d.efficiency > 0.2 && d.efficiency < 1 &&
                d.stream > 0);
    /* measured: two of a mesh of eight have one link between them */
    weft_cost_constants_link(c, "nvlink2 mesh", 1.5e11, &w);
    assert_true(fabs(w.Bps_2 / 22.6e9 - 1) < 0.02 && fabs(w.Bps / 137.4e9 - 1) < 0.02);
    weft_cost_constants_destroy(c);
}

/* Every pair of framework and device of the rows that constants are fitted to, and some that are
 * not among them. */
static void engines_were_measured(void **state)
{
    static const struct {
        const char *framework, *device;
        bool        was;
    } pair[] = {{"DeepSpeed ZeRO-3", "a100-80g", true},
                {"DeepSpeed/Megatron 1.1.5", "t4", true},
                {"Megatron-Bridge 26.02", "b300", true},
                {"Megatron-Bridge 26.06", "h100-80g", true},
                {"Megatron-Bridge 26.08", "gb300", true},
                {"Megatron-Core 0.8", "h100-80g", true},
                {"Megatron-DeepSpeed", "a100-80g", true},
                {"Megatron-LM 2021", "a100-80g", true},
                {"Megatron-LM 2022", "a100-80g", true},
                {"NeMo", "h100-80g", true},
                {"NeMo/Megatron v3.1 NVIDIA", "h100-80g", true},
                {"in-house FSDP+TP+PP+CP", "h100-80g", true},
                {"nanotron", "h100-80g", true},
                {"torchtitan", "h100-96g-500w", true},
                {"torchtitan", "v100-32g", false},
                {"torchtitan", "ascend910", false},
                {"Megatron-Core", "t4", false},
                {"paddle", "a100-80g", false}};
    weft_cost_constants *c;
    weft_cost_engine     e, wide;
    (void)state;
    assert_int_equal(weft_cost_constants_create(&c), WEFT_OK);
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        weft_cost_constants_engine(c, pair[i].framework, &e);
        wide = e;
        assert_int_equal(weft_cost_was_measured(c, pair[i].framework, pair[i].device),
                         pair[i].was);
        weft_cost_widen(c, pair[i].framework, pair[i].device, &wide);
        assert_true(pair[i].was ? wide.spread == e.spread : wide.spread > e.spread);
        wide = e;
        weft_cost_widen(c, pair[i].framework, "ascend910", &wide);
        assert_true(wide.longest > 2);
    }
    weft_cost_constants_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(limits),
                                       cmocka_unit_test(engines_were_measured),
                                       cmocka_unit_test(names), cmocka_unit_test(refused),
                                       cmocka_unit_test(fills_devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
