/* Meshes: coordinates to ranks and back; as text. */
#include <string.h>

#include "shard/shard_priv.h"

static bool is_keyword(const char *s)
{
    static const char *const word[] = {"cyclic", "zigzag", "own",   "ragged",
                                       "unit",   "period", "block", "link"};
    for (size_t i = 0; i < WEFT_COUNT(word); i++)
        if (!strcmp(s, word[i])) return true;
    return false;
}

/* A name that the tokenizer reads as one word. */
static bool is_word(const char *s)
{
    if (!s || !*s || (*s >= '0' && *s <= '9')) return false;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_' ||
              (*s >= '0' && *s <= '9')))
            return false;
    return true;
}

static weft_status check_axes(const char *name, int n_axis, const weft_mesh_axis *axis,
                              int *n_rank)
{
    int64_t n = 1;
    if (n_axis < 0 || n_axis > WEFT_MAX_AXIS)
        return WEFT_FAIL(WEFT_ERR_ARG, "mesh %s: %d axes, at most %d are possible", name,
                         n_axis, WEFT_MAX_AXIS);
    for (int i = 0; i < n_axis; i++) {
        if (!is_word(axis[i].name) || is_keyword(axis[i].name))
            return WEFT_FAIL(WEFT_ERR_ARG, "mesh %s: '%s' is no name for an axis", name,
                             axis[i].name ? axis[i].name : "");
        for (int k = 0; k < i; k++)
            if (!strcmp(axis[i].name, axis[k].name))
                return WEFT_FAIL(WEFT_ERR_ARG, "mesh %s: axis %s stands there twice",
                                 name, axis[i].name);
        if (axis[i].size < 1 || (n *= axis[i].size) > 1 << 24)
            return WEFT_FAIL(WEFT_ERR_ARG, "mesh %s: axis %s of size %d", name,
                             axis[i].name, axis[i].size);
        if (axis[i].link < 0 || axis[i].link >= WEFT_MAX_LINK)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "mesh %s: link class %d of axis %s is not below %d", name,
                             axis[i].link, axis[i].name, WEFT_MAX_LINK);
    }
    *n_rank = (int)n;
    return WEFT_OK;
}

weft_status weft_mesh_make(weft_arena *a, const char *name, int n_axis,
                           const weft_mesh_axis *axis, int32_t first, weft_mesh *out)
{
    weft_mesh m = {.name = weft_arena_strdup(a, name), .n_axis = n_axis};
    WEFT_TRY(check_axes(name, n_axis, axis, &m.n_rank));
    int32_t *rank = WEFT_ARENA_ARRAY(a, int32_t, m.n_rank);
    for (int i = 0; i < n_axis; i++) {
        m.axis[i]      = axis[i];
        m.axis[i].name = weft_arena_strdup(a, axis[i].name);
    }
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < m.n_rank; i++) rank[i] = first + i;
    m.rank = rank;
    *out   = m;
    return weft_mesh_verify(out);
}

weft_status weft_mesh_verify(const weft_mesh *m)
{
    int n;
    if (!is_word(m->name)) return WEFT_FAIL(WEFT_ERR_ARG, "mesh without a proper name");
    WEFT_TRY(check_axes(m->name, m->n_axis, m->axis, &n));
    if (n != m->n_rank)
        return WEFT_FAIL(WEFT_ERR_ARG, "mesh %s: axes make %d ranks, %d are given",
                         m->name, n, m->n_rank);
    for (int i = 0; i < n; i++) {
        if (m->rank[i] < 0)
            return WEFT_FAIL(WEFT_ERR_ARG, "mesh %s: rank %d", m->name, m->rank[i]);
        for (int k = 0; k < i && m->rank[i] != m->rank[0] + i; k++)
            if (m->rank[i] == m->rank[k])
                return WEFT_FAIL(WEFT_ERR_ARG, "mesh %s: rank %d stands there twice",
                                 m->name, m->rank[i]);
    }
    return WEFT_OK;
}

bool weft_mesh_alike(const weft_mesh *a, const weft_mesh *b)
{
    if (a->n_axis != b->n_axis) return false;
    for (int i = 0; i < a->n_axis; i++)
        if (a->axis[i].size != b->axis[i].size ||
            strcmp(a->axis[i].name, b->axis[i].name))
            return false;
    return true;
}

bool weft_mesh_equal(const weft_mesh *a, const weft_mesh *b)
{
    if (!weft_mesh_alike(a, b) || strcmp(a->name, b->name)) return false;
    for (int i = 0; i < a->n_axis; i++)
        if (a->axis[i].link != b->axis[i].link) return false;
    return !memcmp(a->rank, b->rank, sizeof *a->rank * (size_t)a->n_rank);
}

int weft_mesh_find(const weft_mesh *m, const char *axis)
{
    for (int i = 0; i < m->n_axis; i++)
        if (!strcmp(m->axis[i].name, axis)) return i;
    return -1;
}

