#include "session/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "session/device.h"
#include "session/gpu_memory.h"
#include "session/peak.h"
#include "session/runner.h"
#include "session/weights.h"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static weft_status time_steps(weft_runner *r, const weft_model *m, int n_micro,
                              int64_t steps, double *ms, double *loss)
{
    double labels = (double)(m->n_label * n_micro);
    for (int64_t i = 0; i <= steps; i++) {
        double start = weft_clock_s();
        weft_runner_put(r, "lr", 1e-5);
        weft_runner_put(r, "step", (double)(i + 1));
        weft_runner_put(r, "inv_n", 1 / labels);
        WEFT_TRY(weft_runner_step(r, i));
        if (i) ms[i - 1] = 1e3 * (weft_clock_s() - start); /* the first one warms up */
    }
    WEFT_TRY(weft_runner_settle(r));
    *loss = weft_runner_get(r, "step.loss") / labels;
    return WEFT_OK;
}

weft_status weft_bench_draw_weights(weft_runner *r, const weft_compiled *c,
                                    weft_pool *pool)
{
    weft_weights w = {.model = c->model,
                      .graph = c->graph,
                      .state = weft_runner_state(r),
                      .pool  = pool};
    return weft_weights_init(&w, 1);
}

static void sum_up(const weft_compile_spec *s, const weft_compiled *c, double *ms,
                   int64_t steps, weft_bench_result *out)
{
    double flops  = weft_model_flops(c->model) * c->program->n_micro;
    double tokens = (double)(s->batch * (c->model->seq ? c->model->seq : 1));
    memcpy(out->step_ms, ms, sizeof *ms * (size_t)steps);
    qsort(ms, (size_t)steps, sizeof *ms, by_size);
    out->steps = steps;
    out->step_ms_median =
        steps % 2 ? ms[steps / 2] : (ms[steps / 2 - 1] + ms[steps / 2]) / 2;
    out->step_ms_min  = ms[0];
    out->gflops       = flops / out->step_ms_median / 1e6;
    out->tokens_per_s = 1e3 * tokens / out->step_ms_median;
    out->weights      = weft_model_weights(c->model);
    out->batch        = s->batch;
    out->micro_batch  = s->micro_batch;
    out->seq          = c->model->seq;
}

enum {
    TRACED_STEPS = 3
};

/* After the timed runner is gone: times of instructions, where the device learns them later. */
static weft_status time_classes(const weft_runner_options *with, weft_bench_result *b)
{
    weft_runner_options o = *with;
    weft_runner        *r = NULL;
    weft_timeline      *t = NULL;
    double              ms[TRACED_STEPS + 1], loss;
    weft_status         st = WEFT_OK;
    o.trace                = weft_runner_instructions(o.made->program);
    WEFT_GO(weft_runner_create(&o, &r));
    WEFT_GO(
        time_steps(r, o.made->model, o.made->program->n_micro, TRACED_STEPS, ms, &loss));
    WEFT_GO(weft_runner_timeline(r, &t));
    weft_classes_sum(t, b->step_ms_median, b->class_ms);
    b->has_classes = true;
out:
    weft_timeline_destroy(t);
    weft_runner_destroy(r);
    return st;
}

/* Of a GPU: slabs, scratch and workspaces.  Tables are the host's. */
static int64_t count_memory(const weft_runner *r, const weft_device *d,
                            const weft_program *p, const weft_training *t)
{
    const weft_state  *state = weft_runner_state(r);
    weft_runner_memory m     = weft_runner_mem(r);
    m.bytes += weft_state_memory(state)->bytes;
    if (d->facts)
        return m.bytes - m.table_bytes - weft_program_bytes(p, WEFT_SLAB_HOST_WORK);
    m.bytes += weft_state_host_memory(state)->bytes;
    return m.bytes + weft_state_bytes(state) + weft_training_bytes(t);
}

/* Before anything is allocated on a GPU: the line of a training job. */
static weft_status refuse_memory(const weft_compile_spec *s, const weft_compiled *c,
                                 weft_device *d, const weft_device_facts *facts,
                                 const weft_gpu_bytes *part)
{
    weft_gpu_remedies remedies;
    weft_gpu_fit      fit = {.spec        = *s,
                             .given_lanes = s->lanes > 0,
                             .device      = d,
                             .n_rank      = 1,
                             .keeps_ranks = true,
                             .as_options  = true};
    weft_gpu_find_remedies(&fit, facts->free_bytes, &remedies);
    return weft_gpu_refuse(&(weft_gpu_shortage){.model  = c->model->name,
                                                .where  = d->name,
                                                .n_rank = 1,
                                                .need   = weft_gpu_sum(part),
                                                .have   = facts->free_bytes,
                                                .part   = *part,
                                                .others = facts->other_bytes},
                           &remedies);
}

