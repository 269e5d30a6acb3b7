/* A plan as JSON and back.  One key a line, lists of stages and marks one entry a line, so that
 * people can read and compare them:
 *
 *     "mesh": [{"axis": "dp", "size": 2}, {"axis": "tp", "size": 2}],
 *     "stages": [
 *       {"first": null, "ranks": [0, 1, 2, 3]},
 *       {"first": "h.6.ln_1", "ranks": [4, 5, 6, 7]}],
 *     "marks": [
 *       {"value": "wte.weight", "layout": "[tp ?, ?]"}]
 *
 * A stage's ranks follow from the mesh; they stand there to be read, and are checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "base/io.h"
#include "plan/plan.h"

static weft_status mesh_of(const weft_plan *p, weft_arena *a, weft_mesh *out)
{
    return weft_mesh_make(a, "stage", p->n_axis, p->axis, 0, out);
}

/* ---- print ---- */

static void put_number(weft_text *t, const char *key, int64_t x)
{
    weft_text_add(t, "  \"%s\": %lld,\n", key, (long long)x);
}

static void put_word(weft_text *t, const char *key, const char *s)
{
    weft_text_add(t, "  \"%s\": ", key);
    if (s)
        weft_text_put_quoted(t, s);
    else
        weft_text_add(t, "null");
    weft_text_add(t, ",\n");
}

static void put_of(const weft_plan *p, weft_text *t)
{
    weft_text_add(t, "{\n");
    put_number(t, "weft_plan", WEFT_PLAN_VERSION);
    put_word(t, "model", p->of.model);
    weft_text_add(t, "  \"graph\": \"%016llx\",\n", (unsigned long long)p->of.graph_hash);
    if (p->of.kernels) put_word(t, "kernels", p->of.kernels);
    if (p->of.dtype) put_word(t, "dtype", p->of.dtype);
    put_number(t, "batch", p->of.batch);
    put_number(t, "seq", p->of.seq);
    put_number(t, "micro_batch", p->of.micro_batch);
    put_number(t, "lanes", p->of.lanes);
    put_word(t, "reduction", weft_reduction_name(p->of.reduction));
    weft_text_add(t, "  \"mesh\": [");
    for (int i = 0; i < p->n_axis; i++) {
        weft_text_add(t, "%s{\"axis\": ", i ? ", " : "");
        weft_text_put_quoted(t, p->axis[i].name);
        weft_text_add(t, ", \"size\": %d", p->axis[i].size);
        if (p->axis[i].link) weft_text_add(t, ", \"link\": %d", p->axis[i].link);
        weft_text_add(t, "}");
    }
    weft_text_add(t, "],\n");
    put_word(t, "lane_axis", p->lane_axis < 0 ? NULL : p->axis[p->lane_axis].name);
    if (!p->share) return; /* equal */
    for (int k = 0; k < weft_plan_lane_ranks(p); k++)
        weft_text_add(t, "%s%d", k ? ", " : "  \"batch_split\": [", p->share[k]);
    weft_text_add(t, "],\n");
}

/* Rows that the mesh, the stages and the lanes of each rank are not printed for already. */
static bool is_option(const weft_strategy_row *row)
{
    static const char *const other[] = {"dp", "tp",         "cp",         "ep",
                                        "pp", "mesh_order", "batch_split"};
    for (size_t i = 0; i < WEFT_COUNT(other); i++)
        if (!strcmp(row->key, other[i])) return false;
    return true;
}

/* Rows that a plan file leaves out where they are at their default. */
static bool may_be_left_out(const weft_strategy_row *row)
{
    return row->kind == WEFT_STRATEGY_LAYERS || !strcmp(row->key, "offload") ||
           !strcmp(row->key, "copies") || !strcmp(row->key, "standby");
}

static bool is_left_out(const weft_plan *p, const weft_strategy_row *row)
{
    weft_strategy none = weft_strategy_default();
    return may_be_left_out(row) && weft_strategy_row_equal(&p->strategy, &none, row);
}

static void put_options(const weft_plan *p, weft_text *t)
{
    for (int i = 0; i < weft_strategy_n_row; i++) {
        const weft_strategy_row *row = &weft_strategy_rows[i];
        if (!is_option(row) || is_left_out(p, row)) continue;
        weft_text_add(t, "  \"%s\": ", row->key);
        weft_strategy_print_value(&p->strategy, row, true, t);
        weft_text_add(t, ",\n");
    }
}

