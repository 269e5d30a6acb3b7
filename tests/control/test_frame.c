/* Frames however their bytes come, and frames that say they are too long. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "control/frame.h"
#include "support/count_alloc.h"

static void frames_in_pieces_of_every_size(void **state)
{
    weft_control__buffer from = {0};
    uint8_t              data[600];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)i;
    for (uint32_t k = 0; k < 40; k++)
        assert_int_equal(weft_control__frame_put(&from, k, data, 15 * k), WEFT_OK);
    for (size_t piece = 1; piece < 3000; piece += 97) {
        weft_control__buffer to   = {0};
        uint32_t             next = 0;
        for (size_t at = 0; at < from.n; at += piece) {
            size_t   n = from.n - at < piece ? from.n - at : piece;
            uint8_t *p = weft_control__buffer_space(&to, n);
            assert_non_null(p);
            memcpy(p, from.byte + at, n);
            to.n += n;
            weft_control__frame f;
            while (weft_control__frame_take(&to, 600, &f) == WEFT_CONTROL__WHOLE) {
                assert_true(f.kind == next && f.bytes == 15 * next);
                assert_memory_equal(f.data, data, f.bytes);
                weft_control__buffer_drop(&to, f.all);
                next++;
            }
        }
        assert_int_equal(next, 40);
        assert_int_equal(to.n, 0);
        weft_control__buffer_fini(&to);
    }
    weft_control__buffer_fini(&from);
}

static void a_frame_that_is_too_long_is_known_by_its_head(void **state)
{
    static const uint8_t head[8] = {0x01, 0x00, 0x10, 0x00, 0x07}; /* 1 MiB and 1 */
    weft_control__buffer b       = {0};
    weft_control__frame  f;
    (void)state;
    uint8_t *p = weft_control__buffer_space(&b, sizeof head);
    memcpy(p, head, sizeof head);
    b.n = 7;
    assert_int_equal(weft_control__frame_take(&b, 1 << 20, &f), WEFT_CONTROL__PART);
    b.n = 8;
    assert_int_equal(weft_control__frame_take(&b, 1 << 20, &f), WEFT_CONTROL__TOO_LONG);
    assert_int_equal(weft_control__frame_take(&b, (1 << 20) + 1, &f), WEFT_CONTROL__PART);
    weft_control__buffer_fini(&b);
}

static void no_memory_leaves_a_buffer_as_it_was(void **state)
{
    weft_control__buffer b = {0};
    weft_control__frame  f;
    static uint8_t       data[100000];
    (void)state;
    assert_int_equal(weft_control__frame_put(&b, 1, "abc", 3), WEFT_OK);
    if (weft_test_alloc_fail_at(1)) {
        assert_int_equal(weft_control__frame_put(&b, 2, data, sizeof data), WEFT_ERR_MEM);
        weft_test_alloc_fail_at(0);
    }
    assert_int_equal(weft_control__frame_take(&b, 100, &f), WEFT_CONTROL__WHOLE);
    assert_true(f.kind == 1 && f.bytes == 3 && f.all == b.n);
    assert_memory_equal(f.data, "abc", 3);
    weft_control__buffer_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_in_pieces_of_every_size),
        cmocka_unit_test(a_frame_that_is_too_long_is_known_by_its_head),
        cmocka_unit_test(no_memory_leaves_a_buffer_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
