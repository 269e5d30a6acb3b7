/* The tree of a document: building, reading, changing, printing.  Parsers: doc_json.c,
 * doc_yaml.c, doc_toml.c. */
#include "base/doc.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc_priv.h"
#include "base/escape.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/suggest.h"

/* ---- for the parsers ------------------------------------------------------------------------- */

weft_status weft_base__fail(const weft_reader *r, const char *fmt, ...)
{
    char    buf[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s", r->doc->file, r->line, buf);
}

static weft_status check_text(weft_reader *r)
{
    int line = 1;
    for (const char *p = r->p; p < r->end;) {
        int n = weft_escape_utf8_length(p, r->end);
        if (n == 0 || *p == 0) {
            r->line = line;
            return weft_base__fail(r, n ? "a NUL byte" : "not valid UTF-8");
        }
        line += *p == '\n';
        p += n;
    }
    return WEFT_OK;
}

weft_status weft_base__parse(const char *file, const char *text, size_t n,
                             weft_status (*read)(weft_reader *r, weft_node **root),
                             weft_doc **out)
{
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&a));
    weft_doc   *d = WEFT_ARENA_NEW(a, weft_doc);
    weft_reader r = {.doc = d, .p = text, .end = text + n, .line = 1};
    if (!d) WEFT_GO(weft_arena_status(a));
    d->arena = a;
    d->file  = weft_arena_strdup(a, file);
    WEFT_GO(weft_arena_status(a));
    WEFT_GO(check_text(&r));
    WEFT_GO(read(&r, &d->root));
    *out = d;
    return WEFT_OK;
out:
    weft_arena_destroy(a);
    return st;
}

weft_status weft_base__new_node(weft_reader *r, weft_node_kind kind, weft_node **out)
{
    weft_node *n = WEFT_ARENA_NEW(r->doc->arena, weft_node);
    if (!n) return weft_arena_status(r->doc->arena);
    n->kind = kind;
    n->line = r->line;
    *out    = n;
    return WEFT_OK;
}

weft_status weft_base__push(weft_reader *r, weft_doc__builder *b, const weft_node *child)
{
    void *p = b->node;
    WEFT_TRY(weft_arena_grow(r->doc->arena, &p, &b->cap, b->n + 1, sizeof *b->node));
    b->node         = p;
    b->node[b->n++] = child;
    return WEFT_OK;
}

static weft_status duplicate(const weft_reader *r, const weft_node *n)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: key '%s' stands twice in one map",
                     r->doc->file, n->line, n->key);
}

/* Open addressing over the keys: a header with 10^5 tensors is no slower than its length. */
static weft_status check_duplicates(weft_reader *r, const weft_doc__builder *b)
{
    size_t size = 16;
    while (size < 2 * (size_t)b->n) size *= 2;
    int *slot = calloc(size, sizeof *slot); /* 1 + index of an entry, 0: free */
    if (!slot) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_status st = WEFT_OK;
    for (int i = 0; i < b->n && st == WEFT_OK; i++) {
        const char *key = b->node[i]->key;
        size_t      at  = weft_hash_xxh64(key, strlen(key), 0) & (size - 1);
        for (; slot[at]; at = (at + 1) & (size - 1))
            if (!strcmp(b->node[slot[at] - 1]->key, key)) st = duplicate(r, b->node[i]);
        slot[at] = i + 1;
    }
    free(slot);
    return st;
}

weft_status weft_base__close(weft_reader *r, weft_doc__builder *b, weft_node *n)
{
    if (n->kind == WEFT_NODE_MAP && b->n > 1) WEFT_TRY(check_duplicates(r, b));
    n->u.list.n    = b->n;
    n->u.list.node = b->node;
    return WEFT_OK;
}

bool weft_base__set_number(weft_node *n, const char *s, bool integer)
{
    if (integer) {
        errno     = 0;
        int64_t i = strtoll(s, NULL, 10);
        if (!errno) {
            n->kind = WEFT_NODE_INT;
            n->u.i  = i;
            return true;
        }
    }
    n->kind = WEFT_NODE_FLOAT;
    return weft_text_read_double(s, &n->u.f) && isfinite(n->u.f);
}

/* ---- documents ------------------------------------------------------------------------------- */

