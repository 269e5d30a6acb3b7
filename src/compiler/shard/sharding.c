/* Shardings: checked, as text and back.
 *
 *     sharding gpt2
 *     mesh m [dp=2, tp=2] from 0
 *     value 12 "h.0.ln_1" on 0 [dp, *, *]        as produced, or at rest
 *     node 7 on 0 [0 dp, 2 tp]                   factors
 *     use 7 0 on 0 [dp, *, *]                    operand 0 of node 7, where it is not as produced
 *     output 0 on 0 []
 *
 * Values that lie whole on every rank of mesh 0 and nodes without cuts are left out. */
#include <string.h>

#include "shard/shard_priv.h"

weft_status weft_shard__make_tables(weft_sharding *s, const weft_graph *g)
{
    s->n_value  = g->n_value;
    s->n_node   = g->n_node;
    s->n_output = g->n_output;
    s->n_use    = 0;
    s->first    = WEFT_ARENA_ARRAY(s->arena, int32_t, s->n_node + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    for (int i = 0; i < s->n_node; i++) {
        s->first[i] = s->n_use;
        s->n_use += g->node[i].n_in;
    }
    s->first[s->n_node] = s->n_use;
    s->value            = WEFT_ARENA_ARRAY(s->arena, weft_layout, s->n_value + 1);
    s->node             = WEFT_ARENA_ARRAY(s->arena, weft_layout, s->n_node + 1);
    s->use              = WEFT_ARENA_ARRAY(s->arena, weft_layout, s->n_use + 1);
    s->output           = WEFT_ARENA_ARRAY(s->arena, weft_layout, s->n_output + 1);
    return weft_arena_status(s->arena);
}

/* ---- verify ---- */

static weft_status check(const weft_sharding *s, const weft_layout *l,
                         const weft_shape *shape, const char *name)
{
    if (l->mesh < 0 || l->mesh >= s->n_mesh)
        return WEFT_FAIL(WEFT_ERR_ARG, "sharding: %s is on mesh %d of %d", name, l->mesh,
                         s->n_mesh);
    weft_status st = weft_layout_verify(l, &s->mesh[l->mesh], shape);
    return st == WEFT_OK ? st : weft_fail_in(st, "%s: ", name);
}

weft_status weft_sharding_verify(const weft_sharding *s, const weft_graph *g)
{
    if (s->n_value != g->n_value || s->n_node != g->n_node || s->n_output != g->n_output)
        return WEFT_FAIL(WEFT_ERR_ARG, "sharding: is of another graph than %s", g->name);
    for (int i = 0; i < s->n_mesh; i++) WEFT_TRY(weft_mesh_verify(&s->mesh[i]));
    for (weft_vid v = 0; v < g->n_value; v++)
        WEFT_TRY(check(s, &s->value[v], &g->value[v].type.shape, g->value[v].name));
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            weft_vid v = g->node[i].in[k];
            WEFT_TRY(check(s, &s->use[s->first[i] + k], &g->value[v].type.shape,
                           g->value[v].name));
        }
    return WEFT_OK;
}

static bool equal_all(const weft_layout *a, const weft_layout *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!weft_layout_equal(&a[i], &b[i])) return false;
    return true;
}

bool weft_sharding_equal(const weft_sharding *a, const weft_sharding *b)
{
    if (a->n_mesh != b->n_mesh || a->n_value != b->n_value || a->n_node != b->n_node ||
        a->n_use != b->n_use || a->n_output != b->n_output || a->lanes != b->lanes)
        return false;
    for (int i = 0; i < a->n_mesh; i++)
        if (!weft_mesh_equal(&a->mesh[i], &b->mesh[i])) return false;
    return equal_all(a->value, b->value, a->n_value) &&
           equal_all(a->node, b->node, a->n_node) &&
           equal_all(a->use, b->use, a->n_use) &&
           equal_all(a->output, b->output, a->n_output);
}

/* ---- print ---- */

static bool is_plain(const weft_layout *l)
{
    weft_layout r = weft_layout_replicated(0, l->n_dim);
    return weft_layout_equal(l, &r);
}

static void print_layout(const weft_sharding *s, const weft_layout *l, weft_text *t)
{
    weft_text_add(t, " on %d ", l->mesh);
    weft_layout_print(l, &s->mesh[l->mesh], t);
    weft_text_add(t, "\n");
}

