/* Any bytes as YAML and then as an override of it.  What is accepted prints as JSON, which is YAML
 * too and reads back to the same text. */
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void override(weft_doc *d, const uint8_t *data, size_t n)
{
    char *s = malloc(n + 3);
    if (!s) return;
    memcpy(s, "k=", 2);
    memcpy(s + 2, data, n);
    s[n + 2] = 0;
    weft_doc_override(d, s);
    weft_doc_override(d, s + 2);
    free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_doc *d, *again;
    weft_text a = {0}, b = {0};
    if (weft_doc_parse_yaml("f", "a: {b: 1}", 9, &d) != WEFT_OK) abort();
    override(d, data, n);
    weft_doc_destroy(d);
    if (weft_doc_parse_yaml("f", (const char *)data, n, &d) != WEFT_OK) return 0;
    override(d, data, n / 2);
    weft_node_print_json(weft_doc_root(d), &a);
    if (weft_doc_parse_yaml("f", a.s, a.n, &again) != WEFT_OK) abort();
    weft_node_print_json(weft_doc_root(again), &b);
    if (strcmp(a.s, b.s) != 0) abort();
    weft_text_fini(&a);
    weft_text_fini(&b);
    weft_doc_destroy(d);
    weft_doc_destroy(again);
    return 0;
}
