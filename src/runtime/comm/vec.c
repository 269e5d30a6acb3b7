/* Sums and copies by vectors.  The loops are in vec_impl.h, once for each width; which one runs
 * is chosen by what the processor can do.  Only additions, and no multiplication to fuse them
 * with: the bits are those of sum.c. */
#include "comm/vec.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

enum {
    VEC_MAX = 16
};

/* The tree as additions x[to] += x[from], in order. */
typedef struct vec_add {
    int to, from;
} vec_add;

typedef void sum_fn(int n, const char *const *in, const vec_add *add, int n_out,
                    char *const *out, int64_t bytes, bool stream);
typedef void copy_fn(const char *const *in, int n_out, char *const *out, int64_t bytes,
                     bool stream);

typedef struct vec_set {
    sum_fn  *f32, *f64, *u32, *u64, *f32_any, *f64_any, *u32_any, *u64_any;
    copy_fn *copy;
} vec_set;

#define VEC(name) name##_sse2
#define VEC_TARGET
#define VEC_BYTES        16
#define VEC_STREAM(p, x) _mm_stream_si128((__m128i *)(void *)(p), (__m128i)(x))
#include "comm/vec_impl.h"

#define VEC(name)        name##_avx2
#define VEC_TARGET       __attribute__((target("avx2")))
#define VEC_BYTES        32
#define VEC_STREAM(p, x) _mm256_stream_si256((__m256i *)(void *)(p), (__m256i)(x))
#include "comm/vec_impl.h"

#define VEC(name)        name##_avx512
#define VEC_TARGET       __attribute__((target("avx512f")))
#define VEC_BYTES        64
#define VEC_STREAM(p, x) _mm512_stream_si512((__m512i *)(void *)(p), (__m512i)(x))
#include "comm/vec_impl.h"

static const vec_set *choose(void)
{
    static const vec_set *set; /* every thread would choose the same */
    const vec_set        *s = __atomic_load_n(&set, __ATOMIC_RELAXED);
    if (!s) {
        __builtin_cpu_init();
        s = __builtin_cpu_supports("avx512f") ? &set_avx512
            : __builtin_cpu_supports("avx2")  ? &set_avx2
                                              : &set_sse2;
        __atomic_store_n(&set, s, __ATOMIC_RELAXED);
    }
    return s;
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 64 == 0;
}

static void find_adds(int n, const int *level, vec_add *add)
{
    int at[VEC_MAX], of[VEC_MAX], top = 0, m = 0;
    for (int i = 0; i < n; i++, top++) {
        at[top] = i;
        of[top] = level ? level[i] : 0;
        for (; top && of[top - 1] == of[top]; top--, of[top]++)
            add[m++] = (vec_add){at[top - 1], at[top]};
    }
    for (; top > 1; top--) add[m++] = (vec_add){at[top - 2], at[top - 1]};
}

bool weft_comm__vec_sum(weft_dtype t, int n, const void *const *in, const int *level,
                        int n_out, void *const *out, int64_t count, bool stream)
{
    const vec_set *s = choose();
    sum_fn        *f = NULL, *f_any = NULL;
    vec_add        add[VEC_MAX];
    if (n < 2 || n > VEC_MAX) return false;
    switch (t) {
    case WEFT_DTYPE_F32: f = s->f32, f_any = s->f32_any; break;
    case WEFT_DTYPE_F64: f = s->f64, f_any = s->f64_any; break;
    case WEFT_DTYPE_I32:
    case WEFT_DTYPE_U32: f = s->u32, f_any = s->u32_any; break;
    case WEFT_DTYPE_I64:
    case WEFT_DTYPE_U64: f = s->u64, f_any = s->u64_any; break;
    default: return false;
    }
    int64_t     bytes = count * weft_dtype_bytes(t), whole = bytes / 64 * 64;
    int64_t     tail = (bytes - whole) / weft_dtype_bytes(t);
    const void *rest[VEC_MAX];
    stream = stream && n_out == 1 && aligned(out[0]);
    find_adds(n, level, add);
    if (whole)
        (level ? f_any : f)(n, (const char *const *)in, add, n_out, (char *const *)out,
                            whole, stream);
    if (stream) _mm_sfence();
    if (!tail) return true;
    for (int k = 0; k < n; k++) rest[k] = (const char *)in[k] + whole;
    char line[64];
    (void)weft_comm__sum_plain(t, n, rest, level, line, tail);
    for (int k = 0; k < n_out; k++)
        memcpy((char *)out[k] + whole, line, (size_t)(bytes - whole));
    return true;
}

void weft_comm__vec_copy(void *out, const void *in, int64_t bytes, bool stream)
{
    if (!stream || bytes < 4096) {
        if (bytes && out != in) memmove(out, in, (size_t)bytes);
        return;
    }
    int64_t head = (int64_t)(-(uintptr_t)out % 64);
    memcpy(out, in, (size_t)head);
    const char *p     = (const char *)in + head;
    char       *o     = (char *)out + head;
    int64_t     whole = (bytes - head) / 64 * 64;
    choose()->copy((const char *const *)&p, 1, &o, whole, true);
    _mm_sfence();
    memcpy(o + whole, p + whole, (size_t)(bytes - head - whole));
}

#else

bool weft_comm__vec_sum(weft_dtype t, int n, const void *const *in, const int *level,
                        int n_out, void *const *out, int64_t count, bool stream)
{
    (void)t, (void)n, (void)in, (void)level, (void)n_out, (void)out, (void)count,
        (void)stream;
    return false;
}

void weft_comm__vec_copy(void *out, const void *in, int64_t bytes, bool stream)
{
    (void)stream;
    if (bytes && out != in) memmove(out, in, (size_t)bytes);
}

#endif
