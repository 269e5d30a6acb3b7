/* For .cu files: what Hopper's tensor cores need: boxes copied by the tensor memory
 * accelerator, barriers in shared memory that count their bytes, products of a warpgroup that
 * read one or both operands there.  sm_90a alone; emu/wgmma.h has the same for the CPU. */
#ifndef WEFT_CUDA_WGMMA_H
#define WEFT_CUDA_WGMMA_H

#include "cuda_vec.h"

#ifndef __CUDACC__
#define CU_WGMMA 1
#include "emu/wgmma.h"
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CU_WGMMA 1

/* ---- shared memory by its address ---- */

CU_FN uint32_t cu_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

CU_FN void cu_shared_put(uint32_t at, uint32_t x)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

CU_FN uint32_t cu_shared_word(uint32_t at)
{
    uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}

CU_FN void cu_shared_put4(uint32_t at, uint4 v)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

CU_FN uint4 cu_shared_get(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

CU_FN float2 cu_shared_get2(uint32_t at)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(at)
                 : "memory");
    return v;
}

/* Four matrices of 8 x 8 words of 16 bits: of matrix i, lane l has row l / 4, columns 2 (l % 4)
 * and the next in v[i]; lane 8 i + r gives the address of its row r (16 bytes). */
CU_FN void cu_store_matrices(uint32_t at, const uint32_t *v)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
        "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
        : "memory");
}

/* Two elements of bf16 in a word. */
CU_FN uint32_t cu_pair(float low, float high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&v;
}

CU_FN float cu_low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}
CU_FN float cu_high(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

/* Until so many threads have come to named barrier `id` (1 .. 15). */
template <int ID, int N> CU_FN void cu_meet(void)
{
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(N) : "memory");
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

/* The same of a map of four dimensions. */
CU_FN void cu_head_load(const weft_cuda_tensor_map *map, uint32_t to, uint32_t bar, int e,
                        int row, int head, int sample)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
                 "bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(e), "r"(row), "r"(head), "r"(sample)
                 : "memory");
}

/* From shared memory; what is outside of the tensor is left out. */
CU_FN void cu_head_store(const weft_cuda_tensor_map *map, uint32_t from, int e, int row,
                         int head, int sample)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, "
        "%5}], [%1];" ::"l"(map),
        "r"(from), "r"(e), "r"(row), "r"(head), "r"(sample)
        : "memory");
}

/* Bytes without gaps, both ways; add: f32, to what is there. */
CU_FN void cu_bulk_load(uint32_t to, const void *from, int bytes, uint32_t bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
        "[%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(bar)
        : "memory");
}

CU_FN void cu_bulk_store(void *to, uint32_t from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}

CU_FN void cu_bulk_add(float *to, uint32_t from, int bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], "
                 "%2;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}

/* Stores of this thread so far: until they have read shared memory, and until they are done. */
CU_FN void cu_bulk_wait_read(void)
{
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::
                     : "memory");
}

CU_FN void cu_bulk_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- turns of blocks: a counter in global memory ---- */

/* Until it is `turn`: what was copied before cu_turn_pass is seen. */
CU_FN void cu_turn_wait(const uint32_t *counter, uint32_t turn)
{
    uint32_t x;
    do
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(x)
                     : "l"(counter)
                     : "memory");
    while (x != turn);
    asm volatile("fence.proxy.async;" ::: "memory");
}

CU_FN void cu_turn_pass(uint32_t *counter, uint32_t next)
{
    asm volatile("fence.proxy.async;\nst.release.gpu.global.u32 [%0], %1;" ::"l"(counter),
                 "r"(next)
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

/* What products wrote is not read before this. */
template <int N> CU_FN void cu_wgmma_hold(float (&d)[N])
{
    CU_UNROLL
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
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

/* The same with 64 columns. */
template <int A, int B>
CU_FN void cu_wgmma(float (&d)[32], uint64_t a, uint64_t b, int with_d)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
                 "}, %32, %33, p, 1, 1, %35, %36;\n"
                 "}"
                 : CU_D16(0), CU_D16(16)
                 : "l"(a), "l"(b), "r"(with_d), "n"(A), "n"(B));
}

/* a in registers: of warp w, a[0], a[1] are row 16w + g and row 16w + g + 8, columns 2t and the
 * next; a[2], a[3] the same of columns 2t + 8. */
template <int B>
CU_FN void cu_wgmma_from(float (&d)[32], const uint32_t *a, uint64_t b, int with_d)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
                 "}, {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n"
                 "}"
                 : CU_D16(0), CU_D16(16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(with_d),
                   "n"(B));
}

/* The same with 128 columns. */
template <int A, int B>
CU_FN void cu_wgmma(float (&d)[64], uint64_t a, uint64_t b, int with_d)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                 "}, %64, %65, p, 1, 1, %67, %68;\n"
                 "}"
                 : CU_D64(0)
                 : "l"(a), "l"(b), "r"(with_d), "n"(A), "n"(B));
}

/* a in registers: of warp w, a[0], a[1] are row 16w + g and row 16w + g + 8, columns 2t and the
 * next; a[2], a[3] the same of columns 2t + 8. */
template <int B>
CU_FN void cu_wgmma_from(float (&d)[64], const uint32_t *a, uint64_t b, int with_d)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                 "}, {%64,%65,%66,%67}, %68, p, 1, 1, %70;\n"
                 "}"
                 : CU_D64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(with_d),
                   "n"(B));
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