weft_status weft_doc_load(const char *path, weft_doc **out)
{
    char  *text;
    size_t n;
    WEFT_TRY(weft_io_read_file(path, &text, &n));
    size_t      len = strlen(path);
    const char *end = len >= 5 ? path + len - 5 : "";
    weft_status st  = !strcmp(end, ".json")   ? weft_doc_parse_json(path, text, n, out)
                      : !strcmp(end, ".toml") ? weft_doc_parse_toml(path, text, n, out)
                                              : weft_doc_parse_yaml(path, text, n, out);
    free(text);
    return st;
}

void weft_doc_destroy(weft_doc *d)
{
    if (d) weft_arena_destroy(d->arena); /* d itself lies in it */
}

int64_t weft_doc_bytes(const weft_doc *d)
{
    return weft_arena_bytes(d->arena);
}

const weft_node *weft_doc_root(const weft_doc *d)
{
    return d->root;
}

const char *weft_doc_file(const weft_doc *d)
{
    return d->file;
}

const weft_node *weft_node_get(const weft_node *map, const char *key)
{
    if (!map || map->kind != WEFT_NODE_MAP) return NULL;
    for (int i = 0; i < map->u.list.n; i++)
        if (!strcmp(map->u.list.node[i]->key, key)) return map->u.list.node[i];
    return NULL;
}

/* ---- overrides ------------------------------------------------------------------------------- */

/* The tree is ours to change: nodes were made as weft_node and are const for readers only. */
static weft_node *mutable_entry(const weft_node *map, const char *key)
{
    return (weft_node *)(uintptr_t)weft_node_get(map, key);
}

/* The entry `key` of map, made (null) where missing. */
static weft_status find_or_add(weft_reader *r, weft_node *map, const char *key,
                               weft_node **out)
{
    weft_node *n = mutable_entry(map, key);
    if (!n) {
        weft_doc__builder b = {map->u.list.node, map->u.list.n, map->u.list.n};
        WEFT_TRY(weft_base__new_node(r, WEFT_NODE_NULL, &n));
        n->key = key;
        WEFT_TRY(weft_base__push(r, &b, n));
        map->u.list.node = b.node;
        map->u.list.n    = b.n;
    }
    *out = n;
    return WEFT_OK;
}

static weft_status want_map(const char *assignment, weft_node *n)
{
    if (n->kind == WEFT_NODE_NULL) {
        n->kind   = WEFT_NODE_MAP;
        n->u.list = (__typeof__(n->u.list)){0};
    }
    if (n->kind != WEFT_NODE_MAP)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: '%s' is no map, so nothing can be set inside it",
                         assignment, n->key ? n->key : "the document");
    return WEFT_OK;
}

weft_status weft_doc_override(weft_doc *d, const char *assignment)
{
    const char *eq = strchr(assignment, '=');
    if (!eq || eq == assignment)
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s': expected key=value", assignment);
    weft_reader r   = {.doc = d, .p = eq, .end = eq + strlen(eq)};
    char      *path = weft_arena_strndup(d->arena, assignment, (size_t)(eq - assignment));
    weft_node *value, *at = d->root;
    if (!path) return weft_arena_status(d->arena);
    if (check_text(&r) != WEFT_OK)
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s': not valid UTF-8", assignment);
    WEFT_TRY(weft_base__parse_value(d, eq + 1, &value));

    for (char *key = path, *dot; key; key = dot) {
        dot = strchr(key, '.');
        if (dot) *dot++ = 0;
        if (!*key) return WEFT_FAIL(WEFT_ERR_ARG, "'%s': an empty key", assignment);
        WEFT_TRY(want_map(assignment, at));
        WEFT_TRY(find_or_add(&r, at, key, &at));
    }
    value->key = at->key;
    *at        = *value;
    return WEFT_OK;
}

/* ---- typed reads ----------------------------------------------------------------------------- */

static const char *kind_name(weft_node_kind k)
{
    static const char *const name[] = {"nothing",  "true or false", "an integer",
                                       "a number", "a string",      "a list",
                                       "a map"};
    return name[k];
}

static weft_status wrong_kind(const weft_doc *d, const weft_node *n, const char *want)
{
    if (n->line == 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected %s, got %s", n->key, want,
                         kind_name(n->kind));
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s: expected %s, got %s", d->file, n->line,
                     n->key, want, kind_name(n->kind));
}

/* The entry that is there and not null, or NULL. */
static const weft_node *present(const weft_node *m, const char *key)
{
    const weft_node *n = weft_node_get(m, key);
    return n && n->kind != WEFT_NODE_NULL ? n : NULL;
}

