/* CRC32C: reflected polynomial 0x82F63B78, all ones in and out (RFC 3720, appendix B.4).
 * Half-byte table for any machine; the SSE4.2 instruction where the processor has it.
 *
 * The instruction takes three cycles and can begin every cycle, so there are three runs at a time:
 * of A, B, C of one length, crc(ABC) = shift(shift(crc(A)) ^ crc(B)) ^ crc(C), where the first
 * begins with what came before and the others with 0, and shift is what as many zero bytes do to a
 * crc.  That is linear in its bits: a table has it for each value of each byte. */
#include <pthread.h>
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
enum {
    RUN = 4096 /* bytes */
};
static uint32_t       shift[4][256];
static pthread_once_t shift_is_made = PTHREAD_ONCE_INIT;

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

static void make_shift(void)
{
    static const uint8_t zero[RUN];
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t low     = 1u << i;
            shift[byte][low] = by_instruction(low << 8 * byte, zero, RUN);
            for (uint32_t b = 1; b < low; b++)
                shift[byte][low | b] = shift[byte][low] ^ shift[byte][b];
        }
}

static uint32_t shift_run(uint32_t c)
{
    return shift[0][c & 255] ^ shift[1][c >> 8 & 255] ^ shift[2][c >> 16 & 255] ^
           shift[3][c >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t by_three_runs(uint32_t       c,
                                                                const uint8_t *p,
                                                                size_t         n)
{
    for (; n >= 3 * RUN; p += 3 * RUN, n -= 3 * RUN) {
        uint64_t x = c, y = 0, z = 0, v[3];
        for (int i = 0; i < RUN; i += 8) {
            memcpy(&v[0], p + i, 8);
            memcpy(&v[1], p + RUN + i, 8);
            memcpy(&v[2], p + 2 * RUN + i, 8);
            x = __builtin_ia32_crc32di(x, v[0]);
            y = __builtin_ia32_crc32di(y, v[1]);
            z = __builtin_ia32_crc32di(z, v[2]);
        }
        c = shift_run(shift_run((uint32_t)x) ^ (uint32_t)y) ^ (uint32_t)z;
    }
    return by_instruction(c, p, n);
}

static uint32_t by_processor(uint32_t c, const uint8_t *p, size_t n)
{
    if (n < 3 * RUN) return by_instruction(c, p, n);
    pthread_once(&shift_is_made, make_shift);
    return by_three_runs(c, p, n);
}

static int has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#else
static uint32_t by_processor(uint32_t c, const uint8_t *p, size_t n)
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
    return ~(has_instruction() ? by_processor(~crc, p, n) : by_table(~crc, p, n));
}
