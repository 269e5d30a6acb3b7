/* What one GPU reaches: rates of matrix products over shapes, of element-wise kernels over sizes,
 * the cost of starting kernels.  Prints one CSV; the constants of src/planning/cost's device
 * kinds are pinned by it.
 *
 *     nvcc -O2 -arch=sm_90 -o gpu_curves bench/micro/gpu_curves.cu -lcublasLt && ./gpu_curves >
 *     curves.csv
 *
 * Operands are random (zeros draw less power and run faster).  seconds: the mean of enough runs
 * in a row to fill min_s, after a warm-up; operands of small products stay in the second-level
 * cache, as a layer's own output does. */
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                      \
    do {                                                                                 \
        int st_ = (int)(call);                                                           \
        if (st_) {                                                                       \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, st_);          \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static cublasLtHandle_t lt;
static cudaEvent_t      before, after;
static char            *pool; /* operands */
static void            *scratch;
static const size_t     POOL = (size_t)24 << 30, SCRATCH = (size_t)64 << 20;

__global__ void fill(uint32_t *p, size_t n, uint32_t mask, uint32_t bits)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (; i < n; i += step) {
        uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ull;
        x ^= x >> 29, x *= 0xBF58476D1CE4E5B9ull, x ^= x >> 32;
        p[i] = ((uint32_t)x & mask) | bits;
    }
}

/* Random values of so many bytes, between 1/8 and 2: the exponent's first bit is cleared, the
 * next set. */
static void refill(int size)
{
    fill<<<4096, 256>>>((uint32_t *)pool, POOL / 4, size == 1 ? 0xBFBFBFBF : 0xBFFFBFFF,
                        size == 1 ? 0x30303030 : 0x3E003E00);
    CHECK(cudaDeviceSynchronize());
}

/* ---- element-wise ---- */

struct alignas(16) quad {
    __nv_bfloat162 v[4];
};

__global__ void scale(const quad *a, quad *c, size_t n) /* reads 1, writes 1 */
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    quad x = a[i];
    for (int j = 0; j < 4; j++) x.v[j] = __hmul2(x.v[j], __float2bfloat162_rn(1.5f));
    c[i] = x;
}

__global__ void add(const quad *a, const quad *b, quad *c, size_t n) /* reads 2, writes 1 */
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    quad x = a[i], y = b[i];
    for (int j = 0; j < 4; j++) x.v[j] = __hadd2(x.v[j], y.v[j]);
    c[i] = x;
}

/* Adam on 32-bit states: reads 16 bytes a parameter, writes 14. */
__global__ void adam(const float *g, float *w, float *m, float *v, __nv_bfloat16 *h, size_t n)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = g[i], a = m[i] * 0.9f + x * 0.1f, b = v[i] * 0.99f + x * x * 0.01f;
    float y = w[i] - 1e-3f * a * rsqrtf(b + 1e-8f);
    m[i] = a, v[i] = b, w[i] = y, h[i] = __float2bfloat16(y);
}

__global__ void nothing(int) {}

template <typename F> static double seconds_of(F run, double min_s)
{
    float ms;
    int   n = 3;
    run(), run();
    for (;;) {
        CHECK(cudaEventRecord(before));
        for (int i = 0; i < n; i++) run();
        CHECK(cudaEventRecord(after));
        CHECK(cudaEventSynchronize(after));
        CHECK(cudaEventElapsedTime(&ms, before, after));
        if (ms * 1e-3 >= min_s) return ms * 1e-3 / n;
        double grow = min_s / (ms * 1e-3 + 1e-6) * 1.2;
        n           = (int)(n * (grow > 20 ? 20 : grow < 1.5 ? 1.5 : grow)) + 1;
    }
}

static void row(const char *what, const char *form, long m, long n, long k, long batch,
                double flops, double bytes, double s)
{
    printf("%s,%s,%ld,%ld,%ld,%ld,%.6g,%.6g,%.6g,%.6g,%.6g\n", what, form, m, n, k, batch,
           flops, bytes, s, flops / s, bytes / s);
    fflush(stdout);
}

/* ---- products ---- */

/* Row-major C (m,n) = A B, forms as the passes of y = x w^T need them: nt forward, nn input
 * gradient, tn weight gradient.  The library is column-major: C^T = B^T A^T. */
