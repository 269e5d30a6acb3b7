/* plugin/cuda/kernels/update.cu: every optimizer's update has the bits of the CPU's kernel, so that
 * ranks on GPUs and on CPUs that hold the same parameters stay replicas of each other.
 *
 * Over a driver without a GPU, or with WEFT_TEST_GPU=1 on a real one. */
#include <math.h>
#include <stddef.h>

#include "support/test.h"

#include "gpu_test.h"
#include "op/op.h"
#include "plugin/plugin.h"
#include "support/device_call.h"

enum {
    N      = 8192 + 1027, /* a whole block, and one that ends anywhere */
    N_STEP = 5,
    MAX_IN = 9
};

/* Operands in the order of the operator: p, g, states, scalars.  States are updated in place. */
typedef struct update_call {
    float            data[4][N]; /* p g m v */
    float            u[N];       /* lamb_dir */
    float            lr, scale, step;
    double           p_sq, u_sq;
    weft_view        in[MAX_IN], out[3];
    weft_attr        attr[WEFT_MAX_ATTR];
    weft_kernel_call call;
} update_call;

static update_call on_cpu, on_gpu;

/* Numbers of all sizes that gradients have, some of them 0. */
static float draw(uint32_t *x, int size)
{
    *x      = *x * 1664525u + 1013904223u;
    float y = (float)(int32_t)*x / 2147483648.0f;
    return *x >> 28 ? ldexpf(y, -(int)(*x >> 9 & 15) - size) : 0.0f;
}

static weft_view scalar_view(void *p, weft_dtype t)
{
    weft_shape one = weft_shape_make(1, (int64_t[]){1});
    return weft_view_make(p, t, &one);
}

static bool names(const char **at, const char *name)
{
    size_t n = strlen(name), len = strcspn(*at, " ");
    if (len != n || memcmp(*at, name, n) != 0) return false;
    *at += len;
    *at += strspn(*at, " ");
    return true;
}

/* The views of what the operator's row names. */
static void add_operands(update_call *c, weft_op op)
{
    weft_shape  all   = weft_shape_make(1, (int64_t[]){N});
    const char *at    = weft_op_get(op)->in;
    int         state = 2;
    while (*at) {
        weft_view *v = &c->in[c->call.n_in++];
        if (names(&at, "p"))
            *v = weft_view_make(c->data[0], WEFT_DTYPE_F32, &all);
        else if (names(&at, "g"))
            *v = weft_view_make(c->data[1], WEFT_DTYPE_F32, &all);
        else if (names(&at, "m") || names(&at, "v") || names(&at, "h"))
            *v = weft_view_make(c->data[state++], WEFT_DTYPE_F32, &all);
        else if (names(&at, "lr"))
            *v = scalar_view(&c->lr, WEFT_DTYPE_F32);
        else if (names(&at, "scale"))
            *v = scalar_view(&c->scale, WEFT_DTYPE_F32);
        else if (names(&at, "step"))
            *v = scalar_view(&c->step, WEFT_DTYPE_F32);
        else if (names(&at, "p_sq"))
            *v = scalar_view(&c->p_sq, WEFT_DTYPE_F64);
        else if (names(&at, "u_sq"))
            *v = scalar_view(&c->u_sq, WEFT_DTYPE_F64);
        else
            fail_msg("operand %s", at);
    }
    c->call.n_own_in = c->call.n_in;
}

static void make_call(update_call *c, weft_op op)
{
    weft_shape all = weft_shape_make(1, (int64_t[]){N});
    uint32_t   x   = 7;
    memset(c, 0, sizeof *c);
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < N; i++) c->data[k][i] = draw(&x, k == 1 ? 4 : 0);
    for (int i = 0; i < N; i++) c->data[3][i] *= c->data[3][i];
    weft_op_attr_defaults(op, c->attr);
    c->call = (weft_kernel_call){.op = op, .attr = c->attr, .in = c->in, .out = c->out};
    add_operands(c, op);
    c->out[0] =
        op == WEFT_OP_LAMB_DIR ? weft_view_make(c->u, WEFT_DTYPE_F32, &all) : c->in[0];
    c->call.n_out = 1;
    for (int k = 2; op != WEFT_OP_LAMB_DIR && k < c->call.n_in; k++)
        if (c->in[k].p == c->data[k]) c->out[c->call.n_out++] = c->in[k];
    c->call.n_own_out = c->call.n_out;
    int decay         = weft_op_attr_index(op, "weight_decay");
    if (decay >= 0) c->attr[decay].f = 0.1;
}

/* As a job's steps are: a warm-up, a gradient that is clipped. */
static void set_step(update_call *c, int64_t step)
{
    c->step  = (float)step;
    c->lr    = 3e-3f / (float)(1 + step % 7);
    c->scale = step % 2 ? 0.7234f : 1.0f;
    c->p_sq  = 17.25 + (double)step / 3;
    c->u_sq  = 3.5 + (double)step / 7;
}

static void compare_step(weft_op op, device_call *cpu, device_call *gpu, int64_t step)
{
    static const weft_step_scalars none = {0};
    set_step(&on_cpu, step);
    set_step(&on_gpu, step);
    assert_ok(device_call_run(cpu, &none));
    assert_ok(device_call_run(gpu, &none));
    const float *a = on_cpu.data[0], *b = on_gpu.data[0];
    for (int i = 0; i < 5 * N; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s, step %lld: number %d of %s is %a on the CPU, %a on the GPU",
                     weft_op_get(op)->name, (long long)step, i % N,
                     (const char *[]){"p", "g", "m", "v", "u"}[i / N], (double)a[i],
                     (double)b[i]);
}

static void updates_have_the_bits_of_the_cpu(void **state)
{
    static const weft_op every[] = {WEFT_OP_SGD,   WEFT_OP_SGD_MOMENTUM, WEFT_OP_ADAM,
                                    WEFT_OP_ADAMW, WEFT_OP_ADAGRAD,      WEFT_OP_LAMB_DIR,
                                    WEFT_OP_LAMB};
    static const int64_t steps[N_STEP] = {1, 2, 3, 1000, 123457};
    weft_device         *d;
    (void)state;
    _Static_assert(offsetof(update_call, u) == sizeof on_cpu.data, "one after another");
    assert_ok(weft_plugin_open_device("cuda", 0, &d));
    for (size_t k = 0; k < WEFT_COUNT(every); k++) {
        device_call cpu, gpu;
        make_call(&on_cpu, every[k]);
        make_call(&on_gpu, every[k]);
        assert_ok(device_call_open(&cpu, weft_device_guard(), NULL, &on_cpu.call, NULL));
        assert_ok(device_call_open(&gpu, d, NULL, &on_gpu.call, NULL));
        for (int s = 0; s < N_STEP; s++) compare_step(every[k], &cpu, &gpu, steps[s]);
        device_call_close(&cpu);
        device_call_close(&gpu);
    }
    weft_plugin_close_device(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_have_the_bits_of_the_cpu)};
    return test_gpu_start() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