static void put_stages(const weft_plan *p, weft_text *t)
{
    int each = weft_plan_places(p), pp = p->strategy.pp;
    weft_text_add(t, "  \"stages\": [");
    for (int k = 0; k < pp * p->strategy.chunks; k++) {
        weft_text_add(t, "%s\n    {\"first\": ", k ? "," : "");
        if (p->first[k])
            weft_text_put_quoted(t, p->first[k]);
        else
            weft_text_add(t, "null");
        weft_text_add(t, ", \"ranks\": [");
        for (int r = 0; r < each; r++)
            weft_text_add(t, "%s%d", r ? ", " : "", k % pp * each + r);
        weft_text_add(t, "]}");
    }
    weft_text_add(t, "],\n");
}

static weft_status put_marks(const weft_plan *p, weft_text *t)
{
    weft_arena *a    = NULL;
    weft_text   one  = {0};
    size_t      skip = strlen("mark \"\" ");
    weft_mesh   m;
    weft_status st = WEFT_OK;
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(mesh_of(p, a, &m));
    weft_text_add(t, "  \"marks\": [");
    for (int i = 0; i < p->n_mark; i++) {
        weft_mark k = p->mark[i];
        weft_text_add(t, "%s\n    {\"value\": ", i ? "," : "");
        weft_text_put_quoted(t, k.name);
        k.name = "";
        one.n  = 0;
        weft_mark_print(&k, &m, &one);
        WEFT_GO(weft_text_status(&one));
        weft_text_put_string_member(t, "layout", one.s + skip);
        weft_text_add(t, "}");
    }
    weft_text_add(t, "]");
out:
    weft_text_fini(&one);
    weft_arena_destroy(a);
    return st;
}

static void put_machines(const weft_plan_machines *m, weft_text *t)
{
    if (!m->name) return;
    weft_text_add(t, ",\n  \"cluster\": {\"name\": ");
    weft_text_put_quoted(t, m->name);
    weft_text_add(t, ", \"shape\": \"%016llx\", \"constants\": \"%016llx\"}",
                  (unsigned long long)m->shape, (unsigned long long)m->constants);
    if (!m->n_device) return;
    weft_text_add(t, ",\n  \"devices\": [");
    for (int i = 0; i < m->n_device; i++)
        weft_text_add(t, i ? ", %d" : "%d", m->device[i]);
    weft_text_add(t, "]");
}

static void put_double(weft_text *t, const char **glue, const char *key, double x)
{
    if (!(x > 0)) return;
    weft_text_add(t, "%s\"%s\": ", *glue, key);
    weft_text_put_double(t, x);
    *glue = ", ";
}

static void put_predicted(const weft_plan_predicted *x, weft_text *t)
{
    const char *glue = "", *in = "";
    if (!(x->step_s > 0) && !x->n_mem) return;
    weft_text_add(t, ",\n  \"predicted\": {");
    put_double(t, &glue, "step_s", x->step_s);
    put_double(t, &glue, "step_lo", x->step_lo);
    put_double(t, &glue, "step_hi", x->step_hi);
    put_double(t, &glue, "bound_s", x->bound_s);
    if (x->step_s > 0 && x->time.compute_s > 0) {
        weft_text_add(t, ",\n    \"time\": {");
        put_double(t, &in, "compute_s", x->time.compute_s);
        put_double(t, &in, "update_s", x->time.update_s);
        put_double(t, &in, "comm_s", x->time.comm_s);
        put_double(t, &in, "idle_s", x->time.idle_s);
        weft_text_add(t, "}");
        glue = ",\n    ";
    }
    for (int i = 0; i < x->n_mem; i++)
        weft_text_add(t, "%s%s%lld", i ? ", " : glue, i ? "" : "\"mem_bytes\": [",
                      (long long)x->mem_bytes[i]);
    if (x->n_mem) weft_text_add(t, "]");
    for (int i = 0; i < x->n_other; i++) {
        weft_text_add(t, i ? ",\n      " : ",\n    \"runners_up\": [\n      ");
        weft_text_put_quoted(t, x->other[i]);
    }
    weft_text_add(t, x->n_other ? "]}" : "}");
}

