/* Any words under a right checksum, and as state.json; what is accepted prints as it was read. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/manifest.h"
#include "ckpt/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    char              *s = malloc(n + 16);
    weft_ckpt_manifest m;
    weft_ckpt_state    st;
    weft_text          t = {0};

    memcpy(s, p, n);
    snprintf(s + n, 16, "end %08x\n", weft_hash_crc32c(0, p, n));
    if (weft_ckpt_manifest_parse("fuzz", s, n + 13, &m) == WEFT_OK) {
        if (weft_ckpt_manifest_print(&m, &t) != WEFT_OK || t.n != n + 13 ||
            memcmp(t.s, s, t.n))
            __builtin_trap();
        weft_ckpt_manifest_fini(&m);
    }
    weft_text_fini(&t);
    if (weft_ckpt_state_parse("fuzz", s, n, &st) == WEFT_OK) weft_ckpt_state_fini(&st);
    free(s);
    return 0;
}
