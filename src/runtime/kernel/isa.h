/* Which vector instructions the CPU kernels use in this process.
 *
 * Chosen once, from the processor, or from WEFT_ISA=plain|avx2|avx512 where that is set and the
 * processor has them.  Kernels written over kernel/vec.h give the same bits for every choice. */
#ifndef WEFT_KERNEL_ISA_H
#define WEFT_KERNEL_ISA_H

#include <stdbool.h>

typedef enum weft_isa {
    WEFT_ISA_PLAIN,
    WEFT_ISA_AVX2, /* with FMA */
    WEFT_ISA_AVX512,
    WEFT_N_ISA
} weft_isa;

weft_isa    weft_kernel_isa(void);
const char *weft_kernel_isa_name(weft_isa isa); /* "avx2" */

/* For tests and benchmarks, while no kernel runs: false when this processor cannot. */
bool weft_kernel_isa_use(weft_isa isa);

#endif