int weft_mesh_place(const weft_mesh *m, int32_t rank)
{
    int64_t guess = (int64_t)rank - m->rank[0]; /* consecutive, most of the time */
    if (guess >= 0 && guess < m->n_rank && m->rank[guess] == rank) return (int)guess;
    for (int i = 0; i < m->n_rank; i++)
        if (m->rank[i] == rank) return i;
    return -1;
}

void weft_mesh_coords(const weft_mesh *m, int place, int coord[WEFT_MAX_AXIS])
{
    for (int i = m->n_axis - 1; i >= 0; i--) {
        coord[i] = place % m->axis[i].size;
        place /= m->axis[i].size;
    }
}

int weft_mesh_place_of(const weft_mesh *m, const int coord[WEFT_MAX_AXIS])
{
    int place = 0;
    for (int i = 0; i < m->n_axis; i++) place = place * m->axis[i].size + coord[i];
    return place;
}

int weft_mesh_group(const weft_mesh *m, uint32_t axes, int place, int32_t *rank)
{
    int at[WEFT_MAX_AXIS], n = 0;
    int mine[WEFT_MAX_AXIS];
    weft_mesh_coords(m, place, mine);
    for (int p = 0; p < m->n_rank; p++) {
        bool in = true;
        weft_mesh_coords(m, p, at);
        for (int i = 0; i < m->n_axis; i++)
            in = in && (axes >> i & 1 || at[i] == mine[i]);
        if (in) rank[n++] = m->rank[p];
    }
    return n;
}

void weft_mesh_print(const weft_mesh *m, weft_text *t)
{
    bool run = true;
    weft_text_add(t, "mesh %s [", m->name);
    for (int i = 0; i < m->n_axis; i++) {
        weft_text_add(t, "%s%s=%d", i ? ", " : "", m->axis[i].name, m->axis[i].size);
        if (m->axis[i].link) weft_text_add(t, " link %d", m->axis[i].link);
    }
    for (int i = 0; i < m->n_rank; i++) run = run && m->rank[i] == m->rank[0] + i;
    if (run) {
        weft_text_add(t, "] from %d", m->rank[0]);
        return;
    }
    weft_text_add(t, "] ranks [");
    for (int i = 0; i < m->n_rank; i++)
        weft_text_add(t, "%s%d", i ? ", " : "", m->rank[i]);
    weft_text_add(t, "]");
}

static weft_status parse_axes(weft_lex *l, weft_mesh *m)
{
    int64_t x;
    WEFT_TRY(weft_lex_expect(l, "["));
    while (!weft_lex_accept(l, "]")) {
        if (m->n_axis) WEFT_TRY(weft_lex_expect(l, ","));
        if (m->n_axis == WEFT_MAX_AXIS)
            return weft_lex_fail(l, "more than %d axes", WEFT_MAX_AXIS);
        weft_mesh_axis *a = &m->axis[m->n_axis++];
        WEFT_TRY(weft_lex_word(l, &a->name));
        WEFT_TRY(weft_lex_expect(l, "="));
        WEFT_TRY(weft_lex_int(l, &x));
        if (x < 1 || x > 1 << 24)
            return weft_lex_fail(l, "axis %s of that size", a->name);
        a->size = (int)x;
        if (!weft_lex_accept(l, "link")) continue;
        WEFT_TRY(weft_lex_int(l, &x));
        if (x < 0 || x >= WEFT_MAX_LINK) return weft_lex_fail(l, "unknown link class");
        a->link = (int)x;
    }
    return WEFT_OK;
}

weft_status weft_mesh_parse(weft_lex *l, weft_arena *a, weft_mesh *out)
{
    weft_mesh m = {0};
    int64_t   x;
    WEFT_TRY(weft_lex_expect(l, "mesh"));
    WEFT_TRY(weft_lex_word(l, &m.name));
    WEFT_TRY(parse_axes(l, &m));
    if (weft_lex_accept(l, "from")) {
        WEFT_TRY(weft_lex_int(l, &x));
        if (x < 0 || x > 1 << 24) return weft_lex_fail(l, "no such rank");
        return weft_mesh_make(a, m.name, m.n_axis, m.axis, (int32_t)x, out);
    }
    WEFT_TRY(weft_mesh_make(a, m.name, m.n_axis, m.axis, 0, &m));
    int32_t *rank = WEFT_ARENA_ARRAY(a, int32_t, m.n_rank);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(weft_lex_expect(l, "ranks"));
    WEFT_TRY(weft_lex_expect(l, "["));
    for (int i = 0; i < m.n_rank; i++) {
        if (i) WEFT_TRY(weft_lex_expect(l, ","));
        WEFT_TRY(weft_lex_int(l, &x));
        if (x < 0 || x > 1 << 24) return weft_lex_fail(l, "no such rank");
        rank[i] = (int32_t)x;
    }
    WEFT_TRY(weft_lex_expect(l, "]"));
    m.rank = rank;
    *out   = m;
    return weft_mesh_verify(out);
}
