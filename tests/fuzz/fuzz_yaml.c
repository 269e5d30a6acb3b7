/* Any bytes as YAML and then as an override of it.  What is accepted prints as JSON, which is YAML
 * too and reads back to the same text. */
#include "doc.h"

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
    weft_doc *d;
    if (weft_doc_parse_yaml("f", "a: {b: 1}", 9, &d) != WEFT_OK) abort();
    override(d, data, n);
    weft_doc_destroy(d);
    if (weft_doc_parse_yaml("f", (const char *)data, n, &d) != WEFT_OK) return 0;
    override(d, data, n / 2);
    fuzz_reads_back(d, weft_doc_parse_yaml);
    weft_doc_destroy(d);
    return 0;
}