weft_status weft_plan_print(const weft_plan *p, weft_text *t)
{
    put_of(p, t);
    put_options(p, t);
    put_stages(p, t);
    WEFT_TRY(put_marks(p, t));
    put_machines(&p->machines, t);
    put_predicted(&p->predicted, t);
    weft_text_add(t, "\n}\n");
    return weft_text_status(t);
}

/* ---- parse ---- */

typedef struct reader {
    weft_doc  *d;
    weft_plan *p;
} reader;

static weft_status bad(const reader *r, const weft_node *n, const char *words)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s: %s", weft_doc_file(r->d), n->line,
                     n->key ? n->key : "entry", words);
}

static const weft_node *get(const reader *r, const weft_node *map, const char *key,
                            weft_node_kind kind, weft_status *st)
{
    const weft_node *n = weft_node_get(map, key);
    if (!n)
        *st = WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s is missing", weft_doc_file(r->d),
                        map->line, key);
    else if (n->kind != kind)
        *st = bad(r, n,
                  kind == WEFT_NODE_LIST     ? "expected a list"
                  : kind == WEFT_NODE_INT    ? "expected a whole number"
                  : kind == WEFT_NODE_STRING ? "expected a text"
                  : kind == WEFT_NODE_BOOL   ? "expected true or false"
                                             : "expected a map");
    return *st == WEFT_OK ? n : NULL;
}

static weft_status get_int(const reader *r, const weft_node *map, const char *key,
                           int64_t lo, int64_t hi, int64_t *out)
{
    weft_status      st = WEFT_OK;
    const weft_node *n  = get(r, map, key, WEFT_NODE_INT, &st);
    if (!n) return st;
    if (n->u.i < lo || n->u.i > hi)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s:%d: %s: %lld is out of range, from %lld to %lld",
                         weft_doc_file(r->d), n->line, key, (long long)n->u.i,
                         (long long)lo, (long long)hi);
    *out = n->u.i;
    return WEFT_OK;
}

static weft_status get_word(const reader *r, const weft_node *map, const char *key,
                            const char **out)
{
    weft_status      st = WEFT_OK;
    const weft_node *n  = get(r, map, key, WEFT_NODE_STRING, &st);
    if (n) *out = weft_arena_strdup(r->p->arena, n->u.s);
    return st != WEFT_OK ? st : weft_arena_status(r->p->arena);
}

static weft_status check_keys(const reader *r, const weft_node *m, const char *const *key,
                              int n)
{
    if (m->kind != WEFT_NODE_MAP) return bad(r, m, "expected a map of keys");
    return weft_doc_check_keys(r->d, m, key, n);
}

static weft_status get_hash(const reader *r, const weft_node *map, const char *key,
                            uint64_t *out)
{
    const char *hash;
    char       *end;
    WEFT_TRY(get_word(r, map, key, &hash));
    *out = strtoull(hash, &end, 16);
    if (strlen(hash) != 16 || *end || strspn(hash, "0123456789abcdef") != 16)
        return bad(r, weft_node_get(map, key), "expected 16 hexadecimal digits");
    return WEFT_OK;
}

static weft_status read_reduction(const reader *r, const weft_node *root,
                                  weft_reduction *out)
{
    const char *word;
    if (!weft_node_get(root, "reduction"))
        return WEFT_OK; /* written before there was one */
    WEFT_TRY(get_word(r, root, "reduction", &word));
    int k = weft_reduction_parse(word);
    *out  = (weft_reduction)k;
    if (k == WEFT_REDUCTION_INVARIANT || k == WEFT_REDUCTION_FIXED) return WEFT_OK;
    return bad(r, weft_node_get(root, "reduction"), "expected invariant or fixed");
}

static weft_status read_of(const reader *r, const weft_node *root)
{
    weft_plan_of    *o = &r->p->of;
    const weft_node *k = weft_node_get(root, "kernels");
    WEFT_TRY(get_word(r, root, "model", &o->model));
    WEFT_TRY(get_hash(r, root, "graph", &o->graph_hash));
    if (k) WEFT_TRY(get_word(r, root, "kernels", &o->kernels));
    if (weft_node_get(root, "dtype")) WEFT_TRY(get_word(r, root, "dtype", &o->dtype));
    WEFT_TRY(get_int(r, root, "batch", 1, 1 << 24, &o->batch));
    WEFT_TRY(get_int(r, root, "seq", 0, 1 << 24, &o->seq));
    WEFT_TRY(get_int(r, root, "micro_batch", 1, 1 << 24, &o->micro_batch));
    WEFT_TRY(get_int(r, root, "lanes", 1, 1 << 16, &o->lanes));
    return read_reduction(r, root, &o->reduction);
}

