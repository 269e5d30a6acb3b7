/* A cluster as YAML, and back. */
#include <stdbool.h>
#include <string.h>

#include "base/doc.h"
#include "cluster/cluster.h"

typedef struct reader {
    const weft_doc *d;
    weft_cluster   *c;
} reader;

static weft_status complain(const reader *r, const weft_node *n, const char *what,
                            const char *name)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s%s%s", weft_doc_file(r->d), n->line, what,
                     name ? ": " : "", name ? name : "");
}

/* A list of maps under key; absent: 0 entries. */
static weft_status get_list(const reader *r, const weft_node *root, const char *key,
                            const weft_node **out, int *n)
{
    const weft_node *l = weft_node_get(root, key);
    *n                 = 0;
    if (!l) return WEFT_OK;
    if (l->kind != WEFT_NODE_LIST) return complain(r, l, "expected a list", key);
    for (int i = 0; i < l->u.list.n; i++)
        if (l->u.list.node[i]->kind != WEFT_NODE_MAP)
            return complain(r, l->u.list.node[i], "expected a map", key);
    *out = l;
    *n   = l->u.list.n;
    return WEFT_OK;
}

static weft_status get_name(const reader *r, const weft_node *m, const char *key,
                            const char **out)
{
    const char *s = NULL;
    WEFT_TRY(weft_doc_get_string(r->d, m, key, &s));
    if (!s) return complain(r, m, "missing", key);
    *out = weft_arena_strdup(r->c->arena, s);
    return weft_arena_status(r->c->arena);
}

static weft_status get_count(const reader *r, const weft_node *m, const char *key,
                             int *out)
{
    int64_t v = *out;
    WEFT_TRY(weft_doc_get_int(r->d, m, key, &v));
    if (v < 0 || v > 1 << 24) return complain(r, m, "out of range", key);
    *out = (int)v;
    return WEFT_OK;
}

static weft_status read_rates(const reader *r, const weft_node *m, weft_device_kind *k)
{
    const weft_node *f = weft_node_get(m, "flops");
    if (!f || f->kind != WEFT_NODE_MAP) return complain(r, m, "expected a map", "flops");
    k->n_rate = f->u.list.n;
    k->rate   = WEFT_ARENA_ARRAY(r->c->arena, weft_flop_rate, k->n_rate);
    WEFT_TRY(weft_arena_status(r->c->arena));
    for (int i = 0; i < k->n_rate; i++) {
        const char *dtype = f->u.list.node[i]->key;
        k->rate[i].dtype  = weft_arena_strdup(r->c->arena, dtype);
        WEFT_TRY(weft_doc_get_double(r->d, f, dtype, &k->rate[i].flops));
    }
    return weft_arena_status(r->c->arena);
}

static weft_status read_curve(const reader *r, const weft_node *m, weft_device_kind *k)
{
    const weft_node *f = weft_node_get(m, "efficiency_of");
    if (f && f->kind != WEFT_NODE_MAP)
        return complain(r, f, "expected a map", "efficiency_of");
    for (int i = 0; f && i < f->u.list.n; i++) {
        const char *dtype = f->u.list.node[i]->key;
        int         at    = 0;
        while (at < k->n_rate && strcmp(k->rate[at].dtype, dtype)) at++;
        if (at == k->n_rate) return complain(r, f, "no flops are given for", dtype);
        WEFT_TRY(weft_doc_get_double(r->d, f, dtype, &k->rate[at].efficiency));
    }
    WEFT_TRY(weft_doc_get_double(r->d, m, "half_size", &k->half_size));
    WEFT_TRY(weft_doc_get_double(r->d, m, "attention", &k->attention));
    return weft_doc_get_double(r->d, m, "stream", &k->stream);
}

