/* The text of print.c back into a graph.  Types written behind results are checked against the
 * operators' shape rules, and the whole graph is verified at the end.
 *
 *     graph    = "graph" name "{" line* "}"
 *     line     = ("input" | "param" | "state") value ["per_step"]
 *              | "forward" | "backward" | "update"
 *              | value ("," value)* "=" operator "(" [name ("," name)*] ")" ["{" attributes "}"]
 *              | ("next" | "copy") name "=" name
 *              | "output" name
 *     value    = name ":" dtype "[" [size ("," size)*] "]" */
#include <string.h>

#include "base/lex.h"
#include "graph/graph_priv.h"

typedef struct reader {
    weft_lex    lex;
    weft_graph *g;
    weft_arena *tmp;
} reader;

typedef struct named_type {
    const char *name;
    weft_type   type;
} named_type;

/* "file:line: " in front of what a callee complained about. */
static weft_status at_line(reader *r, int line, weft_status st)
{
    if (st == WEFT_OK) return st;
    return weft_fail_in(st, "%s:%d: ", r->lex.file, line);
}

static weft_status read_name(reader *r, const char **out)
{
    if (r->lex.tok != WEFT_TOK_STRING) return weft_lex_word(&r->lex, out);
    if (!*r->lex.text) return weft_lex_fail(&r->lex, "a name is empty");
    *out = r->lex.text;
    weft_lex_next(&r->lex);
    return WEFT_OK;
}

static weft_status read_known(reader *r, weft_vid *out)
{
    const char *name;
    int         line = r->lex.line;
    WEFT_TRY(read_name(r, &name));
    *out = weft_graph_find(r->g, name);
    if (*out >= 0) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: there is no value '%s' above this line",
                     r->lex.file, line, name);
}

static weft_status read_type(reader *r, weft_type *out)
{
    const char *word;
    WEFT_TRY(weft_lex_word(&r->lex, &word));
    if (!weft_dtype_parse(word, &out->dtype))
        return weft_lex_fail(&r->lex, "'%s' is no data type (f32, bf16, f64, i32, ...)",
                             word);
    WEFT_TRY(weft_lex_expect(&r->lex, "["));
    out->shape.n = 0;
    while (!weft_lex_is(&r->lex, "]")) {
        if (out->shape.n == WEFT_MAX_DIM)
            return weft_lex_fail(&r->lex, "more than %d dimensions", WEFT_MAX_DIM);
        if (out->shape.n) WEFT_TRY(weft_lex_expect(&r->lex, ","));
        WEFT_TRY(weft_lex_int(&r->lex, &out->shape.d[out->shape.n++]));
    }
    return weft_lex_expect(&r->lex, "]");
}

/* The rest of "name: type"; the name has been read. */
static weft_status read_value(reader *r, const char *name, named_type *out)
{
    if (weft_graph_find(r->g, name) >= 0)
        return weft_lex_fail(&r->lex, "there is a value '%s' already", name);
    out->name = name;
    WEFT_TRY(weft_lex_expect(&r->lex, ":"));
    return read_type(r, &out->type);
}

static weft_status read_leaf(reader *r, weft_value_kind kind)
{
    const char *name;
    named_type  v;
    weft_vid    id;
    int         line = r->lex.line;
    WEFT_TRY(read_name(r, &name));
    WEFT_TRY(read_value(r, name, &v));

    weft_status (*add)(weft_graph *, const char *, weft_dtype, int, const int64_t *,
                       weft_vid *) = kind == WEFT_VALUE_INPUT   ? weft_graph_add_input
                                     : kind == WEFT_VALUE_PARAM ? weft_graph_add_param
                                                                : weft_graph_add_state;
    WEFT_TRY(at_line(r, line,
                     add(r->g, name, v.type.dtype, v.type.shape.n, v.type.shape.d, &id)));
    if (kind == WEFT_VALUE_INPUT && weft_lex_accept(&r->lex, "per_step"))
        r->g->value[id].per_step = true;
    return WEFT_OK;
}

