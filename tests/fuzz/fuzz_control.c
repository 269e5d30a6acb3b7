/* Any bytes on a control connection: frames are found where their heads say, a hello that is taken
 * prints and reads back as itself, and so does a request. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "control/frame.h"
#include "control/hello.h"
#include "control/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_hello(const uint8_t *data, size_t n)
{
    weft_control_hello h, back;
    weft_text          t = {0};
    char               why[640];
    if (weft_control_hello_parse(data, n, &h) != WEFT_OK) return;
    weft_control_hello_print(&h, &t);
    if (weft_control_hello_parse(t.s, t.n, &back) != WEFT_OK || back.wire != h.wire ||
        strcmp(back.job, h.job) != 0 || strcmp(back.kernels, h.kernels) != 0)
        __builtin_trap();
    if (!weft_control_hello_admits(&h, &back, why, sizeof why)) __builtin_trap();
    weft_text_fini(&t);
}

static void check_request(const uint8_t *data, size_t n)
{
    weft_control_request r, back;
    weft_text            t = {0};
    if (weft_control_request_parse(data, n, &r) != WEFT_OK) return;
    weft_control_request_print(&r, &t);
    if (weft_control_request_parse(t.s, t.n, &back) != WEFT_OK || back.ask != r.ask ||
        back.n != r.n || back.json != r.json || strcmp(back.host, r.host) != 0)
        __builtin_trap();
    weft_text_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_control__buffer b = {0};
    weft_control__frame  f;
    uint8_t             *p = weft_control__buffer_space(&b, n + 1);
    if (!p) return 0;
    if (n) memcpy(p, data, n);
    b.n = n;
    check_hello(data, n);
    check_request(data, n);
    while (weft_control__frame_take(&b, 1 << 20, &f) == WEFT_CONTROL__WHOLE) {
        check_hello(f.data, f.bytes);
        check_request(f.data, f.bytes);
        weft_control__buffer_drop(&b, f.all);
    }
    weft_control__buffer_fini(&b);
    return 0;
}
