/* Any bytes as TOML.  What is accepted prints as JSON that reads back to the same text. */
#include "doc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_doc *d;
    if (weft_doc_parse_toml("f", (const char *)data, n, &d) != WEFT_OK) return 0;
    fuzz_reads_back(d, weft_doc_parse_json);
    weft_doc_destroy(d);
    return 0;
}
