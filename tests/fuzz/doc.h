/* A document that was accepted prints as JSON which reads back to the same text. */
#ifndef WEFT_FUZZ_DOC_H
#define WEFT_FUZZ_DOC_H

#include <stdlib.h>
#include <string.h>

#include "base/doc.h"

typedef weft_status (*fuzz_parse)(const char *file, const char *text, size_t n,
                                  weft_doc **out);

static inline void fuzz_reads_back(const weft_doc *d, fuzz_parse parse)
{
    weft_doc *again;
    weft_text a = {0}, b = {0};
    weft_node_print_json(weft_doc_root(d), &a);
    if (parse("f", a.s, a.n, &again) != WEFT_OK) abort();
    weft_node_print_json(weft_doc_root(again), &b);
    if (strcmp(a.s, b.s) != 0) abort();
    weft_text_fini(&a);
    weft_text_fini(&b);
    weft_doc_destroy(again);
}

#endif