static void product(cudaDataType t, const char *form, long m, long n, long k, int batch,
                    double min_s)
{
    bool                   ta = form[0] == 't', tb = form[1] == 't';
    size_t                 size = t == CUDA_R_8F_E4M3 ? 1 : 2;
    cublasLtMatmulDesc_t   d;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasOperation_t      oa = tb ? CUBLAS_OP_T : CUBLAS_OP_N, ob = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    CHECK(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &oa, sizeof oa));
    CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &ob, sizeof ob));
    CHECK(cublasLtMatrixLayoutCreate(&la, t, tb ? k : n, tb ? n : k, tb ? k : n));
    CHECK(cublasLtMatrixLayoutCreate(&lb, t, ta ? m : k, ta ? k : m, ta ? m : k));
    CHECK(cublasLtMatrixLayoutCreate(&lc, CUDA_R_16BF, n, m, n));
    cublasLtMatrixLayout_t all[] = {la, lb, lc};
    int64_t                each[] = {n * k, m * k, m * n};
    for (int i = 0; i < 3 && batch > 1; i++) {
        CHECK(cublasLtMatrixLayoutSetAttribute(all[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                               &batch, sizeof batch));
        CHECK(cublasLtMatrixLayoutSetAttribute(
            all[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &each[i], sizeof each[i]));
    }
    cublasLtMatmulPreference_t p;
    CHECK(cublasLtMatmulPreferenceCreate(&p));
    CHECK(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &SCRATCH, sizeof SCRATCH));
    cublasLtMatmulHeuristicResult_t h;
    int                             found = 0;
    int st = cublasLtMatmulAlgoGetHeuristic(lt, d, la, lb, lc, lc, p, 1, &h, &found);
    float one = 1, zero = 0;
    char *b = pool, *a = b + (size * batch * each[0] + 255) / 256 * 256;
    char *c = a + (size * batch * each[1] + 255) / 256 * 256;
    if (st || !found)
        fprintf(stderr, "no algorithm for %s %ld %ld %ld\n", form, m, n, k);
    else {
        double s = seconds_of(
            [&] {
                CHECK(cublasLtMatmul(lt, d, &one, b, la, a, lb, &zero, c, lc, c, lc, &h.algo,
                                     scratch, SCRATCH, 0));
            },
            min_s);
        row(size == 1 ? "product_f8" : "product_bf16", form, m, n, k, batch,
            2.0 * m * n * k * batch,
            (double)batch * (size * (each[0] + each[1]) + 2.0 * each[2]), s);
    }
    cublasLtMatmulPreferenceDestroy(p);
    for (int i = 0; i < 3; i++) cublasLtMatrixLayoutDestroy(all[i]);
    cublasLtMatmulDescDestroy(d);
}

static void three(cudaDataType t, long m, long n, long k, double min_s)
{
    product(t, "nt", m, n, k, 1, min_s);
    if (t == CUDA_R_8F_E4M3) return; /* that type has this form alone */
    product(t, "nn", m, k, n, 1, min_s);
    product(t, "tn", n, k, m, 1, min_s);
}

static void products(void)
{
    static const long layer[][2] = {/* n, k of layers: hidden 1024 to 16384, also cut by tp */
                                    {1024, 1024}, {3072, 1024}, {4096, 1024}, {1024, 4096},
                                    {2048, 2048}, {6144, 2048}, {8192, 2048}, {2048, 8192},
                                    {768, 2048}, {2048, 256}, {1024, 2048}, {512, 2048},
                                    {4096, 4096}, {12288, 4096}, {14336, 4096}, {4096, 14336},
                                    {1536, 4096}, {4096, 512}, {3584, 4096}, {4096, 1792},
                                    {768, 4096}, {4096, 256}, {384, 4096}, {4096, 128},
                                    {8192, 8192}, {28672, 8192}, {8192, 28672}, {1280, 8192},
                                    {8192, 1024}, {7168, 8192}, {8192, 3584}, {640, 8192},
                                    {12288, 12288}, {6144, 12288}, {12288, 1536}, {49152, 12288},
                                    {16384, 16384}, {16384, 2048}, {32000, 4096}, {128256, 4096},
                                    {50257, 1600}, {51200, 2048}};
    static const long rows[] = {512, 1024, 2048, 4096, 8192, 16384};
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++)
            three(CUDA_R_16BF, rows[j], layer[i][0], layer[i][1], 4e-3);
    static const long side[] = {64, 96, 128, 192, 256, 384, 512,
                                768, 1024, 1536, 2048, 3072, 4096, 8192};
    for (size_t i = 0; i < sizeof side / sizeof *side; i++) {
        product(CUDA_R_16BF, "nt", side[i], side[i], side[i], 1, 4e-3);
        product(CUDA_R_16BF, "nt", side[i], 8192, 8192, 1, 4e-3);
        product(CUDA_R_16BF, "nt", 8192, side[i], 8192, 1, 4e-3);
        product(CUDA_R_16BF, "nt", 8192, 8192, side[i], 1, 4e-3);
    }
    for (long seq = 512; seq <= 4096; seq *= 2) /* scores and their use, by heads of 64 and 128 */
        for (long head = 64; head <= 128; head *= 2) {
            product(CUDA_R_16BF, "nt", seq, seq, head, 32, 4e-3);
            product(CUDA_R_16BF, "nn", seq, head, seq, 32, 4e-3);
        }
    for (int i = 0; i < 3; i++) /* held: the power limit shows */
        product(CUDA_R_16BF, "nt", 8192, 8192, 8192, 1, 1.0);
    product(CUDA_R_16BF, "nt", 8192, 28672, 8192, 1, 1.0);
    refill(1);
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
        for (long m = 1024; m <= 16384; m *= 4)
            if (layer[i][0] % 16 == 0) three(CUDA_R_8F_E4M3, m, layer[i][0], layer[i][1], 4e-3);
    product(CUDA_R_8F_E4M3, "nt", 8192, 28672, 8192, 1, 1.0);
}

