/* One token at a time; a text is copied into the arena, so tokens outlive the next call. */
#include "base/lex.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "base/text.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool starts_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
           c == '%' || c == '/';
}

static bool at_arrow(const weft_lex *l, const char *p)
{
    return l->end - p >= 2 && p[0] == '-' && p[1] == '>';
}

static bool goes_on_word(const weft_lex *l, const char *p)
{
    return starts_word(*p) || is_digit(*p) || *p == '\'' ||
           (*p == '-' && !at_arrow(l, p));
}

static void skip_blank(weft_lex *l)
{
    for (; l->at < l->end; l->at++) {
        char c = *l->at;
        if (c == '#')
            while (l->at + 1 < l->end && l->at[1] != '\n') l->at++;
        else if (c == '\n')
            l->line++;
        else if (c != ' ' && c != '\t' && c != '\r')
            return;
    }
}

static void set(weft_lex *l, weft_tok tok, const char *from, const char *to)
{
    l->text = weft_arena_strndup(l->arena, from, (size_t)(to - from));
    l->tok  = l->text ? tok : WEFT_TOK_BAD;
    if (!l->text) l->text = "";
    l->at = to;
}

/* The end of the number at p, or p when there is none. */
static const char *number_end(const weft_lex *l, const char *p)
{
    const char *start = p, *end = l->end, *digits;
    if (p < end && (*p == '-' || *p == '+')) p++;
    if (end - p >= 3 && !strncmp(p, "inf", 3) && p > start) return p + 3;
    if (end - p >= 3 && p[0] == '0' && p[1] == 'x') {
        size_t n = 0;
        for (p += 2; p < end && strchr("0123456789abcdefABCDEF", *p) && *p; p++) n++;
        return n ? p : start;
    }
    digits = p;
    while (p < end && is_digit(*p)) p++;
    bool some = p > digits;
    if (p < end && *p == '.') {
        digits = ++p;
        while (p < end && is_digit(*p)) p++;
        some = some || p > digits;
    }
    if (!some) return start;
    if (p < end && (*p == 'e' || *p == 'E')) {
        const char *e = p + 1;
        if (e < end && (*e == '-' || *e == '+')) e++;
        if (e < end && is_digit(*e)) {
            while (e < end && is_digit(*e)) e++;
            p = e;
        }
    }
    return p;
}

/* A string ends on its line; bytes are taken as they are, escapes are JSON's. */
static void read_string(weft_lex *l)
{
    const char *p = l->at + 1, *q = p;
    while (q < l->end && *q != '"' && *q != '\n')
        q += *q == '\\' && q + 1 < l->end ? 2 : 1;
    if (q >= l->end || *q != '"') {
        set(l, WEFT_TOK_BAD, l->at, l->at + 1);
        return;
    }
    char *out = weft_arena_alloc(l->arena, (size_t)(q - p) + 1), *o = out;
    l->tok  = out ? WEFT_TOK_STRING : WEFT_TOK_BAD;
    l->text = out ? out : "";
    while (out && p < q) {
        if (*p != '\\') {
            *o++ = *p++;
            continue;
        }
        p++;
        int n = weft_escape_read(&p, q, o);
        if (n == 0) {
            l->tok = WEFT_TOK_BAD;
            break;
        }
        o += n;
    }
    l->at = q + 1;
}

void weft_lex_next(weft_lex *l)
{
    skip_blank(l);
    const char *p = l->at;
    if (p >= l->end) {
        l->tok  = WEFT_TOK_END;
        l->text = "";
        return;
    }
    const char *num = number_end(l, p);
    if (num > p) {
        set(l, WEFT_TOK_NUMBER, p, num);
    } else if (starts_word(*p)) {
        const char *q = p;
        while (q < l->end && goes_on_word(l, q)) q++;
        set(l, WEFT_TOK_WORD, p, q);
    } else if (*p == '"') {
        read_string(l);
    } else if (at_arrow(l, p)) {
        set(l, WEFT_TOK_PUNCT, p, p + 2);
    } else {
        bool printable = *p > ' ' && *p < 0x7f;
        set(l, printable ? WEFT_TOK_PUNCT : WEFT_TOK_BAD, p, p + 1);
    }
}

void weft_lex_init(weft_lex *l, weft_arena *a, const char *file, const char *text,
                   size_t n)
{
    *l = (weft_lex){.at = text, .end = text + n, .file = file, .line = 1, .arena = a};
    weft_lex_next(l);
}

bool weft_lex_is(const weft_lex *l, const char *text)
{
    return (l->tok == WEFT_TOK_WORD || l->tok == WEFT_TOK_PUNCT) &&
           !strcmp(l->text, text);
}

bool weft_lex_accept(weft_lex *l, const char *text)
{
    if (!weft_lex_is(l, text)) return false;
    weft_lex_next(l);
    return true;
}

weft_status weft_lex_fail(const weft_lex *l, const char *fmt, ...)
{
    char    buf[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s", l->file, l->line, buf);
}

static weft_status expected(const weft_lex *l, const char *what)
{
    WEFT_TRY(weft_arena_status(l->arena));
    if (l->tok == WEFT_TOK_END)
        return weft_lex_fail(l, "expected %s, got the end of the text", what);
    if (l->tok == WEFT_TOK_BAD && *l->text == '"')
        return weft_lex_fail(l, "a string has no closing quote on its line");
    if (l->tok == WEFT_TOK_BAD)
        return weft_lex_fail(l, "expected %s, got a bad token", what);
    return weft_lex_fail(l, "expected %s, got '%.60s'", what, l->text);
}

weft_status weft_lex_expect(weft_lex *l, const char *text)
{
    if (weft_lex_accept(l, text)) return WEFT_OK;
    char what[80];
    snprintf(what, sizeof what, "'%s'", text);
    return expected(l, what);
}

weft_status weft_lex_word(weft_lex *l, const char **out)
{
    if (l->tok != WEFT_TOK_WORD) return expected(l, "a word");
    *out = l->text;
    weft_lex_next(l);
    return WEFT_OK;
}

weft_status weft_lex_int(weft_lex *l, int64_t *out)
{
    char *end = NULL;
    if (l->tok != WEFT_TOK_NUMBER) return expected(l, "an integer");
    bool hex  = strchr(l->text, 'x') != NULL;
    errno     = 0;
    int64_t v = strtoll(l->text, &end, hex ? 16 : 10);
    if (*end) return expected(l, "an integer");
    if (errno) return weft_lex_fail(l, "'%.60s' does not fit 64 bits", l->text);
    *out = v;
    weft_lex_next(l);
    return WEFT_OK;
}

weft_status weft_lex_double(weft_lex *l, double *out)
{
    bool special = weft_lex_is(l, "inf") || weft_lex_is(l, "nan");
    if (l->tok != WEFT_TOK_NUMBER && !special) return expected(l, "a number");
    if (!weft_text_read_double(l->text, out)) return expected(l, "a number");
    weft_lex_next(l);
    return WEFT_OK;
}
