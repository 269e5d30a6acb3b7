/* YAML: quoted scalars and flow collections, which may run over lines; values of overrides. */
#include <string.h>

#include "base/doc_yaml_priv.h"
#include "base/escape.h"

/* ---- quoted
 * ------------------------------------------------------------------------------------ */

/* The closing quote of the scalar whose text starts at p, or NULL. */
static const char *closing_quote(const weft_yaml *y, const char *p, char quote)
{
    for (; p < y->r.end; p++) {
        if (quote == '"' && *p == '\\') {
            p++;
        } else if (*p == quote) {
            if (quote == '\'' && p + 1 < y->r.end && p[1] == '\'')
                p++;
            else
                return p;
        }
    }
    return NULL;
}

/* r.p stands at the end of a line inside quotes: one line break is a space, n + 1 are n. */
static char *fold_breaks(weft_yaml *y, char *o)
{
    int breaks = 0;
    while (y->r.p < y->r.end && weft_base__yaml_blank(y, y->r.p)) {
        if (*y->r.p == '\n') {
            weft_base__yaml_newline(y);
            breaks++;
        } else
            y->r.p++;
    }
    if (breaks == 1) *o++ = ' ';
    for (int i = 1; i < breaks; i++) *o++ = '\n';
    return o;
}

/* n hexadecimal digits at *p as a code point that is none of UTF-8's forbidden ones; 0 if not. */
static uint32_t read_hex(const char **p, const char *end, int n)
{
    uint32_t c = 0;
    if (end - *p < n) return 0;
    for (int i = 0; i < n; i++) {
        static const char digit[] = "0123456789abcdefABCDEF";
        const char       *at      = memchr(digit, (*p)[i], sizeof digit - 1);
        if (!at) return 0;
        uint32_t v = (uint32_t)(at - digit);
        c          = c << 4 | (v < 16 ? v : v - 6);
    }
    *p += n;
    return c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : c;
}

/* The escapes that YAML has beyond JSON's; \0 is refused, as our strings end in NUL. */
static int read_yaml_escape(const char **p, const char *end, char *out)
{
    static const struct {
        char     name;
        uint32_t c;
    } known[] = {{' ', ' '},  {'\t', '\t'}, {'a', 7},      {'v', 11},    {'e', 27},
                 {'N', 0x85}, {'_', 0xa0},  {'L', 0x2028}, {'P', 0x2029}};
    if (*p >= end) return 0;
    for (size_t i = 0; i < WEFT_COUNT(known); i++)
        if (**p == known[i].name) {
            ++*p;
            return weft_escape_put_utf8(known[i].c, out);
        }
    if (**p != 'x' && **p != 'U') return weft_escape_read(p, end, out);
    int      n = *(*p)++ == 'x' ? 2 : 8;
    uint32_t c = read_hex(p, end, n);
    return c ? weft_escape_put_utf8(c, out) : 0;
}

static weft_status read_escape(weft_yaml *y, const char *end, char **o)
{
    weft_reader *r = &y->r;
    r->p++;
    if (r->p < end && *r->p == '\n') { /* an escaped line break joins the lines */
        weft_base__yaml_newline(y);
        while (r->p < end && (*r->p == ' ' || *r->p == '\t')) r->p++;
        return WEFT_OK;
    }
    int n = read_yaml_escape(&r->p, end, *o);
    if (n == 0) return weft_base__fail(r, "a bad escape inside a string");
    *o += n;
    return WEFT_OK;
}

weft_status weft_base__yaml_quoted(weft_yaml *y, const char **out)
{
    weft_reader *r     = &y->r;
    char         quote = *r->p;
    const char  *end   = closing_quote(y, r->p + 1, quote);
    if (!end) return weft_base__fail(r, "a quoted value has no end");
    char *s = weft_arena_alloc(r->doc->arena, (size_t)(end - r->p) + 1), *o = s;
    if (!s) return weft_arena_status(r->doc->arena);
    char *keep = s; /* spaces in front of a line break go, down to here */
    for (r->p++; r->p < end;) {
        if (*r->p == '\n') {
            while (o > keep && (o[-1] == ' ' || o[-1] == '\t' || o[-1] == '\r')) o--;
            keep = o = fold_breaks(y, o);
        } else if (quote == '"' && *r->p == '\\') {
            WEFT_TRY(read_escape(y, end, &o));
            keep = o;
        } else {
            if (*r->p == '\'' && quote == '\'') r->p++;
            *o++ = *r->p++;
        }
    }
    *o   = 0;
    r->p = end + 1;
    *out = s;
    return WEFT_OK;
}

/* ---- flow --------------------------------------------------------------------------------------
 */

static void skip_flow_space(weft_yaml *y)
{
    while (weft_base__yaml_line_done(y) && y->r.p < y->r.end) weft_base__yaml_newline(y);
}

static bool flow_mark(const weft_yaml *y, const char *p)
{
    return p < y->r.end && strchr(",[]{}", *p);
}

/* The rest of this line as far as it belongs to a plain scalar, trimmed. */
static void flow_plain_line(weft_yaml *y, weft_text *t)
{
    weft_reader *r    = &y->r;
    const char  *from = r->p;
    for (; r->p < r->end && *r->p != '\n' && !flow_mark(y, r->p); r->p++) {
        const char *next = r->p + 1;
        if (*r->p == ':' && (weft_base__yaml_blank(y, next) || flow_mark(y, next))) break;
        if (*r->p == '#' && r->p > from && weft_base__yaml_blank(y, r->p - 1)) break;
    }
    const char *to = r->p;
    while (to > from && weft_base__yaml_blank(y, to - 1)) to--;
    weft_text_put(t, from, (size_t)(to - from));
}

