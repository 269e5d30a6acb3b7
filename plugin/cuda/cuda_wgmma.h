/* For .cu files: what Hopper's tensor cores need: boxes copied by the tensor memory
 * accelerator, barriers in shared memory that count their bytes, products of a warpgroup that
 * read both operands there.  sm_90a alone. */
#ifndef WEFT_CUDA_WGMMA_H
#define WEFT_CUDA_WGMMA_H

#include "cuda_device.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CU_WGMMA 1

CU_FN uint32_t cu_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- barriers: 8 bytes each ---- */

CU_FN void cu_barrier_init(uint32_t bar, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals)
                 : "memory");
}

/* After all inits, before copies use them. */
CU_FN void cu_barrier_publish(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and lets the phase wait for so many bytes of copies. */
CU_FN void cu_barrier_expect(uint32_t bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                 "r"(bytes)
                 : "memory");
}

CU_FN void cu_barrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

CU_FN bool cu_barrier_passed(uint32_t bar, int parity)
{
    uint32_t passed;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.b32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(passed)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return passed != 0;
}

/* Until the phase of this parity is over; a new barrier is in phase 0, so waiting for 1 returns
 * at once. */
CU_FN void cu_barrier_wait(uint32_t bar, int parity)
{
    while (!cu_barrier_passed(bar, parity)) {
    }
}

/* ---- copies: a box of a tensor map, whose first element is (x, y, z), to shared memory ---- */

CU_FN void cu_box_load(const weft_cuda_tensor_map *map, uint32_t to, uint32_t bar, int x,
                       int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::"
                 "bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

CU_FN void cu_box_prefetch(const weft_cuda_tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* 128 bytes to the L2 cache. */
CU_FN void cu_prefetch(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* What threads stored to shared memory is seen by copies and products that follow. */
CU_FN void cu_async_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- products of a warpgroup ---- */

/* An operand in rows of 128 bytes, 8 rows a pattern of the swizzle (1024 bytes, aligned so).  k
 * runs fastest: rows of 64 along k, eight of them every 1024 bytes.  Else rows are 64 along m
 * or n, one a k, and the next 64 are `next` bytes away. */
CU_FN uint64_t cu_operand(uint32_t address, int next)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(next >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

CU_FN void cu_wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

CU_FN void cu_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until all groups but the last n are done. */
template <int N> CU_FN void cu_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define CU_D4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define CU_D16(i) CU_D4(i), CU_D4(i + 4), CU_D4(i + 8), CU_D4(i + 12)
#define CU_D64(i) CU_D16(i), CU_D16(i + 16), CU_D16(i + 32), CU_D16(i + 48)

/* d (64 x 256, f32) = a (64 x 16) b (16 x 256) + d, or without d, bf16; A, B: the operand runs
 * along m or n, not k. Of warp w, with g = lane / 4 and t = lane % 4: d[4j], d[4j + 1] are row
 * 16w + g, columns 8j + 2t and the next; d[4j + 2], d[4j + 3] row 16w + g + 8. */
template <int A, int B>
CU_FN void cu_wgmma(float (&d)[128], uint64_t a, uint64_t b, int with_d)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
        "}, %128, %129, p, 1, 1, %131, %132;\n"
        "}"
        : CU_D64(0), CU_D64(64)
        : "l"(a), "l"(b), "r"(with_d), "n"(A), "n"(B));
}

/* Registers of a thread from here on, the whole warpgroup's: given back, or taken. */
template <int N> CU_FN void cu_fewer_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> CU_FN void cu_more_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

#endif

#endif
