/* YAML: plain and block scalars, and what a plain one means.
 * Plain scalars mean what the core schema of YAML 1.2 says: `yes` is a string, `1e-4` a number. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc_yaml_priv.h"

/* ---- what a plain scalar means
 * ----------------------------------------------------------------- */

static bool one_of(const char *s, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(s, *list)) return true;
    return false;
}

/* [-+]? then digits with at most one '.', then an exponent; *integer: neither of the two. */
static bool looks_like_number(const char *s, bool *integer)
{
    if (*s == '-' || *s == '+') s++;
    size_t whole = strspn(s, "0123456789"), part = 0;
    s += whole;
    *integer = *s == 0;
    if (*s == '.') {
        part = strspn(++s, "0123456789");
        s += part;
    }
    if (whole + part == 0) return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '-' || *s == '+') s++;
        size_t n = strspn(s, "0123456789");
        if (n == 0) return false;
        s += n;
    }
    return *s == 0;
}

static bool set_based(weft_node *n, const char *s)
{
    bool        hex   = !strncmp(s, "0x", 2);
    const char *digit = hex ? "0123456789abcdefABCDEF" : "01234567";
    if ((!hex && strncmp(s, "0o", 2) != 0) || !s[2] || s[2 + strspn(s + 2, digit)])
        return false;
    errno     = 0;
    int64_t i = strtoll(s + 2, NULL, hex ? 16 : 8);
    if (errno) return false;
    n->kind = WEFT_NODE_INT;
    n->u.i  = i;
    return true;
}

/* Turns the string node n into what it spells. */
weft_status weft_base__yaml_resolve(const weft_reader *r, weft_node *n)
{
    static const char *const null_word[]  = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const true_word[]  = {"true", "True", "TRUE", NULL};
    static const char *const false_word[] = {"false", "False", "FALSE", NULL};
    static const char *const nan_word[]   = {".nan", ".NaN", ".NAN", NULL};
    static const char *const inf_word[]   = {".inf", ".Inf", ".INF", NULL};

    const char *s    = n->u.s;
    bool        sign = *s == '-' || *s == '+', integer;
    if (one_of(s, null_word)) {
        n->kind = WEFT_NODE_NULL;
    } else if (one_of(s, true_word) || one_of(s, false_word)) {
        n->kind = WEFT_NODE_BOOL;
        n->u.b  = one_of(s, true_word);
    } else if (one_of(s, nan_word) || one_of(s + sign, inf_word)) {
        n->kind = WEFT_NODE_FLOAT;
        n->u.f  = one_of(s, nan_word) ? (double)NAN : *s == '-' ? -HUGE_VAL : HUGE_VAL;
    } else if (looks_like_number(s, &integer)) {
        if (!weft_base__set_number(n, s, integer))
            return weft_base__fail(r, "%.40s is too large for a number", s);
    } else {
        set_based(n, s);
    }
    return WEFT_OK;
}

weft_status weft_base__yaml_string(weft_yaml *y, int line, const char *s, weft_node **out)
{
    if (!s) return weft_arena_status(y->r.doc->arena);
    WEFT_TRY(weft_base__new_node(&y->r, WEFT_NODE_STRING, out));
    (*out)->line = line;
    (*out)->u.s  = s;
    return WEFT_OK;
}

weft_status weft_base__yaml_check_plain(const weft_yaml *y)
{
    const weft_reader *r = &y->r;
    char               c = r->p < r->end ? *r->p : 0;
    switch (c) {
    case '&':
    case '*': return weft_base__fail(r, "anchors and aliases ('%c') are not read", c);
    case '!': return weft_base__fail(r, "tags ('!') are not read");
    case '%':
    case '@':
    case '`':
        return weft_base__fail(r, "a plain value cannot start with '%c'; quote it", c);
    case ',':
    case ']':
    case '}':
    case '|':
    case '>': return weft_base__fail(r, "unexpected '%c'", c);
    case '?':
        if (weft_base__yaml_blank(y, r->p + 1))
            return weft_base__fail(r, "complex keys ('? ') are not read");
        return WEFT_OK;
    case ':':
        if (weft_base__yaml_blank(y, r->p + 1))
            return weft_base__fail(r, "a key is missing in front of ':'");
        return WEFT_OK;
    default: return WEFT_OK;
    }
}

/* ---- plain scalars of blocks
 * ------------------------------------------------------------------- */

/* The text of this line up to a comment, trimmed. */
static void plain_line(weft_yaml *y, const char **from, const char **to)
{
    weft_reader *r = &y->r;
    *from          = r->p;
    while (r->p < r->end && *r->p != '\n' &&
           !(*r->p == '#' && r->p > *from && weft_base__yaml_blank(y, r->p - 1)))
        r->p++;
    *to = r->p;
    while (*to > *from && weft_base__yaml_blank(y, *to - 1)) (*to)--;
}

/* Lines that go on below, indented deeper than the parent, are joined by spaces; a comment or an
 * empty line ends the value. */
