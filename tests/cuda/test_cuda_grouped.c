/* plugin/cuda/kernels/grouped*.cu on the plugin's device, over many tiles and stages: empty
 * experts, offsets at any row, rows that are nobody's (not a number), sizes that fill no tile.
 * Some elements are computed again here; a second run gives the same bits. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_test.h"
#include "grouped_data.h"
#include "plugin/plugin.h"
#include "support/device_call.h"

enum {
    EXPERTS = 6,
    SAMPLES = 400
};

typedef struct sizes {
    int64_t rows, k, n;
    int32_t offsets[EXPERTS + 1];
} sizes;

static const sizes small = {200, 72, 136, {0, 65, 65, 130, 131, 180, 190}};
static const sizes large = {5000, 1032, 1544, {0, 1301, 1301, 2177, 2178, 4000, 4801}};

static weft_device *device;

static int expert_of(const sizes *s, int64_t r)
{
    for (int e = 0; e < EXPERTS; e++)
        if (r >= s->offsets[e] && r < s->offsets[e + 1]) return e;
    return -1;
}

static int64_t draw_below(int64_t n)
{
    return (int64_t)(weft_random_uniform(test_draw()) * (float)n) % n;
}

/* A sum of products that is computed again, and where it is. */
typedef struct sample {
    int64_t expert, row, column;
    double  sum, size; /* size: of its terms, without signs */
} sample;

static void add_term(sample *x, double term)
{
    x->sum += term;
    x->size += fabs(term);
}

/* A sum in f32 is off by some of its terms' size, however near to 0 it is: tensor cores cut what
 * they add up, 2^-23 of the sum so far for every 16 terms.  rounded: what is stored may be off by
 * so much of the sum. */
static void check_near(const sample *x, double got, double rounded)
{
    double most = rounded * fabs(x->sum) + 1e-6 * x->size;
    if (!(fabs(got - x->sum) <= most))
        fail_msg(
            "expert %ld, row %ld, column %ld: %.9g instead of %.9g, off by %.3g, most "
            "%.3g (terms of %.3g)",
            (long)x->expert, (long)x->row, (long)x->column, got, x->sum,
            fabs(got - x->sum), most, x->size);
}

/* ---- one call ---- */

typedef struct trial {
    const sizes     *s;
    bool             trans;
    weft_view        in[3], out[1];
    weft_attr        attr[WEFT_MAX_ATTR];
    weft_kernel_call call;
} trial;

static void start_trial(trial *t, weft_op op, const sizes *s, bool trans)
{
    weft_shape o = weft_shape_make(1, (int64_t[]){EXPERTS + 1});
    t->s         = s;
    t->trans     = trans;
    t->in[2]     = weft_view_make(grouped_room(64), WEFT_DTYPE_I32, &o);
    memcpy(t->in[2].p, s->offsets, sizeof s->offsets);
    assert_ok(weft_op_parse_attr(op, trans ? "trans=1" : "trans=0", arena, t->attr));
    t->call = (weft_kernel_call){.op        = op,
                                 .attr      = t->attr,
                                 .n_in      = 3,
                                 .n_own_in  = 3,
                                 .n_out     = 1,
                                 .n_own_out = 1,
                                 .in        = t->in,
                                 .out       = t->out};
}

/* Twice, with the same bits. */
static void run_trial(trial *t)
{
    device_call       c;
    weft_step_scalars scalars = {0};
    size_t            bytes =
        (size_t)(weft_shape_count(&t->out[0].shape) * weft_dtype_bytes(t->out[0].dtype));
    void *before = grouped_room((int64_t)bytes), *first = grouped_room((int64_t)bytes);
    memcpy(before, t->out[0].p, bytes);
    assert_ok(device_call_open(&c, device, NULL, &t->call, NULL));
    assert_ok(device_call_run(&c, &scalars));
    memcpy(first, t->out[0].p, bytes);
    memcpy(t->out[0].p, before, bytes);
    assert_ok(device_call_run(&c, &scalars));
    device_call_close(&c);
    assert_memory_equal(first, t->out[0].p, bytes);
}