static weft_status read_op(reader *r, weft_op *out)
{
    const char *word;
    int         line = r->lex.line;
    WEFT_TRY(weft_lex_word(&r->lex, &word));
    if (weft_op_find(word, out)) return WEFT_OK;
    const char *near = weft_op_suggest(word);
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: unknown operator '%s'%s%s%s", r->lex.file,
                     line, word, near ? ", did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

static weft_status read_operands(reader *r, weft_vid **out, int *n)
{
    weft_vid *in  = NULL;
    int       cap = 0;
    *n            = 0;
    WEFT_TRY(weft_lex_expect(&r->lex, "("));
    while (!weft_lex_is(&r->lex, ")")) {
        if (*n) WEFT_TRY(weft_lex_expect(&r->lex, ","));
        if (*n == WEFT_MAX_IN)
            return weft_lex_fail(&r->lex, "more than %d operands", WEFT_MAX_IN);
        WEFT_TRY(weft_arena_grow(r->tmp, (void **)&in, &cap, *n + 1, sizeof *in));
        WEFT_TRY(read_known(r, &in[*n]));
        ++*n;
    }
    *out = in;
    return weft_lex_expect(&r->lex, ")");
}

/* "{eps=1e-05 spec=bsd,dn->bsn}" is read by op/attr.c: hand over what is between the braces. */
static weft_status read_attr(reader *r, weft_op op, weft_attr *attr)
{
    weft_lex   *l    = &r->lex;
    const char *text = NULL;
    int         line = l->line;
    if (weft_lex_is(l, "{") && l->tok == WEFT_TOK_PUNCT) {
        const char *from = l->at, *to = from;
        while (to < l->end && *to != '}' && *to != '\n') to++;
        if (to == l->end || *to != '}')
            return weft_lex_fail(l, "'{' without '}' on one line");
        text = weft_arena_strndup(r->tmp, from, (size_t)(to - from));
        if (!text) return weft_arena_status(r->tmp);
        l->at = to + 1;
        weft_lex_next(l);
    }
    return at_line(r, line, weft_op_parse_attr(op, text, r->tmp, attr));
}

static weft_status check_type(reader *r, int line, const named_type *want, weft_vid v)
{
    const weft_type *have = &r->g->value[v].type;
    char             a[192], b[192];
    if (have->dtype == want->type.dtype &&
        weft_shape_equal(&have->shape, &want->type.shape))
        return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s is %s[%s], the text says %s[%s]",
                     r->lex.file, line, want->name, weft_dtype_name(have->dtype),
                     weft_shape_text(&have->shape, a, sizeof a),
                     weft_dtype_name(want->type.dtype),
                     weft_shape_text(&want->type.shape, b, sizeof b));
}

/* A node's line, of which the first result's name has been read. */
static weft_status read_node(reader *r, const char *first)
{
    named_type  result[WEFT_MAX_OUT];
    const char *name[WEFT_MAX_OUT];
    weft_vid    out[WEFT_MAX_OUT], *in = NULL;
    weft_attr   attr[WEFT_MAX_ATTR];
    weft_op     op;
    int         n_out = 0, n_in = 0, line = r->lex.line;

    for (;;) {
        WEFT_TRY(read_value(r, first, &result[n_out]));
        for (int j = 0; j < n_out; j++)
            if (!strcmp(name[j], first))
                return weft_lex_fail(&r->lex, "two results are called '%s'", first);
        name[n_out++] = first;
        if (!weft_lex_accept(&r->lex, ",")) break;
        if (n_out == WEFT_MAX_OUT)
            return weft_lex_fail(&r->lex, "more than %d results", WEFT_MAX_OUT);
        WEFT_TRY(read_name(r, &first));
    }
    WEFT_TRY(weft_lex_expect(&r->lex, "="));
    WEFT_TRY(read_op(r, &op));
    WEFT_TRY(read_operands(r, &in, &n_in));
    WEFT_TRY(read_attr(r, op, attr));
    WEFT_TRY(at_line(r, line,
                     weft_graph__add_named(r->g, op, attr, n_in, in, name, n_out, out)));
    for (int j = 0; j < n_out; j++) WEFT_TRY(check_type(r, line, &result[j], out[j]));
    return WEFT_OK;
}

