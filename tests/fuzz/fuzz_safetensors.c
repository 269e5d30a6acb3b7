/* Any bytes as a safetensors file; a good one must come out of the writer as it went in. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "store/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    weft_store_file   *f   = NULL;
    weft_store_writer *w   = NULL;
    volatile uint8_t   sum = 0;

    if (weft_store_parse("fuzz", p, n, &f) != WEFT_OK) return 0;
    for (int i = 0; i < weft_store_count(f); i++) {
        const weft_store_tensor *t = weft_store_at(f, i);

        if (weft_store_find(f, t->name) != t) __builtin_trap();
        for (int64_t k = 0; k < t->bytes; k++)
            sum = (uint8_t)(sum + ((const uint8_t *)t->data)[k]);
    }
    if (weft_store_writer_create(&(weft_store_spec){.like = f}, &w) != WEFT_OK ||
        weft_store_writer_bytes(w) != (int64_t)n)
        __builtin_trap();
    weft_store_writer_destroy(w);
    weft_store_close(f);
    return 0;
}