static void check_rows(const sizes *s, bool trans)
{
    trial t;
    start_trial(&t, WEFT_OP_GROUPED_MATMUL, s, trans);
    t.in[0] = grouped_view(WEFT_DTYPE_BF16, 2, (int64_t[]){s->rows, s->k});
    t.in[1] =
        grouped_view(WEFT_DTYPE_BF16, 3,
                     (int64_t[]){EXPERTS, trans ? s->n : s->k, trans ? s->k : s->n});
    t.out[0] = grouped_view(WEFT_DTYPE_BF16, 2, (int64_t[]){s->rows, s->n});
    grouped_draw(&t.in[0], s->offsets[EXPERTS]);
    grouped_draw(&t.in[1], EXPERTS);
    grouped_draw(&t.out[0], 0);
    run_trial(&t);
    for (int i = 0; i < SAMPLES; i++) {
        int64_t r = draw_below(s->rows), n = draw_below(s->n), e = expert_of(s, r);
        sample  x = {.expert = e, .row = r, .column = n};
        for (int64_t k = 0; k < s->k && e >= 0; k++)
            add_term(
                &x, (double)grouped_get(&t.in[0], r * s->k + k) *
                        (double)grouped_get(&t.in[1], trans ? (e * s->n + n) * s->k + k
                                                            : (e * s->k + k) * s->n + n));
        check_near(&x, (double)grouped_get(&t.out[0], r * s->n + n), 1.0 / 256);
    }
}

static void check_gradient(const sizes *s, bool trans, bool add)
{
    trial   t;
    int64_t m = trans ? s->n : s->k, n = trans ? s->k : s->n;
    start_trial(&t, WEFT_OP_GROUPED_MATMUL_WGRAD, s, trans);
    t.in[0]  = grouped_view(WEFT_DTYPE_BF16, 2, (int64_t[]){s->rows, s->k});
    t.in[1]  = grouped_view(WEFT_DTYPE_BF16, 2, (int64_t[]){s->rows, s->n});
    t.out[0] = grouped_view(WEFT_DTYPE_F32, 3, (int64_t[]){EXPERTS, m, n});
    for (int64_t i = 0; i < EXPERTS * m * n; i++) ((float *)t.out[0].p)[i] = 3;
    grouped_draw(&t.in[0], s->offsets[EXPERTS]);
    grouped_draw(&t.in[1], s->offsets[EXPERTS]);
    t.call.add = add;
    run_trial(&t);
    for (int i = 0; i < SAMPLES; i++) {
        int64_t e = draw_below(EXPERTS), a = draw_below(m), b = draw_below(n);
        sample  x = {.expert = e, .row = a, .column = b};
        if (add) add_term(&x, 3);
        for (int64_t r = s->offsets[e]; r < s->offsets[e + 1]; r++)
            add_term(&x, (double)grouped_get(&t.in[0], r * s->k + (trans ? b : a)) *
                             (double)grouped_get(&t.in[1], r * s->n + (trans ? a : b)));
        check_near(&x, (double)grouped_get(&t.out[0], (e * m + a) * n + b), 0);
    }
}

static const sizes *sizes_here(void)
{
    return test_gpu_is_real() ? &large : &small;
}

static void rows_by_weights(void **state)
{
    (void)state;
    check_rows(sizes_here(), true);
    check_rows(sizes_here(), false);
}

static void gradients_of_weights(void **state)
{
    (void)state;
    check_gradient(sizes_here(), true, false);
    check_gradient(sizes_here(), false, true);
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {with_arena(rows_by_weights),
                                       with_arena(gradients_of_weights)};
    if (weft_plugin_open_device("cuda", 0, &device) != WEFT_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_plugin_close_device(device);
    return failed;
}

/* On the stub by tensor cores of a warp, then by warpgroups. */
int main(void)
{
    if (!test_gpu_start()) return 1;
    int failed = run_all();
    if (test_gpu_is_real()) return failed;
    setenv("WEFT_STUB_TENSOR_MAPS", "1", 1);
    setenv("WEFT_STUB_MULTIPROCESSORS", "3", 1);
    return run_all() + failed;
}
