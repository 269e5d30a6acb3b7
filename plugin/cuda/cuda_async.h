/* For .cu files: copies from global to shared memory that are under way while a thread computes.
 *
 *     cu_copy16(to, from);       16 bytes; both addresses are multiples of 16
 *     cu_copy_commit();          what was started since the last one is a group
 *     cu_copy_wait<2>();         all of the thread's groups but the last 2 are there
 *
 * A thread that reads only what it copied itself needs no barrier. */
#ifndef WEFT_CUDA_ASYNC_H
#define WEFT_CUDA_ASYNC_H

#include "cuda_device.h"

#ifdef __CUDACC__
CU_FN void cu_copy16(void *to, const void *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(at), "l"(from));
}
CU_FN void cu_copy_commit(void)
{
    asm volatile("cp.async.commit_group;");
}
template <int N> CU_FN void cu_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}
#else
CU_FN void cu_copy16(void *to, const void *from)
{
    memcpy(to, from, 16);
}
CU_FN void                  cu_copy_commit(void) {}
template <int N> CU_FN void cu_copy_wait(void) {}
#endif

#endif
