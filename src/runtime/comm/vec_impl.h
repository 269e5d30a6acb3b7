/* The loops of vec.c for one width of vector.  Before including: VEC(name) names a function,
 * VEC_TARGET its instructions, VEC_BYTES the width, VEC_STREAM(p, x) a store past the caches.
 *
 * A line of 64 bytes at a time: all of it is computed, then stored whole to one stream after the
 * other. */

#ifdef VEC /* alone, there is nothing in it */

/* clang-format off */
#define L(k) (*(const V *)(p[k] + i + h))
#define TREE1 L(0)
#define TREE2 (L(0) + L(1))
#define TREE3 ((L(0) + L(1)) + L(2))
#define TREE4 ((L(0) + L(1)) + (L(2) + L(3)))
#define TREE8 (((L(0) + L(1)) + (L(2) + L(3))) + ((L(4) + L(5)) + (L(6) + L(7))))
/* clang-format on */

#define FOR_LINE for (int64_t i = 0; i < bytes; i += 64)
#define FOR_PART _Pragma("GCC unroll 4") for (int h = 0; h < 64; h += VEC_BYTES)

/* bytes is a multiple of 64; stream only with one aligned out */
#define DEFINE_N(NAME, T, N, TREE)                                                       \
    VEC_TARGET static void VEC(NAME)(const char *const *in, int n_out, char *const *out, \
                                     int64_t bytes, bool stream)                         \
    {                                                                                    \
        typedef T   V __attribute__((vector_size(VEC_BYTES), aligned(1), may_alias));    \
        const char *p[N];                                                                \
        char       *o = out[0];                                                          \
        V           x[64 / VEC_BYTES];                                                   \
        for (int k = 0; k < N; k++) p[k] = in[k];                                        \
        if (stream) FOR_LINE                                                             \
            {                                                                            \
                FOR_PART x[h / VEC_BYTES] = TREE;                                        \
                FOR_PART VEC_STREAM(o + i + h, x[h / VEC_BYTES]);                        \
            }                                                                            \
        else if (n_out == 1)                                                             \
            FOR_LINE                                                                     \
            {                                                                            \
                FOR_PART x[h / VEC_BYTES]  = TREE;                                       \
                FOR_PART *(V *)(o + i + h) = x[h / VEC_BYTES];                           \
            }                                                                            \
        else                                                                             \
            FOR_LINE                                                                     \
            {                                                                            \
                FOR_PART x[h / VEC_BYTES] = TREE;                                        \
                for (int k = 0; k < n_out; k++)                                          \
                    FOR_PART *(V *)(out[k] + i + h) = x[h / VEC_BYTES];                  \
            }                                                                            \
    }

/* Any n up to VEC_MAX, any tree. */
#define DEFINE_ANY(NAME, T)                                                              \
    VEC_TARGET static void VEC(NAME)(int n, const char *const *in, const vec_add *add,   \
                                     int n_out, char *const *out, int64_t bytes,         \
                                     bool stream)                                        \
    {                                                                                    \
        typedef T V __attribute__((vector_size(VEC_BYTES), aligned(1), may_alias));      \
        V         x[VEC_MAX];                                                            \
        for (int64_t i = 0; i < bytes; i += VEC_BYTES) {                                 \
            for (int k = 0; k < n; k++) x[k] = *(const V *)(in[k] + i);                  \
            for (int k = 0; k < n - 1; k++) x[add[k].to] += x[add[k].from];              \
            if (stream)                                                                  \
                VEC_STREAM(out[0] + i, x[0]);                                            \
            else                                                                         \
                for (int k = 0; k < n_out; k++) *(V *)(out[k] + i) = x[0];               \
        }                                                                                \
    }

#define DEFINE_TYPE(S, T)                                                                \
    DEFINE_N(S##2, T, 2, TREE2)                                                          \
    DEFINE_N(S##3, T, 3, TREE3)                                                          \
    DEFINE_N(S##4, T, 4, TREE4)                                                          \
    DEFINE_N(S##8, T, 8, TREE8)                                                          \
    DEFINE_ANY(S##_any, T)                                                               \
    VEC_TARGET static void VEC(S)(int n, const char *const *in, const vec_add *add,      \
                                  int n_out, char *const *out, int64_t bytes,            \
                                  bool stream)                                           \
    {                                                                                    \
        switch (n) {                                                                     \
        case 2: VEC(S##2)(in, n_out, out, bytes, stream); break;                         \
        case 3: VEC(S##3)(in, n_out, out, bytes, stream); break;                         \
        case 4: VEC(S##4)(in, n_out, out, bytes, stream); break;                         \
        case 8: VEC(S##8)(in, n_out, out, bytes, stream); break;                         \
        default: VEC(S##_any)(n, in, add, n_out, out, bytes, stream);                    \
        }                                                                                \
    }

DEFINE_TYPE(f32, float)
DEFINE_TYPE(f64, double)
DEFINE_TYPE(u32, uint32_t)
DEFINE_TYPE(u64, uint64_t)
DEFINE_N(copy1, uint64_t, 1, TREE1)

static const vec_set VEC(set) = {VEC(f32),     VEC(f64),     VEC(u32),
                                 VEC(u64),     VEC(f32_any), VEC(f64_any),
                                 VEC(u32_any), VEC(u64_any), VEC(copy1)};

#undef L
#undef TREE1
#undef TREE2
#undef TREE3
#undef TREE4
#undef TREE8
#undef FOR_LINE
#undef FOR_PART
#undef DEFINE_N
#undef DEFINE_ANY
#undef DEFINE_TYPE
#undef VEC
#undef VEC_TARGET
#undef VEC_BYTES
#undef VEC_STREAM

#endif