/* Sizes of axes that are a strategy's. */
static void set_size(weft_strategy *y, const weft_mesh_axis *axis)
{
    const weft_strategy_row *row = weft_strategy_find(axis->name);
    for (int a = 0; a < WEFT_N_STRATEGY_AXIS && row; a++) {
        if (strcmp(axis->name, weft_strategy_axis_name(a)) != 0) continue;
        *(int *)(void *)((char *)y + row->at) = axis->size;
        y->mesh_order[y->n_mesh_order++]      = (uint8_t)a;
    }
}

static weft_status read_mesh(const reader *r, const weft_node *root)
{
    static const char *const key[] = {"axis", "size", "link"};
    weft_plan               *p     = r->p;
    weft_status              st    = WEFT_OK;
    const weft_node         *list  = get(r, root, "mesh", WEFT_NODE_LIST, &st);
    if (!list) return st;
    if (list->u.list.n > WEFT_MAX_AXIS) return bad(r, list, "more than 6 axes");
    for (int i = 0; i < list->u.list.n; i++) {
        const weft_node *m    = list->u.list.node[i];
        int64_t          size = 0, link = 0;
        WEFT_TRY(check_keys(r, m, key, 3));
        WEFT_TRY(get_word(r, m, "axis", &p->axis[i].name));
        WEFT_TRY(get_int(r, m, "size", 1, 1 << 20, &size));
        if (weft_node_get(m, "link"))
            WEFT_TRY(get_int(r, m, "link", 0, WEFT_MAX_LINK - 1, &link));
        p->axis[i].size = (int)size;
        p->axis[i].link = (int)link;
        p->n_axis++;
        set_size(&p->strategy, &p->axis[i]);
    }
    const weft_node *lane = weft_node_get(root, "lane_axis");
    p->lane_axis          = -1;
    if (!lane || lane->kind == WEFT_NODE_NULL) return WEFT_OK;
    if (lane->kind != WEFT_NODE_STRING)
        return bad(r, lane, "expected an axis of the mesh or null");
    for (int i = 0; i < p->n_axis; i++)
        if (!strcmp(p->axis[i].name, lane->u.s)) p->lane_axis = i;
    return p->lane_axis < 0 ? bad(r, lane, "the mesh has no such axis") : WEFT_OK;
}

static weft_status read_split(const reader *r, const weft_node *root)
{
    weft_plan       *p    = r->p;
    weft_status      st   = WEFT_OK;
    const weft_node *list = weft_node_get(root, "batch_split");
    if (!list) return WEFT_OK;
    list = get(r, root, "batch_split", WEFT_NODE_LIST, &st);
    if (!list) return st;
    if (p->lane_axis < 0) return bad(r, list, "it is of lane_axis, which is null");
    if (list->u.list.n != p->axis[p->lane_axis].size)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: batch_split: %d numbers for %s=%d",
                         weft_doc_file(r->d), list->line, list->u.list.n,
                         p->axis[p->lane_axis].name, p->axis[p->lane_axis].size);
    p->share = WEFT_ARENA_ARRAY(p->arena, int32_t, list->u.list.n + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < list->u.list.n; i++) {
        const weft_node *n = list->u.list.node[i];
        if (n->kind != WEFT_NODE_INT || n->u.i < 1 || n->u.i > 1 << 16)
            return bad(r, n, "expected lanes of a rank, 1 or more");
        p->share[i] = (int32_t)n->u.i;
    }
    return WEFT_OK;
}

static weft_status read_ranks(const reader *r, const weft_node *m, int stage, int pp,
                              int each)
{
    weft_status      st   = WEFT_OK;
    const weft_node *list = get(r, m, "ranks", WEFT_NODE_LIST, &st);
    if (!list) return st;
    for (int i = 0; i < each || i < list->u.list.n; i++) {
        int              want = stage % pp * each + i;
        const weft_node *n    = i < list->u.list.n ? list->u.list.node[i] : NULL;
        if (i >= each)
            return WEFT_FAIL(
                WEFT_ERR_ARG, "%s:%d: stage %d has %d ranks, its mesh has %d",
                weft_doc_file(r->d), list->line, stage, list->u.list.n, each);
        if (!n || n->kind != WEFT_NODE_INT || n->u.i != want)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "%s:%d: stage %d: rank %d is missing from its place; ranks are "
                "counted through places, then stages",
                weft_doc_file(r->d), list->line, stage, want);
    }
    return WEFT_OK;
}

