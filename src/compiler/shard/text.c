/* Layouts and marks as text and back. */
#include <string.h>

#include "shard/shard_priv.h"

static const char *const order_name[]     = {"block", "cyclic", "zigzag", "own"};
static const char *const unreduced_name[] = {"", "sum", "max", "pair"};

static void print_split(const weft_split *s, const weft_mesh *m, weft_text *t)
{
    weft_text_add(t, "%s", m->axis[s->axis].name);
    if (s->order != WEFT_SPLIT_BLOCK) weft_text_add(t, " %s", order_name[s->order]);
    if (s->ragged) weft_text_add(t, " ragged");
    if (s->unit != 1) weft_text_add(t, " unit %lld", (long long)s->unit);
    if (s->period) weft_text_add(t, " period %lld", (long long)s->period);
}

static void print_dims(const weft_layout *l, uint32_t open, const weft_mesh *m,
                       weft_text *t)
{
    const weft_split *s;
    weft_text_add(t, "[");
    for (int d = 0; d < l->n_dim; d++) {
        const char *gap = d ? ", " : "";
        int         k   = 0;
        for (; (s = weft_shard__nth(l, d, k)) != NULL; k++, gap = " ") {
            weft_text_add(t, "%s", gap);
            print_split(s, m, t);
        }
        if (open >> d & 1)
            weft_text_add(t, "%s?", gap);
        else if (!k)
            weft_text_add(t, "%s*", gap);
    }
    weft_text_add(t, "]");
    for (int a = 0; a < m->n_axis; a++)
        if (l->unreduced[a])
            weft_text_add(t, " %s(%s)", unreduced_name[l->unreduced[a]], m->axis[a].name);
}

void weft_layout_print(const weft_layout *l, const weft_mesh *m, weft_text *t)
{
    print_dims(l, 0, m, t);
}

static weft_status parse_axis(weft_lex *x, const weft_mesh *m, int *axis)
{
    const char *name;
    WEFT_TRY(weft_lex_word(x, &name));
    *axis = weft_mesh_find(m, name);
    if (*axis < 0) return weft_lex_fail(x, "mesh %s has no axis '%s'", m->name, name);
    return WEFT_OK;
}

static weft_status parse_split(weft_lex *x, const weft_mesh *m, int dim, weft_layout *l)
{
    int axis;
    WEFT_TRY(parse_axis(x, m, &axis));
    if (weft_layout_find(l, axis))
        return weft_lex_fail(x, "axis %s is used twice", m->axis[axis].name);
    weft_layout_cut(l, dim, axis, WEFT_SPLIT_BLOCK);
    weft_split *s = &l->split[l->n - 1];
    for (;;) {
        bool known = false;
        for (size_t i = 0; i < WEFT_COUNT(order_name) && !known; i++)
            if (weft_lex_accept(x, order_name[i])) {
                s->order = (uint8_t)i;
                known    = true;
            }
        if (known) continue;
        if (weft_lex_accept(x, "ragged"))
            s->ragged = true;
        else if (weft_lex_accept(x, "unit"))
            WEFT_TRY(weft_lex_int(x, &s->unit));
        else if (weft_lex_accept(x, "period"))
            WEFT_TRY(weft_lex_int(x, &s->period));
        else
            return WEFT_OK;
    }
}

/* One dimension: cuts, or '*', or '?' behind cuts where marks may have it. */
static weft_status parse_dim(weft_lex *x, const weft_mesh *m, int dim, weft_layout *l,
                             uint32_t *open)
{
    bool any = false;
    for (; x->tok == WEFT_TOK_WORD; any = true) WEFT_TRY(parse_split(x, m, dim, l));
    if (open && weft_lex_accept(x, "?"))
        *open |= 1u << dim;
    else if (!any)
        WEFT_TRY(weft_lex_expect(x, "*"));
    return WEFT_OK;
}

