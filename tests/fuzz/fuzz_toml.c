/* Any bytes as TOML.  What is accepted prints as JSON that reads back to the same text. */
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_doc *d, *again;
    weft_text a = {0}, b = {0};
    if (weft_doc_parse_toml("f", (const char *)data, n, &d) != WEFT_OK) return 0;
    weft_node_print_json(weft_doc_root(d), &a);
    if (weft_doc_parse_json("f", a.s, a.n, &again) != WEFT_OK) abort();
    weft_node_print_json(weft_doc_root(again), &b);
    if (strcmp(a.s, b.s) != 0) abort();
    weft_text_fini(&a);
    weft_text_fini(&b);
    weft_doc_destroy(d);
    weft_doc_destroy(again);
    return 0;
}