/* A cut of factors: "[2 tp zigzag]"; an axis may stand twice (an expert and its rows). */
static void print_cut(const weft_sharding *s, const weft_layout *l, weft_text *t)
{
    const weft_mesh *m = &s->mesh[l->mesh];
    weft_text_add(t, " on %d [", l->mesh);
    for (int i = 0; i < l->n; i++) {
        const weft_split *x = &l->split[i];
        weft_text_add(t, "%s%d %s %d %d %lld %lld", i ? ", " : "", x->dim,
                      m->axis[x->axis].name, x->order, x->ragged, (long long)x->unit,
                      (long long)x->period);
    }
    weft_text_add(t, "]\n");
}

weft_status weft_sharding_print(const weft_sharding *s, const weft_graph *g, weft_text *t)
{
    weft_text_add(t, "sharding ");
    weft_text_put_quoted(t, g->name);
    weft_text_add(t, "\n");
    for (int i = 0; i < s->n_mesh; i++) {
        weft_mesh_print(&s->mesh[i], t);
        weft_text_add(t, "\n");
    }
    for (int a = 0; a < s->mesh[0].n_axis; a++)
        if (s->lanes >> a & 1) weft_text_add(t, "lanes %s\n", s->mesh[0].axis[a].name);
    for (weft_vid v = 0; v < s->n_value; v++) {
        if (is_plain(&s->value[v])) continue;
        weft_text_add(t, "value %d ", v);
        weft_text_put_quoted(t, g->value[v].name);
        print_layout(s, &s->value[v], t);
    }
    for (int i = 0; i < s->n_node; i++) {
        if (s->node[i].n || s->node[i].mesh) {
            weft_text_add(t, "node %d", i);
            print_cut(s, &s->node[i], t);
        }
        for (int k = 0; k < g->node[i].n_in; k++) {
            const weft_layout *l = &s->use[s->first[i] + k];
            if (weft_layout_equal(l, &s->value[g->node[i].in[k]])) continue;
            weft_text_add(t, "use %d %d", i, k);
            print_layout(s, l, t);
        }
    }
    for (int i = 0; i < s->n_output; i++) {
        weft_text_add(t, "output %d", i);
        print_layout(s, &s->output[i], t);
    }
    return weft_text_status(t);
}

/* ---- parse ---- */

typedef struct reader {
    weft_lex         *x;
    const weft_graph *g;
    weft_sharding    *s;
} reader;

static weft_status read_index(reader *r, int n, int *out)
{
    int64_t i = 0;
    *out      = 0;
    WEFT_TRY(weft_lex_int(r->x, &i));
    if (i < 0 || i >= n)
        return weft_lex_fail(r->x, "number %lld is not below %d", (long long)i, n);
    *out = (int)i;
    return WEFT_OK;
}

static weft_status read_mesh(reader *r, int *out)
{
    *out = 0;
    WEFT_TRY(weft_lex_expect(r->x, "on"));
    return read_index(r, r->s->n_mesh, out);
}

static weft_status read_layout(reader *r, weft_layout *out)
{
    int mesh;
    WEFT_TRY(read_mesh(r, &mesh));
    return weft_layout_parse(r->x, &r->s->mesh[mesh], mesh, out);
}

static weft_status read_cut(reader *r, weft_layout *out)
{
    int     mesh, n[3];
    int64_t big[2];
    WEFT_TRY(read_mesh(r, &mesh));
    *out = weft_layout_replicated(mesh, 0);
    WEFT_TRY(weft_lex_expect(r->x, "["));
    while (!weft_lex_accept(r->x, "]")) {
        const char *name;
        if (out->n) WEFT_TRY(weft_lex_expect(r->x, ","));
        WEFT_TRY(read_index(r, WEFT_MAX_FACTOR, &n[0]));
        WEFT_TRY(weft_lex_word(r->x, &name));
        int axis = weft_mesh_find(&r->s->mesh[mesh], name);
        if (axis < 0) return weft_lex_fail(r->x, "no axis '%s'", name);
        WEFT_TRY(read_index(r, WEFT_SPLIT_OWN + 1, &n[1]));
        WEFT_TRY(read_index(r, 2, &n[2]));
        for (int i = 0; i < 2; i++) WEFT_TRY(weft_lex_int(r->x, &big[i]));
        weft_split s = {(int8_t)n[0], (int8_t)axis, (uint8_t)n[1],
                        n[2] != 0,    big[0],       big[1]};
        if (!weft_shard__add(out, &s)) return weft_lex_fail(r->x, "too many cuts");
    }
    return WEFT_OK;
}

