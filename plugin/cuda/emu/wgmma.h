/* cuda_wgmma.h for the CPU.  What runs by itself on a GPU is done as late as a program allows, so
 * that one which does not wait for it is found: copies to shared memory when nothing else can go
 * on (until then it holds no numbers), copies from it and products when their thread waits for
 * them. */
#ifndef WEFT_CUDA_EMU_WGMMA_H
#define WEFT_CUDA_EMU_WGMMA_H

#include "cuda_device.h"

static inline char *emu_at(uint32_t address)
{
    return emu_shared + address;
}

static inline uint32_t cu_shared_address(const void *p)
{
    return (uint32_t)((const char *)p - emu_shared);
}

template <typename T> static inline T emu_read(uint32_t at)
{
    T v;
    memcpy(&v, emu_at(at), sizeof v);
    return v;
}

static inline void cu_shared_put(uint32_t at, uint32_t x)
{
    memcpy(emu_at(at), &x, sizeof x);
}

static inline void cu_shared_put4(uint32_t at, uint4 v)
{
    memcpy(emu_at(at), &v, sizeof v);
}

static inline uint32_t cu_shared_word(uint32_t at)
{
    return emu_read<uint32_t>(at);
}

static inline uint4 cu_shared_get(uint32_t at)
{
    return emu_read<uint4>(at);
}

static inline float2 cu_shared_get2(uint32_t at)
{
    return emu_read<float2>(at);
}

static inline void cu_store_matrices(uint32_t at, const uint32_t *v)
{
    for (int i = 0; i < 4; i++) {
        uint32_t row = (uint32_t)emu_exchange(at, i * 8 + emu_lane() / 4);
        cu_shared_put(row + (uint32_t)emu_lane() % 4 * 4, v[i]);
    }
}

static inline uint32_t cu_pair(float low, float high)
{
    return (uint32_t)cu_round(low) | (uint32_t)cu_round(high) << 16;
}

static inline float cu_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

static inline float cu_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

template <int ID, int N> static inline void cu_meet(void)
{
    emu_meet(ID, N);
}

/* ---- barriers ---- */

void cu_barrier_init(uint32_t bar, int arrivals);
void cu_barrier_expect(uint32_t bar, int bytes);
void cu_barrier_arrive(uint32_t bar);
void cu_barrier_wait(uint32_t bar, int parity);

static inline void cu_barrier_publish(void) {}
static inline void cu_async_fence(void) {}
static inline void cu_prefetch(const void *) {}
static inline void cu_box_prefetch(const weft_cuda_tensor_map *) {}

/* ---- copies ---- */

/* As weft_cuda_map_boxes and weft_cuda_map_heads describe a tensor: d and box of 4, strides in
 * bytes of the last three. */
weft_cuda_tensor_map emu_map(const void *p, const uint64_t *d, const uint64_t *stride,
                             const uint32_t *box);

void emu_load(const weft_cuda_tensor_map *map, uint32_t to, uint32_t bar, const int *at);
void emu_store(const weft_cuda_tensor_map *map, uint32_t from, const int *at);

static inline void cu_box_load(const weft_cuda_tensor_map *map, uint32_t to, uint32_t bar,
                               int x, int y, int z)
{
    const int at[4] = {x, y, z, 0};
    emu_load(map, to, bar, at);
}

static inline void cu_head_load(const weft_cuda_tensor_map *map, uint32_t to,
                                uint32_t bar, int e, int row, int head, int sample)
{
    const int at[4] = {e, row, head, sample};
    emu_load(map, to, bar, at);
}

static inline void cu_head_store(const weft_cuda_tensor_map *map, uint32_t from, int e,
                                 int row, int head, int sample)
{
    const int at[4] = {e, row, head, sample};
    emu_store(map, from, at);
}

void               cu_bulk_load(uint32_t to, const void *from, int bytes, uint32_t bar);
void               cu_bulk_store(void *to, uint32_t from, int bytes);
void               cu_bulk_add(float *to, uint32_t from, int bytes);
void               cu_bulk_wait_read(void);
static inline void cu_bulk_wait(void) {}

/* Blocks run one after another, so a turn that has not come will not come. */
void               cu_turn_wait(const uint32_t *counter, uint32_t turn);
static inline void cu_turn_pass(uint32_t *counter, uint32_t next)
{
    *counter = next;
}

/* ---- products ---- */

static inline uint64_t cu_operand(uint32_t address, int next)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(next >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

struct emu_product {
    float          *d;
    int             n;    /* columns */
    const uint32_t *from; /* the left operand in registers, or NULL: */
    uint64_t        a, b;
    bool            a_turned, b_turned, with_d;
};

void emu_multiply(const emu_product &p);
void emu_wgmma_wait(int n);
void cu_wgmma_commit(void);

static inline void                  cu_wgmma_begin(void) {}
template <int N> static inline void cu_wgmma_wait(void)
{
    emu_wgmma_wait(N);
}
template <int N> static inline void cu_wgmma_hold(float (&)[N]) {}

template <int A, int B, int N>
static inline void cu_wgmma(float (&d)[N], uint64_t a, uint64_t b, int with_d)
{
    emu_multiply({d, 2 * N, NULL, a, b, A != 0, B != 0, with_d != 0});
}

template <int B, int N>
static inline void cu_wgmma_from(float (&d)[N], const uint32_t *a, uint64_t b, int with_d)
{
    emu_multiply({d, 2 * N, a, 0, b, false, B != 0, with_d != 0});
}

template <int N> static inline void cu_fewer_registers(void) {}
template <int N> static inline void cu_more_registers(void) {}

#endif