static weft_status read_next(reader *r)
{
    weft_vid state, next;
    int      line = r->lex.line;
    WEFT_TRY(read_known(r, &state));
    WEFT_TRY(weft_lex_expect(&r->lex, "="));
    WEFT_TRY(read_known(r, &next));
    if (r->g->value[state].next >= 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s has a next value already", r->lex.file,
                         line, r->g->value[state].name);
    return at_line(r, line, weft_graph_set_next(r->g, state, next));
}

static weft_status read_copy(reader *r)
{
    weft_vid copy, param;
    int      line = r->lex.line;
    WEFT_TRY(read_known(r, &copy));
    WEFT_TRY(weft_lex_expect(&r->lex, "="));
    WEFT_TRY(read_known(r, &param));
    if (r->g->value[copy].copy_of >= 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s is a copy already", r->lex.file, line,
                         r->g->value[copy].name);
    return at_line(r, line, weft_graph_set_copy(r->g, copy, param));
}

/* A word followed by ':' is a result's name whatever it says; else it is one of these. */
static weft_status read_line(reader *r)
{
    static const char *const word[] = {"input",  "param", "state",  "forward", "backward",
                                       "update", "next",  "output", "copy"};
    const char              *name;
    weft_vid                 v;
    int                      k = -1, line = r->lex.line;
    bool                     quoted = r->lex.tok == WEFT_TOK_STRING;

    WEFT_TRY(read_name(r, &name));
    if (quoted || weft_lex_is(&r->lex, ":")) return read_node(r, name);
    for (int i = 0; i < (int)WEFT_COUNT(word); i++)
        if (!strcmp(name, word[i])) k = i;
    switch (k) {
    case 0: return read_leaf(r, WEFT_VALUE_INPUT);
    case 1: return read_leaf(r, WEFT_VALUE_PARAM);
    case 2: return read_leaf(r, WEFT_VALUE_STATE);
    case 3:
    case 4:
    case 5: r->g->phase = (weft_phase)(k - 3); return WEFT_OK;
    case 6: return read_next(r);
    case 8: return read_copy(r);
    case 7:
        WEFT_TRY(read_known(r, &v));
        return at_line(r, line, weft_graph_set_output(r->g, v));
    }
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s:%d: expected a declaration or 'name: type = operator(...)' "
                     "at '%s'",
                     r->lex.file, line, name);
}

weft_status weft_graph_from_text(const char *file, const char *text, size_t n,
                                 weft_graph **out)
{
    reader      r  = {0};
    weft_status st = WEFT_OK;
    const char *name;

    WEFT_TRY(weft_arena_create(&r.tmp));
    weft_lex_init(&r.lex, r.tmp, file, text, n);
    WEFT_GO(weft_lex_expect(&r.lex, "graph"));
    WEFT_GO(read_name(&r, &name));
    WEFT_GO(weft_graph_create(name, &r.g));
    WEFT_GO(weft_lex_expect(&r.lex, "{"));
    while (!weft_lex_is(&r.lex, "}")) WEFT_GO(read_line(&r));
    weft_lex_next(&r.lex);
    if (r.lex.tok != WEFT_TOK_END)
        WEFT_GO(weft_lex_fail(&r.lex, "text behind the closing '}'"));
    st = weft_graph_verify(r.g);
    if (st != WEFT_OK) weft_fail_in(st, "%s: ", file);
out:
    if (st == WEFT_OK)
        *out = r.g;
    else
        weft_graph_destroy(r.g);
    weft_arena_destroy(r.tmp);
    return st;
}