static weft_status read_options(const reader *r, const weft_node *root)
{
    weft_strategy *y = &r->p->strategy;
    *y               = weft_strategy_default();
    y->bucket_bytes  = 0;
    for (int i = 0; i < weft_strategy_n_row; i++) {
        const weft_strategy_row *row = &weft_strategy_rows[i];
        const weft_node         *n   = weft_node_get(root, row->key);
        if (!is_option(row) || (!n && may_be_left_out(row))) continue;
        if (!n)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s is missing", weft_doc_file(r->d),
                             root->line, row->key);
        weft_status st = weft_strategy_read(y, row, n);
        if (st != WEFT_OK)
            return weft_fail_in(st, "%s:%d: ", weft_doc_file(r->d), n->line);
    }
    if (y->bucket_bytes < 0)
        return bad(r, weft_node_get(root, "bucket_bytes"), "expected bytes, 0 or more");
    return WEFT_OK;
}

static weft_status read_stages(const reader *r, const weft_node *root)
{
    static const char *const key[]  = {"first", "ranks"};
    weft_plan               *p      = r->p;
    weft_status              st     = WEFT_OK;
    int                      chunks = p->strategy.chunks;
    int64_t                  each   = 1;
    const weft_node         *list   = get(r, root, "stages", WEFT_NODE_LIST, &st);
    if (!list) return st;
    if (!list->u.list.n || list->u.list.n % chunks)
        return bad(r, list, "expected chunks stages for each rank of a pipeline");
    p->strategy.pp = list->u.list.n / chunks;
    for (int i = 0; i < p->n_axis; i++)
        if ((each *= p->axis[i].size) > 1 << 20) return bad(r, list, "too many ranks");
    p->first = WEFT_ARENA_ARRAY(p->arena, const char *, list->u.list.n);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int k = 0; k < list->u.list.n; k++) {
        const weft_node *m = list->u.list.node[k];
        WEFT_TRY(check_keys(r, m, key, 2));
        const weft_node *first = weft_node_get(m, "first");
        if (k) WEFT_TRY(get_word(r, m, "first", &p->first[k]));
        if (!k && first && first->kind != WEFT_NODE_NULL)
            return bad(r, first, "the first stage begins at the beginning: null");
        WEFT_TRY(read_ranks(r, m, k, p->strategy.pp, (int)each));
    }
    return WEFT_OK;
}

static weft_status read_mark(const reader *r, const weft_node *m, const weft_mesh *mesh,
                             weft_text *one, weft_mark *out)
{
    static const char *const key[] = {"value", "layout"};
    const char              *value, *layout;
    weft_lex                 x;
    WEFT_TRY(check_keys(r, m, key, 2));
    WEFT_TRY(get_word(r, m, "value", &value));
    WEFT_TRY(get_word(r, m, "layout", &layout));
    one->n = 0;
    weft_text_add(one, "mark ");
    weft_text_put_quoted(one, value);
    weft_text_add(one, " %s", layout);
    WEFT_TRY(weft_text_status(one));
    const char *kept = weft_arena_strndup(r->p->arena, one->s, one->n);
    WEFT_TRY(weft_arena_status(r->p->arena));
    weft_lex_init(&x, r->p->arena, weft_doc_file(r->d), kept, one->n);
    x.line = m->line;
    WEFT_TRY(weft_mark_parse(&x, mesh, out));
    return x.tok == WEFT_TOK_END ? WEFT_OK
                                 : weft_lex_fail(&x, "'%s' is too much", x.text);
}