static weft_status read_line(reader *r)
{
    int i, k;
    if (weft_lex_accept(r->x, "value")) {
        WEFT_TRY(read_index(r, r->s->n_value, &i));
        if (r->x->tok != WEFT_TOK_STRING || strcmp(r->x->text, r->g->value[i].name))
            return weft_lex_fail(r->x, "value %d is called '%s'", i, r->g->value[i].name);
        weft_lex_next(r->x);
        return read_layout(r, &r->s->value[i]);
    }
    if (weft_lex_accept(r->x, "node")) {
        WEFT_TRY(read_index(r, r->s->n_node, &i));
        return read_cut(r, &r->s->node[i]);
    }
    if (weft_lex_accept(r->x, "use")) {
        WEFT_TRY(read_index(r, r->s->n_node, &i));
        WEFT_TRY(read_index(r, r->g->node[i].n_in, &k));
        return read_layout(r, &r->s->use[r->s->first[i] + k]);
    }
    WEFT_TRY(weft_lex_expect(r->x, "output"));
    WEFT_TRY(read_index(r, r->s->n_output, &i));
    return read_layout(r, &r->s->output[i]);
}

static weft_status read_head(reader *r)
{
    weft_sharding *s   = r->s;
    int            cap = 0;
    WEFT_TRY(weft_lex_expect(r->x, "sharding"));
    if (r->x->tok != WEFT_TOK_STRING)
        return weft_lex_fail(r->x, "expected the graph's name");
    weft_lex_next(r->x);
    while (weft_lex_is(r->x, "mesh")) {
        WEFT_TRY(weft_arena_grow(s->arena, (void **)&s->mesh, &cap, s->n_mesh + 1,
                                 sizeof *s->mesh));
        WEFT_TRY(weft_mesh_parse(r->x, s->arena, &s->mesh[s->n_mesh]));
        s->n_mesh++;
    }
    if (!s->n_mesh) return weft_lex_fail(r->x, "expected a mesh");
    while (weft_lex_accept(r->x, "lanes")) {
        const char *name;
        WEFT_TRY(weft_lex_word(r->x, &name));
        int axis = weft_mesh_find(&s->mesh[0], name);
        if (axis < 0) return weft_lex_fail(r->x, "no axis '%s'", name);
        s->lanes |= 1u << axis;
    }
    return WEFT_OK;
}

/* Everything whole on mesh 0; uses are filled in when all values are known. */
static weft_status make_plain(reader *r)
{
    WEFT_TRY(weft_shard__make_tables(r->s, r->g));
    for (weft_vid v = 0; v < r->s->n_value; v++)
        r->s->value[v] = weft_layout_replicated(0, r->g->value[v].type.shape.n);
    for (int i = 0; i < r->s->n_use; i++) r->s->use[i].mesh = -1;
    return WEFT_OK;
}

static weft_status read_all(reader *r)
{
    WEFT_TRY(read_head(r));
    WEFT_TRY(make_plain(r));
    while (r->x->tok != WEFT_TOK_END) WEFT_TRY(read_line(r));
    for (int i = 0; i < r->s->n_node; i++)
        for (int k = 0; k < r->g->node[i].n_in; k++) {
            weft_layout *l = &r->s->use[r->s->first[i] + k];
            if (l->mesh < 0) *l = r->s->value[r->g->node[i].in[k]];
        }
    return weft_sharding_verify(r->s, r->g);
}

weft_status weft_sharding_parse(const char *file, const char *text, size_t n,
                                const weft_graph *g, weft_sharding **out)
{
    weft_lex    x;
    reader      r  = {.x = &x, .g = g};
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&a));
    r.s = WEFT_ARENA_NEW(a, weft_sharding);
    WEFT_GO(weft_arena_status(a));
    r.s->arena = a;
    weft_lex_init(&x, a, file, text, n);
    WEFT_GO(read_all(&r));
    *out = r.s;
    a    = NULL;
out:
    weft_arena_destroy(a);
    return st;
}
