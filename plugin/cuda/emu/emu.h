/* CUDA kernels on the CPU, for tests where there is no GPU: blocks one after another, the
 * threads of a block as fibers that take turns at barriers and shuffles.  Only what kernels/
 * uses is here. */
#ifndef WEFT_CUDA_EMU_H
#define WEFT_CUDA_EMU_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __shared__ static /* blocks do not overlap */
#define __restrict__

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};

struct alignas(8) float2 {
    float x, y;
};

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float __uint_as_float(unsigned x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x)
{
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}

struct emu_dim {
    unsigned x, y, z;
};
extern emu_dim threadIdx, blockIdx, blockDim, gridDim;

/* Runs a kernel's body for every thread of a grid; args are its argument struct.  One at a time. */
void emu_run(void (*kernel)(const void *), emu_dim grid, unsigned threads,
             unsigned shared_bytes, const void *args);

/* Dynamic shared memory of a block: CU_SHARED(float, tile); in both compilers. */
extern char *emu_shared;

void __syncthreads(void);
void __syncwarp(unsigned mask = 0xffffffffu);
/* What lane `from` of the caller's warp passed. */
uint64_t emu_exchange(uint64_t word, int from);
/* One bit for each lane of the caller's warp that passed the same word. */
unsigned emu_match(uint64_t word);
int      emu_lane(void);
/* Other threads run; false: the caller and all others wait in vain. */
bool emu_yield(void);
/* Something that another thread may wait for. */
void emu_note_event(void);
/* All wait: what is under way is done, or it is an error (emu/wgmma.cpp). */
void emu_stuck(void);
/* Until so many threads have come to named barrier `id`. */
void emu_meet(int id, int threads);

template <typename T> static inline T emu_shuffle(T x, int from)
{
    uint64_t w = 0;
    memcpy(&w, &x, sizeof x);
    w = emu_exchange(w, from);
    memcpy(&x, &w, sizeof x);
    return x;
}
template <typename T> static inline T __shfl_xor_sync(unsigned, T x, int k)
{
    return emu_shuffle(x, emu_lane() ^ k);
}
template <typename T> static inline T __shfl_down_sync(unsigned, T x, int k)
{
    return emu_shuffle(x, emu_lane() + k < 32 ? emu_lane() + k : emu_lane());
}
template <typename T> static inline T __shfl_up_sync(unsigned, T x, int k)
{
    return emu_shuffle(x, emu_lane() >= k ? emu_lane() - k : emu_lane());
}
template <typename T> static inline T __shfl_sync(unsigned, T x, int k)
{
    return emu_shuffle(x, k);
}

template <typename T> static inline unsigned __match_any_sync(unsigned, T x)
{
    uint64_t w = 0;
    memcpy(&w, &x, sizeof x);
    return emu_match(w);
}
static inline unsigned __ballot_sync(unsigned, int x)
{
    unsigned same = emu_match(x != 0);
    return x ? same : ~same;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

/* Integers only: sums of floats would depend on the order. */
static inline unsigned atomicAdd(unsigned *p, unsigned x)
{
    unsigned old = *p;
    *p += x;
    return old;
}

static inline unsigned atomicMax(unsigned *p, unsigned x)
{
    unsigned old = *p;
    if (x > old) *p = x;
    return old;
}

static inline int atomicExch(int *p, int x)
{
    int old = *p;
    *p      = x;
    return old;
}

/* Operations that the compiler neither joins nor divides: these files are compiled without
 * contraction. */
#define CU_EMU_EXACT(letter, type, sqrt_of)                                      \
    static inline type __##letter##add_rn(type a, type b) { return a + b; }              \
    static inline type __##letter##sub_rn(type a, type b) { return a - b; }              \
    static inline type __##letter##mul_rn(type a, type b) { return a * b; }              \
    static inline type __##letter##div_rn(type a, type b) { return a / b; }              \
    static inline type __##letter##sqrt_rn(type a) { return sqrt_of(a); }
CU_EMU_EXACT(f, float, sqrtf)
CU_EMU_EXACT(d, double, sqrt)
#undef CU_EMU_EXACT

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}

#endif
