/* Keys of a file that nobody reads: named, never dropped in silence; one that is nearly a known
 * one is a mistake. */
#include <string.h>

#include "base/suggest.h"
#include "engine/engine_priv.h"

enum {
    MOST = 32, /* keys of a table */
    SLIP = 2   /* letters that a slip of the hand gets wrong */
};

/* "table.key", "table.*" for all of a table, or "key". */
static bool is_named(const weft_engine__keys *k, int n, const char *table,
                     const char *key)
{
    for (int i = 0; i < n; i++) {
        const char *dot = strchr(k->name[i], '.');
        size_t      at  = dot ? (size_t)(dot - k->name[i]) : 0;
        if (!table != !dot) continue;
        if (!dot && !strcmp(k->name[i], key)) return true;
        if (dot && strlen(table) == at && !strncmp(k->name[i], table, at) &&
            (!strcmp(dot + 1, "*") || !strcmp(dot + 1, key)))
            return true;
    }
    return false;
}

static bool is_table(const weft_engine__keys *k, const char *table)
{
    for (int i = 0; i < k->n; i++) {
        size_t at = strcspn(k->name[i], ".");
        if (k->name[i][at] && strlen(table) == at && !strncmp(k->name[i], table, at))
            return true;
    }
    return false;
}

/* The words differ in one place, by a letter or two. */
static bool is_slip(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b), from = 0, end = 0, least = na < nb ? na : nb;
    while (from < least && a[from] == b[from]) from++;
    while (end < least - from && a[na - 1 - end] == b[nb - 1 - end]) end++;
    return na - from - end <= SLIP && nb - from - end <= SLIP;
}

/* What was meant by a key of a table, or by one beside the tables. */
static const char *meant(const weft_engine__keys *k, const char *table, const char *key)
{
    const char *list[MOST];
    int         n = 0;
    for (int i = 0; i < k->n_read && n < MOST; i++) {
        const char *dot = strchr(k->name[i], '.');
        size_t      at  = dot ? (size_t)(dot - k->name[i]) : 0;
        if (!table != !dot) continue;
        if (!dot) list[n++] = k->name[i];
        if (dot && strlen(table) == at && !strncmp(k->name[i], table, at))
            list[n++] = dot + 1;
    }
    const char *near = strlen(key) > 3 ? weft_suggest(key, list, n) : NULL;
    return near && is_slip(key, near) ? near : NULL;
}

static weft_status see(const weft_doc *d, const weft_engine__keys *k, const char *table,
                       const weft_node *x, weft_text *ignored)
{
    if (is_named(k, k->n, table, x->key)) return WEFT_OK;
    const char *near = meant(k, table, x->key);
    if (near)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s:%d: unknown key '%s%s%.60s', did you mean '%s'?",
                         weft_doc_file(d), x->line, table ? table : "", table ? "." : "",
                         x->key, near);
    if (ignored)
        weft_text_add(ignored, "%s%s%s%s", ignored->n ? " " : "", table ? table : "",
                      table ? "." : "", x->key);
    return WEFT_OK;
}

weft_status weft_engine__see_keys(const weft_doc *d, const weft_engine__keys *k,
                                  weft_text *ignored)
{
    const weft_node *root = weft_doc_root(d);
    for (int i = 0; root->kind == WEFT_NODE_MAP && i < root->u.list.n; i++) {
        const weft_node *t = root->u.list.node[i];
        if (t->kind != WEFT_NODE_MAP || !is_table(k, t->key)) {
            WEFT_TRY(see(d, k, NULL, t, ignored));
            continue;
        }
        for (int j = 0; j < t->u.list.n; j++)
            WEFT_TRY(see(d, k, t->key, t->u.list.node[j], ignored));
    }
    return WEFT_OK;
}
