/* Any bytes as a Megatron index of a .bin of some length; what is accepted lies inside the .bin. */
#include <stddef.h>
#include <stdint.h>

#include "data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    weft_data_idx x;
    int64_t       n_bin = n ? p[n - 1] * 16 : 0;

    if (weft_data_idx_parse("fuzz", p, n, n_bin, &x) != WEFT_OK) return 0;
    for (int64_t i = 0; i < x.n_seq; i++) {
        int64_t end = weft_data_idx_offset(&x, i) +
                      (int64_t)weft_data_idx_length(&x, i) * weft_dtype_bytes(x.dtype);

        if (weft_data_idx_offset(&x, i) < 0 || end > n_bin) __builtin_trap();
    }
    return 0;
}
