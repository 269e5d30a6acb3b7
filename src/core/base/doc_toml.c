/* TOML 1.0: tables, arrays of tables, dotted and quoted keys, all kinds of strings and numbers,
 * arrays, inline tables.  Dates and times are kept as the strings they are.  A table that was
 * written whole (inline) or a value is not added to later; infinite numbers are refused, as in
 * the other documents. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc_priv.h"
#include "base/escape.h"
#include "base/hash.h"

static weft_status read_value(weft_reader *r, weft_node **out);

/* ---- bytes ---- */

static int peek(const weft_reader *r)
{
    return r->p < r->end ? (unsigned char)*r->p : -1;
}

static bool accept(weft_reader *r, char c)
{
    if (peek(r) != (unsigned char)c) return false;
    r->p++;
    return true;
}

static bool starts(const weft_reader *r, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(r->end - r->p) >= n && !memcmp(r->p, word, n);
}

static void skip_blank(weft_reader *r)
{
    while (peek(r) == ' ' || peek(r) == '\t') r->p++;
}

static void skip_comment(weft_reader *r)
{
    if (peek(r) == '#')
        while (r->p < r->end && *r->p != '\n') r->p++;
}

/* Blanks, comments and line ends. */
static void skip_lines(weft_reader *r)
{
    for (;;) {
        skip_blank(r);
        skip_comment(r);
        if (starts(r, "\r\n")) r->p++;
        if (!accept(r, '\n')) return;
        r->line++;
    }
}

static weft_status unexpected(const weft_reader *r, const char *want)
{
    if (r->p >= r->end)
        return weft_base__fail(r, "expected %s, got the end of the text", want);
    if (*r->p == '\n' || *r->p == '\r')
        return weft_base__fail(r, "expected %s, got the end of the line", want);
    int n = weft_escape_utf8_length(r->p, r->end);
    return weft_base__fail(r, "expected %s, got '%.*s'", want, n, r->p);
}

static weft_status end_line(weft_reader *r)
{
    skip_blank(r);
    skip_comment(r);
    if (starts(r, "\r\n")) r->p++;
    if (peek(r) >= 0 && *r->p != '\n') return unexpected(r, "the end of the line");
    return WEFT_OK;
}

/* ---- the tree while it grows ---- */

/* Room doubles at every power of two. */
static weft_status put(weft_reader *r, weft_node *to, weft_node *child)
{
    int n = to->u.list.n;
    if ((n & (n - 1)) == 0) {
        const weft_node **more =
            WEFT_ARENA_ARRAY(r->doc->arena, const weft_node *, n ? 2 * n : 1);
        if (!more) return weft_arena_status(r->doc->arena);
        for (int i = 0; i < n; i++) more[i] = to->u.list.node[i];
        to->u.list.node = more;
    }
    to->u.list.node[to->u.list.n++] = child;
    return WEFT_OK;
}

/* The entries of all maps by map and key, open addressing: a file is read in time of its length. */
struct weft_doc__index {
    struct {
        const weft_node *map;
        weft_node       *node; /* NULL: free */
    } * slot;
    size_t size, n; /* size: a power of two */
};

static size_t find_slot(const struct weft_doc__index *x, const weft_node *map,
                        const char *key)
{
    size_t at = weft_hash_xxh64(key, strlen(key), (uintptr_t)map) & (x->size - 1);
    while (x->slot[at].node &&
           (x->slot[at].map != map || strcmp(x->slot[at].node->key, key) != 0))
        at = (at + 1) & (x->size - 1);
    return at;
}

static weft_status grow_index(struct weft_doc__index *x)
{
    struct weft_doc__index more = {.size = x->size ? 2 * x->size : 64, .n = x->n};
    more.slot                   = calloc(more.size, sizeof *more.slot);
    if (!more.slot) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (size_t i = 0; i < x->size; i++)
        if (x->slot[i].node)
            more.slot[find_slot(&more, x->slot[i].map, x->slot[i].node->key)] =
                x->slot[i];
    free(x->slot);
    *x = more;
    return WEFT_OK;
}

static weft_node *entry(const weft_reader *r, const weft_node *map, const char *key)
{
    const struct weft_doc__index *x = r->index;
    return x->size ? x->slot[find_slot(x, map, key)].node : NULL;
}