static void streams(void)
{
    for (size_t mb = 1; mb <= 4096; mb *= 2) { /* bytes of one operand */
        size_t bytes = mb << 20, n = bytes / sizeof(quad);
        int    blocks = (int)((n + 255) / 256);
        quad  *a = (quad *)pool, *b = a + n, *c = b + n;
        double s = seconds_of([&] { scale<<<blocks, 256>>>(a, c, n); }, 4e-3);
        row("stream", "scale", (long)n * 8, 0, 0, 1, 0, 2.0 * bytes, s);
        s = seconds_of([&] { add<<<blocks, 256>>>(a, b, c, n); }, 4e-3);
        row("stream", "add", (long)n * 8, 0, 0, 1, 0, 3.0 * bytes, s);
        size_t p = bytes / 4;
        float *f = (float *)pool;
        s = seconds_of(
            [&] {
                adam<<<(int)((p + 255) / 256), 256>>>(f, f + p, f + 2 * p, f + 3 * p,
                                                      (__nv_bfloat16 *)(f + 4 * p), p);
            },
            4e-3);
        row("stream", "adam", (long)p, 0, 0, 1, 0, 30.0 * p, s);
    }
}

static void launches(void)
{
    quad *a = (quad *)pool;
    row("launch", "empty kernels in a row", 1, 0, 0, 1, 0, 0,
        seconds_of([&] { nothing<<<1, 32>>>(0); }, 2e-2));
    row("launch", "empty kernels that fill the chip", 1, 0, 0, 1, 0, 0,
        seconds_of([&] { nothing<<<132 * 8, 256>>>(0); }, 2e-2));
    /* the same as one graph: what the device itself needs from kernel to kernel */
    cudaStream_t    q;
    cudaGraph_t     g;
    cudaGraphExec_t x;
    CHECK(cudaStreamCreate(&q));
    for (int big = 0; big < 2; big++) {
        size_t n = big ? (size_t)8 << 16 : 8192; /* 8 MiB, 128 KiB */
        CHECK(cudaStreamBeginCapture(q, cudaStreamCaptureModeGlobal));
        for (int i = 0; i < 200; i++)
            scale<<<(int)((n + 255) / 256), 256, 0, q>>>(a, a + n, n);
        CHECK(cudaStreamEndCapture(q, &g));
        CHECK(cudaGraphInstantiate(&x, g, 0));
        double s = seconds_of([&] { CHECK(cudaGraphLaunch(x, 0)); }, 2e-2) / 200;
        row("launch", big ? "8 MiB kernels in a graph" : "128 KiB kernels in a graph",
            (long)n * 8, 0,
            0, 1, 0, 32.0 * n, s);
        s = seconds_of([&] { scale<<<(int)((n + 255) / 256), 256>>>(a, a + n, n); }, 2e-2);
        row("launch", big ? "8 MiB kernels in a row" : "128 KiB kernels in a row",
            (long)n * 8, 0, 0, 1, 0,
            32.0 * n, s);
    }
}

int main(void)
{
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    CHECK(cublasLtCreate(&lt));
    CHECK(cudaEventCreate(&before));
    CHECK(cudaEventCreate(&after));
    CHECK(cudaMalloc(&pool, POOL));
    CHECK(cudaMalloc(&scratch, SCRATCH));
    refill(2);
    printf("# %s, %d multiprocessors, runtime %d, cublasLt %zu\n", p.name, p.multiProcessorCount,
           CUDART_VERSION, cublasLtGetVersion());
    printf("what,form,m,n,k,batch,flops,bytes,seconds,flops_per_s,bytes_per_s\n");
    launches();
    streams();
    refill(2); /* the last kernels wrote over the operands */
    products();
    return 0;
}
