/* plugin/cuda/ops/sdpa_plan.c with the real cuDNN, where it is installed: plans for an H200 by
 * its properties alone. */
#include <dlfcn.h>
#include <stdio.h>

#include "support/test.h"

#include "library.h"
#include "ops/sdpa.h"

static const char h200[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":"
    "32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,"
    "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":150754820096,"
    "\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,"
    "\"deviceName\":\"NVIDIA H200\"}";

static bool has_cudnn;

static int open_cudnn(void **state)
{
    (void)state;
    if (!dlopen(WEFT_TEST_LOADER, RTLD_NOW | RTLD_GLOBAL)) fail_msg("%s", dlerror());
    has_cudnn = weft_cuda_libraries_open(13000) == WEFT_OK && weft_cuda_dnn_get();
    if (!has_cudnn) printf("left out: no cuDNN here\n");
    return 0;
}

typedef struct plan_case {
    const char *name;
    int64_t     b, h, g, s, t, e;
    bool        packed; /* q, k, v are parts of one matmul's result */
    bool        causal;
    int64_t     shift;
} plan_case;

static void set(weft_cuda_sdpa_shape *x, int name, int64_t b, int64_t h, int64_t s)
{
    x->stride[name][0] = b;
    x->stride[name][1] = h;
    x->stride[name][2] = s;
    x->stride[name][3] = 1;
}

static weft_cuda_sdpa_shape shape_of(const plan_case *p, bool backward)
{
    weft_cuda_sdpa_shape x;
    memset(&x, 0, sizeof x);
    x.b = p->b, x.h = p->h, x.g = p->g, x.s = p->s, x.t = p->t, x.e = p->e;
    x.causal = p->causal, x.shift = p->shift, x.backward = backward;
    int64_t q = p->packed ? (p->h + 2 * p->g) * p->e : p->h * p->e;
    int64_t k = p->packed ? q : p->g * p->e, o = p->h * p->e;
    set(&x, SDPA_Q, p->s * q, p->e, q);
    set(&x, SDPA_K, p->t * k, p->e, k);
    set(&x, SDPA_V, p->t * k, p->e, k);
    set(&x, SDPA_O, p->s * o, p->e, o);
    set(&x, SDPA_LSE, p->s * p->h, 1, p->h);
    if (!backward) return x;
    set(&x, SDPA_DO, p->s * o, p->e, o);
    set(&x, SDPA_DQ, p->s * q, p->e, q);
    set(&x, SDPA_DK, p->t * k, p->e, k);
    set(&x, SDPA_DV, p->t * k, p->e, k);
    return x;
}

static const plan_case cases[] = {
    {"gpt2 b32 h12 t1024 e64", 32, 12, 12, 1024, 1024, 64, true, true, 0},
    {"llama b2 h32 g8 t1000 e128", 2, 32, 8, 1000, 1000, 128, true, true, 0},
    {"t77 e64 over a part of the keys", 4, 12, 12, 77, 154, 64, false, true, 77},
    {"bert t512 e64 without a mask", 4, 12, 12, 512, 512, 64, false, false, 0},
};

/* Both ways; the backward pass keeps the scores' gradients, which only the deterministic form
 * does. */
static void test_plans(void **state)
{
    (void)state;
    if (!has_cudnn) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += TEST_STRIDE(3))
        for (int backward = 0; backward < 2; backward++) {
            const plan_case      *p = &cases[i];
            weft_cuda_sdpa_shape  x = shape_of(p, backward);
            const weft_cuda_sdpa *plan =
                weft_cuda_sdpa_get(weft_cuda_dnn_get(), NULL, h200, &x);
            assert_non_null(plan);
            if (!plan->plan) fail_msg("%s: %s", p->name, plan->why);
            int64_t scores =
                2 * p->b * p->h * ((p->s + 127) / 128 * 128) * ((p->t + 127) / 128 * 128);
            printf("%s %s: %s, %ld bytes\n", p->name, backward ? "backward" : "forward",
                   plan->name, (long)plan->workspace_bytes);
            if (backward)
                assert_int_equal(plan->workspace_bytes, /* as cost/own_memory.c has it */
                                 scores + 256 +
                                     (p->g < p->h ? 4 * p->b * p->h * p->t * p->e : 0));
            else
                assert_in_range(plan->workspace_bytes, 0, 64 << 20);
            assert_ptr_equal(weft_cuda_sdpa_get(weft_cuda_dnn_get(), NULL, h200, &x),
                             plan);
        }
    weft_cuda_sdpa_drop();
}

/* A shape that cuDNN cannot do is remembered as such, with its reason. */
static void test_none(void **state)
{
    (void)state;
    plan_case p = {"e 60", 2, 4, 4, 64, 64, 60, false, true, 0};
    if (!has_cudnn) return;
    weft_cuda_sdpa_shape  x    = shape_of(&p, false);
    const weft_cuda_sdpa *plan = weft_cuda_sdpa_get(weft_cuda_dnn_get(), NULL, h200, &x);
    assert_non_null(plan);
    assert_null(plan->plan);
    assert_true(plan->why[0] != 0);
    weft_cuda_sdpa_drop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, open_cudnn, NULL);
}
