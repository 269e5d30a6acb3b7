/* plugin/cuda/kernels/attention_wgmma.cu on the plugin's device: gradients near those of the plain
 * kernel, the same bits again and with any number of multiprocessors, and with rotary embeddings'
 * gradients in it the bits of both apart.  Sizes that fill no tile, shared key heads, shifted
 * masks, q, k and v packed in one tensor. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_room.h"
#include "gpu_test.h"
#include "grouped_data.h"

#include "plugin/plugin.h"
#include "support/device_call.h"

typedef struct sizes {
    int64_t     b, s, h, t, g, e;
    const char *attr;
    bool packed; /* q, k, v are parts of one tensor, and so are their gradients: s = t */
} sizes;

static const sizes small[] = {
    {1, 200, 1, 200, 1, 64, "causal=1", true},
    {2, 130, 4, 130, 2, 64, "causal=1", true},
    {9, 130, 4, 130, 2, 64, "causal=1", true}, /* of 18 key heads 16 in turns, then 2 */
    {1, 77, 2, 300, 2, 64, "causal=0", false},
    {1, 100, 2, 260, 1, 64, "causal=1", false},
    {1, 70, 2, 1100, 1, 64, "causal=1", false},
    {1, 200, 3, 200, 1, 128, "causal=1", true},
    {1, 65, 2, 140, 2, 128, "causal=0 scale=0.2", false},
    {1, 150, 1, 180, 1, 128, "causal=1 q_first=30 k_first=0", false},
};

static const sizes large[] = {
    {4, 1024, 12, 1024, 12, 64, "causal=1", true},
    {2, 2048, 16, 2048, 4, 64, "causal=1", false},
    {3, 1000, 5, 1000, 5, 64, "causal=1", true},
    {2, 777, 6, 1333, 2, 64, "causal=0", false},
    {2, 513, 8, 1537, 2, 64, "causal=1", false},
    {1, 300, 2, 900, 1, 64, "causal=1 q_first=600 k_first=0", false},
    {1, 64, 1, 64, 1, 64, "causal=1", true},
    {1, 129, 40, 129, 8, 64, "causal=1 scale=0.3", true},
    {4, 1024, 16, 1024, 16, 128, "causal=1", true},
    {2, 2048, 16, 2048, 4, 128, "causal=1", false},
    {3, 1000, 5, 1000, 5, 128, "causal=1", true},
    {2, 777, 6, 1333, 2, 128, "causal=0", false},
    {2, 513, 8, 1537, 2, 128, "causal=1", false},
    {1, 65, 1, 65, 1, 128, "causal=1", true},
    {1, 4096, 8, 4096, 2, 128, "causal=1", false},
    {9, 260, 8, 260, 2, 64, "causal=1", true}, /* of 18 key heads 16 in turns, then 2 */
    {5, 260, 8, 260, 8, 64, "causal=0", true}, /* of 40 key heads 33 in turns, then 7 */
};

static weft_device *device;

/* ---- operands ---- */

/* q, k, v or their gradients. */
static void make_three(const sizes *z, weft_view v[3])
{
    const int64_t heads[3] = {z->h, z->g, z->g}, rows[3] = {z->s, z->t, z->t};
    const int64_t all[4] = {z->b, z->s, z->h + 2 * z->g, z->e};
    weft_view     whole  = {0};
    int64_t       first  = 0;
    if (z->packed) whole = grouped_view(WEFT_DTYPE_BF16, 4, all);
    if (z->packed) grouped_draw(&whole, z->b);
    for (int i = 0; i < 3; i++) {
        const int64_t d[4] = {z->b, rows[i], heads[i], z->e};
        if (z->packed) {
            v[i]            = whole;
            v[i].shape.d[2] = heads[i];
            v[i].p          = (uint16_t *)whole.p + first * z->e;
            first += heads[i];
        } else {
            v[i] = grouped_view(WEFT_DTYPE_BF16, 4, d);
            grouped_draw(&v[i], z->b);
        }
    }
}

static float get(const weft_view *v, int64_t i)
{
    int64_t at = 0;
    for (int k = v->shape.n - 1; k >= 0; k--) {
        at += i % v->shape.d[k] * v->stride[k];
        i /= v->shape.d[k];
    }
    return grouped_get(v, at);
}

static void *copy_values(const weft_view *v)
{
    int64_t n = weft_shape_count(&v->shape);
    float  *x = grouped_room(n * 4);
    for (int64_t i = 0; i < n; i++) x[i] = get(v, i);
    return x;
}

/* ---- calls ---- */

/* The plain kernel: the one for operands at odd addresses. */
static const weft_kernel *find_plain(const weft_kernel_call *call)
{
    weft_view          in[6];
    weft_kernel_call   odd   = *call;
    const weft_kernel *found = NULL;
    memcpy(in, call->in, sizeof in[0] * (size_t)call->n_in);
    for (int i = 0; i < call->n_in; i++) in[i].p = (uint16_t *)in[i].p + 1;
    odd.in = in;
    assert_ok(weft_kernel_find(device->kernels, &odd, &found));
    return found;
}

static void run(const weft_kernel *kernel, const weft_kernel_call *call, int times)
{
    device_call       c;
    weft_step_scalars scalars = {0};
    assert_ok(device_call_open(&c, device, kernel, call, NULL));
    for (int i = 0; i < times; i++) assert_ok(device_call_run(&c, &scalars));
    device_call_close(&c);
}