static weft_status read_device(const reader *r, const weft_node *m, weft_device_kind *k)
{
    static const char *const key[] = {
        "name",     "flops",     "efficiency", "mem_Bps", "mem_bytes",
        "launch_s", "half_size", "attention",  "stream",  "efficiency_of"};
    WEFT_TRY(weft_doc_check_keys(r->d, m, key, (int)WEFT_COUNT(key)));
    k->efficiency = 1;
    WEFT_TRY(get_name(r, m, "name", &k->name));
    WEFT_TRY(read_rates(r, m, k));
    WEFT_TRY(weft_doc_get_double(r->d, m, "efficiency", &k->efficiency));
    WEFT_TRY(weft_doc_get_double(r->d, m, "mem_Bps", &k->mem_Bps));
    WEFT_TRY(weft_doc_get_int(r->d, m, "mem_bytes", &k->mem_bytes));
    WEFT_TRY(weft_doc_get_double(r->d, m, "launch_s", &k->launch_s));
    return read_curve(r, m, k);
}

static weft_status read_link(const reader *r, const weft_node *m, weft_link_kind *k)
{
    static const char *const key[] = {"name", "alpha_s", "Bps"};
    WEFT_TRY(weft_doc_check_keys(r->d, m, key, 3));
    WEFT_TRY(get_name(r, m, "name", &k->name));
    WEFT_TRY(weft_doc_get_double(r->d, m, "alpha_s", &k->alpha_s));
    return weft_doc_get_double(r->d, m, "Bps", &k->Bps);
}

/* The link that key names; -1 when the key is absent. */
static weft_status find_link(const reader *r, const weft_node *m, const char *key,
                             int *out)
{
    const char *s = NULL;
    *out          = -1;
    WEFT_TRY(weft_doc_get_string(r->d, m, key, &s));
    if (!s) return WEFT_OK;
    for (int i = 0; i < r->c->n_link; i++)
        if (!strcmp(r->c->link[i].name, s)) *out = i;
    return *out < 0 ? complain(r, m, "there is no such link", s) : WEFT_OK;
}

static weft_status read_node(const reader *r, const weft_node *m, weft_host_kind *k)
{
    static const char *const key[] = {"name", "count", "device", "n_device", "link"};
    const char              *s     = NULL;
    WEFT_TRY(weft_doc_check_keys(r->d, m, key, 5));
    k->count = k->n_device = 1;
    k->device              = -1;
    WEFT_TRY(get_name(r, m, "name", &k->name));
    WEFT_TRY(get_count(r, m, "count", &k->count));
    WEFT_TRY(get_count(r, m, "n_device", &k->n_device));
    WEFT_TRY(get_name(r, m, "device", &s));
    for (int i = 0; i < r->c->n_device; i++)
        if (!strcmp(r->c->device[i].name, s)) k->device = i;
    if (k->device < 0) return complain(r, m, "there is no such device", s);
    return find_link(r, m, "link", &k->link);
}

static weft_status read_cluster(reader *r)
{
    static const char *const key[] = {"name", "device", "link", "node", "net"};
    weft_cluster            *c     = r->c;
    const weft_node         *root = weft_doc_root(r->d), *l = NULL;
    if (!root || root->kind != WEFT_NODE_MAP)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: a cluster is a map", weft_doc_file(r->d));
    WEFT_TRY(weft_doc_check_keys(r->d, root, key, 5));
    WEFT_TRY(get_name(r, root, "name", &c->name));
    WEFT_TRY(get_list(r, root, "device", &l, &c->n_device));
    c->device = WEFT_ARENA_ARRAY(c->arena, weft_device_kind, c->n_device);
    WEFT_TRY(weft_arena_status(c->arena));
    for (int i = 0; i < c->n_device; i++)
        WEFT_TRY(read_device(r, l->u.list.node[i], &c->device[i]));
    WEFT_TRY(get_list(r, root, "link", &l, &c->n_link));
    c->link = WEFT_ARENA_ARRAY(c->arena, weft_link_kind, c->n_link);
    WEFT_TRY(weft_arena_status(c->arena));
    for (int i = 0; i < c->n_link; i++)
        WEFT_TRY(read_link(r, l->u.list.node[i], &c->link[i]));
    WEFT_TRY(get_list(r, root, "node", &l, &c->n_node));
    c->node = WEFT_ARENA_ARRAY(c->arena, weft_host_kind, c->n_node);
    WEFT_TRY(weft_arena_status(c->arena));
    for (int i = 0; i < c->n_node; i++)
        WEFT_TRY(read_node(r, l->u.list.node[i], &c->node[i]));
    WEFT_TRY(find_link(r, root, "net", &c->net));
    return weft_cluster_verify(c);
}

