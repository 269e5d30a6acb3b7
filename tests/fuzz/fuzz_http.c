/* Any bytes as a request: a status code, the same one however the bytes come. */
#include <stddef.h>
#include <stdint.h>

#include "launch/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    int status = weft_http_read_request((const char *)data, n);
    if (status && status != 200 && status != 400 && status != 404 && status != 405)
        __builtin_trap();
    return 0;
}
