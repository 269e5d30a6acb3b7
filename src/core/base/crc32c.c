/* CRC32C: reflected polynomial 0x82F63B78, all ones in and out (RFC 3720, appendix B.4).
 * Half-byte table for any machine; the SSE4.2 instruction where the processor has it. */
#include <string.h>

#include "base/hash.h"

static uint32_t by_table(uint32_t c, const uint8_t *p, size_t n)
{
    static const uint32_t nibble[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                        0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    for (; n; p++, n--) {
        c ^= *p;
        c = nibble[c & 15] ^ c >> 4;
        c = nibble[c & 15] ^ c >> 4;
    }
    return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t       c,
                                                                 const uint8_t *p,
                                                                 size_t         n)
{
    uint64_t wide = c;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, sizeof v);
        wide = __builtin_ia32_crc32di(wide, v);
    }
    c = (uint32_t)wide;
    for (; n; p++, n--) c = __builtin_ia32_crc32qi(c, *p);
    return c;
}

static int has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#else
static uint32_t by_instruction(uint32_t c, const uint8_t *p, size_t n)
{
    return by_table(c, p, n);
}

static int has_instruction(void)
{
    return 0;
}
#endif

uint32_t weft_hash_crc32c(uint32_t crc, const void *p, size_t n)
{
    return ~(has_instruction() ? by_instruction(~crc, p, n) : by_table(~crc, p, n));
}