weft_status weft_cluster_parse(const char *file, const char *text, size_t n,
                               weft_cluster **out)
{
    weft_doc   *d = NULL;
    weft_arena *a = NULL;
    reader      r = {0};
    weft_status st;
    WEFT_TRY(weft_doc_parse_yaml(file, text, n, &d));
    WEFT_GO(weft_arena_create(&a));
    r.d = d;
    r.c = WEFT_ARENA_NEW(a, weft_cluster);
    WEFT_GO(weft_arena_status(a));
    r.c->arena = a;
    WEFT_GO(read_cluster(&r));
    *out = r.c;
    a    = NULL;
out:
    weft_arena_destroy(a);
    weft_doc_destroy(d);
    return st;
}

/* ---- print ---- */

static void put(weft_text *t, const char *key, double x)
{
    weft_text_add(t, ", %s: ", key);
    weft_text_put_double(t, x);
}

static void put_curve(const weft_device_kind *k, weft_text *t)
{
    int n = 0;
    if (k->half_size != 0) put(t, "half_size", k->half_size);
    if (k->attention != 0) put(t, "attention", k->attention);
    if (k->stream != 0) put(t, "stream", k->stream);
    for (int i = 0; i < k->n_rate; i++) {
        if (k->rate[i].efficiency == 0) continue;
        weft_text_add(t, "%s%s: ", n++ ? ", " : ", efficiency_of: {", k->rate[i].dtype);
        weft_text_put_double(t, k->rate[i].efficiency);
    }
    if (n) weft_text_add(t, "}");
}

static void put_device(const weft_device_kind *k, weft_text *t)
{
    weft_text_add(t, "  - {name: ");
    weft_text_put_quoted(t, k->name);
    weft_text_add(t, ", flops: {");
    for (int i = 0; i < k->n_rate; i++) {
        weft_text_add(t, "%s%s: ", i ? ", " : "", k->rate[i].dtype);
        weft_text_put_double(t, k->rate[i].flops);
    }
    weft_text_add(t, "}");
    put(t, "efficiency", k->efficiency);
    put(t, "mem_Bps", k->mem_Bps);
    weft_text_add(t, ", mem_bytes: %lld", (long long)k->mem_bytes);
    put(t, "launch_s", k->launch_s);
    put_curve(k, t);
    weft_text_add(t, "}\n");
}

static void put_node(const weft_cluster *c, const weft_host_kind *k, weft_text *t)
{
    weft_text_add(t, "  - {name: ");
    weft_text_put_quoted(t, k->name);
    weft_text_add(t, ", count: %d, device: ", k->count);
    weft_text_put_quoted(t, c->device[k->device].name);
    weft_text_add(t, ", n_device: %d", k->n_device);
    if (k->link >= 0) {
        weft_text_add(t, ", link: ");
        weft_text_put_quoted(t, c->link[k->link].name);
    }
    weft_text_add(t, "}\n");
}

weft_status weft_cluster_print(const weft_cluster *c, weft_text *t)
{
    weft_text_add(t, "name: ");
    weft_text_put_quoted(t, c->name);
    weft_text_add(t, "\ndevice:\n");
    for (int i = 0; i < c->n_device; i++) put_device(&c->device[i], t);
    if (c->n_link) weft_text_add(t, "link:\n");
    for (int i = 0; i < c->n_link; i++) {
        weft_text_add(t, "  - {name: ");
        weft_text_put_quoted(t, c->link[i].name);
        put(t, "alpha_s", c->link[i].alpha_s);
        put(t, "Bps", c->link[i].Bps);
        weft_text_add(t, "}\n");
    }
    weft_text_add(t, "node:\n");
    for (int i = 0; i < c->n_node; i++) put_node(c, &c->node[i], t);
    if (c->net >= 0) {
        weft_text_add(t, "net: ");
        weft_text_put_quoted(t, c->link[c->net].name);
        weft_text_add(t, "\n");
    }
    return weft_text_status(t);
}
