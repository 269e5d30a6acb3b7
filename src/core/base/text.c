/* Appending to a string that doubles; numbers that read back exactly, whatever the locale. */
#include "base/text.h"

#include <ctype.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int reserve(weft_text *t, size_t more)
{
    if (t->failed) return 0;
    if (more > SIZE_MAX / 4 || t->n > SIZE_MAX / 4) {
        t->failed = 1;
        return 0;
    }
    size_t want = t->n + more + 1;
    if (want <= t->cap) return 1;
    size_t cap = t->cap ? t->cap : 256;
    while (cap < want) cap *= 2;
    char *s = realloc(t->s, cap);
    if (!s) {
        t->failed = 1;
        return 0;
    }
    t->s   = s;
    t->cap = cap;
    return 1;
}

void weft_text_put(weft_text *t, const char *s, size_t n)
{
    if (!reserve(t, n)) return;
    if (n) memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

void weft_text_add(weft_text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0)
        t->failed = 1;
    else if (reserve(t, (size_t)n)) {
        vsnprintf(t->s + t->n, (size_t)n + 1, fmt, again);
        t->n += (size_t)n;
    }
    va_end(again);
    va_end(ap);
}

/* printf and strtod agree on the locale's decimal point, so the round trip is judged in it;
 * what leaves here has a '.'. */
static void put_number(weft_text *t, const char *s)
{
    const char *point = localeconv()->decimal_point;
    const char *at    = strstr(s, point);
    if (!at || !*point) {
        weft_text_put(t, s, strlen(s));
        return;
    }
    weft_text_put(t, s, (size_t)(at - s));
    weft_text_put(t, ".", 1);
    at += strlen(point);
    weft_text_put(t, at, strlen(at));
}

static int put_special(weft_text *t, double x)
{
    if (isfinite(x)) return 0;
    const char *s = isnan(x) ? "nan" : x < 0 ? "-inf" : "inf";
    weft_text_put(t, s, strlen(s));
    return 1;
}

/* `digits` digits tell x from its neighbours; what has no fraction is written without exponent as
 * long as that is no longer than a double's own digits: 1500, not 1.5e+03. */
static void put_digits(weft_text *t, double x, int digits)
{
    char buf[48];
    snprintf(buf, sizeof buf, "%.*e", digits - 1, x);
    int exponent = atoi(strchr(buf, 'e') + 1);
    if (exponent < 16 && digits < exponent + 1) digits = exponent + 1;
    snprintf(buf, sizeof buf, "%.*g", digits, x);
    put_number(t, buf);
}

/* %g drops trailing zeros, so what 15 digits can tell apart comes out short at once; only numbers
 * below the normal range have fewer good digits than that. */
void weft_text_put_double(weft_text *t, double x)
{
    char buf[48];
    int  digits = fabs(x) < DBL_MIN ? 1 : DBL_DIG;
    if (put_special(t, x)) return;
    for (; digits < 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, x);
        if (strtod(buf, NULL) == x) break;
    }
    put_digits(t, x, digits);
}

void weft_text_put_member(weft_text *t, const char *key, double x)
{
    weft_text_add(t, ", \"%s\": ", key);
    if (isfinite(x))
        weft_text_put_double(t, x);
    else
        weft_text_add(t, "null");
}

/* glibc gives the C locale without allocating, so there is nothing to free. */
bool weft_text_read_double(const char *s, double *out)
{
    locale_t c   = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char    *end = NULL;
    if (!c || !*s || isspace((unsigned char)*s)) return false;
    double x = strtod_l(s, &end, c);
    if (*end) return false;
    *out = x;
    return true;
}

void weft_text_put_quoted(weft_text *t, const char *s)
{
    weft_text_put(t, "\"", 1);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        switch (c) {
        case '"': weft_text_put(t, "\\\"", 2); break;
        case '\\': weft_text_put(t, "\\\\", 2); break;
        case '\n': weft_text_put(t, "\\n", 2); break;
        case '\r': weft_text_put(t, "\\r", 2); break;
        case '\t': weft_text_put(t, "\\t", 2); break;
        case '\b': weft_text_put(t, "\\b", 2); break;
        case '\f': weft_text_put(t, "\\f", 2); break;
        default:
            if (c < 0x20)
                weft_text_add(t, "\\u%04x", c);
            else
                weft_text_put(t, s, 1);
        }
    }
    weft_text_put(t, "\"", 1);
}

void weft_text_put_string_member(weft_text *t, const char *key, const char *s)
{
    weft_text_add(t, ", \"%s\": ", key);
    weft_text_put_quoted(t, s);
}

const char *weft_text_count(int64_t n, char buf[WEFT_TEXT_COUNT])
{
    char digits[WEFT_TEXT_COUNT], *to = buf;
    int  len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < len; i++) {
        *to++ = digits[i];
        if (digits[i] != '-' && i + 1 < len && (len - 1 - i) % 3 == 0) *to++ = ',';
    }
    *to = 0;
    return buf;
}

weft_status weft_text_status(const weft_text *t)
{
    return t->failed ? WEFT_FAIL(WEFT_ERR_MEM, "out of memory") : WEFT_OK;
}

void weft_text_fini(weft_text *t)
{
    free(t->s);
    memset(t, 0, sizeof *t);
}
