/* Any bytes as another engine's words: the first byte says which one.  What is read can be
 * written. */
#include <stdlib.h>

#include "engine/engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_arena      *a;
    weft_config      c;
    weft_engine_plan p;
    weft_text        t = {0};
    if (!n || weft_arena_create(&a) != WEFT_OK) return 0;
    weft_engine e = (weft_engine)(data[0] % WEFT_ENGINE_PADDLE);
    weft_engine_open(&c);
    c.layers = 12;
    c.hidden = 768;
    c.seq    = 1024;
    if (weft_engine_read(e, "f", (const char *)data + 1, n - 1, 64, a, &c, &t) ==
            WEFT_OK &&
        weft_config_complete("f", &c) == WEFT_OK &&
        weft_engine_plan_of(&c, a, &p) == WEFT_OK)
        for (int k = 0; k < WEFT_N_ENGINE; k++)
            (void)weft_engine_emit((weft_engine)k, &c, &p, &t);
    weft_text_fini(&t);
    weft_arena_destroy(a);
    return 0;
}
