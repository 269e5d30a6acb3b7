/* What the two parsers of documents share: building the tree, complaining with a line. */
#ifndef WEFT_BASE_DOC_PRIV_H
#define WEFT_BASE_DOC_PRIV_H

#include "base/doc.h"

enum {
    WEFT_DOC_MAX_DEPTH = 128
};

struct weft_doc {
    weft_arena *arena;
    const char *file;
    weft_node  *root;
};

struct weft_doc__index; /* doc_toml.c */

/* The text being read: valid UTF-8 without NUL. */
typedef struct weft_reader {
    weft_doc               *doc;
    const char             *p, *end;
    int                     line, depth;
    struct weft_doc__index *index; /* of TOML's maps, which grow in any order */
} weft_reader;

weft_status weft_base__fail(const weft_reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Checks the text, reads it with `read` and makes the document of what that gives. */
weft_status weft_base__parse(const char *file, const char *text, size_t n,
                             weft_status (*read)(weft_reader *r, weft_node **root),
                             weft_doc **out);

weft_status weft_base__new_node(weft_reader *r, weft_node_kind kind, weft_node **out);

/* A list or map being filled; close() puts it into the node and refuses duplicate keys. */
typedef struct weft_doc__builder {
    const weft_node **node;
    int               n, cap;
} weft_doc__builder;
weft_status weft_base__push(weft_reader *r, weft_doc__builder *b, const weft_node *child);
weft_status weft_base__close(weft_reader *r, weft_doc__builder *b, weft_node *n);

/* The number that s spells in full: an integer where it fits int64.  false when it is too large
 * for a double as well. */
bool weft_base__set_number(weft_node *n, const char *s, bool integer);

/* A value as it stands behind "key=" on a command line (doc_yaml_flow.c). */
weft_status weft_base__parse_value(weft_doc *d, const char *text, weft_node **out);

#endif
