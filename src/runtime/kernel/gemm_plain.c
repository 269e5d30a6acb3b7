/* The product's inner parts in plain C: what the vector files must equal bit by bit. */
#include "kernel/gemm_finish.h"

enum {
    MR = 4,
    NR = 16
};

static void tile(int rows, const weft_kernel__gemm_tile *t)
{
    for (int i = 0; i < rows; i++) {
        float sum[NR] = {0};
        for (int64_t p = 0; p < t->kc; p++) {
            float a = t->a_rs ? t->a[i * t->a_rs + p] : t->a[p * MR + i];
            for (int j = 0; j < NR; j++) sum[j] = fmaf(a, t->b[p * NR + j], sum[j]);
        }
        for (int j = 0; j < NR; j++) {
            if (t->in) sum[j] += t->in[i * t->ld_in + j];
            for (int x = 0; x < GEMM_ADDENDS; x++)
                if (t->add[x]) sum[j] += t->add[x][i * t->ld_add[x] + j];
            t->out[i * t->ld_out + j] = sum[j];
        }
    }
}

/* The same of a full tile whose A (B) lies unpacked. */
static void copy_a(const weft_kernel__gemm_tile *t)
{
    weft_kernel__gemm_tile u = *t;

    for (int64_t p = 0; p < t->kc; p++)
        memcpy(t->copy + p * MR, t->a + p * t->src_step, MR * sizeof(float));
    u.a = t->copy;
    tile(MR, &u);
}

static void copy_b(const weft_kernel__gemm_tile *t)
{
    weft_kernel__gemm_tile u = *t;

    for (int64_t p = 0; p < t->kc; p++)
        memcpy(t->copy + p * NR, t->b + p * t->src_step, NR * sizeof(float));
    u.b = t->copy;
    tile(MR, &u);
}

static void pack(int width, float *panel, const void *src, weft_dtype t, int64_t rows,
                 int64_t k, int64_t rs, int64_t cs)
{
    const uint16_t *h = src;
    const float    *f = src;

    for (int64_t p = 0; p < k; p++)
        for (int64_t i = 0; i < width; i++) {
            int64_t at_ip        = i * rs + p * cs;
            panel[p * width + i] = i >= rows             ? 0.0f
                                   : t == WEFT_DTYPE_F32 ? f[at_ip]
                                                         : weft_bf16_widen(h[at_ip]);
        }
}

const weft_kernel__gemm_isa weft_kernel__gemm_plain = {
    .mr           = MR,
    .nr           = NR,
    .strip_floats = 64 << 10, /* an L2 of 512 KiB */
    .placed       = true,
    .tile         = tile,
    .copy_a       = copy_a,
    .copy_b       = copy_b,
    .pack         = pack,
    .finish       = finish,
};