/* Goes on over line ends, up to a mark of the collection, a ':' or a comment. */
static weft_status read_flow_plain(weft_yaml *y, const char **out)
{
    weft_reader *r = &y->r;
    weft_text    t = {0};
    WEFT_TRY(weft_base__yaml_check_plain(y));
    flow_plain_line(y, &t);
    while (weft_base__yaml_at(y, '\n')) {
        skip_flow_space(y);
        if (r->p >= r->end || flow_mark(y, r->p) || *r->p == ':' || *r->p == '#') break;
        weft_text_put(&t, " ", 1);
        flow_plain_line(y, &t);
    }
    weft_status st = weft_text_status(&t);
    *out           = st == WEFT_OK ? weft_arena_strdup(r->doc->arena, t.s) : NULL;
    weft_text_fini(&t);
    return st == WEFT_OK ? weft_arena_status(r->doc->arena) : st;
}

static bool at_quote(const weft_yaml *y)
{
    return weft_base__yaml_at(y, '"') || weft_base__yaml_at(y, '\'');
}

static bool accept(weft_yaml *y, char c)
{
    if (!weft_base__yaml_at(y, c)) return false;
    y->r.p++;
    return true;
}

static weft_status read_flow_entry(weft_yaml *y, weft_node **out)
{
    const char *key;
    int         line = y->r.line;
    if (at_quote(y))
        WEFT_TRY(weft_base__yaml_quoted(y, &key));
    else
        WEFT_TRY(read_flow_plain(y, &key));
    skip_flow_space(y);
    bool value = accept(y, ':');
    if (value) skip_flow_space(y);
    if (value && !weft_base__yaml_at(y, ',') && !weft_base__yaml_at(y, '}'))
        WEFT_TRY(weft_base__yaml_flow(y, out));
    else
        WEFT_TRY(weft_base__new_node(&y->r, WEFT_NODE_NULL, out));
    (*out)->key  = key;
    (*out)->line = line;
    return WEFT_OK;
}

/* [a, b] or {a: b}; a comma may stand behind the last. */
static weft_status read_flow_collection(weft_yaml *y, bool map, weft_node **out)
{
    char              close = map ? '}' : ']';
    weft_doc__builder b     = {0};
    weft_node        *n, *child;
    int               line = y->r.line;
    WEFT_TRY(weft_base__new_node(&y->r, map ? WEFT_NODE_MAP : WEFT_NODE_LIST, &n));
    y->r.p++;
    for (;;) {
        skip_flow_space(y);
        if (accept(y, close)) break;
        WEFT_TRY(map ? read_flow_entry(y, &child) : weft_base__yaml_flow(y, &child));
        WEFT_TRY(weft_base__push(&y->r, &b, child));
        skip_flow_space(y);
        if (accept(y, close)) break;
        if (y->r.p >= y->r.end)
            return weft_base__fail(&y->r, "'%c' of line %d has no end", map ? '{' : '[',
                                   line);
        if (!accept(y, ',')) return weft_base__fail(&y->r, "expected ',' or '%c'", close);
    }
    *out = n;
    return weft_base__close(&y->r, &b, n);
}

weft_status weft_base__yaml_flow(weft_yaml *y, weft_node **out)
{
    const char *s;
    int         line = y->r.line;
    bool        map  = weft_base__yaml_at(y, '{');
    if (map || weft_base__yaml_at(y, '[')) {
        if (++y->r.depth > WEFT_DOC_MAX_DEPTH)
            return weft_base__fail(&y->r, "nested deeper than %d", WEFT_DOC_MAX_DEPTH);
        WEFT_TRY(read_flow_collection(y, map, out));
        y->r.depth--;
        return WEFT_OK;
    }
    if (at_quote(y)) {
        WEFT_TRY(weft_base__yaml_quoted(y, &s));
        return weft_base__yaml_string(y, line, s, out);
    }
    WEFT_TRY(read_flow_plain(y, &s));
    WEFT_TRY(weft_base__yaml_string(y, line, s, out));
    return weft_base__yaml_resolve(&y->r, *out);
}

weft_status weft_base__parse_value(weft_doc *d, const char *text, weft_node **out)
{
    weft_yaml y = {.r          = {.doc = d, .p = text, .end = text + strlen(text)},
                   .line_start = text};
    while (weft_base__yaml_at(&y, ' ')) y.r.p++;
    if (!at_quote(&y) && !weft_base__yaml_at(&y, '[') && !weft_base__yaml_at(&y, '{')) {
        while (y.r.end > y.r.p && y.r.end[-1] == ' ') y.r.end--;
        size_t n = (size_t)(y.r.end - y.r.p);
        WEFT_TRY(
            weft_base__yaml_string(&y, 0, weft_arena_strndup(d->arena, y.r.p, n), out));
        return weft_base__yaml_resolve(&y.r, *out);
    }
    WEFT_TRY(weft_base__yaml_flow(&y, out));
    if (!weft_base__yaml_line_done(&y) || y.r.p < y.r.end)
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s': unexpected text after the value", text);
    return WEFT_OK;
}
