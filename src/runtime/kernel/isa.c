/* The choice of vector instructions: asked of the processor once, kept in one atomic. */
#include "kernel/isa.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int chosen = -1;

const char *weft_kernel_isa_name(weft_isa isa)
{
    static const char *const name[WEFT_N_ISA] = {"plain", "avx2", "avx512"};
    return name[isa];
}

static bool has(weft_isa isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    switch (isa) {
    case WEFT_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("fma");
    case WEFT_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    default: return true;
    }
#else
    return isa == WEFT_ISA_PLAIN;
#endif
}

static weft_isa choose(void)
{
    const char *want = getenv("WEFT_ISA");
    int         best = WEFT_ISA_PLAIN;

    for (int i = 0; i < WEFT_N_ISA; i++) {
        if (!has((weft_isa)i)) continue;
        best = i;
        if (want && strcmp(want, weft_kernel_isa_name((weft_isa)i)) == 0) break;
    }
    return (weft_isa)best;
}

weft_isa weft_kernel_isa(void)
{
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (isa < 0) {
        isa = (int)choose();
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return (weft_isa)isa;
}

bool weft_kernel_isa_use(weft_isa isa)
{
    if (!has(isa)) return false;
    atomic_store_explicit(&chosen, (int)isa, memory_order_relaxed);
    return true;
}
