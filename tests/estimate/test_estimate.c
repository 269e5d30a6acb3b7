#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "estimate/batch.h"
#include "estimate/describe.h"
#include "estimate/hardware.h"

#define DIR "tests/fixtures/estimate"

static weft_estimate_batch *batch;
static weft_cost_constants *constants;

static int load(void **state)
{
    (void)state;
    if (weft_cost_constants_create(&constants) != WEFT_OK) return 1;
    return weft_estimate_batch_load(DIR "/rows.csv", DIR, &batch) != WEFT_OK;
}

static int unload(void **state)
{
    (void)state;
    weft_estimate_batch_destroy(batch);
    weft_cost_constants_destroy(constants);
    return 0;
}

static weft_prediction of(const char *id)
{
    weft_prediction p = {0};
    for (int i = 0; i < weft_estimate_batch_count(batch); i++)
        if (!strcmp(weft_estimate_batch_id(batch, i), id)) {
            if (weft_estimate_batch_row(batch, constants, i, &p) != WEFT_OK)
                fail_msg("%s", weft_error_text());
            return p;
        }
    fail_msg("no row %s", id);
    return p;
}

/* 128 sequences of 8192 through 8e9 parameters on 64 devices: between the peak and a tenth of it.
 */
static void plausible(void **state)
{
    (void)state;
    weft_prediction p     = of("dense");
    double          flops = 6 * 8.0e9 * 128 * 8192 / 64;
    assert_true(p.step_s > flops / 9.89e14 && p.step_s < 5 * flops / 9.89e14);
    assert_true(p.step_lo < p.step_s && p.step_s < p.step_hi);
    assert_true(p.fits && p.mem_bytes > 8e9 && p.mem_bytes < 80e9);
    const weft_cost_score *s = &p.score;
    double sum = s->compute_s + s->comm_s + s->host_s + s->again_s + s->bubble_s +
                 s->p2p_s + s->dp_s + s->optimizer_s + s->fixed_s;
    assert_true(fabs(sum / p.step_s - 1) < 1e-9);
    double bytes = s->weight_bytes + s->state_bytes + s->keep_bytes + s->work_bytes +
                   s->engine_bytes;
    assert_true(fabs(bytes / p.mem_bytes - 1) < 1e-9);
}

/* A knob left open is the best that fits, and the interval is wider. */
static void open_knobs(void **state)
{
    (void)state;
    weft_prediction p = of("open"), q = of("dense");
    assert_true(p.fits && p.micro_batch >= 1 && p.chunks >= 1);
    assert_true(p.step_hi / p.step_lo > q.step_hi / q.step_lo);
}

static weft_prediction with(const char *id, const char *recompute, int modules)
{
    weft_config     c = {0};
    weft_prediction p = {0};
    weft_csv       *t;
    weft_hardware  *h;
    assert_int_equal(weft_csv_load(DIR "/rows.csv", &t), WEFT_OK);
    assert_int_equal(weft_hardware_load(DIR, &h), WEFT_OK);
    for (int i = 0; i < t->n_row; i++)
        if (!strcmp(weft_csv_cell(t, i, weft_csv_column(t, "id")), id))
            assert_int_equal(weft_config_read(t, i, &c), WEFT_OK);
    c.recompute         = recompute;
    c.recompute_modules = modules;
    if (weft_estimate_row(h, constants, &c, &p) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    weft_csv_destroy(t);
    weft_hardware_destroy(h);
    return p;
}

/* What is cheap runs again: a little slower and a little less memory than nothing; the more of
 * it, the more so. */
static void light_lies_between(void **state)
{
    static const char *const id[] = {"dense", "experts"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        weft_prediction none = with(id[i], "none", -1), full = with(id[i], "full", -1);
        weft_prediction light = with(id[i], "light", -1);
        weft_prediction more =
            with(id[i], "light", WEFT_AGAIN_CHEAP | WEFT_AGAIN_MLP | WEFT_AGAIN_MOE);
        assert_true(none.mem_bytes > light.mem_bytes &&
                    light.mem_bytes > more.mem_bytes && more.mem_bytes > full.mem_bytes);
        assert_true(none.step_s < light.step_s && light.step_s < more.step_s &&
                    more.step_s < full.step_s);
        assert_true(light.step_s / none.step_s - 1 <
                    0.25 * (full.step_s / none.step_s - 1));
    }
}

static void other_shapes(void **state)
{
    (void)state;
    weft_prediction moe = of("experts"), mix = of("mixed"), any = of("unknown");
    assert_true(moe.step_s > 0 && isfinite(moe.mem_bytes));
    assert_true(any.step_s > 0 && any.fits);
    assert_false(of("too, big").fits);
    /* the T4 stage has 3 of 24 layers; giving it more makes the step slower */
    assert_true(mix.step_s > 0.2 && mix.step_s < 20);
}

static weft_status text(const char *csv, weft_prediction *p)
{
    weft_csv      *c;
    weft_config    x;
    weft_hardware *h;
    WEFT_TRY(weft_csv_parse("t.csv", csv, strlen(csv), &c));
    weft_status st = weft_config_read(c, 0, &x);
    if (st == WEFT_OK) st = weft_hardware_load(DIR, &h);
    if (st == WEFT_OK) {
        st = weft_estimate_row(h, constants, &x, p);
        weft_hardware_destroy(h);
    }
    weft_csv_destroy(c);
    return st;
}

#define HEAD                                                                             \
    "id,hw,net,n_node,dev_per_node,layers,hidden,seq,global_batch,tp,pp,micro_batch,"    \
    "recompute,precision,stage_layers,stage_hw\n"

static void mixed_balance(void **state)
{
    (void)state;
    weft_prediction even, less;
    const char     *mix = HEAD
        "a,v100-16g*4+t4*4,mix_v100_10g_t4_50g,2,4,24,1024,1024,32,1,2,1,none,fp16,%s,";
    char one[512], two[512];
    snprintf(one, sizeof(one), mix, "12-12");
    snprintf(two, sizeof(two), mix, "18-6");
    assert_int_equal(text(one, &even), WEFT_OK);
    assert_int_equal(text(two, &less), WEFT_OK);
    assert_true(less.step_s > 0 && even.step_s > 0 && less.step_s != even.step_s);
}

static void errors(void **state)
{
    (void)state;
    weft_prediction p;
    const struct {
        const char *text, *want;
    } bad[] = {
        {HEAD "a,h100-80g,,1,8,24,2048,2048,0,1,1,1,,bf16,,\n",
         "t.csv:2: global_batch: 0 is not"},
        {HEAD "a,h100-80g,,1,8,,2048,2048,8,1,1,1,,bf16,,\n", "t.csv:2: layers: missing"},
        {HEAD "a,h100-80g,,1,8,2x,2048,2048,8,1,1,1,,bf16,,\n", "whole number"},
        {HEAD "a,abacus,,1,8,24,2048,2048,8,1,1,1,,bf16,,\n", "abacus"},
        {HEAD "a,h100-80g,,1,8,24,2048,2048,8,5,1,1,,bf16,,\n", "does not divide"},
        {HEAD "a,\"h100-80g,,1\n", "a quote is not closed"},
        {HEAD "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q\n", "17 cells under 16 columns"},
        {"", "no header"},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        assert_int_equal(text(bad[i].text, &p), WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), bad[i].want))
            fail_msg("'%s' does not say '%s'", weft_error_text(), bad[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plausible),          cmocka_unit_test(open_knobs),
        cmocka_unit_test(light_lies_between), cmocka_unit_test(other_shapes),
        cmocka_unit_test(mixed_balance),      cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
