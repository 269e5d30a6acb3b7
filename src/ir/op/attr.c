/* Attributes as text: "eps=1e-05 causal=1 axes=[0,1] spec=bsd,dn->bsn", and back. */
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "op/op.h"

#define MAX_NAME 32

static weft_status unknown_key(weft_op op, const char *key, size_t n)
{
    char        word[MAX_NAME], name[WEFT_MAX_ATTR][MAX_NAME];
    const char *list[WEFT_MAX_ATTR];
    int         n_attr = weft_op_n_attr(op);
    for (int i = 0; i < n_attr; i++)
        list[i] = weft_op_attr_name(op, i, name[i], MAX_NAME);
    if (n >= sizeof word) n = sizeof word - 1;
    memcpy(word, key, n);
    word[n]          = 0;
    const char *near = weft_suggest(word, list, n_attr);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: unknown attribute '%s'%s%s%s",
                     weft_op_get(op)->name, word, near ? ", did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
}

static weft_status bad_value(weft_op op, const char *at)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: cannot read the attribute value at '%.20s'",
                     weft_op_get(op)->name, at);
}

/* "[1,2,3]"; *at ends behind the bracket. */
static weft_status parse_list(weft_op op, const char **at, weft_attr *out)
{
    const char *p = *at;
    if (*p++ != '[') return bad_value(op, *at);
    out->n = 0;
    while (*p != ']') {
        char *end;
        if (out->n == WEFT_MAX_DIM) return bad_value(op, *at);
        out->l[out->n++] = strtoll(p, &end, 10);
        if (end == p || (*end != ',' && *end != ']')) return bad_value(op, *at);
        p = *end == ',' ? end + 1 : end;
    }
    *at = p + 1;
    return WEFT_OK;
}

static weft_status parse_value(weft_op op, weft_attr_type type, const char **at,
                               weft_arena *a, weft_attr *out)
{
    char  *end = NULL;
    size_t n   = strcspn(*at, " ");
    switch (type) {
    case WEFT_ATTR_LIST: return parse_list(op, at, out);
    case WEFT_ATTR_STRING:
        out->s = weft_arena_strndup(a, *at, n);
        *at += n;
        return out->s ? WEFT_OK : weft_arena_status(a);
    case WEFT_ATTR_FLOAT: out->f = strtod(*at, &end); break;
    case WEFT_ATTR_INT:
    case WEFT_ATTR_BOOL: out->i = strtoll(*at, &end, 10); break;
    }
    if (end != *at + n || !n) return bad_value(op, *at);
    *at = end;
    return WEFT_OK;
}

weft_status weft_op_parse_attr(weft_op op, const char *text, weft_arena *a,
                               weft_attr attr[WEFT_MAX_ATTR])
{
    weft_op_attr_defaults(op, attr);
    if (!text) return WEFT_OK;
    for (const char *p = text;;) {
        char key[MAX_NAME] = {0};
        p += strspn(p, " ");
        if (!*p) return WEFT_OK;
        size_t n = strcspn(p, "= ");
        if (n < sizeof key) memcpy(key, p, n);
        int i = weft_op_attr_index(op, key);
        if (i < 0) return unknown_key(op, p, n);
        p += n;
        if (*p++ != '=') return bad_value(op, p - 1);
        WEFT_TRY(parse_value(op, weft_op_attr_type(op, i), &p, a, &attr[i]));
    }
}

static bool same_value(weft_attr_type type, const weft_attr *a, const weft_attr *b)
{
    switch (type) {
    case WEFT_ATTR_FLOAT: return !memcmp(&a->f, &b->f, sizeof a->f); /* -0 is not 0 */
    case WEFT_ATTR_STRING: return !strcmp(a->s ? a->s : "", b->s ? b->s : "");
    case WEFT_ATTR_LIST:
        return a->n == b->n && !memcmp(a->l, b->l, sizeof(int64_t) * (size_t)a->n);
    case WEFT_ATTR_INT:
    case WEFT_ATTR_BOOL: return a->i == b->i;
    }
    return false;
}

void weft_op_print_attr(weft_op op, const weft_attr *attr, weft_text *t)
{
    weft_attr def[WEFT_MAX_ATTR];
    char      name[MAX_NAME];
    bool      any = false;
    weft_op_attr_defaults(op, def);
    for (int i = 0; i < weft_op_n_attr(op); i++) {
        weft_attr_type type = weft_op_attr_type(op, i);
        if (same_value(type, &attr[i], &def[i])) continue;
        weft_text_add(t, "%s%s=", any ? " " : "",
                      weft_op_attr_name(op, i, name, sizeof name));
        any = true;
        switch (type) {
        case WEFT_ATTR_FLOAT: weft_text_put_double(t, attr[i].f); break;
        case WEFT_ATTR_STRING: weft_text_add(t, "%s", attr[i].s); break;
        case WEFT_ATTR_INT:
        case WEFT_ATTR_BOOL: weft_text_add(t, "%ld", (long)attr[i].i); break;
        case WEFT_ATTR_LIST:
            for (int k = 0; k < attr[i].n; k++)
                weft_text_add(t, "%s%ld", k ? "," : "[", (long)attr[i].l[k]);
            weft_text_add(t, "%s", attr[i].n ? "]" : "[]");
            break;
        }
    }
}

weft_status weft_op_copy_attr(weft_op op, const weft_attr *from, weft_arena *a,
                              const weft_attr **out)
{
    int        n = weft_op_n_attr(op);
    weft_attr *b = WEFT_ARENA_ARRAY(a, weft_attr, n ? n : 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < n; i++) {
        b[i] = from[i];
        if (weft_op_attr_type(op, i) == WEFT_ATTR_STRING)
            b[i].s = weft_arena_strdup(a, from[i].s ? from[i].s : "");
    }
    *out = b;
    return weft_arena_status(a);
}