static weft_status read_marks(const reader *r, const weft_node *root)
{
    weft_plan       *p    = r->p;
    weft_text        one  = {0};
    weft_status      st   = WEFT_OK;
    const weft_node *list = get(r, root, "marks", WEFT_NODE_LIST, &st);
    weft_mesh        mesh;
    if (!list) return st;
    p->mark = WEFT_ARENA_ARRAY(p->arena, weft_mark, list->u.list.n + 1);
    WEFT_GO(weft_arena_status(p->arena));
    st = mesh_of(p, p->arena, &mesh);
    if (st != WEFT_OK) WEFT_GO(weft_fail_in(st, "%s: ", weft_doc_file(r->d)));
    for (int i = 0; i < list->u.list.n; i++)
        WEFT_GO(read_mark(r, list->u.list.node[i], &mesh, &one, &p->mark[p->n_mark++]));
out:
    weft_text_fini(&one);
    return st;
}

static weft_status read_machines(const reader *r, const weft_node *root)
{
    static const char *const key[] = {"name", "shape", "constants"};
    weft_plan_machines      *m     = &r->p->machines;
    weft_status              st    = WEFT_OK;
    const weft_node         *map   = weft_node_get(root, "cluster");
    if (!map) return WEFT_OK;
    WEFT_TRY(check_keys(r, map, key, 3));
    WEFT_TRY(get_word(r, map, "name", &m->name));
    WEFT_TRY(get_hash(r, map, "shape", &m->shape));
    WEFT_TRY(get_hash(r, map, "constants", &m->constants));
    if (!weft_node_get(root, "devices")) return WEFT_OK;
    const weft_node *list = get(r, root, "devices", WEFT_NODE_LIST, &st);
    if (!list) return st;
    m->device = WEFT_ARENA_ARRAY(r->p->arena, int, list->u.list.n + 1);
    WEFT_TRY(weft_arena_status(r->p->arena));
    for (int i = 0; i < list->u.list.n; i++) {
        const weft_node *n = list->u.list.node[i];
        if (n->kind != WEFT_NODE_INT || n->u.i < 0 || n->u.i > 1 << 24)
            return bad(r, n, "expected a device's number");
        m->device[m->n_device++] = (int)n->u.i;
    }
    return WEFT_OK;
}

static weft_status get_seconds(const reader *r, const weft_node *map, const char *key,
                               double *out)
{
    WEFT_TRY(weft_doc_get_double(r->d, map, key, out));
    return *out >= 0 && *out < 1e18 ? WEFT_OK
                                    : bad(r, weft_node_get(map, key), "expected seconds");
}

static weft_status read_time(const reader *r, const weft_node *m, weft_plan_time *x)
{
    static const char *const key[] = {"compute_s", "update_s", "comm_s", "idle_s"};
    if (!m) return WEFT_OK;
    WEFT_TRY(check_keys(r, m, key, 4));
    WEFT_TRY(get_seconds(r, m, "compute_s", &x->compute_s));
    WEFT_TRY(get_seconds(r, m, "update_s", &x->update_s));
    WEFT_TRY(get_seconds(r, m, "comm_s", &x->comm_s));
    return get_seconds(r, m, "idle_s", &x->idle_s);
}

static weft_status read_others(const reader *r, const weft_node *m,
                               weft_plan_predicted *x)
{
    weft_status      st   = WEFT_OK;
    const weft_node *list = get(r, m, "runners_up", WEFT_NODE_LIST, &st);
    if (!list) return st;
    x->other = WEFT_ARENA_ARRAY(r->p->arena, const char *, list->u.list.n + 1);
    WEFT_TRY(weft_arena_status(r->p->arena));
    for (int i = 0; i < list->u.list.n; i++) {
        const weft_node *n = list->u.list.node[i];
        if (n->kind != WEFT_NODE_STRING) return bad(r, n, "expected a text");
        x->other[x->n_other++] = weft_arena_strdup(r->p->arena, n->u.s);
    }
    return weft_arena_status(r->p->arena);
}