static weft_status read_plain(weft_yaml *y, int parent, weft_node **out)
{
    weft_reader *r    = &y->r;
    int          line = r->line;
    weft_text    t    = {0};
    weft_status  st   = WEFT_OK;
    const char  *from, *to;

    WEFT_TRY(weft_base__yaml_check_plain(y));
    plain_line(y, &from, &to);
    weft_text_put(&t, from, (size_t)(to - from));
    for (;;) {
        bool comment = weft_base__yaml_at(y, '#');
        int  last    = r->line;
        WEFT_GO(weft_base__yaml_end_line(y));
        if (r->p >= r->end || weft_base__yaml_column(y) <= parent) break;
        if (comment || r->line != last + 1 || weft_base__yaml_at_key(y))
            WEFT_GO(weft_base__fail(r, "does not belong to the value above; check the "
                                       "indentation"));
        plain_line(y, &from, &to);
        weft_text_put(&t, " ", 1);
        weft_text_put(&t, from, (size_t)(to - from));
    }
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_base__yaml_string(y, line, weft_arena_strdup(r->doc->arena, t.s), out));
    WEFT_GO(weft_base__yaml_resolve(r, *out));
out:
    weft_text_fini(&t);
    return st;
}

/* ---- block scalars
 * ----------------------------------------------------------------------------- */

typedef struct block_style {
    bool fold;
    char chomp;  /* '-' strip, '+' keep, 0 clip */
    int  indent; /* 0: that of the first line with text */
} block_style;

static weft_status read_block_header(weft_yaml *y, block_style *b)
{
    weft_reader *r = &y->r;
    *b             = (block_style){.fold = *r->p++ == '>'};
    for (int i = 0; i < 2 && r->p < r->end; i++) {
        if (!b->chomp && (*r->p == '-' || *r->p == '+'))
            b->chomp = *r->p++;
        else if (!b->indent && *r->p >= '1' && *r->p <= '9')
            b->indent = *r->p++ - '0';
    }
    if (!weft_base__yaml_line_done(y))
        return weft_base__fail(r, "the text of a block starts on the line below '%c'",
                               b->fold ? '>' : '|');
    if (r->p < r->end) weft_base__yaml_newline(y);
    return WEFT_OK;
}

/* Spaces in front of the line at p; *blank: there is nothing else on it. */
static int indent_of(const weft_yaml *y, const char *p, bool *blank)
{
    int n = 0;
    while (p < y->r.end && *p == ' ') p++, n++;
    *blank =
        p >= y->r.end || *p == '\n' || (*p == '\r' && p + 1 < y->r.end && p[1] == '\n');
    return n;
}

static int detect_indent(const weft_yaml *y)
{
    for (const char *p = y->r.p; p < y->r.end;) {
        bool blank;
        int  n = indent_of(y, p, &blank);
        if (!blank) return n;
        const char *eol = memchr(p, '\n', (size_t)(y->r.end - p));
        if (!eol) break;
        p = eol + 1;
    }
    return 0;
}

/* Takes the next line of the block without its indentation; false at the end of the block. */
static bool next_block_line(weft_yaml *y, int indent, const char **from, const char **to)
{
    weft_reader *r = &y->r;
    bool         blank;
    if (r->p >= r->end) return false;
    int n = indent_of(y, r->p, &blank);
    if (!blank && n < indent) return false;
    const char *eol = memchr(r->p, '\n', (size_t)(r->end - r->p));
    if (!eol) eol = r->end;
    *from = r->p + (n < indent ? n : indent);
    *to   = eol > *from && eol[-1] == '\r' ? eol - 1 : eol;
    r->p  = eol;
    if (eol < r->end) weft_base__yaml_newline(y);
    return true;
}

static void put_breaks(weft_text *t, int n)
{
    for (int i = 0; i < n; i++) weft_text_put(t, "\n", 1);
}

/* Line breaks between two lines of text that stand at the margin fold: one becomes a space, n + 1
 * become n; beside lines that are indented further they stay. */
static void read_block_lines(weft_yaml *y, block_style b, int indent, weft_text *t)
{
    const char *from, *to;
    int         breaks = 0;
    bool        any = false, was_deep = false;
    while (next_block_line(y, indent, &from, &to)) {
        if (to > from) {
            bool deep = *from == ' ' || *from == '\t';
            if (!b.fold || !any || deep || was_deep)
                put_breaks(t, breaks);
            else if (breaks == 1)
                weft_text_put(t, " ", 1);
            else
                put_breaks(t, breaks - 1);
            weft_text_put(t, from, (size_t)(to - from));
            any      = true;
            was_deep = deep;
            breaks   = 0;
        }
        if (to < y->r.end && y->r.p > to) breaks++;
    }
    if (b.chomp == '+')
        put_breaks(t, breaks);
    else if (b.chomp == 0 && any && breaks)
        put_breaks(t, 1);
}

static weft_status read_block_scalar(weft_yaml *y, int parent, weft_node **out)
{
    block_style b;
    weft_text   t    = {0};
    weft_status st   = WEFT_OK;
    int         line = y->r.line;
    WEFT_TRY(read_block_header(y, &b));
    int indent = b.indent ? (parent < 0 ? 0 : parent) + b.indent : detect_indent(y);
    if (indent > parent) read_block_lines(y, b, indent, &t);
    WEFT_GO(weft_text_status(&t));
    WEFT_GO(weft_base__yaml_string(
        y, line, weft_arena_strdup(y->r.doc->arena, t.s ? t.s : ""), out));
    WEFT_GO(weft_base__yaml_find_content(y));
out:
    weft_text_fini(&t);
    return st;
}

/* ---- any of them
 * ------------------------------------------------------------------------------- */

weft_status weft_base__yaml_scalar(weft_yaml *y, int parent, weft_node **out)
{
    char c = *y->r.p;
    if (c == '|' || c == '>') return read_block_scalar(y, parent, out);
    if (c != '"' && c != '\'' && c != '[' && c != '{') return read_plain(y, parent, out);
    WEFT_TRY(weft_base__yaml_flow(y, out));
    return weft_base__yaml_end_line(y);
}
