/* Any bytes as dumps of ranks, parts with a zero byte between: each is refused with a line or read,
 * and what was read is explained. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "launch/dumps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_dumps *d;
    weft_text   t = {0};
    if (weft_dumps_create(&d) != WEFT_OK) return 0;
    for (size_t from = 0; from < n;) {
        const uint8_t *end    = memchr(data + from, 0, n - from);
        size_t         length = end ? (size_t)(end - data) - from : n - from;
        (void)weft_dumps_add(d, "f", (const char *)data + from, length);
        from += length + 1;
    }
    (void)weft_dumps_explain(d, &t);
    weft_text_fini(&t);
    weft_dumps_destroy(d);
    return 0;
}
