/* YAML, the part people write configurations in, by recursive descent over columns: the blocks.
 *
 * A block node is known by the column it starts in; a map or list goes on as long as lines start
 * in its column and ends at a line that starts further left.  Every reader of a block leaves the
 * reader at the first character of the next line that has content, or at the end. */
#include <string.h>

#include "base/doc_yaml_priv.h"

static weft_status read_block(weft_yaml *y, int parent, weft_node **out);

/* ---- lines ----------------------------------------------------------------------------------- */

static bool at_end(const weft_yaml *y)
{
    return y->r.p >= y->r.end;
}

void weft_base__yaml_newline(weft_yaml *y)
{
    y->line_start = ++y->r.p;
    y->r.line++;
}

bool weft_base__yaml_line_done(weft_yaml *y)
{
    weft_reader *r = &y->r;
    while (!at_end(y) && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r')) r->p++;
    bool space = r->p == y->line_start || weft_base__yaml_blank(y, r->p - 1);
    if (weft_base__yaml_at(y, '#') && space)
        while (!at_end(y) && *r->p != '\n') r->p++;
    return at_end(y) || *r->p == '\n';
}

static bool at_marker(const weft_yaml *y, const char *marker)
{
    return y->r.p == y->line_start && y->r.end - y->r.p >= 3 &&
           !memcmp(y->r.p, marker, 3) && weft_base__yaml_blank(y, y->r.p + 3);
}

weft_status weft_base__yaml_find_content(weft_yaml *y)
{
    weft_reader *r = &y->r;
    for (;;) {
        while (weft_base__yaml_at(y, ' ')) r->p++;
        const char *indent = r->p;
        if (weft_base__yaml_line_done(y)) {
            if (at_end(y)) return WEFT_OK;
            weft_base__yaml_newline(y);
            continue;
        }
        if (*indent == '\t')
            return weft_base__fail(r, "a tab in the indentation; use spaces");
        if (at_marker(y, "---") || at_marker(y, "..."))
            return weft_base__fail(r, "several documents in one file are not read");
        return WEFT_OK;
    }
}

weft_status weft_base__yaml_end_line(weft_yaml *y)
{
    if (!weft_base__yaml_line_done(y))
        return weft_base__fail(&y->r, "unexpected text after a value, column %d",
                               weft_base__yaml_column(y) + 1);
    if (at_end(y)) return WEFT_OK;
    weft_base__yaml_newline(y);
    return weft_base__yaml_find_content(y);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* "- " or a dash at the end of the line. */
static bool at_dash(const weft_yaml *y)
{
    return weft_base__yaml_at(y, '-') && weft_base__yaml_blank(y, y->r.p + 1);
}

/* The end of the quoted scalar at p if it closes on this line, or NULL. */
static const char *skip_quoted(const weft_yaml *y, const char *p)
{
    char quote = *p++;
    for (; p < y->r.end && *p != '\n'; p++) {
        bool escape =
            quote == '"' ? *p == '\\' : *p == quote && p + 1 < y->r.end && p[1] == quote;
        if (escape && p + 1 < y->r.end && p[1] != '\n')
            p++;
        else if (*p == quote)
            return p + 1;
    }
    return NULL;
}

static bool at_colon(const weft_yaml *y, const char *p)
{
    return p < y->r.end && *p == ':' && weft_base__yaml_blank(y, p + 1);
}

/* Does "key:" start here?  The key stands on one line. */
bool weft_base__yaml_at_key(const weft_yaml *y)
{
    const char *p = y->r.p, *end = y->r.end;
    if (p < end && (*p == '"' || *p == '\'')) {
        p = skip_quoted(y, p);
        while (p && p < end && *p == ' ') p++;
        return p && at_colon(y, p);
    }
    if (p < end && (*p == '[' || *p == '{')) return false;
    for (; p < end && *p != '\n'; p++) {
        if (at_colon(y, p)) return true;
        if (*p == '#' && p > y->r.p && weft_base__yaml_blank(y, p - 1)) return false;
    }
    return false;
}

/* Precondition: weft_base__yaml_at_key(). */
static weft_status read_key(weft_yaml *y, const char **key)
{
    weft_reader *r = &y->r;
    if (weft_base__yaml_at(y, '"') || weft_base__yaml_at(y, '\''))
        WEFT_TRY(weft_base__yaml_quoted(y, key));
    else {
        const char *from = r->p;
        WEFT_TRY(weft_base__yaml_check_plain(y));
        while (!at_colon(y, r->p)) r->p++;
        const char *to = r->p;
        while (to > from && weft_base__yaml_blank(y, to - 1)) to--;
        *key = weft_arena_strndup(r->doc->arena, from, (size_t)(to - from));
    }
    while (weft_base__yaml_at(y, ' ')) r->p++;
    r->p++; /* the colon */
    return weft_arena_status(r->doc->arena);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* What stands behind "key:", on its line or below it. */
static weft_status read_map_value(weft_yaml *y, int column, weft_node **out)
{
    if (!weft_base__yaml_line_done(y)) {
        if (at_dash(y))
            return weft_base__fail(&y->r,
                                   "a list starts on a line of its own, below its key");
        if (weft_base__yaml_at_key(y))
            return weft_base__fail(&y->r, "a second ':' on the line; quote the value");
        return weft_base__yaml_scalar(y, column, out);
    }
    WEFT_TRY(weft_base__yaml_end_line(y));
    /* a list may stand in the column of the key it belongs to */
    bool same = !at_end(y) && weft_base__yaml_column(y) == column && at_dash(y);
    return read_block(y, same ? column - 1 : column, out);
}

static weft_status read_list_value(weft_yaml *y, int column, weft_node **out)
{
    if (weft_base__yaml_line_done(y)) WEFT_TRY(weft_base__yaml_end_line(y));
    return read_block(y, column, out);
}

static weft_status check_column(const weft_yaml *y, int column)
{
    int now = weft_base__yaml_column(y);
    if (at_end(y) || now <= column) return WEFT_OK;
    return weft_base__fail(&y->r, "indented too far: column %d, expected %d", now + 1,
                           column + 1);
}

static weft_status read_list(weft_yaml *y, weft_node **out)
{
    int               column = weft_base__yaml_column(y);
    weft_doc__builder b      = {0};
    weft_node        *list, *child;
    WEFT_TRY(weft_base__new_node(&y->r, WEFT_NODE_LIST, &list));
    while (!at_end(y) && weft_base__yaml_column(y) == column && at_dash(y)) {
        y->r.p++;
        WEFT_TRY(read_list_value(y, column, &child));
        WEFT_TRY(weft_base__push(&y->r, &b, child));
        WEFT_TRY(check_column(y, column));
    }
    *out = list;
    return weft_base__close(&y->r, &b, list);
}

static weft_status read_map(weft_yaml *y, weft_node **out)
{
    int               column = weft_base__yaml_column(y);
    weft_doc__builder b      = {0};
    weft_node        *map, *child;
    const char       *key;
    WEFT_TRY(weft_base__new_node(&y->r, WEFT_NODE_MAP, &map));
    while (!at_end(y) && weft_base__yaml_column(y) == column && !at_dash(y)) {
        int line = y->r.line;
        if (!weft_base__yaml_at_key(y))
            return weft_base__fail(&y->r, "expected 'key: value'");
        WEFT_TRY(read_key(y, &key));
        WEFT_TRY(read_map_value(y, column, &child));
        child->key  = key;
        child->line = line;
        WEFT_TRY(weft_base__push(&y->r, &b, child));
        WEFT_TRY(check_column(y, column));
    }
    *out = map;
    return weft_base__close(&y->r, &b, map);
}

/* The node that starts here if it stands right of `parent`, else null. */
static weft_status read_block(weft_yaml *y, int parent, weft_node **out)
{
    weft_reader *r = &y->r;
    if (at_end(y) || weft_base__yaml_column(y) <= parent)
        return weft_base__new_node(r, WEFT_NODE_NULL, out);
    bool list = at_dash(y);
    if (!list && !weft_base__yaml_at_key(y))
        return weft_base__yaml_scalar(y, parent,
                                      out); /* flow collections count themselves */
    if (++r->depth > WEFT_DOC_MAX_DEPTH)
        return weft_base__fail(r, "nested deeper than %d", WEFT_DOC_MAX_DEPTH);
    WEFT_TRY(list ? read_list(y, out) : read_map(y, out));
    r->depth--;
    return WEFT_OK;
}

/* Up to the first content, over one "---". */
static weft_status read_start(weft_yaml *y)
{
    weft_reader *r = &y->r;
    if (r->end - r->p >= 3 && !memcmp(r->p, "\xef\xbb\xbf", 3))
        r->p += 3; /* byte order mark */
    y->line_start = r->p;
    while (weft_base__yaml_line_done(y) && !at_end(y)) weft_base__yaml_newline(y);
    r->p = y->line_start;
    if (at_marker(y, "---")) {
        r->p += 3;
        return weft_base__yaml_end_line(y);
    }
    return weft_base__yaml_find_content(y);
}

static weft_status read_text(weft_reader *r, weft_node **root)
{
    weft_yaml y = {.r = *r};
    WEFT_TRY(read_start(&y));
    WEFT_TRY(read_block(&y, -1, root));
    if (!at_end(&y))
        return weft_base__fail(&y.r, "does not belong to what stands above; check the "
                                     "indentation");
    return WEFT_OK;
}

weft_status weft_doc_parse_yaml(const char *file, const char *text, size_t n,
                                weft_doc **out)
{
    return weft_base__parse(file, text, n, read_text, out);
}