static weft_kernel_call make_call(weft_op op, const char *attr, weft_view *in, int n_in,
                                  weft_view *out, int n_out)
{
    weft_attr *a = weft_arena_alloc(arena, sizeof(weft_attr) * WEFT_MAX_ATTR);
    assert_ok(weft_op_parse_attr(op, attr, arena, a));
    return (weft_kernel_call){.op        = op,
                              .attr      = a,
                              .n_in      = n_in,
                              .n_own_in  = n_in,
                              .n_out     = n_out,
                              .n_own_out = n_out,
                              .in        = in,
                              .out       = out};
}

static void check_near(const weft_view *v, const float *want, const char *what)
{
    double  off = 0, all = 0;
    int64_t n = weft_shape_count(&v->shape);
    for (int64_t i = 0; i < n; i++) {
        double x = (double)get(v, i), y = (double)want[i];
        off += (x - y) * (x - y);
        all += y * y;
    }
    if (!(sqrt(off) <= 0.01 * sqrt(all)))
        fail_msg("%s: off by %g of %g", what, sqrt(off), sqrt(all));
}

static void check_bits(const weft_view *v, const float *want, const char *what)
{
    float *x = copy_values(v);
    if (memcmp(x, want, sizeof *x * (size_t)weft_shape_count(&v->shape)))
        fail_msg("%s: other bits", what);
}

/* dq and dk turned back by the same call; out: as they are without that. */
static void check_turned(const weft_kernel_call *plain, const weft_view out[3])
{
    static const char  attr[] = "theta=500 inverse=1 first=3";
    weft_view          all[5] = {out[0], out[1], out[2]};
    weft_kernel_post   post[2];
    weft_kernel_call   c = *plain;
    const weft_kernel *kernel;
    for (int k = 0; k < 2; k++) {
        weft_view        in = out[k], want = grouped_view(WEFT_DTYPE_BF16, 4, in.shape.d);
        weft_kernel_call r = make_call(WEFT_OP_ROTARY, attr, &in, 1, &want, 1);
        assert_ok(weft_kernel_find(device->kernels, &r, &kernel));
        run(kernel, &r, 1);
        all[3 + k] = want;
        post[k]    = (weft_kernel_post){WEFT_OP_ROTARY, r.attr, -1, 3 + k};
    }
    float *q = copy_values(&all[3]), *k = copy_values(&all[4]), *v = copy_values(&out[2]);
    for (int i = 0; i < 2; i++) {
        memset(all[3 + i].p, 0xff, (size_t)weft_shape_count(&all[3 + i].shape) * 2);
        all[i].p = NULL;
    }
    c.out   = all;
    c.n_out = 5, c.n_post = 2, c.post = post;
    assert_ok(weft_kernel_find(device->kernels, &c, &kernel));
    assert_int_equal(kernel->release != NULL, false); /* it is this one, not cuDNN's */
    run(kernel, &c, 1);
    check_bits(&all[3], q, "dq, turned");
    check_bits(&all[4], k, "dk, turned");
    check_bits(&all[2], v, "dv");
}

static void check(const sizes *z)
{
    static const char *const name[3] = {"dq", "dk", "dv"};
    const int64_t            of_o[4] = {z->b, z->s, z->h, z->e};
    weft_view                in[6], out[3], forward[3], made[2];
    float                   *want[3], *first[3];
    const weft_kernel       *fast;

    make_three(z, forward);
    made[0] = grouped_view(WEFT_DTYPE_BF16, 4, of_o);
    made[1] = grouped_view(WEFT_DTYPE_F32, 3, of_o);
    in[0]   = grouped_view(WEFT_DTYPE_BF16, 4, of_o);
    grouped_draw(&in[0], z->b);
    memcpy(in + 1, forward, sizeof forward);
    memcpy(in + 4, made, sizeof made);
    make_three(z, out);
    weft_kernel_call o = make_call(WEFT_OP_ATTENTION, z->attr, forward, 3, made, 2);
    weft_kernel_call c = make_call(WEFT_OP_ATTENTION_GRAD, z->attr, in, 6, out, 3);
    run(find_plain(&o), &o, 1);
    memcpy(in + 4, made, sizeof made);
    run(find_plain(&c), &c, 1);
    for (int i = 0; i < 3; i++) want[i] = copy_values(&out[i]);

    assert_ok(weft_kernel_find(device->kernels, &c, &fast));
    assert_ptr_not_equal(fast, find_plain(&c));
    /* it is this kernel */
    assert_int_equal(weft_kernel_scratch(fast, &c, 1),
                     room_of_attention(z->b, z->h, z->g, z->s, z->t, z->e, z->attr));
    run(fast, &c, 1);
    for (int i = 0; i < 3; i++) {
        check_near(&out[i], want[i], name[i]);
        first[i] = copy_values(&out[i]);
    }
    check_turned(&c, out);
    if (!test_gpu_is_real()) return;
    run(fast, &c, 2);
    for (int i = 0; i < 3; i++) check_bits(&out[i], first[i], name[i]);
}

static void near_the_plain_kernel(void **state)
{
    const sizes *z = test_gpu_is_real() ? large : small;
    size_t       n = test_gpu_is_real() ? WEFT_COUNT(large) : WEFT_COUNT(small);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        print_message("b %ld s %ld h %ld t %ld g %ld e %ld %s\n", (long)z[i].b,
                      (long)z[i].s, (long)z[i].h, (long)z[i].t, (long)z[i].g,
                      (long)z[i].e, z[i].attr);
        check(&z[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {with_arena(near_the_plain_kernel)};
    setenv("WEFT_STUB_TENSOR_MAPS", "1", 0);
    setenv("WEFT_STUB_MULTIPROCESSORS", "3", 0);
    if (!test_gpu_start() || weft_plugin_open_device("cuda", 0, &device) != WEFT_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_plugin_close_device(device);
    return failed;
}
