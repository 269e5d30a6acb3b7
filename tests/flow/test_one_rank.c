/* Real models as one-rank programs: sound, the same after a round trip through text, simulated; a
 * broken one is refused; and one is run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "compile/compile.h"
#include "exec/exec.h"
#include "support/count_alloc.h"
#include "support/emu.h"
#include "support/exec.h"
#include "support/sim.h"
#include "support/test.h"

static weft_compiled compile(const char *model, int64_t micro_batch, weft_training *t)
{
    weft_compiled     c = {0};
    weft_compile_spec s = weft_compile_spec_default(model, 4, 16);
    s.micro_batch       = micro_batch;
    s.lanes             = 4 / micro_batch;
    assert_ok(weft_compile_training(&s, t));
    assert_ok(weft_compile_program(t, NULL, 0, &c));
    return c;
}

static void programs_hold(void **state)
{
    static const char *const model[] = {"tiny256",    "mlp",      "resnet50",
                                        "bert-large", "t5-large", "mixtral-8x7b",
                                        "llama3-8b"};
    (void)state;
    weft_cluster *host;
    assert_ok(weft_cluster_this_host(NULL, &host));
    for (size_t i = 0; i < WEFT_COUNT(model); i++)
        for (int64_t micro = 4; micro >= 1; micro /= 4) {
            weft_training  t;
            weft_compiled  c = compile(model[i], micro, &t);
            weft_program  *q;
            weft_text      a = {0}, b = {0};
            weft_timeline *line;
            assert_ok(weft_program_verify(c.program));
            assert_ok(weft_program_print(c.program, &a));
            assert_ok(weft_program_parse(model[i], a.s, a.n, &q));
            assert_ok(weft_program_verify(q));
            assert_ok(weft_program_print(q, &b));
            assert_string_equal(a.s, b.s);
            assert_ok(
                test_simulate((const weft_program *const *)&q, 1, host, NULL, &line));
            assert_true(line->step_s > 0 && isfinite(line->step_s));
            /* one stream: never idle */
            assert_true(weft_timeline_idle_s(line, 0, WEFT_STREAM_COMPUTE) <
                        1e-9 * line->total_s);
            weft_timeline_destroy(line);
            weft_program_destroy(q);
            weft_text_fini(&a);
            weft_text_fini(&b);
            weft_compiled_fini(&c);
            weft_training_fini(&t);
        }
    weft_cluster_destroy(host);
}

static bool reads(const weft_instr *i, int32_t buffer)
{
    for (int k = 0; k < i->n_in; k++)
        if (i->in[k].buffer == buffer) return true;
    return false;
}

/* Two instructions of which the second uses what the first makes, exchanged. */
static void wrong_order_is_refused(void **state)
{
    (void)state;
    weft_training t;
    weft_compiled c = compile("tiny256", 2, &t);
    int           n = 0;
    for (int a = 0; a < c.program->n_actor; a++) {
        weft_actor *x = &c.program->actor[a];
        for (int i = 0; i + 1 < x->n_instr; i++) {
            weft_instr first = x->instr[i], second = x->instr[i + 1];
            int32_t    b = first.n_out ? first.out[0].buffer : -1;
            /* what is made in place is there before as well, only with another content */
            if (b < 0 || !reads(&second, b) || reads(&first, b) || first.add) continue;
            if (c.program->slab[c.program->buffer[b].slab].kind != WEFT_SLAB_WORK)
                continue;
            x->instr[i]     = second;
            x->instr[i + 1] = first;
            if (weft_program_verify(c.program) == WEFT_OK)
                fail_msg("%s before %s", second.name, first.name);
            x->instr[i]     = first;
            x->instr[i + 1] = second;
            n++;
        }
    }
    assert_true(n > 20);
    assert_ok(weft_program_verify(c.program));
    weft_compiled_fini(&c);
    weft_training_fini(&t);
}

/* A buffer that lies elsewhere in its slab mostly lies over something that is alive. */
static void wrong_places_are_refused(void **state)
{
    (void)state;
    weft_training t;
    weft_compiled c = compile("tiny256", 2, &t);
    int           n = 0, refused = 0;
    for (int i = 0; i < c.program->n_buffer; i++) {
        weft_buffer *b  = &c.program->buffer[i];
        int64_t      at = b->offset, all = c.program->slab[b->slab].bytes;
        if (!b->bytes || c.program->slab[b->slab].kind != WEFT_SLAB_WORK) continue;
        b->offset = (at + all / 128 * 64) % all / 64 * 64;
        if (b->offset + b->bytes * b->n_slot <= all) {
            n++;
            refused += weft_program_verify(c.program) != WEFT_OK;
        }
        b->offset = at;
    }
    if (n < 50 || refused < n / 2) fail_msg("%d of %d refused", refused, n);
    weft_compiled_fini(&c);
    weft_training_fini(&t);
}

/* ---- running one ---- */

