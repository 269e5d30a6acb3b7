/* Text of meshes, layouts and marks: whatever it holds, reading it must not crash, and
 * what was read must read back the same. */
#include <stdlib.h>
#include <string.h>

#include "shard/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Reads what stands there and writes it; false: that is no such thing. */
static bool copy(weft_arena *a, const char *text, size_t n, weft_text *out)
{
    weft_lex    x;
    weft_mesh   m;
    weft_layout l;
    weft_mark   k;
    weft_lex_init(&x, a, "fuzz", text, n);
    if (weft_mesh_parse(&x, a, &m) != WEFT_OK) return false;
    weft_mesh_print(&m, out);
    weft_text_add(out, "\n");
    if (weft_lex_is(&x, "mark")) {
        if (weft_mark_parse(&x, &m, &k) != WEFT_OK) return false;
        weft_mark_print(&k, &m, out);
    } else {
        if (weft_layout_parse(&x, &m, 0, &l) != WEFT_OK) return false;
        weft_layout_print(&l, &m, out);
    }
    return weft_text_status(out) == WEFT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_arena *a;
    weft_text   one = {0}, two = {0};
    if (weft_arena_create(&a) != WEFT_OK) return 0;
    if (copy(a, (const char *)data, n, &one)) {
        if (!copy(a, one.s, one.n, &two)) abort();
        if (one.n != two.n || memcmp(one.s, two.s, one.n)) abort();
    }
    weft_text_fini(&one);
    weft_text_fini(&two);
    weft_arena_destroy(a);
    return 0;
}