static weft_status read_predicted(const reader *r, const weft_node *root)
{
    static const char *const key[] = {"step_s", "step_lo",   "step_hi",   "bound_s",
                                      "time",   "mem_bytes", "runners_up"};
    weft_plan_predicted     *x     = &r->p->predicted;
    weft_status              st    = WEFT_OK;
    const weft_node         *m     = weft_node_get(root, "predicted");
    if (!m) return WEFT_OK;
    WEFT_TRY(check_keys(r, m, key, (int)WEFT_COUNT(key)));
    WEFT_TRY(get_seconds(r, m, "step_s", &x->step_s));
    WEFT_TRY(get_seconds(r, m, "step_lo", &x->step_lo));
    WEFT_TRY(get_seconds(r, m, "step_hi", &x->step_hi));
    WEFT_TRY(get_seconds(r, m, "bound_s", &x->bound_s));
    WEFT_TRY(read_time(r, weft_node_get(m, "time"), &x->time));
    if (weft_node_get(m, "runners_up")) WEFT_TRY(read_others(r, m, x));
    if (!weft_node_get(m, "mem_bytes")) return WEFT_OK;
    const weft_node *list = get(r, m, "mem_bytes", WEFT_NODE_LIST, &st);
    if (!list) return st;
    x->mem_bytes = WEFT_ARENA_ARRAY(r->p->arena, int64_t, list->u.list.n + 1);
    WEFT_TRY(weft_arena_status(r->p->arena));
    for (int i = 0; i < list->u.list.n; i++) {
        const weft_node *n = list->u.list.node[i];
        if (n->kind != WEFT_NODE_INT || n->u.i < 0) return bad(r, n, "expected bytes");
        x->mem_bytes[x->n_mem++] = n->u.i;
    }
    return WEFT_OK;
}

/* Keys of a plan file that are no rows of a strategy. */
static const char *const plan_keys[] = {
    "weft_plan",   "model",       "graph", "kernels",   "dtype",   "batch",
    "seq",         "micro_batch", "lanes", "reduction", "mesh",    "lane_axis",
    "batch_split", "stages",      "marks", "predicted", "cluster", "devices"};

static weft_status check_plan_keys(const reader *r, const weft_node *root)
{
    const char *key[WEFT_COUNT(plan_keys) + 32];
    int         n = 0;
    for (size_t i = 0; i < WEFT_COUNT(plan_keys); i++) key[n++] = plan_keys[i];
    for (int i = 0; i < weft_strategy_n_row; i++)
        if (is_option(&weft_strategy_rows[i])) key[n++] = weft_strategy_rows[i].key;
    return check_keys(r, root, key, n);
}

static weft_status read_plan(const reader *r)
{
    const weft_node *root    = weft_doc_root(r->d);
    int64_t          version = 0;
    if (root->kind != WEFT_NODE_MAP || !weft_node_get(root, "weft_plan"))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s is no plan: it has no key \"weft_plan\"",
                         weft_doc_file(r->d));
    WEFT_TRY(weft_doc_get_int(r->d, root, "weft_plan", &version));
    if (version != WEFT_PLAN_VERSION)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s is a plan of version %lld, this build reads version %d; plan "
            "again: weft plan, or --print-plan without plan=",
            weft_doc_file(r->d), (long long)version, WEFT_PLAN_VERSION);
    WEFT_TRY(check_plan_keys(r, root));
    WEFT_TRY(read_of(r, root));
    WEFT_TRY(read_options(r, root));
    WEFT_TRY(read_mesh(r, root));
    WEFT_TRY(read_split(r, root));
    WEFT_TRY(read_stages(r, root));
    WEFT_TRY(read_marks(r, root));
    WEFT_TRY(read_machines(r, root));
    return read_predicted(r, root);
}

weft_status weft_plan_parse(const char *file, const char *text, size_t n, weft_plan **out)
{
    weft_arena *a  = NULL;
    reader      r  = {0};
    weft_status st = WEFT_OK;
    WEFT_GO(weft_doc_parse_json(file, text, n, &r.d));
    WEFT_GO(weft_arena_create(&a));
    r.p = WEFT_ARENA_NEW(a, weft_plan);
    if (!r.p) WEFT_GO(weft_arena_status(a));
    r.p->arena = a;
    WEFT_GO(read_plan(&r));
    st = weft_plan_verify(r.p);
    if (st != WEFT_OK) WEFT_GO(weft_fail_in(st, "%s: ", file));
    *out = r.p;
    a    = NULL;
out:
    weft_doc_destroy(r.d);
    weft_arena_destroy(a);
    return st;
}

weft_status weft_plan_load(const char *path, weft_plan **out)
{
    char  *text = NULL;
    size_t n    = 0;
    WEFT_TRY(weft_io_read_as(path, WEFT_IO_PIPES, &text, &n));
    weft_status st = weft_plan_parse(path, text, n, out);
    free(text);
    return st;
}
