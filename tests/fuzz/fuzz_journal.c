/* Any numbers in the journal of a step's updates, which another process has left: it is refused, or
 * what is made again lies within the operands, and streams go on within their lists. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "exec/exec_priv.h"
#include "kernel/undo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum {
    STEP     = 3,
    COUNT    = (1 << 16) + 1000, /* elements: two chunks, the second one is not whole */
    N_FIRING = 3,
    N_INSTR  = 2,
    ROOM     = 1 << 13
};

static float state[COUNT], grad[COUNT], other[COUNT];
static _Alignas(64) uint8_t journal[ROOM];

/* ---- in the place of the executor ---- */

static weft_exec e;

static void check_view(const weft_view *v, const float *base)
{
    const float *at = v->p;
    int64_t      n  = weft_shape_count(&v->shape);
    if (at < base || n < 0 || n > COUNT || at - base > COUNT - n) abort();
}

static weft_status update(const weft_kernel_call *call, const weft_kernel_ctx *ctx)
{
    (void)ctx;
    check_view(&call->out[0], state);
    check_view(&call->in[0], state);
    check_view(&call->in[1], grad);
    if (call->undo->first < 0 || call->undo->first >= (1 << 16) / WEFT_UNDO_BLOCK)
        abort();
    return WEFT_OK;
}

weft_status weft_exec__fire_rest(weft_exec *x, int64_t step)
{
    const weft_exec__stream *s = &x->stream[0];
    if (step != STEP || s->at < 0 || s->at >= N_FIRING || s->instr < 0 ||
        s->instr >= N_INSTR || s->step < 0 || s->step > 1)
        abort();
    return WEFT_OK;
}

bool weft_exec__is_gather(const weft_instr *i)
{
    (void)i;
    return false;
}

void weft_exec__take_own_share(const weft_exec__instr *x)
{
    (void)x;
}

weft_status weft_exec_run(weft_exec *x, int64_t first, int n)
{
    (void)x, (void)first, (void)n;
    abort();
}

/* ---- a program of an update and a copy, three times ---- */

static weft_program       program;
static weft_stream_spec   stream;
static weft_firing        firing[N_FIRING];
static weft_actor         actor;
static weft_instr         instr[N_INSTR];
static weft_operand       operand[4];
static weft_exec__instr   bound[N_INSTR];
static weft_exec__variant variant, *variants[N_FIRING];
static weft_exec__actor   bound_actor;
static weft_view          view[4];
static weft_device        device;
static int                run[N_INSTR] = {2, 1};

static void make_program(void)
{
    static const weft_kernel kernel = {.op = WEFT_OP_SGD, .run = update, .undoes = true};
    weft_shape               all    = {.n = 1, .d = {COUNT}};
    float                   *base[] = {state, grad, other, grad};
    for (int k = 0; k < 4; k++) {
        operand[k] = weft_operand_make(k, WEFT_DTYPE_F32, &all);
        view[k]    = weft_view_make(base[k], WEFT_DTYPE_F32, &all);
    }
    instr[0] = (weft_instr){.kind      = WEFT_INSTR_COMPUTE,
                            .name      = "update",
                            .op        = WEFT_OP_SGD,
                            .n_in      = 2,
                            .n_own_in  = 2,
                            .n_out     = 1,
                            .n_own_out = 1,
                            .in        = operand,
                            .out       = operand};
    instr[1] = (weft_instr){.kind  = WEFT_INSTR_COPY,
                            .name  = "copy",
                            .n_in  = 1,
                            .n_out = 1,
                            .in    = operand + 3,
                            .out   = operand + 2};
    actor    = (weft_actor){.name = "a", .n_instr = N_INSTR, .instr = instr};
    stream   = (weft_stream_spec){.name = "s", .n_firing = N_FIRING, .firing = firing};
    program  = (weft_program){.name     = "p",
                              .world    = 1,
                              .n_actor  = 1,
                              .actor    = &actor,
                              .n_stream = 1,
                              .stream   = &stream,
                              .n_buffer = 4};
    device   = (weft_device){.name = "cpu", .needs_thread = true, .host_access = true};
    for (int k = 0; k < N_INSTR; k++)
        bound[k] = (weft_exec__instr){.i = &instr[k], .s = &e.stream[0]};
    bound[0].kernel = &kernel;
    bound[0].call   = (weft_kernel_call){
          .n_in = 2, .n_own_in = 2, .n_out = 1, .n_own_out = 1, .in = view, .out = view};
    bound[1].call =
        (weft_kernel_call){.n_in = 1, .n_out = 1, .in = view + 3, .out = view + 2};
    variant.instr   = bound;
    bound_actor.run = run;
    for (int k = 0; k < N_FIRING; k++) variants[k] = &variant;
}

static void open_exec(weft_arena *a, bool resumes)
{
    e = (weft_exec){.p = &program, .arena = a, .actor = &bound_actor, .n_stream = 1};
    e.o.journal = journal;
    e.o.resumes = resumes;
    e.stream[0] = (weft_exec__stream){.e = &e, .variant = variants, .device = &device};
}

/* Places and values of 8 bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_arena *a;
    make_program();
    if (weft_exec_journal_bytes(&program, 1) > ROOM) abort();
    int64_t bytes = weft_exec_journal_bytes(&program, 1) - 8;
    if (weft_arena_create(&a) != WEFT_OK) abort();
    memset(journal, 0, sizeof journal);
    open_exec(a, false);
    if (weft_exec__open_journal(&e) != WEFT_OK) abort();
    weft_exec__begin_journal(&e, STEP);
    for (; n >= 10; data += 10, n -= 10)
        memcpy(journal + (data[0] | data[1] << 8) % bytes, data + 2, 8);
    open_exec(a, true);
    if (weft_exec__open_journal(&e) == WEFT_OK && weft_exec_resume(&e, STEP) != WEFT_OK &&
        strchr(weft_error_text(), '\n'))
        abort();
    weft_arena_destroy(a);
    return 0;
}