static weft_status give_tokens(void *user, int64_t step, int micro, int n,
                               const weft_view *out)
{
    (void)user;
    for (int k = 0; k < n; k++) {
        int64_t count = weft_shape_count(&out[k].shape);
        for (int64_t i = 0; i < count; i++) {
            int64_t v = (i * 31 + micro * 7 + step * 3 + k) % 256;
            if (out[k].dtype == WEFT_DTYPE_I32)
                ((int32_t *)out[k].p)[i] = (int32_t)v;
            else if (out[k].dtype == WEFT_DTYPE_I64)
                ((int64_t *)out[k].p)[i] = v;
            else
                return WEFT_FAIL(WEFT_ERR_ARG, "tokens as %s",
                                 weft_dtype_name(out[k].dtype));
        }
    }
    return WEFT_OK;
}

static float *bound(weft_exec *e, const char *name)
{
    weft_view x;
    assert_ok(weft_exec_binding(e, name, 0, &x));
    return x.p;
}

static void fill_params(weft_exec *e, const weft_program *p)
{
    for (int i = 0; i < p->n_binding; i++) {
        weft_view v;
        if (p->binding[i].kind != WEFT_BIND_PARAM) continue;
        assert_ok(weft_exec_binding(e, p->binding[i].name, 0, &v));
        for (int64_t k = 0; k < weft_shape_count(&v.shape); k++)
            ((float *)v.p)[k] = 0.05f * (float)((k * 7919 + i * 104729) % 41 - 20) / 20;
    }
}

/* Two steps with so many threads; the loss of the last one. */
static float train(const weft_compiled *c, int n_thread)
{
    weft_exec        *e;
    weft_exec_options o    = {.n_thread    = n_thread,
                              .seed        = 1,
                              .batch       = 4,
                              .micro_batch = 1,
                              .read        = give_tokens};
    int64_t           held = weft_device_bytes();
    assert_ok(test_exec_create(c->program, &o, &e));
    weft_exec_memory m = weft_exec_mem(e);
    /* what it says is what it took of the device, each allocation rounded up to a page; tables
     * are the host's */
    int64_t want = m.total_bytes - m.table_bytes;
    held         = weft_device_bytes() - held;
    assert_true(held >= want && held <= want + 4 * 4096);
    fill_params(e, c->program);
    *bound(e, "lr")    = 1e-3f;
    *bound(e, "inv_n") = 1.0f / 64;
    int64_t allocs     = 0;
    for (int step = 0; step < 3; step++) {
        *bound(e, "step") = (float)(step + 1);
        if (step == 1) allocs = weft_test_allocs();
        assert_ok(weft_exec_run(e, step, 1));
    }
    assert_int_equal(weft_test_allocs() - allocs, 0);
    float loss = *bound(e, "step.loss"), norm = *bound(e, "step.grad_norm");
    assert_true(isfinite(loss) && loss > 0 && isfinite(norm) && norm > 0);
    test_exec_destroy(e);
    return loss;
}

static void a_model_runs(void **state)
{
    (void)state;
    weft_training t;
    weft_compiled c   = compile("tiny256", 1, &t);
    float         one = train(&c, 1);
    float         two = train(&c, 2);
    assert_true(one / 64 > 1 && one / 64 < 8); /* about log(256) a token */
    assert_memory_equal(&one, &two, sizeof one);
    weft_compiled_fini(&c);
    weft_training_fini(&t);
}

/* The same program on a device that only lasts, priced as sim prices it. */
static void emu_takes_as_long(void **state)
{
    (void)state;
    enum {
        N_STEP = 10
    };
    weft_training  t;
    weft_compiled  c = compile("tiny256", 1, &t);
    weft_cluster  *host;
    weft_timeline *line;
    weft_device   *d;
    weft_exec     *e;
    double         best = 1e9;
    assert_ok(weft_cluster_this_host(NULL, &host));
    assert_ok(test_simulate((const weft_program *const *)&c.program, 1, host,
                            &(weft_sim_options){.n_step = N_STEP, .no_slices = true},
                            &line));
    assert_int_equal(line->n_slice, 0);
    assert_ok(weft_device_emu_create(&d));
    assert_ok(test_exec_create(
        c.program,
        &(weft_exec_options){.device = {d}, .price = test_emu_price, .price_arg = host},
        &e));
    for (int i = 0; i < 20 && best > 0.05; i++) { /* a busy machine wakes up late */
        double t0 = weft_clock_s();
        assert_ok(weft_exec_run(e, 0, N_STEP));
        double off = fabs((weft_clock_s() - t0) / line->total_s - 1);
        if (off < best) best = off;
    }
    if (best > 0.05) fail_msg("%.1f %% apart", 100 * best);
    test_exec_destroy(e);
    weft_device_emu_destroy(d);
    weft_timeline_destroy(line);
    weft_cluster_destroy(host);
    weft_compiled_fini(&c);
    weft_training_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(programs_hold),
        cmocka_unit_test(wrong_order_is_refused),
        cmocka_unit_test(wrong_places_are_refused),
        cmocka_unit_test(a_model_runs),
        cmocka_unit_test(emu_takes_as_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
