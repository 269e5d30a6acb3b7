/* Program text: whatever it holds, reading, checking and writing it must not crash, and what was
 * read must read back the same. */
#include <stdlib.h>
#include <string.h>

#include "program/program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_program **p, *q;
    int            n_p;
    if (weft_program_parse_set("fuzz", (const char *)data, n, &p, &n_p) != WEFT_OK)
        return 0;
    if (n_p <= 4) (void)weft_program_verify_all((const weft_program *const *)p, n_p);
    weft_text a = {0}, b = {0};
    if (weft_program_print(p[0], &a) != WEFT_OK) abort();
    if (weft_program_parse("again", a.s, a.n, &q) != WEFT_OK) abort();
    if (weft_program_print(q, &b) != WEFT_OK) abort();
    if (a.n != b.n || memcmp(a.s, b.s, a.n)) abort();
    weft_text_fini(&a);
    weft_text_fini(&b);
    weft_program_destroy(q);
    weft_program_destroy_set(p, n_p);
    return 0;
}