weft_status weft_doc_get_int(const weft_doc *d, const weft_node *m, const char *key,
                             int64_t *out)
{
    const weft_node *n = present(m, key);
    if (!n) return WEFT_OK;
    if (n->kind != WEFT_NODE_INT) return wrong_kind(d, n, "an integer");
    *out = n->u.i;
    return WEFT_OK;
}

weft_status weft_doc_get_double(const weft_doc *d, const weft_node *m, const char *key,
                                double *out)
{
    const weft_node *n = present(m, key);
    if (!n) return WEFT_OK;
    if (n->kind == WEFT_NODE_INT)
        *out = (double)n->u.i;
    else if (n->kind == WEFT_NODE_FLOAT)
        *out = n->u.f;
    else
        return wrong_kind(d, n, "a number");
    return WEFT_OK;
}

weft_status weft_doc_get_bool(const weft_doc *d, const weft_node *m, const char *key,
                              bool *out)
{
    const weft_node *n = present(m, key);
    if (!n) return WEFT_OK;
    if (n->kind != WEFT_NODE_BOOL) return wrong_kind(d, n, "true or false");
    *out = n->u.b;
    return WEFT_OK;
}

weft_status weft_doc_get_string(const weft_doc *d, const weft_node *m, const char *key,
                                const char **out)
{
    const weft_node *n = present(m, key);
    if (!n) return WEFT_OK;
    if (n->kind != WEFT_NODE_STRING) return wrong_kind(d, n, "a string");
    *out = n->u.s;
    return WEFT_OK;
}

weft_status weft_doc_check_keys(const weft_doc *d, const weft_node *m,
                                const char *const *key, int n_key)
{
    if (!m || m->kind == WEFT_NODE_NULL) return WEFT_OK;
    if (m->kind != WEFT_NODE_MAP)
        return m->key ? wrong_kind(d, m, "a map")
                      : WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: expected a map, got %s", d->file,
                                  m->line, kind_name(m->kind));
    for (int i = 0; i < m->u.list.n; i++) {
        const weft_node *n     = m->u.list.node[i];
        bool             known = false;
        for (int k = 0; k < n_key && !known; k++) known = !strcmp(n->key, key[k]);
        if (known) continue;

        char        where[300] = "";
        const char *near       = weft_suggest(n->key, key, n_key);
        const char *in = m->key ? m->key : "", *dot = m->key ? "." : "";
        if (n->line) snprintf(where, sizeof where, "%s:%d: ", d->file, n->line);
        return near
                   ? WEFT_FAIL(WEFT_ERR_ARG, "%sunknown key '%s%s%s', did you mean '%s'?",
                               where, in, dot, n->key, near)
                   : WEFT_FAIL(WEFT_ERR_ARG, "%sunknown key '%s%s%s'", where, in, dot,
                               n->key);
    }
    return WEFT_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* A float keeps a mark of its kind, so that it reads back as a float. */
static void print_float(double x, weft_text *t)
{
    if (!isfinite(x)) {
        weft_text_add(t, "null");
        return;
    }
    size_t from = t->n;
    weft_text_put_double(t, x);
    if (!t->failed && !strpbrk(t->s + from, ".e")) weft_text_put(t, ".0", 2);
}

void weft_node_print_json(const weft_node *n, weft_text *t)
{
    bool map = n->kind == WEFT_NODE_MAP;
    switch (n->kind) {
    case WEFT_NODE_NULL: weft_text_add(t, "null"); break;
    case WEFT_NODE_BOOL: weft_text_add(t, n->u.b ? "true" : "false"); break;
    case WEFT_NODE_INT: weft_text_add(t, "%lld", (long long)n->u.i); break;
    case WEFT_NODE_FLOAT: print_float(n->u.f, t); break;
    case WEFT_NODE_STRING: weft_text_put_quoted(t, n->u.s); break;
    case WEFT_NODE_LIST:
    case WEFT_NODE_MAP:
        weft_text_put(t, map ? "{" : "[", 1);
        for (int i = 0; i < n->u.list.n; i++) {
            if (i) weft_text_put(t, ", ", 2);
            if (map) {
                weft_text_put_quoted(t, n->u.list.node[i]->key);
                weft_text_put(t, ": ", 2);
            }
            weft_node_print_json(n->u.list.node[i], t);
        }
        weft_text_put(t, map ? "}" : "]", 1);
        break;
    }
}
