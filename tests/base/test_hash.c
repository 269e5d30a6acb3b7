#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"

/* Published answers of XXH64. */
static void xxh64_known(void **state)
{
    (void)state;
    assert_true(weft_hash_xxh64("", 0, 0) == 0xEF46DB3751D8E999u);
    assert_true(weft_hash_xxh64("a", 1, 0) == 0xD24EC4F1A98C6E5Bu);
    assert_true(weft_hash_xxh64("abc", 3, 0) == 0x44BC2CF5AD770999u);
    const char *s = "Nobody inspects the spammish repetition";
    assert_true(weft_hash_xxh64(s, strlen(s), 0) == 0xFBCEA83C8A378BF1u);
}

static void xxh64_stream_equals_whole(void **state)
{
    (void)state;
    uint8_t data[257];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7 + 3);
    for (size_t n = 0; n <= sizeof data; n++)
        for (size_t chunk = 1; chunk < 70; chunk += 11) {
            weft_hash_state h;
            weft_hash_init(&h, 99);
            for (size_t at = 0; at < n; at += chunk)
                weft_hash_add(&h, data + at, n - at < chunk ? n - at : chunk);
            assert_true(weft_hash_value(&h) == weft_hash_xxh64(data, n, 99));
        }
}

/* RFC 3720, B.4. */
static void crc32c_known(void **state)
{
    (void)state;
    uint8_t b[32];
    memset(b, 0, sizeof b);
    assert_int_equal(weft_hash_crc32c(0, b, 32), 0x8a9136aa);
    memset(b, 0xff, sizeof b);
    assert_int_equal(weft_hash_crc32c(0, b, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++) b[i] = (uint8_t)i;
    assert_int_equal(weft_hash_crc32c(0, b, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++) b[i] = (uint8_t)(31 - i);
    assert_int_equal(weft_hash_crc32c(0, b, 32), 0x113fdb5c);
    assert_int_equal(weft_hash_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(weft_hash_crc32c(weft_hash_crc32c(0, "12345", 5), "6789", 4),
                     0xe3069283);
}

/* Long runs are taken three at a time: as byte by byte, from any address, of any length. */
static void crc32c_of_long_runs(void **state)
{
    enum {
        MOST = 3 * 3 * 4096 + 100
    };
    static uint8_t b[MOST];
    unsigned       seed = 7;
    (void)state;
    for (int i = 0; i < MOST; i++)
        b[i] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
    for (int round = 0; round < 60; round++) {
        size_t   from = (seed = seed * 1103515245 + 12345) >> 16 & 15;
        size_t   n    = ((seed = seed * 1103515245 + 12345) >> 8) % (MOST - 16);
        uint32_t want = (uint32_t)round;
        for (size_t i = 0; i < n; i++) want = weft_hash_crc32c(want, b + from + i, 1);
        assert_int_equal(weft_hash_crc32c((uint32_t)round, b + from, n), want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xxh64_known),
        cmocka_unit_test(xxh64_stream_equals_whole),
        cmocka_unit_test(crc32c_known),
        cmocka_unit_test(crc32c_of_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
