/* JSON by RFC 8259, one function a production.  Strings with \u0000 are refused, as ours end in
 * NUL; so are numbers beyond the range of a double. */
#include <string.h>

#include "base/doc_priv.h"
#include "base/escape.h"

static weft_status read_value(weft_reader *r, weft_node **out);

static void skip_space(weft_reader *r)
{
    for (; r->p < r->end; r->p++) {
        if (*r->p == '\n')
            r->line++;
        else if (*r->p != ' ' && *r->p != '\t' && *r->p != '\r')
            return;
    }
}

static bool accept(weft_reader *r, char c)
{
    if (r->p >= r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static weft_status unexpected(const weft_reader *r, const char *want)
{
    if (r->p >= r->end)
        return weft_base__fail(r, "expected %s, got the end of the text", want);
    int n = weft_escape_utf8_length(r->p, r->end);
    return weft_base__fail(r, "expected %s, got '%.*s'", want, n, r->p);
}

static weft_status read_string(weft_reader *r, const char **out)
{
    if (!accept(r, '"')) return unexpected(r, "'\"'");
    const char *q = r->p;
    while (q < r->end && *q != '"') q += *q == '\\' && q + 1 < r->end ? 2 : 1;
    if (q >= r->end) return weft_base__fail(r, "a string has no end");
    char *s = weft_arena_alloc(r->doc->arena, (size_t)(q - r->p) + 1), *o = s;
    if (!s) return weft_arena_status(r->doc->arena);
    while (r->p < q) {
        if ((unsigned char)*r->p < 0x20)
            return weft_base__fail(r, "a control character inside a string");
        if (*r->p != '\\') {
            *o++ = *r->p++;
            continue;
        }
        r->p++;
        int n = weft_escape_read(&r->p, q, o);
        if (n == 0) return weft_base__fail(r, "a bad escape inside a string");
        o += n;
    }
    r->p = q + 1;
    *out = s;
    return WEFT_OK;
}

static int skip_digits(weft_reader *r)
{
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
    return (int)(r->p - from);
}

static weft_status read_number(weft_reader *r, weft_node **out)
{
    const char *from    = r->p;
    bool        integer = true;
    accept(r, '-');
    if (!accept(r, '0') && skip_digits(r) == 0) return unexpected(r, "a value");
    if (accept(r, '.')) {
        integer = false;
        if (skip_digits(r) == 0) return unexpected(r, "a digit");
    }
    if (accept(r, 'e') || accept(r, 'E')) {
        integer = false;
        if (!accept(r, '+')) accept(r, '-');
        if (skip_digits(r) == 0) return unexpected(r, "a digit");
    }
    char *s = weft_arena_strndup(r->doc->arena, from, (size_t)(r->p - from));
    if (!s) return weft_arena_status(r->doc->arena);
    WEFT_TRY(weft_base__new_node(r, WEFT_NODE_INT, out));
    if (!weft_base__set_number(*out, s, integer))
        return weft_base__fail(r, "%.40s is too large for a number", s);
    return WEFT_OK;
}

static weft_status read_list(weft_reader *r, weft_node **out)
{
    weft_doc__builder b = {0};
    weft_node        *list, *child;
    WEFT_TRY(weft_base__new_node(r, WEFT_NODE_LIST, &list));
    skip_space(r);
    if (!accept(r, ']')) {
        do {
            WEFT_TRY(read_value(r, &child));
            WEFT_TRY(weft_base__push(r, &b, child));
        } while (accept(r, ','));
        if (!accept(r, ']')) return unexpected(r, "',' or ']'");
    }
    *out = list;
    return weft_base__close(r, &b, list);
}

static weft_status read_map(weft_reader *r, weft_node **out)
{
    weft_doc__builder b = {0};
    weft_node        *map, *child;
    const char       *key;
    WEFT_TRY(weft_base__new_node(r, WEFT_NODE_MAP, &map));
    skip_space(r);
    if (!accept(r, '}')) {
        do {
            skip_space(r);
            int line = r->line;
            WEFT_TRY(read_string(r, &key));
            skip_space(r);
            if (!accept(r, ':')) return unexpected(r, "':'");
            WEFT_TRY(read_value(r, &child));
            child->key  = key;
            child->line = line;
            WEFT_TRY(weft_base__push(r, &b, child));
        } while (accept(r, ','));
        if (!accept(r, '}')) return unexpected(r, "',' or '}'");
    }
    *out = map;
    return weft_base__close(r, &b, map);
}

static weft_status read_word(weft_reader *r, weft_node **out)
{
    static const struct {
        const char    *word;
        weft_node_kind kind;
        bool           b;
    } known[] = {{"null", WEFT_NODE_NULL, false},
                 {"true", WEFT_NODE_BOOL, true},
                 {"false", WEFT_NODE_BOOL, false}};
    for (size_t i = 0; i < WEFT_COUNT(known); i++) {
        size_t n = strlen(known[i].word);
        if ((size_t)(r->end - r->p) < n || memcmp(r->p, known[i].word, n) != 0) continue;
        WEFT_TRY(weft_base__new_node(r, known[i].kind, out));
        if (known[i].kind == WEFT_NODE_BOOL) (*out)->u.b = known[i].b;
        r->p += n;
        return WEFT_OK;
    }
    return unexpected(r, "a value");
}

/* Leaves the reader at the next byte that is no space. */
static weft_status read_value(weft_reader *r, weft_node **out)
{
    if (++r->depth > WEFT_DOC_MAX_DEPTH)
        return weft_base__fail(r, "nested deeper than %d", WEFT_DOC_MAX_DEPTH);
    skip_space(r);
    if (accept(r, '{'))
        WEFT_TRY(read_map(r, out));
    else if (accept(r, '['))
        WEFT_TRY(read_list(r, out));
    else if (r->p < r->end && *r->p == '"') {
        WEFT_TRY(weft_base__new_node(r, WEFT_NODE_STRING, out));
        WEFT_TRY(read_string(r, &(*out)->u.s));
    } else if (r->p < r->end && (*r->p == '-' || (*r->p >= '0' && *r->p <= '9')))
        WEFT_TRY(read_number(r, out));
    else
        WEFT_TRY(read_word(r, out));
    skip_space(r);
    r->depth--;
    return WEFT_OK;
}

static weft_status read_text(weft_reader *r, weft_node **root)
{
    WEFT_TRY(read_value(r, root));
    return r->p < r->end ? unexpected(r, "the end of the text") : WEFT_OK;
}

weft_status weft_doc_parse_json(const char *file, const char *text, size_t n,
                                weft_doc **out)
{
    return weft_base__parse(file, text, n, read_text, out);
}