static weft_status check_memory(const weft_compile_spec *s, const weft_compiled *c,
                                weft_device *d)
{
    weft_device_facts facts;
    weft_gpu_bytes    part;
    WEFT_TRY(weft_gpu_check_offload((int)s->offload, d));
    if (!d->facts) return WEFT_OK;
    WEFT_TRY(d->facts(d, &facts));
    WEFT_TRY(weft_gpu_need(c->program, d, &part));
    return weft_gpu_sum(&part) <= facts.free_bytes
               ? WEFT_OK
               : refuse_memory(s, c, d, &facts, &part);
}

/* After kernels were chosen: what the device does without. */
static void note_warning(weft_device *d, weft_bench_result *b)
{
    weft_device_facts facts;
    if (!d->facts || d->facts(d, &facts) != WEFT_OK || !*facts.warning) return;
    snprintf(b->warning, sizeof b->warning, "%s: %s", d->name, facts.warning);
}

weft_status weft_bench_run(const weft_compile_spec *s, const weft_bench_options *o,
                           weft_bench_result *out)
{
    int64_t           steps   = o->steps;
    int               threads = o->threads;
    weft_device      *device  = NULL;
    weft_compile_spec spec    = *s;
    weft_training     t       = {0};
    weft_compiled     c       = {0};
    weft_runner      *r       = NULL;
    weft_state       *state   = NULL;
    weft_pool        *pool    = NULL;
    double           *ms      = calloc((size_t)steps + 1, sizeof *ms);
    weft_status       st      = WEFT_OK;
    weft_bench_result b       = {.threads = threads ? threads : weft_runner_cores()};
    b.step_ms                 = calloc((size_t)steps + 1, sizeof *ms);
    if (!ms || !b.step_ms) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    /* the executor's threads run where this one may: updates on the host need all cores */
    bool pins = b.threads <= weft_runner_cores() && !s->offload;
    WEFT_GO(weft_pool_create(b.threads, pins, &pool));
    WEFT_GO(weft_session_open_device(
        &(weft_session_device){.where = "weft bench", .list = o->device}, &device));
    if (!strcmp(device->kernels, "cuda")) weft_compile_for_cuda(&spec);
    WEFT_GO(weft_compile_training(&spec, &t));
    WEFT_GO(weft_compile_program(&t, NULL, 0, &c));
    WEFT_GO(check_memory(&spec, &c, device));
    WEFT_GO(weft_program_state_create(&c, NULL, device, &state));
    weft_runner_options with = {.made   = &c,
                                .state  = state,
                                .pool   = pool,
                                .seed   = 1,
                                .device = device,
                                .trace =
                                    o->trace ? weft_runner_instructions(c.program) : 0};
    WEFT_GO(weft_runner_create(&with, &r));
    b.mem_peak_bytes = count_memory(r, device, c.program, &t);
    WEFT_GO(weft_bench_draw_weights(r, &c, pool));
    WEFT_GO(time_steps(r, c.model, c.program->n_micro, steps, ms, &b.loss));
    sum_up(s, &c, ms, steps, &b);
    note_warning(device, &b);
    if (o->trace) WEFT_GO(weft_runner_trace(r, o->trace));
    weft_runner_destroy(r); /* its memory is free for the product */
    r = NULL;
    if (!device->facts)
        WEFT_GO(weft_peak_gflops(pool, b.threads, 2048, 5, &b.peak_gflops));
    else if (!spec.offload) /* its updates are the host's: no class of a GPU's */
        WEFT_GO(time_classes(&with, &b));
    *out      = b;
    b.step_ms = NULL;
out:
    weft_runner_destroy(r);
    weft_state_destroy(state);
    weft_compiled_fini(&c);
    weft_training_fini(&t);
    weft_session_close_device(device);
    weft_pool_destroy(pool);
    free(b.step_ms);
    free(ms);
    return st;
}
