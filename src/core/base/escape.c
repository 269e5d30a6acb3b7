/* UTF-8 (RFC 3629) and JSON's escapes (RFC 8259, section 7). */
#include "base/escape.h"

int weft_escape_utf8_length(const char *s, const char *end)
{
    const unsigned char *p    = (const unsigned char *)s;
    ptrdiff_t            left = end - s;
    if (left < 1) return 0;
    if (p[0] < 0x80) return 1;

    int      n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    uint32_t c = p[0] & (0xffu >> (n + 1));
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < n) return 0;
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    return n;
}

int weft_escape_put_utf8(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00u >> n & 0xff) | c);
    return n;
}

/* Four hexadecimal digits at *p, or -1. */
static int32_t read_hex4(const char **p, const char *end)
{
    int32_t v = 0;
    if (end - *p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = (*p)[i];
        int  digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            digit = c - 'A' + 10;
        else
            return -1;
        v = v * 16 + digit;
    }
    *p += 4;
    return v;
}

static int read_unicode(const char **p, const char *end, char *out)
{
    int32_t c = read_hex4(p, end);
    if (c <= 0 || (c >= 0xdc00 && c < 0xe000)) return 0;
    if (c >= 0xd800 && c < 0xdc00) {
        if (end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u') return 0;
        *p += 2;
        int32_t low = read_hex4(p, end);
        if (low < 0xdc00 || low >= 0xe000) return 0;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    return weft_escape_put_utf8((uint32_t)c, out);
}

int weft_escape_read(const char **p, const char *end, char *out)
{
    if (*p >= end) return 0;
    switch (*(*p)++) {
    case '"': *out = '"'; return 1;
    case '\\': *out = '\\'; return 1;
    case '/': *out = '/'; return 1;
    case 'b': *out = '\b'; return 1;
    case 'f': *out = '\f'; return 1;
    case 'n': *out = '\n'; return 1;
    case 'r': *out = '\r'; return 1;
    case 't': *out = '\t'; return 1;
    case 'u': return read_unicode(p, end, out);
    default: return 0;
    }
}
