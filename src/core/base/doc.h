/* A document: the tree of a JSON, YAML or TOML text, with the line of every node, read-only.
 * JSON is read strictly (RFC 8259, duplicate keys refused); YAML is the part people write
 * configurations in: block and flow maps and lists, plain, quoted and block scalars, comments.
 * Anchors, tags, several documents and tabs as indentation are refused with a line.
 *
 *     weft_doc *d;
 *     WEFT_TRY(weft_doc_load("config.json", &d));
 *     int64_t n = 12;
 *     WEFT_GO(weft_doc_get_int(d, weft_doc_root(d), "n_layer", &n));   absent: n is kept
 */
#ifndef WEFT_BASE_DOC_H
#define WEFT_BASE_DOC_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/text.h"

typedef struct weft_doc weft_doc;

typedef enum weft_node_kind {
    WEFT_NODE_NULL,
    WEFT_NODE_BOOL,
    WEFT_NODE_INT, /* fits int64 and was written without '.', 'e' */
    WEFT_NODE_FLOAT,
    WEFT_NODE_STRING,
    WEFT_NODE_LIST,
    WEFT_NODE_MAP, /* in the order written */
} weft_node_kind;

typedef struct weft_node weft_node;
struct weft_node {
    weft_node_kind kind;
    int            line; /* 0: not from the file but from weft_doc_override() */
    const char    *key;  /* when it stands in a map */
    union {
        bool        b;
        int64_t     i;
        double      f;
        const char *s;
        struct {
            int               n;
            const weft_node **node;
        } list; /* also the entries of a map */
    } u;
};

weft_status weft_doc_parse_json(const char *file, const char *text, size_t n,
                                weft_doc **out);
weft_status weft_doc_parse_yaml(const char *file, const char *text, size_t n,
                                weft_doc **out);
weft_status weft_doc_parse_toml(const char *file, const char *text, size_t n,
                                weft_doc **out);
/* By the ending of the name: .json, .toml, else YAML. */
weft_status weft_doc_load(const char *path, weft_doc **out);
void        weft_doc_destroy(weft_doc *d); /* accepts NULL */
int64_t     weft_doc_bytes(const weft_doc *d);

const weft_node *weft_doc_root(const weft_doc *d);
const char      *weft_doc_file(const weft_doc *d);

/* A job's "key=value": splits at the first '=', dots reach into maps (made where missing), the
 * value is read as a YAML flow scalar, list or map.  Changes d's tree. */
weft_status weft_doc_override(weft_doc *d, const char *assignment);

/* The entry of a map, or NULL. */
const weft_node *weft_node_get(const weft_node *map, const char *key);

/* Typed reads: a missing or null key leaves *out alone; another type is WEFT_ERR_ARG with
 * "file:line: key: expected an integer, got a string". */
weft_status weft_doc_get_int(const weft_doc *d, const weft_node *m, const char *key,
                             int64_t *out);
weft_status weft_doc_get_double(const weft_doc *d, const weft_node *m, const char *key,
                                double *out);
weft_status weft_doc_get_bool(const weft_doc *d, const weft_node *m, const char *key,
                              bool *out);
weft_status weft_doc_get_string(const weft_doc *d, const weft_node *m, const char *key,
                                const char **out);

/* Refuses keys of m that are not in the list: "file:line: unknown key 'stesp', did you mean
 * 'steps'?" */
weft_status weft_doc_check_keys(const weft_doc *d, const weft_node *m,
                                const char *const *key, int n_key);

/* JSON text of a node, one line, numbers exact (what is not finite: null). */
void weft_node_print_json(const weft_node *n, weft_text *t);

#endif