static weft_status parse_dims(weft_lex *x, const weft_mesh *m, int mesh, weft_layout *l,
                              uint32_t *open)
{
    *l = weft_layout_replicated(mesh, 0);
    WEFT_TRY(weft_lex_expect(x, "["));
    while (!weft_lex_accept(x, "]")) {
        if (l->n_dim) WEFT_TRY(weft_lex_expect(x, ","));
        if (l->n_dim == WEFT_MAX_DIM)
            return weft_lex_fail(x, "more than %d dimensions", WEFT_MAX_DIM);
        WEFT_TRY(parse_dim(x, m, l->n_dim, l, open));
        l->n_dim++;
    }
    for (int k = 1; k < WEFT_N_UNREDUCED;) {
        int axis;
        if (!weft_lex_is(x, unreduced_name[k])) {
            k++;
            continue;
        }
        weft_lex_next(x);
        WEFT_TRY(weft_lex_expect(x, "("));
        WEFT_TRY(parse_axis(x, m, &axis));
        WEFT_TRY(weft_lex_expect(x, ")"));
        l->unreduced[axis] = (uint8_t)k;
        k                  = 1;
    }
    return WEFT_OK;
}

weft_status weft_layout_parse(weft_lex *x, const weft_mesh *m, int mesh, weft_layout *out)
{
    return parse_dims(x, m, mesh, out, NULL);
}

/* ---- marks ---- */

void weft_mark_print(const weft_mark *k, const weft_mesh *m, weft_text *t)
{
    weft_text_add(t, "mark ");
    if (k->name)
        weft_text_put_quoted(t, k->name);
    else
        weft_text_add(t, "%d", k->value);
    weft_text_add(t, " ");
    print_dims(&k->layout, k->open, m, t);
    for (int a = 0; a < m->n_axis; a++)
        if (k->never >> a & 1) weft_text_add(t, " never(%s)", m->axis[a].name);
    if (k->rest) weft_text_add(t, " rest");
    if (k->priority) weft_text_add(t, " priority %d", k->priority);
}

weft_status weft_mark_parse(weft_lex *x, const weft_mesh *m, weft_mark *out)
{
    weft_mark k = {.value = -1};
    int64_t   n;
    int       axis;
    WEFT_TRY(weft_lex_expect(x, "mark"));
    if (x->tok == WEFT_TOK_STRING) {
        k.name = x->text;
        weft_lex_next(x);
    } else {
        WEFT_TRY(weft_lex_int(x, &n));
        if (n < 0 || n > INT32_MAX) return weft_lex_fail(x, "no such value");
        k.value = (weft_vid)n;
    }
    WEFT_TRY(parse_dims(x, m, 0, &k.layout, &k.open));
    while (weft_lex_accept(x, "never")) {
        WEFT_TRY(weft_lex_expect(x, "("));
        WEFT_TRY(parse_axis(x, m, &axis));
        WEFT_TRY(weft_lex_expect(x, ")"));
        k.never |= 1u << axis;
    }
    k.rest = weft_lex_accept(x, "rest");
    if (weft_lex_accept(x, "priority")) {
        WEFT_TRY(weft_lex_int(x, &n));
        if (n < 0 || n > 100) return weft_lex_fail(x, "priority is 0 to 100");
        k.priority = (int)n;
    }
    *out = k;
    return WEFT_OK;
}

static bool fits(const char *pattern, const char *name)
{
    const char *star = NULL, *back = NULL;
    while (*name) {
        if (*pattern == '*')
            star = pattern++, back = name;
        else if (*pattern == *name)
            pattern++, name++;
        else if (star)
            pattern = star + 1, name = ++back;
        else
            return false;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

bool weft_mark_matches(const weft_mark *k, const char *name)
{
    return k->name && fits(k->name, name);
}

weft_vid weft_mark_next(const weft_mark *k, const weft_graph *g, weft_vid from)
{
    if (!strchr(k->name, '*')) { /* most are of one value */
        weft_vid v = weft_graph_find(g, k->name);
        return v >= from ? v : -1;
    }
    for (weft_vid v = from; v < g->n_value; v++)
        if (weft_mark_matches(k, g->value[v].name)) return v;
    return -1;
}