/* A child with its key, which map does not have yet. */
static weft_status put_entry(weft_reader *r, weft_node *map, weft_node *child)
{
    struct weft_doc__index *x = r->index;
    if (2 * x->n >= x->size) WEFT_TRY(grow_index(x));
    size_t at        = find_slot(x, map, child->key);
    x->slot[at].map  = map;
    x->slot[at].node = child;
    x->n++;
    return put(r, map, child);
}

static weft_status twice(const weft_reader *r, const char *key)
{
    return weft_base__fail(r, "'%s' stands twice", key);
}

/* ---- strings ---- */

/* Behind a backslash: JSON's escapes but for the slash, and U with eight digits. */
static weft_status read_escape(weft_reader *r, char **o)
{
    if (accept(r, 'U')) {
        char     hex[9] = {0};
        uint32_t c;
        for (int i = 0; i < 8; i++) {
            if (!isxdigit(peek(r))) return unexpected(r, "eight hexadecimal digits");
            hex[i] = *r->p++;
        }
        c = (uint32_t)strtoul(hex, NULL, 16);
        if (!c || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            return weft_base__fail(r, "\\U%s is no character", hex);
        *o += weft_escape_put_utf8(c, *o);
        return WEFT_OK;
    }
    int n = peek(r) == '/' ? 0 : weft_escape_read(&r->p, r->end, *o);
    if (!n) return weft_base__fail(r, "a bad escape inside a string");
    *o += n;
    return WEFT_OK;
}

/* Inside """: a backslash before the end of a line eats all space up to the next word. */
static bool skip_continued(weft_reader *r)
{
    const char *p = r->p;
    while (p < r->end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    if (p >= r->end || *p != '\n') return false;
    for (; p < r->end && isspace((unsigned char)*p); p++) r->line += *p == '\n';
    r->p = p;
    return true;
}

/* At least the bytes up to the closing quotes. */
static size_t room(const weft_reader *r, char quote, bool three)
{
    const char *q = r->p;
    for (; q < r->end && (three || *q != '\n'); q++) {
        if (quote == '"' && *q == '\\' && q + 1 < r->end)
            q++;
        else if (*q == quote &&
                 (!three || (r->end - q > 2 && q[1] == quote && q[2] == quote)))
            break;
    }
    return (size_t)(q - r->p);
}

static weft_status read_string(weft_reader *r, bool lines, const char **out)
{
    char        quote = *r->p;
    const char *many  = quote == '"' ? "\"\"\"" : "'''";
    bool        three = starts(r, many);
    int         first = r->line;
    if (three && !lines) return weft_base__fail(r, "a key is no string of several lines");
    r->p += three ? 3 : 1;
    if (three && starts(r, "\r\n")) r->p++;
    if (three && accept(r, '\n')) r->line++;
    char *s = weft_arena_alloc(r->doc->arena, room(r, quote, three) + 8), *o = s;
    if (!s) return weft_arena_status(r->doc->arena);
    for (;;) {
        if (r->p >= r->end || (!three && *r->p == '\n')) {
            r->line = first;
            return weft_base__fail(r, "a string has no end");
        }
        if (three ? starts(r, many) : *r->p == quote) {
            r->p += three ? 3 : 1;
            /* up to two quotes may stand right before the closing three */
            for (int i = 0; three && i < 2 && peek(r) == quote; i++) *o++ = *r->p++;
            break;
        }
        if (quote == '"' && accept(r, '\\')) {
            if (!three || !skip_continued(r)) WEFT_TRY(read_escape(r, &o));
            continue;
        }
        if ((unsigned char)*r->p < 0x20 && *r->p != '\t' && !(three && isspace(peek(r))))
            return weft_base__fail(r, "a control character inside a string");
        r->line += *r->p == '\n';
        *o++ = *r->p++;
    }
    *o   = 0;
    *out = s;
    return WEFT_OK;
}

/* ---- keys ---- */

static bool is_bare(int c)
{
    return c == '_' || c == '-' || (c < 128 && c > 0 && isalnum(c));
}

static weft_status read_key(weft_reader *r, const char **out)
{
    if (peek(r) == '"' || peek(r) == '\'') return read_string(r, false, out);
    const char *from = r->p;
    while (is_bare(peek(r))) r->p++;
    if (r->p == from) return unexpected(r, "a key");
    *out = weft_arena_strndup(r->doc->arena, from, (size_t)(r->p - from));
    return weft_arena_status(r->doc->arena);
}

/* The map under a key, made where it is missing; of an array of tables the last one. */
static weft_status enter(weft_reader *r, weft_node *map, const char *key, weft_node **out)
{
    weft_node *n = entry(r, map, key);
    if (!n) {
        WEFT_TRY(weft_base__new_node(r, WEFT_NODE_MAP, &n));
        n->key = key;
        *out   = n;
        return put_entry(r, map, n);
    }
    if (n->kind == WEFT_NODE_LIST && n->u.list.n)
        n = (weft_node *)n->u.list.node[n->u.list.n - 1];
    if (n->kind != WEFT_NODE_MAP) return twice(r, key);
    *out = n;
    return WEFT_OK;
}

/* a.b.c: into the maps of all but the last word. */
static weft_status read_path(weft_reader *r, weft_node **map, const char **last)
{
    for (int depth = 0;; depth++) {
        if (depth > WEFT_DOC_MAX_DEPTH)
            return weft_base__fail(r, "nested deeper than %d", WEFT_DOC_MAX_DEPTH);
        skip_blank(r);
        WEFT_TRY(read_key(r, last));
        skip_blank(r);
        if (!accept(r, '.')) return WEFT_OK;
        WEFT_TRY(enter(r, *map, *last, map));
    }
}

static weft_status read_entry(weft_reader *r, weft_node *map)
{
    const char *key;
    weft_node  *value;
    int         line = r->line;
    WEFT_TRY(read_path(r, &map, &key));
    if (!accept(r, '=')) return unexpected(r, "'='");
    skip_blank(r);
    WEFT_TRY(read_value(r, &value));
    if (entry(r, map, key)) return twice(r, key);
    value->key  = key;
    value->line = line;
    return put_entry(r, map, value);
}

/* ---- values ---- */

static bool is_word(int c)
{
    return is_bare(c) || c == '+' || c == '.' || c == ':';
}

/* Digits in a base of 2, 8 or 16 behind "0b", "0o", "0x". */
static weft_status read_based(weft_reader *r, const char *digits, int base, weft_node *n)
{
    char *end;
    n->kind = WEFT_NODE_INT;
    n->u.i  = strtoll(digits, &end, base);
    if (!isxdigit((unsigned char)*digits) || *end || n->u.i == INT64_MAX)
        return weft_base__fail(r, "%.40s is no number", digits - 2);
    return WEFT_OK;
}

/* A number without its underscores, or a date. */
static weft_status read_plain(weft_reader *r, char *s, weft_node *n)
{
    const char *p     = *s == '+' || *s == '-' ? s + 1 : s;
    size_t      whole = strspn(p, "0123456789");
    if (!strcmp(s, "true") || !strcmp(s, "false")) {
        n->kind = WEFT_NODE_BOOL;
        n->u.b  = *s == 't';
        return WEFT_OK;
    }
    if (whole == 4 && p == s && p[4] == '-') { /* a date, perhaps with a time behind it */
        n->kind = WEFT_NODE_STRING;
        n->u.s  = s;
        return WEFT_OK;
    }
    if (whole == 2 && p == s && p[2] == ':') { /* a time */
        n->kind = WEFT_NODE_STRING;
        n->u.s  = s;
        return WEFT_OK;
    }
    if (p == s && *p == '0' && p[1] && strchr("xob", p[1]))
        return read_based(r, p + 2, p[1] == 'x' ? 16 : p[1] == 'o' ? 8 : 2, n);
    bool zeros   = whole > 1 && *p == '0';
    bool integer = whole > 0 && !p[whole];
    if (!whole || zeros ||
        (!integer && p[whole] != '.' && p[whole] != 'e' && p[whole] != 'E') ||
        !weft_base__set_number(n, *s == '+' ? s + 1 : s, integer))
        return weft_base__fail(r, "expected a value, got '%.40s'", s);
    return WEFT_OK;
}

static weft_status read_word(weft_reader *r, weft_node **out)
{
    const char *from = r->p;
    while (is_word(peek(r))) r->p++;
    if (r->p == from) return unexpected(r, "a value");
    char *s = weft_arena_strndup(r->doc->arena, from, (size_t)(r->p - from)), *o = s;
    if (!s) return weft_arena_status(r->doc->arena);
    for (const char *q = s; *q; q++) {
        bool between =
            q > s && isxdigit((unsigned char)q[-1]) && isxdigit((unsigned char)q[1]);
        if (*q != '_' || !between) *o++ = *q;
    }
    *o = 0;
    WEFT_TRY(weft_base__new_node(r, WEFT_NODE_STRING, out));
    return read_plain(r, s, *out);
}

static weft_status read_array(weft_reader *r, weft_node **out)
{
    weft_node *child;
    WEFT_TRY(weft_base__new_node(r, WEFT_NODE_LIST, out));
    for (skip_lines(r); !accept(r, ']'); skip_lines(r)) {
        WEFT_TRY(read_value(r, &child));
        WEFT_TRY(put(r, *out, child));
        skip_lines(r);
        if (!accept(r, ',') && peek(r) != ']') return unexpected(r, "',' or ']'");
    }
    return WEFT_OK;
}

static weft_status read_inline(weft_reader *r, weft_node **out)
{
    WEFT_TRY(weft_base__new_node(r, WEFT_NODE_MAP, out));
    skip_blank(r);
    if (accept(r, '}')) return WEFT_OK;
    do {
        WEFT_TRY(read_entry(r, *out));
        skip_blank(r);
    } while (accept(r, ','));
    return accept(r, '}') ? WEFT_OK : unexpected(r, "',' or '}'");
}

static weft_status read_value(weft_reader *r, weft_node **out)
{
    if (++r->depth > WEFT_DOC_MAX_DEPTH)
        return weft_base__fail(r, "nested deeper than %d", WEFT_DOC_MAX_DEPTH);
    if (peek(r) == '"' || peek(r) == '\'') {
        WEFT_TRY(weft_base__new_node(r, WEFT_NODE_STRING, out));
        WEFT_TRY(read_string(r, true, &(*out)->u.s));
    } else if (accept(r, '['))
        WEFT_TRY(read_array(r, out));
    else if (accept(r, '{'))
        WEFT_TRY(read_inline(r, out));
    else
        WEFT_TRY(read_word(r, out));
    r->depth--;
    return WEFT_OK;
}

/* ---- the file ---- */

/* "[a.b]" or "[[a.b]]": the table that the lines behind it fill. */
static weft_status read_header(weft_reader *r, weft_node *root, weft_node **table)
{
    bool        many = accept(r, '[');
    weft_node  *map  = root, *n;
    const char *key;
    WEFT_TRY(read_path(r, &map, &key));
    if (!accept(r, ']') || (many && !accept(r, ']'))) return unexpected(r, "']'");
    if (!many) return enter(r, map, key, table);
    n = entry(r, map, key);
    if (!n) {
        WEFT_TRY(weft_base__new_node(r, WEFT_NODE_LIST, &n));
        n->key = key;
        WEFT_TRY(put_entry(r, map, n));
    }
    if (n->kind != WEFT_NODE_LIST) return twice(r, key);
    WEFT_TRY(weft_base__new_node(r, WEFT_NODE_MAP, table));
    return put(r, n, *table);
}

static weft_status read_lines(weft_reader *r, weft_node **root)
{
    weft_node *table;
    WEFT_TRY(weft_base__new_node(r, WEFT_NODE_MAP, root));
    table = *root;
    for (skip_lines(r); r->p < r->end; skip_lines(r)) {
        if (accept(r, '['))
            WEFT_TRY(read_header(r, *root, &table));
        else
            WEFT_TRY(read_entry(r, table));
        WEFT_TRY(end_line(r));
    }
    return WEFT_OK;
}

static weft_status read_text(weft_reader *r, weft_node **root)
{
    struct weft_doc__index index = {0};
    r->index                     = &index;
    weft_status st               = read_lines(r, root);
    r->index                     = NULL;
    free(index.slot);
    return st;
}

weft_status weft_doc_parse_toml(const char *file, const char *text, size_t n,
                                weft_doc **out)
{
    return weft_base__parse(file, text, n, read_text, out);
}
